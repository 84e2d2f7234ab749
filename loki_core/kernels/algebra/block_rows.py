"""Compressed rows of small dense blocks, and the products of a multigrid cycle with them.

The blocks of row i are starts[i] to starts[i + 1], each `height` x `width`, and stored by columns:

    M[i, j][a, b] = blocks[(e width + b) height + a],    j = columns[e]

A product is then a sum of columns, each times one number of the vector. A column is loaded as eight
numbers side by side, of which the first `height` count: the array `blocks` ends with eight numbers
more than it needs. Rows are independent, so the number of threads changes no bit.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.rows import lane, load, repeated
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange

SPARE = 8  # numbers at the end of every array of blocks, which loads may touch


@inlined
def row_product(starts, columns, blocks, height, width, x, i):
    """Row i of M x, side by side."""
    tall, wide = np.uint64(height), np.uint64(width)
    first, last = np.uint64(starts[i]), np.uint64(starts[i + 1])
    sums = repeated(blocks.dtype.type(0.0))
    at = first * tall * wide
    for e in range(first, last):
        begin = wide * np.uint64(np.uint32(columns[e]))
        for b in range(begin, begin + wide):
            sums = sums + load(blocks, at) * x[b]
            at += tall
    return sums


@parallel_kernel
def add_product(starts, columns, blocks, height, width, x, memory, out):
    """Write memory out + M x to out; what `out` held is not read where memory is 0.

    Args:
        x: Vector of `width` numbers for each block column.
        out: Vector of `height` numbers for each block row.
    """
    m = np.float32(memory)
    for i in prange(starts.shape[0] - 1):
        product = row_product(starts, columns, blocks, height, width, x, i)
        first = np.uint64(height * i)
        for a in range(np.uint64(height)):
            moved = lane(product, a)
            if m != np.float32(0.0):
                moved += m * out[first + a]
            out[first + a] = moved


@parallel_kernel
def subtract_product(starts, columns, blocks, width, r, x, out):
    """Write the residual r - A x to out, of square blocks."""
    for i in prange(starts.shape[0] - 1):
        product = row_product(starts, columns, blocks, width, width, x, i)
        first = np.uint64(width * i)
        for a in range(np.uint64(width)):
            out[first + a] = r[first + a] - lane(product, a)


@parallel_kernel
def relax(starts, columns, blocks, width, r, x, factor, momentum, memory, out):
    """One step of a Chebyshev smoother, of square blocks.

    out = x + momentum x - memory out + factor (r - A x), where out holds the x before on entry:
    momentum = memory, but for the step after a zero start.
    """
    f, m, k = np.float32(factor), np.float32(1.0 + momentum), np.float32(memory)
    for i in prange(starts.shape[0] - 1):
        product = row_product(starts, columns, blocks, width, width, x, i)
        first = np.uint64(width * i)
        for a in range(np.uint64(width)):
            at = first + a
            moved = m * x[at] + f * (r[at] - lane(product, a))
            if k != np.float32(0.0):
                moved -= k * out[at]
            out[at] = moved


@device
def find_block(starts, neighbours, i, j):
    """Place of block (i, j) among ascending neighbours; -1 where there is none."""
    low, high = starts[i], starts[i + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < j:
            low = middle + 1
        else:
            high = middle
    return low if low < starts[i + 1] and neighbours[low] == j else -1


@device
def fill_vertex(indptr, indices, data, vertex_of, begin, starts, neighbours, width, i, blocks):
    """Add the entries up to the diagonal of a vertex's rows; return -1, or one without a place."""
    before, here, there = -1, -1, -1
    for row in range(begin[i], begin[i + 1]):
        a = row - begin[i]
        for e in range(indptr[row], indptr[row + 1]):
            column = indices[e]
            if column > row:
                continue
            j = vertex_of[column]
            if j != before:
                here = find_block(starts, neighbours, i, j)
                there = find_block(starts, neighbours, j, i)
                before = j
            if here < 0 or there < 0:
                return e
            b = column - begin[j]
            blocks[(here * width + b) * width + a] += data[e]
            if column < row:
                blocks[(there * width + a) * width + b] += data[e]
    return -1


@parallel_kernel
def fill_blocks(
    indptr, indices, data, vertex_of, begin, starts, neighbours, width, blocks, misfits
):
    """Fill the square blocks of a symmetric matrix from its lower triangle; the upper is not read.

    Args:
        starts, neighbours: Rows of blocks: neighbours of each vertex, ascending.
        blocks: Zeros on entry. A vertex of fewer than `width` unknowns leaves zeros.
        misfits: Filled: -1, or an entry of the vertex's rows that has no block, int64.
    """
    for i in prange(misfits.shape[0]):
        misfits[i] = fill_vertex(
            indptr, indices, data, vertex_of, begin, starts, neighbours, width, i, blocks
        )
