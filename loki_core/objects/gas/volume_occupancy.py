"""Where a volume holds something, will hold it, or is to have air for other reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loki_core.data.voxels import Voxels
from loki_core.errors import SetupError
from loki_core.kernels.gas.mac_grid import bucket_deviation, largest_components, occupied_ranges
from loki_core.objects.gas.volume_topology import Regions, around_box

if TYPE_CHECKING:
    from loki_core.objects.gas.volume import Volume

FARTHEST = 16  # Buckets that materials are followed ahead in a step


def needed_regions(volume: Volume, stream: Voxels | None = None, dt: float = 0.0) -> Regions:
    """Where something is, will be after dt [s], or is about to come in; this rank's part.

    Args:
        stream: Voxels that are about to be sampled into the volume.
    """
    domain, resolution = volume.scope.domain, volume.resolution
    parts = [*_around(volume)]
    parts += [emission.wanted_buckets() for emission in volume.emissions]
    if stream is not None:
        edge = stream.voxel_size * stream.block_resolution
        corners = stream.origin + stream.coords * edge
        parts += [around_box(domain, c, c + 0.999999 * edge, volume.path) for c in corners]
    wholes = [Regions.whole(part, resolution) for part in parts]
    return Regions.joined([_occupied(volume, dt), *wholes])


def _occupied(item: Volume, dt: float) -> Regions:
    """Boxes of voxels that hold something, widened by the way that it goes. Collective."""
    volume, resolution = item.volume, item.resolution
    count, comm = volume.buckets.local_count, item.scope.domain.comm
    ranges = np.empty((count, 2, 3), np.int64)
    ranges[:, 0], ranges[:, 1] = resolution, -1
    for name in item.materials:
        background = volume.channel(name).background[0]
        deviation = np.zeros(count)
        bucket_deviation(volume.local(name), background, deviation)
        most = comm.maximum(float(deviation.max(initial=0.0)))
        scale = max(1.0, most) if np.isfinite(most) else 1.0
        activity = float(item.settings.activity) * scale
        occupied_ranges(volume.local(name), background, activity, ranges)
    used = ranges[:, 1, 0] >= 0
    speeds = np.empty((count, 3))
    largest_components(volume.local("velocity"), speeds)
    ways = np.minimum(speeds * (dt / item.voxel_size), FARTHEST * resolution)
    ways = np.ceil(ways).astype(np.int64)
    ranges[:, 0] -= ways
    ranges[:, 1] += ways
    return Regions(volume.buckets.local_coords[used], ranges[used])


def _around(item: Volume) -> list[NDArray[np.int32]]:
    """Buckets of the stream or Object that air is always kept around."""
    name = item.behavior.around
    if name is None:
        return []
    scope = item.scope
    absent = scope.absent.get(name)
    if absent is not None:  # it is turned off: air is kept where it would be
        name = getattr(absent, "input", None)
        if name is None or name not in scope.inputs:
            return []
    if name in scope.inputs:
        lower, upper = scope.inputs[name].bounds()
        return [around_box(scope.domain, lower, upper, item.path)]
    found = scope.others.get(name)
    if found is None:
        raise SetupError(f'{item.path}.around = "{name}" is neither an input stream nor an Object')
    return [found.occupied_buckets()]
