"""Gravity Force: the same acceleration for everything that has mass.

f = m g,   df/dx = 0   (no Jacobian is written, so the force is explicit)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.forces.force import Force, ForcePoints
from loki_core.kernels.jit import parallel_kernel, prange


class GravityForce(Behavior, kind="force", varies="vertex"):
    """Pull every Object in the Group along one constant acceleration."""

    acceleration: tuple[float, float, float] = parameter(
        (0.0, -9.81, 0.0),
        unit="m/s^2",
        is_spatial=True,
        doc="Acceleration of free fall.",
    )


class GravityAction(Force, behavior=GravityForce):
    """Adds m g."""

    reads = ("mass",)
    is_uniform = True

    def uniform_acceleration(self) -> NDArray[np.float64]:
        """Everything falls alike: a volume weighs this against the ambient air at once."""
        g: NDArray[np.float64] = self.target.of_object(
            self.behavior, "acceleration", label=self.path
        )
        return g

    def evaluate(
        self, points: ForcePoints, force: NDArray[Any], jacobian: NDArray[Any] | None
    ) -> None:
        """Add m g to the forces."""
        acceleration, step = points.resolve("acceleration")
        accumulate_gravity(points["mass"], acceleration, step, force)


@parallel_kernel
def accumulate_gravity(mass, acceleration, step, force):
    """Add mass [n] times acceleration [n or 1, 3] to force [n, 3]."""
    for i in prange(force.shape[0]):
        for axis in range(3):
            force[i, axis] += mass[i] * acceleration[i * step, axis]
