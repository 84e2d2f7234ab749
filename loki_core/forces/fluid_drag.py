"""Fluid Drag Force: what a fluid that moves with u does to a particle that moves with v.

    f = -phi(s) w,   w = v - u,   s = |w|
    df/dx = -(1/dt) [phi I + phi'(s) / s  w w^T]         (negative semi-definite)

    linear              phi = K                                        a given coefficient [kg/s]
    stokes              phi = 6 pi mu r                                creeping flow
    quadratic           phi = 1/2 rho C A s,  A = pi r^2               a given drag coefficient C
    schiller_naumann    phi = 6 pi mu r (1 + 0.15 Re^0.687)   for Re = 2 r s rho / mu <= 1000,
                        C = 0.44 beyond
                        (Schiller & Naumann 1935; both branches meet within 0.4 %)

All of K, C, u, rho and mu may vary by vertex, particle or voxel.

The gradient of the flow is left out of the Jacobian, which makes the force implicit: with linear
drag one backward Euler step of length h multiplies w by exactly 1 / (1 + K h / m).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.voxel_field import FieldSampler
from loki_core.forces.force import Force, ForcePoints
from loki_core.kernels.jit import parallel_kernel, prange
from loki_core.objects.basics.capabilities import Faces, MovedPoints

LAWS = ("linear", "stokes", "quadratic", "schiller_naumann")


class FluidDragForce(Behavior, kind="force", varies="vertex"):
    """Drag every Object in the Group along with a given flow."""

    law: str = parameter("schiller_naumann", choices=LAWS, doc="How drag depends on the speed.")
    velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m/s", is_spatial=True, doc="Constant part of the flow's velocity."
    )
    field: str | None = parameter(
        None, kind="stream", doc="Voxel stream whose channel is added to the constant part."
    )
    channel: str = parameter("velocity", kind="channel", doc="Vector channel of the voxel stream.")
    coefficient: float = parameter(1.0, unit="kg/s", minimum=0.0, doc="K of the linear law.")
    drag_coefficient: float = parameter(
        0.47, minimum=0.0, doc="C of the quadratic law; 0.47 is a sphere."
    )
    fluid_density: float = parameter(
        1.204,
        unit="kg/m^3",
        minimum=0.0,
        doc="Density of the fluid; the default is air at 20 degC.",
    )
    fluid_viscosity: float = parameter(
        1.81e-5,
        unit="Pa*s",
        minimum=1e-12,
        doc="Dynamic viscosity of the fluid; the default is air.",
    )


class FluidDragAction(Force, behavior=FluidDragForce):
    """Adds the drag of the chosen law."""

    settings: FluidDragForce
    reads = ("radius",)
    implicit = True

    def __init__(self, behavior: FluidDragForce, target: MovedPoints | Faces) -> None:
        super().__init__(behavior, target)
        self._sampler = FieldSampler(type(behavior).__name__)
        self.cost = 0.05 if behavior.field is None else 1.0

    def evaluate(
        self, points: ForcePoints, force: NDArray[Any], jacobian: NDArray[Any] | None
    ) -> None:
        """Add the drag and its derivative."""
        settings = self.settings
        velocity = points["velocity"]
        flow, flow_step = points.resolve("velocity")
        if settings.field is not None:
            flow = flow + self._sampler.sample(
                self.target.scope,
                settings.field,
                settings.channel,
                components=3,
                position=points["position"],
            )
            flow_step = 1
        law = LAWS.index(settings.law)
        given = "coefficient" if settings.law == "linear" else "drag_coefficient"
        values, step = points.resolve(given)
        density, density_step = points.resolve("fluid_density", np.float64)
        viscosity, viscosity_step = points.resolve("fluid_viscosity", np.float64)
        accumulate_drag(
            velocity,
            flow,
            flow_step,
            points["radius"],
            law,
            values,
            step,
            density,
            density_step,
            viscosity,
            viscosity_step,
            points.dt,
            force,
            jacobian,
        )


@parallel_kernel
def accumulate_drag(
    velocity,
    flow,
    flow_step,
    radius,
    law,
    coefficient,
    step,
    fluid_density,
    density_step,
    fluid_viscosity,
    viscosity_step,
    dt,
    force,
    jacobian,
):
    """Add drag to force [n, 3] and its derivative in positions to jacobian [n, 3, 3].

    Args: velocity [n, 3]; flow [n or 1, 3]; radius [n]; coefficient, fluid_density,
        fluid_viscosity [n or 1], each with its step.
    """
    for i in prange(velocity.shape[0]):
        wx = velocity[i, 0] - flow[i * flow_step, 0]
        wy = velocity[i, 1] - flow[i * flow_step, 1]
        wz = velocity[i, 2] - flow[i * flow_step, 2]
        speed = np.sqrt(wx * wx + wy * wy + wz * wz)
        r = radius[i]
        density = fluid_density[i * density_step]
        viscosity = fluid_viscosity[i * viscosity_step]
        stokes = 6.0 * np.pi * viscosity * r
        reynolds = 2.0 * r * speed * density / viscosity
        if law == 0:
            phi = 1.0 * coefficient[i * step]
            slope = 0.0  # phi'(s) s
        elif law == 1:
            phi = stokes
            slope = 0.0
        elif law == 2 or reynolds > 1000.0:
            c = coefficient[i * step] if law == 2 else 0.44
            phi = 0.5 * density * c * np.pi * r * r * speed
            slope = phi
        else:
            power = 0.15 * reynolds**0.687
            phi = stokes * (1.0 + power)
            slope = stokes * 0.687 * power
        force[i, 0] -= phi * wx
        force[i, 1] -= phi * wy
        force[i, 2] -= phi * wz
        # phi'(s) / s  w w^T = slope (w/s)(w/s)^T
        scale = slope / (speed * speed) if speed > 0.0 else 0.0
        w = (wx, wy, wz)
        for a in range(3):
            jacobian[i, a, a] -= phi / dt
            for b in range(3):
                jacobian[i, a, b] -= scale * w[a] * w[b] / dt
