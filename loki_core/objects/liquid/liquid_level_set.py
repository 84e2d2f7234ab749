"""Level set of a liquid: a fine Discrete Volume around its particles, made anew for each frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.kernels.liquid.surface_field import (
    begin_band,
    cut_by_box,
    depth_to_distance,
    filter_distance,
    find_drops,
    grow_band,
    unite_with_balls,
    widen_density,
)
from loki_core.kernels.liquid.surface_tiles import collect_with_margin, splat_balls, splat_values
from loki_core.objects.basics.capabilities import Liquid
from loki_core.objects.gas.surroundings import FAR, INFLOW, WALLS
from loki_core.objects.gas.volume_topology import Regions
from loki_core.objects.particles.particle_tiles import tiles_around

Array = NDArray[Any]

BAND = 3  # fine voxels on each side of the surface, as other programs expect
SOFTNESS = 0.1  # of the union with drops, in voxels of the liquid
REACH = 4.0 * SOFTNESS
#: Radius of the smallest ball that no lattice of nodes can miss, in fine voxels: sqrt(3) / 2.
SMALLEST_BALL = 0.9
#: The same for balls side by side in a plane, which lies half a fine voxel from nodes at most.
SMALLEST_SHEET = 0.6
#: By how much the mesh of a small ball is smaller than the ball, in fine voxels.
MESH_LOSS = 0.15
#: Radius of balls in a sheet of one layer, in distances of particles: they close it.
SHEET_RADIUS = 0.8
BLUR = np.array([0.25, 0.5, 0.25])
NO_BLUR = np.array([0.0, 1.0, 0.0])
BLUR_VARIANCE = 0.5  # fine voxels squared
TENT_VARIANCE = 1.0 / 6.0  # voxels of the liquid squared


class LiquidLevelSet:
    """The level set of a liquid as it is now, on this rank. Made collectively.

    Args:
        liquid: Its particles are sorted anew.
        refinement: Fine voxels along the edge of one of the liquid's.
        smoothing: How often the bulk is blurred.
        droplet_scale: Factor on the radius of drops.

    Attributes:
        volume: Has "distance", in fine voxels, below 0 in the liquid.
        voxel_size: Of the fine voxels [m].
    """

    def __init__(
        self, liquid: Liquid, *, refinement: int, smoothing: int, droplet_scale: float
    ) -> None:
        self.liquid, self.refinement = liquid, refinement
        self.resolution = liquid.resolution * refinement
        self.voxel_size = liquid.voxel_size / refinement
        domain = liquid.scope.domain
        self.lower = domain.relative_lower / self.voxel_size
        self.upper = domain.relative_upper / self.voxel_size
        liquid.particles.rebucketize()
        self.volume = DiscreteVolume(domain, name=liquid.path, dtype=liquid.scope.dtype)
        for name in ("density", "distance"):
            self.volume.add_channel(name, resolution=self.resolution)
        margin = max(2, BAND // refinement + 1)
        regions = Regions(*liquid.grid.occupied())
        if liquid.band is not None:
            deep = Regions.whole(liquid.band.buckets(), liquid.resolution)
            regions = Regions.joined([regions, deep])
        self.volume.set_buckets(regions.padded(domain, margin, liquid.resolution))
        count = liquid.particles.buckets.local_count
        found = liquid.particles.buckets.index_in(self.volume.buckets)
        self.rows = found[:count].astype(np.int32)
        solid = self._solid_distance()
        self._measure_density(solid)
        self._smooth(smoothing)
        self._add_drops(droplet_scale)
        self._cut(solid)

    @property
    def empty(self) -> float:
        """Distance where no Bucket is, in fine voxels."""
        return float(BAND)

    # -- what surrounds the liquid ---------------------------------------------------------

    def _solid_distance(self) -> Array | None:
        """Distance to the colliders at local fine voxels [m], shape [b, R, R, R]. Collective."""
        colliders, buckets, n = self.liquid.colliders, self.volume.buckets, self.resolution
        if not colliders:
            return None
        nearest = np.full((buckets.local_count, n**3), np.inf)
        inside = (np.stack(np.unravel_index(np.arange(n**3), (n,) * 3), axis=1) + 0.5) / n
        for collider in colliders:
            field = collider.field
            field.refresh_ghosts()
            rows = buckets.index_in(field.volume.buckets)[: buckets.local_count]
            near, far = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
            places = buckets.local_coords[near, None] + inside
            if len(near):
                found = field.sample(places.reshape(-1, 3) * self.volume.domain.bucket_size)
                distance = found.distance.reshape(len(near), -1)
                nearest[near] = np.minimum(nearest[near], distance)
            covered = far[field.is_solid(buckets.local_coords[far])]
            nearest[covered] = -field.band
        return nearest.reshape(-1, n, n, n)

    def _closed_planes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Planes of the box that liquid cannot pass, in fine voxels; infinite for others."""
        kinds = np.array(self.liquid.surroundings().kinds).reshape(3, 2)
        closed = np.isin(kinds, (*WALLS, INFLOW))
        lower = np.where(closed[:, 0], self.lower, -np.inf)
        return lower, np.where(closed[:, 1], self.upper, np.inf)

    # -- bulk ------------------------------------------------------------------------------

    def _measure_density(self, solid: Array | None) -> None:
        """Bring the particles' volume to fine voxels, a tent of one voxel of the liquid wide."""
        volume, liquid, n = self.volume, self.liquid, self.refinement
        tent = np.concatenate([np.arange(1, n + 1), np.arange(n - 1, 0, -1)]) / n**2
        share = liquid.particle_share * n**3
        with volume.scratch("splat", resolution=self.resolution) as splat:
            collect_values(self, splat.name, np.empty((liquid.particles.count, 0)), weight=share)
            if liquid.band is not None:
                self._add_deep(splat.name)
            volume.refresh(splat.name, halo=n, corners=True)
            with volume.scratch("open", resolution=self.resolution) as part:
                if solid is not None:
                    volume.local(part.name)[:, 0] = np.clip(0.5 + solid / self.voxel_size, 0.0, 1.0)
                    volume.mark_written(part.name)
                    volume.refresh(part.name, halo=n, corners=True)
                widen_density(
                    splat.values, part.values, int(solid is not None), volume.buckets.coords,
                    volume.buckets.neighbours, *self._closed_planes(), np.pad(tent, 1),
                    np.convolve(tent, (0.125, 0.75, 0.125)), volume.local("density"),
                )  # fmt: skip
        volume.mark_written("density")

    def _add_deep(self, name: str) -> None:
        """Fill the fine voxels of deep voxels, where the liquid has no particles."""
        volume, liquid, n = self.volume, self.liquid, self.refinement
        held = liquid.volume.buckets.index_in(volume.buckets)[: liquid.volume.buckets.local_count]
        found = np.flatnonzero(held >= 0)
        deep = liquid.volume.local("deep")[found, 0]
        for axis in (1, 2, 3):
            deep = np.repeat(deep, n, axis=axis)
        volume.local(name)[held[found], 0] += deep
        volume.mark_written(name)

    def _smooth(self, iterations: int) -> None:
        """Turn the density into a distance, and blur that; balls keep their size."""
        volume, n = self.volume, self.refinement
        depth_to_distance(
            volume.local("density").reshape(-1), float(n), volume.local("distance").reshape(-1)
        )
        volume.mark_written("distance")
        volume.local("distance")[:] = self._true_distances()
        taps = BLUR if iterations else NO_BLUR
        variances = np.full(max(1, iterations), BLUR_VARIANCE if iterations else 0.0)
        variances[-1] += TENT_VARIANCE * n**2
        box = np.array([np.ceil(self.lower - 0.5), np.floor(self.upper + 0.5)])
        box = np.clip(box, -FAR, FAR).astype(np.int64)
        with volume.scratch("next", resolution=self.resolution) as following:
            for variance in variances:
                volume.mark_written("distance")
                volume.refresh("distance", halo=2, corners=True)
                filter_distance(
                    volume.with_ghosts("distance"), volume.buckets.coords,
                    volume.buckets.neighbours, box, self.empty, taps, 0.5 * variance,
                    1.0 / n, following.values,
                )  # fmt: skip
                volume.local("distance")[:] = volume.local(following.name)

    # -- drops -----------------------------------------------------------------------------

    def _add_drops(self, scale: float) -> None:
        """Unite the bulk with balls about particles that are alone, or in thin sheets."""
        volume, liquid, particles = self.volume, self.liquid, self.liquid.particles
        h, share = liquid.voxel_size, liquid.particle_share
        per_axis = float(liquid.particles_per_axis)
        own = h * (0.75 * share / np.pi) ** (1.0 / 3.0)
        alone = max(scale * own + MESH_LOSS * self.voxel_size, SMALLEST_BALL * self.voxel_size)
        sheet = max(scale * SHEET_RADIUS * h / per_axis, SMALLEST_SHEET * self.voxel_size)
        radius, weight = np.empty(particles.count), np.empty(particles.count)
        halo = self.refinement // 2 + 2
        volume.refresh("density", halo=halo, corners=True)
        find_drops(
            volume.with_ghosts("density"), volume.buckets.neighbours, self.rows, halo,
            self.refinement, share, 1.0 / per_axis, alone, sheet, particles.local("position"),
            particles.offsets, particles.buckets.coords, particles.domain.bucket_size, radius,
            weight,
        )  # fmt: skip
        drops = np.flatnonzero(weight > 0.0)
        chosen = np.unique(np.searchsorted(particles.offsets, drops, side="right") - 1)
        margin = int(np.ceil((max(alone, sheet) + REACH * h) / self.voxel_size)) + 1
        tiles = np.empty((len(chosen), 1, *(self.resolution + 2 * margin,) * 3), volume.dtype)
        splat_balls(
            particles.local("position"), radius, weight, SOFTNESS * h, REACH * h,
            particles.offsets, particles.buckets.coords, particles.domain.bucket_size,
            chosen.astype(np.int32), margin, tiles,
        )  # fmt: skip
        with volume.scratch("balls", resolution=self.resolution) as balls:
            tiles, around = tiles_around(volume.buckets, self.rows[chosen], tiles)
            collect_with_margin(tiles, around, margin, volume.local(balls.name))
            unite_with_balls(
                volume.local(balls.name).reshape(-1), SOFTNESS * self.refinement,
                volume.local("distance").reshape(-1),
            )  # fmt: skip

    def _cut(self, solid: Array | None) -> None:
        """Let the liquid end at the box and at colliders."""
        distance = self.volume.local("distance")
        cut_by_box(self.volume.buckets.coords, self.lower, self.upper, distance)
        if solid is not None:
            np.maximum(distance[:, 0], -solid / self.voxel_size, out=distance[:, 0])
        self.volume.mark_written("distance")

    # -- what others ask -------------------------------------------------------------------

    def narrow_band(self) -> Array:
        """Return true distances of local voxels [fine voxels], within +-BAND. Collective."""
        distance = self._true_distances()
        cut_by_box(self.volume.buckets.coords, self.lower, self.upper, distance)
        return np.clip(distance, -BAND, BAND)

    def _true_distances(self) -> Array:
        """Return distances to where "distance" is 0, but for the sides of the box. Collective."""
        volume = self.volume
        volume.refresh("distance")
        field, neighbours = volume.with_ghosts("distance"), volume.buckets.neighbours
        with (
            volume.scratch("band", resolution=self.resolution) as band,
            volume.scratch("next", resolution=self.resolution) as following,
        ):
            begin_band(field, neighbours, float(BAND), band.values)
            for _ in range(BAND):
                volume.mark_written(band.name)
                volume.refresh(band.name)
                grow_band(neighbours, float(BAND), band.values, following.values)
                volume.local(band.name)[:] = volume.local(following.name)
            return volume.local(band.name).copy()

    def means(self, names: Sequence[str]) -> str:
        """Add a channel with the sums of particles' channels and, last, their weights. Collective.

        Its voxels are those of the liquid. Returns its name.
        """
        particles, volume = self.liquid.particles, self.volume
        widths = [math.prod(particles.channel(name).shape) for name in names]
        values = np.empty((particles.count, sum(widths)), volume.dtype)
        for name, first, width in zip(names, np.cumsum(widths) - widths, widths, strict=True):
            values[:, first : first + width] = particles.local(name).reshape(-1, width)
        volume.add_channel("sums", components=sum(widths) + 1, resolution=self.liquid.resolution)
        collect_values(self, "sums", values, weight=1.0)
        volume.refresh("sums", corners=True)
        return "sums"


def collect_values(level_set: LiquidLevelSet, name: str, values: Array, *, weight: float) -> None:
    """Fill a channel of the level set's volume with sums of particles' values. Collective."""
    volume, particles = level_set.volume, level_set.liquid.particles
    channel, count = volume.channel(name), particles.buckets.local_count
    shape = (count, channel.components, *(channel.resolution + 2,) * 3)
    tiles = np.empty(shape, volume.dtype)
    splat_values(
        particles.local("position"), np.ascontiguousarray(values, volume.dtype), weight,
        particles.offsets, particles.buckets.coords, particles.domain.bucket_size, tiles,
    )  # fmt: skip
    tiles, around = tiles_around(volume.buckets, level_set.rows, tiles)
    collect_with_margin(tiles, around, 1, volume.local(name))
    volume.mark_written(name)
