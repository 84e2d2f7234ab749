"""The levels of smoothed aggregation, and one cycle over them.

Each level is held in float32 but for the first, whose matrix is the system's own. The prolongator
P = (I - omega D^-1 A) P0 is not stored: it is applied as a product with A, which costs a pass over
the matrix and saves more memory than the whole of the coarse levels takes. How the coarse levels
are made is in coarse_levels.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.algebra import sparse_cycle as cycle
from loki_core.linear_solvers.coarse_levels import (
    LARGEST,
    Level,
    coarsen,
    component_labels,
    make_aggregates,
    make_level,
)
from loki_core.linear_solvers.halo import Halo
from loki_core.linear_solvers.sparse_system import Boxes, SlicedMatrix
from loki_core.parallel.blas_threads import one_blas_thread

Array = NDArray[Any]

COARSEST = 300  # unknowns over all ranks that are solved directly
MOST_LEVELS = 20
# Degree of the Chebyshev smoother, and the range of eigenvalues below the largest that it damps:
# on the first level, and on the coarse ones, where work is cheap.
SMOOTHERS = ((2, 12.0), (3, 10.0))


class Hierarchy:
    """All levels of one matrix, finest first. Making one is collective."""

    def __init__(
        self,
        matrix: SlicedMatrix,
        halo: Halo,
        *,
        near_null_space: Sequence[Array] | None = None,
        singular: bool = False,
        boxes: Boxes | None = None,
        aggregates_of: Hierarchy | None = None,
    ) -> None:
        labels = component_labels(near_null_space, matrix.rows)
        self.singular = singular
        self.levels = [make_level(matrix, halo, labels)]
        while len(self.levels) < MOST_LEVELS:
            level = self.levels[-1]
            depth = len(self.levels) - 1
            if level.halo.total <= COARSEST:
                break
            known = None
            if aggregates_of is not None and depth < len(aggregates_of.levels) - 1:
                known = aggregates_of.levels[depth]
            make_aggregates(level, known, boxes if depth == 0 else None)
            coarse_total = level.halo.comm.total(len(level.starts) - 1)
            stalls = coarse_total > 0.7 * level.halo.total and level.halo.total > 8 * COARSEST
            if coarse_total == 0 or stalls:
                break  # nothing is strongly coupled: smoothing alone does it
            self.levels.append(coarsen(level))
        last = self.levels[-1]
        if last.halo.total <= 8 * COARSEST:
            last.inverse = _dense_inverse(last, singular)
        for level in self.levels:
            level.allocate()
        self._coefficients = [
            _chebyshev(*SMOOTHERS[min(depth, 1)]) for depth in range(len(self.levels))
        ]

    def replace_first(self, matrix: SlicedMatrix, halo: Halo) -> None:
        """Take a matrix that is nearly the first level's; the coarse levels stay. Collective."""
        level = self.levels[0]
        fresh = make_level(matrix, halo, level.labels)
        level.matrix, level.halo = matrix, halo
        level.inverse_diagonal = fresh.inverse_diagonal
        if level.inverse is not None:
            level.inverse = _dense_inverse(level, self.singular)

    @property
    def nbytes(self) -> int:
        """Bytes held, the system's own matrix apart."""
        total = 0
        for depth, level in enumerate(self.levels):
            arrays = [level.inverse_diagonal, level.aggregate, level.starts, level.members]
            arrays += [level.r, level.x, level.y, level.v]
            total += sum(a.nbytes for a in arrays) + (level.matrix.nbytes if depth else 0)
            total += 0 if level.inverse is None else level.inverse.nbytes
        return total

    @property
    def operator_complexity(self) -> float:
        """Stored entries of all levels over those of the first."""
        first = max(1, self.levels[0].matrix.values.size)
        return sum(level.matrix.values.size for level in self.levels) / first

    def apply(self) -> Array:
        """Precondition `levels[0].r` by one cycle; return the result (own rows). Collective."""
        self._cycle(0)
        return self.levels[0].x[: self.levels[0].halo.rows]

    def _cycle(self, depth: int) -> None:
        level = self.levels[depth]
        if level.inverse is not None:
            gathered = np.concatenate(level.halo.comm.all_gather(level.r))
            cycle.dense_product(level.inverse, gathered, level.x)
            return
        coefficients = self._coefficients[depth]
        cycle.scaled_start(level.inverse_diagonal, level.r, coefficients[0][0], level.x)
        for step, (factor, momentum) in enumerate(coefficients[1:]):
            self._relax(level, factor, momentum, momentum if step else 0.0)
        if depth + 1 < len(self.levels):
            self._correct(level, depth)
        for factor, momentum in coefficients:
            self._relax(level, factor, momentum, momentum)

    def _relax(self, level: Level, factor: float, momentum: float, memory: float) -> None:
        level.halo.refresh(level.x)
        cycle.relax(
            *level.matrix.products, level.inverse_diagonal, level.r, level.x, factor, momentum,
            memory, level.y,
        )  # fmt: skip
        level.x, level.y = level.y, level.x

    def _correct(self, level: Level, depth: int) -> None:
        """Add the next level's correction: x += P A_c^-1 P' (r - A x)."""
        coarse = self.levels[depth + 1]
        inverse = level.inverse_diagonal
        level.halo.refresh(level.x)
        cycle.scaled_residual(*level.matrix.products, inverse, level.r, level.x, level.v)
        level.halo.refresh(level.v)
        cycle.smooth_transposed(*level.matrix.products, inverse, level.omega, level.v, level.y)
        cycle.restrict(level.starts, level.members, level.y, coarse.r)
        self._cycle(depth + 1)
        cycle.prolong(level.aggregate, coarse.x, level.v)
        level.halo.refresh(level.v)
        cycle.add_smoothed(*level.matrix.products, inverse, level.omega, level.v, level.x)


def _dense_inverse(level: Level, singular: bool) -> Array:
    """This rank's rows of the (pseudo-)inverse of the whole level's matrix. Collective."""
    halo = level.halo
    indptr, indices, data = level.matrix.to_csr()
    own_rows = np.repeat(np.arange(halo.rows, dtype=np.int64), np.diff(indptr)) + halo.first
    all_rows = np.concatenate(halo.comm.all_gather(own_rows))
    all_columns = np.concatenate(halo.comm.all_gather(halo.column_rows()[indices]))
    all_values = np.concatenate(halo.comm.all_gather(data.astype(np.float64)))
    dense = np.zeros((halo.total, halo.total))
    np.add.at(dense, (all_rows, all_columns), all_values)
    with one_blas_thread():
        inverse = _invert(0.5 * (dense + dense.T), singular)
    return np.ascontiguousarray(inverse[halo.first : halo.first + halo.rows], dtype=np.float32)


def _invert(dense: Array, singular: bool) -> Array:
    """Inverse of a symmetric matrix on the rows that have entries; pseudo-inverse if singular."""
    inverse = np.zeros_like(dense)
    scale = np.sqrt(np.maximum(np.diag(dense), 0.0))
    used = np.flatnonzero(scale > 0.0)
    if not used.size or not np.all(np.isfinite(dense)):
        return inverse
    unit = dense[np.ix_(used, used)] / np.outer(scale[used], scale[used])
    solution = None
    if not singular:
        try:
            factor = np.linalg.cholesky(unit)
            if np.diag(factor).min() > 1e-3:  # pivots of 1e-6, far above float32 rounding
                half = np.linalg.inv(factor)
                solution = half.T @ half
        except np.linalg.LinAlgError:
            pass  # a pocket without outlet: the eigenvalues below find it
    if solution is None:
        values, vectors = np.linalg.eigh(unit)
        kept = values > 1e-6 * values[-1]
        solution = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    inverse[np.ix_(used, used)] = solution / np.outer(scale[used], scale[used])
    return inverse


def _chebyshev(degree: int, span: float) -> list[tuple[float, float]]:
    """(factor, momentum) of each step of a Chebyshev smoother on [LARGEST / span, LARGEST]."""
    upper, lower = 1.02 * LARGEST, LARGEST / span
    theta, delta = 0.5 * (upper + lower), 0.5 * (upper - lower)
    sigma = theta / delta
    rho = 1.0 / sigma
    steps = [(1.0 / theta, 0.0)]
    for _ in range(degree - 1):
        new = 1.0 / (2.0 * sigma - rho)
        steps.append((2.0 * new / delta, new * rho))
        rho = new
    return steps
