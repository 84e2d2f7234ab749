"""The matrix of blocks scaled to ones on its diagonal, and vectors brought there and back.

With the Cholesky factors of the diagonal blocks, A_ii = L_i L_i^T,

    S_ij = L_i^-1 A_ij L_j^-T,    S_ii = 1

the block-Jacobi iteration of A is the plain one of S: a cycle needs no diagonal. The norm |S_ij| of
a block depends neither on units nor on the directions of axes. Vectors change alike, for A x = r:

    S y = L^-1 r,    x = L^-T y

Numbers of L^-1 are stored by columns, as those of blocks (`block_rows.py`). An unknown that takes
part in nothing, and one whose pivot is no more than rounding, has a row of zeros in L^-1 and a one
on the diagonal of S: it stays zero.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.basics.rows import lane, load, repeated, store
from loki_core.kernels.jit import device, parallel_kernel, prange


@device
def is_alone(starts, neighbours, blocks, width, i, a):
    """Whether nothing but its diagonal is in row a of vertex i."""
    for e in range(starts[i], starts[i + 1]):
        for b in range(width):
            if blocks[(e * width + b) * width + a] != 0.0 and (neighbours[e] != i or a != b):
                return False
    return True


@parallel_kernel
def hold_alone(starts, neighbours, blocks, width, modes):
    """Take unknowns that nothing couples, prescribed ones for instance, out of the modes.

    Args:
        modes: Six numbers for each unknown, [vertices width 6 + spare].
    """
    for i in prange(starts.shape[0] - 1):
        for a in range(width):
            if is_alone(starts, neighbours, blocks, width, i, a):
                for k in range(6):
                    modes[(i * width + a) * 6 + k] = 0.0


@device
def factor_small(matrix, width, least, lower):
    """Write the Cholesky factor of a block; return its first bad pivot, or -1.

    A pivot is bad unless it is above `least` times its diagonal entry: its column becomes zeros.
    Zero rows are not counted.
    """
    bad = -1
    for k in range(width):
        pivot = matrix[k, k]
        for m in range(k):
            pivot -= lower[k, m] * lower[k, m]
        good = pivot > least * abs(matrix[k, k])
        if not good and bad < 0 and matrix[k, k] != 0.0:
            bad = k
        lower[k, k] = math.sqrt(pivot) if good else 0.0
        inverse = 1.0 / lower[k, k] if good else 0.0
        for a in range(k + 1, width):
            left = matrix[a, k]
            for m in range(k):
                left -= lower[a, m] * lower[k, m]
            lower[a, k] = left * inverse
    return bad


@device
def invert_small(lower, width, halves, first):
    """Write the inverse of a lower triangle by columns, from halves[first] on."""
    for b in range(width):
        for a in range(width):
            value = 0.0
            if a >= b and lower[a, a] > 0.0:
                value = 1.0 if a == b else 0.0
                for m in range(b, a):
                    value -= lower[a, m] * halves[first + b * width + m]
                value /= lower[a, a]
            halves[first + b * width + a] = value


@device
def scale_modes(lower, width, modes, first):
    """Modes of a vertex become L^T modes, in place: a row reads itself and those after it."""
    for a in range(width):
        for k in range(6):
            total = 0.0
            for m in range(a, width):
                total += lower[m, a] * modes[first + 6 * m + k]
            modes[first + 6 * a + k] = total


@parallel_kernel
def factor_diagonals(starts, neighbours, blocks, width, least, halves, modes, failed):
    """Find L^-1 of the diagonal blocks, and bring the modes to the scaled unknowns: L^T modes.

    Args:
        least: Of a diagonal entry, what a pivot has to be above.
        halves: Filled with L^-1, [vertices width^2].
        failed: Filled: -1, or the first pivot that was not; int64 [vertices].
    """
    vertices = starts.shape[0] - 1
    for block in prange((vertices + 255) // 256):
        matrix, lower = np.zeros((width, width)), np.zeros((width, width))
        for i in range(256 * block, min(256 * block + 256, vertices)):
            for e in range(starts[i], starts[i + 1]):
                if neighbours[e] == i:
                    for b in range(width):
                        for a in range(width):
                            matrix[a, b] = blocks[(e * width + b) * width + a]
            failed[i] = factor_small(matrix, width, least, lower)
            invert_small(lower, width, halves, i * width * width)
            scale_modes(lower, width, modes, 6 * width * i)


@device
def scale_block(blocks, halves, width, here, i, j, half):
    """Write L_i^-1 A_ij L_j^-T of the block that begins at `here`; `half` is work space."""
    for b in range(width):
        total = repeated(0.0)
        for m in range(width):  # L_i^-1 A_ij, column b
            total = total + load(halves, (i * width + m) * width) * blocks[here + b * width + m]
        store(half, 8 * b, total)
    for b in range(width):
        total = repeated(0.0)
        for m in range(b + 1):  # times row b of L_j^-1
            total = total + load(half, 8 * m) * halves[(j * width + m) * width + b]
        for a in range(width):
            blocks[here + b * width + a] = lane(total, a)


@device
def set_unit(blocks, width, here):
    """Write the unit matrix to the block that begins at `here`."""
    for b in range(width):
        for a in range(width):
            blocks[here + b * width + a] = 1.0 if a == b else 0.0


@device
def square_sum(blocks, width, here):
    """Sum of the squares of the block that begins at `here`."""
    total = 0.0
    for t in range(here, here + width * width):
        total += blocks[t] * blocks[t]
    return total


@parallel_kernel
def scale_blocks(starts, neighbours, blocks, width, halves, strengths):
    """Scale all blocks in place, and measure |S_ij|^2 (Frobenius norm).

    Args:
        halves: L^-1 of the diagonal blocks, and eight numbers more.
        strengths: Filled, float32; zero on the diagonal.
    """
    vertices = starts.shape[0] - 1
    for block in prange((vertices + 255) // 256):
        half = np.zeros(8 * width)
        for i in range(256 * block, min(256 * block + 256, vertices)):
            for e in range(starts[i], starts[i + 1]):
                here = e * width * width
                if neighbours[e] == i:
                    set_unit(blocks, width, here)
                    strengths[e] = 0.0
                else:
                    scale_block(blocks, halves, width, here, i, neighbours[e], half)
                    strengths[e] = square_sum(blocks, width, here)


@parallel_kernel
def enter(begin, halves, width, b, scale, r):
    """Write scale L^-1 b to r, whose vertices have `width` numbers each."""
    for i in prange(begin.shape[0] - 1):
        count = begin[i + 1] - begin[i]
        for a in range(width):
            total = 0.0
            for m in range(min(a + 1, count)):
                total += halves[(i * width + m) * width + a] * b[begin[i] + m]
            r[i * width + a] = scale * total


@parallel_kernel
def leave(begin, halves, width, y, scale, x):
    """Write scale L^-T y to x."""
    for i in prange(begin.shape[0] - 1):
        for a in range(begin[i + 1] - begin[i]):
            total = 0.0
            for m in range(a, width):
                total += halves[(i * width + a) * width + m] * y[i * width + m]
            x[begin[i] + a] = scale * total
