"""Extend values into solids, layer by layer: the mean of the neighbours that have one.

Interpolation near a solid reads cells and faces inside it. They get what the gas beside them has,
so that a solid neither swallows what flows past nor lends it its own velocity. Faces of a solid
that holds the gas keep the solid's velocity, and do not pass it on to those of others.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.jit import device, parallel_kernel, prange

#: What a solid does to a fluid on the faces that it closes, in the channel "solid_grip".
SLIPS, HOLDS = 1, 2
FARTHEST = 1.0e9  # m, in the channel "solid_distance" where no solid is near
HELD = 255  # marks a face that keeps its value and lends it to none; above any layer


@parallel_kernel
def mark_cells(kind, component, mask):
    """Mark cells that are not solid with 1; mask [local, c, r, r, r]."""
    r = kind.shape[2]
    for b in prange(mask.shape[0]):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    mask[b, component, i, j, k] = 1 if kind[b, 0, i, j, k] > 0 else 0


@parallel_kernel
def mark_faces(fraction, mask):
    """Mark faces that are open with 1; mask [local, 3, r, r, r]."""
    r = mask.shape[2]
    for b in prange(mask.shape[0]):
        for a in range(3):
            for i in range(r):
                for j in range(r):
                    for k in range(r):
                        mask[b, a, i, j, k] = 1 if fraction[b, a, i, j, k] > 0.0 else 0


@parallel_kernel
def extend_layer(values, mask, neighbours, layer):
    """Fill places of mask 0 next to places of mask 1..layer, and mark them with layer + 1.

    Places of one layer read only earlier ones, so the order does not matter. Ghosts are current.
    """
    r = values.shape[2]
    for b in prange(neighbours.shape[0]):
        extend_in_bucket(np.int64(b), values, mask, neighbours, layer, r)


@device
def extend_in_bucket(b, values, mask, neighbours, layer, r):
    """Do one Bucket."""
    for c in range(values.shape[1]):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    if mask[b, c, i, j, k] != 0:
                        continue
                    total = 0.0
                    count = 0
                    for a in range(3):
                        for side in range(2):
                            other, ni, nj, nk = beside(neighbours, b, r, a, 2 * side - 1, i, j, k)
                            if other >= 0:
                                m = mask[other, c, ni, nj, nk]
                                if 0 < m <= layer:
                                    total += values[other, c, ni, nj, nk]
                                    count += 1
                    if count > 0:
                        values[b, c, i, j, k] = total / count
                        mask[b, c, i, j, k] = layer + 1
