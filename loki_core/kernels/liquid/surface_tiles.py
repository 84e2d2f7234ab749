"""What particles give to the voxels around them, through tiles with a margin of any width.

As in `liquid_tiles`, every Bucket of particles fills a tile of its own, its voxels and `margin`
more on every side, and every Bucket of a volume then collects from the tiles that reach it: no two
threads write one number, and sums do not depend on their count.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange


@device
def place_in_tile(position, p, coords, b, bucket_size, resolution, margin):
    """Place of a particle in voxels of its Bucket's tile; the first voxel's centre is 0."""
    scale = resolution / bucket_size
    shift = margin - 0.5
    x = (np.float64(position[p, 0]) - coords[b, 0] * bucket_size) * scale + shift
    y = (np.float64(position[p, 1]) - coords[b, 1] * bucket_size) * scale + shift
    z = (np.float64(position[p, 2]) - coords[b, 2] * bucket_size) * scale + shift
    return x, y, z


@parallel_kernel
def splat_values(position, values, weight, offsets, coords, bucket_size, tiles):
    """Fill tiles with values and their weights, spread trilinearly over voxel centres.

    Args: position [n, 3]; values [n, c]; weight: of one particle; offsets int64 [buckets + 1];
    coords int32 [buckets, 3]; tiles [buckets, c + 1, r + 2, r + 2, r + 2], the weights last.
    """
    for b in prange(tiles.shape[0]):
        splat_bucket(np.int64(b), position, values, weight, offsets, coords, bucket_size, tiles[b])


@device
def splat_bucket(b, position, values, weight, offsets, coords, bucket_size, tile):
    tile[:] = 0.0
    components = values.shape[1]
    resolution = tile.shape[1] - 2
    for p in range(offsets[b], offsets[b + 1]):
        x, y, z = place_in_tile(position, p, coords, b, bucket_size, resolution, 1)
        i, j, k = np.int64(math.floor(x)), np.int64(math.floor(y)), np.int64(math.floor(z))
        fx, fy, fz = x - i, y - j, z - k
        for corner in range(8):
            di, dj, dk = corner // 4, corner // 2 % 2, corner % 2
            part = (fx if di else 1.0 - fx) * (fy if dj else 1.0 - fy) * (fz if dk else 1.0 - fz)
            part *= weight
            for c in range(components):
                tile[c, i + di, j + dj, k + dk] += part * values[p, c]
            tile[components, i + di, j + dj, k + dk] += part


@parallel_kernel
def splat_balls(
    position, radius, weight, softness, reach, offsets, coords, bucket_size, rows, margin, tiles
):  # fmt: skip
    """Fill tiles with soft balls, sum_p w_p [exp((r_p - d) / s) - exp(-reach / s)] where above 0.

    Args: radius m, weight [n], where 0 there is no ball; softness s and reach m; rows: the Buckets
    that have balls, one for each tile; tiles [rows, 1, n, n, n].
    """
    for row in prange(tiles.shape[0]):
        balls_of_bucket(
            np.int64(rows[row]), position, radius, weight, softness, reach, offsets, coords,
            bucket_size, margin, tiles[row, 0],
        )  # fmt: skip


@device
def balls_of_bucket(
    b, position, radius, weight, softness, reach, offsets, coords, bucket_size, margin, tile
):  # fmt: skip
    tile[:] = 0.0
    n = tile.shape[0]
    h = bucket_size / (n - 2 * margin)
    floor = math.exp(-reach / softness)
    for p in range(offsets[b], offsets[b + 1]):
        if weight[p] <= 0.0:
            continue
        x, y, z = place_in_tile(position, p, coords, b, bucket_size, n - 2 * margin, margin)
        far = (radius[p] + reach) / h
        for i in range(first_voxel(x, far), last_voxel(x, far, n)):
            for j in range(first_voxel(y, far), last_voxel(y, far, n)):
                for k in range(first_voxel(z, far), last_voxel(z, far, n)):
                    distance = h * math.sqrt((x - i) ** 2 + (y - j) ** 2 + (z - k) ** 2)
                    part = math.exp((radius[p] - distance) / softness) - floor
                    if part > 0.0:
                        tile[i, j, k] += weight[p] * part


@device
def first_voxel(x, far):
    """First voxel of a tile within a distance, both in voxels."""
    return max(0, np.int64(math.ceil(x - far)))


@device
def last_voxel(x, far, n):
    """One after the last voxel within a distance."""
    return min(n, np.int64(math.floor(x + far)) + 1)


@parallel_kernel
def collect_with_margin(tiles, around, margin, out):
    """Sum the tiles around each Bucket of a volume.

    Args: tiles [tiles, c, n, n, n]; around int32 [buckets, 27], the tile in each direction, or
    negative; out [buckets, c, r, r, r], overwritten.
    """
    for b in prange(around.shape[0]):
        out[b] = 0.0
        for direction in range(27):
            row = np.int64(around[b, direction])
            if row >= 0:
                for c in range(out.shape[1]):
                    add_part(tiles[row, c], direction, margin, out[b, c])


@device
def add_part(tile, direction, margin, out):
    """Add the part of a tile that lies in a Bucket, which sees the tile in a direction."""
    r = out.shape[0]
    x, y, z = (direction // 9 - 1) * r, (direction // 3 % 3 - 1) * r, (direction % 3 - 1) * r
    for i in range(max(0, x - margin), min(r, x + r + margin)):
        for j in range(max(0, y - margin), min(r, y + r + margin)):
            for k in range(max(0, z - margin), min(r, z + r + margin)):
                out[i, j, k] += tile[i - x + margin, j - y + margin, k - z + margin]
