"""How much liquid is where, for its viscous stress: depths of cells, masses of faces, and means of
what particles carry.

The mass of a face, in parts of a full voxel, is that of its particles over the room that there is
about the face. Of its two cells the one with more room tells it: beside a wall along the face both
have the same, and a wall across it takes room from the nearer cell alone.

The mean of a channel q over a cell has the trilinear weights of the filled part:

    q_c = sum_p w_cp q_p / sum_p w_cp

collected from one tile for each Bucket of particles, as in liquid_tiles.py, in a fixed order.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.gas.mac_grid import AMBIENT, FLUID
from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.liquid.liquid_cells import depth_of
from loki_core.kernels.liquid.liquid_tiles import add_overlap

SMALLEST_MASS = 1.0e-3  # of a face that a particle reaches, in parts of a full voxel


@parallel_kernel
def measure_depth(filled, out):
    """Write the depth of cells below the surface in voxels, from -1 to 1, to out; flat arrays."""
    for n in prange(out.shape[0]):
        out[n] = depth_of(np.float64(filled[n]))


@parallel_kernel
def measure_mass(weight, room, neighbours, out):
    """Write the mass of local faces in parts of a full voxel to out; 0 where no particle is near.

    Args: weight, out [local, 3, r, r, r]; room [b, 1, r, r, r] with ghosts.
    """
    for b in prange(neighbours.shape[0]):
        mass_of_bucket(np.int64(b), weight, room, neighbours, out)


@device
def mass_of_bucket(b, weight, room, neighbours, out):
    r = weight.shape[2]
    for a in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    w = np.float64(weight[b, a, i, j, k])
                    if w > 0.0:
                        most = np.float64(room[b, 0, i, j, k])
                        other, ni, nj, nk = beside(neighbours, b, r, a, -1, i, j, k)
                        if other >= 0:
                            most = max(most, np.float64(room[other, 0, ni, nj, nk]))
                        w = max(w / most, SMALLEST_MASS)
                    out[b, a, i, j, k] = w


@parallel_kernel
def fill_channel_tiles(position, values, offsets, coords, bucket_size, resolution, tiles):
    """Fill the tiles of all local Buckets of particles with sums of w q and of w.

    Args: position [n, 3]; values [n]; offsets int64 [buckets + 1]; coords int32 [buckets, 3]; tiles
    [buckets, 2, r + 2, r + 2, r + 2].
    """
    for b in prange(tiles.shape[0]):
        fill_channel_tile(
            np.int64(b), position, values, offsets, coords, bucket_size, resolution, tiles[b]
        )


@device
def fill_channel_tile(b, position, values, offsets, coords, bucket_size, resolution, tile):
    tile[:] = 0.0
    inverse_h = resolution / bucket_size
    for p in range(offsets[b], offsets[b + 1]):
        # Places among the cells' centres, from that of the tile's first cell.
        x = (np.float64(position[p, 0]) - coords[b, 0] * bucket_size) * inverse_h + 0.5
        y = (np.float64(position[p, 1]) - coords[b, 1] * bucket_size) * inverse_h + 0.5
        z = (np.float64(position[p, 2]) - coords[b, 2] * bucket_size) * inverse_h + 0.5
        i, j, k = math.floor(x), math.floor(y), math.floor(z)
        x, y, z = x - i, y - j, z - k
        q = np.float64(values[p])
        for n in range(8):
            di, dj, dk = n // 4, n // 2 % 2, n % 2
            w = (x if di else 1.0 - x) * (y if dj else 1.0 - y) * (z if dk else 1.0 - z)
            tile[0, i + di, j + dj, k + dk] += w * q
            tile[1, i + di, j + dj, k + dk] += w


@parallel_kernel
def collect_channel(tiles, around, sums):
    """Sum the tiles around each Bucket of the volume.

    Args: around int32 [buckets, 27], rows of the tiles in each direction, or negative; sums
    [buckets, 2, r, r, r], of w q and of w, are overwritten.
    """
    for b in prange(around.shape[0]):
        sums[b] = 0.0
        for direction in range(27):
            row = np.int64(around[b, direction])
            if row >= 0:
                for c in range(2):
                    add_overlap(tiles[row, c], direction, sums[b, c])


@parallel_kernel
def limit_pressure(kind, depth, pressure, neighbours, out):
    """Write the pressure of an earlier moment, as the surface lies now, to out.

    The nearer a cell is to the surface the less pressure it can have, and the more what it has
    moves the face on the surface. So where that comes nearer, at theta of a voxel from the cell
    now, the pressure is at most what is linear from there to the cell opposite of the surface,

        p <= p_opposite theta / (1 + theta)

    which is also what a cell gets that was air.

    Args: kind, depth, pressure [b, 1, r, r, r] with ghosts; out [local, 1, r, r, r].
    """
    for b in prange(neighbours.shape[0]):
        limit_bucket(np.int64(b), kind, depth, pressure, neighbours, out)


@device
def limit_bucket(b, kind, depth, pressure, neighbours, out):
    r = kind.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                out[b, 0, i, j, k] = 0.0
                if kind[b, 0, i, j, k] != FLUID:
                    continue
                p = np.float64(pressure[b, 0, i, j, k])
                s = np.float64(depth[b, 0, i, j, k])
                most, is_surface = 0.0, False
                for n in range(6):
                    a, way = n // 2, 2 * (n % 2) - 1
                    other, ni, nj, nk = beside(neighbours, b, r, a, way, i, j, k)
                    if other < 0 or kind[other, 0, ni, nj, nk] != AMBIENT:
                        continue
                    is_surface = True
                    theta = s / (s - min(np.float64(depth[other, 0, ni, nj, nk]), 0.0))
                    other, ni, nj, nk = beside(neighbours, b, r, a, -way, i, j, k)
                    if other < 0 or kind[other, 0, ni, nj, nk] != FLUID:
                        continue
                    linear = pressure[other, 0, ni, nj, nk] * theta / (1.0 + theta)
                    if abs(linear) > abs(most):
                        most = linear
                if is_surface and (p == 0.0 or abs(p) > abs(most)):
                    p = most
                out[b, 0, i, j, k] = p
