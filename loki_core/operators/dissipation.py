"""Dissipation Operator: channels of a gas fade towards their background.

    dc/dt = -w rate (c - c0),     c(t + dt) = c0 + (c(t) - c0) exp(-w rate dt)

Exact for any dt. c0 is the channel's background: no smoke, the ambient temperature, rest. Smoke
that fades is an artist's control (matter is lost); heat that fades is Newton's law of cooling. The
rate may vary by voxel, as a channel of the gas.
"""

from __future__ import annotations

from dataclasses import replace
from operator import methodcaller

import numpy as np

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError, did_you_mean
from loki_core.kernels.jit import kernel, parallel_kernel, prange
from loki_core.objects.basics.capabilities import Gas
from loki_core.objects.buckets.stream_on_voxels import StreamOnVoxels
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

#: Channels of a volume that are its own bookkeeping.
KEPT = ("kind", "open_fraction", "solid_velocity", "force", "drag", "pressure", "divergence")


class DissipationOperator(Behavior, kind="operator", varies="vertex"):
    """Let channels of the gases in the Group fade away."""

    channels: tuple[str, ...] = parameter(
        ("density",), doc="Channels that fade towards their background."
    )
    rate: float = parameter(
        0.5, unit="1/s", minimum=0.0, doc="How fast: the difference falls to 1/e in 1 / rate."
    )
    mask: str | None = parameter(
        None, kind="stream", doc="Voxel stream whose scalar channel multiplies the rate."
    )
    mask_channel: str = parameter("mask", kind="channel", doc="Scalar channel of the mask stream.")

    def validate(self, place: str) -> None:
        """Refuse channels that are not the user's to change, or are named twice."""
        for name in self.channels:
            if name in KEPT:
                raise SetupError(f'{place}.channels: "{name}" is the volume\'s own and cannot fade')
        if len(set(self.channels)) != len(self.channels):
            raise SetupError(f"{place}.channels names a channel twice: {', '.join(self.channels)}")


class DissipationAction(Operator[Gas], behavior=DissipationOperator):
    """Fades the named channels after the volume has moved."""

    behavior: DissipationOperator
    settings: DissipationOperator

    def __init__(self, behavior: DissipationOperator, target: Gas) -> None:
        super().__init__(behavior, target)
        self._streams = StreamOnVoxels(type(behavior).__name__)

    @task(Stage.SOLVE_SECONDARIES)
    def fade(self, access: Access, step: Step) -> None:
        """Move the channels towards their background."""
        settings = self.settings
        rate = self.on_voxels("rate")
        exponent = step.dt if rate.step else rate.number * step.dt
        if exponent == 0.0:
            return
        volume = access.of("volume")
        for name in self._present():
            values = access[f"volume.{name}"]
            weight, step_of_weight = np.ones(1, values.dtype), 0
            if settings.mask is not None:
                at_faces = volume.channel(name).location == "face"
                source = (self.target.scope, settings.mask, settings.mask_channel)
                sampled = (
                    self._streams.on_faces(*source, volume=volume)
                    if at_faces
                    else self._streams.on_cells(*source, volume=volume, like=name)
                )
                weight, step_of_weight = sampled.reshape(-1), 1
            if rate.step:
                at_faces = volume.channel(name).location == "face"
                rates = rate.on_faces() if at_faces else rate.in_cells()
                weight = weight * np.broadcast_to(rates, values.shape).reshape(-1)
                weight, step_of_weight = weight.astype(values.dtype), 1
            background = np.array(volume.channel(name).background, values.dtype)
            # Sizes in full: a rank without Buckets has an empty array.
            rows = values.reshape(values.shape[0] * values.shape[1], values.shape[2] ** 3)
            fade_rows(float(exponent), weight, step_of_weight, background, rows)

    def has_channel(self, name: str) -> bool:
        """Whether the gas has a channel."""
        return name in self.target.volume.channels

    def _present(self) -> list[str]:
        """Which of the named channels this gas has; the others fade elsewhere."""
        return [name for name in self.behavior.channels if self.has_channel(name)]

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Declare the named channels, which must be there by now, in this gas or in another."""
        present = self.target.volume.channels
        label = self.path or type(self.behavior).__name__
        for channel in self.behavior.channels:
            if self.is_elsewhere(methodcaller("has_channel", channel)):
                continue
            if channel not in present:
                raise SetupError(
                    f'{label}.channels: {self.target.path} has no channel "{channel}"'
                    f"{did_you_mean(channel, present)}"
                )
            if present[channel].dtype.kind != "f":
                raise SetupError(
                    f'{label}.channels: "{channel}" of {self.target.path} holds whole numbers, '
                    "which cannot fade"
                )
        # Fading twice is the same in either order, so it accumulates and does not write.
        faded = tuple(f"volume.{channel}" for channel in self._present())
        return super().declare(name, stage, replace(declaration, accumulates=faded))


@parallel_kernel
def fade_rows(exponent, weight, step, background, rows):
    """Multiply the distance of values from their background by exp(-w exponent).

    Args: rows [buckets * components, voxels]; background [components]; weight flat, or one number
        with step 0.
    """
    for n in prange(rows.shape[0]):
        fade_row(exponent, weight, step, background[n % background.shape[0]], n, rows[n])


@kernel
def fade_row(exponent, weight, step, base, n, row):
    """Do one component of one Bucket."""
    if step == 0:
        factor = np.exp(-weight[0] * exponent)
        for i in range(row.shape[0]):
            row[i] = base + (row[i] - base) * factor
    else:
        first = n * row.shape[0]
        for i in range(row.shape[0]):
            row[i] = base + (row[i] - base) * np.exp(-weight[first + i] * exponent)
