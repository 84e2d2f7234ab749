"""Voxel streams as start fields and sources of a volume, sampled at its own cells and faces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.voxel_field import VoxelField
from loki_core.data.voxels import Voxels

Array = NDArray[Any]

BUCKETS_AT_ONCE = 256  # positions of so many are in memory at a time


def cell_positions(
    volume: DiscreteVolume, name: str, buckets: NDArray[np.int32], *, axis: int | None = None
) -> NDArray[np.float64]:
    """Centres of voxels, or of their lower faces along an axis, relative to the origin [m].

    Returns:
        Shape [buckets * r^3, 3].
    """
    r = volume.channel(name).resolution
    h = volume.voxel_size(name)
    shift = np.full(3, 0.5)
    if axis is not None:
        shift[axis] = 0.0
    steps = np.stack(np.meshgrid(*[np.arange(r)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    corner = volume.buckets.coords[buckets].astype(np.float64) * r
    positions: NDArray[np.float64] = (corner[:, None] + steps[None] + shift).reshape(-1, 3) * h
    return positions


def in_parts(buckets: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Cut a list of Buckets so that the positions of each part fit in memory."""
    for start in range(0, len(buckets), BUCKETS_AT_ONCE):
        yield buckets[start : start + BUCKETS_AT_ONCE]


def sample_into(volume: DiscreteVolume, name: str, stream: Voxels, *, label: str) -> None:
    """Fill a channel of all local Buckets from the stream's channel of the same name."""
    channel = volume.channel(name)
    field = VoxelField(stream, name, components=channel.components, label=label)
    values = volume.local(name)
    r = channel.resolution
    for part in in_parts(volume.buckets.local):
        for c in range(channel.components):
            axis = c if channel.location == "face" else None
            positions = cell_positions(volume, name, part, axis=axis)
            sampled = field.sample(positions, volume.domain)[:, c]
            values[part, c] = sampled.reshape(len(part), r, r, r)
    volume.mark_written(name)
