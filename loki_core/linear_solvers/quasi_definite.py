"""Bodies and multipliers factorised together: A = L S L^T with the signs of the diagonal blocks.

A quasi-definite matrix has such factors in any order (Vanderbei 1995). They are good where a
multiplier is eliminated after what it holds, so `multifrontal.py` orders it right there. Pivots
that rounding has eaten are replaced, and the answer is refined: each step with the same factors
takes the residual down by what the replacements were off.

The fronts are found once for a pattern; on several ranks each factorises its own part, so nothing
may join bodies of two of them.
"""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import DivergenceError, SetupError
from loki_core.linear_solvers.multifrontal import SparseFactors, vertex_graph
from loki_core.linear_solvers.multiplier_system import MultiplierSystem
from loki_core.linear_solvers.system import SolveReport, System, Vector

Int64 = NDArray[np.int64]
EPSILON = float(np.finfo(np.float64).eps)


class QuasiDefinite:
    """Factorise in `prepare`, substitute and refine in `solve`."""

    name = "quasi_definite"

    def __init__(self) -> None:
        self.system: MultiplierSystem
        self._factors: SparseFactors | None = None
        self._pattern: tuple[NDArray[np.int64], NDArray[np.int32], int] | None = None

    def prepare(self, system: System, reuse: str | None = None) -> None:
        """Take a system; reuse = "values" keeps the factors of that system. Collective.

        Raises:
            SetupError: On all ranks, where multipliers or couplings reach over ranks.
            DivergenceError: On all ranks, where a pivot has not its sign.
        """
        if not isinstance(system, MultiplierSystem):
            raise SetupError(
                f"quasi_definite solves bodies with multipliers, not a {type(system).__name__}"
            )
        if reuse == "values" and self._pattern is not None and system is self.system:
            return
        if not system.is_local:
            raise SetupError(
                'quasi_definite factorises what lies on one rank; what joins ranks needs "direct"'
            )
        self.system = system
        indptr, indices, data = system.rows_with_zeros()
        signs = np.ones(system.size)
        signs[system.bodies.size :] = -1.0
        error = None
        try:
            if system.size > 0:
                self._known(indptr, indices).factor(indptr, indices, data, signs)
        except DivergenceError as failure:
            error = failure
        system.comm.raise_together(error)
        # |A| is at least its largest diagonal entry: a residual of eps |A| |x| is rounding.
        own = float(np.abs(system.diagonal()).max(initial=0.0))
        self._rounding_unit = 2.0 * EPSILON * system.comm.maximum(own)

    def _known(self, indptr: Int64, indices: NDArray[np.int32]) -> SparseFactors:
        """The fronts of a pattern; body unknowns with the same neighbours are one vertex."""
        size, count = self.system.bodies.size, self.system.multipliers
        known = self._pattern
        if (
            self._factors is not None
            and known is not None
            and known[2] == size
            and np.array_equal(known[0], indptr)
            and np.array_equal(known[1], indices)
        ):
            return self._factors
        starts = _vertices(indptr[: size + 1], indices)
        widths = np.concatenate((np.diff(np.append(starts, size)), np.ones(count, np.int64)))
        late = np.arange(len(widths)) >= len(starts)
        self._factors = SparseFactors(
            *vertex_graph(indptr, indices, widths), widths=widths.astype(np.int32), late=late
        )
        self._pattern = indptr, indices, size
        return self._factors

    def solve(
        self, b: Vector, x: Vector, *, tol: float = 1e-8, max_iterations: int = 20
    ) -> SolveReport:
        """Solve, and refine until |b - A x| <= tol |b| or the rest is rounding. Collective."""
        start, system = perf_counter(), self.system
        scale = math.sqrt(system.dot(b, b))
        product, step = np.empty_like(b), np.empty_like(b)
        norm, iterations = math.inf, 0
        while True:
            system.multiply(x, product)
            residual = b - product
            former, norm = norm, math.sqrt(system.dot(residual, residual))
            rounding = self._rounding_unit * math.sqrt(system.dot(x, x))
            # Once more than needed: the first answer is the lesser one without pivots.
            met = norm <= tol * scale and iterations > 1
            stalls = not norm < 0.5 * former
            if met or norm == 0.0 or stalls or iterations >= min(max_iterations, 20):
                break
            if system.size > 0:
                assert self._factors is not None
                self._factors.solve(residual, step)
                x += step
            iterations += 1
        return SolveReport(
            self.name,
            system.total_size,
            iterations,
            perf_counter() - start,
            norm / scale if scale > 0.0 else 0.0,
            math.isfinite(norm) and norm <= max(tol * scale, rounding),
        )


def _vertices(indptr: Int64, indices: NDArray[np.int32]) -> Int64:
    """First unknown of each run that has the same neighbours."""
    size = len(indptr) - 1
    length = np.diff(indptr)
    same = np.flatnonzero(length[1:] == length[:-1])  # a row and the one before
    alike = np.ones(len(same), bool)
    longest = int(length.max(initial=0))
    for place in range(longest):
        there = place < length[same]
        one, two = indptr[same[there]] + place, indptr[same[there] + 1] + place
        alike[there] &= indices[one] == indices[two]
    begins = np.ones(size, bool)
    begins[same[alike] + 1] = False
    return np.flatnonzero(begins)
