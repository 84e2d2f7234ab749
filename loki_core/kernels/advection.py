"""Advection of a Bucket: traces that stay in its block, and what is found at their ends.

    x' = x - dt u,  by Euler, the midpoint rule or Ralston's third-order rule (order 1, 2, 3)

Each Bucket is gathered into a dense block (bucket_block), where trilinear samples have constant
strides; positions are counted in voxels from the block's corner, so that single precision is enough
wherever the Bucket lies. A trace that leaves the block, or is not a number, is marked in a bit mask
and left to the long traces (advection_long). A pass does one of four things with the sample q:

    SAMPLE       out = q
    MACCORMACK   out = hat + (phi - q) / 2, limited by the stencil that the first pass noted
    BFECC        out = phi + (phi - q) / 2
    LIMITED      out = q, limited by phi around the end of the trace

Locations 0, 1, 2 are the faces along an axis; 3 is the cell centre.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.advection_rows import (
    LANES,
    bounds_eight,
    inlined,
    sample_eight,
    spread_eight,
)
from loki_core.kernels.bucket_block import fill_outside, follow_inner_face, gather_block
from loki_core.kernels.jit import device, parallel_kernel, prange

SAMPLE, MACCORMACK, BFECC, LIMITED = 0, 1, 2, 3
NO_LIMIT, CLAMPED, REVERTED, CONSERVED = 0, 1, 2, 3
CELL = 3
#: Note of a trace that left its block.
ESCAPED = 65535


@parallel_kernel
def fastest_component(velocity, speed):
    """Largest |component| of each Bucket of velocity [b, ...]; what is not a number counts not."""
    size = velocity.shape[1] * velocity.shape[2] * velocity.shape[3] * velocity.shape[4]
    flat = velocity.reshape(velocity.shape[0] * size)
    for b in prange(speed.shape[0]):
        speed[b] = largest(flat[b * size : (b + 1) * size])


@device
def largest(values):
    """Largest absolute value of a list."""
    most = values.dtype.type(0.0)
    for n in range(values.shape[0]):
        most = max_of(most, abs(values[n]))
    return most


@inlined
def max_of(a, b):
    """Larger of a and b; a where b is not a number."""
    return b if b > a else a


@inlined
def min_of(a, b):
    """Smaller of a and b; a where b is not a number."""
    return b if b < a else a


@inlined
def within(x, low, high):
    """Bring x between low and high; low where x is not a number."""
    x = x if x > low else low
    return x if x < high else high


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
def bounds(block, p, stride_x, stride_y):
    """Least and greatest of the eight voxels of a cube whose lowest is p."""
    one = np.uint64(1)
    low = block[p]
    high = low
    for corner in range(8):
        q = p
        if corner & 4:
            q += stride_x
        if corner & 2:
            q += stride_y
        if corner & 1:
            q += one
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
def finite3(u, v, w):
    """Whether three numbers are finite."""
    return (u - u == 0) & (v - v == 0) & (w - w == 0)


@inlined
def start_row(block, location, p, n, half, count, velocity):
    """Velocity [3 * LANES] on the faces, or at the cells, of a row of voxels that begins at p.

    Between faces along a and the location lie four samples at most, one back along the location's
    axis and one on along a; where they are fewer, they are taken twice.
    """
    zero = np.uint64(0)
    stride_y = np.uint64(n)
    stride_x = stride_y * stride_y
    size = stride_x * stride_y
    quarter = half * half
    back = zero
    if location == 0:
        back = stride_x
    elif location == 1:
        back = stride_y
    elif location == 2:
        back = np.uint64(1)
    for axis in range(3):
        on = stride_x
        if axis == 1:
            on = stride_y
        elif axis == 2:
            on = np.uint64(1)
        less = back
        if axis == location:
            on = zero
            less = zero
        q = p + np.uint64(axis) * size
        to = np.uint64(axis * LANES)
        for k in range(count):
            low = block[q + k] + block[q + k - less]
            high = block[q + k + on] + block[q + k + on - less]
            velocity[to + k] = quarter * (low + high)


@inlined
def move_row(start, factor, walls, limits, steps, count, velocity, out_of, ends):
    """Fill the ends of a row of straight traces; out_of becomes 1 where one leaves the limits.

    Args: start: (x, y, z) of the first voxel; factor: time over voxel size; walls: (lower, upper)
    limits that no trace passes, each of three; limits: (first, last) place that can be read.
    """
    x, y, z = start
    low, high = walls
    first, last = limits
    two = np.uint64(LANES)
    for k in range(count):
        u, v, w = velocity[k], velocity[k + two], velocity[k + two + two]
        mx = within(x + factor * u, low[0], high[0])
        my = within(y + factor * v, low[1], high[1])
        mz = within(z + steps[k] + factor * w, low[2], high[2])
        px = within(mx, first, last)
        py = within(my, first, last)
        pz = within(mz, first, last)
        ends[k] = px
        ends[k + two] = py
        ends[k + two + two] = pz
        good = (px == mx) & (py == my) & (pz == mz) & finite3(u, v, w)
        out_of[k] |= np.uint8(not good)


@inlined
def are_close(ends, spread):
    """Whether eight ends, less their starts, lie within a voxel; fills their range."""
    zero = ends[0] - ends[0]
    none = np.uint64(0)
    spread_eight(ends, (none, none, none, none), (zero, zero, zero), ends, none, spread)
    one = ends.dtype.type(1.0)
    close = spread[LANES] - spread[0] < one
    close &= spread[3 * LANES] - spread[2 * LANES] < one
    return close & (spread[5 * LANES] - spread[4 * LANES] < one)


@inlined
def common_voxel(spread, axis, shift, half):
    """Voxel in the middle of eight places along an axis."""
    low, high = spread[2 * axis * LANES], spread[(2 * axis + 1) * LANES]
    return np.int64(half * (low + high) - shift + half)


@inlined
def sample_close(block, at, spread, shifts, n, half, ends, to, out):
    """Sample one component at eight close places; False where voxels around them are missing."""
    number = block.dtype.type
    sx, sy, sz = shifts
    i = common_voxel(spread, 0, sx, half)
    j = common_voxel(spread, 1, sy, half)
    k = common_voxel(spread, 2, sz, half)
    if not (min(i, j, k) >= 1 and max(i, j, k + LANES - 1) <= n - 2):
        return False
    p = np.uint64(at + (i * n + j) * n + k)
    place = (p, np.uint64(n * n), np.uint64(n), np.uint64(to))
    offsets = (number(i) + sx, number(j) + sy, number(k) + sz)
    sample_eight(block, place, offsets, ends, np.uint64(0), out)
    return True


@inlined
def bounds_close(block, at, corner, n, signs, out):
    """Bounds of eight stencils around common voxels whose first is `corner`."""
    i, j, k = corner
    if not (min(i, j, k) >= 1 and max(i, j, k + LANES - 1) <= n - 2):
        return False
    p = np.uint64(at + (i * n + j) * n + k)
    place = (p, np.uint64(n * n), np.uint64(n), np.uint64(0))
    zero = signs[0] - signs[0]
    bounds_eight(block, place, (zero, zero, zero), signs, np.uint64(0), out)
    return True


@inlined
def velocity_row(block, ends, n, half, count, spread, velocity):
    """Velocity at a row of places: eight at once where they are close, else one by one."""
    zero = half - half
    size = n * n * n
    if count == np.uint64(LANES) and are_close(ends, spread):
        done = sample_close(block, 0, spread, (zero, half, half), n, half, ends, 0, velocity)
        done = done and sample_close(
            block, size, spread, (half, zero, half), n, half, ends, LANES, velocity
        )
        done = done and sample_close(
            block, size + size, spread, (half, half, zero), n, half, ends, 2 * LANES, velocity
        )
        if done:
            return
    two = np.uint64(LANES)
    for k in range(count):
        u, v, w = velocity_at(block, ends[k], ends[k + two], ends[k + two + two], n, half)
        velocity[k] = u
        velocity[k + two] = v
        velocity[k + two + two] = w


@inlined
def trace_row(
    block, location, p, start, n, factor, order, walls, reach, half, steps, count, velocity, mean,
    spread, ends, out_of,
):  # fmt: skip
    """Trace a row of voxels: from p in the block, at the place `start`, to `ends`."""
    middle_limits, end_limits = reach
    one = half + half
    start_row(block, location, p, n, half, count, velocity)
    for k in range(np.uint64(LANES)):
        out_of[k] = 0
    for stage in range(1, order):
        if order == 3:  # Ralston: (2 u1 + 3 u2 + 4 u3) / 9, at 0, 1/2 and 3/4 of the step
            weight = one if stage == 1 else one + half
            keep = one - one if stage == 1 else one
            for k in range(np.uint64(3 * LANES)):
                mean[k] = weight * velocity[k] + keep * mean[k]
        part = half if stage == 1 else half + half * half
        move_row(
            start, factor * part, walls, middle_limits, steps, count, velocity, out_of, ends
        )  # fmt: skip
        velocity_row(block, ends, n, half, count, spread, velocity)
    if order == 3:
        ninth = one / steps[9]
        for k in range(np.uint64(3 * LANES)):
            velocity[k] = ninth * (steps[2] * mean[k] + steps[4] * velocity[k])
    move_row(start, factor, walls, end_limits, steps, count, velocity, out_of, ends)


@inlined
def sample_row(source, at, shifts, n, ends, close, half, count, spread, values):
    """Sample a component of the block `source`, which begins at `at`, at a row of places."""
    if close and sample_close(source, at, spread, shifts, n, half, ends, 0, values):
        return
    stride_y = np.uint64(n)
    stride_x = stride_y * stride_y
    for k in range(count):
        p, fx, fy, fz = corner_one(shifts, n, ends, k)
        values[k] = trilinear(source, np.uint64(at + p), stride_x, stride_y, fx, fy, fz)


@device
def sample_row_cubic(source, at, shifts, n, ends, half, count, values):
    """Do the same with cubic interpolation."""
    stride_y = np.uint64(n)
    stride_x = stride_y * stride_y
    for k in range(count):
        p, fx, fy, fz = corner_one(shifts, n, ends, k)
        values[k] = tricubic(source, np.uint64(at + p), stride_x, stride_y, fx, fy, fz, half)


@inlined
def corner_one(shifts, n, ends, m):
    """(lowest voxel of a stencil, fractions) of the m-th place of a row."""
    number = ends.dtype.type
    two = np.uint64(LANES)
    x = ends[m] - shifts[0]
    y = ends[m + two] - shifts[1]
    z = ends[m + two + two] - shifts[2]
    i = np.int64(x)
    j = np.int64(y)
    k = np.int64(z)
    return (i * n + j) * n + k, x - number(i), y - number(j), z - number(k)


@inlined
def bounds_row(limit, at, n, corner, signs, stencils, close, count, limits):
    """Least and greatest voxel of each stencil of a row; fills limits [2 * LANES]."""
    if close and bounds_close(limit, at, corner, n, signs, limits):
        return
    stride_y = np.uint64(n)
    stride_x = stride_y * stride_y
    for k in range(count):
        if stencils[k] >= 0:
            low, high = bounds(limit, np.uint64(at + stencils[k]), stride_x, stride_y)
            limits[k] = low
            limits[k + np.uint64(LANES)] = high


@inlined
def note_stencils(shifts, n, ends, out_of, first, count, notes, to):
    """Note where each stencil of a row begins, relative to its voxel, in 15 bits."""
    i, j, k0 = first
    two = np.uint64(LANES)
    for k in range(count):
        dx = np.int64(ends[k] - shifts[0]) - i + 16
        dy = np.int64(ends[k + two] - shifts[1]) - j + 16
        dz = np.int64(ends[k + two + two] - shifts[2]) - k0 - np.int64(k) + 16
        notes[to + k] = ESCAPED if out_of[k] else (dx << 10) | (dy << 5) | dz


@inlined
def read_stencils(notes, to, n, first, steps, count, stencils, signs, out_of):
    """Read what was noted: voxels, -1 for a trace that left its block, and common voxels.

    Returns whether all stencils lie around common voxels, and the first of those.
    """
    i, j, k0 = first
    two = np.uint64(LANES)
    number = signs.dtype.type
    high_x = high_y = high_z = np.int64(-100)
    low_x = low_y = low_z = np.int64(100)
    for k in range(count):
        note = np.int64(notes[to + k])
        if note == ESCAPED:
            out_of[k] = 1
        dx = (note >> 10) - 16
        dy = ((note >> 5) & 31) - 16
        dz = (note & 31) - 16
        high_x = max(high_x, dx)
        high_y = max(high_y, dy)
        high_z = max(high_z, dz)
        low_x = min(low_x, dx)
        low_y = min(low_y, dy)
        low_z = min(low_z, dz)
        stencil = ((i + dx) * n + j + dy) * n + k0 + np.int64(k) + dz
        stencils[k] = stencil if note != ESCAPED else -1
        signs[k] = number(dx)
        signs[k + two] = number(dy)
        signs[k + two + two] = number(dz)
    close = high_x - low_x <= 1 and high_y - low_y <= 1 and high_z - low_z <= 1
    for k in range(count):
        signs[k] -= number(high_x)
        signs[k + two] -= number(high_y)
        signs[k + two + two] += steps[k] - number(high_z)
    return close and count == two, (i + high_x, j + high_y, k0 + high_z)


@inlined
def limit_value(value, low, high, plain, limiter):
    """Value within its bounds: clamped, or reverted to the plain value where it is not."""
    if limiter == REVERTED and not (value >= low and value <= high):
        value = plain
    if limiter != NO_LIMIT and value == value:
        value = within(value, low, high)
    return value


@inlined
def write_row(action, limiter, half, count, values, limits, plain, phi, hat, out, at):
    """Write what an action makes of the samples of a row."""
    two = np.uint64(LANES)
    if action == SAMPLE:
        for k in range(count):
            out[at + k] = values[k]
    elif action == BFECC:
        for k in range(count):
            out[at + k] = phi[at + k] + half * (phi[at + k] - values[k])
    elif action == MACCORMACK:
        for k in range(count):
            value = hat[at + k] + half * (phi[at + k] - values[k])
            out[at + k] = limit_value(value, limits[k], limits[k + two], hat[at + k], limiter)
    else:
        for k in range(count):
            out[at + k] = limit_value(values[k], limits[k], limits[k + two], plain[k], limiter)
        if limiter == CONSERVED:  # what was cut off is handed on afterwards
            for k in range(count):
                hat[at + k] = values[k] - out[at + k]


@device
def advect_bucket(
    blocks, layout, location, components, settings, walls, rows, half, inside, outputs, masks
):
    """Trace all voxels of a Bucket from one location and write what the pass makes of them.

    Args: blocks: (velocity, source, limit) as flat blocks; layout: (r, halo, n, first component);
    settings: (factor, order, cubic, action, limiter); rows: scratch; inside: what the Bucket itself
    holds of (phi, hat), flat, with where its first value is; outputs: (out, notes, where they
    begin).
    """
    velocity, source, limit = blocks
    r, halo, n, first_component = layout
    factor, order, cubic, action, limiter = settings
    speeds, mean, ends, spread, signs, values, limits, plain, stencils, out_of, steps = rows
    phi, hat, home = inside
    out, notes, note_home = outputs
    mask, mask_home = masks
    size = n * n * n
    one = half + half
    zero = half - half
    margin = one if cubic else zero
    reach = (
        (half, steps[n] - one - half), (half + margin, steps[n] - one - half - margin)
    )  # fmt: skip
    bounded = limiter != NO_LIMIT and action != SAMPLE and action != BFECC
    noting = action != MACCORMACK and notes.shape[0] > 0
    sx = zero if location == 0 else half
    sy = zero if location == 1 else half
    sz = zero if location == 2 else half
    shifts = (sx, sy, sz)
    escaped = 0
    lanes = min(r, LANES)
    count = np.uint64(lanes)
    for i in range(r):
        for j in range(r):
            bits = np.uint32(0)
            for k0 in range(0, r, lanes):
                first = (halo + i, halo + j, halo + k0)
                start = (steps[halo + i] + sx, steps[halo + j] + sy, steps[halo + k0] + sz)
                p = np.uint64(((halo + i) * n + halo + j) * n + halo + k0)
                trace_row(
                    velocity, location, p, start, n, factor, order, walls, reach, half, steps,
                    count, speeds, mean, spread, ends, out_of,
                )  # fmt: skip
                close = lanes == LANES and are_close(ends, spread)
                row = (i * r + j) * r + k0
                note_at = np.uint64(note_home + row)
                if noting:
                    note_stencils(shifts, n, ends, out_of, first, count, notes, note_at)
                near, corner = False, first
                if bounded:
                    near, corner = read_stencils(
                        notes, note_at, n, first, steps, count, stencils, signs, out_of
                    )
                for c in range(first_component, first_component + components):
                    at = c * size
                    if cubic:
                        sample_row_cubic(source, at, shifts, n, ends, half, count, values)
                    else:
                        sample_row(source, at, shifts, n, ends, close, half, count, spread, values)
                    if bounded:
                        bounds_row(limit, at, n, corner, signs, stencils, near, count, limits)
                        if action == LIMITED and limiter == REVERTED:
                            sample_row(
                                limit, at, shifts, n, ends, close, half, count, spread, plain
                            )  # fmt: skip
                    write_row(
                        action, limiter, half, count, values, limits, plain, phi, hat, out,
                        np.uint64(home + c * r * r * r + row),
                    )  # fmt: skip
                for k in range(lanes):
                    if out_of[k]:
                        bits |= np.uint32(1) << np.uint32(k0 + k)
            mask[np.uint64(mask_home + i * r + j)] = bits
            if bits:
                escaped += 1
    return escaped


@parallel_kernel
def advect_buckets(
    velocity, source, phi, hat, neighbours, coords, halos, locations, settings, box, walls,
    velocity_rules, source_rules, backgrounds, steps, half, borders, largest_halo, same, out,
    stencils, mask, escaped,
):  # fmt: skip
    """Advect local Buckets in fixed runs; a run has its own scratch, and is one thread's work.

    Args: velocity, source, phi, hat, out: channels [b, c, r, r, r]; halos [local]; locations: of
    what is advected, [1] or [3]; settings: (factor, order, cubic, action, limiter); box: planes in
    voxels, int64 [2, 3]; walls: limits of traces in voxels, float64 [2, 3]; rules: (rule, scale,
    offset), [c, 6] each; same: (1 where source is velocity; 1 where phi is velocity, 2 source);
    steps: 0, 1, 2, ... as the channels' numbers; mask [local, locations, r, r] uint32.
    """
    for run in prange(borders.shape[0] - 1):
        advect_run(
            velocity, source, phi, hat, neighbours, coords, halos, locations, settings, box, walls,
            velocity_rules, source_rules, backgrounds, steps, half, borders[run], borders[run + 1],
            largest_halo, same, out, stencils, mask, escaped,
        )  # fmt: skip


@device
def advect_run(
    velocity, source, phi, hat, neighbours, coords, halos, locations, settings, box, walls,
    velocity_rules, source_rules, backgrounds, steps, half, start, stop, largest_halo, same, out,
    stencils, mask, escaped,
):  # fmt: skip
    """Gather and advect one Bucket after the other."""
    r = source.shape[2]
    components = source.shape[1]
    most = (r + 2 * largest_halo) ** 3
    kind = velocity.dtype
    action, limiter = settings[3], settings[4]
    source_same, limit_same = same
    limited = limiter != NO_LIMIT and action != SAMPLE and action != BFECC
    velocity_block = np.empty(3 * most, kind)
    source_block = velocity_block if source_same == 1 else np.empty(components * most, kind)
    limit_block = velocity_block if limit_same == 1 else source_block
    if limited and limit_same == 0:
        limit_block = np.empty(components * most, kind)
    limits = np.empty((2, 3), kind)
    three = 3 * LANES
    rows = (
        np.zeros(three, kind), np.zeros(three, kind), np.zeros(three, kind),
        np.zeros(2 * three, kind), np.zeros(three, kind), np.zeros(LANES, kind),
        np.zeros(2 * LANES, kind), np.zeros(LANES, kind), np.zeros(LANES, np.int64),
        np.zeros(LANES, np.uint8), steps,
    )  # fmt: skip
    flat_velocity = velocity.reshape(velocity.size)
    flat_source = source.reshape(source.size)
    flat_phi = phi.reshape(phi.size)
    flat_hat = hat.reshape(hat.size)
    flat_out = out.reshape(out.size)
    flat_stencils = stencils.reshape(stencils.size)
    flat_mask = mask.reshape(mask.size)
    is_face = locations.shape[0] == 3
    for b in range(start, stop):
        halo = halos[b]
        n = r + 2 * halo
        lower, upper, outside = sides_of_block(coords, b, r, halo, n, box, walls, limits)
        low_wall = (limits[0, 0], limits[0, 1], limits[0, 2])
        high_wall = (limits[1, 0], limits[1, 1], limits[1, 2])
        load_block(
            flat_velocity, velocity.shape[1], neighbours, b, r, halo, n, backgrounds,
            velocity.shape[1] == 3, outside, lower, upper, velocity_rules, half, velocity_block,
        )  # fmt: skip
        if source_same == 0:
            load_block(
                flat_source, components, neighbours, b, r, halo, n, backgrounds, is_face, outside,
                lower, upper, source_rules, half, source_block,
            )  # fmt: skip
        if limited and limit_same == 0:
            load_block(
                flat_phi, components, neighbours, b, r, halo, n, backgrounds, is_face, outside,
                lower, upper, source_rules, half, limit_block,
            )  # fmt: skip
        count = 0
        for place in range(locations.shape[0]):
            first = place if is_face else 0
            count += advect_bucket(
                (velocity_block, source_block, limit_block), (r, halo, n, first), locations[place],
                1 if is_face else components, settings, (low_wall, high_wall), rows, half,
                (flat_phi, flat_hat, b * components * r * r * r),
                (flat_out, flat_stencils, (b * locations.shape[0] + place) * r * r * r),
                (flat_mask, (b * locations.shape[0] + place) * r * r),
            )  # fmt: skip
        escaped[b] = count


@device
def load_block(
    values, components, neighbours, b, r, halo, n, backgrounds, is_face, outside, lower, upper,
    rules, half, block,
):  # fmt: skip
    """Gather all components of a Bucket, and fill what lies outside the box."""
    rule, scale, offset = rules
    for c in range(components):
        at = np.uint64(c * n * n * n)
        empty = half - half
        if not is_face:
            empty = backgrounds[c]
        gather_block(
            values, (np.uint64(c), np.uint64(components)), neighbours[b], np.uint64(r),
            np.uint64(halo), np.uint64(n), empty, is_face, block, at,
        )  # fmt: skip
        if is_face and neighbours[b, 13 - (9 if c == 0 else (3 if c == 1 else 1))] == -1:
            follow_inner_face(block, at, n, c, halo, half + half)
        if outside:
            axis = c if is_face else -1
            fill_outside(block, at, n, axis, lower, upper, rule[c], scale[c], offset[c], half)


@device
def sides_of_block(coords, b, r, halo, n, box, walls, limits):
    """Planes of the box in voxels of a Bucket's block, and whether any is near; fills limits."""
    x = np.int64(coords[b, 0]) * r - halo
    y = np.int64(coords[b, 1]) * r - halo
    z = np.int64(coords[b, 2]) * r - halo
    lower = (box[0, 0] - x, box[0, 1] - y, box[0, 2] - z)
    upper = (box[1, 0] - x, box[1, 1] - y, box[1, 2] - z)
    for side in range(2):
        limits[side, 0] = walls[side, 0] - x
        limits[side, 1] = walls[side, 1] - y
        limits[side, 2] = walls[side, 2] - z
    near = lower[0] >= 0 or lower[1] >= 0 or lower[2] >= 0
    near = near or upper[0] < n or upper[1] < n or upper[2] < n
    return lower, upper, near


@parallel_kernel
def store_result(result, first, kind, values):
    """Copy components of result, from `first` on, to values [b, c, r, r, r] of local Buckets.

    Args: kind [b, 1, r, r, r] uint8, or empty: voxels of kind 0 are left as they are.
    """
    watched = kind.shape[0] > 0
    for b in prange(values.shape[0]):
        store_bucket(
            result[b, first : first + values.shape[1]], kind[b if watched else 0 : b + 1],
            watched, values[b],
        )  # fmt: skip


@device
def store_bucket(result, kind, watched, values):
    """Copy one Bucket."""
    for c in range(values.shape[0]):
        for i in range(values.shape[1]):
            for j in range(values.shape[2]):
                for k in range(values.shape[3]):
                    if not watched or kind[0, 0, i, j, k] != 0:
                        values[c, i, j, k] = result[c, i, j, k]
