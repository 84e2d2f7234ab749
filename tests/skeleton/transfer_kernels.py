"""Particles to grid and back, Bucket by Bucket, with trilinear weights at cell centres.

Both directions gather: a Bucket's voxels collect from the particles of the 27 Buckets around it, in
    a fixed order, so that
no two threads write one voxel and sums are the same for any number of threads and ranks. Positions
are taken relative to the Bucket through the direction of the neighbour, never through absolute
places: periodic axes need no special case.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, prange, strict_kernel


@device
def cell_coordinate(x, corner, direction_offset, bucket_size, inverse_h):
    """Place of x in cells of the home Bucket, samples at whole numbers."""
    return ((x - corner) + direction_offset * bucket_size) * inverse_h - 0.5


@strict_kernel
def particles_to_grid(
    position, values, offsets, particle_coords, bucket_size, buckets, particle_buckets, grid
):
    """Add values [n, c] of particles to grid [buckets, c, r, r, r] (cell centred).

    Args: offsets int64 [particle buckets + 1]; particle_coords int32 [particle buckets, 3]; buckets
        int32, which volume
    Buckets to fill; particle_buckets int32 [local, 27], the particles' Bucket in each direction or
    negative.
    """
    r = grid.shape[2]
    inverse_h = r / bucket_size
    for n in prange(buckets.shape[0]):
        b = buckets[n]
        for direction in range(27):
            source = particle_buckets[b, direction]
            if source < 0:
                continue
            dx = direction // 9 - 1
            dy = direction // 3 % 3 - 1
            dz = direction % 3 - 1
            cx = particle_coords[source, 0] * bucket_size
            cy = particle_coords[source, 1] * bucket_size
            cz = particle_coords[source, 2] * bucket_size
            for p in range(offsets[source], offsets[source + 1]):
                x = cell_coordinate(np.float64(position[p, 0]), cx, dx, bucket_size, inverse_h)
                y = cell_coordinate(np.float64(position[p, 1]), cy, dy, bucket_size, inverse_h)
                z = cell_coordinate(np.float64(position[p, 2]), cz, dz, bucket_size, inverse_h)
                i = math.floor(x)
                j = math.floor(y)
                k = math.floor(z)
                if i < -1 or j < -1 or k < -1 or i >= r or j >= r or k >= r:
                    continue
                fx = x - i
                fy = y - j
                fz = z - k
                for corner in range(8):
                    ci = i + (corner >> 2)
                    cj = j + ((corner >> 1) & 1)
                    ck = k + (corner & 1)
                    if ci < 0 or cj < 0 or ck < 0 or ci >= r or cj >= r or ck >= r:
                        continue
                    weight = (
                        (fx if corner & 4 else 1.0 - fx)
                        * (fy if corner & 2 else 1.0 - fy)
                        * (fz if corner & 1 else 1.0 - fz)
                    )
                    for c in range(values.shape[1]):
                        grid[b, c, ci, cj, ck] += weight * values[p, c]


@strict_kernel
def grid_to_particles(
    position, offsets, particle_coords, bucket_size, volume_rows, neighbours, grid, values
):
    """Interpolate grid [buckets, c, r, r, r] to values [n, c] of the local particles.

    Args: volume_rows int32 [local particle buckets], the volume's Bucket of each or negative;
        neighbours int32 [local
    volume buckets, 27]. Voxels that are not stored count as zero. Particles must be in their
    Buckets; one that has left reads only what its Bucket's neighbours hold.
    """
    r = grid.shape[2]
    inverse_h = r / bucket_size
    for b in prange(volume_rows.shape[0]):
        row = volume_rows[b]
        for p in range(offsets[b], offsets[b + 1]):
            for c in range(values.shape[1]):
                values[p, c] = 0.0
            if row < 0:
                continue
            x = cell_coordinate(
                np.float64(position[p, 0]),
                particle_coords[b, 0] * bucket_size,
                0,
                bucket_size,
                inverse_h,
            )
            y = cell_coordinate(
                np.float64(position[p, 1]),
                particle_coords[b, 1] * bucket_size,
                0,
                bucket_size,
                inverse_h,
            )
            z = cell_coordinate(
                np.float64(position[p, 2]),
                particle_coords[b, 2] * bucket_size,
                0,
                bucket_size,
                inverse_h,
            )
            i = math.floor(x)
            j = math.floor(y)
            k = math.floor(z)
            fx = x - i
            fy = y - j
            fz = z - k
            for corner in range(8):
                ci = i + (corner >> 2)
                cj = j + ((corner >> 1) & 1)
                ck = k + (corner & 1)
                # A step out of the Bucket is a step to a neighbour.
                bi = 0 if ci < 0 else (2 if ci >= r else 1)
                bj = 0 if cj < 0 else (2 if cj >= r else 1)
                bk = 0 if ck < 0 else (2 if ck >= r else 1)
                source = neighbours[row, bi * 9 + bj * 3 + bk]
                reached = -r <= min(ci, cj, ck) and max(ci, cj, ck) < 2 * r
                if source < 0 or not reached:
                    continue
                weight = (
                    (fx if corner & 4 else 1.0 - fx)
                    * (fy if corner & 2 else 1.0 - fy)
                    * (fz if corner & 1 else 1.0 - fz)
                )
                for c in range(values.shape[1]):
                    values[p, c] += (
                        weight
                        * grid[source, c, ci - (bi - 1) * r, cj - (bj - 1) * r, ck - (bk - 1) * r]
                    )
