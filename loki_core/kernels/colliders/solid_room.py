"""Room for particles about cells near solids: the part of their trilinear weights that is open.

    room = integral of w(x - x_c) over open space,    w = (1 - |x|) (1 - |y|) (1 - |z|)

by the midpoint rule over small cubes, POINTS along the edge of a voxel. The distance to solids is
trilinear between nodes, the corners of voxels; a cube that the surface passes is open in part. It
is what particles of a full liquid would fill, so where a wall takes a part of the weights the
filled part of the rest stays the same.

Particles fill it to their spacing d alone: the last of them are anywhere within d of the surface,
so the part that they fill is unsure by what the surface sweeps when it moves by d / 2,

    d / 2  integral of w(x - x_c) over the surface / room
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import axis_step, voxel_at
from loki_core.kernels.gas.mac_grid import SIDE_OPEN
from loki_core.kernels.jit import device, parallel_kernel, prange

POINTS = 4
FAR = 8.0  # voxels: the distance of nodes that no solid is near


@parallel_kernel
def measure_room_near_solids(
    node_distance, coords, neighbours, lower, upper, sides, smallest, spacing, out, unsure
):  # fmt: skip
    """Write the room about cells which solids are near to out; others are left as they are.

    And by how much the filled part of it is unsure.

    Args: node_distance [b, 1, r, r, r], at the lower corner of voxels, in voxels, with ghosts
    and corners; lower, upper float64 [3] of the box in voxels, sides int [6];
    smallest room; spacing of particles in voxels; out, unsure [local, 1, r, r, r].
    """
    for b in prange(neighbours.shape[0]):
        room_near_solids_of_bucket(
            np.int64(b), node_distance, coords, neighbours, lower, upper, sides, smallest, spacing,
            out, unsure,
        )  # fmt: skip


@device
def room_near_solids_of_bucket(
    b, node_distance, coords, neighbours, lower, upper, sides, smallest, spacing, out, unsure
):  # fmt: skip
    r = out.shape[2]
    nodes = np.empty((r + 3, r + 3, r + 3))  # from one before the first
    for i in range(r + 3):
        for j in range(r + 3):
            for k in range(r + 3):
                other, x, y, z = voxel_at(neighbours, b, r, i - 1, j - 1, k - 1)
                nodes[i, j, k] = node_distance[other, 0, x, y, z] if other >= 0 else FAR
    continue_nodes(neighbours, b, r, coords, lower, upper, nodes)
    least, most = FAR, -FAR
    for value in nodes.reshape(-1):
        least, most = min(least, value), max(most, value)
    if least > 1.0 or most < -1.0:  # no surface is near
        return
    for i in range(r):
        for j in range(r):
            for k in range(r):
                if is_cut(nodes, i, j, k):
                    first = (coords[b, 0] * r, coords[b, 1] * r, coords[b, 2] * r)
                    room, surface = room_of_cell(nodes, i, j, k, first, lower, upper, sides)
                    room = max(room, smallest)
                    out[b, 0, i, j, k] = room
                    unsure[b, 0, i, j, k] = 0.5 * spacing * surface / room


@device
def continue_nodes(neighbours, b, r, coords, lower, upper, nodes):
    """Let distances go on as they are, axis by axis, where no Bucket of the box is beside one."""
    for axis in range(3):
        step = axis_step(axis)
        first = coords[b, axis] * r
        below = neighbours[b, 13 - step] < 0 or first <= lower[axis]
        above = neighbours[b, 13 + step] < 0 or first + r >= upper[axis]
        for u in range(r + 3):
            for v in range(r + 3):
                if axis == 0:
                    continue_line(nodes[:, u, v], r, below, above)
                elif axis == 1:
                    continue_line(nodes[u, :, v], r, below, above)
                else:
                    continue_line(nodes[u, v, :], r, below, above)


@device
def continue_line(line, r, below, above):
    if below:
        line[0] = 2.0 * line[1] - line[2]
    if above:
        line[r + 1] = 2.0 * line[r] - line[r - 1]
        line[r + 2] = 2.0 * line[r + 1] - line[r]


@device
def is_cut(nodes, i, j, k):
    """Whether a surface passes the nodes of a cell or of those around it."""
    least, most = FAR, -FAR
    for x in range(4):
        for y in range(4):
            for z in range(4):
                value = nodes[i + x, j + y, k + z]
                least, most = min(least, value), max(most, value)
    return least < 0.0 and most > 0.0


@device
def room_of_cell(nodes, i, j, k, first, lower, upper, sides):
    """Integrate one cell's weights over open space and over the solid's surface.

    `first` is the Bucket's first voxel.
    """
    total, surface = 0.0, 0.0
    for p in range(2 * POINTS):
        x = (p + 0.5) / POINTS - 1.0  # from the cell's centre
        wx = (1.0 - abs(x)) / POINTS
        if is_beyond(first[0] + i + 0.5 + x, 0, lower, upper, sides):
            continue
        for q in range(2 * POINTS):
            y = (q + 0.5) / POINTS - 1.0
            wy = (1.0 - abs(y)) / POINTS
            if is_beyond(first[1] + j + 0.5 + y, 1, lower, upper, sides):
                continue
            for s in range(2 * POINTS):
                z = (s + 0.5) / POINTS - 1.0
                if is_beyond(first[2] + k + 0.5 + z, 2, lower, upper, sides):
                    continue
                wz = (1.0 - abs(z)) / POINTS
                part = 0.5 + POINTS * distance_at(nodes, i + 1.5 + x, j + 1.5 + y, k + 1.5 + z)
                total += wx * wy * wz * min(max(part, 0.0), 1.0)
                if 0.0 < part < 1.0:
                    surface += POINTS * wx * wy * wz
    return total, surface


@device
def is_beyond(place, axis, lower, upper, sides):
    """Whether a place along an axis, in voxels, is beyond a wall of the box."""
    if place < lower[axis]:
        return sides[2 * axis] != SIDE_OPEN
    return place > upper[axis] and sides[2 * axis + 1] != SIDE_OPEN


@device
def distance_at(nodes, x, y, z):
    """Distance at a place, in voxels from the first of the nodes."""
    i, j, k = int(x), int(y), int(z)
    fx, fy, fz = x - i, y - j, z - k
    total = 0.0
    for n in range(8):
        a, b, c = n // 4, n // 2 % 2, n % 2
        w = (fx if a else 1.0 - fx) * (fy if b else 1.0 - fy) * (fz if c else 1.0 - fz)
        total += w * nodes[i + a, j + b, k + c]
    return total
