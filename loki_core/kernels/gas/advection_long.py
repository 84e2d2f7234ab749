"""Long traces: samples anywhere in a sparse volume, found through the Bucket hash table.

Places are counted in voxels from the domain's origin, in float64. A place is answered by the Bucket
that holds it, or else by a stored Bucket within a voxel of it, its *anchor*: all voxels of the
stencil lie in the anchor and its 26 neighbours, which the anchor's rank has as ghosts. So the
answer is the same on whatever rank it is given. Outside the box the rules of bucket_block hold;
where no Bucket is stored a cell channel has its background, and a face channel the nearest value
of the anchor. A place without an anchor has the background.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.block_samples import bounds, tricubic, trilinear
from loki_core.kernels.buckets.bucket_block import CLAMP, MIRROR, NOTHING
from loki_core.kernels.buckets.bucket_hash import bucket_slot, find_bucket, pack_bucket
from loki_core.kernels.jit import device, kernel, parallel_kernel, prange


@kernel
def list_escaped(mask, buckets, offsets, voxels):
    """List the voxels whose bits are set: (Bucket, voxel) in order.

    Args: mask [local, r * r] uint32; offsets: where each listed Bucket begins; voxels [n, 2] int32.
    """
    for n in range(buckets.shape[0]):
        at = offsets[n]
        edge = np.int64(np.sqrt(mask.shape[1]) + 0.5)
        for row in range(mask.shape[1]):
            for k in range(edge):
                if (mask[buckets[n], row] >> np.uint32(k)) & np.uint32(1):
                    voxels[at, 0] = buckets[n]
                    voxels[at, 1] = row * edge + k
                    at += 1


@kernel
def count_escaped(mask, counts):
    """Count the set bits of each Bucket's mask."""
    for b in range(mask.shape[0]):
        count = 0
        for row in range(mask.shape[1]):
            bits = mask[b, row]
            while bits:
                bits &= bits - np.uint32(1)
                count += 1
        counts[b] = count


@device
def wrap(i, period):
    """Index along an axis of `period` voxels; 0 means that it has no end."""
    return i % period if period > 0 else i


@device
def stored(i, j, k, r, period, table_keys):
    """Code of the Bucket that holds a voxel, and whether any rank stores it."""
    bi = wrap(i, period[0]) // r
    bj = wrap(j, period[1]) // r
    bk = wrap(k, period[2]) // r
    far = 131072
    if bi < -far or bi >= far or bj < -far or bj >= far or bk < -far or bk >= far:
        return False, bi, bj, bk
    code = pack_bucket(bi, bj, bk)
    return table_keys[bucket_slot(table_keys, code)] == code, bi, bj, bk


@device
def anchor_of(x, y, z, r, period, table_keys):
    """(whether there is one, i, j, k) of the anchor of a place; not wrapped around the box."""
    # Nothing is stored so far out, and indices must fit their type.
    if not (abs(x) < 1.0e9 and abs(y) < 1.0e9 and abs(z) < 1.0e9):
        return False, 0, 0, 0
    found, i, j, k = stored(
        np.int64(np.floor(x)), np.int64(np.floor(y)), np.int64(np.floor(z)), r, period, table_keys
    )
    corner = 0
    while not found and corner < 8:
        found, i, j, k = stored(
            np.int64(np.floor(x - 0.5)) + (corner >> 2),
            np.int64(np.floor(y - 0.5)) + ((corner >> 1) & 1),
            np.int64(np.floor(z - 0.5)) + (corner & 1),
            r, period, table_keys,
        )  # fmt: skip
        corner += 1
    return found, i, j, k


@parallel_kernel
def find_anchors(points, r, period, table_keys, found, anchors):
    """Fill found [n] and the lattice coordinates anchors [n, 3] of places [n, 3]."""
    for n in prange(points.shape[0]):
        there, i, j, k = anchor_of(
            points[n, 0], points[n, 1], points[n, 2], r, period, table_keys
        )  # fmt: skip
        found[n] = there
        anchors[n, 0] = i
        anchors[n, 1] = j
        anchors[n, 2] = k


@device
def image_of(i, lower, upper, on_faces, low_rule, high_rule):
    """(index inside the box, side that was passed or -1, whether it is the plane itself)."""
    shift = 0 if on_faces else 1
    if low_rule != NOTHING:
        if on_faces and i == lower and low_rule == MIRROR:
            return i, 0, True
        if low_rule == CLAMP:
            # The face on an open plane follows the next one inside.
            first = lower + 1 if on_faces else lower
            if i < first:
                return first, 0, False
        elif i < lower:
            return 2 * lower - shift - i, 0, False
    if high_rule != NOTHING and i >= upper:
        if high_rule == CLAMP:
            return upper - 1, 1, False
        if on_faces and i == upper:
            return i, 1, True
        return 2 * upper - shift - i, 1, False
    return i, -1, False


@device
def voxel_around(
    values, component, axis, i, j, k, r, period, box, rule, scale, offset, background, anchor,
    table_keys, table_values,
):  # fmt: skip
    """Value of a voxel near an anchor, with what is outside the box and outside the Buckets."""
    i, side_x, plane_x = image_of(i, box[0, 0], box[1, 0], axis == 0, rule[0], rule[1])
    j, side_y, plane_y = image_of(j, box[0, 1], box[1, 1], axis == 1, rule[2], rule[3])
    k, side_z, plane_z = image_of(k, box[0, 2], box[1, 2], axis == 2, rule[4], rule[5])
    i = wrap(i, period[0])
    j = wrap(j, period[1])
    k = wrap(k, period[2])
    bi = i // r
    bj = j // r
    bk = k // r
    b = find_bucket(table_keys, table_values, pack_bucket(bi, bj, bk))
    value = background
    if b < 0 and axis >= 0:
        # The nearest voxel of the anchor, along the axes in which the missing Bucket lies.
        i = nearest(i, bi, anchor[0], r, period[0])
        j = nearest(j, bj, anchor[1], r, period[1])
        k = nearest(k, bk, anchor[2], r, period[2])
        b = find_bucket(
            table_keys, table_values, pack_bucket(anchor[0], anchor[1], anchor[2])
        )  # fmt: skip
        bi, bj, bk = anchor[0], anchor[1], anchor[2]
    if b >= 0:
        value = values[b, component, i - bi * r, j - bj * r, k - bk * r]
    value = beyond_side(value, side_x, plane_x, 0, scale, offset)
    value = beyond_side(value, side_y, plane_y, 2, scale, offset)
    return beyond_side(value, side_z, plane_z, 4, scale, offset)


@device
def nearest(i, bucket, anchor, r, period):
    """Index nearest to i in the anchor, along one axis, where i lies in the next Bucket."""
    if bucket == anchor:
        return i
    above = bucket == anchor + 1 or (period > 0 and (bucket - anchor) * r == r - period)
    return anchor * r + (r - 1 if above else 0)


@device
def beyond_side(value, side, plane, first, scale, offset):
    """Value outside a side of the box, made of its image inside."""
    if side < 0:
        return value
    s = scale[first + side]
    o = offset[first + side]
    if s == 0:
        return o
    return 0.5 * o if plane else s * value + o


@device
def part_of_stencil(fraction, stride):
    """Shift to the first voxel that has a part in a sample, and stride to the second or 0."""
    none = np.uint64(0)
    if fraction <= 1e-9:
        return none, none
    return (stride, none) if fraction >= 1.0 - 1e-9 else (none, stride)


@parallel_kernel
def sample_points(
    values, components, axes, points, cubic, r, period, box, rules, backgrounds,
    table_keys, table_values, sampled,
):  # fmt: skip
    """Sample components of a channel at places whose anchors are local.

    Args: values [b, c, r, r, r]; components [m]; axes [m]: on whose faces they live, or -1; points
    [n, 3]; rules: (rule, scale, offset) [c, 6]; sampled [n, m, 4]: value, least, greatest,
    trilinear value.
    """
    count = points.shape[0]
    for run in prange((count + 255) // 256):
        cube = np.empty(64, values.dtype)
        for n in range(run * 256, min(run * 256 + 256, count)):
            sample_point(
                values, components, axes, points[n, 0], points[n, 1], points[n, 2], cubic,
                r, period, box, rules, backgrounds, table_keys, table_values, cube,
                sampled[n],
            )  # fmt: skip


@device
def sample_point(
    values, components, axes, x, y, z, cubic, r, period, box, rules, backgrounds,
    table_keys, table_values, cube, sampled,
):  # fmt: skip
    """Gather the 4^3 voxels around a place, or the 2^3 where that is enough, and interpolate."""
    found, ai, aj, ak = anchor_of(x, y, z, r, period, table_keys)
    finite = x - x == 0 and y - y == 0 and z - z == 0
    for m in range(components.shape[0]):
        c = components[m]
        if not found or not finite:
            empty = backgrounds[c] if finite else backgrounds[c] * np.nan
            for entry in range(4):
                sampled[m, entry] = empty
            continue
        sx = x if axes[m] == 0 else x - 0.5
        sy = y if axes[m] == 1 else y - 0.5
        sz = z if axes[m] == 2 else z - 0.5
        i = np.int64(np.floor(sx))
        j = np.int64(np.floor(sy))
        k = np.int64(np.floor(sz))
        first = 0 if cubic else 1
        for a in range(first, 4 - first):
            for b in range(first, 4 - first):
                for d in range(first, 4 - first):
                    cube[(a * 4 + b) * 4 + d] = voxel_around(
                        values, c, axes[m], i + a - 1, j + b - 1, k + d - 1, r, period, box,
                        rules[0][c], rules[1][c], rules[2][c], backgrounds[c], (ai, aj, ak),
                        table_keys, table_values,
                    )  # fmt: skip
        fx = sx - i
        fy = sy - j
        fz = sz - k
        p = np.uint64(21)
        plain = trilinear(cube, p, np.uint64(16), np.uint64(4), fx, fy, fz)
        shift_x, stride_x = part_of_stencil(fx, np.uint64(16))
        shift_y, stride_y = part_of_stencil(fy, np.uint64(4))
        shift_z, stride_z = part_of_stencil(fz, np.uint64(1))
        low, high = bounds(cube, p + shift_x + shift_y + shift_z, stride_x, stride_y, stride_z)
        value = plain
        if cubic:
            value = tricubic(cube, p, np.uint64(16), np.uint64(4), fx, fy, fz, 0.5)
        sampled[m, 0] = value
        sampled[m, 1] = low
        sampled[m, 2] = high
        sampled[m, 3] = plain
