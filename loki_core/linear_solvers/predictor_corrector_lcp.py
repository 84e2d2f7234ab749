"""Predictor-corrector solver for mixed linear complementarity problems (PC-LCP).

The paper's Algorithm 2: the solution without bounds, by multigrid, is close to the one with them;
projected Gauss-Seidel corrects it. Here a further step stands between: the unknowns that press on a
bound are held there and the others solved again by multigrid, until no unknown changes sides (the
primal-dual active set method, Hintermüller, Ito, Kunisch 2003), which for pressure matrices ends
after a few rounds. PGS polishes the result, and is the fail-safe where sides keep changing.
"""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np

from loki_core.kernels.algebra.sparse_gauss_seidel import free_entries, mark_active
from loki_core.linear_solvers.complementarity import Bound, ComplementarityProblem
from loki_core.linear_solvers.projected_gauss_seidel import ProjectedGaussSeidel
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from loki_core.linear_solvers.sparse_system import SlicedMatrix, SparseSystem
from loki_core.linear_solvers.system import SolveReport, Vector

MOST_ROUNDS = 40
REBUILD_ABOVE = 15  # iterations of a round after which the next has a hierarchy of its own


class PredictorCorrectorLcp:
    """Multigrid prediction, active set, PGS correction."""

    name = "predictor_corrector_lcp"

    def __init__(self) -> None:
        self._predictor = SmoothedAggregation()

    def prepare(
        self,
        system: SparseSystem,
        reuse: str | None = None,
        *,
        predictor: SmoothedAggregation | None = None,
    ) -> None:
        """Build the multigrid hierarchy. Collective.

        Args:
            predictor: One that is prepared for the system already.
        """
        self.system = system
        if predictor is not None:
            self._predictor = predictor
        else:
            self._predictor.prepare(system, reuse)

    def solve(
        self,
        b: Vector,
        x: Vector,
        *,
        lower: Bound = None,
        upper: Bound = None,
        tol: float = 1e-6,
        max_iterations: int = 10_000,
    ) -> SolveReport:
        """Improve x until the complementarity residual is at most tol. Collective.

        The iterations of the report are those of conjugate gradients and sweeps of PGS together.
        """
        start, system = perf_counter(), self.system
        problem = ComplementarityProblem(system, b, lower, upper)
        residual = problem.evaluate(x)
        iterations = 0
        if not residual <= tol and math.isfinite(residual):
            report = self._predictor.solve(-b, x, tol=1e-2, max_iterations=50)
            iterations = report.iterations
            iterations += self._active_set(problem, x, tol, max_iterations)
        problem.clamp(x)
        residual = problem.evaluate(x)
        if not residual <= tol and math.isfinite(residual) and iterations < max_iterations:
            gauss_seidel = ProjectedGaussSeidel()
            gauss_seidel.prepare(system)
            report = gauss_seidel.solve(
                b, x, lower=problem.lower, upper=problem.upper, tol=tol,
                max_iterations=max_iterations - iterations,
            )  # fmt: skip
            iterations, residual = iterations + report.iterations, report.residual
        return SolveReport(
            self.name,
            system.total_size,
            iterations,
            perf_counter() - start,
            residual,
            bool(residual <= tol),
        )

    def _active_set(self, problem: ComplementarityProblem, x: Vector, tol: float, most: int) -> int:
        """Hold the unknowns that press on a bound and solve for the others; return iterations."""
        system = self.system
        active = np.zeros(system.halo.length, dtype=np.int32)
        own = active[: system.size]
        before = np.full(system.size, -1, dtype=np.int32)
        inner = SmoothedAggregation()
        iterations, rebuild = 0, False
        # Ghosts of A x need the clamped start: what lies far outside would press on neighbours.
        problem.clamp(x)
        problem.evaluate(x)
        for _ in range(MOST_ROUNDS):
            mark_active(x, problem.w, problem.inverse_diagonal, problem.lower, problem.upper, own)
            changed = system.comm.total(int(np.count_nonzero(own != before)))
            np.copyto(x, problem.lower, where=own == 1)
            np.copyto(x, problem.upper, where=own == 2)
            if problem.evaluate(x) <= tol or iterations >= most:
                break
            if changed:
                before[:] = own
                system.halo.refresh(active)
                reduced = self._reduced(active)
                if rebuild:  # many are held: levels of the whole do not suit the rest
                    inner.prepare(reduced)
                else:
                    inner.prepare_part(self._predictor, reduced, own == 0)
            force = np.where(own == 0, -problem.w, 0.0)
            norm = math.sqrt(system.dot(force, force))
            if not (norm > 0.0 and math.isfinite(norm)):
                break
            goal = 0.5 * tol * problem.scale / norm
            step = np.zeros(system.size)
            report = inner.solve(
                force, step, tol=min(0.5, max(goal, 1e-2 if changed else 1e-6)), max_iterations=200
            )
            iterations += report.iterations
            rebuild |= report.iterations > REBUILD_ABOVE
            if report.iterations == 0:
                break
            x += step
            problem.evaluate(x)
        return iterations

    def _reduced(self, active: np.ndarray) -> SparseSystem:
        """The system of the free unknowns; rows and columns of the others are zero."""
        full = self.system
        values = np.empty_like(full.matrix.values)
        matrix = full.matrix
        free_entries(matrix.slices, matrix.columns, matrix.values, active, full.size, values)
        reduced = SparseSystem.__new__(SparseSystem)
        reduced.__dict__.update(full.__dict__)
        reduced.matrix = SlicedMatrix(full.size, matrix.slices, matrix.columns, values)
        reduced.null_space = []
        return reduced
