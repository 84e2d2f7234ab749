"""Points and the faces of a staggered grid: gather u at points, and the exact transpose of that.

Trilinear weights at face centres: component a of a velocity lives on the lower faces along a. The
splat gathers too: a Bucket's faces collect from the points of the 27 Buckets around it, in a fixed
order, so that sums are the same for any number of threads and ranks. Places are relative to the
Bucket through the direction of the neighbour, so periodic axes need no special case.
"""

from __future__ import annotations

import math

from loki_core.kernels.jit import inlined, prange, strict_kernel


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
    position, offsets, point_coords, bucket_size, volume_rows, neighbours, faces, fraction,
    has_fraction, background, values, reached,
):  # fmt: skip
    """Interpolate faces [buckets, 3, r, r, r] at local points: values [n, 3].

    Args: offsets int64 [point buckets + 1]; point_coords int32 [point buckets, 3]; volume_rows
        int32 [local point buckets], the volume's Bucket of each or negative; neighbours int32
        [local volume buckets, 27]; fraction [buckets, 3, r, r, r], 0 for faces in solids; reached
        [n, 3]: sum of the weights of faces that are stored and open; background [3]: what faces
        are that are not stored.
    """
    r = faces.shape[2]
    inverse_h = r / bucket_size
    for b in prange(volume_rows.shape[0]):
        row = volume_rows[b]
        for p in range(offsets[b], offsets[b + 1]):
            x = (position[p, 0] - point_coords[b, 0] * bucket_size) * inverse_h
            y = (position[p, 1] - point_coords[b, 1] * bucket_size) * inverse_h
            z = (position[p, 2] - point_coords[b, 2] * bucket_size) * inverse_h
            for axis in range(3):
                total, open_part = 0.0, 0.0
                i, j, k, fx, fy, fz = lower_corner(x, y, z, axis)
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
                    if has_fraction == 1 and fraction[source, axis, li, lj, lk] > 0.0:
                        open_part += weight
                values[p, axis] = total
                if has_fraction == 1:
                    reached[p, axis] = open_part


@strict_kernel
def points_to_faces(
    position, first, second, has_second, offsets, point_coords, bucket_size, buckets,
    point_buckets, first_faces, second_faces,
):  # fmt: skip
    """Add one or two quantities [n, 3] of points to those of faces [buckets, 3, r, r, r].

    Args: buckets int32, which volume Buckets to fill; point_buckets int32 [local, 27], the points'
        Bucket in each direction or negative.
    """
    r = first_faces.shape[2]
    inverse_h = r / bucket_size
    for n in prange(buckets.shape[0]):
        b = buckets[n]
        for direction in range(27):
            source = point_buckets[b, direction]
            if source < 0:
                continue
            # Relative to the home Bucket, a neighbour's corner is a whole Bucket away.
            cx = (point_coords[source, 0] - (direction // 9 - 1)) * bucket_size
            cy = (point_coords[source, 1] - (direction // 3 % 3 - 1)) * bucket_size
            cz = (point_coords[source, 2] - (direction % 3 - 1)) * bucket_size
            for p in range(offsets[source], offsets[source + 1]):
                x = (position[p, 0] - cx) * inverse_h
                y = (position[p, 1] - cy) * inverse_h
                z = (position[p, 2] - cz) * inverse_h
                if min(x, y, z) <= -1.0 or max(x, y, z) >= r + 1.0:
                    continue
                for axis in range(3):
                    i, j, k, fx, fy, fz = lower_corner(x, y, z, axis)
                    for corner in range(8):
                        ci = i + (corner >> 2)
                        cj = j + ((corner >> 1) & 1)
                        ck = k + (corner & 1)
                        if min(ci, cj, ck) < 0 or max(ci, cj, ck) >= r:
                            continue
                        weight = corner_weight(corner, fx, fy, fz)
                        first_faces[b, axis, ci, cj, ck] += weight * first[p, axis]
                        if has_second == 1:
                            second_faces[b, axis, ci, cj, ck] += weight * second[p, axis]
