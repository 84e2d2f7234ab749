"""Schur complement: multipliers by conjugate gradients, bodies by their own factors inside.

    (c + G A^-1 G^T) y = G A^-1 b - g,     x = A^-1 (b - G^T y)

for the systems of `multiplier_system.py`. A is solved by manybodies: directly, where nothing joins
bodies. Rows that A holds firmly already, with a stiffness k (an augmented Lagrangian), have
G A^-1 G^T near 1 / k: with 1 / (c + 1 / k) as preconditioner a few iterations do, whatever c is.
"""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np

from loki_core.errors import SetupError
from loki_core.linear_solvers.manybodies import Manybodies
from loki_core.linear_solvers.multiplier_system import MultiplierSystem
from loki_core.linear_solvers.system import SolveReport, System, Vector

INNER = 1.0e-3  # tolerance of solves with A, of the outer one


class SchurComplement:
    """Factorise the bodies in `prepare`; iterate over their multipliers in `solve`."""

    name = "schur_complement"

    def __init__(self) -> None:
        self.system: MultiplierSystem
        self._bodies = Manybodies()

    def prepare(self, system: System, reuse: str | None = None) -> None:
        """Take a system; reuse = "values" keeps the factors of its bodies. Collective."""
        if not isinstance(system, MultiplierSystem):
            raise SetupError(
                f"schur_complement solves bodies with multipliers, not a {type(system).__name__}"
            )
        if system.joins_bodies:
            raise SetupError(
                "schur_complement solves multipliers of single bodies; those that join bodies "
                'need "direct"'
            )
        self.system = system
        self._bodies.prepare(system.bodies, reuse)
        compliance, firmness = system.of_rows("compliance"), system.of_rows("firmness")
        held = np.divide(1.0, firmness, out=np.zeros_like(firmness), where=firmness > 0.0)
        self._inverse = 1.0 / np.maximum(compliance + held, 1e-300)
        self._compliance = compliance

    def solve(
        self, b: Vector, x: Vector, *, tol: float = 1e-8, max_iterations: int = 200
    ) -> SolveReport:
        """Improve x until both rows are met to tol of their right-hand sides. Collective."""
        start, system = perf_counter(), self.system
        force, wanted = system.split(b)
        place, y = system.split(x)
        inner = INNER * tol
        reports = [self._bodies.solve(force, place, tol=inner)]
        rhs = np.empty(system.multipliers)
        system.strains(place, rhs)
        rhs -= wanted
        scale = math.sqrt(system.dot_multipliers(rhs, rhs))
        residual = rhs - self._apply(y, inner)
        direction = self._inverse * residual
        rho = system.dot_multipliers(residual, direction)
        norm = math.sqrt(system.dot_multipliers(residual, residual))
        iterations = 0
        while norm > tol * scale and iterations < max_iterations:
            product = self._apply(direction, inner)
            curvature = system.dot_multipliers(direction, product)
            if not curvature > 0.0:
                break
            y += (rho / curvature) * direction
            residual -= (rho / curvature) * product
            better = self._inverse * residual
            rho, former = system.dot_multipliers(residual, better), rho
            direction *= rho / former
            direction += better
            norm = math.sqrt(system.dot_multipliers(residual, residual))
            iterations += 1
        loaded = force.copy()
        system.subtract_forces(y, loaded)
        reports.append(self._bodies.solve(loaded, place, tol=inner))
        met = norm / scale if scale > 0.0 else 0.0
        worst = max((met, *(one.residual for one in reports)))
        done = all(one.converged for one in reports) and met <= tol
        return SolveReport(
            self.name,
            system.total_size,
            iterations,
            perf_counter() - start,
            worst,
            math.isfinite(worst) and done,
        )

    def _apply(self, y: Vector, inner: float) -> Vector:
        """The complement's product with multipliers. Collective."""
        system = self.system
        force = np.zeros(system.bodies.size)
        system.subtract_forces(y, force)
        place = np.zeros_like(force)
        self._bodies.solve(force, place, tol=inner)
        product = np.empty_like(y)
        system.strains(place, product)
        # `force` is -G^T y, so its answer is taken away.
        found: Vector = self._compliance * y - product
        return found
