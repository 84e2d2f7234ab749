"""Stencils on a sparse volume channel: Buckets of r^3 voxels and a neighbour table.

    laplacian:  (u[i-1] + u[i+1] + u[j-1] + u[j+1] + u[k-1] + u[k+1] - 6 u) / h^2

A missing neighbour is a negative entry e of the table; it names boundary condition -1 - e, and
the voxel outside is  scale * inside + value:

    no flux                     scale  1, value 0
    u = g on the face           scale -1, value 2 g
    u = g in the voxel outside  scale  0, value g

Voxels are read where they lie, one row along z at a time, with the four rows beside it: in the
Bucket, in a neighbour, or, at a boundary, the row itself with the condition's scale. The eight
voxels of an 8^3 Bucket's row are written out as straight-line code, of which LLVM makes vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.kernels.basics.prefetch import prefetch
from loki_core.kernels.jit import (
    device,
    parallel_kernel,
    prange,
    straight_line,
    thread_count,
)

__all__ = ["laplacian"]

Float = npt.NDArray[np.floating[Any]]
Table = npt.NDArray[np.int32]

CACHE_LINE = 64  # bytes
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
    laplacian_of_buckets(
        values.reshape(-1), buckets_to_do, neighbours,
        np.asarray(boundary_scale, values.dtype), np.asarray(boundary_value, values.dtype),
        number(inverse_h2), number(6.0 * inverse_h2), number(1.0), resolution, borders,
        CACHE_LINE // values.itemsize, out.reshape(-1),
    )  # fmt: skip


@straight_line
@parallel_kernel
def laplacian_of_buckets(
    values, buckets, neighbours, scale, value, inverse_h2, six, one, resolution, borders, line, out
):  # fmt: skip
    for block in prange(borders.shape[0] - 1):
        # The loop is in a device function, which LLVM optimises far better than a `prange` body.
        laplacian_of_range(
            values, buckets[borders[block] : borders[block + 1]], neighbours, scale, value,
            inverse_h2, six, one, np.uint64(resolution), np.uint64(line), out,
        )  # fmt: skip


@device
def laplacian_of_range(
    values, buckets, neighbours, scale, value, inverse_h2, six, one, r, line, out
):  # fmt: skip
    """Do one Bucket after the other, row by row.

    Of each face the kernel knows the voxel beyond its first one, and the scale and value that make
    the voxels there: 1 and 0 in a neighbour.
    """
    plane = r * r
    size = plane * r
    last = r - np.uint64(1)
    first = np.uint64(0)
    zero = one - one
    for n in range(buckets.shape[0]):
        m = np.uint64(buckets[n])
        home = m * size
        end = home + size - plane
        x0, sx0, gx0 = beyond(neighbours[m, LOWER_X], size, size - plane, home, scale, value, one)
        x1, sx1, gx1 = beyond(neighbours[m, UPPER_X], size, first, end, scale, value, one)
        end = home + plane - r
        y0, sy0, gy0 = beyond(neighbours[m, LOWER_Y], size, plane - r, home, scale, value, one)
        y1, sy1, gy1 = beyond(neighbours[m, UPPER_Y], size, first, end, scale, value, one)
        end = home + last
        z0, sz0, gz0 = beyond(neighbours[m, LOWER_Z], size, last, home, scale, value, one)
        z1, sz1, gz1 = beyond(neighbours[m, UPPER_Z], size, first, end, scale, value, one)
        if n + 1 < buckets.shape[0]:
            m = np.uint64(buckets[n + 1])
            fetch_bucket(values, neighbours[m, LOWER_Y], size, line)
            fetch_bucket(values, neighbours[m, UPPER_Y], size, line)
        for i in range(r):
            x = home + i * plane
            a, sa, ga = (x0, sx0, gx0) if i == 0 else (x - plane, one, zero)
            b, sb, gb = (x1, sx1, gx1) if i == last else (x + plane, one, zero)
            for j in range(r):
                row = i * plane + j * r
                p = home + row
                c, sc, gc = (y0 + i * plane, sy0, gy0) if j == 0 else (p - r, one, zero)
                d, sd, gd = (y1 + i * plane, sy1, gy1) if j == last else (p + r, one, zero)
                g = ga + gb + gc + gd
                before = sz0 * values[z0 + row] + gz0
                after = sz1 * values[z1 + row] + gz1
                if r == np.uint64(8):
                    laplacian_of_eight(
                        values, p, a + j * r, b + j * r, c, d, sa, sb, sc, sd, g, before, after,
                        inverse_h2, six, out,
                    )  # fmt: skip
                else:
                    laplacian_of_row(
                        values, p, a + j * r, b + j * r, c, d, sa, sb, sc, sd, g, before, after,
                        inverse_h2, six, r, out,
                    )  # fmt: skip


@device
def fetch_bucket(values, entry, size, line):
    """Ask for a neighbour of the next Bucket ahead of time.

    The rows that are needed of it are far apart, and the machine does not foresee them.
    """
    if entry >= 0:
        for p in range(np.uint64(entry) * size, (np.uint64(entry) + np.uint64(1)) * size, line):
            prefetch(values, p)


@device
def beyond(entry, size, there, inside, scale, value, one):
    """(voxel, scale, value) for an entry of the table: `there` in a neighbour, or `inside`."""
    if entry >= 0:
        return np.uint64(entry) * size + there, one, one - one
    return inside, scale[-1 - entry], value[-1 - entry]


@device
def laplacian_of_row(
    v, p, a, b, c, d, sa, sb, sc, sd, g, before, after, inverse_h2, six, r, out
):  # fmt: skip
    """Row of r voxels from v[p] on, four rows beside it, and the voxels before and after it."""
    for k in range(r - np.uint64(1)):
        here = v[p + k]
        sides = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
        out[p + k] = (sides + (before + v[p + k + np.uint64(1)])) * inverse_h2 - here * six
        before = here
    k = r - np.uint64(1)
    sides = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    out[p + k] = (sides + (before + after)) * inverse_h2 - v[p + k] * six


@device
def laplacian_of_eight(
    v, p, a, b, c, d, sa, sb, sc, sd, g, before, after, inverse_h2, six, out
):  # fmt: skip
    """Do the same for eight voxels, in vectors.

    All loads come before all stores, because LLVM does not know that the arrays do not overlap,
    and the row itself comes first, because LLVM else loads it three times.
    """
    v0 = v[p]
    v1 = v[p + np.uint64(1)]
    v2 = v[p + np.uint64(2)]
    v3 = v[p + np.uint64(3)]
    v4 = v[p + np.uint64(4)]
    v5 = v[p + np.uint64(5)]
    v6 = v[p + np.uint64(6)]
    v7 = v[p + np.uint64(7)]
    s0 = v[a] * sa + v[b] * sb + v[c] * sc + v[d] * sd + g
    k = np.uint64(1)
    s1 = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    k = np.uint64(2)
    s2 = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    k = np.uint64(3)
    s3 = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    k = np.uint64(4)
    s4 = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    k = np.uint64(5)
    s5 = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    k = np.uint64(6)
    s6 = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    k = np.uint64(7)
    s7 = v[a + k] * sa + v[b + k] * sb + v[c + k] * sc + v[d + k] * sd + g
    out[p] = (s0 + (before + v1)) * inverse_h2 - v0 * six
    out[p + np.uint64(1)] = (s1 + (v0 + v2)) * inverse_h2 - v1 * six
    out[p + np.uint64(2)] = (s2 + (v1 + v3)) * inverse_h2 - v2 * six
    out[p + np.uint64(3)] = (s3 + (v2 + v4)) * inverse_h2 - v3 * six
    out[p + np.uint64(4)] = (s4 + (v3 + v5)) * inverse_h2 - v4 * six
    out[p + np.uint64(5)] = (s5 + (v4 + v6)) * inverse_h2 - v5 * six
    out[p + np.uint64(6)] = (s6 + (v5 + v7)) * inverse_h2 - v6 * six
    out[p + np.uint64(7)] = (s7 + (v6 + after)) * inverse_h2 - v7 * six
