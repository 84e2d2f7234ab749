"""Channels of particles at places near them: weighted means, from voxels that hold their sums."""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.voxel_places import voxel_at
from loki_core.kernels.jit import device, parallel_kernel, prange


@device
def mean_at(sums, neighbours, b, x, y, z, out):
    """Write the mean at a place in voxels of a Bucket, its first centre at 0, to out [c]."""
    r, weights = sums.shape[2], sums.shape[1] - 1
    i, j, k = np.int64(math.floor(x)), np.int64(math.floor(y)), np.int64(math.floor(z))
    fx, fy, fz = x - i, y - j, z - k
    for c in range(weights):
        out[c] = 0.0
    total = 0.0
    for corner in range(8):
        di, dj, dk = corner // 4, corner // 2 % 2, corner % 2
        other, ni, nj, nk = voxel_at(neighbours, b, r, i + di, j + dj, k + dk)
        if other >= 0:
            part = (fx if di else 1.0 - fx) * (fy if dj else 1.0 - fy) * (fz if dk else 1.0 - fz)
            total += part * sums[other, weights, ni, nj, nk]
            for c in range(weights):
                out[c] += part * sums[other, c, ni, nj, nk]
    if total > 0.0:
        for c in range(weights):
            out[c] /= total


@parallel_kernel
def means_at_places(sums, coords, neighbours, buckets, places, scale, out):
    """Write means at places, [n, c].

    Args: sums [b, c + 1, r, r, r] with ghosts and corners, the weights last; buckets int32 [n]:
    one near each place; places [n, 3] in units of which `scale` make a voxel.
    """
    for n in prange(places.shape[0]):
        b, r = np.int64(buckets[n]), sums.shape[2]
        x = places[n, 0] / scale - coords[b, 0] * r - 0.5
        y = places[n, 1] / scale - coords[b, 1] * r - 0.5
        z = places[n, 2] / scale - coords[b, 2] * r - 0.5
        mean_at(sums, neighbours, b, x, y, z, out[n])


@parallel_kernel
def means_at_voxels(sums, neighbours, refinement, distance, band, out):
    """Write means at finer voxels [b, c, R, R, R] whose distance is within a band; elsewhere 0."""
    for b in prange(neighbours.shape[0]):
        out[b] = 0.0
        means = np.empty(out.shape[1])
        for i in range(out.shape[2]):
            for j in range(out.shape[2]):
                for k in range(out.shape[2]):
                    if abs(distance[b, 0, i, j, k]) < band:
                        x = (i + 0.5) / refinement - 0.5
                        y = (j + 0.5) / refinement - 0.5
                        z = (k + 0.5) / refinement - 0.5
                        mean_at(sums, neighbours, np.int64(b), x, y, z, means)
                        for c in range(out.shape[1]):
                            out[b, c, i, j, k] = means[c]
