"""Timing that compares: the best of several rounds in which all contenders take turns.

Machines are shared and noisy. Contenders that alternate within one run see the same noise, and the
minimum of several rounds is the least disturbed one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from loki_core.kernels.jit import parallel_kernel, prange


def best_seconds(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 5,
    before: Mapping[str, Callable[[], Any]] | None = None,
) -> dict[str, float]:
    """Return the best time of each contender [s]; `before` prepares a contender, untimed."""
    before = before or {}
    best = dict.fromkeys(contenders, np.inf)
    for _ in range(rounds):
        for name, work in contenders.items():
            if name in before:
                before[name]()
            start = perf_counter()
            work()
            best[name] = min(best[name], perf_counter() - start)
    return best


def figure(
    value: float | None, unit: str, goal: float | None, better: str, how: str
) -> dict[str, Any]:
    """One figure of a benchmark, as `wtloki bench --json` prints it."""
    return {"value": value, "unit": unit, "goal": goal, "better": better, "how": how}


def triad_gbps(*, quick: bool) -> float:
    """Memory bandwidth by a = b + s c, 24 bytes an element, on 2.2 GB (quick: 0.5 GB)."""
    count = (20 if quick else 92) * 1_000_000
    a, b, c = np.zeros(count), np.ones(count), np.ones(count)
    triad(a, b, c, 3.0)
    best = best_seconds({"triad": lambda: triad(a, b, c, 3.0)}, rounds=5)["triad"]
    return 24.0e-9 * count / best


@parallel_kernel
def triad(a, b, c, s):
    """Fill a with b + s c."""
    for i in prange(a.shape[0]):
        a[i] = b[i] + s * c[i]
