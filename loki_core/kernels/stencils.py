"""Stencils on a sparse volume channel: Buckets of r^3 voxels and a neighbour table.

    laplacian:  (u[i-1] + u[i+1] + u[j-1] + u[j+1] + u[k-1] + u[k+1] - 6 u) / h^2

A missing neighbour is a negative entry e of the table; it names boundary condition -1 - e, and
the voxel outside is  scale * inside + value:

    no flux                     scale  1, value 0
    u = g on the face           scale -1, value 2 g
    u = g in the voxel outside  scale  0, value g

A Bucket of 8^3 that has all six neighbours is read where it lies, one row along z at a time: the
eight voxels are written out as straight-line code, of which LLVM makes vectors. Any other Bucket
is gathered into a block of (r + 2)^3 voxels, whose outer layer comes from the neighbours or from
a boundary condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    scratch = np.empty((blocks, (resolution + 2) ** 3), values.dtype)
    with _straight_line_vectors():
        laplacian_of_buckets(
            values.reshape(-1), buckets_to_do, neighbours,
            np.asarray(boundary_scale, values.dtype), np.asarray(boundary_value, values.dtype),
            number(inverse_h2), number(6.0 * inverse_h2), resolution, borders,
            scratch, out.reshape(-1),
        )  # fmt: skip


@contextmanager
def _straight_line_vectors() -> Iterator[None]:
    """Let LLVM make vectors of straight-line code while a kernel compiles: numba has it off."""
    import numba

    before = numba.config.SLP_VECTORIZE
    numba.config.SLP_VECTORIZE = 1
    try:
        yield
    finally:
        numba.config.SLP_VECTORIZE = before


@parallel_kernel
def laplacian_of_buckets(
    values, buckets, neighbours, scale, value, inverse_h2, six, resolution, borders, scratch, out
):  # fmt: skip
    for block in prange(borders.shape[0] - 1):
        # One call per block: array views made inside the loop would count references, and threads
        # would then wait for each other on the counters.
        laplacian_of_range(
            values, buckets[borders[block] : borders[block + 1]], neighbours, scale, value,
            inverse_h2, six, np.uint64(resolution), scratch[block], out,
        )  # fmt: skip


@device
def laplacian_of_range(
    values, buckets, neighbours, scale, value, inverse_h2, six, r, block, out
):  # fmt: skip
    for n in range(buckets.shape[0]):
        bucket = np.uint64(buckets[n])
        enclosed = (
            min(neighbours[bucket, LOWER_X], neighbours[bucket, UPPER_X]) >= 0
            and min(neighbours[bucket, LOWER_Y], neighbours[bucket, UPPER_Y]) >= 0
            and min(neighbours[bucket, LOWER_Z], neighbours[bucket, UPPER_Z]) >= 0
        )
        if enclosed and r == np.uint64(8):
            laplacian_in_place(values, bucket, neighbours, inverse_h2, six, out)
        else:
            gather_block(values, bucket, neighbours, scale, value, r, block)
            laplacian_of_block(block, bucket, inverse_h2, six, r, out)


@device
def laplacian_in_place(values, bucket, neighbours, inverse_h2, six, out):
    """Bucket of 8^3 with six neighbours: 64 rows, each with the four rows around it."""
    row = np.uint64(8)
    plane = np.uint64(64)
    size = np.uint64(512)
    home = bucket * size
    lower_x = np.uint64(neighbours[bucket, LOWER_X]) * size + size - plane
    upper_x = np.uint64(neighbours[bucket, UPPER_X]) * size
    lower_y = np.uint64(neighbours[bucket, LOWER_Y]) * size + plane - row
    upper_y = np.uint64(neighbours[bucket, UPPER_Y]) * size
    lower_z = np.uint64(neighbours[bucket, LOWER_Z]) * size + row - np.uint64(1)
    upper_z = np.uint64(neighbours[bucket, UPPER_Z]) * size
    for i in range(row):
        for j in range(row):
            inside = i * plane + j * row
            here = home + inside
            laplacian_of_row(
                values, here,
                here - plane if i > 0 else lower_x + inside,
                here + plane if i < 7 else upper_x + j * row,
                here - row if j > 0 else lower_y + inside,
                here + row if j < 7 else upper_y + i * plane,
                values[lower_z + inside], values[upper_z + inside], inverse_h2, six, out, here,
            )  # fmt: skip


@device
def laplacian_of_row(v, p, a, b, c, d, below, above, inverse_h2, six, out, place):
    """Eight voxels from v[p] on, the four rows beside them, and the two voxels at the ends.

    All loads come before all stores: LLVM does not know that the arrays do not overlap.
    """
    q = np.uint64(1)
    v0 = v[p]
    v1 = v[p + q]
    v2 = v[p + np.uint64(2)]
    v3 = v[p + np.uint64(3)]
    v4 = v[p + np.uint64(4)]
    v5 = v[p + np.uint64(5)]
    v6 = v[p + np.uint64(6)]
    v7 = v[p + np.uint64(7)]
    s0 = v[a] + v[b] + v[c] + v[d]
    s1 = v[a + q] + v[b + q] + v[c + q] + v[d + q]
    q = np.uint64(2)
    s2 = v[a + q] + v[b + q] + v[c + q] + v[d + q]
    q = np.uint64(3)
    s3 = v[a + q] + v[b + q] + v[c + q] + v[d + q]
    q = np.uint64(4)
    s4 = v[a + q] + v[b + q] + v[c + q] + v[d + q]
    q = np.uint64(5)
    s5 = v[a + q] + v[b + q] + v[c + q] + v[d + q]
    q = np.uint64(6)
    s6 = v[a + q] + v[b + q] + v[c + q] + v[d + q]
    q = np.uint64(7)
    s7 = v[a + q] + v[b + q] + v[c + q] + v[d + q]
    out[place] = (s0 + (below + v1)) * inverse_h2 - v0 * six
    out[place + np.uint64(1)] = (s1 + (v0 + v2)) * inverse_h2 - v1 * six
    out[place + np.uint64(2)] = (s2 + (v1 + v3)) * inverse_h2 - v2 * six
    out[place + np.uint64(3)] = (s3 + (v2 + v4)) * inverse_h2 - v3 * six
    out[place + np.uint64(4)] = (s4 + (v3 + v5)) * inverse_h2 - v4 * six
    out[place + np.uint64(5)] = (s5 + (v4 + v6)) * inverse_h2 - v5 * six
    out[place + np.uint64(6)] = (s6 + (v5 + v7)) * inverse_h2 - v6 * six
    out[place + np.uint64(7)] = (s7 + (v6 + above)) * inverse_h2 - v7 * six


@device
def laplacian_of_block(block, bucket, inverse_h2, six, r, out):
    """Run the stencil on a gathered block."""
    one = np.uint64(1)
    side = r + np.uint64(2)
    plane = side * side
    home = bucket * r * r * r
    for i in range(r):
        for j in range(r):
            p = (i + one) * plane + (j + one) * side + one
            place = home + (i * r + j) * r
            if r == np.uint64(8):
                laplacian_of_row(
                    block, p, p - plane, p + plane, p - side, p + side,
                    block[p - one], block[p + r], inverse_h2, six, out, place,
                )  # fmt: skip
            else:
                for k in range(p, p + r):
                    x = block[k - plane] + block[k + plane]
                    y = block[k - side] + block[k + side]
                    z = block[k - one] + block[k + one]
                    out[place + k - p] = (x + y + z) * inverse_h2 - block[k] * six


@device
def gather_block(values, bucket, neighbours, scale, value, r, block):
    """Copy a Bucket and one layer around its faces to a block of (r + 2)^3."""
    zero = np.uint64(0)
    one = np.uint64(1)
    face = r * r
    size = face * r
    side = r + np.uint64(2)
    plane = side * side
    origin = plane + side + one
    home = bucket * size
    for i in range(r):
        gather_face(values, home + i * face, r, one, block, origin + i * plane, side, one, r)
    fill_face(values, neighbours[bucket, LOWER_X], scale, value, size - face, home, r, one,
              block, origin - plane, side, one, r)  # fmt: skip
    fill_face(values, neighbours[bucket, UPPER_X], scale, value, zero, home + size - face, r, one,
              block, origin + r * plane, side, one, r)  # fmt: skip
    fill_face(values, neighbours[bucket, LOWER_Y], scale, value, face - r, home, face, one,
              block, origin - side, plane, one, r)  # fmt: skip
    fill_face(values, neighbours[bucket, UPPER_Y], scale, value, zero, home + face - r, face, one,
              block, origin + r * side, plane, one, r)  # fmt: skip
    fill_face(values, neighbours[bucket, LOWER_Z], scale, value, r - one, home, face, r,
              block, origin - one, plane, side, r)  # fmt: skip
    fill_face(values, neighbours[bucket, UPPER_Z], scale, value, zero, home + r - one, face, r,
              block, origin + r, plane, side, r)  # fmt: skip


@device
def fill_face(
    values, entry, scale, value, there, inside, step, small_step, block, p, p_step, p_small_step, r
):  # fmt: skip
    """Fill r^2 voxels: from `there` in the neighbour, or made from those `inside` the Bucket."""
    if entry >= 0:
        source = np.uint64(entry) * r * r * r + there
        gather_face(values, source, step, small_step, block, p, p_step, p_small_step, r)
    else:
        for i in range(r):
            for j in range(r):
                voxel = values[inside + i * step + j * small_step]
                outside = scale[-1 - entry] * voxel + value[-1 - entry]
                block[p + i * p_step + j * p_small_step] = outside


@device
def gather_face(values, source, step, small_step, block, p, p_step, p_small_step, r):
    for i in range(r):
        for j in range(r):
            block[p + i * p_step + j * p_small_step] = values[source + i * step + j * small_step]
