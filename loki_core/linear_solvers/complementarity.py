"""Bounds and residual of a mixed linear complementarity problem on a SparseSystem.

    w = A x + b,    l <= x <= u,    w >= 0 where x = l,    w <= 0 where x = u,    w = 0 between

The unconstrained problem is A x = -b: mind the sign, which is that of the paper's Algorithm 2. The
residual is the largest |max(min(d (x - l), w), d (x - u))| over the largest |b|, with the diagonal
d of A, which gives x the unit of w. Unknowns without matrix entries take part in nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import InputError
from loki_core.kernels.algebra.sparse_gauss_seidel import complementarity
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_core.linear_solvers.system import Vector

Bound = float | NDArray[Any] | None


class ComplementarityProblem:
    """One right-hand side with its bounds."""

    def __init__(self, system: SparseSystem, b: Vector, lower: Bound, upper: Bound) -> None:
        self.system, self.b = system, b
        self.lower = _bound(lower, system.size, -np.inf)
        self.upper = _bound(upper, system.size, np.inf)
        crossed = np.flatnonzero(~(self.lower <= self.upper))
        system.comm.raise_together(
            InputError(
                f"bounds of unknown {crossed[0]} cross: lower {self.lower[crossed[0]]}, "
                f"upper {self.upper[crossed[0]]}"
            )
            if crossed.size
            else None
        )
        self.diagonal = system.diagonal()
        self.inverse_diagonal = np.divide(
            1.0, self.diagonal, out=np.zeros_like(self.diagonal), where=self.diagonal > 0.0
        )
        used = np.abs(b[self.diagonal > 0.0])
        self.scale = system.comm.maximum(float(used.max(initial=0.0)))
        self.w = np.empty(system.size)
        self._partial = np.zeros(system.blocks)

    def clamp(self, x: Vector) -> None:
        """Move x into its bounds, where it takes part."""
        used = self.diagonal > 0.0
        x[used] = np.clip(x[used], self.lower[used], self.upper[used])

    def evaluate(self, x: Vector) -> float:
        """Fill w = A x + b and return the relative residual. Collective."""
        self.system.multiply(x, self.w)
        self.w += self.b
        complementarity(x, self.w, self.diagonal, self.lower, self.upper, self._partial)
        worst = self.system.comm.maximum(float(self._partial.max(initial=0.0)))
        return worst if self.scale == 0.0 else worst / self.scale


def _bound(bound: Bound, size: int, default: float) -> Vector:
    if bound is None:
        bound = default
    return np.ascontiguousarray(np.broadcast_to(np.asarray(bound, dtype=np.float64), (size,)))
