"""The V-cycle of elastic smoothed aggregation, in single precision.

The smoother is Chebyshev's on the scaled matrix (Adams, Brezina, Hu, Tuminaro 2003), the same
before and after the coarse correction, so that the cycle is symmetric. The coarsest level is solved
by a dense Cholesky factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.algebra.block_rows import SPARE, relax, subtract_product
from loki_core.kernels.algebra.sparse_cycle import dense_product
from loki_core.linear_solvers.elastic_levels import BlockRows, largest_eigenvalue
from loki_core.parallel.blas_threads import one_blas_thread

Array = NDArray[Any]

#: Degree of the Chebyshev smoother, and the range of eigenvalues below the largest that it damps,
#: by depth. From the third level on work is cheap, and errors would add up from level to level.
SMOOTHERS = ((2, 12.0), (2, 12.0), (4, 30.0))


@dataclass
class Level:
    """One level of the cycle, in single precision.

    Attributes:
        matrix: S, scaled to ones on the diagonal.
        largest: A bound of its eigenvalues.
        steps: (factor, momentum) of each step of the smoother.
        down, up: P from the next level, and P^T; None on the coarsest.
        halves: H and H^T, H^T H = S^-1, of a coarsest level that is small enough.
        r, x, y: Residual, solution and work space of the cycle.
    """

    matrix: BlockRows
    largest: float
    steps: list[tuple[float, float]]
    down: BlockRows | None = None
    up: BlockRows | None = None
    halves: tuple[Array, Array] | None = None
    r: Array = field(init=False)
    x: Array = field(init=False)
    y: Array = field(init=False)

    def __post_init__(self) -> None:
        self.r, self.x, self.y = (np.zeros(self.matrix.size, np.float32) for _ in range(3))

    @property
    def nbytes(self) -> int:
        held = (self.matrix, self.down, self.up, *(self.halves or ()), self.r, self.x, self.y)
        return sum(one.nbytes for one in held if one is not None)

    def smooth(self, *, from_zero: bool = False) -> None:
        """Take the steps of the smoother from x, or from zero."""
        steps, is_begun = self.steps, False
        if from_zero:
            np.multiply(self.r, np.float32(steps[0][0]), out=self.x)
            steps = steps[1:]
        for factor, momentum in steps:
            memory = momentum if is_begun else 0.0  # before that there is no x before
            relax(
                *self.matrix.parts, self.matrix.width, self.r, self.x, factor, momentum, memory,
                self.y,
            )  # fmt: skip
            self.x, self.y, is_begun = self.y, self.x, True


def level_of(matrix: BlockRows, depth: int) -> Level:
    """A level of the cycle from a scaled matrix."""
    single = matrix.single()
    largest = largest_eigenvalue(single) if matrix.size else 1.0
    degree, span = SMOOTHERS[min(depth, len(SMOOTHERS) - 1)]
    return Level(single, largest, chebyshev(degree, span, largest))


def run_cycle(levels: list[Level], depth: int = 0) -> None:
    """Write the answer to a level's r to its x."""
    level = levels[depth]
    if level.halves is not None:
        half, transposed = level.halves
        dense_product(half, level.r, level.y)
        dense_product(transposed, level.y, level.x)
        return
    level.smooth(from_zero=True)
    if level.down is not None and level.up is not None:
        coarse = levels[depth + 1]
        subtract_product(*level.matrix.parts, level.matrix.width, level.r, level.x, level.y)
        level.up.add_to(level.y, coarse.r, memory=0.0)
        run_cycle(levels, depth + 1)
        level.down.add_to(coarse.x, level.x, memory=1.0)
    level.smooth()


def chebyshev(degree: int, span: float, largest: float) -> list[tuple[float, float]]:
    """(factor, momentum) of each step of a Chebyshev smoother on [largest / span, largest]."""
    theta, delta = 0.5 * largest * (1.0 + 1.0 / span), 0.5 * largest * (1.0 - 1.0 / span)
    sigma = theta / delta
    rho = 1.0 / sigma
    steps = [(1.0 / theta, 0.0)]
    for _ in range(degree - 1):
        new = 1.0 / (2.0 * sigma - rho)
        steps.append((2.0 * new / delta, new * rho))
        rho = new
    return steps


def dense_halves(matrix: BlockRows) -> tuple[Array, Array]:
    """H and H^T with H^T H = S^-1 of a small matrix, without the part of a null space.

    Two products with halves stay positive definite in single precision, one with S^-1 may not.
    """
    row = np.repeat(np.arange(matrix.rows), np.diff(matrix.starts))
    table = np.zeros((matrix.rows, matrix.width, matrix.rows, matrix.width))
    blocks = matrix.blocks[:-SPARE].reshape(-1, matrix.width, matrix.width)
    table[row, :, matrix.columns, :] = blocks.swapaxes(1, 2)
    dense = table.reshape(matrix.size, matrix.size)
    with one_blas_thread():
        half = _inverse_half(0.5 * (dense + dense.T)).astype(np.float32)
    return half, np.ascontiguousarray(half.T)


def _inverse_half(dense: Array) -> Array:
    try:
        factor = np.linalg.cholesky(dense)
        if np.diag(factor).min(initial=1.0) > 1e-6:
            return np.linalg.inv(factor)
    except np.linalg.LinAlgError:
        pass  # singular to rounding: the eigenvalues below find what can be solved
    values, vectors = np.linalg.eigh(dense)
    kept = values > 1e-12 * values[-1]
    half: Array = np.zeros_like(dense)
    half[: np.count_nonzero(kept)] = (vectors[:, kept] / np.sqrt(values[kept])).T
    return half
