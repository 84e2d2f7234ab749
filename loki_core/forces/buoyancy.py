"""Buoyancy Force: warm gas rises, the smoke that it carries weighs it down.

    f = h^3 [ rho_s s + rho0 (T0 / T - 1) ] g            ideal gas at constant pressure
    f = h^3 [ rho_s s + rho0 beta (T0 - T) ] g           Boussinesq, beta = 1 / T0 unless given

s is the "density" channel and rho_s the mass that one unit of it adds to a cubic metre; T is the
"temperature" channel, T0 and rho0 the temperature and density of the ambient air, whose own weight
its hydrostatic pressure balances. Each face takes the mean of its two cells, and the law once, of
that mean. Beyond missing Buckets a channel has its background. rho_s, g and beta may vary by voxel:
f is linear in each of them, so what the law gives for ones is multiplied on the faces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.kernels.jit import kernel, parallel_kernel, prange
from loki_core.objects.basics.capabilities import Gas
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

LAWS = ("ideal_gas", "boussinesq")
#: Part of the ambient temperature below which the ideal gas counts as no colder: T may be wrong.
COLDEST = 0.01


class BuoyancyForce(Behavior, kind="force", varies="vertex"):
    """Let warm gas rise and heavy smoke fall in every volume in the Group."""

    # Thick smoke of a fire holds about a gram of soot and droplets in a cubic metre: a thousandth
    # of the air's own mass, so by default the heat decides.
    smoke_density: float = parameter(
        0.001, unit="kg/m^3", doc="Mass that one unit of the density channel adds to the gas."
    )
    acceleration: tuple[float, float, float] = parameter(
        (0.0, -9.81, 0.0), unit="m/s^2", is_spatial=True, doc="Acceleration of free fall."
    )
    temperature_law: str = parameter(
        "ideal_gas", choices=LAWS, doc="How density depends on temperature."
    )
    expansion: float | None = parameter(
        None,
        unit="1/K",
        doc="Thermal expansion beta of the boussinesq law; none is 1 / ambient temperature.",
    )


class BuoyancyAction(Action[Gas], behavior=BuoyancyForce):
    """Adds the buoyancy to the faces of a volume."""

    behavior: BuoyancyForce
    settings: BuoyancyForce

    def __init__(self, behavior: BuoyancyForce, target: Gas) -> None:
        super().__init__(behavior, target)
        target.need_force()

    @task(Stage.EVALUATE_FLUID_FORCES, accumulates=("volume.force",), halo=1, local_sums=True)
    def lift(self, access: Access, step: Step) -> None:
        """Add the weight of the smoke and the lift of the heat."""
        settings, gas = self.settings, self.target
        volume = access.of("volume")
        force = access["volume.force"]
        kind = force.dtype.type
        h = volume.voxel_size("velocity")
        ambient = gas.ambient_temperature
        expansion = 1.0 / ambient if settings.expansion is None else float(settings.expansion)
        smoke, smoke_background, smoke_step = _channel(access, volume, "density", 0.0, force)
        heat, heat_background, heat_step = _channel(access, volume, "temperature", ambient, force)

        def accumulate(axis: int, smoke_push: float, gas_push: float, beta: float, to: Any) -> None:
            accumulate_buoyancy(
                smoke,
                smoke_step,
                kind(smoke_background),
                heat,
                heat_step,
                kind(heat_background),
                axis,
                LAWS.index(settings.temperature_law),
                kind(0.5),
                kind(smoke_push),
                kind(gas_push),
                kind(ambient),
                kind(beta),
                kind(COLDEST * ambient),
                volume.buckets.neighbours,
                to,
            )

        if self.target.overriding_channels(self.behavior):
            self._lift_unevenly(accumulate, h**3, force)
            return
        for axis in range(3):
            push = h**3 * float(settings.acceleration[axis])
            if push != 0.0:
                soot, air = float(settings.smoke_density), float(gas.settings.density)
                accumulate(axis, push * soot, push * air, expansion, force)

    def _lift_unevenly(
        self, accumulate: Callable[..., None], space: float, force: NDArray[Any]
    ) -> None:
        """Do so with what varies by voxel. Collective."""
        gas, boussinesq = self.target, self.settings.temperature_law == "boussinesq"
        soot, pull = self.on_voxels("smoke_density"), self.on_voxels("acceleration")
        beta: Any = 1.0
        if boussinesq:
            behavior = self.behavior
            if behavior.expansion is None:
                behavior = behavior.replace(expansion=1.0 / gas.ambient_temperature)
            beta = gas.on_voxels(behavior, "expansion", label=self.path).on_faces()
        smoke, heat = np.zeros_like(force), np.zeros_like(force)
        for axis in range(3):
            accumulate(axis, space, 0.0, 1.0, smoke)
            accumulate(axis, 0.0, space * float(gas.settings.density), 1.0, heat)
        force += pull.on_faces() * (soot.on_faces() * smoke + beta * heat)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Read smoke and heat where the volume carries them."""
        present = self.target.data["volume"].channels
        reads = tuple(f"volume.{c}" for c in ("density", "temperature") if c in present)
        return super().declare(name, stage, replace(declaration, reads=reads))


def _channel(
    access: Access, volume: DiscreteVolume, name: str, default: float, like: NDArray[Any]
) -> tuple[NDArray[Any], float, int]:
    """A channel as the kernel reads it: values, background, step; one Bucket if it is not there."""
    if name not in volume.channels:
        return np.full((1, 1, *like.shape[2:]), default, like.dtype), default, 0
    return access[f"volume.{name}"], volume.channel(name).background[0], 1


@kernel
def weight_of(smoke, heat, law, smoke_push, gas_push, ambient, expansion, coldest):
    """Buoyancy [N] of a face from its smoke and temperature."""
    if law == 0:
        return smoke_push * smoke + gas_push * (ambient / max(heat, coldest) - ambient / ambient)
    return smoke_push * smoke + gas_push * expansion * (ambient - heat)


@kernel
def lift_bucket(
    b, smoke, smoke_step, smoke_background, heat, heat_step, heat_background, axis, law, half,
    smoke_push, gas_push, ambient, expansion, coldest, neighbours, force,
):  # fmt: skip
    """Do the lower faces of one Bucket along an axis."""
    r = force.shape[2]
    entry = neighbours[b, 13 - (9 if axis == 0 else (3 if axis == 1 else 1))]
    for i in range(r):
        for j in range(r):
            # Rows of the cells above and below the faces: other Buckets' at the first faces.
            first = (axis == 0 and i == 0) or (axis == 1 and j == 0)
            m = i if axis != 0 else (r - 1 if i == 0 else i - 1)
            n = j if axis != 1 else (r - 1 if j == 0 else j - 1)
            other = max(entry, 0) if first else b
            stored = not first or entry >= 0
            smoke_above = smoke[b * smoke_step, 0, i, j]
            heat_above = heat[b * heat_step, 0, i, j]
            smoke_below = smoke[other * smoke_step, 0, m, n]
            heat_below = heat[other * heat_step, 0, m, n]
            out = force[b, axis, i, j]
            if axis == 2:
                s, t = smoke_background, heat_background
                if entry >= 0:
                    s = smoke[entry * smoke_step, 0, i, j, r - 1]
                    t = heat[entry * heat_step, 0, i, j, r - 1]
                for k in range(r):
                    out[k] += weight_of(
                        half * (s + smoke_above[k]), half * (t + heat_above[k]), law, smoke_push,
                        gas_push, ambient, expansion, coldest,
                    )  # fmt: skip
                    s, t = smoke_above[k], heat_above[k]
            elif stored:
                for k in range(r):
                    out[k] += weight_of(
                        half * (smoke_below[k] + smoke_above[k]),
                        half * (heat_below[k] + heat_above[k]),
                        law, smoke_push, gas_push, ambient, expansion, coldest,
                    )  # fmt: skip
            else:
                for k in range(r):
                    out[k] += weight_of(
                        half * (smoke_background + smoke_above[k]),
                        half * (heat_background + heat_above[k]),
                        law, smoke_push, gas_push, ambient, expansion, coldest,
                    )  # fmt: skip


@parallel_kernel
def accumulate_buoyancy(
    smoke, smoke_step, smoke_background, heat, heat_step, heat_background, axis, law, half,
    smoke_push, gas_push, ambient, expansion, coldest, neighbours, force,
):  # fmt: skip
    """Add the buoyancy along one axis to the lower faces of all local Buckets.

    Args: smoke, heat [b, 1, r, r, r] with ghosts, or one Bucket with step 0; law 0 ideal gas, 1
        Boussinesq; smoke_push, gas_push: h^3 g times rho_s and rho0 [N]; neighbours [local, 27];
        force [local, 3, r, r, r] N. Numbers have the type of the force.
    """
    for b in prange(neighbours.shape[0]):
        lift_bucket(
            np.int64(b), smoke, smoke_step, smoke_background, heat, heat_step, heat_background,
            axis, law, half, smoke_push, gas_push, ambient, expansion, coldest, neighbours, force,
        )  # fmt: skip
