"""VDB grids: channels that were read one by one, before they share their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.data.voxels import Voxels
from loki_vfx.serialization.vdb_tree import LEAF


class Grid:
    """A grid as it was read: blocks by coordinate."""

    def __init__(
        self, name: str, voxel_size: float, centre: Sequence[float], background: float
    ) -> None:
        """Take the edge of a voxel [m], and the centre of voxel (0, 0, 0) [m]."""
        self.name, self.voxel_size, self.background = name, voxel_size, background
        self.origin = np.array(centre, np.float64) - 0.5 * voxel_size
        self.coords: npt.NDArray[np.int32] = np.empty((0, 3), np.int32)
        self.values: npt.NDArray[Any] = np.empty((0, 1, LEAF, LEAF, LEAF), np.float32)
        self.location = "cell"

    def is_on_lattice_of(self, other: Grid, *, tolerance: float = 1e-6) -> bool:
        """Return whether voxels are the same in both, within a part of their edges."""
        edge = other.voxel_size
        near = np.allclose(self.origin, other.origin, rtol=0.0, atol=tolerance * edge)
        return bool(near) and abs(self.voxel_size - edge) <= 1e-3 * tolerance * edge


def blocks_of(
    piece: npt.NDArray[Any], corner: npt.NDArray[np.int64], background: float
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Return coordinates and values of the blocks of a dense piece that hold anything.

    Args:
        piece: Values of whole blocks, [nx, ny, nz, components].
        corner: Index of its lowest voxel, a multiple of LEAF along each axis.
    """
    nx, ny, nz = (n // LEAF for n in piece.shape[:3])
    blocks = piece.reshape(nx, LEAF, ny, LEAF, nz, LEAF, piece.shape[3])
    blocks = blocks.transpose(0, 2, 4, 6, 1, 3, 5)
    occupied = (blocks != background).any(axis=(3, 4, 5, 6))
    coords = (corner // LEAF + np.argwhere(occupied)).astype(np.int32)
    return coords, blocks[occupied]


def joined(grids: Sequence[Grid]) -> Voxels:
    """Return grids of one lattice as channels that share their blocks."""
    first = grids[0]
    coords = np.unique(np.concatenate([grid.coords for grid in grids]), axis=0)
    voxels = Voxels(coords, first.voxel_size, origin=first.origin)
    rows = {tuple(coord): row for row, coord in enumerate(coords.tolist())}
    for grid in grids:
        shape = (len(coords), *grid.values.shape[1:])
        values = np.full(shape, grid.background, grid.values.dtype)
        values[[rows[tuple(coord)] for coord in grid.coords.tolist()]] = grid.values
        voxels.set_channel(grid.name, values, location=grid.location, background=grid.background)
    return voxels
