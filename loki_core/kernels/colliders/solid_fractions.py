"""Solids on a volume's faces: open area fractions, wall velocities and closed voxels.

The distance at a node, a corner of voxels, is the mean of the eight voxels around it less what the
surface's curvature adds to that, one eighth of the sum of the second differences: exact for a
plane, third order for what is smooth. The open part of a face follows from its four nodes: zero
crossings on its edges are joined by straight lines (marching squares), or where the surface is
curved as `open_parts` tells. Several solids are united by the smallest distance, and the wall
velocity is that of the nearest solid. `nodes` holds the distance and its three second differences.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.voxel_places import axis_step
from loki_core.kernels.colliders.open_parts import open_part
from loki_core.kernels.gas.mac_grid import EMPTY_CODE
from loki_core.kernels.jit import device, parallel_kernel, prange


@device
def corner_area(here, left, right):
    """Area of the part around a corner, of another sign than its two neighbours, of a face."""
    return 0.5 * (here / (here - left)) * (here / (here - right))


@device
def open_area(a, b, c, d):
    """Part of a face in which the distance is above 0, given it at the corners in turn."""
    count = (a > 0.0) + (b > 0.0) + (c > 0.0) + (d > 0.0)
    if count == 4:
        return 1.0
    if count == 0:
        return 0.0
    if count == 1 or count == 3:
        # Turn the face until the odd corner is the first.
        odd = count == 1
        if (b > 0.0) == odd:
            a, b, d = b, c, a
        elif (c > 0.0) == odd:
            a, b, d = c, d, b
        elif (d > 0.0) == odd:
            a, b, d = d, a, c
        area = corner_area(a, b, d)
        return area if odd else 1.0 - area
    if (a > 0.0) == (c > 0.0):  # opposite corners: the middle says whether they are joined
        positive = a + b + c + d > 0.0
        if (a > 0.0) == positive:
            area = corner_area(b, a, c) + corner_area(d, a, c)
        else:
            area = corner_area(a, b, d) + corner_area(c, b, d)
        return 1.0 - area if positive else area
    # Two neighbours: a strip, as wide as the mean of its two cut edges.
    if (a > 0.0) == (b > 0.0):
        first, second = a / (a - d), b / (b - c)
        return 0.5 * (first + second) if a > 0.0 else 1.0 - 0.5 * (first + second)
    first, second = a / (a - b), d / (d - c)
    return 0.5 * (first + second) if a > 0.0 else 1.0 - 0.5 * (first + second)


@device
def cell_row(neighbours, row, i, j, k, r):
    """Bucket that holds voxel (i, j, k), which may be one beyond the Bucket `row`; or below 0."""
    di = -1 if i < 0 else (1 if i >= r else 0)
    dj = -1 if j < 0 else (1 if j >= r else 0)
    dk = -1 if k < 0 else (1 if k >= r else 0)
    way = (di + 1) * 9 + (dj + 1) * 3 + dk + 1
    return row if way == 13 else neighbours[row, way]


@device
def gather_block(distance, neighbours, row, band, largest_bend, block):
    """Fill block [r + 4, r + 4, r + 4] with a Bucket's distances and two layers around it.

    Beyond the domain box, where nothing is measured, the distance goes on as it is bent inside.
    """
    r = distance.shape[2]
    for i in range(-2, r + 2):
        for j in range(-2, r + 2):
            for k in range(-2, r + 2):
                x = nearest_in_box(neighbours, row, 0, i, r)
                y = nearest_in_box(neighbours, row, 1, j, r)
                z = nearest_in_box(neighbours, row, 2, k, r)
                other = cell_row(neighbours, row, x, y, z, r)
                if other >= 0:
                    out_x, out_y, out_z = abs(i - x), abs(j - y), abs(k - z)
                    x, y, z = x % r, y % r, z % r
                    here = np.float64(distance[other, 0, x, y, z])
                    value = here
                    if out_x > 0:
                        one = distance[other, 0, 1 if i < 0 else r - 2, y, z]
                        two = distance[other, 0, 2 if i < 0 else r - 3, y, z]
                        value += continued(here, one, two, out_x, largest_bend)
                    if out_y > 0:
                        one = distance[other, 0, x, 1 if j < 0 else r - 2, z]
                        two = distance[other, 0, x, 2 if j < 0 else r - 3, z]
                        value += continued(here, one, two, out_y, largest_bend)
                    if out_z > 0:
                        one = distance[other, 0, x, y, 1 if k < 0 else r - 2]
                        two = distance[other, 0, x, y, 2 if k < 0 else r - 3]
                        value += continued(here, one, two, out_z, largest_bend)
                else:  # far from the surface, so on the side of the nearest voxel
                    inside = distance[
                        row, 0, min(max(i, 0), r - 1), min(max(j, 0), r - 1), min(max(k, 0), r - 1)
                    ]
                    value = math.copysign(band, inside)
                block[i + 2, j + 2, k + 2] = value


@device
def continued(here, one, two, steps, largest_bend):
    """By how much a distance changes in some steps outwards, given it one and two steps inwards.

    A solid that ends at the side of the box, which is where its distance is all along the way out,
    goes on beyond it.
    """
    if here < 0.0 and here - one > 1.8 * largest_bend:
        return 0.0
    bend = here - 2.0 * one + two
    if abs(bend) > largest_bend:
        bend = 0.0
    return steps * (here - one) + 0.5 * steps * (steps + 1) * bend


@device
def nearest_in_box(neighbours, row, axis, index, r):
    """Index along an axis of a voxel in or around a Bucket, or of the last one in the box."""
    if index < 0 and neighbours[row, 13 - axis_step(axis)] < EMPTY_CODE:
        return 0
    if index >= r and neighbours[row, 13 + axis_step(axis)] < EMPTY_CODE:
        return r - 1
    return index


@parallel_kernel
def unite_solid(
    distance, velocity, primitive, neighbours, rows, solid, band, largest_bend, nodes, nearest, wall
):  # fmt: skip
    """Add one solid to the node distances of Buckets, and to the wall velocities of their faces.

    Args: distance [b, 1, r, r, r] m, velocity [b, 3, r, r, r] m/s, primitive [b, 1, r, r, r] and
    neighbours [local, 27] of the solid's field; rows [n], each Bucket's row there or -1; solid [n],
    whether a Bucket without a row is solid; band m; largest_bend m, second differences above which
    do not count; nodes [n, 4, r+1, r+1, r+1] m; nearest and wall [n, 3, r, r, r], distance [m] and
    velocity [m/s] of the solid nearest to each face.
    """
    for n in prange(rows.shape[0]):
        if rows[n] >= 0:
            unite_bucket(
                distance, velocity, primitive, neighbours, rows[n], band, largest_bend, nodes[n],
                nearest[n], wall[n],
            )  # fmt: skip
        elif solid[n]:
            fill_bucket(-band, nodes[n], nearest[n], wall[n])


@device
def fill_bucket(value, nodes, nearest, wall):
    """Make a whole Bucket solid and at rest."""
    for i in range(nodes.shape[1]):
        for j in range(nodes.shape[1]):
            for k in range(nodes.shape[1]):
                if value < nodes[0, i, j, k]:
                    nodes[:, i, j, k] = 0.0
                    nodes[0, i, j, k] = value
    r = nearest.shape[1]
    for axis in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    if value < nearest[axis, i, j, k]:
                        nearest[axis, i, j, k] = value
                        wall[axis, i, j, k] = 0.0


@device
def bend_at(block, axis, i, j, k, band, largest):
    """Second difference along an axis at the node below voxel (i, j, k) of a block, or 0.

    The mean of those of the eight voxels around it; from half the largest on it counts ever less.
    """
    di, dj, dk = axis == 0, axis == 1, axis == 2
    total = 0.0
    for n in range(8):
        x, y, z = i - n // 4, j - n // 2 % 2, k - n % 2
        here = block[x, y, z]
        above, below = block[x + di, y + dj, z + dk], block[x - di, y - dj, z - dk]
        if max(abs(above), abs(below)) >= band:  # where the distance is cut off
            return 0.0
        total += above + below - 2.0 * here
    total *= 0.125
    return total * min(max(2.0 - 2.0 * abs(total) / largest, 0.0), 1.0)


@device
def unite_bucket(
    distance, velocity, primitive, neighbours, row, band, largest_bend, nodes, nearest, wall
):  # fmt: skip
    r = distance.shape[2]
    block = np.empty((r + 4, r + 4, r + 4))
    gather_block(distance, neighbours, row, band, largest_bend, block)
    for i in range(r + 1):
        for j in range(r + 1):
            for k in range(r + 1):
                x, y, z = i + 2, j + 2, k + 2  # of the voxel above the node
                low = block[x - 1, y - 1, z - 1] + block[x - 1, y - 1, z] + block[x - 1, y, z - 1]
                high = block[x, y - 1, z - 1] + block[x, y - 1, z] + block[x, y, z - 1]
                low += block[x - 1, y, z]
                high += block[x, y, z]
                mean = 0.125 * (low + high)
                bend_x = bend_at(block, 0, x, y, z, band, largest_bend)
                bend_y = bend_at(block, 1, x, y, z, band, largest_bend)
                bend_z = bend_at(block, 2, x, y, z, band, largest_bend)
                value = mean - 0.125 * (bend_x + bend_y + bend_z)
                if value < nodes[0, i, j, k]:
                    nodes[0, i, j, k] = value
                    nodes[1, i, j, k], nodes[2, i, j, k], nodes[3, i, j, k] = bend_x, bend_y, bend_z
    for axis in range(3):
        di, dj, dk = axis == 0, axis == 1, axis == 2
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    here = block[i + 2, j + 2, k + 2]
                    below = block[i + 2 - di, j + 2 - dj, k + 2 - dk]
                    face = 0.5 * (here + below)
                    if face >= nearest[axis, i, j, k]:
                        continue
                    nearest[axis, i, j, k] = face
                    total, count = 0.0, 0
                    if primitive[row, 0, i, j, k] >= 0:
                        total += velocity[row, axis, i, j, k]
                        count += 1
                    i1, j1, k1 = i - di, j - dj, k - dk
                    other = cell_row(neighbours, row, i1, j1, k1, r)
                    if other >= 0 and primitive[other, 0, i1 % r, j1 % r, k1 % r] >= 0:
                        total += velocity[other, axis, i1 % r, j1 % r, k1 % r]
                        count += 1
                    wall[axis, i, j, k] = total / max(count, 1)


@device
def face_part(nodes, axis, i, j, k):
    """(area, middle along the face's two axes) of the open part of a voxel's lower face."""
    u, v = (1 if axis == 0 else 0), (1 if axis == 2 else 2)
    iu, ju, ku = i + (u == 0), j + (u == 1), k
    iv, jv, kv = i, j + (v == 1), k + (v == 2)
    iw, jw, kw = iu, ju + (v == 1), ku + (v == 2)
    a, b = nodes[0, i, j, k], nodes[0, iu, ju, ku]
    c, d = nodes[0, iw, jw, kw], nodes[0, iv, jv, kv]
    count = (a > 0.0) + (b > 0.0) + (c > 0.0) + (d > 0.0)
    if count == 0 or count == 4:
        return 0.25 * count, 0.0, 0.0
    if count == 2 and (a > 0.0) == (c > 0.0):  # opposite corners
        return open_area(a, b, c, d), 0.0, 0.0
    bend_u = nodes[1 + u, i, j, k] + nodes[1 + u, iu, ju, ku]
    bend_u += nodes[1 + u, iv, jv, kv] + nodes[1 + u, iw, jw, kw]
    bend_v = nodes[1 + v, i, j, k] + nodes[1 + v, iu, ju, ku]
    bend_v += nodes[1 + v, iv, jv, kv] + nodes[1 + v, iw, jw, kw]
    area, along_u, along_v = open_part(a, b, c, d, 0.25 * bend_u, 0.25 * bend_v)
    if bend_u == 0.0 and bend_v == 0.0:
        area = open_area(a, b, c, d)
    return area, along_u, along_v


@device
def face_opening(nodes, axis, i, j, k, smallest):
    """Open part of the lower face of voxel (i, j, k) along an axis; 0 if below `smallest`."""
    area, _, _ = face_part(nodes, axis, i, j, k)
    return area if area >= smallest else 0.0


@device
def slice_opening(nodes, axis, i, j, k, above):
    """Open part of a slice of voxel (i, j, k) across an axis: half a voxel times `above` up."""
    u, v = (1 if axis == 0 else 0), (1 if axis == 2 else 2)
    corner = (0.0, 0.0, 0.0, 0.0)
    for n in range(4):
        along_u, along_v = (n == 1) | (n == 2), n >= 2  # in turn
        x = i + (along_u & (u == 0))
        y = j + (along_u & (u == 1)) + (along_v & (v == 1))
        z = k + (along_v & (v == 2))
        low = nodes[0, x, y, z]
        high = nodes[0, x + (axis == 0), y + (axis == 1), z + (axis == 2)]
        value = low if above == 0 else (high if above == 2 else 0.5 * (low + high))
        corner = (corner[1], corner[2], corner[3], value)
    return open_area(corner[0], corner[1], corner[2], corner[3])


@device
def voxel_opening(nodes, i, j, k):
    """Open part of a voxel, by Simpson's rule over slices that the surface does not run along."""
    count = 0
    slope = (0.0, 0.0, 0.0)
    for n in range(8):
        x, y, z = n // 4, n // 2 % 2, n % 2
        value = nodes[0, i + x, j + y, k + z]
        count += value > 0.0
        slope = (
            slope[0] + (2 * x - 1) * value,
            slope[1] + (2 * y - 1) * value,
            slope[2] + (2 * z - 1) * value,
        )
    if count == 0 or count == 8:
        return count / 8.0
    steep = (abs(slope[0]), abs(slope[1]), abs(slope[2]))
    axis = 0
    if steep[1] < steep[axis]:
        axis = 1
    if steep[2] < steep[axis]:
        axis = 2
    lower = slice_opening(nodes, axis, i, j, k, 0)
    middle = slice_opening(nodes, axis, i, j, k, 1)
    upper = slice_opening(nodes, axis, i, j, k, 2)
    return (lower + 4.0 * middle + upper) / 6.0


@parallel_kernel
def measure_open_parts(nodes, rows, open_part):
    """Write the part of every voxel of some Buckets that no solid takes.

    Args: nodes [n, 4, r+1, r+1, r+1] m; rows int32 [n], their Buckets; open_part [b, 1, r, r, r].
    """
    for n in prange(rows.shape[0]):
        r = open_part.shape[2]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    open_part[rows[n], 0, i, j, k] = voxel_opening(nodes[n], i, j, k)


@parallel_kernel
def close_faces(nodes, wall, rows, smallest, open_fraction, solid_velocity, has_velocity, kind):
    """Bring united solids to a volume.

    Multiplies open_fraction [b, 3, r, r, r] by the open part of each face; where that is below 1,
    solid_velocity gets the wall's (if has_velocity); kind [b, 1, r, r, r] becomes 0 where the
    solids close all six faces. rows [n]: the Buckets of nodes [n, ...] and wall [n, ...].
    """
    for n in prange(rows.shape[0]):
        close_bucket(
            nodes[n], wall[n], rows[n], smallest, open_fraction, solid_velocity, has_velocity, kind
        )


@device
def close_bucket(nodes, wall, row, smallest, open_fraction, solid_velocity, has_velocity, kind):
    r = wall.shape[1]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                sum_of_all = 0.0
                for axis in range(3):
                    lower = face_opening(nodes, axis, i, j, k, smallest)
                    upper = face_opening(
                        nodes, axis, i + (axis == 0), j + (axis == 1), k + (axis == 2), smallest
                    )
                    sum_of_all += lower + upper
                    if lower < 1.0:
                        open_fraction[row, axis, i, j, k] *= lower
                        if has_velocity:
                            solid_velocity[row, axis, i, j, k] = wall[axis, i, j, k]
                if sum_of_all == 0.0:
                    kind[row, 0, i, j, k] = 0
