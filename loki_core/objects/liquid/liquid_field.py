"""A liquid's voxels as others may want them: how full they are, and the means of channels in them.

They are the liquid's own, all through it, and blocks are Buckets: where those have eight voxels
along an edge, a block is a VDB leaf. What particles give to a voxel is weighted trilinearly,

    density = sum_p w_p V_p / h^3,    mean of c = sum_p w_p c_p / sum_p w_p

so that the density of all voxels together is the volume of the liquid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.voxels import Voxels
from loki_core.objects.gas.volume_topology import Regions

if TYPE_CHECKING:
    from loki_core.objects.basics.capabilities import Liquid


def places_inside(liquid: Liquid) -> NDArray[Any]:
    """Where particles are, but not nearer to the box's sides than the centres of voxels, [n, 3].

    So all that a particle has goes to voxels that are there.
    """
    domain, h = liquid.scope.domain, float(liquid.voxel_size)
    position, free = liquid.particles.local("position"), np.array(liquid.scope.domain.periodic)
    lower = np.where(free, -np.inf, (np.round(domain.relative_lower / h) + 0.5) * h)
    upper = np.where(free, np.inf, (np.round(domain.relative_upper / h) - 0.5) * h)
    return np.clip(position, lower, upper).astype(position.dtype)


def field_of(liquid: Liquid, names: Sequence[str]) -> Voxels:
    """Return `density` and the channels of particles that are named, this rank's. Collective.

    Args:
        liquid: Its particles are sorted anew.
        names: Channels of numbers.
    """
    from loki_core.kernels.liquid.channel_mixing import divide_sums
    from loki_core.kernels.liquid.surface_tiles import collect_with_margin, splat_values
    from loki_core.objects.particles.particle_tiles import tiles_around

    particles, domain, r = liquid.particles, liquid.scope.domain, liquid.resolution
    particles.rebucketize()
    volume = DiscreteVolume(domain, name=liquid.path, dtype=liquid.scope.dtype)
    regions = Regions(*liquid.grid.occupied())
    if liquid.band is not None:
        regions = Regions.joined([regions, Regions.whole(liquid.band.buckets(), r)])
    volume.set_buckets(regions.padded(domain, 1, r))
    count = particles.buckets.local_count
    rows = particles.buckets.index_in(volume.buckets)[:count].astype(np.int32)
    widths = [math.prod(particles.channel(name).shape) for name in names]
    flat = [
        particles.local(name).reshape(particles.count, width)
        for name, width in zip(names, widths, strict=True)
    ]
    values = np.concatenate(flat, axis=1).astype(volume.dtype)
    tiles = np.empty((count, sum(widths) + 1, *(r + 2,) * 3), volume.dtype)
    splat_values(
        places_inside(liquid), values, 1.0, particles.offsets, particles.buckets.coords,
        domain.bucket_size, tiles,
    )  # fmt: skip
    with volume.scratch("sums", components=sum(widths) + 1, resolution=r) as sums:
        tiles, around = tiles_around(volume.buckets, rows, tiles)
        collect_with_margin(tiles, around, 1, volume.local(sums.name))
        local = volume.local(sums.name).copy()
    if liquid.band is not None:
        _add_deep(liquid, volume, names, widths, local)
    used = local[:, -1].max(axis=(1, 2, 3), initial=0.0) > 0.0
    local = local[used]
    means = np.empty((len(local), sum(widths), r, r, r), volume.dtype)
    divide_sums(local, means)
    voxels = Voxels(
        volume.buckets.local_coords[used], liquid.voxel_size, origin=domain.origin,
        block_resolution=r,
    )  # fmt: skip
    density = (local[:, -1:] * liquid.particle_share).astype(volume.dtype)
    voxels.set_channel("density", density)
    for name, part in zip(names, np.split(means, np.cumsum(widths)[:-1], axis=1), strict=True):
        voxels.set_channel(name, np.ascontiguousarray(part))
    return voxels


def _add_deep(
    liquid: Liquid,
    volume: DiscreteVolume,
    names: Sequence[str],
    widths: list[int],
    sums: NDArray[Any],
) -> None:
    """Add deep voxels, as if they were full of particles with the velocity of their faces."""
    from loki_core.kernels.liquid.liquid_band import mean_of_faces

    grid = liquid.volume
    grid.refresh("velocity")
    centred = np.empty((grid.buckets.local_count, 3, *(liquid.resolution,) * 3), grid.dtype)
    mean_of_faces(grid.with_ghosts("velocity"), grid.buckets.neighbours, centred)
    found = grid.buckets.index_in(volume.buckets)[: grid.buckets.local_count]
    rows = np.flatnonzero(found >= 0)
    count = grid.local("deep")[rows] / liquid.particle_share
    into = found[rows]
    sums[into, -1:] += count
    for name, first, width in zip(names, np.cumsum(widths) - widths, widths, strict=True):
        if name == "velocity":
            sums[into, first : first + width] += count * centred[rows]
