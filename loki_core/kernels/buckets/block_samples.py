"""Samples in a dense block of voxels with constant strides, one place at a time.

`p` is the lowest voxel of the cube around a place, the fractions are in [0, 1]. Formulas are
written in differences, so that a constant field stays as it is to the last bit.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.rows import LANES
from loki_core.kernels.jit import device, inlined


@inlined
def max_of(a, b):
    """Larger of a and b; a where b is not a number."""
    return b if b > a else a


@inlined
def min_of(a, b):
    """Smaller of a and b; a where b is not a number."""
    return b if b < a else a


@inlined
def trilinear(block, p, stride_x, stride_y, fx, fy, fz):
    """Value in the cube of eight voxels whose lowest is p; a constant stays as it is."""
    one = np.uint64(1)
    q = p + stride_y
    a = block[p] + fz * (block[p + one] - block[p])
    b = block[q] + fz * (block[q + one] - block[q])
    p += stride_x
    q += stride_x
    c = block[p] + fz * (block[p + one] - block[p])
    d = block[q] + fz * (block[q + one] - block[q])
    a = a + fy * (b - a)
    c = c + fy * (d - c)
    return a + fx * (c - a)


@device
def bounds(block, p, stride_x, stride_y, stride_z):
    """Least and greatest of the eight voxels of a cube whose lowest is p.

    A stride is 0 along an axis where the place lies on the voxel itself: the voxel beyond has no
    part in a sample there, and which of two it is would be chance.
    """
    low = block[p]
    high = low
    for corner in range(8):
        q = p
        if corner & 4:
            q += stride_x
        if corner & 2:
            q += stride_y
        if corner & 1:
            q += stride_z
        low = min_of(low, block[q])
        high = max_of(high, block[q])
    return low, high


@device
def catmull_rom(a, b, c, d, t, half):
    """Cubic between b and c; written in differences, so that a constant stays as it is."""
    first, middle, last = b - a, c - b, d - c
    slope = half * (first + middle)
    ahead = half * (middle + last)
    rest = middle - slope
    return b + t * (slope + t * (rest + rest - ahead + middle + t * (ahead - rest - middle)))


@device
def tricubic(block, p, stride_x, stride_y, fx, fy, fz, half):
    """Catmull-Rom in three directions around the cube whose lowest voxel is p."""
    one = np.uint64(1)
    o = p - stride_x - stride_y - one
    a = bicubic(block, o, stride_y, fy, fz, half)
    b = bicubic(block, o + stride_x, stride_y, fy, fz, half)
    o += stride_x + stride_x
    c = bicubic(block, o, stride_y, fy, fz, half)
    d = bicubic(block, o + stride_x, stride_y, fy, fz, half)
    return catmull_rom(a, b, c, d, fx, half)


@device
def bicubic(block, o, stride_y, fy, fz, half):
    """Catmull-Rom in the sixteen voxels of a plane whose lowest is o."""
    a = cubic_row(block, o, fz, half)
    o += stride_y
    b = cubic_row(block, o, fz, half)
    o += stride_y
    c = cubic_row(block, o, fz, half)
    o += stride_y
    d = cubic_row(block, o, fz, half)
    return catmull_rom(a, b, c, d, fy, half)


@device
def cubic_row(block, o, fz, half):
    """Catmull-Rom in four voxels in a row."""
    one = np.uint64(1)
    two = np.uint64(2)
    return catmull_rom(
        block[o], block[o + one], block[o + two], block[o + two + one], fz, half
    )  # fmt: skip


@device
def velocity_at(block, x, y, z, n, half):
    """Velocity at a place of the block [m/s]; component a lives on the faces along a.

    Places are not negative, so that cutting off the fraction is rounding down.
    """
    number = block.dtype.type
    n = np.int64(n)
    i = np.int64(x)
    j = np.int64(y)
    k = np.int64(z)
    i_half = np.int64(x - half)
    j_half = np.int64(y - half)
    k_half = np.int64(z - half)
    fx = x - half - number(i_half)
    fy = y - half - number(j_half)
    fz = z - half - number(k_half)
    stride_y = np.uint64(n)
    stride_x = np.uint64(n * n)
    size = n * n * n
    p = np.uint64((i * n + j_half) * n + k_half)
    u = trilinear(block, p, stride_x, stride_y, x - number(i), fy, fz)
    p = np.uint64((i_half * n + j) * n + k + (k_half - k) + size)
    v = trilinear(block, p, stride_x, stride_y, fx, y - number(j), fz)
    p = np.uint64((i_half * n + j_half) * n + k + size + size)
    w = trilinear(block, p, stride_x, stride_y, fx, fy, z - number(k))
    return u, v, w


@inlined
def corner_at(places, m, shifts, n):
    """(lowest voxel of a stencil, fractions) of the m-th of a row of places: eight x, y, then z."""
    number = places.dtype.type
    row = np.uint64(LANES)
    x = places[m] - shifts[0]
    y = places[m + row] - shifts[1]
    z = places[m + row + row] - shifts[2]
    i = np.int64(x)
    j = np.int64(y)
    k = np.int64(z)
    return (i * n + j) * n + k, x - number(i), y - number(j), z - number(k)
