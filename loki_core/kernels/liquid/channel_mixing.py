"""Values of particles that mix with those around them, through the means of voxels.

With trilinear weights w of voxel centres, and what is not stored left out,

    m_g = sum_p w_gp,   c_g = sum_p w_gp c_p / m_g,   c_p += sum_g w_gp [a (c_g - c_p) + c'_g - c_g]

changes sum_p c_p by sum_g m_g (c'_g - c_g): by nothing, where c' comes from c by fluxes.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.voxel_places import voxel_at
from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.liquid.surface_tiles import place_in_tile


@parallel_kernel
def walk_of_weights(position, offsets, coords, bucket_size, resolution, sums):
    """Sum f (1 - f) over the axes of the particles of each Bucket [b], f their places in a voxel.

    It is the mean square way to the voxel centres that a particle's weights name, in voxels^2.
    """
    for b in prange(sums.shape[0]):
        total = 0.0
        for p in range(offsets[b], offsets[b + 1]):
            x, y, z = place_in_tile(position, p, coords, np.int64(b), bucket_size, resolution, 1)
            fx, fy, fz = x - math.floor(x), y - math.floor(y), z - math.floor(z)
            total += fx * (1.0 - fx) + fy * (1.0 - fy) + fz * (1.0 - fz)
        sums[b] = total


@parallel_kernel
def divide_sums(sums, means):
    """Make means [b, c, r, r, r] of sums [b, c + 1, r, r, r], the weights last; 0 of nothing."""
    for b in prange(means.shape[0]):
        r, last = means.shape[2], means.shape[1]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    weight = sums[b, last, i, j, k]
                    for c in range(last):
                        means[b, c, i, j, k] = sums[b, c, i, j, k] / weight if weight > 0.0 else 0.0


@device
def conductance(sums, fraction, weight, other, i, j, k, face, axis, fi, fj, fk):
    """What passes a face, of the difference of means: its open part, and the harmonic mean m."""
    if other < 0 or face < 0:
        return 0.0
    there = np.float64(sums[other, sums.shape[1] - 1, i, j, k])
    if not (there > 0.0 and weight > 0.0):
        return 0.0
    return fraction[face, axis, fi, fj, fk] * 2.0 * weight * there / (weight + there)


@parallel_kernel
def diffuse_means(sums, means, fraction, neighbours, rate, out):
    """Do a sweep of diffusion between voxels, m dc = rate sum_f w_f m_f (c_n - c).

    Args: sums [b, c + 1, r, r, r], the weights m last, means [b, c, r, r, r] and fraction [b, 3, r,
    r, r], the open parts w of lower faces, all with ghosts; rate, at most 1/12; out as means.
    """
    for b in prange(neighbours.shape[0]):
        r, last = means.shape[2], means.shape[1]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    weight = np.float64(sums[b, last, i, j, k])
                    for c in range(last):
                        out[b, c, i, j, k] = means[b, c, i, j, k]
                    if not weight > 0.0:
                        continue
                    for side in range(6):
                        axis, way = side // 2, 2 * (side % 2) - 1
                        ni = i + (way if axis == 0 else 0)
                        nj = j + (way if axis == 1 else 0)
                        nk = k + (way if axis == 2 else 0)
                        other, ni, nj, nk = voxel_at(neighbours, b, r, ni, nj, nk)
                        if way < 0:  # the voxel's own lower face
                            part = conductance(
                                sums, fraction, weight, other, ni, nj, nk, np.int64(b), axis,
                                i, j, k,
                            )  # fmt: skip
                        else:
                            part = conductance(
                                sums, fraction, weight, other, ni, nj, nk, other, axis, ni, nj, nk
                            )
                        if part > 0.0:
                            part *= rate / weight
                            for c in range(last):
                                out[b, c, i, j, k] += part * (
                                    np.float64(means[other, c, ni, nj, nk]) - means[b, c, i, j, k]
                                )


@parallel_kernel
def mix_particles(
    position, offsets, coords, bucket_size, rows, neighbours, part, before, after, values
):  # fmt: skip
    """Bring means back to particles.

    Args: position [n, 3]; offsets, coords and rows, of the volume, of Buckets of particles; part a;
    before, after [b, c, r, r, r] with ghosts and corners: c_g and c'_g; values [n, c].
    """
    for b in prange(rows.shape[0]):
        row, r = np.int64(rows[b]), before.shape[2]
        change = np.empty(values.shape[1])
        for p in range(offsets[b], offsets[b + 1]):
            x, y, z = place_in_tile(position, p, coords, np.int64(b), bucket_size, r, 0)
            i, j, k = np.int64(math.floor(x)), np.int64(math.floor(y)), np.int64(math.floor(z))
            fx, fy, fz = x - i, y - j, z - k
            change[:] = 0.0
            for corner in range(8):
                di, dj, dk = corner // 4, corner // 2 % 2, corner % 2
                other, ni, nj, nk = voxel_at(neighbours, row, r, i + di, j + dj, k + dk)
                if other >= 0:
                    weight = fx if di else 1.0 - fx
                    weight *= fy if dj else 1.0 - fy
                    weight *= fz if dk else 1.0 - fz
                    for c in range(values.shape[1]):
                        old = np.float64(before[other, c, ni, nj, nk])
                        change[c] += weight * (
                            part * (old - values[p, c]) + after[other, c, ni, nj, nk] - old
                        )
            for c in range(values.shape[1]):
                values[p, c] += change[c]
