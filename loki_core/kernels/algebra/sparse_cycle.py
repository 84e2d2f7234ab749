"""The steps of a multigrid cycle and of conjugate gradients, each one pass over memory.

Vectors of the cycle are float32, those of conjugate gradients float64. D^-1 is zero on rows without
entries, so that such unknowns stay as they are. Loops go over fixed blocks of rows: where the
compiler splits a loop into vectors and a rest must not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.algebra.sparse_sliced import slice_product
from loki_core.kernels.basics.rows import LANES, choose, load_first, store_first
from loki_core.kernels.jit import device, kernel, parallel_kernel, prange


@device
def start_block(inverse_diagonal, r, factor, x, first, last):
    """X = factor D^-1 r of a range."""
    for i in range(first, last):
        x[i] = factor * inverse_diagonal[i] * r[i]


@parallel_kernel
def scaled_start(inverse_diagonal, r, factor, x):
    """First smoothing step from zero: x = factor D^-1 r."""
    rows = r.shape[0]
    f = np.float32(factor)
    for block in prange((rows + 4095) // 4096):
        start_block(inverse_diagonal, r, f, x, 4096 * block, min(4096 * block + 4096, rows))


@device
def relax_block(
    slices, runs, same, columns, values, inverse_diagonal, r, x, factor, momentum, memory, first,
    last, rows, out,
):  # fmt: skip
    """Smooth slices first to last."""
    for s in range(first, last):
        product = slice_product(slices, runs, same, columns, values, x, s)
        at, count = np.uint64(LANES * s), min(LANES, rows - LANES * s)
        here = load_first(x, at, count)
        scale = load_first(inverse_diagonal, at, count) * factor
        moved = here * momentum + scale * (load_first(r, at, count) - product)
        if memory != np.float32(0.0):
            moved = moved - load_first(out, at, count) * memory
        store_first(out, at, here + moved, count)


@parallel_kernel
def relax(
    slices, runs, same, columns, values, inverse_diagonal, r, x, factor, momentum, memory, out
):
    """One step of a Chebyshev smoother.

    out = x + momentum x - memory out + factor D^-1 (r - A x), where out holds the x before on
    entry: momentum = memory, but for the step after a zero start.
    """
    rows = r.shape[0]
    count = slices.shape[0] - 1
    f, m, k = np.float32(factor), np.float32(momentum), np.float32(memory)
    for block in prange((count + 511) // 512):
        relax_block(
            slices, runs, same, columns, values, inverse_diagonal, r, x, f, m, k, 512 * block,
            min(512 * block + 512, count), rows, out,
        )  # fmt: skip


@device
def residual_block(
    slices, runs, same, columns, values, inverse_diagonal, r, x, first, last, rows, out
):
    """D^-1 (r - A x) of slices first to last."""
    for s in range(first, last):
        product = slice_product(slices, runs, same, columns, values, x, s)
        at, count = np.uint64(LANES * s), min(LANES, rows - LANES * s)
        left = load_first(r, at, count) - product
        store_first(out, at, load_first(inverse_diagonal, at, count) * left, count)


@parallel_kernel
def scaled_residual(slices, runs, same, columns, values, inverse_diagonal, r, x, out):
    """Write D^-1 (r - A x) to out."""
    rows = r.shape[0]
    count = slices.shape[0] - 1
    for block in prange((count + 511) // 512):
        residual_block(
            slices, runs, same, columns, values, inverse_diagonal, r, x, 512 * block,
            min(512 * block + 512, count), rows, out,
        )  # fmt: skip


@device
def transfer_block(
    slices, runs, same, columns, values, inverse_diagonal, omega, v, first, last, rows, out
):
    """D v - omega A v of slices first to last."""
    zero, one = np.float32(0.0), np.float32(1.0)
    for s in range(first, last):
        product = slice_product(slices, runs, same, columns, values, v, s)
        at, count = np.uint64(LANES * s), min(LANES, rows - LANES * s)
        inverse = load_first(inverse_diagonal, at, count)
        used = inverse > zero
        left = load_first(v, at, count) / choose(used, inverse, one) - product * omega
        store_first(out, at, choose(used, left, zero), count)


@parallel_kernel
def smooth_transposed(slices, runs, same, columns, values, inverse_diagonal, omega, v, out):
    """Write S' r = r - omega A D^-1 r to out, given v = D^-1 r."""
    rows = inverse_diagonal.shape[0]
    count = slices.shape[0] - 1
    w = np.float32(omega)
    for block in prange((count + 511) // 512):
        transfer_block(
            slices, runs, same, columns, values, inverse_diagonal, w, v, 512 * block,
            min(512 * block + 512, count), rows, out,
        )  # fmt: skip


@kernel
def dense_product(matrix, x, out):
    """Write a dense matrix times x to the first rows of out."""
    for i in range(matrix.shape[0]):
        total = np.float32(0.0)
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * x[j]
        out[i] = total


@parallel_kernel
def restrict(starts, members, fine, coarse):
    """Sum the unknowns of each aggregate."""
    for c in prange(starts.shape[0] - 1):
        total = 0.0
        for t in range(starts[c], starts[c + 1]):
            total += fine[members[t]]
        coarse[c] = total


@parallel_kernel
def prolong(aggregate, coarse, fine):
    """Give each unknown the value of its aggregate; zero where it has none."""
    for i in prange(aggregate.shape[0]):
        a = aggregate[i]
        fine[i] = coarse[a] if a >= 0 else np.float32(0.0)


@device
def correct_block(
    slices, runs, same, columns, values, inverse_diagonal, omega, e, first, last, rows, x
):
    """X += S e of slices first to last."""
    zero = np.float32(0.0)
    for s in range(first, last):
        product = slice_product(slices, runs, same, columns, values, e, s)
        at, count = np.uint64(LANES * s), min(LANES, rows - LANES * s)
        inverse = load_first(inverse_diagonal, at, count)
        step = load_first(e, at, count) - inverse * (product * omega)
        moved = load_first(x, at, count) + choose(inverse > zero, step, zero)
        store_first(x, at, moved, count)


@parallel_kernel
def add_smoothed(slices, runs, same, columns, values, inverse_diagonal, omega, e, x):
    """Add the smoothed correction S e = e - omega D^-1 A e to x."""
    rows = inverse_diagonal.shape[0]
    count = slices.shape[0] - 1
    w = np.float32(omega)
    for block in prange((count + 511) // 512):
        correct_block(
            slices, runs, same, columns, values, inverse_diagonal, w, e, 512 * block,
            min(512 * block + 512, count), rows, x,
        )  # fmt: skip


@device
def advance_block(p, product, alpha, x, r, first, last):
    """Move x and r along p for a range; return the sum of r squared."""
    total = 0.0
    for i in range(first, last):
        x[i] += alpha * p[i]
        r[i] -= alpha * product[i]
        total += r[i] * r[i]
    return total


@parallel_kernel
def advance(p, product, alpha, x, r, partial):
    """X += alpha p, r -= alpha A p, and |r|^2 of each block of 4096 rows."""
    rows = r.shape[0]
    for block in prange(partial.shape[0]):
        partial[block] = advance_block(
            p, product, alpha, x, r, 4096 * block, min(4096 * block + 4096, rows)
        )


@device
def scale_block(r, factor, out, first, last):
    """Out = factor r of a range."""
    for i in range(first, last):
        out[i] = factor * r[i]


@parallel_kernel
def scale_down(r, factor, out):
    """Write factor r to a float32 vector."""
    rows = r.shape[0]
    for block in prange((rows + 4095) // 4096):
        scale_block(r, factor, out, 4096 * block, min(4096 * block + 4096, rows))


@device
def direction_block(z, scale, beta, p, first, last):
    """P = scale z + beta p of a range."""
    for i in range(first, last):
        p[i] = scale * z[i] + beta * p[i]


@parallel_kernel
def next_direction(z, scale, beta, p):
    """P = scale z + beta p."""
    rows = z.shape[0]
    for block in prange((rows + 4095) // 4096):
        direction_block(z, scale, beta, p, 4096 * block, min(4096 * block + 4096, rows))


@device
def multiple_block(x, factor, y, first, last):
    """Y += factor x of a range."""
    for i in range(first, last):
        y[i] += factor * x[i]


@parallel_kernel
def add_multiple(x, factor, y):
    """Y += factor x."""
    rows = y.shape[0]
    for block in prange((rows + 4095) // 4096):
        multiple_block(x, factor, y, 4096 * block, min(4096 * block + 4096, rows))


@parallel_kernel
def subtract(b, product, r):
    """R = b - product."""
    for i in prange(r.shape[0]):
        r[i] = b[i] - product[i]


@device
def row_scale(slices, columns, values, i):
    """1 / max(a_ii, half the sum of magnitudes) of row i; zero for a row of zeros."""
    diagonal, total = 0.0, 0.0
    for e in range(slices[i >> 3] + (i & 7), slices[(i >> 3) + 1], 8):
        value = np.float64(values[e])
        total += abs(value)
        if columns[e] == i:
            diagonal += value
    return 1.0 / max(diagonal, 0.5 * total) if total > 0.0 else 0.0


@parallel_kernel
def inverse_diagonals(slices, columns, values, inverse):
    """Write D^-1, D = max(a_ii, half the row's sum of magnitudes).

    With it no eigenvalue of D^-1 A is above 2 (Gershgorin), so smoothers need no estimate. For rows
    that are diagonally dominant, those of fluids, it is the diagonal itself.
    """
    for i in prange(inverse.shape[0]):
        inverse[i] = row_scale(slices, columns, values, i)
