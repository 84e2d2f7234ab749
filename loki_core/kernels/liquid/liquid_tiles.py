"""A liquid's particles to the staggered grid, through one tile for each Bucket of particles.

A tile holds what the particles of one Bucket give to the faces and cells around them: those of the
Bucket and one layer more on every side. Tiles are filled side by side, then every Bucket of the
volume collects from the tiles that reach it, in a fixed order: no two threads write one number, and
sums do not depend on their count.

With trilinear weights w of the faces of component a (Jiang et al. 2015; seed 001, equation 22)

    m_f = sum_p w_fp,    m_f u_f = sum_p w_fp (u_p + c_p (x_f - x_p))

in parts of a voxel that is full; c_p is the gradient of component a. The filled part of a cell has
the same weights about the cell's centre.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange

TILE_CHANNELS = 7  # momentum and weight of three faces, and the filled part of a cell
MOMENTUM, WEIGHT, FILLED = 0, 3, 6


@parallel_kernel
def fill_tiles(
    position, velocity, affine, has_affine, share, offsets, coords, bucket_size, resolution, tiles
):  # fmt: skip
    """Fill the tiles of all local Buckets of particles.

    Args: position, velocity [n, 3]; affine [n, 3, 3] 1/s, or anything if has_affine is 0; share:
    part of a voxel that one particle fills; offsets int64 [buckets + 1]; coords int32 [buckets, 3];
    tiles [buckets, 7, r + 2, r + 2, r + 2].
    """
    for b in prange(tiles.shape[0]):
        fill_tile(
            np.int64(b), position, velocity, affine, has_affine, share, offsets, coords,
            bucket_size, resolution, tiles[b].reshape(-1),
        )  # fmt: skip


@device
def fill_tile(
    b, position, velocity, affine, has_affine, share, offsets, coords, bucket_size, resolution, tile
):  # fmt: skip
    """Do one Bucket; its first voxel is number 1 of the tile."""
    n = np.uint64(resolution + 2)
    size = n * n * n
    tile[:] = 0.0
    inverse_h = resolution / bucket_size
    h = bucket_size / resolution
    corner_x = coords[b, 0] * bucket_size
    corner_y = coords[b, 1] * bucket_size
    corner_z = coords[b, 2] * bucket_size
    for p in range(offsets[b], offsets[b + 1]):
        # Places in voxels, from the tile's first voxel.
        x = (np.float64(position[p, 0]) - corner_x) * inverse_h + 1.0
        y = (np.float64(position[p, 1]) - corner_y) * inverse_h + 1.0
        z = (np.float64(position[p, 2]) - corner_z) * inverse_h + 1.0
        for a in range(4):  # three components, then cells
            gx = x if a == 0 else x - 0.5
            gy = y if a == 1 else y - 0.5
            gz = z if a == 2 else z - 0.5
            i, j, k = math.floor(gx), math.floor(gy), math.floor(gz)
            fx, fy, fz = gx - i, gy - j, gz - k
            place = (np.uint64(i) * n + np.uint64(j)) * n + np.uint64(k)
            if a == 3:
                first = np.uint64(FILLED) * size + place
                add_corners(tile, first, n, share, 0.0, 0.0, 0.0, fx, fy, fz)
                continue
            first = np.uint64(WEIGHT + a) * size + place
            add_corners(tile, first, n, share, 0.0, 0.0, 0.0, fx, fy, fz)
            first = np.uint64(MOMENTUM + a) * size + place
            value = np.float64(velocity[p, a])
            cx, cy, cz = 0.0, 0.0, 0.0
            if has_affine == 1:
                cx, cy, cz = h * affine[p, a, 0], h * affine[p, a, 1], h * affine[p, a, 2]
            value -= cx * fx + cy * fy + cz * fz
            add_corners(tile, first, n, share * value, share * cx, share * cy, share * cz,
                        fx, fy, fz)  # fmt: skip


@device
def add_corners(tile, first, n, value, cx, cy, cz, fx, fy, fz):
    """Add a value and its gradient, a voxel's worth along each axis, to eight corners."""
    one = np.uint64(1)
    gx, gy, gz = 1.0 - fx, 1.0 - fy, 1.0 - fz
    tile[first] += gx * gy * gz * value
    tile[first + one] += gx * gy * fz * (value + cz)
    tile[first + n] += gx * fy * gz * (value + cy)
    tile[first + n + one] += gx * fy * fz * (value + cy + cz)
    first += n * n
    tile[first] += fx * gy * gz * (value + cx)
    tile[first + one] += fx * gy * fz * (value + cx + cz)
    tile[first + n] += fx * fy * gz * (value + cx + cy)
    tile[first + n + one] += fx * fy * fz * (value + cx + cy + cz)


@parallel_kernel
def collect_tiles(tiles, around, momentum, weight, filled):
    """Sum the tiles around each Bucket of the volume.

    Args: around int32 [buckets, 27], rows of the tiles in each direction, or negative; momentum and
    weight [buckets, 3, r, r, r], filled [buckets, 1, r, r, r]: all are overwritten.
    """
    for b in prange(around.shape[0]):
        momentum[b] = 0.0
        weight[b] = 0.0
        filled[b] = 0.0
        for direction in range(27):
            row = np.int64(around[b, direction])
            if row >= 0:
                for c in range(3):
                    add_overlap(tiles[row, MOMENTUM + c], direction, momentum[b, c])
                    add_overlap(tiles[row, WEIGHT + c], direction, weight[b, c])
                add_overlap(tiles[row, FILLED], direction, filled[b, 0])


@device
def overlap(step, r):
    """(first in the tile, first in the Bucket, count) along an axis, for the tile one step away."""
    if step < 0:
        return r + 1, 0, 1
    if step > 0:
        return 0, r - 1, 1
    return 1, 0, r


@device
def add_overlap(tile, direction, out):
    """Add the part of a tile that lies in a Bucket, which sees the tile in a direction."""
    r = out.shape[0]
    ti, i, ni = overlap(direction // 9 - 1, r)
    tj, j, nj = overlap(direction // 3 % 3 - 1, r)
    tk, k, nk = overlap(direction % 3 - 1, r)
    for a in range(ni):
        for b in range(nj):
            for c in range(nk):
                out[i + a, j + b, k + c] += tile[ti + a, tj + b, tk + c]


@parallel_kernel
def divide_by_weight(momentum, weight):
    """Make velocities of momenta, flat arrays; faces that no particle reaches have none."""
    for n in prange(momentum.shape[0]):
        momentum[n] = momentum[n] / weight[n] if weight[n] > 0.0 else 0.0


@parallel_kernel
def occupied_ranges_of_particles(position, offsets, coords, bucket_size, resolution, ranges):
    """First and last voxel of each Bucket that holds a particle, along each axis: [buckets, 2, 3].

    A Bucket without particles has a last one of -1.
    """
    for b in prange(ranges.shape[0]):
        inverse_h = resolution / bucket_size
        for a in range(3):
            low, high = np.int64(resolution), np.int64(-1)
            for p in range(offsets[b], offsets[b + 1]):
                place = (np.float64(position[p, a]) - coords[b, a] * bucket_size) * inverse_h
                voxel = np.int64(min(max(place, 0.0), resolution - 0.5))
                low, high = min(low, voxel), max(high, voxel)
            ranges[b, 0, a] = low
            ranges[b, 1, a] = high
