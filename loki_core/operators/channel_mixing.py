"""Channel Mixing: colour, temperature or any other channel of a liquid's particles diffuses.

    dc/dt = D lap c,   sum over particles of c is kept

Particles bring c to the voxels around them and take part of the means there back, a random walk of
two steps: with weights w of a place f in a voxel of edge h each step has the mean square length
h^2 f (1 - f) along an axis, so that in a time dt the part

    a = D dt / (h^2 mean[f (1 - f)])

of it is a diffusivity of D. The mixing matrix is symmetric, with rows that sum to 1 and eigenvalues
from 0 to 1: the sum is kept to round-off, the variance falls. Where D asks for more than one walk,
a = 1, and the rest of D is done between voxels, through the open parts of their faces.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError, did_you_mean
from loki_core.objects.basics.capabilities import Liquid
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

LARGEST_RATE = 1.0 / 12.0  # D dt / h^2 of a sweep between voxels, up to which it is monotone
MOST_SWEEPS = 200


class ChannelMixing(Behavior, kind="operator"):
    """Let channels of a liquid's particles mix with those around them."""

    channels: tuple[str, ...] = parameter(
        (), doc="Channels of numbers that mix, such as Cd or temperature."
    )
    diffusivity: float = parameter(1.0e-4, unit="m^2/s", minimum=0.0, doc="How fast they do, D.")


class ChannelMixingAction(Operator[Liquid], behavior=ChannelMixing):
    """Mixes channels of one liquid."""

    behavior: ChannelMixing
    settings: ChannelMixing
    cost = 0.2

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Check and declare the channels.

        Raises:
            SetupError: The particles have no such channel of numbers.
        """
        known = self.target.particles.channels
        own = ("position", "velocity", "affine")  # which the flow mixes
        floats = [one for one in known if known[one].dtype.kind == "f" and one not in own]
        for wanted in self.behavior.channels:
            if wanted not in floats:
                raise SetupError(
                    f'{self.path}.channels names "{wanted}", which is no channel of numbers of '
                    f"{self.target.path} that could mix{did_you_mean(wanted, floats)}"
                )
        written = tuple(f"particles.{one}" for one in self.behavior.channels)
        reads = (*declaration.reads, "volume.open_fraction")
        return stage, replace(declaration, reads=reads, writes=written)

    @task(Stage.GRID_TO_PARTICLES, reads=("particles.position",), halo=1)
    def mix(self, access: Access, step: Step) -> None:
        """Mix for the length of the step. The particles are in their Buckets. Collective."""
        names, particles = self.behavior.channels, self.target.particles
        walk = float(self.settings.diffusivity) * step.dt
        if not names or walk == 0.0:
            return
        widths = [math.prod(particles.channel(name).shape) for name in names]
        flat = [
            particles.local(name).reshape(particles.count, width)
            for name, width in zip(names, widths, strict=True)
        ]
        values = np.concatenate(flat, axis=1).astype(self.target.volume.dtype)
        self._mix(values, walk)
        ends = np.cumsum(widths)
        for name, part in zip(names, np.split(values, ends[:-1], axis=1), strict=True):
            access[f"particles.{name}"][:] = part.reshape(particles.local(name).shape)

    def _mix(self, values: Array, walk: float) -> None:
        """Mix values [n, c] by a diffusion of D dt = walk [m^2], in place."""
        from loki_core.kernels.liquid.channel_mixing import divide_sums, mix_particles
        from loki_core.objects.liquid.liquid_field import places_inside

        liquid, volume = self.target, self.target.volume
        particles, r, width = liquid.particles, liquid.resolution, values.shape[1]
        h2 = float(liquid.voxel_size) ** 2
        own = h2 * self._mean_square()
        if own == 0.0:
            return
        with (
            volume.scratch("sums", components=width + 1, resolution=r) as sums,
            volume.scratch("means", components=width, resolution=r) as means,
        ):
            place = places_inside(liquid)
            self._collect(place, values, sums)
            divide_sums(volume.local(sums.name), volume.local(means.name))
            volume.mark_written(means.name)
            volume.refresh(sums.name, means.name, corners=True)
            after = means.values
            if walk > own:
                after = self._diffused((walk - own) / h2, sums, means)
            mix_particles(
                place, particles.offsets, particles.buckets.coords,
                particles.domain.bucket_size, liquid.grid.rows(), volume.buckets.neighbours,
                min(1.0, walk / own), means.values, after, values,
            )  # fmt: skip

    def _mean_square(self) -> float:
        """Mean of f (1 - f) over axes and particles of all ranks. Collective."""
        from loki_core.kernels.liquid.channel_mixing import walk_of_weights
        from loki_core.parallel.reduce import exact_sum

        liquid, particles = self.target, self.target.particles
        sums = np.empty(particles.buckets.local_count)
        walk_of_weights(
            particles.local("position"), particles.offsets, particles.buckets.coords,
            particles.domain.bucket_size, liquid.resolution, sums,
        )  # fmt: skip
        comm = particles.domain.comm
        count = comm.total(particles.count)
        return exact_sum(comm, sums) / (3 * count) if count else 0.0

    def _collect(self, place: Array, values: Array, sums: Any) -> None:
        """Bring values and weights to voxels. Collective."""
        from loki_core.kernels.liquid.surface_tiles import collect_with_margin, splat_values
        from loki_core.objects.particles.particle_tiles import tiles_around

        liquid, particles, volume = self.target, self.target.particles, self.target.volume
        shape = (particles.buckets.local_count, sums.components, *(liquid.resolution + 2,) * 3)
        tiles = np.empty(shape, volume.dtype)
        splat_values(
            place, values, 1.0, particles.offsets, particles.buckets.coords,
            particles.domain.bucket_size, tiles,
        )  # fmt: skip
        tiles, around = tiles_around(volume.buckets, liquid.grid.rows(), tiles)
        collect_with_margin(tiles, around, 1, volume.local(sums.name))
        volume.mark_written(sums.name)

    def _diffused(self, walk: float, sums: Any, means: Any) -> Array:
        """Means after a diffusion of D dt / h^2 = walk between voxels, with ghosts. Collective."""
        from loki_core.kernels.liquid.channel_mixing import diffuse_means

        volume = self.target.volume
        wanted = math.ceil(walk / LARGEST_RATE)
        sweeps = min(MOST_SWEEPS, wanted)
        if wanted > sweeps:
            asked = float(self.settings.diffusivity)
            self.warning = (
                f"diffusivity = {asked:g} m^2/s asks for {wanted:,} sweeps over the voxels in a "
                f"substep; {sweeps} are done, so that less is mixed"
            )
        rate = min(LARGEST_RATE, walk / sweeps)
        volume.refresh("open_fraction")
        with volume.scratch(
            "mixed", components=means.components, resolution=self.target.resolution
        ) as mixed:
            mixed.values[:] = means.values
            for _ in range(sweeps):
                out = np.empty_like(volume.local(mixed.name))
                diffuse_means(
                    sums.values, mixed.values, volume.with_ghosts("open_fraction"),
                    volume.buckets.neighbours, rate, out,
                )  # fmt: skip
                volume.local(mixed.name)[:] = out
                volume.mark_written(mixed.name)
                volume.refresh(mixed.name, corners=True)
            after: Array = mixed.values.copy()
        return after
