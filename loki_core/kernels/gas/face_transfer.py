"""Points and the faces of a staggered grid: gather u at points, and the exact transpose of that.

Trilinear weights at face centres: component a of a velocity lives on the lower faces along a. The
splat gathers too: a Bucket's faces collect from the points of the 27 Buckets around it that reach
them, in a fixed order, so that sums are the same for any number of threads and ranks. Places are
relative to the Bucket through the direction of the neighbour, so periodic axes need no special
case.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import inlined, parallel_kernel, prange, strict_kernel


@inlined
def lower_corner(x, y, z, axis):
    """(i, j, k, fractions) of a place in voxels, among the faces along an axis."""
    gx = x if axis == 0 else x - 0.5
    gy = y if axis == 1 else y - 0.5
    gz = z if axis == 2 else z - 0.5
    i, j, k = math.floor(gx), math.floor(gy), math.floor(gz)
    return int(i), int(j), int(k), gx - i, gy - j, gz - k


@inlined
def corner_weight(corner, fx, fy, fz):
    """Trilinear weight of one of eight corners."""
    return (
        (fx if corner & 4 else 1.0 - fx)
        * (fy if corner & 2 else 1.0 - fy)
        * (fz if corner & 1 else 1.0 - fz)
    )


@strict_kernel
def faces_to_points(
    position, offsets, point_coords, bucket_size, volume_rows, neighbours, faces, background,
    values, stored, has_stored,
):  # fmt: skip
    """Interpolate faces [buckets, 3, r, r, r] at local points: values [n, 3].

    Args: offsets int64 [point buckets + 1]; point_coords int32 [point buckets, 3]; volume_rows
        int32 [local point buckets], the volume's Bucket of each or negative; neighbours int32
        [local volume buckets, 27]; background [3]: what faces are that are not stored; stored
        [n, 3]: sum of the weights of faces that are, if has_stored is 1.
    """
    r = faces.shape[2]
    inverse_h = r / bucket_size
    for b in prange(volume_rows.shape[0]):
        row = volume_rows[b]
        home = np.uint64(max(row, 0))
        for p in range(offsets[b], offsets[b + 1]):
            x = (position[p, 0] - point_coords[b, 0] * bucket_size) * inverse_h
            y = (position[p, 1] - point_coords[b, 1] * bucket_size) * inverse_h
            z = (position[p, 2] - point_coords[b, 2] * bucket_size) * inverse_h
            for axis in range(np.uint64(3)):
                total, found = 0.0, 0.0
                i, j, k, fx, fy, fz = lower_corner(x, y, z, axis)
                if row >= 0 and min(i, j, k) >= 0 and max(i, j, k) < r - 1:  # most: all at home
                    ui, uj, uk = np.uint64(i), np.uint64(j), np.uint64(k)
                    for corner in range(np.uint64(8)):
                        weight = corner_weight(corner, fx, fy, fz)
                        ci = ui + (corner >> np.uint64(2))
                        cj = uj + ((corner >> np.uint64(1)) & np.uint64(1))
                        ck = uk + (corner & np.uint64(1))
                        total += weight * faces[home, axis, ci, cj, ck]
                    found = 1.0
                else:
                    for corner in range(8):
                        ci = i + (corner >> 2)
                        cj = j + ((corner >> 1) & 1)
                        ck = k + (corner & 1)
                        weight = corner_weight(corner, fx, fy, fz)
                        if row < 0 or min(ci, cj, ck) < -r or max(ci, cj, ck) >= 2 * r:
                            total += weight * background[axis]
                            continue
                        bi = 0 if ci < 0 else (2 if ci >= r else 1)
                        bj = 0 if cj < 0 else (2 if cj >= r else 1)
                        bk = 0 if ck < 0 else (2 if ck >= r else 1)
                        source = neighbours[row, bi * 9 + bj * 3 + bk]
                        if source < 0:
                            total += weight * background[axis]
                            continue
                        li, lj, lk = ci - (bi - 1) * r, cj - (bj - 1) * r, ck - (bk - 1) * r
                        total += weight * faces[source, axis, li, lj, lk]
                        found += weight
                values[p, axis] = total
                if has_stored == 1:
                    stored[p, axis] = found


# -- the transpose -----------------------------------------------------------------------------


@inlined
def reach_of(x, r):
    """First and last neighbour along an axis, of -1, 0 and 1, whose faces a place reaches."""
    return -1 if x < 0.5 else 0, 1 if x >= r - 1.0 else 0


@parallel_kernel
def count_reaching(position, offsets, point_coords, bucket_size, r, counts):
    """Count the points of each Bucket that reach faces of each neighbour: counts [buckets, 27]."""
    inverse_h = r / bucket_size
    for b in prange(counts.shape[0]):
        for direction in range(27):
            counts[b, direction] = 0
        for p in range(offsets[b], offsets[b + 1]):
            ax, bx = reach_of((position[p, 0] - point_coords[b, 0] * bucket_size) * inverse_h, r)
            ay, by = reach_of((position[p, 1] - point_coords[b, 1] * bucket_size) * inverse_h, r)
            az, bz = reach_of((position[p, 2] - point_coords[b, 2] * bucket_size) * inverse_h, r)
            for i in range(ax, bx + 1):
                for j in range(ay, by + 1):
                    for k in range(az, bz + 1):
                        counts[b, 9 * i + 3 * j + k + 13] += 1


@parallel_kernel
def list_reaching(position, offsets, point_coords, bucket_size, r, starts, members):
    """List those points, in their order: members[starts[27 b + direction] : ...], int32."""
    inverse_h = r / bucket_size
    for b in prange(offsets.shape[0] - 1):
        filled = np.zeros(27, np.int64)
        for p in range(offsets[b], offsets[b + 1]):
            ax, bx = reach_of((position[p, 0] - point_coords[b, 0] * bucket_size) * inverse_h, r)
            ay, by = reach_of((position[p, 1] - point_coords[b, 1] * bucket_size) * inverse_h, r)
            az, bz = reach_of((position[p, 2] - point_coords[b, 2] * bucket_size) * inverse_h, r)
            for i in range(ax, bx + 1):
                for j in range(ay, by + 1):
                    for k in range(az, bz + 1):
                        direction = 9 * i + 3 * j + k + 13
                        members[starts[27 * b + direction] + filled[direction]] = p
                        filled[direction] += 1


@strict_kernel
def points_to_faces(
    position, first, second, third, quantities, starts, members, point_coords, bucket_size, buckets,
    point_buckets, first_faces, second_faces, third_faces,
):  # fmt: skip
    """Add one to three quantities [n, 3] of points to those of faces [buckets, 3, r, r, r].

    Args: quantities: how many; starts, members: from `list_reaching`; buckets int32, which volume
        Buckets to fill; point_buckets int32 [local, 27], the points' Bucket in each direction or
        negative.
    """
    r = first_faces.shape[2]
    inverse_h = r / bucket_size
    for n in prange(buckets.shape[0]):
        b = np.uint64(buckets[n])
        for direction in range(27):
            source = point_buckets[b, direction]
            if source < 0:
                continue
            # Relative to the home Bucket, a neighbour's corner is a whole Bucket away.
            cx = (point_coords[source, 0] - (direction // 9 - 1)) * bucket_size
            cy = (point_coords[source, 1] - (direction // 3 % 3 - 1)) * bucket_size
            cz = (point_coords[source, 2] - (direction % 3 - 1)) * bucket_size
            place = 27 * source + 26 - direction  # as the source sees this Bucket
            for e in range(starts[place], starts[place + 1]):
                p = np.uint64(members[e])
                x = (position[p, 0] - cx) * inverse_h
                y = (position[p, 1] - cy) * inverse_h
                z = (position[p, 2] - cz) * inverse_h
                for axis in range(np.uint64(3)):
                    i, j, k, fx, fy, fz = lower_corner(x, y, z, axis)
                    one = first[p, axis]
                    two = second[p, axis] if quantities > 1 else 0.0
                    three = third[p, axis] if quantities > 2 else 0.0
                    for corner in range(8):
                        ci = i + (corner >> 2)
                        cj = j + ((corner >> 1) & 1)
                        ck = k + (corner & 1)
                        if min(ci, cj, ck) < 0 or max(ci, cj, ck) >= r:
                            continue
                        weight = corner_weight(corner, fx, fy, fz)
                        ui, uj, uk = np.uint64(ci), np.uint64(cj), np.uint64(ck)
                        first_faces[b, axis, ui, uj, uk] += weight * one
                        if quantities > 1:
                            second_faces[b, axis, ui, uj, uk] += weight * two
                        if quantities > 2:
                            third_faces[b, axis, ui, uj, uk] += weight * three
