"""Samples of a dense block at eight places at once, for a row of traces that stay close together.

Neighbouring voxels move nearly alike, so the ends of eight traces in a row, less their starts,
mostly lie within a voxel of each other. Then one common voxel m per lane has all stencils around
it: with d = place - m in [-1, 1], a linear sample along an axis is

    v[m] + max(d, 0) (v[m+1] - v[m]) + max(-d, 0) (v[m-1] - v[m])

and all loads are of eight voxels in a row. Cubic samples take two voxels each way. The machine has
no quick way to load eight voxels from eight places, which is why this is several times as fast as
one sample after the other.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.rows import LANES, choose, greatest, larger, least, load, smaller
from loki_core.kernels.jit import device, inlined


@inlined
def middle_of(place, half):
    """(middle of the range of eight numbers, its length)."""
    low, high = least(place), greatest(place)
    return half * (low + high), high - low


@inlined
def common_voxel(middles, shifts, half):
    """Voxel of lane 0 around which all stencils lie; its neighbours are the other lanes'."""
    i = np.int64(middles[0] - shifts[0] + half)
    j = np.int64(middles[1] - shifts[1] + half)
    k = np.int64(middles[2] - shifts[2] + half)
    return i, j, k


@inlined
def has_room(corner, n, reach):
    """Whether `reach` voxels on each side of eight common voxels are in the block."""
    i, j, k = corner
    return min(i, j, k) >= reach and max(i, j, k + LANES - 1) <= n - 1 - reach


@inlined
def blend(before, here, after, up, down):
    """Linear value, from the parts of the way up and down."""
    return here + up * (after - here) + down * (before - here)


@inlined
def line(block, p, up, down):
    """Linear along z."""
    one = np.uint64(1)
    return blend(load(block, p - one), load(block, p), load(block, p + one), up, down)


@inlined
def plane(block, p, stride_y, y_ways, z_ways):
    """Linear along y and z."""
    up, down = z_ways
    before = line(block, p - stride_y, up, down)
    here = line(block, p, up, down)
    after = line(block, p + stride_y, up, down)
    return blend(before, here, after, y_ways[0], y_ways[1])


@inlined
def linear_samples(block, p, stride_x, stride_y, ways, zero):
    """Trilinear values at eight places that are `ways` (x, y, z) from the voxels p, p + 1, ..."""
    dx, dy, dz = ways
    y_ways = (larger(zero, dy), larger(zero, zero - dy))
    z_ways = (larger(zero, dz), larger(zero, zero - dz))
    before = plane(block, p - stride_x, stride_y, y_ways, z_ways)
    here = plane(block, p, stride_y, y_ways, z_ways)
    after = plane(block, p + stride_x, stride_y, y_ways, z_ways)
    return blend(before, here, after, larger(zero, dx), larger(zero, zero - dx))


@inlined
def cubic_weights(d, zero, half):
    """Catmull-Rom weights of the voxels -2, -1, 1 and 2 from the common one; that has the rest."""
    t = larger(d, zero - d)
    one = half + half
    near = t * (half + t * (one + one - t * (one + half)))
    far = t * t * (t - one) * half
    behind = zero - t * half * (one - t) * (one - t)
    ahead = d >= zero
    none = t * zero
    return (
        choose(ahead, none, far), choose(ahead, behind, near),
        choose(ahead, near, behind), choose(ahead, far, none),
    )  # fmt: skip


@inlined
def weigh(here, others, weights):
    """A sum whose weights are one together, in differences from the middle."""
    a, b, c, d = others
    wa, wb, wc, wd = weights
    return here + wa * (a - here) + wb * (b - here) + wc * (c - here) + wd * (d - here)


@inlined
def cubic_line(block, p, weights):
    """Cubic along z."""
    one, two = np.uint64(1), np.uint64(2)
    others = (
        load(block, p - two), load(block, p - one), load(block, p + one), load(block, p + two)
    )  # fmt: skip
    return weigh(load(block, p), others, weights)


@inlined
def cubic_plane(block, p, stride_y, y_weights, z_weights):
    """Cubic along y and z."""
    two = stride_y + stride_y
    others = (
        cubic_line(block, p - two, z_weights), cubic_line(block, p - stride_y, z_weights),
        cubic_line(block, p + stride_y, z_weights), cubic_line(block, p + two, z_weights),
    )  # fmt: skip
    return weigh(cubic_line(block, p, z_weights), others, y_weights)


@device
def cubic_samples(block, p, stride_x, stride_y, ways, zero, half):
    """Catmull-Rom values at eight places; two voxels on each side are read.

    Not inlined: LLVM would compute the weights for linear samples too.
    """
    x_weights = cubic_weights(ways[0], zero, half)
    y_weights = cubic_weights(ways[1], zero, half)
    z_weights = cubic_weights(ways[2], zero, half)
    two = stride_x + stride_x
    others = (
        cubic_plane(block, p - two, stride_y, y_weights, z_weights),
        cubic_plane(block, p - stride_x, stride_y, y_weights, z_weights),
        cubic_plane(block, p + stride_x, stride_y, y_weights, z_weights),
        cubic_plane(block, p + two, stride_y, y_weights, z_weights),
    )
    here = cubic_plane(block, p, stride_y, y_weights, z_weights)
    return weigh(here, others, x_weights)


@inlined
def extremes(before, here, after, sides):
    """Least and greatest of the one or two of three that belong to the stencil."""
    below, alone = sides
    low, high = choose(below, before[0], here[0]), choose(below, before[1], here[1])
    other_low = choose(alone, low, choose(below, here[0], after[0]))
    other_high = choose(alone, high, choose(below, here[1], after[1]))
    return smaller(low, other_low), larger(high, other_high)


@inlined
def line_extremes(block, p, sides):
    """Bounds along z."""
    one = np.uint64(1)
    below, alone = sides
    before, here, after = load(block, p - one), load(block, p), load(block, p + one)
    first = choose(below, before, here)
    second = choose(alone, first, choose(below, here, after))
    return smaller(first, second), larger(first, second)


@inlined
def plane_extremes(block, p, stride_y, y_sides, z_sides):
    """Bounds along y and z."""
    before = line_extremes(block, p - stride_y, z_sides)
    here = line_extremes(block, p, z_sides)
    after = line_extremes(block, p + stride_y, z_sides)
    return extremes(before, here, after, y_sides)


@inlined
def stencil_bounds(block, p, stride_x, stride_y, sides):
    """Least and greatest of eight stencils of up to 2^3 voxels.

    Args: sides: for x, y and z a mask of stencils that begin before their common voxel, and one of
    those whose place lies on a voxel itself. What is not a number counts only as the first voxel.
    """
    before = plane_extremes(block, p - stride_x, stride_y, sides[1], sides[2])
    here = plane_extremes(block, p, stride_y, sides[1], sides[2])
    after = plane_extremes(block, p + stride_x, stride_y, sides[1], sides[2])
    return extremes(before, here, after, sides[0])
