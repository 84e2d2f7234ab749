"""Rows: eight numbers side by side as one value, for kernels that write their own vectors.

LLVM makes no vectors of loops over arrays that may overlap, as far as it can know. A kernel that
says `load`, computes with + - * and comparisons, and says `store`, is vector code as it stands:

    x = load(values, at)
    store(out, at, choose(x > limit, limit, x))

Comparisons give masks, which `&` joins. A number beside a row stands for eight of it. Without
compilation rows are numpy arrays of eight, and the same code runs as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.kernels.jit import LazyKernel, inlined

#: Numbers in a row.
LANES = 8


class _RowFunction(LazyKernel):
    """A function of `row_types`; as plain Python the one that it decorates."""

    def _make_dispatcher(self, **options: Any) -> Any:
        import numba

        config: Any = numba.config
        if config.DISABLE_JIT:
            return self.function
        from loki_core.kernels.basics.row_types import row_functions

        return row_functions()[self.__name__]


def _row_function(function: Callable[..., Any]) -> LazyKernel:
    return _RowFunction(function, parallel=False, strict=False)


@_row_function
def load(values: Any, at: Any) -> Any:
    """Eight numbers from values[at] on."""
    return values[int(at) : int(at) + LANES].copy()


@_row_function
def store(values: Any, at: Any, row: Any) -> Any:
    """Write eight numbers from values[at] on; whole numbers where `values` holds such."""
    values[int(at) : int(at) + LANES] = row


@_row_function
def put(row: Any, number: Any, value: Any) -> Any:
    """The row with another number in one lane."""
    row = row.copy()
    row[int(number)] = value
    return row


@_row_function
def repeated(value: Any) -> Any:
    """A row of eight times the same number."""
    return np.full(LANES, value)


@_row_function
def joined(row: Any, other: Any, count: Any) -> Any:
    """The last `count` numbers of a row, then the first ones of another; `count` is a constant."""
    return np.concatenate((row[LANES - count :], other[: LANES - count]))


@_row_function
def lane(row: Any, number: Any) -> Any:
    """One number of a row."""
    return row[int(number)]


@_row_function
def numbers(row: Any, like: Any) -> Any:
    """A row, of small whole numbers or of others, as a row of the type of `like`."""
    return row.astype(type(like))


@_row_function
def total(row: Any) -> Any:
    """Sum of the eight numbers, in one order always."""
    row = row[:4] + row[4:]
    row = row[:2] + row[2:]
    return row[0] + row[1]


@_row_function
def cut(row: Any) -> Any:
    """Numbers without their fractions."""
    return np.trunc(row)


@_row_function
def choose(mask: Any, row: Any, other: Any) -> Any:
    """`row` where the mask is true, else `other`."""
    return np.where(mask, row, other)


@_row_function
def larger(a: Any, b: Any) -> Any:
    """The larger of a and b; a where b is not a number."""
    return np.where(b > a, b, a)


@_row_function
def smaller(a: Any, b: Any) -> Any:
    """The smaller of a and b; a where b is not a number."""
    return np.where(b < a, b, a)


@_row_function
def greatest(row: Any) -> Any:
    """The greatest number of a row."""
    return row.max()


@_row_function
def least(row: Any) -> Any:
    """The least number of a row."""
    return row.min()


@_row_function
def bits(mask: Any) -> Any:
    """The mask as a whole number, lane 0 in the lowest bit."""
    return np.uint32(sum(1 << number for number in range(LANES) if mask[number]))


@inlined
def within(row, low, high):
    """Bring numbers between low and high; low where one is not a number."""
    return smaller(high, larger(low, row))


@inlined
def load_first(values, at, count):
    """Row whose first `count` numbers are those from values[at] on."""
    if count == LANES:
        return load(values, at)
    row = repeated(values[at])
    for k in range(1, count):
        row = put(row, k, values[at + np.uint64(k)])
    return row


@inlined
def store_first(values, at, row, count):
    """Write the first `count` numbers of a row."""
    if count == LANES:
        store(values, at, row)
    else:
        for k in range(count):
            values[at + np.uint64(k)] = lane(row, k)


@inlined
def gather(values, columns, at):
    """The values at eight columns that are listed from columns[at] on."""
    row = repeated(values[np.uint32(columns[at])])
    for k in range(np.uint64(1), np.uint64(LANES)):
        row = put(row, k, values[np.uint32(columns[at + k])])
    return row
