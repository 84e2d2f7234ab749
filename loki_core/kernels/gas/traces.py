"""Traces of eight voxels in a row through a block of velocities on faces.

    x' = x - dt u,  by Euler, the midpoint rule or Ralston's third-order rule (order 1, 2, 3)

Places are counted in voxels from the block's corner, so that single precision is enough wherever
the Bucket lies. A trace that leaves the block, or is not a number, is told by a mask.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.rows import LANES, load, store, within
from loki_core.kernels.buckets.block_samples import velocity_at
from loki_core.kernels.buckets.row_samples import common_voxel, has_room, linear_samples, middle_of
from loki_core.kernels.jit import device, inlined


@device
def start_strides(location, axis, n):
    """How far back along the location's axis, and on along the component's, its faces lie.

    Between faces along a and the location lie four samples at most; where they are fewer, they are
    taken twice.
    """
    zero = np.uint64(0)
    if axis == location:
        return zero, zero
    return stride_of(location, n), stride_of(axis, n)


@inlined
def stride_of(axis, n):
    """Voxels from one to the next along an axis; 0 for no axis."""
    if axis == 0:
        return np.uint64(n * n)
    if axis == 1:
        return np.uint64(n)
    return np.uint64(1) if axis == 2 else np.uint64(0)


@inlined
def face_mean(block, q, strides, quarter):
    """Mean of the four faces around eight places."""
    back, on = strides
    low = load(block, q) + load(block, q - back)
    high = load(block, q + on) + load(block, q + on - back)
    return (low + high) * quarter


@inlined
def start_velocity(block, p, size, strides, half):
    """Velocity on the faces, or at the cells, of a row of voxels that begins at p."""
    quarter = half * half
    u = face_mean(block, p, strides[0], quarter)
    v = face_mean(block, p + size, strides[1], quarter)
    w = face_mean(block, p + size + size, strides[2], quarter)
    return u, v, w


@inlined
def straight(start, lanes, velocity, factor, walls, limits, zero):
    """Ends of straight traces, and a mask of those that stay within the limits.

    Args: start: (x, y, z) of lane 0; lanes: 0, 1, ... 7; factor: time over voxel size; walls:
    (lower, upper) limits that no trace passes, each of three; limits: (first, last) place that can
    be read.
    """
    u, v, w = velocity
    low, high = walls
    first, last = limits
    x = within(u * factor + start[0], low[0], high[0])
    y = within(v * factor + start[1], low[1], high[1])
    z = within(w * factor + (lanes + start[2]), low[2], high[2])
    ends = within(x, first, last), within(y, first, last), within(z, first, last)
    # What is not finite differs from itself, or from zero times itself.
    good = (u * zero == zero) & (v * zero == zero) & (w * zero == zero)
    return ends, good & (ends[0] == x) & (ends[1] == y) & (ends[2] == z)


@inlined
def common_middle(ends, lanes, half):
    """Middle of eight places less their lanes, and whether they are within a voxel of it."""
    x, x_range = middle_of(ends[0], half)
    y, y_range = middle_of(ends[1], half)
    z, z_range = middle_of(ends[2] - lanes, half)
    one = half + half
    return (x, y, z), x_range < one and y_range < one and z_range < one


@inlined
def ways_from(ends, lanes, corner, shifts, number):
    """Places less their common voxels, along the three axes."""
    i, j, k = corner
    x = ends[0] - (number(i) + shifts[0])
    y = ends[1] - (number(j) + shifts[1])
    z = (ends[2] - lanes) - (number(k) + shifts[2])
    return x, y, z


@inlined
def close_samples(block, at, ends, lanes, middle, shifts, n, half):
    """Linear samples at close places: (whether voxels around them are there, samples)."""
    number = block.dtype.type
    zero = half - half
    corner = common_voxel(middle, shifts, half)
    if not has_room(corner, n, 1):
        return False, lanes
    p = np.uint64(at + (corner[0] * n + corner[1]) * n + corner[2])
    ways = ways_from(ends, lanes, corner, shifts, number)
    return True, linear_samples(block, p, np.uint64(n * n), np.uint64(n), ways, zero)


@inlined
def velocity_samples(block, ends, lanes, n, half, scratch):
    """Velocity at eight places: all at once where they are close, else one by one."""
    zero = half - half
    size = n * n * n
    middle, close = common_middle(ends, lanes, half)
    if close:
        one, u = close_samples(block, 0, ends, lanes, middle, (zero, half, half), n, half)
        two, v = close_samples(block, size, ends, lanes, middle, (half, zero, half), n, half)
        three, w = close_samples(
            block, size + size, ends, lanes, middle, (half, half, zero), n, half
        )
        if one and two and three:
            return u, v, w
    store_places(ends, scratch)
    velocity_one_by_one(block, scratch, n, half)
    eight = np.uint64(LANES)
    return load(scratch, np.uint64(0)), load(scratch, eight), load(scratch, eight + eight)


@inlined
def store_places(ends, scratch):
    """Write eight x, y and z."""
    eight = np.uint64(LANES)
    store(scratch, np.uint64(0), ends[0])
    store(scratch, eight, ends[1])
    store(scratch, eight + eight, ends[2])


@device
def velocity_one_by_one(block, scratch, n, half):
    """Replace eight places by the velocities there."""
    eight = np.uint64(LANES)
    for k in range(eight):
        u, v, w = velocity_at(
            block, scratch[k], scratch[k + eight], scratch[k + eight + eight], n, half
        )  # fmt: skip
        scratch[k] = u
        scratch[k + eight] = v
        scratch[k + eight + eight] = w


@inlined
def trace(block, p, start, n, strides, factor, order, walls, reach, half, lanes, scratch):
    """Ends of the traces of a row of voxels that begins at p, and a mask of those to be used.

    Args: start: place of lane 0; strides: of the faces around the starts; reach: limits of places
    in the middle of a trace, and of ends; scratch [3 * LANES].
    """
    between, last = reach
    one = half + half
    zero = half - half
    velocity = start_velocity(block, p, np.uint64(n * n * n), strides, half)
    if order == 1:
        return straight(start, lanes, velocity, factor, walls, last, zero)
    ends, stays = straight(start, lanes, velocity, factor * half, walls, between, zero)
    second = velocity_samples(block, ends, lanes, n, half, scratch)
    if order == 3:  # Ralston: (2 u1 + 3 u2 + 4 u3) / 9, at 0, 1/2 and 3/4 of the step
        part = factor * (half + half * half)
        ends, stay = straight(start, lanes, second, part, walls, between, zero)
        third = velocity_samples(block, ends, lanes, n, half, scratch)
        stays = stays & stay
        two = one + one
        ninth = one / (two * two * two + one)
        second = (
            (velocity[0] * two + second[0] * (two + one) + third[0] * (two + two)) * ninth,
            (velocity[1] * two + second[1] * (two + one) + third[1] * (two + two)) * ninth,
            (velocity[2] * two + second[2] * (two + one) + third[2] * (two + two)) * ninth,
        )
    ends, stay = straight(start, lanes, second, factor, walls, last, zero)
    return ends, stays & stay
