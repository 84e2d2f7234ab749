"""Distance, closest triangle and side of every voxel of some Buckets.

Distances are exact up to a limit. The side comes from the winding number w. The surface cannot lie
between two voxels whose distances add up to more than their separation; on a part of a Bucket that
such steps connect, w is smooth, and constant if the surface is closed. With holes, its gradient is
the field of a current along their border (Biot and Savart):

    |grad w| <= sum over border edges of length / (4 pi distance^2)

So w is found once for each part where that bound shows that it stays on one side of 1/2. Elsewhere,
near the holes, it is taken at every voxel; the holes are closed by the level set w = 1/2, to which
the distance is |w - 1/2| / |grad w|.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.bucket_hash import find_bucket, pack_bucket
from loki_core.kernels.colliders.triangle_tree import (
    STACK,
    cube_is_near,
    nearest_triangle,
    winding_number,
)
from loki_core.kernels.jit import device, parallel_kernel, prange

UNSIGNED, SIGNED = 0, 1  # whether a surface has two sides


@parallel_kernel
def measure_buckets(
    corners, triangle, box, dipole, border, coords, resolution, voxel, limit, surface,
    distance, closest, place,
):  # fmt: skip
    """Measure Buckets coords [m, 3].

    Args: the tree; border [e, 5], the middle, half length and excess of each border edge;
    resolution voxels per edge of `voxel` m; limit m; surface UNSIGNED or SIGNED; distance [m, r^3]
    m, below 0 inside, at most the limit either way; closest [m, r^3], the triangle or -1; place
    [m, r^3, 2], where on the triangle: v, w.
    """
    for n in prange(coords.shape[0]):
        measure_bucket(
            corners, triangle, box, dipole, border, coords[n, 0] * resolution,
            coords[n, 1] * resolution, coords[n, 2] * resolution, resolution, voxel, limit,
            surface, distance[n], closest[n], place[n],
        )  # fmt: skip


@device
def measure_bucket(
    corners, triangle, box, dipole, border, i0, j0, k0, r, voxel, limit, surface, distance,
    closest, place,
):  # fmt: skip
    nodes = np.empty(STACK, np.int64)
    distances = np.empty(STACK)
    guess = -1
    part = 4 if r % 4 == 0 else r  # most parts of a Bucket lie beyond the limit
    parts = r // part
    for block in range(parts * parts * parts):
        i1 = block // (parts * parts) * part
        j1 = block // parts % parts * part
        k1 = block % parts * part
        guess = measure_part(
            corners, triangle, box, i0, j0, k0, i1, j1, k1, part, r, voxel, limit, guess, nodes,
            distances, distance, closest, place,
        )  # fmt: skip
    if surface == SIGNED:
        half = 0.5 * r * voxel
        change = largest_change(
            border, i0 * voxel + half, j0 * voxel + half, k0 * voxel + half, half
        )
        side = np.zeros(r * r * r, np.int8)
        if sign_by_parts(corners, box, dipole, i0, j0, k0, r, voxel, change, nodes, distance, side):
            for q in range(r * r * r):
                distance[q] *= side[q]
        else:
            sign_everywhere(corners, box, dipole, i0, j0, k0, r, voxel, nodes, distance)


@device
def measure_part(
    corners, triangle, box, i0, j0, k0, i1, j1, k1, part, r, voxel, limit, guess, nodes,
    distances, distance, closest, place,
):  # fmt: skip
    """Measure the cube of `part` voxels from (i1, j1, k1) on; returns the last triangle found."""
    half = 0.5 * part
    is_near = cube_is_near(
        corners, box, (i0 + i1 + half) * voxel, (j0 + j1 + half) * voxel,
        (k0 + k1 + half) * voxel, (half - 0.5) * voxel, limit, nodes,
    )  # fmt: skip
    for p in range(part * part * part):
        i, j, k = i1 + p // (part * part), j1 + p // part % part, k1 + p % part
        if (p // part) % 2 == 1:  # there and back, so that the last triangle is a good guess
            k = k1 + part - 1 - p % part
        found, d2, v, w = -1, limit * limit, 0.0, 0.0
        if is_near:
            found, d2, v, w = nearest_triangle(
                corners, box, (i0 + i + 0.5) * voxel, (j0 + j + 0.5) * voxel,
                (k0 + k + 0.5) * voxel, limit * limit, guess, nodes, distances,
            )  # fmt: skip
        q = (i * r + j) * r + k
        distance[q] = limit
        closest[q] = -1
        place[q, 0] = v
        place[q, 1] = w
        if found >= 0:
            distance[q] = math.sqrt(d2)
            closest[q] = triangle[found]
            guess = found
    return guess


@device
def largest_change(border, x, y, z, half):
    """Bound of the change of w across a cube of half edge `half`, where the surface is not."""
    across = 6.0 * half  # along the three edges, one after the other
    gradient = 0.0
    for e in range(border.shape[0]):
        dx, dy, dz = border[e, 0] - x, border[e, 1] - y, border[e, 2] - z
        away = math.sqrt(dx * dx + dy * dy + dz * dz) - border[e, 3] - 1.7320508 * half
        if away <= 0.0:
            return 1.0
        gradient += border[e, 4] * border[e, 3] * (0.5 / math.pi) / (away * away)
        if gradient * across > 0.5:
            return 1.0
    return gradient * across


@device
def sign_by_parts(corners, box, dipole, i0, j0, k0, r, voxel, change, nodes, distance, side):
    """Fill side [r^3] with -1 inside and 1 outside; False if that needs more than one w a part."""
    size = r * r * r
    queue = np.empty(size, np.int32)
    apart = voxel * (1.0 + 1e-9)
    for seed in range(size):
        if side[seed] != 0:
            continue
        w = winding_number(
            corners, box, dipole, (i0 + seed // (r * r) + 0.5) * voxel,
            (j0 + seed // r % r + 0.5) * voxel, (k0 + seed % r + 0.5) * voxel, nodes,
        )  # fmt: skip
        if abs(abs(w) - 0.5) <= change:
            return False
        mark = -1 if abs(w) > 0.5 else 1
        side[seed] = mark
        queue[0] = seed
        tail = 1
        while tail > 0:
            tail -= 1
            p = queue[tail]
            i, j, k = p // (r * r), p // r % r, p % r
            for way in range(6):
                q = p
                if way == 0 and i > 0:
                    q = p - r * r
                elif way == 1 and i < r - 1:
                    q = p + r * r
                elif way == 2 and j > 0:
                    q = p - r
                elif way == 3 and j < r - 1:
                    q = p + r
                elif way == 4 and k > 0:
                    q = p - 1
                elif way == 5 and k < r - 1:
                    q = p + 1
                if side[q] == 0 and distance[p] + distance[q] > apart:
                    side[q] = mark
                    queue[tail] = q
                    tail += 1
    return True


@device
def slope(winding, distance, p, step, has_lower, has_upper, apart):
    """Difference of |w| towards a neighbour on this side of the surface, the steeper one."""
    steepest = 0.0
    if has_lower and distance[p] + distance[p - step] > apart:
        steepest = abs(winding[p] - winding[p - step])
    if has_upper and distance[p] + distance[p + step] > apart:
        steepest = max(steepest, abs(winding[p + step] - winding[p]))
    return steepest


@device
def sign_everywhere(corners, box, dipole, i0, j0, k0, r, voxel, nodes, distance):
    """Turn distances [r^3] below 0 where |w| > 1/2, and close holes by that level set."""
    size = r * r * r
    winding = np.empty(size)
    signed = np.empty(size)
    apart = voxel * (1.0 + 1e-9)
    for p in range(size):
        w = winding_number(
            corners, box, dipole, (i0 + p // (r * r) + 0.5) * voxel,
            (j0 + p // r % r + 0.5) * voxel, (k0 + p % r + 0.5) * voxel, nodes,
        )  # fmt: skip
        winding[p] = abs(w)
    for p in range(size):
        i, j, k = p // (r * r), p // r % r, p % r
        dx = slope(winding, distance, p, r * r, i > 0, i < r - 1, apart)
        dy = slope(winding, distance, p, r, j > 0, j < r - 1, apart)
        dz = slope(winding, distance, p, 1, k > 0, k < r - 1, apart)
        gradient = math.sqrt(dx * dx + dy * dy + dz * dz) / voxel
        above = winding[p] - 0.5
        d = distance[p]
        if gradient * d > abs(above):
            d = abs(above) / gradient
        signed[p] = -d if above > 0.0 else d
    for p in range(size):
        distance[p] = signed[p]


@parallel_kernel
def shape_distance(measured, flip, offset, band, rows, distance):
    """Store distances of a mode: flip * measured - offset, at most `band` either way.

    measured [m, r^3] m; flip 1 or -1; rows [m] of distance [buckets, r^3] to fill.
    """
    for n in prange(measured.shape[0]):
        for p in range(measured.shape[1]):
            value = flip * measured[n, p] - offset
            distance[rows[n], p] = min(band, max(-band, value))


@parallel_kernel
def carry_channel(values, elements, closest, place, rows, carried):
    """Interpolate a channel at the closest points; 0 where there is none.

    values [elements, c]; elements [t, 3], of each corner of a triangle; closest [m, r^3]; place
    [m, r^3, 2]; rows [m] of carried [buckets, c, r^3] to fill.
    """
    for n in prange(closest.shape[0]):
        for c in range(values.shape[1]):
            for p in range(closest.shape[1]):
                t = closest[n, p]
                value = 0.0
                if t >= 0:
                    v, w = place[n, p, 0], place[n, p, 1]
                    value = (
                        (1.0 - v - w) * values[elements[t, 0], c]
                        + v * values[elements[t, 1], c]
                        + w * values[elements[t, 2], c]
                    )
                carried[rows[n], c, p] = value


@parallel_kernel
def find_divided(corners, box, dipole, border, coords, size, divided):
    """Fill divided [n]: whether a cube coords [n, 3] * size without surface has w = 1/2 in it."""
    for n in prange(coords.shape[0]):
        nodes = np.empty(STACK, np.int64)
        x, y, z = coords[n, 0] * size, coords[n, 1] * size, coords[n, 2] * size
        half = 0.5 * size
        w = winding_number(corners, box, dipole, x + half, y + half, z + half, nodes)
        inside = abs(w) > 0.5
        divided[n] = False
        change = largest_change(border, x + half, y + half, z + half, half)
        if abs(abs(w) - 0.5) <= change:
            for p in range(27):
                w = winding_number(
                    corners, box, dipole, x + half * (p // 9), y + half * (p // 3 % 3),
                    z + half * (p % 3), nodes,
                )  # fmt: skip
                divided[n] |= (abs(w) > 0.5) != inside


@device
def missing_side(corners, box, dipole, i, j, k, r, voxel, surface, flip, nodes):
    """-1 where a Bucket that is not stored is solid, else 1; (i, j, k) is one of its voxels."""
    if corners.shape[0] == 0:
        return 1.0
    if surface == UNSIGNED:
        return 1.0
    x = (i // r + 0.5) * r * voxel
    y = (j // r + 0.5) * r * voxel
    z = (k // r + 0.5) * r * voxel
    w = winding_number(corners, box, dipole, x, y, z, nodes)
    return -flip if abs(w) > 0.5 else flip


@parallel_kernel
def sample_field(
    corners, box, dipole, surface, flip, band, voxel, table_keys, table_values, distance,
    primitive, others, position, sampled_distance, sampled_primitive, sampled_others,
):  # fmt: skip
    """Sample a field at positions [n, 3] m.

    distance [buckets, 1, r, r, r] is trilinear, with +-band where no Bucket is stored; the
    channels `others` [buckets, c, r, r, r] are means over the voxels that have a closest triangle;
    primitive is the nearest voxel's. sampled_distance [n]; sampled_primitive [n];
    sampled_others [n, c].
    """
    r = distance.shape[2]
    for n in prange(position.shape[0]):
        nodes = np.empty(STACK, np.int64)
        x = position[n, 0] / voxel - 0.5
        y = position[n, 1] / voxel - 0.5
        z = position[n, 2] / voxel - 0.5
        i0 = np.int64(math.floor(x))
        j0 = np.int64(math.floor(y))
        k0 = np.int64(math.floor(z))
        fx, fy, fz = x - i0, y - j0, z - k0
        for c in range(sampled_others.shape[1]):
            sampled_others[n, c] = 0.0
        rows = np.empty(8, np.int64)
        side = 0.0
        for corner in range(8):
            i, j, k = i0 + (corner >> 2), j0 + ((corner >> 1) & 1), k0 + (corner & 1)
            bi, bj, bk = i // r, j // r, k // r
            row = find_bucket(table_keys, table_values, pack_bucket(bi, bj, bk))
            rows[corner] = row
            if row >= 0:
                value = distance[row, 0, i - bi * r, j - bj * r, k - bk * r]
                side = 1.0 if value > 0.0 else -1.0
        if side == 0.0:
            side = missing_side(
                corners, box, dipole, np.int64(math.floor(x + 0.5)),
                np.int64(math.floor(y + 0.5)), np.int64(math.floor(z + 0.5)), r, voxel, surface,
                flip, nodes,
            )  # fmt: skip
        known = 0.0
        total = 0.0
        heaviest = -1.0
        nearest = np.int32(-1)
        for corner in range(8):
            weight = (
                (fx if corner >> 2 else 1.0 - fx)
                * (fy if (corner >> 1) & 1 else 1.0 - fy)
                * (fz if corner & 1 else 1.0 - fz)
            )
            row = rows[corner]
            if row < 0:  # summed in the same order as if it were stored
                total += weight * side * band
                continue
            i = (i0 + (corner >> 2)) % r
            j = (j0 + ((corner >> 1) & 1)) % r
            k = (k0 + (corner & 1)) % r
            total += weight * distance[row, 0, i, j, k]
            index = primitive[row, 0, i, j, k]
            if weight > heaviest:
                heaviest = weight
                nearest = index
            if index >= 0:
                known += weight
                for c in range(sampled_others.shape[1]):
                    sampled_others[n, c] += weight * others[row, c, i, j, k]
        sampled_distance[n] = total
        sampled_primitive[n] = nearest
        if known > 0.0:
            for c in range(sampled_others.shape[1]):
                sampled_others[n, c] /= known
