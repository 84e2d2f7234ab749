"""How much liquid cells and faces of a Hybrid Object hold, as its viscous stress weighs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.liquid.liquid_parts import (
    collect_channel,
    fill_channel_tiles,
    limit_pressure,
    measure_depth,
    measure_mass,
)
from loki_core.objects.particles.particle_tiles import tiles_around

if TYPE_CHECKING:
    from loki_core.objects.basics.capabilities import Liquid

Array = NDArray[Any]


def face_masses(liquid: Liquid) -> Array:
    """Mass of faces with ghosts and corners, in parts of a full voxel's. Collective."""
    volume = liquid.volume
    volume.refresh("room")
    with volume.scratch(
        "mass", components=3, resolution=liquid.resolution, location="face"
    ) as mass:
        measure_mass(
            volume.local("face_weight"), volume.with_ghosts("room"), volume.buckets.neighbours,
            volume.local(mass.name),
        )  # fmt: skip
        volume.mark_written(mass.name)
        volume.refresh(mass.name, corners=True)
    values: Array = mass.values
    return values


def cell_parts(liquid: Liquid, carried: Array | None = None) -> Array:
    """Depth of cells below the surface, and the mean of what particles carry, if anything.

    Args:
        carried: A value of each local particle, shape [n].

    Returns:
        Depth in voxels, from -1 to 1, and means: [b, 1 or 2, r, r, r] with ghosts and corners.
        Collective.
    """
    volume = liquid.volume
    components = 1 if carried is None else 2
    with volume.scratch("parts", components=components, resolution=liquid.resolution) as parts:
        local = volume.local(parts.name)
        depth = np.empty(local[:, 0].size, local.dtype)
        measure_depth(volume.local("filled").reshape(-1), depth)
        local[:, 0] = depth.reshape(local[:, 0].shape)
        if carried is not None:
            local[:, 1] = cell_means(liquid, carried)
        volume.mark_written(parts.name)
        volume.refresh(parts.name, corners=True)
    values: Array = parts.values
    return values


def cell_means(liquid: Liquid, carried: Array) -> Array:
    """Mean of a value of the particles [n] in local cells [b, r, r, r]; 0 where none is near.

    Collective.
    """
    volume, particles = liquid.volume, liquid.particles
    r, count = liquid.resolution, particles.buckets.local_count
    tiles = np.empty((count, 2, r + 2, r + 2, r + 2), volume.dtype)
    fill_channel_tiles(
        particles.local("position"), carried, particles.offsets, particles.buckets.coords,
        particles.domain.bucket_size, r, tiles,
    )  # fmt: skip
    with volume.scratch("sums", components=2, resolution=r) as sums:
        tiles, around = tiles_around(volume.buckets, liquid.grid.rows(), tiles)
        collect_channel(tiles, around, volume.local(sums.name))
        value, weight = volume.local(sums.name)[:, 0], volume.local(sums.name)[:, 1]
    means: Array = np.divide(value, weight, out=np.zeros_like(value), where=weight > 0.0)
    return means


def present_pressure(liquid: Liquid) -> Array:
    """Pressure of the last step [Pa] with the surface where it is now, local. Collective."""
    volume = liquid.volume
    volume.refresh("kind", "pressure")
    pressure = np.empty_like(volume.local("pressure"))
    limit_pressure(
        volume.with_ghosts("kind"), cell_parts(liquid), volume.with_ghosts("pressure"),
        volume.buckets.neighbours, pressure,
    )  # fmt: skip
    return pressure
