"""Voxel blocks: which blocks lie near points, and where their voxels are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.data.voxels import MAX_COORD, Voxels
from loki_core.errors import InputError

BLOCK = 8  # voxels along the edge of a block: a VDB leaf
MAX_VOXELS = 1 << 26  # of one volume that a node makes


def voxel_centres(voxels: Voxels) -> npt.NDArray[np.float64]:
    """Return the centres of all voxels [m], shape [voxel_count, 3], in the order of values."""
    r = voxels.block_resolution
    local = np.indices((r, r, r)).reshape(3, -1).T + 0.5
    index = voxels.coords[:, None, :].astype(np.float64) * r + local[None]
    return (voxels.origin + voxels.voxel_size * index).reshape(-1, 3)


def blocks_near(
    positions: npt.NDArray[np.float64], *, voxel_size: float, reach: float
) -> npt.NDArray[np.int32]:
    """Return the blocks within `reach` [m] of any point, around a lattice at the world origin.

    Raises:
        InputError: They hold too many voxels.
    """
    if len(positions) == 0:
        return np.empty((0, 3), np.int32)
    edge = BLOCK * voxel_size
    if np.abs(positions).max() + reach > edge * MAX_COORD:
        raise InputError(
            f"points reach {np.abs(positions).max():.6g} m from the origin, too far for voxels of "
            f"{voxel_size:g} m; choose a larger voxel_size"
        )
    lower = np.unique(np.floor((positions - reach) / edge).astype(np.int64), axis=0)
    span = int(np.ceil(2.0 * reach / edge)) + 1  # blocks along an axis around one point
    if len(lower) * span**3 > 64 * MAX_VOXELS // BLOCK**3:
        raise InputError(_too_many(len(lower) * span**3, voxel_size))
    steps = np.arange(span)
    offsets = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    blocks = np.unique((lower[:, None] + offsets[None]).reshape(-1, 3), axis=0)
    if len(blocks) * BLOCK**3 > MAX_VOXELS:
        raise InputError(_too_many(len(blocks), voxel_size))
    return blocks.astype(np.int32)


def _too_many(blocks: int, voxel_size: float) -> str:
    return (
        f"the volume takes up to {blocks * BLOCK**3:.3g} voxels of {voxel_size:g} m; at most "
        f"{MAX_VOXELS} are allowed: choose a larger voxel_size"
    )
