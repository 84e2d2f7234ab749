"""Conjugate gradients with the diagonal as preconditioner (Hestenes & Stiefel 1952).

For systems of kind "spd" only. The null space of a singular system is taken out of the right-hand
side and of every search direction, so a closed box of fluid needs no pinned cell.
"""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import numpy as np

from loki_core.errors import DivergenceError
from loki_core.linear_solvers.system import SolveReport, System, Vector


class ConjugateGradient:
    """Plain CG; `prepare` once per matrix, `solve` for each right-hand side.

    Another preconditioner is a class of its own that overrides `_apply` and extends `prepare`.
    """

    name = "conjugate_gradient"

    def prepare(self, system: System, reuse: str | None = None) -> None:
        """Take a system. `reuse` is of no use to a diagonal preconditioner."""
        if system.kind != "spd":
            raise DivergenceError(f"conjugate gradients cannot solve a {system.kind} system")
        self.system: Any = system
        diagonal = system.diagonal()
        # A row of zeros belongs to an unknown that takes part in nothing: it stays as it is.
        self._used = diagonal != 0.0
        self._inverse_diagonal = np.divide(
            1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0
        )

    def solve(
        self, b: Vector, x: Vector, *, tol: float = 1e-8, max_iterations: int = 1000
    ) -> SolveReport:
        """Improve x until |b - A x| <= tol |b|. Collective."""
        start, system = perf_counter(), self.system
        b = np.where(self._used, b, 0.0)
        self._project(b)
        scale = math.sqrt(system.dot(b, b))
        if scale == 0.0:
            x[self._used] = 0.0
        target = tol * scale
        product = np.empty_like(b)
        system.multiply(x, product)
        residual = b - product
        direction = self._precondition(residual)
        rho = system.dot(residual, direction)
        norm = math.sqrt(system.dot(residual, residual))
        iterations = 0
        while norm > target and iterations < max_iterations:
            system.multiply(direction, product)
            curvature = system.dot(direction, product)
            if not curvature > 0.0:
                break
            alpha = rho / curvature
            x += alpha * direction
            residual -= alpha * product
            norm = math.sqrt(system.dot(residual, residual))
            iterations += 1
            if not norm > target:
                break
            correction = self._precondition(residual)
            rho, former = system.dot(residual, correction), rho
            direction *= rho / former
            direction += correction
        self._project(x)
        system.multiply(x, product)  # the recurrence's residual drifts: report the true one
        residual = b - product
        norm = math.sqrt(system.dot(residual, residual))
        count = round(system.dot(np.ones_like(b), np.ones_like(b)))
        return SolveReport(
            self.name,
            count,
            iterations,
            perf_counter() - start,
            norm / scale if scale > 0.0 else 0.0,
            math.isfinite(target) and norm <= max(1.01 * target, self._rounding(x)),
        )

    def _apply(self, residual: Vector) -> Vector:
        """The preconditioner's answer to a residual, a new vector."""
        return self._inverse_diagonal * residual

    def _rounding(self, x: Vector) -> float:
        """Norm of a residual that is rounding alone, where a solver knows it. Collective."""
        return 0.0

    def _precondition(self, residual: Vector) -> Vector:
        corrected = self._apply(residual)
        self._project(corrected)
        return corrected

    def _project(self, vector: Vector) -> None:
        for null in self.system.null_space:
            vector -= self.system.dot(null, vector) * null
