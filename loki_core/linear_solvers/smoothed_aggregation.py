"""Conjugate gradients preconditioned by smoothed-aggregation multigrid (SA-AMG).

    Vanek, Mandel, Brezina 1996; Demidov 2020; Tamstorf et al. 2015 (the paper, section 6.5)

For systems of kind "spd". Vectors of conjugate gradients are float64, the preconditioner is
float32: the residual is scaled to one before it goes down. The null space of a singular system is
taken out of the right-hand side and of every search direction.
"""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import SetupError
from loki_core.kernels.algebra import sparse_cycle as cycle
from loki_core.linear_solvers.hierarchy import Hierarchy
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_core.linear_solvers.system import SolveReport, Vector


class SmoothedAggregation:
    """SA-AMG preconditioned CG; `prepare` once per matrix, `solve` for each right-hand side."""

    name = "smoothed_aggregation"

    def __init__(self) -> None:
        self.hierarchy: Hierarchy | None = None
        self._free: NDArray[np.float32] | None = None  # of unknowns, if some are held: 1, or 0

    def prepare(self, system: SparseSystem, reuse: str | None = None) -> None:
        """Build the hierarchy. Collective.

        Args:
            system: An spd SparseSystem.
            reuse: None builds everything; "pattern" keeps the aggregates of the system before,
                whose rows and ghosts must be the same; "values" keeps the whole hierarchy, for a
                matrix that is the same or nearly so (the answer is right in any case).
        """
        if system.kind != "spd":
            raise SetupError(f"smoothed aggregation cannot solve a {system.kind} system")
        if reuse not in (None, "pattern", "values"):
            raise SetupError(f'reuse = "{reuse}" is not known; known: None, "pattern", "values"')
        before = self.hierarchy
        if before is not None and reuse is not None:
            changed = before.levels[0].halo.length != system.halo.length
            if system.comm.any(changed):
                before = None
        self.system, self._free = system, None
        if reuse == "values" and before is not None:
            before.replace_first(system.matrix, system.halo)
            return
        self.hierarchy = None  # frees the memory of the one before
        self.hierarchy = Hierarchy(
            system.matrix,
            system.halo,
            near_null_space=system.near_null_space,
            singular=len(system.null_space) > 0,
            boxes=system.boxes,
            aggregates_of=before if reuse == "pattern" else None,
        )

    def prepare_part(
        self, whole: SmoothedAggregation, system: SparseSystem, free: NDArray[np.bool_]
    ) -> None:
        """Take the system of a part of the unknowns, with the levels of the whole.

        The preconditioner is the whole's between two projections on the part, so it stays
        symmetric; it is good where the others are few, and costs nothing to make.

        Args:
            whole: Prepared for the system of all unknowns.
            system: That with zeros in the rows and columns of the others.
            free: Unknowns of the part, own rows.
        """
        self.system, self.hierarchy = system, whole.hierarchy
        self._free = free.astype(np.float32)

    def solve(
        self, b: Vector, x: Vector, *, tol: float = 1e-8, max_iterations: int = 200
    ) -> SolveReport:
        """Improve x until |b - A x| <= tol |b|. Collective."""
        start, system = perf_counter(), self.system
        b = self._without_null_space(b)
        scale = math.sqrt(system.dot(b, b))
        if scale == 0.0:
            x[self._used()] = 0.0
        target = tol * scale
        residual = np.empty_like(b)
        product = np.empty_like(b)
        direction = np.zeros(system.halo.length)
        iterations, norm = 0, self._measure(b, x, product, residual)
        # The recurrence's residual drifts from the true one: start again until both agree.
        for _ in range(4):
            if not (norm > target and math.isfinite(norm)) or iterations >= max_iterations:
                break
            done = self._iterate(
                x, residual, product, direction, norm, target, max_iterations - iterations
            )
            if done == 0:
                break
            iterations += done
            norm = self._measure(b, x, product, residual)
        for null in system.null_space:
            cycle.add_multiple(null, -system.dot(null, x), x)
        return SolveReport(
            self.name,
            system.total_size,
            iterations,
            perf_counter() - start,
            norm / scale if scale > 0.0 else 0.0,
            math.isfinite(target) and norm <= target,
        )

    def _measure(self, b: Vector, x: Vector, product: Vector, residual: Vector) -> float:
        """Fill residual = b - A x and return its norm. Collective."""
        self.system.multiply(x, product)
        cycle.subtract(b, product, residual)
        return math.sqrt(self.system.dot(residual, residual))

    def precondition(self, residual: Vector, norm: float) -> Vector:
        """One cycle on residual / norm; a float32 vector that is overwritten by the next call."""
        assert self.hierarchy is not None
        cycle.scale_down(residual, 1.0 / norm, self.hierarchy.levels[0].r)
        z = self.hierarchy.apply()
        if self._free is not None:
            z *= self._free
        return z

    def _iterate(
        self,
        x: Vector,
        residual: Vector,
        product: Vector,
        direction: Vector,
        norm: float,
        target: float,
        most: int,
    ) -> int:
        """Conjugate gradients from a true residual; return the iterations done."""
        system = self.system
        own = direction[: system.size]
        partial = np.zeros(system.blocks)
        rho_before, iterations = 1.0, 0
        direction[:] = 0.0
        while norm > target and iterations < most:
            z = self.precondition(residual, norm)
            rho = norm * system.dot(residual, z)
            if not (rho > 0.0 and math.isfinite(rho)):
                break
            cycle.next_direction(z, norm, rho / rho_before if iterations else 0.0, own)
            for null in system.null_space:
                cycle.add_multiple(null, -system.dot(null, own), own)
            curvature = system.multiply_dot(direction, product)
            if not (curvature > 0.0 and math.isfinite(curvature)):
                break
            cycle.advance(own, product, rho / curvature, x, residual, partial)
            norm = math.sqrt(system.total_of(partial))
            rho_before = rho
            iterations += 1
        return iterations

    def _without_null_space(self, b: Vector) -> Vector:
        """A copy of b without its part in the null space and in rows of zeros."""
        b = np.where(self._used(), b, 0.0)
        for null in self.system.null_space:
            cycle.add_multiple(null, -self.system.dot(null, b), b)
        return b

    def _used(self) -> NDArray[np.bool_]:
        assert self.hierarchy is not None
        used: NDArray[np.bool_] = self.hierarchy.levels[0].inverse_diagonal > 0.0
        return used
