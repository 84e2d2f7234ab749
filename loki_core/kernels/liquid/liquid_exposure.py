"""How much of a liquid's particles the air around meets, from the filled part of cells.

With f the filled part of cells, interpolated at a particle, its exposure is

    e = (FULL - f) / (FULL - HALF),  within 0 and 1

so a drop that flies alone has all of its drag, one at a plane surface about half of it, and one
inside has none, even where particles are not quite even.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.voxel_places import voxel_at
from loki_core.kernels.jit import device, parallel_kernel, prange

HALF, FULL = 0.5, 0.9


@parallel_kernel
def find_exposure(filled, neighbours, rows, coords, bucket_size, offsets, position, exposure):
    """Write the exposure [n] of local particles.

    Args: filled [b, 1, r, r, r] with ghosts and corners, of the room that there is; rows int32
    [particle buckets], of the volume; coords int32 [particle buckets, 3].
    """
    for b in prange(rows.shape[0]):
        for p in range(offsets[b], offsets[b + 1]):
            part = filled_at(
                filled, neighbours, np.int64(rows[b]), coords[b], bucket_size, position[p]
            )
            exposure[p] = min(max((FULL - part) / (FULL - HALF), 0.0), 1.0)


@device
def filled_at(filled, neighbours, row, corner, bucket_size, place):
    """Filled part at a place of a Bucket; cells beyond walls say nothing."""
    r = filled.shape[2]
    scale = r / bucket_size
    x = (np.float64(place[0]) - corner[0] * bucket_size) * scale - 0.5
    y = (np.float64(place[1]) - corner[1] * bucket_size) * scale - 0.5
    z = (np.float64(place[2]) - corner[2] * bucket_size) * scale - 0.5
    i, j, k = math.floor(x), math.floor(y), math.floor(z)
    fx, fy, fz = x - i, y - j, z - k
    total, known = 0.0, 0.0
    for n in range(8):
        di, dj, dk = n >> 2, (n >> 1) & 1, n & 1
        weight = (fx if di else 1.0 - fx) * (fy if dj else 1.0 - fy) * (fz if dk else 1.0 - fz)
        other, ci, cj, ck = voxel_at(neighbours, row, r, i + di, j + dj, k + dk)
        if other >= 0:
            total += weight * filled[other, 0, ci, cj, ck]
            known += weight
    return total / known if known > 0.0 else 0.0
