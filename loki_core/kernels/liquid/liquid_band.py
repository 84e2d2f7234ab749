"""Deep liquid without particles: full voxels whose velocity the grid carries.

A deep voxel gives to faces and cells around it what the particles of a regular lattice in it would:
along an axis the weights 1/8, 3/4, 1/8 to three cells, and 1/2 to each of its two faces. Where the
flow leaves the deep voxels in a step, the places of a lattice that do so become particles, at the
ends of their ways; particles that come to a deep voxel are taken away. The lattice of each voxel is
shifted by a quasi-random part of its spacing, another in each step, so that in the mean as much
leaves as flows however short the ways are (the R3 sequence of Roberts 2018).
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside, voxel_at
from loki_core.kernels.gas.mac_grid import FLUID, SIDE_OPEN
from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.liquid.liquid_motion import (
    fill_beyond_box,
    gather_faces,
    reach,
    sample_gradient,
    sample_tile,
    way_along,
)

UNKNOWN = 255
SLACK = 0.2
#: Powers of 1 / 1.2207440846, the root of x^4 = x + 1: multiples of them fill a cube evenly.
STRIDES = (0.8191725133961645, 0.6710436067037893, 0.5497004779019703)


@device
def gather_cells(cells, neighbours, b, halo, tile):
    """Fill tile [r + 2 halo]^3 with the voxels of a Bucket and around, 0 where none are stored.

    Returns: their sum.
    """
    r = cells.shape[2]
    total = 0
    for direction in range(27):
        other = np.int64(neighbours[b, direction])
        ti, i, ni = reach(direction // 9 - 1, r, halo)
        tj, j, nj = reach(direction // 3 % 3 - 1, r, halo)
        tk, k, nk = reach(direction % 3 - 1, r, halo)
        for x in range(ni):
            for y in range(nj):
                for z in range(nk):
                    value = cells[other, 0, i + x, j + y, k + z] if other >= 0 else 0
                    tile[ti + x, tj + y, tk + z] = value
                    total += value
    return total


@parallel_kernel
def add_deep_liquid(deep, carried, neighbours, momentum, weight, filled):
    """Add what deep voxels give to faces and cells of local Buckets.

    Args: deep uint8 [b, 1, r, r, r] with ghosts and corners; carried [b, 3, r, r, r] m/s;
    momentum, weight, filled as of `collect_tiles`.
    """
    for b in prange(momentum.shape[0]):
        add_to_bucket(np.int64(b), deep, carried, neighbours, momentum, weight, filled)


@device
def add_to_bucket(b, deep, carried, neighbours, momentum, weight, filled):
    r = deep.shape[2]
    tile = np.empty((r + 2, r + 2, r + 2), np.uint8)
    total = gather_cells(deep, neighbours, b, 1, tile)
    if total == 0:
        return
    full = total == tile.size
    for i in range(r):
        for j in range(r):
            for k in range(r):
                part = 1.0
                if not full:
                    part = cell_part(tile, i, j, k)
                filled[b, 0, i, j, k] += part
                for a in range(3):
                    if not full:
                        part = face_part(tile, a, i, j, k)
                    weight[b, a, i, j, k] += part
                    momentum[b, a, i, j, k] += part * carried[b, a, i, j, k]


@device
def side_weight(step):
    """Part of a full voxel that comes to the cell a step from it, less one, along an axis."""
    return 0.75 if step == 1 else 0.125


@device
def cell_part(tile, i, j, k):
    """Part of a cell that deep voxels fill, by trilinear weights."""
    total = 0.0
    for x in range(3):
        for y in range(3):
            for z in range(3):
                weight = side_weight(x) * side_weight(y) * side_weight(z)
                total += weight * tile[i + x, j + y, k + z]
    return total


@device
def face_part(tile, a, i, j, k):
    """The same about the lower face of a voxel along axis a."""
    total = 0.0
    for s in range(2):
        for u in range(3):
            for v in range(3):
                if a == 0:
                    value = tile[i + s, j + u, k + v]
                elif a == 1:
                    value = tile[i + u, j + s, k + v]
                else:
                    value = tile[i + u, j + v, k + s]
                total += 0.5 * side_weight(u) * side_weight(v) * value
    return total


# -- how deep voxels are ---------------------------------------------------------------------------


@parallel_kernel
def mark_edges(kind, loose, coords, lower, upper, boxes, depth):
    """Begin depths: 0 where particles are needed, UNKNOWN elsewhere, for local Buckets.

    Needed in air, in solids, where a wall lets go, and in boxes of sources and sinks. What lies
    beyond the sides of the box counts not.

    Args: boxes int64 [n, 2, 3], first and last voxel.
    """
    for b in prange(depth.shape[0]):
        mark_bucket(np.int64(b), kind, loose, coords, lower, upper, boxes, depth)


@device
def mark_bucket(b, kind, loose, coords, lower, upper, boxes, depth):
    r = depth.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                place = (coords[b, 0] * r + i, coords[b, 1] * r + j, coords[b, 2] * r + k)
                inside = True
                for a in range(3):
                    inside &= lower[a] < place[a] + 0.5 < upper[a]
                value = UNKNOWN
                is_loose = loose[b, 0, i, j, k] == 1
                if inside and (is_loose or kind[b, 0, i, j, k] != FLUID):
                    value = 0
                for n in range(boxes.shape[0]):
                    held = True
                    for a in range(3):
                        held &= boxes[n, 0, a] <= place[a] <= boxes[n, 1, a]
                    if held:
                        value = 0
                depth[b, 0, i, j, k] = value


@parallel_kernel
def find_layer(depth, layer, touched):
    """Find the Buckets, with ghosts, that have voxels of a depth."""
    for b in prange(touched.shape[0]):
        touched[b] = has_value(depth[b].reshape(-1), layer)


@device
def has_value(values, wanted):
    found = False
    for n in range(values.shape[0]):
        found |= values[n] == wanted
    return found


@parallel_kernel
def deepen(neighbours, sides, layer, touched, depth):
    """Give the voxels beside those of the layer above their depth.

    Args: depth uint8 with ghosts; sides int [6]: beyond an open one is air; touched bool [b] of
    `find_layer`.
    """
    for b in prange(neighbours.shape[0]):
        near = touched[b]
        for n in range(6):
            step = 9 if n < 2 else (3 if n < 4 else 1)
            other = neighbours[b, 13 + (step if n % 2 == 1 else -step)]
            near |= touched[other] if other >= 0 else layer == 1
        if near:
            deepen_bucket(np.int64(b), neighbours, sides, layer, depth)


@device
def deepen_bucket(b, neighbours, sides, layer, depth):
    r = depth.shape[2]
    near = np.empty((r + 2, r + 2, r + 2), np.uint8)
    gather_cells(depth, neighbours, b, 1, near)
    # What is not stored is a wall, or air beyond an open side; inside the box air lies before it.
    for side in range(6):
        axis, upper = side // 2, side % 2
        step = 9 if axis == 0 else (3 if axis == 1 else 1)
        if neighbours[b, 13 + (step if upper == 1 else -step)] >= 0:
            continue
        value = 0 if sides[side] == SIDE_OPEN else UNKNOWN
        place = r + 1 if upper == 1 else 0
        if axis == 0:
            near[place] = value
        elif axis == 1:
            near[:, place] = value
        else:
            near[:, :, place] = value
    above = layer - 1
    for i in range(1, r + 1):
        for j in range(1, r + 1):
            for k in range(1, r + 1):
                found = (near[i - 1, j, k] == above) | (near[i + 1, j, k] == above)
                found |= (near[i, j - 1, k] == above) | (near[i, j + 1, k] == above)
                found |= (near[i, j, k - 1] == above) | (near[i, j, k + 1] == above)
                if found and near[i, j, k] == UNKNOWN:
                    depth[b, 0, i - 1, j - 1, k - 1] = layer


@parallel_kernel
def choose_deep(kind, depth, least, deep):
    """Write which local voxels are deep from now on: those of liquid that are at least so deep.

    One that is not deep yet has to be a voxel deeper, so that few change sides.
    """
    r = deep.shape[2]
    for b in prange(deep.shape[0]):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    wanted = least if deep[b, 0, i, j, k] == 1 else least + 1
                    is_whole = kind[b, 0, i, j, k] == FLUID and depth[b, 0, i, j, k] >= wanted
                    deep[b, 0, i, j, k] = 1 if is_whole else 0


# -- particles that leave and enter ----------------------------------------------------------------


@parallel_kernel
def mark_leaving(before, deep, neighbours, halo, near, counts):
    """Mark voxels of local Buckets that were deep and from which the flow may leave deep liquid.

    Args: before uint8 [local, 1, r, r, r]; deep likewise with ghosts and corners; halo: how far the
    flow goes at most, in voxels; near uint8 [local, r, r, r], filled where counts int64 [local],
    their number, is above 0.
    """
    for b in prange(counts.shape[0]):
        counts[b] = mark_leaving_of_bucket(np.int64(b), before, deep, neighbours, halo, near[b])


@device
def mark_leaving_of_bucket(b, before, deep, neighbours, halo, near):
    """Mark voxels that were deep and have others within `halo`; return how many there are."""
    r = deep.shape[2]
    n = r + 2 * halo
    some = False
    for i in range(r):
        for j in range(r):
            for k in range(r):
                some |= before[b, 0, i, j, k] == 1
    if not some:
        return 0
    tile = np.empty((n, n, n), np.uint8)
    if gather_cells(deep, neighbours, b, halo, tile) == tile.size:
        return 0
    # The least of a box is the least of lines, axis by axis.
    for axis in range(3):
        shrink(tile, axis, halo)
    count = 0
    for i in range(r):
        for j in range(r):
            for k in range(r):
                leaves = before[b, 0, i, j, k] == 1 and tile[i + halo, j + halo, k + halo] == 0
                near[i, j, k] = leaves
                count += leaves
    return count


@device
def shrink(tile, axis, width):
    """Replace 1 by 0 within `width` of a 0 along an axis."""
    flat, n = tile.reshape(-1), np.int64(tile.shape[0])
    step = n * n if axis == 0 else (n if axis == 1 else 1)
    for u in range(n):
        for v in range(n):
            first = u * n + v if axis == 0 else (u * n * n + v if axis == 1 else (u * n + v) * n)
            since = width + 1  # steps since the last 0, both ways
            for t in range(n):
                place = np.uint64(first + t * step)
                since = 0 if flat[place] == 0 else since + 1
                flat[place] = 2 if flat[place] == 1 and since <= width else flat[place]
            since = width + 1
            for t in range(n - 1, -1, -1):
                place = np.uint64(first + t * step)
                since = 0 if flat[place] == 0 else since + 1
                flat[place] = 1 if flat[place] == 1 and since > width else 0


@parallel_kernel
def let_leave(
    near, deep, neighbours, faces, sides, outer, coords, bucket_size, halo, dt, per_axis, number,
    starts, position, velocity, affine, leaves,
):  # fmt: skip
    """Follow the lattice places of voxels that `mark_leaving` marked.

    Args: faces [b, 3, r, r, r] with ghosts; number of the step; starts int64 [buckets + 1], of each
    Bucket's places; position, velocity [n, 3], affine [n, 3, 3]: filled; leaves bool [n]: whether a
    place ends in a voxel that is not deep.
    """
    for b in prange(starts.shape[0] - 1):
        if starts[b + 1] > starts[b]:
            leave_bucket(
                np.int64(b), near[b], deep, neighbours, faces, sides, outer, coords, bucket_size,
                halo, dt, per_axis, number, starts[b], position, velocity, affine, leaves,
            )  # fmt: skip


@device
def leave_bucket(
    b, near, deep, neighbours, faces, sides, outer, coords, bucket_size, halo, dt, per_axis,
    number, place, position, velocity, affine, leaves,
):  # fmt: skip
    r = deep.shape[2]
    n = r + 2 * halo
    inverse_h = r / bucket_size
    flow = np.empty(3 * n * n * n, faces.dtype)
    gather_faces(faces, neighbours, b, halo, flow)
    fill_beyond_box(neighbours, b, r, halo, sides, outer, flow)
    spacing = 1.0 / per_axis
    for i in range(r):
        for j in range(r):
            for k in range(r):
                if near[i, j, k] == 0:
                    continue
                if stays_deep(
                    b, i, j, k, deep, neighbours, flow, n, halo, dt * inverse_h, r
                ):  # fmt: skip
                    for p in range(per_axis * per_axis * per_axis):
                        leaves[place + p] = False
                    place += per_axis * per_axis * per_axis
                    continue
                lattice = (coords[b, 0] * r + i, coords[b, 1] * r + j, coords[b, 2] * r + k)
                sx = shift_of(lattice, number, 0)
                sy = shift_of(lattice, number, 1)
                sz = shift_of(lattice, number, 2)
                for p in range(per_axis * per_axis * per_axis):
                    x = i + (p // (per_axis * per_axis) + sx) * spacing + halo
                    y = j + (p // per_axis % per_axis + sy) * spacing + halo
                    z = k + (p % per_axis + sz) * spacing + halo
                    u = sample_tile(flow, n, x, y, z, 0)
                    v = sample_tile(flow, n, x, y, z, 1)
                    w = sample_tile(flow, n, x, y, z, 2)
                    dx, dy, dz = way_along(flow, n, x, y, z, u, v, w, dt * inverse_h)
                    other, oi, oj, ok = voxel_at(
                        neighbours, b, r, math.floor(x + dx) - halo, math.floor(y + dy) - halo,
                        math.floor(z + dz) - halo,
                    )  # fmt: skip
                    leaves[place] = other < 0 or deep[other, 0, oi, oj, ok] == 0
                    if not leaves[place]:
                        place += 1
                        continue
                    _, ux, uy, uz = sample_gradient(flow, n, x, y, z, 0)
                    _, vx, vy, vz = sample_gradient(flow, n, x, y, z, 1)
                    _, wx, wy, wz = sample_gradient(flow, n, x, y, z, 2)
                    x, y, z = x + dx - halo, y + dy - halo, z + dz - halo
                    position[place, 0] = coords[b, 0] * bucket_size + x / inverse_h
                    position[place, 1] = coords[b, 1] * bucket_size + y / inverse_h
                    position[place, 2] = coords[b, 2] * bucket_size + z / inverse_h
                    velocity[place, 0] = u
                    velocity[place, 1] = v
                    velocity[place, 2] = w
                    gradient = (ux, uy, uz, vx, vy, vz, wx, wy, wz)
                    for q in range(9):
                        affine[place, q // 3, q % 3] = gradient[q] * inverse_h
                    place += 1


@device
def stays_deep(b, i, j, k, deep, neighbours, flow, n, halo, step, r):
    """Whether all that flows out of a voxel in a step surely ends in deep voxels.

    Ways differ from those of the voxel's own faces by less than SLACK voxels.
    """
    first, last = (0, 0, 0), (0, 0, 0)
    for a in range(3):
        at = ((a * n + i + halo) * n + j + halo) * n + k + halo
        one = flow[at] * step
        two = flow[at + (n * n if a == 0 else (n if a == 1 else 1))] * step
        below = math.floor(min(one, two, 0.0) - SLACK)
        above = math.floor(1.0 + max(one, two, 0.0) + SLACK)
        if max(-below, above) > halo:
            return False
        if a == 0:
            first, last = (below, 0, 0), (above, 0, 0)
        elif a == 1:
            first, last = (first[0], below, 0), (last[0], above, 0)
        else:
            first, last = (first[0], first[1], below), (last[0], last[1], above)
    for x in range(first[0], last[0] + 1):
        for y in range(first[1], last[1] + 1):
            for z in range(first[2], last[2] + 1):
                other, oi, oj, ok = voxel_at(neighbours, b, r, i + x, j + y, k + z)
                if other >= 0 and deep[other, 0, oi, oj, ok] == 0:
                    return False
    return True


@device
def shift_of(voxel, number, axis):
    """Part of its spacing by which the lattice of a voxel is shifted along an axis, in a step."""
    total = number * STRIDES[axis]
    for a in range(3):
        total += voxel[(axis + a) % 3] * STRIDES[a]
    return total - math.floor(total)


@parallel_kernel
def find_entered(deep, neighbours, rows, coords, bucket_size, offsets, position, entered):
    """Find particles that are in deep voxels after they moved.

    Args: deep uint8 with ghosts and corners; rows int32 of the volume, coords of the Buckets that
    particles started from; entered bool [n], filled.
    """
    r = deep.shape[2]
    for b in prange(rows.shape[0]):
        for p in range(offsets[b], offsets[b + 1]):
            i = np.int64(np.floor(position[p, 0] * (r / bucket_size))) - coords[b, 0] * r
            j = np.int64(np.floor(position[p, 1] * (r / bucket_size))) - coords[b, 1] * r
            k = np.int64(np.floor(position[p, 2] * (r / bucket_size))) - coords[b, 2] * r
            entered[p] = False
            if min(i, j, k) >= -r and max(i, j, k) < 2 * r:
                other, i, j, k = voxel_at(neighbours, np.int64(rows[b]), r, i, j, k)
                entered[p] = other >= 0 and deep[other, 0, i, j, k] == 1


@parallel_kernel
def mean_of_faces(faces, neighbours, out):
    """Write the mean of both faces of local voxels along each axis: [b, 3, r, r, r]."""
    r = faces.shape[2]
    for b in prange(out.shape[0]):
        for a in range(3):
            for i in range(r):
                for j in range(r):
                    for k in range(r):
                        other, ni, nj, nk = beside(neighbours, np.int64(b), r, a, 1, i, j, k)
                        above = faces[other, a, ni, nj, nk] if other >= 0 else 0.0
                        out[b, a, i, j, k] = 0.5 * (faces[b, a, i, j, k] + above)
