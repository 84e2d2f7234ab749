"""Sums that do not depend on the order, so neither on threads nor on ranks.

Every float64 is an integer times 2^-1074. Its 53-bit mantissa is cut into 32-bit pieces that are
added into a row of int64 bins, 32 binary places apart: integer addition is exact and associative.
Ranks add their rows, and the exact total is rounded once. (The idea is the long accumulator of
U. Kulisch; here with carries kept until the end, which 2^30 additions cannot overflow.)

Where every iteration of a solve needs a sum over all particles, a fixed point does: addends are cut
at 2^-61 of the largest of all, which is a part of that work and takes all threads.

Bulk kernels first sum per Bucket, in the Bucket's own fixed order, and hand those sums here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.basics.accumulate import (
    BIN_COUNT,
    LIMB,
    LIMB_BITS,
    LOWEST_EXPONENT,
    RUN,
    add_to_bins,
    find_largest,
    sum_limbs,
)
from loki_core.parallel.comm import Communicator

_UNIT = 2**-LOWEST_EXPONENT  # the bins count multiples of 2^LOWEST_EXPONENT


def exact_sum(comm: Communicator, values: NDArray[Any]) -> float:
    """Return the correctly rounded sum of all ranks' values, the same for any partition."""
    return float(exact_sums(comm, values.reshape(-1, 1))[0])


def exact_sums(comm: Communicator, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the correctly rounded sum of each column over all rows and ranks.

    Args:
        values: Addends, shape [count, columns].
    """
    columns = values.shape[1]
    bins = np.zeros((columns, BIN_COUNT + 1), dtype=np.int64)
    add_to_bins(np.ascontiguousarray(values, dtype=np.float64), bins)
    bins = comm.all_reduce(bins, "sum")
    return np.array([_round_bins(row) for row in bins], dtype=np.float64)


def fixed_point_scale(largest: float) -> float:
    """Return the power of two that makes addends of up to the largest, or 0, at most 2^30."""
    exponent = LIMB_BITS - 1 - math.frexp(largest)[1]
    return math.ldexp(1.0, min(exponent, 1000))  # less than 2^-970 is nothing


def of_limbs(limbs: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Return the sums of limbs [..., 2] that were cut from addends times scale."""
    sums: NDArray[np.float64] = (limbs[..., 0] + limbs[..., 1] / LIMB) / scale
    return sums


def fixed_sum(comm: Communicator, values: NDArray[np.float64]) -> float:
    """Return the sum of all ranks' values, each cut at 2^-61 of the largest, for any partition.

    Args:
        values: Addends, shape [count], fewer than 2^31 on all ranks.
    """
    runs = -(-len(values) // RUN)
    largest = np.zeros(runs)
    find_largest(values, largest)
    most = comm.maximum(float(largest.max(initial=0.0)))
    if not math.isfinite(most):
        return math.nan
    scale = fixed_point_scale(most)
    limbs = np.zeros((runs, 2), np.int64)
    sum_limbs(values, scale, limbs)
    return float(of_limbs(comm.all_reduce(limbs.sum(axis=0), "sum"), scale))


def _round_bins(bins: NDArray[np.int64]) -> float:
    if bins[BIN_COUNT]:  # how many addends were not finite
        return math.nan
    total = sum(int(count) << (32 * place) for place, count in enumerate(bins[:BIN_COUNT]) if count)
    try:
        return float(total / _UNIT)  # true division of integers rounds once, correctly
    except OverflowError:
        return math.inf if total > 0 else -math.inf
