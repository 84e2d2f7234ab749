"""Tiles: what the particles of one Bucket give to the voxels of a volume in and around it.

Buckets collect from the tiles around them in a fixed order, so tiles of other ranks are exchanged
whole and sums have the same bits on any number of ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.bucket_set import BucketSet

Array = NDArray[Any]


def tiles_around(
    buckets: BucketSet, rows: NDArray[np.int32], tiles: Array
) -> tuple[Array, NDArray[np.int32]]:
    """Tiles with those of neighbouring ranks, and the tile in each direction of local Buckets.

    Collective.

    Args:
        buckets: Those of a volume.
        rows: The Bucket of each tile, local.
        tiles: Shape [rows, ...].

    Returns:
        Tiles, and [local Buckets, 27]: a tile, or -1.
    """
    at = np.full(max(1, buckets.count), -1, np.int32)
    at[rows] = np.arange(len(rows), dtype=np.int32)
    if buckets.domain.comm.size > 1:
        tiles = np.concatenate((tiles, _of_other_ranks(buckets, at, tiles)))
    around = buckets.neighbours
    return tiles, np.where(around >= 0, at[np.maximum(around, 0)], np.int32(-1)).astype(np.int32)


def _of_other_ranks(buckets: BucketSet, at: NDArray[np.int32], tiles: Array) -> Array:
    """Tiles of neighbouring Buckets; `at` gets their places behind the own ones."""
    comm, nothing = buckets.domain.comm, np.empty(0, np.int32)
    wanted = [at[buckets.send_buckets.get(rank, nothing)] for rank in range(comm.size)]
    present = comm.all_to_all([(one >= 0).astype(np.uint8) for one in wanted])
    parts = comm.all_to_all([tiles[one[one >= 0]].reshape(-1) for one in wanted])
    place = len(tiles)
    for rank, run in sorted(buckets.receive_buckets.items()):
        ghosts = buckets.local_count + run.start + np.flatnonzero(present[rank])
        at[ghosts] = place + np.arange(len(ghosts), dtype=np.int32)
        place += len(ghosts)
    return np.concatenate(parts).reshape(-1, *tiles.shape[1:])
