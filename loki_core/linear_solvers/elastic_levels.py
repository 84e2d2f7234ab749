"""Levels of elastic smoothed aggregation: aggregates, prolongators and coarse matrices.

A level is made in double precision, from the finer one in double precision, and kept in single.
Rounding then disturbs the slowest motion of a body of condition c by eps c^(1/2) of itself; coarse
matrices made in single precision would disturb it by eps c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.algebra.block_rows import SPARE, add_product
from loki_core.kernels.algebra.block_scaling import factor_diagonals, scale_blocks
from loki_core.kernels.algebra.elastic_aggregation import (
    find_limits,
    join_leftovers,
    join_neighbours,
    orthonormalise,
)
from loki_core.kernels.algebra.elastic_galerkin import (
    fill_coarse,
    fill_prolongator,
    finish_prolongator,
    gather_blocks,
)
from loki_core.kernels.algebra.row_patterns import count_product, fill_product, transpose_pattern
from loki_core.kernels.algebra.sparse_aggregation import list_members

Array = NDArray[Any]
Pattern = tuple[Array, Array]

MODES = 6  # of the near null space, and unknowns of a coarse vertex
#: Of a vertex's largest block norm, what a strong connection has at least: on the first level, and
#: on the others, whose vertices have more neighbours.
STRONG = (0.2, 0.5)
WEAK = 0.01  # norm of a scaled block that never is strong: smoothing does without
PRODUCTS = 12  # with the matrix, for its largest eigenvalue
MARGIN = 1.06  # of that estimate, which is from below


@dataclass
class BlockRows:
    """Compressed rows of blocks, by columns (`kernels/algebra/block_rows.py`).

    Attributes:
        starts, columns: Pattern, int64 and int32.
        blocks: Numbers of the blocks, and SPARE more.
    """

    starts: Array
    columns: Array
    height: int
    width: int
    blocks: Array

    @classmethod
    def allocate(
        cls, pattern: Pattern, height: int, width: int, dtype: Any = np.float64
    ) -> BlockRows:
        """Make room for blocks."""
        blocks = np.empty(len(pattern[1]) * height * width + SPARE, dtype)
        blocks[-SPARE:] = 0.0
        return cls(*pattern, height, width, blocks)

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def size(self) -> int:
        """Unknowns of the rows."""
        return self.rows * self.height

    @property
    def pattern(self) -> Pattern:
        return self.starts, self.columns

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        return self.starts, self.columns, self.blocks

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.columns.nbytes + self.blocks.nbytes

    def single(self) -> BlockRows:
        """The same in single precision."""
        return BlockRows(*self.pattern, self.height, self.width, self.blocks.astype(np.float32))

    def add_to(self, x: Array, out: Array, *, memory: float) -> None:
        """Write memory out + M x to out, all in single precision."""
        add_product(*self.parts, self.height, self.width, x, memory, out)


@dataclass
class Aggregates:
    """What joining vertices decides, whatever the values are.

    Attributes:
        aggregate: Of each vertex, -1 for none.
        starts, members: Vertices of each aggregate.
        down, up, coarse: Patterns of P, P^T and A'.
        source: Block of P that each block of P^T is.
        room: Blocks of S that a row of P^T S is summed from, at most.
    """

    aggregate: Array
    starts: Array
    members: Array
    down: Pattern
    up: Pattern
    coarse: Pattern
    source: Array
    room: int

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the lists that no level holds."""
        lists = (self.aggregate, self.starts, self.members, self.source)
        return sum(one.nbytes for one in lists)


@dataclass
class Scaling:
    """L^-1 of the diagonal blocks, |S_ij|^2 of the others, and the first bad pivot of each."""

    halves: Array
    strengths: Array
    failed: Array


def scale(matrix: BlockRows, modes: Array, least: float) -> Scaling:
    """Scale a matrix to ones on its diagonal, and its modes with it, both in place.

    Args:
        least: Of its diagonal entry, what a pivot has to be above.
    """
    width, rows = matrix.width, matrix.rows
    found = Scaling(
        np.zeros(rows * width**2 + SPARE),
        np.empty(len(matrix.columns), np.float32),
        np.empty(rows, np.int64),
    )
    factor_diagonals(*matrix.parts, width, least, found.halves, modes, found.failed)
    scale_blocks(*matrix.parts, width, found.halves, found.strengths)
    return found


def product_pattern(a: Pattern, b: Pattern, columns: int) -> Pattern:
    """Pattern of A B, ascending in each row; `columns` is the number of B's."""
    lengths = np.empty(len(a[0]) - 1, np.int64)
    count_product(*a, *b, columns, lengths)
    starts = np.zeros(len(a[0]), np.int64)
    np.cumsum(lengths, out=starts[1:])
    filled = np.empty(int(starts[-1]), np.int32)
    fill_product(*a, *b, columns, starts, filled)
    return starts, filled


def find_aggregates(matrix: BlockRows, strengths: Array, depth: int) -> Aggregates | None:
    """Join vertices, and find which blocks follow from that; None if nothing hangs together."""
    rows, part = matrix.rows, STRONG[min(depth, 1)]
    limits = np.empty(rows, np.float32)
    find_limits(matrix.starts, strengths, part * part, WEAK * WEAK, limits)
    whole, aggregate = np.empty(rows, np.int32), np.empty(rows, np.int32)
    count = int(join_neighbours(*matrix.pattern, strengths, limits, whole))
    if count == 0:
        return None
    join_leftovers(*matrix.pattern, strengths, limits, whole, aggregate)
    joined = aggregate >= 0
    starts = np.zeros(count + 1, np.int32)
    members = np.empty(int(np.count_nonzero(joined)), np.int32)
    list_members(aggregate, starts, members)
    owners = np.concatenate((np.zeros(1, np.int64), np.cumsum(joined))), aggregate[joined]
    down = product_pattern(matrix.pattern, owners, count)
    up = np.zeros(count + 1, np.int64), np.empty(len(down[1]), np.int32)
    source = np.empty(len(down[1]), np.int64)
    transpose_pattern(*down, *up, source)
    coarse = product_pattern(up, product_pattern(matrix.pattern, down, count), count)
    lengths = np.repeat(np.diff(matrix.starts), np.diff(down[0]))
    room = int(np.bincount(down[1], lengths).max())
    return Aggregates(aggregate, starts, members, down, up, coarse, source, room)


def longest(starts: Array) -> int:
    """Length of the longest row."""
    return int(np.diff(starts).max(initial=0))


def make_prolongator(
    matrix: BlockRows, modes: Array, found: Aggregates, largest: float
) -> tuple[BlockRows, Array]:
    """P with blocks by rows and columns not yet scaled, and the modes of the coarse vertices.

    Args:
        modes: Of the scaled unknowns; T on return.
        largest: Eigenvalue of the matrix.
    """
    coarse_modes = np.zeros(found.count * MODES * MODES + SPARE)
    orthonormalise(found.starts, found.members, matrix.width, modes, coarse_modes)
    p = BlockRows.allocate(found.down, matrix.width, MODES)
    fill_prolongator(
        *matrix.parts, matrix.width, found.aggregate, modes, 4.0 / (3.0 * largest),
        longest(p.starts), *p.parts,
    )  # fmt: skip
    return p, coarse_modes


def make_coarse(matrix: BlockRows, p: BlockRows, found: Aggregates) -> BlockRows:
    """The coarse matrix P^T S P, not yet scaled."""
    coarse = BlockRows.allocate(found.coarse, MODES, MODES)
    fill_coarse(
        *matrix.parts, matrix.width, *found.up, found.source, *p.parts, found.room,
        longest(coarse.starts), *coarse.parts,
    )  # fmt: skip
    return coarse


def finish(p: BlockRows, halves: Array, found: Aggregates) -> tuple[BlockRows, BlockRows]:
    """P and P^T for the scaled coarse unknowns, in single precision; `p` is scaled in place."""
    down = BlockRows.allocate(found.down, p.height, p.width, np.float32)
    finish_prolongator(p.columns, p.blocks, p.height, halves, down.blocks)
    up = BlockRows.allocate(found.up, p.width, p.height, np.float32)
    gather_blocks(found.source, p.blocks, p.height * p.width, up.blocks)
    return down, up


def largest_eigenvalue(matrix: BlockRows) -> float:
    """A bound of the eigenvalues of a scaled matrix, by the Lanczos iteration.

    A few products leave the estimate a few hundredths below the truth, which the margin makes good.
    """
    now = np.random.default_rng(0).standard_normal(matrix.size, dtype=np.float32)
    before, product = np.zeros_like(now), np.empty_like(now)
    now /= np.float32(math.sqrt(_dot(now, now)))
    alphas, betas = [], [0.0]
    for _ in range(min(PRODUCTS, matrix.size)):
        matrix.add_to(now, product, memory=0.0)
        alphas.append(_dot(now, product))
        before *= np.float32(-betas[-1])
        before += product
        before -= np.float32(alphas[-1]) * now
        betas.append(math.sqrt(_dot(before, before)))
        if not betas[-1] > 1e-6 * abs(alphas[-1]):
            break
        before /= np.float32(betas[-1])
        now, before = before, now
    off = np.diag(betas[1 : len(alphas)], 1)
    return MARGIN * float(np.linalg.eigvalsh(np.diag(alphas) + off + off.T)[-1])


def _dot(x: Array, y: Array) -> float:
    """Inner product in numpy's own order: that of the algebra library depends on its threads."""
    return float(np.sum(x * y, dtype=np.float64))
