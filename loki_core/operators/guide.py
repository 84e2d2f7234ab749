"""Guide Operator: pull a volume's velocity, or one of its channels, towards a given field.

    du/dt = w s / tau (U - u)       velocity: force m w s / tau (U - u) and drag m w s / tau on the
                                    faces, which u* takes implicitly (paper, 6.2): no dt is too long
    dc/dt = w s / tau (C - c)       a scalar: c += (1 - exp(-w s dt / tau)) (C - c), exact

U and C are voxel streams, w an optional mask, s the strength. It is an artist's control that knows
nothing of momentum, so it is off (strength 0) until someone asks for it (paper, 6.4). s and tau may
vary by voxel, and by particle of a liquid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.errors import SetupError, did_you_mean
from loki_core.kernels.jit import parallel_kernel, prange
from loki_core.objects.basics.capabilities import Faces, Gas
from loki_core.objects.buckets.stream_on_voxels import (
    StreamOnVoxels,
)
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task

Array = NDArray[Any]


class GuideOperator(Behavior, kind="operator", varies="vertex"):
    """Pull the volumes in the Group towards a given velocity or scalar field."""

    field: str = parameter("guide", kind="stream", doc="Voxel stream to follow.")
    channel: str = parameter(
        "velocity", kind="channel", doc="Channel of the stream; a vector if velocity is guided."
    )
    guided: str = parameter(
        "velocity", kind="channel", doc="Channel of the volume that follows: velocity or a scalar."
    )
    strength: float = parameter(
        0.0, minimum=0.0, doc="Factor on the rate; 0 leaves the volume alone."
    )
    time_scale: float = parameter(
        0.1, unit="s", minimum=1e-6, doc="Time in which the difference falls to 1/e at strength 1."
    )
    mask: str | None = parameter(
        None, kind="stream", doc="Voxel stream whose scalar channel multiplies the rate."
    )
    mask_channel: str = parameter("mask", kind="channel", doc="Scalar channel of the mask stream.")

    def create(self, scope: Any) -> list[Any]:
        """Make one Action for each fluid; only a gas has scalars that it carries along."""
        return super().create(scope if self.guided == "velocity" else scope.narrowed(Gas))


class GuideAction(Operator[Faces], behavior=GuideOperator):
    """Adds the guiding force and its drag, or relaxes a scalar."""

    behavior: GuideOperator
    settings: GuideOperator

    def __init__(self, behavior: GuideOperator, target: Faces) -> None:
        super().__init__(behavior, target)
        self._streams = StreamOnVoxels(type(behavior).__name__)
        if self.guides_velocity:
            target.need_force()
            target.need_drag()

    @property
    def guides_velocity(self) -> bool:
        """Whether the velocity is guided, and not a scalar channel."""
        return bool(self.behavior.guided == "velocity")

    def has_guided(self) -> bool:
        """Whether the target has the channel that is guided."""
        return self.behavior.guided in self.target.volume.channels

    def tasks(self) -> Iterator[Task]:
        """None where the guided channel is that of another gas."""
        if not self.is_elsewhere(methodcaller("has_guided")):
            yield from super().tasks()

    @task(Stage.EVALUATE_FLUID_FORCES)
    def guide(self, access: Access, step: Step) -> None:
        """Pull the guided channel towards the stream."""
        pull, time = self.on_voxels("strength"), self.on_voxels("time_scale")
        varies = bool(pull.step or time.step)
        rate = 1.0 if varies else pull.number / time.number
        if rate == 0.0:
            return
        volume, rates = access.of("volume"), None
        if self.guides_velocity:
            rates = pull.on_faces() / time.on_faces() if varies else None
            self._guide_velocity(access, volume, rate, rates)
        else:
            rates = pull.in_cells() / time.in_cells() if varies else None
            self._guide_scalar(access, volume, rate * step.dt, rates)

    def _guide_velocity(
        self, access: Access, volume: DiscreteVolume, rate: float, rates: Array | None
    ) -> None:
        settings, velocity = self.settings, access["volume.velocity"]
        kind = velocity.dtype.type
        wanted = self._streams.on_faces(
            self.target.scope, settings.field, settings.channel, volume=volume, components=3
        )
        weight, step = np.ones(1, velocity.dtype), 0
        if settings.mask is not None:
            sampled = self._streams.on_faces(
                self.target.scope, settings.mask, settings.mask_channel, volume=volume
            )
            weight, step = sampled.reshape(-1), 1
        if rates is not None:
            weight, step = _times(weight, rates, velocity), 1
        mass = float(self.target.face_mass)
        accumulate_guide(
            velocity.reshape(-1),
            wanted.reshape(-1),
            kind(mass * rate),
            weight,
            step,
            access["volume.force"].reshape(-1),
            access["volume.drag"].reshape(-1),
        )

    def _guide_scalar(
        self, access: Access, volume: DiscreteVolume, exponent: float, rates: Array | None
    ) -> None:
        settings, name = self.settings, self.behavior.guided
        values = access[f"volume.{name}"]
        wanted = self._streams.on_cells(
            self.target.scope, settings.field, settings.channel, volume=volume, like=name
        )
        weight, step = np.ones(1, values.dtype), 0
        if settings.mask is not None:
            sampled = self._streams.on_cells(
                self.target.scope, settings.mask, settings.mask_channel, volume=volume, like=name
            )
            weight, step = sampled.reshape(-1), 1
        if rates is not None:
            weight, step = _times(weight, rates, values), 1
        relax_towards(wanted.reshape(-1), float(exponent), weight, step, values.reshape(-1))

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Force and drag while forces are evaluated; scalars after the volumes have moved."""
        if self.guides_velocity:
            declaration = replace(
                declaration,
                reads=("volume.velocity",),
                accumulates=("volume.force", "volume.drag"),
            )
            return super().declare(name, stage, declaration)
        guided, label = self.behavior.guided, self.path or type(self.behavior).__name__
        if not self.has_guided():
            known = self.target.volume.channels
            raise SetupError(
                f'{label}.guided = "{guided}": {self.target.path} has no such channel'
                f"{did_you_mean(guided, known)}"
            )
        channel = self.target.volume.channel(guided)
        if channel.location != "cell" or channel.components != 1 or channel.dtype.kind != "f":
            raise SetupError(
                f'{label}.guided = "{guided}": that channel of {self.target.path} is neither the '
                "velocity nor one floating-point number per cell"
            )
        # Relaxations of one channel commute to first order in dt, and run in canonical order.
        declaration = replace(declaration, accumulates=(f"volume.{guided}",))
        return super().declare(name, Stage.SOLVE_SECONDARIES, declaration)


def _times(weight: Array, rates: Array, like: Array) -> Array:
    """Weight [n or 1] times rates that can be broadcast to an array, in its type, [n]."""
    product: Array = weight * np.broadcast_to(rates, like.shape).reshape(-1)
    return product.astype(like.dtype)


@parallel_kernel
def accumulate_guide(velocity, wanted, coefficient, weight, step, force, drag):
    """Add m w / tau (U - u) [N] to force and m w / tau [kg/s] to drag, all [n]."""
    for i in prange(velocity.shape[0]):
        pull = coefficient * weight[i * step]
        force[i] += pull * (wanted[i] - velocity[i])
        drag[i] += pull


@parallel_kernel
def relax_towards(wanted, exponent, weight, step, values):
    """Move values [n] towards the wanted ones by 1 - exp(-w exponent) of the difference."""
    for i in prange(values.shape[0]):
        values[i] -= np.expm1(-weight[i * step] * exponent) * (wanted[i] - values[i])
