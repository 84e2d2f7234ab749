"""Buckets of a liquid: around its particles and deep voxels, as far as a step takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loki_core.objects.gas.volume_topology import Regions

if TYPE_CHECKING:
    from loki_core.objects.liquid.hybrid import Hybrid


def follow_particles(liquid: Hybrid, dt: float = 0.0) -> None:
    """Keep Buckets around all particles, as far as they go in a step dt [s]. Collective."""
    liquid.grid.look_ahead(dt)
    occupied = Regions(*liquid.grid.occupied())
    if liquid.band is not None:
        deep = Regions.whole(liquid.band.buckets(), liquid.resolution)
        occupied = Regions.joined([occupied, deep])
    around = occupied.padded(liquid.scope.domain, liquid.grid.margin, liquid.resolution)
    if liquid.falls_off_walls:
        around = np.concatenate((around, _beyond_walls(liquid, occupied)))
    liquid.volume.set_buckets(around)


def _beyond_walls(liquid: Hybrid, occupied: Regions) -> NDArray[np.int32]:
    """Buckets beyond upper sides of the box that the liquid touches.

    They store the faces on the sides, which have the liquid's own velocity where it falls off.
    """
    domain, r = liquid.scope.domain, liquid.resolution
    coords, ranges = occupied.coords, occupied.ranges
    found = np.empty((0, 3), np.int32)
    for axis in range(3):
        last = domain.bucket_range()[1][axis] - 1
        if domain.boundaries[2 * axis + 1].kind != "wall":
            continue
        touching = (coords[:, axis] == last) & (ranges[:, 1, axis] == r - 1)
        beside = Regions(coords[touching], ranges[touching])
        inside = np.concatenate((beside.padded(domain, 1, r), found))
        # Where two sides meet there are Buckets beyond both.
        inside = inside[inside[:, axis] == last]
        found = np.concatenate((found, inside + np.eye(3, dtype=np.int32)[axis]))
    return found
