"""The manybodies solver on ranks: saves iterations and the gathered solutions.

manybodies.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp

from loki_core.errors import DivergenceError
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.direct import Direct
from loki_core.linear_solvers.manybodies import Manybodies
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.unit.body_systems import coupled_rods, share

BODIES = 25


def main(target):
    comm = world()
    found = {}

    def record(name, solver, system, part, tol):
        b = np.random.default_rng(1).standard_normal(system.total_size)
        x = np.zeros(system.size)
        solver.prepare(system)
        report = solver.solve(b[part], x, tol=tol)
        assert report.converged and report.size == len(b), (name, report)
        assert comm.maximum(report.iterations) == report.iterations
        assert comm.maximum(report.residual) == report.residual
        found[name] = np.concatenate(comm.all_gather(x))
        found[f"{name}_iterations"] = report.iterations
        found[f"{name}_dot"] = system.dot(b[part], b[part])

    with one_fails_all_fail(comm):
        parts, values, couplings = coupled_rods(BODIES, 7, 150, 4)
        even = np.linspace(0, BODIES, comm.size + 1).astype(int)
        empty = even.copy()
        if comm.size > 1:  # the first rank has nothing
            empty[1] = 0
        for name, cuts in (("coupled", even), ("coupled_empty", empty)):
            system, part = share(parts, values, couplings, comm, cuts)
            assert system.has_couplings
            record(name, Manybodies(), system, part, 1e-12)
        system, part = share(parts, values, couplings, comm, even)
        record("direct", Direct(), system, part, 1e-12)
        record("plain", ConjugateGradient(), system, part, 1e-12)
        # Couplings between the first two bodies only: other ranks take part all the same.
        few = sp.csr_matrix(couplings.shape)
        corner = slice(0, int(parts[0][2]))
        few = few.tolil()
        few[corner, corner] = couplings[corner, corner]
        system, part = share(parts, values, few.tocsr(), comm, even)
        record("few", Manybodies(), system, part, 1e-12)
        loose = sp.csr_matrix(couplings.shape)
        system, part = share(parts, values, loose, comm, even)
        assert not system.has_couplings
        record("loose", Manybodies(), system, part, 1e-12)
        broken = values.copy()
        unknown = int(parts[0][20])
        broken[parts[2][unknown] + unknown] = -1.0
        system, part = share(parts, broken, couplings, comm, even)
        try:
            Manybodies().prepare(system)
        except DivergenceError as error:
            assert error.together and "is not positive definite" in str(error), error
        else:
            raise AssertionError("a body that is not positive definite was taken")
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(sys.argv[1])
