"""Bucket block: one Bucket and the voxels around it, as a dense cube with constant strides.

A block has n = r + 2 H voxels an edge: the r of the Bucket and H layers of its 26 neighbours. Voxel
i of the Bucket is voxel i + H of the block. What is not stored is made up on the way:

    EMPTY Bucket           a cell channel has its background; a face channel has the nearest value
                           of the Bucket in the middle
    outside the box        per component and side of the box a rule, a scale and an offset:
        MIRROR   scale * (value at the mirrored place inside) + offset
        CLAMP    the last value inside

A component that lives on the faces along an axis has a value on the plane of the box itself: half
the offset of an odd mirror, or the offset of a constant.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device

#: Rules for what lies outside a side of the box.
NOTHING, MIRROR, CLAMP = 0, 1, 2


@device
def gather_block(values, first, entries, r, halo, n, background, is_face, block, at):
    """Copy one component of a Bucket and its surroundings to block[at : at + n^3].

    Args: values: the channel, flat; first: (component, components) as unsigned; entries: the
    Bucket's neighbours, [27]; r, halo, n: unsigned; background: what EMPTY Buckets hold.
    """
    size = r * r * r
    component, components = first
    home = (np.uint64(entries[13]) * components + component) * size
    zero = np.uint64(0)
    last = r - np.uint64(1)
    for dx in range(3):
        x_count = r if dx == 1 else halo
        x_from = r - halo if dx == 0 else zero
        x_to = zero if dx == 0 else (halo if dx == 1 else halo + r)
        for dy in range(3):
            y_count = r if dy == 1 else halo
            y_from = r - halo if dy == 0 else zero
            y_to = zero if dy == 0 else (halo if dy == 1 else halo + r)
            direction = dx * 9 + dy * 3
            low, middle, high = entries[direction], entries[direction + 1], entries[direction + 2]
            low_at = (np.uint64(max(low, 0)) * components + component) * size + (r - halo)
            mid_at = (np.uint64(max(middle, 0)) * components + component) * size
            high_at = (np.uint64(max(high, 0)) * components + component) * size
            for i in range(x_count):
                for j in range(y_count):
                    row = ((x_from + i) * r + (y_from + j)) * r
                    q = at + ((x_to + i) * n + (y_to + j)) * n
                    # Where the nearest row of the middle Bucket begins.
                    near_i = x_from + i if dx == 1 else (zero if dx == 0 else last)
                    near_j = y_from + j if dy == 1 else (zero if dy == 0 else last)
                    near = home + (near_i * r + near_j) * r
                    before = background
                    after = background
                    if is_face:
                        before = values[near]
                        after = values[near + last]
                    if low >= 0:
                        copy_run(values, low_at + row, halo, block, q)
                    else:
                        fill_run(before, halo, block, q)
                    q += halo
                    if middle >= 0:
                        copy_edge(values, mid_at + row, r, block, q)
                    elif is_face:
                        copy_edge(values, near, r, block, q)
                    else:
                        fill_run(background, r, block, q)
                    q += r
                    if high >= 0:
                        copy_run(values, high_at + row, halo, block, q)
                    else:
                        fill_run(after, halo, block, q)


@device
def copy_edge(values, p, r, block, q):
    """Copy a Bucket's row; eight voxels, the usual number, in one vector."""
    if r == np.uint64(8):
        for k in range(np.uint64(8)):
            block[q + k] = values[p + k]
    else:
        copy_run(values, p, r, block, q)


@device
def copy_run(values, p, count, block, q):
    """Copy a few values; the halo is short, so no vectors."""
    if count == np.uint64(2):
        block[q] = values[p]
        block[q + np.uint64(1)] = values[p + np.uint64(1)]
    else:
        for k in range(count):
            block[q + k] = values[p + k]


@device
def fill_run(value, count, block, q):
    """Set a few values."""
    for k in range(count):
        block[q + k] = value


@device
def fill_outside(block, at, n, axis_of_faces, lower, upper, rules, scales, offsets, half):
    """Fill what lies outside the box, one axis after the other, so that corners are filled too.

    Args: lower, upper: planes of the box in voxels of the block, one tuple of three signed numbers
    each; axis_of_faces: axis on whose faces the component lives, or -1; rules, scales, offsets:
    [6], by side.
    """
    for axis in range(3):
        on_faces = axis == axis_of_faces
        side = 2 * axis
        plane = lower[axis]
        if rules[side] != NOTHING and plane >= 0:
            for i in range(min(plane, n)):
                source = plane if rules[side] == CLAMP else 2 * plane - (0 if on_faces else 1) - i
                fill_slab(block, at, n, axis, i, min(source, n - 1), scales[side], offsets[side])
            if on_faces and rules[side] == MIRROR and plane < n:
                # An odd mirror has half its offset on the plane, a constant has it all.
                value = offsets[side] if scales[side] == 0 else half * offsets[side]
                fill_slab(block, at, n, axis, plane, plane, half - half, value)
        side += 1
        plane = upper[axis]
        if rules[side] != NOTHING and plane < n:
            for i in range(max(plane, 0), n):
                source = plane - 1 if rules[side] == CLAMP else 2 * plane - i
                if rules[side] == MIRROR and not on_faces:
                    source -= 1
                scale, offset = scales[side], offsets[side]
                if on_faces and i == plane and rules[side] == MIRROR:
                    offset = offset if scale == 0 else half * offset
                    scale = half - half
                fill_slab(block, at, n, axis, i, max(source, 0), scale, offset)


@device
def fill_slab(block, at, n, axis, i, source, scale, offset):
    """Set the slab i along an axis from the slab `source`."""
    stride = n * n if axis == 0 else (n if axis == 1 else 1)
    outer = n if axis == 0 else n * n
    inner = n if axis == 2 else 1
    for a in range(n):
        for b in range(n):
            p = np.uint64(a * outer + b * inner)
            here = np.uint64(at) + p + np.uint64(i * stride)
            # A constant is not made from what is there: it may not be a number.
            if scale == 0:
                block[here] = offset
            else:
                block[here] = scale * block[np.uint64(at) + p + np.uint64(source * stride)] + offset
