"""Turned voxels: a volume after a map that takes its lattice to itself.

Turns by quarters, mirrors, shifts and even scales keep voxels what they are: blocks change places,
and their axes change order and direction. Nothing is resampled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import KNOWN_TRANSFORMS
from loki_core.data.voxels import VoxelChannel, Voxels
from loki_core.errors import InputError

from .axes import Placement

Array = npt.NDArray[Any]

LENGTHS = frozenset({"distance"})  # voxel channels that hold lengths
NEARLY = 1.0e-5  # Blender's matrices are of single precision


def turned(voxels: Voxels, placement: Placement) -> Voxels:
    """Return voxels after a map; vectors turn with them, lengths grow with them.

    Raises:
        InputError: The map would put voxels between voxels.
    """
    scale = placement.length_scale
    unit = np.rint(placement.linear / scale) if scale > 0.0 else np.zeros((3, 3))
    near = np.allclose(placement.linear, scale * unit, rtol=0.0, atol=NEARLY * scale)
    if not near or not np.array_equal(np.abs(unit).sum(axis=1), np.ones(3)):
        raise InputError(
            "its voxels are turned or stretched against the axes of the world; turn it by "
            "quarters and scale it evenly, or convert it to a mesh"
        )
    if abs(scale - 1.0) < NEARLY:
        scale = 1.0
    axes = np.argmax(np.abs(unit), axis=1)
    signs = unit[np.arange(3), axes]
    if (signs < 0.0).any() and any(c.location == "face" for c in voxels.channels.values()):
        voxels = _with_lower_neighbours(voxels, axes[signs < 0.0])
    coords = voxels.coords[:, axes]
    result = Voxels(
        np.where(signs < 0.0, -1 - coords, coords),
        voxels.voxel_size * scale,
        origin=signs * scale * voxels.origin[axes] + placement.offset,
        block_resolution=voxels.block_resolution,
    )
    for name, channel in voxels.channels.items():
        values = channel.values
        if channel.location == "face":
            values = _faces_of_other_side(voxels, channel, axes[signs < 0.0])
        factor = turn = scale if name in LENGTHS or _is_vector(name, channel) else 1.0
        if channel.components == 3 and (channel.location == "face" or _turns(name)):
            if channel.background and not (signs == signs[0]).all():
                raise InputError(
                    f'its grid "{name}" has the background {channel.background:g}, which would '
                    "not be the same along all axes any more: make it 0"
                )
            values = values[:, axes] * (factor * signs).reshape(1, 3, 1, 1, 1)
            turn = factor * signs[0]
        elif factor != 1.0:
            values = values * factor
        values = values.transpose(0, 1, *(2 + axes))
        values = np.flip(values, axis=tuple(2 + np.flatnonzero(signs < 0.0)))
        result.set_channel(
            name,
            values.astype(channel.values.dtype, copy=False),
            location=channel.location,
            background=channel.background * turn,
        )
    return result


def _turns(name: str) -> bool:
    return KNOWN_TRANSFORMS.get(name, "none") != "none"


def _is_vector(name: str, channel: VoxelChannel) -> bool:
    return channel.components == 3 and KNOWN_TRANSFORMS.get(name) == "vector"


def _with_lower_neighbours(voxels: Voxels, axes: Array) -> Voxels:
    """Return the voxels with all blocks below theirs, which get upper faces of their own."""
    below = [voxels.coords - np.eye(3, dtype=np.int32)[axis] for axis in axes]
    coords = np.unique(np.concatenate([voxels.coords, *below]), axis=0)
    rows = _rows(coords)
    places = [rows[tuple(coord)] for coord in voxels.coords.tolist()]
    wider = Voxels(
        coords,
        voxels.voxel_size,
        origin=voxels.origin,
        block_resolution=voxels.block_resolution,
    )
    for name, channel in voxels.channels.items():
        shape = (len(coords), *channel.values.shape[1:])
        values = np.full(shape, channel.background, channel.values.dtype)
        values[places] = channel.values
        wider.set_channel(name, values, location=channel.location, background=channel.background)
    return wider


def _faces_of_other_side(voxels: Voxels, channel: VoxelChannel, axes: Array) -> Array:
    """Return face values in which those along `axes` are of the upper faces, not the lower."""
    values = channel.values.copy()
    rows = _rows(voxels.coords)
    for axis in axes:
        along = np.moveaxis(values[:, axis], 1 + axis, 1)
        first = np.full((len(values) + 1, *along.shape[2:]), channel.background, values.dtype)
        first[:-1] = along[:, 0]
        above = (voxels.coords + np.eye(3, dtype=np.int32)[axis]).tolist()
        along[:, :-1] = along[:, 1:].copy()
        along[:, -1] = first[[rows.get(tuple(coord), -1) for coord in above]]
    return values


def _rows(coords: Array) -> dict[tuple[int, ...], int]:
    return {tuple(coord): row for row, coord in enumerate(coords.tolist())}
