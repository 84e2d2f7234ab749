"""Turbulence Force: stir a volume by noise that has no divergence.

    f = m w a(x, t),     a = curl psi (kernels/gas/curl_noise.py),     rms |a| = acceleration

Octave n has cells of scale / 2^n, a share of roughness^n, and changes in time_scale / 2^(2n/3), as
eddies of that size turn over. Octaves of less than two voxels cannot be carried by the grid and are
left out; the others stay as they are, so that a finer grid shows the same pattern with more in it.
Where the mask w is even, nothing is compressed: the discrete divergence of a is round-off. The
acceleration may vary by voxel, which is a mask; size and time of the eddies are those of one
lattice and cannot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError, did_you_mean
from loki_core.kernels.basics.random import random_key
from loki_core.kernels.gas.curl_noise import CURL_RMS, WORD, accumulate_curl_noise
from loki_core.kernels.gas.face_points import fill_face_cells
from loki_core.objects.basics.capabilities import Faces
from loki_core.objects.buckets.stream_on_voxels import StreamOnVoxels
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task

#: Voxels that the smallest cell of the noise spans.
FINEST = 2.0


class TurbulenceForce(Behavior, kind="force"):
    """Stir every volume in the Group by random eddies."""

    acceleration: float = parameter(
        1.0, unit="m/s^2", minimum=0.0, varies="vertex", doc="Root mean square of the noise."
    )
    scale: float = parameter(0.5, unit="m", minimum=1.0e-6, doc="Size of the largest eddies.")
    octaves: int = parameter(
        3, minimum=1, maximum=16, doc="How many sizes there are, each half of the one before."
    )
    roughness: float = parameter(
        0.5, minimum=0.0, maximum=4.0, doc="Strength of each octave over that of the one before."
    )
    time_scale: float = parameter(
        1.0, unit="s", minimum=1.0e-6, doc="Time in which the largest eddies become others."
    )
    seed: int = parameter(0, doc="Another number, another pattern.")
    mask: str | None = parameter(
        None, kind="stream", doc="Voxel stream whose scalar channel multiplies the force."
    )
    mask_channel: str = parameter("mask", kind="channel", doc="Scalar channel of the mask stream.")
    masked_by: str | None = parameter(
        None,
        kind="channel",
        doc='Channel of the volume, such as "density", that multiplies the force, cut to 0..1.',
    )


class TurbulenceAction(Action[Faces], behavior=TurbulenceForce):
    """Adds the noise to the faces of a volume."""

    behavior: TurbulenceForce
    settings: TurbulenceForce
    cost = 0.1

    def __init__(self, behavior: TurbulenceForce, target: Faces) -> None:
        super().__init__(behavior, target)
        target.need_force()
        self._streams = StreamOnVoxels(type(behavior).__name__)

    @task(Stage.EVALUATE_FLUID_FORCES, accumulates=("volume.force",))
    def stir(self, access: Access, step: Step) -> None:
        """Add the noise of the middle of the substep."""
        settings = self.settings
        volume, force = access.of("volume"), access["volume.force"]
        h, r = volume.voxel_size("velocity"), force.shape[2]
        octaves = [n for n in range(settings.octaves) if settings.scale / 2**n >= FINEST * h]
        found = self.on_voxels("acceleration")
        acceleration = 1.0 if found.step else found.number
        if acceleration == 0.0 or not octaves:
            return
        # Nothing in the kernel depends on the precision but the last addition.
        noise = self._octaves(octaves, step, h, volume.domain.origin, acceleration)
        finest = float(noise[0].max())
        weight, weight_step = self._weight(access)
        if found.step:
            weight, weight_step = weight * found.on_faces(), 1
        accumulate_curl_noise(
            volume.buckets.local_coords,
            volume.buckets.local_count,
            *noise,
            int((r + 0.5) * finest) + 3,
            float(self.target.face_mass) / h,
            weight,
            weight_step,
            force,
        )

    def _octaves(
        self,
        octaves: list[int],
        step: Step,
        h: float,
        origin: NDArray[np.float64],
        acceleration: float,
    ) -> tuple[NDArray[Any], ...]:
        """Ratio, base, amplitude, blend and layers of every octave, as the kernel reads them."""
        settings = self.settings
        time = step.time + 0.5 * step.dt
        total = math.sqrt(sum(settings.roughness ** (2 * n) for n in range(settings.octaves)))
        ratio, base, amplitude, blend, layers = [], [], [], [], []
        for n in octaves:
            cell = settings.scale / 2**n
            ratio.append(h / cell)
            # Lattices of the octaves must not share points: noise is zero on all of them.
            base.append(origin / cell + 0.5 + 0.137 * n * np.array([1.0, 1.7, 2.3]))
            share = acceleration * settings.roughness**n / total
            amplitude.append(share * cell / CURL_RMS)
            turns = time / (settings.time_scale * 2.0 ** (-2.0 * n / 3.0))
            now = math.floor(turns)
            f = turns - now
            angle = 0.5 * math.pi * f**3 * (f * (f * 6.0 - 15.0) + 10.0)
            blend.append((math.cos(angle), math.sin(angle)))
            keys = [
                [random_key(step.seed, settings.seed, n, c, now + m) & WORD for m in range(2)]
                for c in range(3)
            ]
            layers.append(keys)
        return (
            np.array(ratio),
            np.array(base),
            np.array(amplitude),
            np.array(blend),
            np.array(layers, np.uint64),
        )

    def _weight(self, access: Access) -> tuple[NDArray[Any], int]:
        settings, volume = self.settings, access.of("volume")
        force = access["volume.force"]
        if settings.mask is None and self.behavior.masked_by is None:
            return np.ones((1, *force.shape[1:]), force.dtype), 0
        weight = np.ones_like(force)
        if settings.mask is not None:
            weight = self._streams.on_faces(
                self.target.scope, settings.mask, settings.mask_channel, volume=volume
            ).copy()
        name = self.behavior.masked_by
        if name is not None:
            background = volume.channel(name).background[0]
            mean = np.empty(force[:, 0].size, force.dtype)
            for axis in range(3):
                fill_face_cells(
                    access[f"volume.{name}"],
                    volume.buckets.local,
                    volume.buckets.neighbours,
                    axis,
                    background,
                    mean,
                )
                weight[:, axis] *= np.clip(mean, 0.0, 1.0).reshape(weight[:, axis].shape)
        return weight, 1

    def has_mask(self) -> bool:
        """Whether the target has the channel that masks the force, if any does."""
        masked_by = self.behavior.masked_by
        if masked_by is None:
            return True
        found = self.target.volume.channels.get(masked_by)
        return found is not None and found.location == "cell" and found.dtype.kind == "f"

    def tasks(self) -> Iterator[Task]:
        """None where the channel is that of another fluid: what is not there masks all of it."""
        if not self.is_elsewhere(methodcaller("has_mask")):
            yield from super().tasks()

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Read the channel that masks the force, if any."""
        masked_by, present = self.behavior.masked_by, self.target.volume.channels
        if masked_by is not None:
            if not self.has_mask():
                label = self.path or type(self.behavior).__name__
                cells = [c for c, one in present.items() if one.location == "cell"]
                raise SetupError(
                    f"{label}.masked_by: {self.target.path} has no cell channel of numbers "
                    f'"{masked_by}"{did_you_mean(masked_by, cells)}'
                )
            declaration = replace(
                declaration, reads=(f"volume.{masked_by}",), halo=1, local_sums=True
            )
        return super().declare(name, stage, declaration)
