"""Load balance: cut the space-filling curve into parts of nearly equal weight.

Buckets stand in curve order with a weight each. The cut minimises the heaviest part exactly: a
bisection on the bound, where a greedy sweep tells whether `parts` runs of at most that weight can
hold everything. The heaviest part is then at most the mean plus one Bucket, and in practice much
nearer to the mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def cut_by_weight(weights: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """Return `parts + 1` indices into the curve-ordered Buckets; part p owns [cuts[p], cuts[p+1]).

    Args:
        weights: Cost of each Bucket in curve order, not negative, shape [bucket_count].
        parts: Number of ranks.
    """
    ends = np.concatenate(([0.0], np.cumsum(weights, dtype=np.float64)))
    total = ends[-1]
    if total == 0.0:
        return np.linspace(0, len(weights), parts + 1).astype(np.int64)
    low = max(total / parts, float(np.max(weights)))
    high = total / parts + float(np.max(weights))
    for _ in range(40):  # 2^-40 of a part: beyond that, equal bounds
        bound = 0.5 * (low + high)
        if _sweep(ends, bound, parts)[-1] == len(weights):
            high = bound
        else:
            low = bound
    return _sweep(ends, high, parts)


def _sweep(ends: NDArray[np.float64], bound: float, parts: int) -> NDArray[np.int64]:
    """Fill parts in turn, each up to the bound; the last cut tells how far they reach."""
    cuts = np.zeros(parts + 1, dtype=np.int64)
    for part in range(parts):
        start = ends[cuts[part]]
        reach = np.searchsorted(ends, start + bound * (1.0 + 1e-12), side="right") - 1
        cuts[part + 1] = max(reach, cuts[part])
    return cuts


def maximum_over_mean(weights: NDArray[Any], cuts: NDArray[np.int64]) -> float:
    """Weight of the heaviest part over the mean weight of a part."""
    ends = np.concatenate(([0.0], np.cumsum(weights, dtype=np.float64)))
    loads = np.diff(ends[cuts])
    mean = float(loads.mean())
    return float(loads.max()) / mean if mean > 0.0 else 1.0
