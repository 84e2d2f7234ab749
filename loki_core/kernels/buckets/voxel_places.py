"""Where the voxel is that lies beside another, or a little way off: in its Bucket or the next."""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device


@device
def axis_step(axis):
    """What a neighbour's direction, of the 27, differs by along an axis."""
    return 9 if axis == 0 else (3 if axis == 1 else 1)


@device
def beside(neighbours, b, r, axis, step, i, j, k):
    """(Bucket or negative code, i, j, k) of the voxel one step up or down an axis."""
    other = np.int64(b)
    i += step if axis == 0 else 0
    j += step if axis == 1 else 0
    k += step if axis == 2 else 0
    place = i if axis == 0 else (j if axis == 1 else k)
    if place < 0 or place >= r:
        other = np.int64(neighbours[b, 13 + step * axis_step(axis)])
        i -= step * r if axis == 0 else 0
        j -= step * r if axis == 1 else 0
        k -= step * r if axis == 2 else 0
    return other, i, j, k


@device
def voxel_at(neighbours, b, r, i, j, k):
    """(Bucket or negative code, i, j, k) of a voxel at most one Bucket away."""
    way = 13
    if i < 0:
        way -= 9
        i += r
    elif i >= r:
        way += 9
        i -= r
    if j < 0:
        way -= 3
        j += r
    elif j >= r:
        way += 3
        j -= r
    if k < 0:
        way -= 1
        k += r
    elif k >= r:
        way += 1
        k -= r
    return (np.int64(b) if way == 13 else np.int64(neighbours[b, way])), i, j, k
