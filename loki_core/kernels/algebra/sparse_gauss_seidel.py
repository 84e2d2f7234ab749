"""Projected Gauss-Seidel in colours: rows of one colour do not touch, so threads cannot matter."""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device, kernel, parallel_kernel, prange


@kernel
def greedy_colours(slices, columns, values, colours):
    """Give each row the least colour that no lower row connected to it has; return the count.

    Args: colours int32 [rows], filled with -1. More than 63 colours are shared (the sweep then uses
    values of the sweep before there).
    """
    rows = colours.shape[0]
    most = 0
    for i in range(rows):
        taken = np.uint64(0)
        for e in range(slices[i >> 3] + (i & 7), slices[(i >> 3) + 1], 8):
            j = columns[e]
            if j < rows and j != i and values[e] != 0.0 and colours[j] >= 0:
                taken |= np.uint64(1) << np.uint64(colours[j])
        colour = 0
        while colour < 63 and (taken >> np.uint64(colour)) & np.uint64(1):
            colour += 1
        colours[i] = colour
        most = max(most, colour + 1)
    return most


@device
def row_product(slices, columns, values, x, i):
    """(A x) of one row."""
    total = 0.0
    e = np.uint64(slices[i >> 3] + (i & 7))
    end = np.uint64(slices[(i >> 3) + 1])
    while e < end:
        total += values[e] * x[np.uint32(columns[e])]
        e += np.uint64(8)
    return total


@device
def project_row(slices, columns, values, inverse_diagonal, b, lower, upper, x, i):
    """Solve row i for its own unknown, within its bounds."""
    scale = inverse_diagonal[i]
    if scale > 0.0:
        moved = x[i] - scale * (row_product(slices, columns, values, x, i) + b[i])
        x[i] = min(max(moved, lower[i]), upper[i])


@parallel_kernel
def project_rows(slices, columns, values, inverse_diagonal, b, lower, upper, rows, x):
    """Solve the listed rows, which do not touch each other."""
    for n in prange(rows.shape[0]):
        project_row(
            slices, columns, values, inverse_diagonal, b, lower, upper, x, np.int64(rows[n])
        )


@device
def worst_of_block(x, w, diagonal, lower, upper, first, last):
    """Largest residual of a range; NaN if there is one."""
    worst = 0.0
    for i in range(first, last):
        d = diagonal[i]
        if d > 0.0:
            if np.isnan(w[i]) or np.isnan(x[i]):
                return np.nan
            value = abs(max(min(d * (x[i] - lower[i]), w[i]), d * (x[i] - upper[i])))
            worst = max(worst, value)
    return worst


@parallel_kernel
def complementarity(x, w, diagonal, lower, upper, partial):
    """Largest |max(min(d (x - l), w), d (x - u))| of each block of 4096 rows; NaN stays NaN."""
    rows = w.shape[0]
    for block in prange(partial.shape[0]):
        partial[block] = worst_of_block(
            x, w, diagonal, lower, upper, 4096 * block, min(4096 * block + 4096, rows)
        )


@device
def mark_block(x, w, inverse_diagonal, lower, upper, active, first, last):
    """Which bound holds each unknown of a range."""
    for i in range(first, last):
        moved = x[i] - inverse_diagonal[i] * w[i]
        state = 0
        if inverse_diagonal[i] > 0.0:
            if moved < lower[i] or (x[i] <= lower[i] and w[i] > 0.0):
                state = 1
            elif moved > upper[i] or (x[i] >= upper[i] and w[i] < 0.0):
                state = 2
        active[i] = state


@parallel_kernel
def mark_active(x, w, inverse_diagonal, lower, upper, active):
    """1 where the lower bound holds an unknown, 2 the upper, 0 where it is free."""
    rows = w.shape[0]
    for block in prange((rows + 4095) // 4096):
        mark_block(
            x, w, inverse_diagonal, lower, upper, active, 4096 * block,
            min(4096 * block + 4096, rows),
        )  # fmt: skip


@parallel_kernel
def free_entries(slices, columns, values, active, rows, out):
    """Copy the matrix with the rows and columns of active unknowns set to zero."""
    for s in prange(slices.shape[0] - 1):
        for e in range(slices[s], slices[s + 1]):
            i = 8 * s + ((e - slices[s]) & 7)
            held = i < rows and active[i] != 0
            out[e] = 0.0 if held or active[columns[e]] != 0 else values[e]
