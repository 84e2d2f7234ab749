"""Sums that do not depend on the order, so neither on threads nor on ranks.

Every float64 is an integer times 2^-1074. Its 53-bit mantissa is cut into 32-bit pieces that are
added into a row of
int64 bins, 32 binary places apart: integer addition is exact and associative. Ranks add their rows,
    and the exact total
is rounded once. (The idea is the long accumulator of U. Kulisch; here with carries kept until the
end, which 2^30 additions cannot overflow.)

Bulk kernels first sum per Bucket, in the Bucket's own fixed order, and hand those sums here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.accumulate import BIN_COUNT, LOWEST_EXPONENT, add_to_bins
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


def _round_bins(bins: NDArray[np.int64]) -> float:
    if bins[BIN_COUNT]:  # how many addends were not finite
        return math.nan
    total = sum(int(count) << (32 * place) for place, count in enumerate(bins[:BIN_COUNT]) if count)
    try:
        return float(total / _UNIT)  # true division of integers rounds once, correctly
    except OverflowError:
        return math.inf if total > 0 else -math.inf
