"""Trilinear interpolation of sparse voxel blocks at arbitrary places.

Blocks are found through a hash table from packed block coordinates (bucket_hash). A place is given
in voxel units from the volume's origin. Samples of cell channels sit at voxel centres; component a
of a face channel sits on the lower face along a, so its grid is shifted by half a voxel along the
two other axes only. Voxels that are not stored have the channel's background value.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.bucket_hash import find_bucket, pack_bucket
from loki_core.kernels.jit import device, parallel_kernel, prange


@device
def voxel_value(values, component, background, table_keys, table_values, i, j, k):
    """Value of voxel (i, j, k) counted from the origin, or the background."""
    resolution = values.shape[2]
    bi = i // resolution
    bj = j // resolution
    bk = k // resolution
    block = find_bucket(table_keys, table_values, pack_bucket(bi, bj, bk))
    if block < 0:
        return background
    return values[block, component, i - bi * resolution, j - bj * resolution, k - bk * resolution]


@device
def interpolate(values, component, background, table_keys, table_values, x, y, z):
    """Trilinear value at (x, y, z), in voxel units with samples on whole numbers."""
    i = np.int64(math.floor(x))
    j = np.int64(math.floor(y))
    k = np.int64(math.floor(z))
    fx = x - i
    fy = y - j
    fz = z - k
    total = 0.0
    for corner in range(8):
        di = corner >> 2
        dj = (corner >> 1) & 1
        dk = corner & 1
        weight = (fx if di else 1.0 - fx) * (fy if dj else 1.0 - fy) * (fz if dk else 1.0 - fz)
        if weight != 0.0:
            total += weight * voxel_value(
                values, component, background, table_keys, table_values, i + di, j + dj, k + dk
            )
    return total


@parallel_kernel
def sample_voxels(
    position, offset, inverse_voxel, values, is_face, background, table_keys, table_values, sampled
):
    """Interpolate all components of a channel at positions.

    Args: position [n, 3] m; offset float64 [3], added to positions to come into the volume's own
        space [m];
    inverse_voxel 1/m; values [blocks, c, r, r, r]; is_face 0 or 1; background; sampled [n, c].
    """
    reach = (
        131000.0 * values.shape[2]
    )  # beyond the packed block coordinates there is only background
    for n in prange(position.shape[0]):
        x = (position[n, 0] + offset[0]) * inverse_voxel
        y = (position[n, 1] + offset[1]) * inverse_voxel
        z = (position[n, 2] + offset[2]) * inverse_voxel
        inside = abs(x) < reach and abs(y) < reach and abs(z) < reach
        for c in range(sampled.shape[1]):
            if not inside:
                sampled[n, c] = background
                continue
            sx = x if is_face == 1 and c == 0 else x - 0.5
            sy = y if is_face == 1 and c == 1 else y - 0.5
            sz = z if is_face == 1 and c == 2 else z - 0.5
            sampled[n, c] = interpolate(values, c, background, table_keys, table_values, sx, sy, sz)
