"""The prolongator of smoothed aggregation and the coarse matrix, by rows of blocks.

    P = (I - omega S) T,    A' = P^T S P    (Vanek, Mandel, Brezina 1996)

S is the scaled matrix (`block_scaling.py`), T the orthonormal modes of the aggregates: vertex i has
a block T_i in the column of its aggregate alone. Coarse vertices have six unknowns. While levels
are made the blocks of P are stored by rows, six numbers each, which is P^T by columns; loads take
eight numbers of which six count. A row of A' is summed by one thread, first P^T S, then that times
P, so that nothing as large as S P is stored and threads change no bit:

    Z_Ij = sum_i P_iI^T S_ij,    A'_IJ = sum_j Z_Ij P_jJ
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.algebra.row_patterns import PARTS
from loki_core.kernels.basics.rows import lane, load, repeated, store
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange


@device
def smooth_row(
    starts, neighbours, blocks, width, aggregate, tentative, omega, i, first, count, p_columns,
    sums,
):  # fmt: skip
    """Sum one row of P, eight numbers for each row of each block."""
    for t in range(count * width):
        store(sums, 8 * t, repeated(0.0))
    for e in range(starts[i], starts[i + 1]):
        j = np.int64(neighbours[e])
        owner = aggregate[j]
        if owner < 0:
            continue
        place = 0
        while p_columns[first + place] != owner:
            place += 1
        for a in range(width):
            at = 8 * (place * width + a)
            total = load(sums, at)
            if j == i:
                total = total + load(tentative, 6 * (width * j + a))
            for b in range(width):
                factor = omega * blocks[(e * width + b) * width + a]
                total = total - load(tentative, 6 * (width * j + b)) * factor
            store(sums, at, total)


@parallel_kernel
def fill_prolongator(
    starts, neighbours, blocks, width, aggregate, tentative, omega, room, p_starts, p_columns,
    p_rows,
):  # fmt: skip
    """Fill the blocks of P = (I - omega S) T.

    Args:
        blocks: Of S, by columns.
        aggregate: Of each vertex, or -1.
        tentative: T, [vertices width 6 + spare].
        room: Length of the longest row of P.
        p_rows: Blocks of P by rows, [blocks width 6 + spare].
    """
    vertices = starts.shape[0] - 1
    for block in prange((vertices + 255) // 256):
        sums = np.empty(8 * width * room)
        for i in range(256 * block, min(256 * block + 256, vertices)):
            first, count = p_starts[i], p_starts[i + 1] - p_starts[i]
            smooth_row(
                starts, neighbours, blocks, width, aggregate, tentative, omega, i, first, count,
                p_columns, sums,
            )  # fmt: skip
            for t in range(count * width):
                for k in range(6):
                    p_rows[6 * (first * width + t) + k] = sums[8 * t + k]


@inlined
def add_transposed(p_rows, of_p, blocks, of_s, width, z, at):
    """Add P_iI^T S_ij to a block of Z, by columns of eight."""
    for _ in range(width):
        total = load(z, at)
        for a in range(width):
            total = total + load(p_rows, of_p + np.uint64(6) * a) * blocks[of_s + a]
        store(z, at, total)
        of_s += width
        at += np.uint64(8)


@inlined
def add_block(z, of_z, p_rows, of_p, width, sums, at):
    """Add Z_Ij P_jJ to a block of A', by columns of eight."""
    for k in range(np.uint64(6)):
        total = load(sums, at)
        for b in range(width):
            total = total + load(z, of_z + np.uint64(8) * b) * p_rows[of_p + np.uint64(6) * b + k]
        store(sums, at, total)
        at += np.uint64(8)


@device
def sum_transposed(
    starts, neighbours, blocks, width, r_starts, r_columns, source, p_rows, c, places, met, z
):
    """Sum row c of Z = P^T S; return how many vertices it meets, which are listed in `met`."""
    count = 0
    for r in range(r_starts[c], r_starts[c + 1]):
        i = r_columns[r]
        for e in range(starts[i], starts[i + 1]):
            j = neighbours[e]
            if places[j] < 0:
                places[j] = count
                met[count] = j
                for b in range(width):
                    store(z, 8 * (count * width + b), repeated(0.0))
                count += 1
            add_transposed(
                p_rows, np.uint64(6 * width * source[r]), blocks, np.uint64(width * width * e),
                np.uint64(width), z, np.uint64(8 * width * places[j]),
            )  # fmt: skip
    return count


@device
def sum_coarse_row(
    starts, neighbours, blocks, width, r_starts, r_columns, source, p_starts, p_columns, p_rows, c,
    places, met, z, marks, sums,
):  # fmt: skip
    """Sum row c of A', whose columns have their places in `marks`; leave `places` at -1."""
    count = sum_transposed(
        starts, neighbours, blocks, width, r_starts, r_columns, source, p_rows, c, places, met, z
    )
    for m in range(count):
        j = met[m]
        places[j] = -1
        for p in range(p_starts[j], p_starts[j + 1]):
            add_block(
                z, np.uint64(8 * width * m), p_rows, np.uint64(6 * width * p), np.uint64(width),
                sums, np.uint64(48 * marks[p_columns[p]]),
            )  # fmt: skip


@parallel_kernel
def fill_coarse(
    starts, neighbours, blocks, width, r_starts, r_columns, source, p_starts, p_columns, p_rows,
    room, longest, c_starts, c_columns, c_blocks,
):  # fmt: skip
    """Fill the blocks of A' = P^T S P.

    Args:
        blocks: Of S, by columns.
        r_starts, r_columns, source: Pattern of P^T, and which block of P each one is.
        p_rows: Blocks of P by rows.
        room: No fewer than the vertices that any row of P^T S meets.
        longest: Length of the longest row of A'.
        c_blocks: Of A', by columns; eight numbers more than it needs.
    """
    coarse, vertices = c_starts.shape[0] - 1, starts.shape[0] - 1
    for part in prange(PARTS):
        places, met = np.full(vertices, -1, np.int64), np.empty(room, np.int32)
        marks, sums = np.empty(coarse, np.int64), np.empty(48 * longest)
        z = np.empty(8 * width * room)
        for c in range(coarse * part // PARTS, coarse * (part + 1) // PARTS):
            first, count = c_starts[c], c_starts[c + 1] - c_starts[c]
            sums[:] = 0.0
            for t in range(count):
                marks[c_columns[first + t]] = t
            sum_coarse_row(
                starts, neighbours, blocks, width, r_starts, r_columns, source, p_starts,
                p_columns, p_rows, c, places, met, z, marks, sums,
            )  # fmt: skip
            for t in range(6 * count):
                for a in range(6):
                    c_blocks[6 * (6 * first + t) + a] = sums[8 * t + a]


@parallel_kernel
def finish_prolongator(p_columns, p_rows, width, halves, down):
    """Bring the columns of P to the scaled coarse unknowns, P_iI L_I^-T.

    Args:
        p_rows: Blocks of P by rows; scaled in place.
        halves: L^-1 of the coarse diagonal blocks, by columns.
        down: Filled: blocks of P by columns, as products take them, in single precision.
    """
    for p in prange(p_columns.shape[0]):
        half = 36 * np.int64(p_columns[p])
        for a in range(width):
            at = 6 * (width * p + a)
            total = repeated(0.0)
            for m in range(6):
                total = total + load(halves, half + 6 * m) * p_rows[at + m]
            for k in range(6):
                p_rows[at + k] = lane(total, k)
                down[(6 * p + k) * width + a] = lane(total, k)


@parallel_kernel
def gather_blocks(source, blocks, area, out):
    """Copy blocks in another order, in single precision."""
    for r in prange(source.shape[0]):
        for t in range(area):
            out[area * r + t] = blocks[area * source[r] + t]
