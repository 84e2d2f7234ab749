"""Which particles of a liquid are too many in their voxel."""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import parallel_kernel, prange


@parallel_kernel
def find_crowded(position, offsets, coords, bucket_size, resolution, full, most, crowded):
    """Mark particles beyond the first `full` of a voxel, where it has more than `most`.

    Args: position [n, 3]; offsets int64 [buckets + 1] and coords int32 [buckets, 3] of Buckets of
    particles; crowded bool [n], filled.
    """
    for b in prange(coords.shape[0]):
        scale, last = resolution / bucket_size, resolution - 1
        counts = np.zeros(resolution**3, np.int32)
        voxels = np.empty(offsets[b + 1] - offsets[b], np.int32)
        largest = 0
        for p in range(offsets[b], offsets[b + 1]):
            voxel = 0
            for a in range(3):
                place = (np.float64(position[p, a]) - coords[b, a] * bucket_size) * scale
                voxel = voxel * resolution + np.int64(min(max(place, 0.0), last + 0.5))
            voxels[p - offsets[b]] = voxel
            counts[voxel] += 1
            largest = max(largest, counts[voxel])
        seen = np.zeros(resolution**3 if largest > most else 1, np.int32)
        for p in range(offsets[b], offsets[b + 1]):
            crowded[p] = False
            voxel = voxels[p - offsets[b]]
            if counts[voxel] > most:
                seen[voxel] += 1
                crowded[p] = seen[voxel] > full
