"""Patterns of compressed rows: of the product of two, and of the transposed one.

A pattern is (starts int64, columns int32). The neighbours of vertices, the rows of a prolongator
and those of a coarse matrix are all patterns of products.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device, kernel, parallel_kernel, prange

PARTS = 16  # of the rows: each has marks of its own for all columns


@device
def list_product(a_starts, a_columns, b_starts, b_columns, i, marks, found):
    """List the columns of row i of the product A B, ascending; return how many."""
    count = 0
    for e in range(a_starts[i], a_starts[i + 1]):
        middle = a_columns[e]
        for t in range(b_starts[middle], b_starts[middle + 1]):
            column = b_columns[t]
            if marks[column] != i:
                marks[column] = i
                place = count
                while place > 0 and found[place - 1] > column:
                    found[place] = found[place - 1]
                    place -= 1
                found[place] = column
                count += 1
    return count


@parallel_kernel
def count_product(a_starts, a_columns, b_starts, b_columns, columns, lengths):
    """Count the entries in each row of A B; `columns` is the number of B's."""
    rows = lengths.shape[0]
    for part in prange(PARTS):
        marks, found = np.full(columns, -1, np.int64), np.empty(columns, np.int32)
        for i in range(rows * part // PARTS, rows * (part + 1) // PARTS):
            lengths[i] = list_product(a_starts, a_columns, b_starts, b_columns, i, marks, found)


@parallel_kernel
def fill_product(a_starts, a_columns, b_starts, b_columns, columns, starts, filled):
    """List the columns of each row of A B from starts[i] on, ascending."""
    rows = starts.shape[0] - 1
    for part in prange(PARTS):
        marks, found = np.full(columns, -1, np.int64), np.empty(columns, np.int32)
        for i in range(rows * part // PARTS, rows * (part + 1) // PARTS):
            count = list_product(a_starts, a_columns, b_starts, b_columns, i, marks, found)
            for t in range(count):
                filled[starts[i] + t] = found[t]


@kernel
def transpose_pattern(starts, columns, back_starts, back_columns, source):
    """Rows of the transposed pattern, ascending in each, and which block each one is.

    Args:
        back_starts: int64 [columns + 1], zeros on entry.
    """
    rows = starts.shape[0] - 1
    for e in range(columns.shape[0]):
        back_starts[columns[e] + 1] += 1
    for c in range(back_starts.shape[0] - 1):
        back_starts[c + 1] += back_starts[c]
    for i in range(rows):
        for e in range(starts[i], starts[i + 1]):
            at = back_starts[columns[e]]
            back_columns[at] = i
            source[at] = e
            back_starts[columns[e]] = at + 1
    for c in range(back_starts.shape[0] - 1, 0, -1):
        back_starts[c] = back_starts[c - 1]
    back_starts[0] = 0
