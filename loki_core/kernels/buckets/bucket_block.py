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

from loki_core.kernels.basics.rows import LANES, joined, load, store
from loki_core.kernels.jit import device

#: Entry of a neighbour that is inside the box and not stored.
EMPTY = -1
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
            row = (x_from * r + y_from) * r
            q = at + (x_to * n + y_to) * n
            # Where the nearest row of the middle Bucket begins, and how far the next one is.
            near = home
            if dx == 2:
                near += last * r * r
            if dy == 2:
                near += last * r
            along_x = r * r if dx == 1 else zero
            along_y = r if dy == 1 else zero
            narrow = halo == np.uint64(2) or halo == np.uint64(3)
            if r == np.uint64(LANES) and narrow and min(low, middle, high) >= 0:
                starts = low_at - (r - halo) + row, mid_at + row, high_at + row
                copy_rows(values, starts, x_count, y_count, halo, block, q, n)
                continue
            if low >= 0:
                copy_box(values, low_at + row, x_count, y_count, halo, r, block, q, n)
            else:
                fill_box(
                    values, near, along_x, along_y, zero, x_count, y_count, halo, background,
                    is_face, block, q, n,
                )  # fmt: skip
            q += halo
            if middle >= 0:
                copy_box(values, mid_at + row, x_count, y_count, r, r, block, q, n)
            else:
                fill_box(
                    values, near, along_x, along_y, np.uint64(1), x_count, y_count, r, background,
                    is_face, block, q, n,
                )  # fmt: skip
            q += r
            if high >= 0:
                copy_box(values, high_at + row, x_count, y_count, halo, r, block, q, n)
            else:
                fill_box(
                    values, near + last, along_x, along_y, zero, x_count, y_count, halo,
                    background, is_face, block, q, n,
                )  # fmt: skip


@device
def copy_rows(values, starts, x_count, y_count, halo, block, q, n):
    """Copy whole rows of a block, from three Buckets of eight voxels an edge that lie along z."""
    eight = np.uint64(LANES)
    low_at, mid_at, high_at = starts
    for i in range(x_count):
        for j in range(y_count):
            a = (i * eight + j) * eight
            b = q + (i * n + j) * n
            low, middle = load(values, low_at + a), load(values, mid_at + a)
            high = load(values, high_at + a)
            if halo == np.uint64(2):
                store(block, b, joined(low, middle, 2))
                store(block, b + np.uint64(4), joined(middle, high, 6))
            else:
                store(block, b, joined(low, middle, 3))
                store(block, b + np.uint64(6), joined(middle, high, 5))


@device
def copy_box(values, p, x_count, y_count, z_count, r, block, q, n):
    """Copy a box of voxels from a Bucket to a block."""
    for i in range(x_count):
        for j in range(y_count):
            a = p + (i * r + j) * r
            b = q + (i * n + j) * n
            for k in range(z_count):
                block[b + k] = values[a + k]


@device
def fill_box(
    values, near, along_x, along_y, along_z, x_count, y_count, z_count, background, is_face,
    block, q, n,
):  # fmt: skip
    """Fill a box of a block where no Bucket is: the background, or the nearest values."""
    for i in range(x_count):
        for j in range(y_count):
            b = q + (i * n + j) * n
            a = near + i * along_x + j * along_y
            for k in range(z_count):
                block[b + k] = values[a + k * along_z] if is_face else background


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
            # The face on an open plane follows the next one, as on the upper side, where it is
            # not stored.
            follows = 1 if on_faces and rules[side] == CLAMP else 0
            for i in range(min(plane + follows, n)):
                source = 2 * plane - (0 if on_faces else 1) - i
                if rules[side] == CLAMP:
                    source = plane + follows
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
def even_ends(block, at, n, axis, r, halo, entries):
    """Make lower and upper ends of the stored space alike for faces along an axis.

    The faces before the first voxel are stored, those after the last are not: the first faces of a
    Bucket that begins at nothing, and all before, follow the second, as the faces after the last
    follow that. Done for the Bucket and for each of its neighbours across, stored or made up.
    """
    step = 9 if axis == 0 else (3 if axis == 1 else 1)
    first_step = 3 if axis == 0 else 9
    second_step = 3 if axis == 2 else 1
    for first in range(3):
        for second in range(3):
            here = 13 + (first - 1) * first_step + (second - 1) * second_step
            below, middle, above = entries[here - step], entries[here], entries[here + step]
            if below == EMPTY:
                for i in range(halo + 1):
                    copy_part(block, at, n, axis, i, halo + 1, first, second, r, halo)
            elif below >= 0 and middle == EMPTY:
                copy_part(block, at, n, axis, halo, halo - 1, first, second, r, halo)
            if above == EMPTY:
                for i in range(halo + r, n):
                    copy_part(block, at, n, axis, i, halo + r - 1, first, second, r, halo)
            elif above >= 0 and middle == EMPTY:
                copy_part(block, at, n, axis, halo + r, halo + r + 1, first, second, r, halo)


@device
def copy_part(block, at, n, axis, i, source, first, second, r, halo):
    """Copy a slab along an axis, where it crosses one of the nine columns of Buckets."""
    stride = n * n if axis == 0 else (n if axis == 1 else 1)
    outer = n if axis == 0 else n * n
    inner = n if axis == 2 else 1
    a_from = 0 if first == 0 else (halo if first == 1 else halo + r)
    b_from = 0 if second == 0 else (halo if second == 1 else halo + r)
    for a in range(a_from, a_from + (r if first == 1 else halo)):
        for b in range(b_from, b_from + (r if second == 1 else halo)):
            p = at + np.uint64(a * outer + b * inner)
            block[p + np.uint64(i * stride)] = block[p + np.uint64(source * stride)]


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
