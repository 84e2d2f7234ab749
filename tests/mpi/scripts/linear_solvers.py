"""Linear solvers on ranks: saves iterations and the gathered solutions.

linear_solvers.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.linear_solvers.direct import Direct
from loki_core.linear_solvers.predictor_corrector_lcp import PredictorCorrectorLcp
from loki_core.linear_solvers.projected_gauss_seidel import ProjectedGaussSeidel
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.unit.linear_systems import box, box_with_holes, dam_break, poisson, share


def main(target):
    comm = world()
    found = {}

    def cuts_of(count, empty=False):
        cuts = np.linspace(0, count, comm.size + 1).astype(int)
        if empty and comm.size > 1:  # the first rank has nothing
            cuts[1] = 0
        return cuts

    def record(name, solver, system, b, reuse=None, **options):
        solver.prepare(system, reuse)
        cuts = cuts_of(len(b), name.endswith("empty"))
        x = np.zeros(system.size)
        report = solver.solve(b[cuts[comm.rank] : cuts[comm.rank + 1]], x, **options)
        assert report.converged, (name, report)
        assert report.size == len(b)
        iterations = np.concatenate(comm.all_gather(np.array([report.iterations])))
        assert np.all(iterations == iterations[0]), iterations
        found[name] = np.concatenate(comm.all_gather(x))
        found[f"{name}_iterations"] = report.iterations

    with one_fails_all_fail(comm):
        rng = np.random.default_rng(1)
        matrix = poisson(box(24))
        b = rng.standard_normal(24**3)
        for name in ("box", "box_empty"):
            system = share(matrix, comm, cuts_of(24**3, name == "box_empty"))
            record(name, SmoothedAggregation(), system, b, tol=1e-10)
        fluid = box_with_holes(16)
        fluid[:, :, 0] = True  # not all pockets vanish, so the matrix gets a little more
        matrix = poisson(fluid)
        diagonal = matrix.diagonal()
        matrix = matrix.copy()
        matrix.setdiag(np.where(diagonal > 0, diagonal + 2.0**-8, 0.0))
        matrix.eliminate_zeros()
        b = np.where(diagonal > 0, rng.standard_normal(16**3), 0.0)
        record("holes", SmoothedAggregation(), share(matrix, comm, cuts_of(16**3)), b, tol=1e-10)
        closed = poisson(box(14), dirichlet_top=False)
        cuts = cuts_of(14**3)
        null = np.full(cuts[comm.rank + 1] - cuts[comm.rank], 14.0**-1.5)
        b = rng.standard_normal(14**3)
        system = share(closed, comm, cuts, null_space=[null])
        record("closed", SmoothedAggregation(), system, b, tol=1e-10)
        record("direct", Direct(), system, b, tol=1e-10)
        matrix, b = dam_break(12)
        system = share(matrix, comm, cuts_of(len(b)))
        record("pgs", ProjectedGaussSeidel(), system, b, lower=0.0, tol=1e-9)
        record("lcp", PredictorCorrectorLcp(), system, b, lower=0.0, tol=1e-9)
        # Ranks decide together whether colours stay: one without rows always could keep its own.
        solver = ProjectedGaussSeidel()
        shorter = share(matrix[:-8, :-8].tocsr(), comm, cuts_of(len(b) - 8, empty=True))
        solver.prepare(shorter)
        solver.prepare(shorter, "pattern")
        system = share(matrix, comm, cuts_of(len(b), empty=True))
        solver.prepare(system, "pattern")
        record("pgs_empty", solver, system, b, reuse="pattern", lower=0.0, tol=1e-9)
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(sys.argv[1])
