"""Sparse matrices in slices of eight rows, and the product with a vector.

A slice stores the first entries of its eight rows, then the second ones, and so on (SELL-8). Rows
shorter than the slice's longest are filled with zeros. Entry t of row i is at

    slices[i // 8] + i % 8 + 8 t,      slices[i // 8 + 1] is the end of the slice

Where the eight columns of a slot (entry t of the eight rows) follow one another, as they do for
stencils on a grid, `runs[slot]` is the first of them: the product then loads eight values of the
vector at once and does not read the columns. Elsewhere it is -1. Where the eight values of a slot
are the same, as they are inside a fluid, `same[slot]` is that value, and the product does not read
the others; elsewhere it is not a number.

Beside compressed rows (CSR) this takes the same memory where row lengths are alike, and the product
runs at the speed of memory, because eight rows are summed side by side. Vectors may be float32 or
float64, whatever the matrix is. Whole numbers are stored in one byte: those of a stencil without
solids are 1 and 6, and less memory is read.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.rows import (
    LANES,
    gather,
    lane,
    load,
    numbers,
    repeated,
    store_first,
    total,
)
from loki_core.kernels.jit import (
    device,
    inlined,
    kernel,
    parallel_kernel,
    prange,
    strict_kernel,
)

BLOCK = 4096  # rows a partial sum goes over: fixed, so that threads do not change results


@parallel_kernel
def renumber(columns, number):
    """Replace columns by their numbers, in place."""
    for e in prange(columns.shape[0]):
        columns[e] = number[columns[e]]


@parallel_kernel
def slice_widths(indptr, widths):
    """Length of the longest row of each slice."""
    rows = indptr.shape[0] - 1
    for s in prange(widths.shape[0]):
        widest = 0
        for i in range(8 * s, min(8 * s + 8, rows)):
            widest = max(widest, indptr[i + 1] - indptr[i])
        widths[s] = widest


@parallel_kernel
def fill_slices(indptr, indices, data, slices, columns, values):
    """Copy compressed rows into slices; fill up with zeros on the row's own column."""
    rows = indptr.shape[0] - 1
    for s in prange(slices.shape[0] - 1):
        fill_slice(indptr, indices, data, rows, s, slices, columns, values)


@device
def fill_slice(indptr, indices, data, rows, s, slices, columns, values):
    """Copy the rows of one slice."""
    end = np.uint64(slices[s + 1])
    for k in range(LANES):
        i = LANES * s + k
        target = np.uint64(slices[s] + k)
        if i < rows:
            for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                columns[target] = indices[e]
                values[target] = data[e]
                target += np.uint64(8)
        while target < end:
            columns[target] = min(i, rows - 1)
            values[target] = 0.0
            target += np.uint64(8)


@parallel_kernel
def row_lengths(slices, values, rows, lengths):
    """Count the entries of each row that are not zero."""
    for i in prange(rows):
        count = 0
        for e in range(slices[i >> 3] + (i & 7), slices[(i >> 3) + 1], 8):
            count += values[e] != 0.0
        lengths[i] = count


@parallel_kernel
def fill_rows(slices, columns, values, indptr, indices, data):
    """Copy slices into compressed rows, without zeros."""
    for i in prange(indptr.shape[0] - 1):
        target = indptr[i]
        for e in range(slices[i >> 3] + (i & 7), slices[(i >> 3) + 1], 8):
            if values[e] != 0.0:
                indices[target] = columns[e]
                data[target] = values[e]
                target += 1


@parallel_kernel
def extract_diagonal(slices, columns, values, rows, diagonal):
    """Sum of each row's entries on the diagonal."""
    for i in prange(rows):
        total = 0.0
        for e in range(slices[i >> 3] + (i & 7), slices[(i >> 3) + 1], 8):
            if columns[e] == i:
                total += values[e]
        diagonal[i] = total


@parallel_kernel
def find_runs(columns, values, runs, same):
    """Fill what products need not read of each slot: see the top of the file."""
    for slot in prange(runs.shape[0]):
        at = np.uint64(LANES) * np.uint64(slot)
        first = columns[at]
        follows, alike = True, True
        for k in range(np.uint64(1), np.uint64(LANES)):
            follows &= columns[at + k] == first + np.int32(k)
            alike &= values[at + k] == values[at]
        runs[slot] = first if follows else -1
        same[slot] = values[at] if alike else np.nan


@inlined
def slice_product(slices, runs, same, columns, values, x, s):
    """A x of the eight rows of slice s."""
    e = np.uint64(slices[s])
    end = np.uint64(slices[s + 1])
    zero = x.dtype.type(0.0)
    sums = repeated(zero)
    while e < end:
        first = runs[e >> np.uint64(3)]
        if first >= 0:
            factor = load(x, np.uint64(first))
        else:
            factor = gather(x, columns, e)
        value = same[e >> np.uint64(3)]
        if value == value:
            sums = sums + factor * x.dtype.type(value)
        else:
            sums = sums + numbers(load(values, e), zero) * factor
        e += np.uint64(LANES)
    return sums


@device
def multiply_block(slices, runs, same, columns, values, x, first, last, rows, out):
    """Write A x for slices first to last; return x . A x of these rows."""
    sums = repeated(x.dtype.type(0.0))
    rest = 0.0
    for s in range(first, last):
        product = slice_product(slices, runs, same, columns, values, x, s)
        at, count = np.uint64(LANES * s), min(LANES, rows - LANES * s)
        store_first(out, at, product, count)
        if count == LANES:
            sums = sums + load(x, at) * product
        else:
            for k in range(count):
                rest += x[at + np.uint64(k)] * lane(product, k)
    return total(sums) + rest


@parallel_kernel
def multiply(slices, runs, same, columns, values, x, out, partial):
    """Write A x to out, and x . A x of each block of 4096 rows to partial."""
    rows = out.shape[0]
    count = slices.shape[0] - 1
    for block in prange(partial.shape[0]):
        partial[block] = multiply_block(
            slices,
            runs,
            same,
            columns,
            values,
            x,
            512 * block,
            min(512 * block + 512, count),
            rows,
            out,
        )


@device
def dot_block(x, y, first, last):
    """Inner product of a range."""
    total = 0.0
    for i in range(first, last):
        total += x[i] * np.float64(y[i])
    return total


@parallel_kernel
def dot_blocks(x, y, partial):
    """Inner product of each block of 4096 rows, in float64."""
    rows = x.shape[0]
    for block in prange(partial.shape[0]):
        partial[block] = dot_block(x, y, 4096 * block, min(4096 * block + 4096, rows))


@strict_kernel
def ordered_sum(partial):
    """Sum of the blocks, in their order."""
    total = 0.0
    for i in range(partial.shape[0]):
        total += partial[i]
    return total


@kernel
def gather_rows(x, rows, out):
    """Copy the listed rows of a vector, for sending."""
    for i in range(rows.shape[0]):
        out[i] = x[rows[i]]
