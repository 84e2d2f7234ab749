"""Solids on a volume's faces: open area fractions, wall velocities and closed voxels.

The distance at a node, a corner of voxels, is the mean of the eight voxels around it, which is
exact for a plane. The open part of a face follows from its four nodes by marching squares: the zero
crossings on its edges are joined by straight lines. Several solids are united by the smallest
distance, and the wall velocity is that of the nearest solid.
"""

from __future__ import annotations

import math

import numpy as np

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
def gather_block(distance, neighbours, row, band, block):
    """Fill block [r + 2, r + 2, r + 2] with a Bucket's distances and one layer around it."""
    r = distance.shape[2]
    for i in range(-1, r + 1):
        for j in range(-1, r + 1):
            for k in range(-1, r + 1):
                other = cell_row(neighbours, row, i, j, k, r)
                if other >= 0:
                    value = distance[other, 0, i % r, j % r, k % r]
                else:  # far from the surface, so on the side of the nearest voxel
                    inside = distance[
                        row, 0, min(max(i, 0), r - 1), min(max(j, 0), r - 1), min(max(k, 0), r - 1)
                    ]
                    value = math.copysign(band, inside)
                block[i + 1, j + 1, k + 1] = value


@parallel_kernel
def unite_solid(
    distance, velocity, primitive, neighbours, rows, solid, band, nodes, nearest, wall
):  # fmt: skip
    """Add one solid to the node distances of Buckets, and to the wall velocities of their faces.

    Args: distance [b, 1, r, r, r] m, velocity [b, 3, r, r, r] m/s, primitive [b, 1, r, r, r] and
    neighbours [local, 27] of the solid's field; rows [n], each Bucket's row there or -1; solid [n],
    whether a Bucket without a row is solid; band m; nodes [n, r+1, r+1, r+1] m; nearest and wall
    [n, 3, r, r, r], distance [m] and velocity [m/s] of the solid nearest to each face.
    """
    for n in prange(rows.shape[0]):
        if rows[n] >= 0:
            unite_bucket(
                distance, velocity, primitive, neighbours, rows[n], band, nodes[n], nearest[n],
                wall[n],
            )  # fmt: skip
        elif solid[n]:
            fill_bucket(-band, nodes[n], nearest[n], wall[n])


@device
def fill_bucket(value, nodes, nearest, wall):
    """Make a whole Bucket solid and at rest."""
    for i in range(nodes.shape[0]):
        for j in range(nodes.shape[0]):
            for k in range(nodes.shape[0]):
                nodes[i, j, k] = min(nodes[i, j, k], value)
    r = nearest.shape[1]
    for axis in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    if value < nearest[axis, i, j, k]:
                        nearest[axis, i, j, k] = value
                        wall[axis, i, j, k] = 0.0


@device
def unite_bucket(distance, velocity, primitive, neighbours, row, band, nodes, nearest, wall):
    r = distance.shape[2]
    block = np.empty((r + 2, r + 2, r + 2), distance.dtype)
    gather_block(distance, neighbours, row, band, block)
    for i in range(r + 1):
        for j in range(r + 1):
            for k in range(r + 1):
                low = block[i, j, k] + block[i, j, k + 1] + block[i, j + 1, k]
                high = block[i + 1, j, k] + block[i + 1, j, k + 1] + block[i + 1, j + 1, k]
                low += block[i, j + 1, k + 1]
                high += block[i + 1, j + 1, k + 1]
                nodes[i, j, k] = min(nodes[i, j, k], 0.125 * (low + high))
    for axis in range(3):
        di, dj, dk = axis == 0, axis == 1, axis == 2
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    here = block[i + 1, j + 1, k + 1]
                    below = block[i + 1 - di, j + 1 - dj, k + 1 - dk]
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
def face_opening(nodes, axis, i, j, k, smallest):
    """Open part of the lower face of voxel (i, j, k) along an axis; 0 if below `smallest`."""
    if axis == 0:
        area = open_area(
            nodes[i, j, k], nodes[i, j + 1, k], nodes[i, j + 1, k + 1], nodes[i, j, k + 1]
        )
    elif axis == 1:
        area = open_area(
            nodes[i, j, k], nodes[i + 1, j, k], nodes[i + 1, j, k + 1], nodes[i, j, k + 1]
        )
    else:
        area = open_area(
            nodes[i, j, k], nodes[i + 1, j, k], nodes[i + 1, j + 1, k], nodes[i, j + 1, k]
        )
    return area if area >= smallest else 0.0


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
