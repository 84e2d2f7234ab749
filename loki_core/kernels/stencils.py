"""Stencils on a sparse volume channel: Buckets of r^3 voxels and a neighbour table.

    laplacian:  (u[i-1] + u[i+1] + u[j-1] + u[j+1] + u[k-1] + u[k+1] - 6 u) / h^2

A missing neighbour is a negative entry e of the table; it names boundary condition -1 - e, and
the voxel outside is  scale * inside + value:

    no flux                     scale  1, value 0
    u = g on the face           scale -1, value 2 g
    u = g in the voxel outside  scale  0, value g

Each Bucket is first taken for itself: r^3 contiguous voxels, whose neighbours along y and z are a
constant distance away, so that long loops, of which LLVM makes vectors, sum them into two scratch
arrays. The sums that reached over the end of a plane or row are then corrected with voxels of the
neighbouring Buckets. A last loop adds the neighbours along x and writes the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.kernels.jit import device, parallel_kernel, prange, thread_count

__all__ = ["laplacian"]

Float = npt.NDArray[np.floating[Any]]
Table = npt.NDArray[np.int32]

BUCKETS_PER_BLOCK = 64  # fewer do not pay for a thread
# columns (dx+1)*9 + (dy+1)*3 + dz+1 of the neighbour table that share a face
LOWER_X, UPPER_X = 4, 22
LOWER_Y, UPPER_Y = 10, 16
LOWER_Z, UPPER_Z = 12, 14


def laplacian(
    values: Float,
    buckets_to_do: Table,
    neighbours: Table,
    *,
    boundary_scale: Float,
    boundary_value: Float,
    inverse_h2: float,
    out: Float,
) -> None:
    """Fill the Laplacian of some Buckets of a scalar channel.

    Args:
        values: A channel with its ghosts, shape [buckets, r, r, r].
        buckets_to_do: Rows of `values` to work on, such as the interior ones, shape [m].
        neighbours: Neighbour table, shape [buckets, 27].
        boundary_scale: Factor on the voxel inside, for each boundary condition.
        boundary_value: What is added to it, in the channel's unit.
        inverse_h2: 1 / voxel size^2 [1/m^2].
        out: Filled for `buckets_to_do`, in the channel's unit / m^2, shape [buckets, r, r, r].
    """
    if values.shape[1:] != out.shape[1:] or values.dtype != out.dtype:
        raise ValueError(f"out is {out.dtype}{out.shape}, values are {values.dtype}{values.shape}")
    if not len(buckets_to_do):
        return
    resolution = values.shape[1]
    number = values.dtype.type
    blocks = max(1, min(4 * thread_count(), len(buckets_to_do) // BUCKETS_PER_BLOCK))
    borders = np.arange(blocks + 1, dtype=np.int64) * len(buckets_to_do) // blocks
    # lengths that are no multiple of a page: equal distances from a page border delay each other
    along_y = np.empty((blocks, resolution**3 + 16), values.dtype)
    along_z = np.empty((blocks, resolution**3 + 48), values.dtype)
    outside = np.empty((blocks, resolution**2), values.dtype)
    laplacian_of_buckets(
        values.reshape(-1), buckets_to_do, neighbours,
        np.asarray(boundary_scale, values.dtype), np.asarray(boundary_value, values.dtype),
        number(inverse_h2), number(6.0 * inverse_h2), resolution, borders,
        along_y, along_z, outside, out.reshape(-1),
    )  # fmt: skip


@parallel_kernel
def laplacian_of_buckets(
    values, buckets, neighbours, scale, value, inverse_h2, six, resolution, borders,
    along_y, along_z, outside, out,
):  # fmt: skip
    for block in prange(borders.shape[0] - 1):
        # One call per block: array views made inside the loop would count references, and threads
        # would then wait for each other on the counters.
        laplacian_of_range(
            values, buckets[borders[block] : borders[block + 1]], neighbours, scale, value,
            inverse_h2, six, np.uint64(resolution), along_y[block], along_z[block],
            outside[block], out,
        )  # fmt: skip


@device
def laplacian_of_range(
    values, buckets, neighbours, scale, value, inverse_h2, six, r, along_y, along_z, outside, out
):  # fmt: skip
    face = r * r
    size = face * r
    last = size - face
    for n in range(buckets.shape[0]):
        bucket = np.uint64(buckets[n])
        home = bucket * size
        lower = start_of(neighbours[bucket, LOWER_Y], home, size)
        upper = start_of(neighbours[bucket, UPPER_Y], home, size)
        sum_both_sides(values, home, size, r, along_y)
        if r == np.uint64(8):
            correct_rows_of_eight(values, home, lower, upper, along_y)
        else:
            correct_rows(values, home, lower, upper, r, along_y)
        lower = start_of(neighbours[bucket, LOWER_Z], home, size)
        upper = start_of(neighbours[bucket, UPPER_Z], home, size)
        sum_both_sides(values, home, size, np.uint64(1), along_z)
        correct_ends(values, home, lower, upper, r, along_z)
        extend_rows(values, bucket, neighbours, scale, value, r, along_y)
        extend_ends(values, bucket, neighbours, scale, value, r, along_z)

        add_planes(
            values, home, values, home + face + face, home, face, last - face,
            values, along_y, along_z, inverse_h2, six, out,
        )  # fmt: skip
        entry = neighbours[bucket, LOWER_X]
        lower = start_of(entry, home, size) + last
        if entry < 0:
            extend_plane(values, home, scale[-1 - entry], value[-1 - entry], outside)
        add_planes(
            outside if entry < 0 else values, np.uint64(0) if entry < 0 else lower,
            values, home + face, home, np.uint64(0), face,
            values, along_y, along_z, inverse_h2, six, out,
        )  # fmt: skip
        entry = neighbours[bucket, UPPER_X]
        upper = start_of(entry, home, size)
        if entry < 0:
            extend_plane(values, home + last, scale[-1 - entry], value[-1 - entry], outside)
        add_planes(
            values, home + last - face,
            outside if entry < 0 else values, np.uint64(0) if entry < 0 else upper,
            home, last, face,
            values, along_y, along_z, inverse_h2, six, out,
        )  # fmt: skip


@device
def start_of(entry, home, size):
    """First voxel of a neighbour; of the Bucket itself, to be corrected, where there is none."""
    return np.uint64(entry) * size if entry >= 0 else home


@device
def sum_both_sides(values, home, size, distance, sums):
    """Sum of the voxels before and after; wrong where they are in another plane, row or Bucket."""
    count = size - distance - distance
    before = values[home : home + count]
    after = values[home + distance + distance : home + size]
    target = sums[distance : distance + count]
    for n in range(target.shape[0]):  # views: the compiler sees that no index is negative
        target[n] = before[n] + after[n]


@device
def correct_rows(values, home, lower, upper, r, along_y):
    """Correct the first and the last row of each plane, whose neighbours are in other Buckets."""
    face = r * r
    last = face - r
    for plane in range(np.uint64(0), face * r, face):
        for k in range(plane, plane + r):
            along_y[k] = values[lower + k + last] + values[home + k + r]
            along_y[k + last] = values[home + k + last - r] + values[upper + k]


@device
def correct_rows_of_eight(values, home, lower, upper, along_y):
    """Do the same for r = 8, where loops over rows would cost four times as much."""
    for plane in range(np.uint64(0), np.uint64(512), np.uint64(64)):
        here = home + plane
        add_eight(values, lower + plane + np.uint64(56), here + np.uint64(8), along_y, plane)
        add_eight(
            values, here + np.uint64(48), upper + plane, along_y, plane + np.uint64(56)
        )  # fmt: skip


@device
def add_eight(values, p, q, sums, place):
    a = values[p] + values[q]
    b = values[p + np.uint64(1)] + values[q + np.uint64(1)]
    c = values[p + np.uint64(2)] + values[q + np.uint64(2)]
    d = values[p + np.uint64(3)] + values[q + np.uint64(3)]
    e = values[p + np.uint64(4)] + values[q + np.uint64(4)]
    f = values[p + np.uint64(5)] + values[q + np.uint64(5)]
    g = values[p + np.uint64(6)] + values[q + np.uint64(6)]
    h = values[p + np.uint64(7)] + values[q + np.uint64(7)]
    sums[place] = a
    sums[place + np.uint64(1)] = b
    sums[place + np.uint64(2)] = c
    sums[place + np.uint64(3)] = d
    sums[place + np.uint64(4)] = e
    sums[place + np.uint64(5)] = f
    sums[place + np.uint64(6)] = g
    sums[place + np.uint64(7)] = h


@device
def correct_ends(values, home, lower, upper, r, along_z):
    """Correct the first and the last voxel of each row."""
    one = np.uint64(1)
    last = r - one
    for p in range(np.uint64(0), r * r * r, r):
        along_z[p] = values[lower + p + last] + values[home + p + one]
        along_z[p + last] = values[home + p + last - one] + values[upper + p]


@device
def extend_rows(values, bucket, neighbours, scale, value, r, along_y):
    """Correct the rows at a boundary."""
    face = r * r
    last = face - r
    home = bucket * face * r
    entry = neighbours[bucket, LOWER_Y]
    if entry < 0:
        for plane in range(np.uint64(0), face * r, face):
            for k in range(plane, plane + r):
                ghost = scale[-1 - entry] * values[home + k] + value[-1 - entry]
                along_y[k] = ghost + values[home + k + r]
    entry = neighbours[bucket, UPPER_Y]
    if entry < 0:
        for plane in range(last, face * r, face):
            for k in range(plane, plane + r):
                ghost = scale[-1 - entry] * values[home + k] + value[-1 - entry]
                along_y[k] = values[home + k - r] + ghost


@device
def extend_ends(values, bucket, neighbours, scale, value, r, along_z):
    """Correct the ends of rows at a boundary."""
    one = np.uint64(1)
    size = r * r * r
    home = bucket * size
    entry = neighbours[bucket, LOWER_Z]
    if entry < 0:
        for p in range(np.uint64(0), size, r):
            ghost = scale[-1 - entry] * values[home + p] + value[-1 - entry]
            along_z[p] = ghost + values[home + p + one]
    entry = neighbours[bucket, UPPER_Z]
    if entry < 0:
        for p in range(r - one, size, r):
            ghost = scale[-1 - entry] * values[home + p] + value[-1 - entry]
            along_z[p] = values[home + p - one] + ghost


@device
def extend_plane(values, inside, scale, value, outside):
    """Make the plane outside from the one inside."""
    for n in range(np.uint64(outside.shape[0])):
        outside[n] = scale * values[inside + n] + value


@device
def add_planes(
    lower, p, upper, q, home, first, count, values, along_y, along_z, inverse_h2, six, out
):  # fmt: skip
    """Add the neighbours along x and write `count` voxels, from voxel `first` of the Bucket on."""
    below = lower[p : p + count]
    above = upper[q : q + count]
    here = values[home + first : home + first + count]
    y = along_y[first : first + count]
    z = along_z[first : first + count]
    target = out[home + first : home + first + count]
    for n in range(target.shape[0]):
        target[n] = (below[n] + above[n] + y[n] + z[n]) * inverse_h2 - here[n] * six
