"""Advection of a Bucket: traces that stay in its block, and what is found at their ends.

Each Bucket is gathered into a dense block (bucket_block), where samples have constant strides, and
is worked on in rows of eight voxels. A trace that leaves the block, or is not a number, is marked
in a bit mask and left to the long traces (advection_long). A pass does one of four things with the
sample q:

    SAMPLE       out = q
    MACCORMACK   out = hat + (phi - q) / 2, limited by the stencil that the first pass noted
    BFECC        out = phi + (phi - q) / 2
    LIMITED      out = q, limited by phi around the end of the trace

Locations 0, 1, 2 are the faces along an axis; 3 is the cell centre.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.rows import (
    LANES,
    bits,
    choose,
    cut,
    greatest,
    larger,
    least,
    load,
    load_first,
    numbers,
    smaller,
    store_first,
    within,
)
from loki_core.kernels.buckets.block_samples import bounds, corner_at, max_of, tricubic, trilinear
from loki_core.kernels.buckets.bucket_block import EMPTY, even_ends, fill_outside, gather_block
from loki_core.kernels.buckets.row_samples import (
    common_voxel,
    cubic_samples,
    has_room,
    stencil_bounds,
)
from loki_core.kernels.gas.traces import (
    close_samples,
    common_middle,
    start_strides,
    store_places,
    trace,
    ways_from,
)
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange

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
def samples(source, at, shifts, n, ends, lanes, middle, close, cubic, half, scratch, values):
    """Sample a component of the block `source`, which begins at `at`, at eight places."""
    if close and not cubic:
        done, row = close_samples(source, at, ends, lanes, middle, shifts, n, half)
        if done:
            return row
    if close and cubic:
        corner = common_voxel(middle, shifts, half)
        if has_room(corner, n, 2):
            p = np.uint64(at + (corner[0] * n + corner[1]) * n + corner[2])
            ways = ways_from(ends, lanes, corner, shifts, source.dtype.type)
            zero = half - half
            return cubic_samples(source, p, np.uint64(n * n), np.uint64(n), ways, zero, half)
    store_places(ends, scratch)
    sample_one_by_one(source, at, shifts, n, cubic, half, scratch, values)
    return load(values, np.uint64(0))


@device
def sample_one_by_one(source, at, shifts, n, cubic, half, places, values):
    """Fill eight values at places that are far from each other."""
    stride_y = np.uint64(n)
    stride_x = stride_y * stride_y
    for k in range(np.uint64(LANES)):
        p, fx, fy, fz = corner_at(places, k, shifts, n)
        p = np.uint64(at + p)
        if cubic:
            values[k] = tricubic(source, p, stride_x, stride_y, fx, fy, fz, half)
        else:
            values[k] = trilinear(source, p, stride_x, stride_y, fx, fy, fz)


@inlined
def noted_axis(place, home, tiny, number):
    """Where stencils begin along an axis: twice the steps from `home`, and one if alone.

    Alone: the place lies on a voxel, to rounding, and the voxel beyond has no part in the sample.
    """
    half = number(0.5)
    nearest = cut(place + half)
    off = place - nearest
    alone = (off <= tiny) & (off >= number(0) - tiny)
    begin = choose(alone, nearest, cut(place)) - home
    return begin + begin + choose(alone, number(1), begin * number(0))


@inlined
def noted_stencils(ends, lanes, shifts, stays, first, tiny, number):
    """Where each stencil of a row begins, relative to its voxel; ESCAPED if it left or is far."""
    dx = noted_axis(ends[0] - shifts[0], number(first[0] - 9), tiny, number)
    dy = noted_axis(ends[1] - shifts[1], number(first[1] - 9), tiny, number)
    dz = noted_axis(ends[2] - shifts[2], lanes + number(first[2] - 9), tiny, number)
    low, high = smaller(smaller(dx, dy), dz), larger(larger(dx, dy), dz)
    near = stays & (low >= number(0)) & (high < number(40))
    return choose(near, (dx * number(40) + dy) * number(40) + dz, number(ESCAPED))


@inlined
def read_axis(noted, number):
    """Steps to stencils along an axis, and a mask of those that are alone."""
    half = cut(noted * number(0.5))
    return half - number(9), noted > half + half


@inlined
def read_stencils(note, number):
    """What was noted: steps (x, y, z) to the stencils, masks of those alone, and who stayed."""
    # The nearest number to 1 / 40 is a bit above it, so that whole quotients are not cut down.
    above = cut(note * number(0.025))
    dz, z_alone = read_axis(note - above * number(40), number)
    left = cut(above * number(0.025))
    dy, y_alone = read_axis(above - left * number(40), number)
    dx, x_alone = read_axis(left, number)
    return (dx, dy, dz), (x_alone, y_alone, z_alone), note < number(ESCAPED)


@inlined
def limits_of(limit, at, n, first, steps_to, alone, stays, stencils, scratch, number):
    """Least and greatest voxel of each stencil of a row."""
    dx, dy, dz = steps_to
    x, y, z = greatest(dx), greatest(dy), greatest(dz)
    one = number(1)
    close = x - least(dx) <= one and y - least(dy) <= one and z - least(dz) <= one
    corner = (first[0] + np.int64(x), first[1] + np.int64(y), first[2] + np.int64(z))
    if close and has_room(corner, n, 1):
        p = np.uint64(at + (corner[0] * n + corner[1]) * n + corner[2])
        sides = (dx < x, alone[0]), (dy < y, alone[1]), (dz < z, alone[2])
        return stencil_bounds(limit, p, np.uint64(n * n), np.uint64(n), sides)
    store_places((dx, dy, dz), scratch)
    masks = bits(alone[0]), bits(alone[1]), bits(alone[2])
    bounds_one_by_one(limit, at, n, first, bits(stays), masks, scratch, stencils)
    return load(stencils, np.uint64(0)), load(stencils, np.uint64(LANES))


@device
def bounds_one_by_one(limit, at, n, first, stays, alone, steps_to, limits):
    """Fill eight least and eight greatest voxels of stencils that are far from each other."""
    i, j, k0 = first
    one, none = np.uint64(1), np.uint64(0)
    for k in range(LANES):
        limits[k] = steps_to[0]
        limits[k + LANES] = steps_to[0]
        bit = np.uint32(1) << np.uint32(k)
        if stays & bit:
            stride_x = none if alone[0] & bit else np.uint64(n * n)
            stride_y = none if alone[1] & bit else np.uint64(n)
            stride_z = none if alone[2] & bit else one
            x = i + np.int64(steps_to[k])
            y = j + np.int64(steps_to[k + LANES])
            z = k0 + k + np.int64(steps_to[k + 2 * LANES])
            p = np.uint64(at + (x * n + y) * n + z)
            limits[k], limits[k + LANES] = bounds(limit, p, stride_x, stride_y, stride_z)


@inlined
def limited(value, bounds, plain, limiter):
    """Values within their bounds: clamped, or reverted to the plain ones where they are not."""
    low, high = bounds
    if limiter == REVERTED:
        value = choose((value >= low) & (value <= high), value, plain)
    return choose(value == value, within(value, low, high), value)


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
    scratch, values, stencils, steps = rows
    phi, hat, home = inside
    out, notes, note_home = outputs
    mask, mask_home = masks
    number = velocity.dtype.type
    one = half + half
    zero = half - half
    margin = one if cubic else zero
    # Both ends alike: what lies between the last two voxels can be read, the last itself not.
    top = steps[n] - one - one / steps[64]
    reach = (half, top), (half + margin, top - margin)
    bounded = limiter != NO_LIMIT and action != SAMPLE and action != BFECC
    noting = action != MACCORMACK and notes.shape[0] > 0
    shifts = (
        zero if location == 0 else half, zero if location == 1 else half,
        zero if location == 2 else half,
    )  # fmt: skip
    strides = (
        start_strides(location, 0, n), start_strides(location, 1, n), start_strides(location, 2, n)
    )  # fmt: skip
    lanes = load(steps, np.uint64(0))
    tiny = steps[32] * np.finfo(velocity.dtype).eps
    count = min(r, LANES)
    everyone = (np.uint32(1) << np.uint32(count)) - np.uint32(1)
    escaped = 0
    for i in range(r):
        for j in range(r):
            row_bits = np.uint32(0)
            for k0 in range(0, r, count):
                first = (halo + i, halo + j, halo + k0)
                start = (
                    steps[first[0]] + shifts[0], steps[first[1]] + shifts[1],
                    steps[first[2]] + shifts[2],
                )  # fmt: skip
                p = np.uint64((first[0] * n + first[1]) * n + first[2])
                ends, stays = trace(
                    velocity, p, start, n, strides, factor, order, walls, reach, half, lanes,
                    scratch,
                )  # fmt: skip
                middle, close = common_middle(ends, lanes, half)
                row = (i * r + j) * r + k0
                note = lanes
                if noting:
                    note = noted_stencils(ends, lanes, shifts, stays, first, tiny, number)
                    store_first(notes, np.uint64(note_home + row), note, count)
                elif bounded:
                    note = numbers(load_first(notes, np.uint64(note_home + row), count), half)
                steps_to, alone, stayed = read_stencils(note, number)
                if bounded:
                    stays = stays & stayed
                for c in range(first_component, first_component + components):
                    at = c * n * n * n
                    here = np.uint64(home + c * r * r * r + row)
                    value = samples(
                        source, at, shifts, n, ends, lanes, middle, close, cubic, half, scratch,
                        values,
                    )  # fmt: skip
                    if action == BFECC:
                        before = load_first(phi, here, count)
                        value = before + (before - value) * half
                    elif action != SAMPLE:
                        plain = value
                        if action == MACCORMACK:
                            plain = load_first(hat, here, count)
                            value = plain + (load_first(phi, here, count) - value) * half
                        elif limiter == REVERTED:
                            plain = samples(
                                limit, at, shifts, n, ends, lanes, middle, close, 0, half, scratch,
                                values,
                            )  # fmt: skip
                        if bounded:
                            bound = limits_of(
                                limit, at, n, first, steps_to, alone, stays, stencils, scratch,
                                number,
                            )  # fmt: skip
                            kept = limited(value, bound, plain, limiter)
                            if limiter == CONSERVED:  # what was cut off is handed on afterwards
                                store_first(hat, here, value - kept, count)
                            value = kept
                    store_first(out, here, value, count)
                left = (bits(stays) ^ np.uint32(255)) & everyone
                row_bits |= left << np.uint32(k0)
            mask[np.uint64(mask_home + i * r + j)] = row_bits
            if row_bits:
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
    steps: 0, 1, 2, ... as the channels' numbers; mask [local, locations, r * r] uint32.
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
    velocity_block = np.empty(3 * most + LANES, kind)
    source_block = velocity_block if source_same == 1 else np.empty(components * most + LANES, kind)
    limit_block = velocity_block if limit_same == 1 else source_block
    if limited and limit_same == 0:
        limit_block = np.empty(components * most + LANES, kind)
    limits = np.empty((2, 3), kind)
    rows = (
        np.zeros(3 * LANES, kind), np.zeros(LANES, kind), np.zeros(2 * LANES, kind), steps
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
    has_gaps = False
    for entry in neighbours[b]:
        has_gaps = has_gaps or entry == EMPTY
    for c in range(components):
        at = np.uint64(c * n * n * n)
        empty = half - half
        if not is_face:
            empty = backgrounds[c]
        gather_block(
            values, (np.uint64(c), np.uint64(components)), neighbours[b], np.uint64(r),
            np.uint64(halo), np.uint64(n), empty, is_face, block, at,
        )  # fmt: skip
        if is_face and has_gaps:
            even_ends(block, at, n, c, r, halo, neighbours[b])
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
