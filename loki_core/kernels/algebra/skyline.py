"""Symmetric matrices of many bodies, each stored by the lower envelope of its rows (skyline).

The unknowns of body b are body_start[b] to body_start[b + 1]. Row i is stored from its column
first[i] to the diagonal, and rows follow one another without gaps:

    A[i, j] = values[row[i] + j],    body_start[b] <= first[i] <= j <= i

Cholesky's A = L L^T stays inside the envelope (Jennings 1966; George & Liu 1981, ch. 4):

    L[i, j] = (A[i, j] - sum_k L[i, k] L[j, k]) / L[j, j],   L[i, i]^2 = A[i, i] - sum_k L[i, k]^2

Factors hold 1 / L[i, i] on the diagonal. Where eight bodies that follow one another have the same
envelope, as strands of equally many vertices do, they are factorised side by side, one in each lane
of a row of eight, and their factors are stored so: entry e of lane l is at base + 8 e + l. Factors
are therefore for `solve_bodies` only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.basics.rows import LANES, bits, choose, lane, load, put, repeated, store
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange

#: Most entries of a body that is factorised beside seven others: eight of them fit in the cache.
LARGEST_OF_EIGHT = 4096
HUGE = float(np.finfo(np.float64).max)


def envelope_of(
    body_start: NDArray[np.int64], first: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]:
    """Return where rows begin, `row` int64 [size], and how many entries there are.

    Args:
        body_start: First unknown of each body and the end of the last, int64 [bodies + 1].
        first: First stored column of each row, int64 [size].

    Raises:
        ValueError: When a row begins before its body or after its diagonal.
    """
    size = int(body_start[-1])
    number = np.arange(size, dtype=np.int64)
    begin = np.repeat(body_start[:-1], np.diff(body_start))
    wrong = np.flatnonzero((first < begin) | (first > number))
    if wrong.size:
        i = int(wrong[0])
        raise ValueError(
            f"row {i} is stored from column {int(first[i])}; its body begins at {int(begin[i])} "
            f"and its diagonal is {i}"
        )
    ends = np.cumsum(number - first + 1)
    row = ends - number - 1  # the diagonal is the last entry of a row
    return row.astype(np.int64), int(ends[-1]) if size else 0


@parallel_kernel
def multiply_bodies(values, row, first, body_start, x, out):
    """Write A x to out, from the lower half."""
    for b in prange(body_start.shape[0] - 1):
        multiply_body(values, row, first, body_start[b], body_start[b + 1], x, out)


@device
def multiply_body(values, row, first, begin, end, x, out):
    """Write A x of one body."""
    for i in range(begin, end):
        at = np.uint64(row[i] + first[i])
        column = np.uint64(first[i])
        here = x[np.uint64(i)]
        sum_left = 0.0
        for k in range(np.uint64(i - first[i])):
            entry = values[at + k]
            sum_left += entry * x[column + k]
            out[column + k] += entry * here
        out[np.uint64(i)] = sum_left + values[np.uint64(row[i] + i)] * here


@parallel_kernel
def add_couplings(indptr, indices, data, x, out):
    """Add the product of the compressed rows that join bodies with x to out."""
    for i in prange(out.shape[0]):
        total = 0.0
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[e] * x[np.uint32(indices[e])]
        out[i] += total


@parallel_kernel
def add_diagonal(indptr, indices, data, out):
    """Add the diagonal of the compressed rows that join bodies to out."""
    for i in prange(out.shape[0]):
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            if indices[e] == i:
                out[i] += data[e]


@parallel_kernel
def dot_bodies(x, y, body_start, out):
    """Inner product of each body, in one order always."""
    for b in prange(body_start.shape[0] - 1):
        total = 0.0
        for i in range(np.uint64(body_start[b]), np.uint64(body_start[b + 1])):
            total += x[i] * y[i]
        out[b] = total


@parallel_kernel
def factor_bodies(values, row, first, body_start, factors, failed):
    """Factorise every body.

    Args:
        factors: As long as values; filled.
        failed: Filled: -1, or the first row of the body whose pivot is not positive; int64
            [bodies].
    """
    bodies = body_start.shape[0] - 1
    alike = np.zeros(bodies // LANES + 1, np.bool_)
    for g in prange(bodies // LANES):
        alike[g] = are_alike(row, first, body_start, LANES * g)
    for b in prange(bodies):
        if not alike[b // LANES]:
            failed[b] = factor_body(values, row, first, body_start[b], body_start[b + 1], factors)
        elif b % LANES == 0:
            factor_eight(values, row, first, body_start, b, factors, failed)


@parallel_kernel
def solve_bodies(factors, row, first, body_start, b, x):
    """Write A^-1 b to x; b and x may be the same array."""
    bodies = body_start.shape[0] - 1
    alike = np.zeros(bodies // LANES + 1, np.bool_)
    for g in prange(bodies // LANES):
        alike[g] = are_alike(row, first, body_start, LANES * g)
    for body in prange(bodies):
        if not alike[body // LANES]:
            solve_body(factors, row, first, body_start[body], body_start[body + 1], b, x)
        elif body % LANES == 0:
            solve_eight(factors, row, first, body_start, body, b, x)


@device
def are_alike(row, first, body_start, body):
    """Whether eight bodies have the same small envelope and lie one after the other."""
    begin, end = body_start[body], body_start[body + 1]
    count = end - begin
    if count == 0:
        return False
    entries = row[end - 1] + end - row[begin] - begin
    if entries > LARGEST_OF_EIGHT:
        return False
    for k in range(1, LANES):
        if body_start[body + k + 1] - body_start[body + k] != count:
            return False
    same = True
    for k in range(1, LANES):
        shift = k * count
        moved = k * entries - shift
        for i in range(begin, end):
            same &= (first[i + shift] - first[i] == shift) & (row[i + shift] - row[i] == moved)
    return same


@device
def factor_body(values, row, first, begin, end, factors):
    """Factorise one body; return -1, or the row whose pivot is not positive."""
    for i in range(begin, end):
        for j in range(first[i], i):
            low = max(first[i], first[j])
            left = dot_part(factors, row[i] + low, row[j] + low, j - low)
            at = np.uint64(row[i] + j)
            factors[at] = (values[at] - left) * factors[np.uint64(row[j] + j)]
        start = row[i] + first[i]
        at = np.uint64(row[i] + i)
        pivot = values[at] - dot_part(factors, start, start, i - first[i])
        if not (pivot > 0.0 and pivot <= HUGE):  # neither holds for NaN
            return i
        factors[at] = 1.0 / math.sqrt(pivot)
    return -1


@inlined
def dot_part(values, a, b, count):
    """Inner product of two runs of one array."""
    left, right = np.uint64(a), np.uint64(b)
    total = 0.0
    for k in range(np.uint64(count)):
        total += values[left + k] * values[right + k]
    return total


@device
def solve_body(factors, row, first, begin, end, b, x):
    """Solve for one body: forwards by rows, backwards by columns."""
    for i in range(begin, end):
        at = np.uint64(row[i] + first[i])
        column = np.uint64(first[i])
        total = b[np.uint64(i)]
        for k in range(np.uint64(i - first[i])):
            total -= factors[at + k] * x[column + k]
        x[np.uint64(i)] = total * factors[np.uint64(row[i] + i)]
    for back in range(end - begin):
        i = end - 1 - back
        at = np.uint64(row[i] + first[i])
        column = np.uint64(first[i])
        here = x[np.uint64(i)] * factors[np.uint64(row[i] + i)]
        x[np.uint64(i)] = here
        for k in range(np.uint64(i - first[i])):
            x[column + k] -= factors[at + k] * here


# -- eight bodies side by side -----------------------------------------------------------------


@inlined
def spread(values, at, step):
    """Eight numbers of an array, `step` apart."""
    row = repeated(values[at])
    for k in range(1, LANES):
        at += step
        row = put(row, k, values[at])
    return row


@device
def factor_eight(values, row, first, body_start, body, factors, failed):
    """Factorise eight bodies of one envelope; factors lie side by side."""
    eight = np.uint64(LANES)
    begin, end = body_start[body], body_start[body + 1]
    base = row[begin] + begin
    entries = np.uint64(row[end - 1] + end - base)
    for k in range(LANES):
        failed[body + k] = -1
    for i in range(begin, end):
        first_i = first[i]
        for j in range(first_i, i):
            low = max(first_i, first[j])
            left = np.uint64(base + LANES * (row[i] + low - base))
            right = np.uint64(base + LANES * (row[j] + low - base))
            entry = spread(values, np.uint64(row[i] + j), entries)
            for _ in range(np.uint64(j - low)):
                entry = entry - load(factors, left) * load(factors, right)
                left += eight
                right += eight
            store(factors, left, entry * load(factors, right))
        at = np.uint64(base + LANES * (row[i] + first_i - base))
        pivot = spread(values, np.uint64(row[i] + i), entries)
        for _ in range(np.uint64(i - first_i)):
            part = load(factors, at)
            pivot = pivot - part * part
            at += eight
        good = (pivot > 0.0) & (pivot <= HUGE)  # neither holds for NaN
        if bits(good) != np.uint32(255):
            for k in range(LANES):
                if bits(good) & np.uint32(1 << k) == 0 and failed[body + k] < 0:
                    failed[body + k] = i - begin + body_start[body + k]
            pivot = choose(good, pivot, repeated(1.0))
        store(factors, at, pivot)
        for k in range(np.uint64(LANES)):
            factors[at + k] = 1.0 / math.sqrt(factors[at + k])


@device
def solve_eight(factors, row, first, body_start, body, b, x):
    """Solve for eight bodies of one envelope."""
    eight = np.uint64(LANES)
    begin, end = body_start[body], body_start[body + 1]
    size = np.uint64(end - begin)
    base = row[begin] + begin
    work = np.empty(LANES * (end - begin))
    for i in range(begin, end):
        at = np.uint64(base + LANES * (row[i] + first[i] - base))
        column = np.uint64(LANES * (first[i] - begin))
        total = spread(b, np.uint64(i), size)
        for _ in range(np.uint64(i - first[i])):
            total = total - load(factors, at) * load(work, column)
            at += eight
            column += eight
        store(work, column, total * load(factors, at))
    for back in range(end - begin):
        i = end - 1 - back
        at = np.uint64(base + LANES * (row[i] + i - base))
        column = np.uint64(LANES * (i - begin))
        here = load(work, column) * load(factors, at)
        target = np.uint64(i)
        for k in range(LANES):
            x[target] = lane(here, k)
            target += size
        for _ in range(np.uint64(i - first[i])):
            at -= eight
            column -= eight
            store(work, column, load(work, column) - load(factors, at) * here)
