"""The multigrid hierarchy of large elastic bodies, with the methods of their sparse factors.

    Vanek, Mandel, Brezina 1996; Tamstorf, Jones, McCormick 2015

`factor` makes the levels of a matrix and `solve` runs one symmetric V-cycle over them, which
preconditions, where `SparseFactors` (multifrontal.py) solves. Time and memory of both grow as the
vertices, while factors of n vertices of a solid take n^(4/3) numbers and n^2 multiplications.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import DivergenceError, InputError, SetupError
from loki_core.kernels.algebra.block_rows import SPARE, fill_blocks
from loki_core.kernels.algebra.block_scaling import enter, hold_alone, leave
from loki_core.linear_solvers.elastic_cycle import Level, dense_halves, level_of, run_cycle
from loki_core.linear_solvers.elastic_levels import (
    MODES,
    Aggregates,
    BlockRows,
    Pattern,
    Scaling,
    find_aggregates,
    finish,
    make_coarse,
    make_prolongator,
    product_pattern,
    scale,
)
from loki_core.linear_solvers.rigid_modes import rigid_modes, wrong_modes, wrong_widths

Array = NDArray[Any]

COARSEST = 480  # unknowns that are solved directly
MOST_LEVELS = 12
PIVOT = 1e-13  # of a coarse diagonal entry: a pivot below is rounding


class ElasticHierarchy:
    """Levels of matrices on one graph of vertices.

    Args:
        indptr, indices: Neighbours of each vertex: both directions of every edge, in any order.
        widths: Unknowns of each vertex, up to 6; 3 where nothing is given. The unknowns of a vertex
            follow one another, in the order of the vertices.
        coordinates: Positions of the vertices at which the matrices are taken, not those at rest: a
            fold that is not known costs twice the iterations.
        modes: Up to six vectors that the matrices make small, [size, k], instead of coordinates.

    Attributes:
        size: Unknowns.
        levels: Finest first.

    The first `factor` decides on aggregates and later ones keep them. `factor` and `solve` use work
    space of the object: one call at a time.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        widths: Array | None = None,
        coordinates: Array | None = None,
        modes: Array | None = None,
    ) -> None:
        vertices = len(indptr) - 1
        widths = np.full(vertices, 3) if widths is None else np.asarray(widths)
        wrong = wrong_widths(vertices, widths)
        if wrong:
            raise SetupError(wrong)
        self.size = int(widths.sum())
        self.width = 3 if widths.max(initial=0) <= 3 else 6
        self._begin = _offsets(widths)
        self._vertex_of = np.repeat(np.arange(vertices, dtype=np.int32), widths)
        self.graph = neighbours(indptr, indices, np.ones(vertices, np.int64))
        self._known: list[Aggregates] = []
        self.levels: list[Level] = []
        self._halves = np.empty(0, np.float32)
        self.take_modes(coordinates=coordinates, modes=modes)

    def take_modes(self, *, coordinates: Array | None = None, modes: Array | None = None) -> None:
        """Take the positions at which the next matrix is taken, or modes.

        Raises:
            SetupError: Neither fits the vertices.
        """
        widths = np.diff(self._begin)
        wrong = wrong_modes(widths, coordinates, modes)
        if wrong:
            raise SetupError(wrong)
        if modes is None:
            modes = rigid_modes(np.asarray(coordinates, np.float64), widths)
        # The vertices of the first level all have `width` unknowns.
        shift = self.width * np.arange(len(widths)) - self._begin[:-1]
        self._modes = np.zeros(len(widths) * self.width * MODES + SPARE)
        table = self._modes[:-SPARE].reshape(-1, MODES)
        table[np.arange(self.size) + shift[self._vertex_of], : modes.shape[1]] = modes

    def fits(self, graph: Pattern, widths: Array) -> bool:
        """Whether these are the neighbours, as `neighbours` finds them, and the widths."""
        return all(map(np.array_equal, (*self.graph, np.diff(self._begin)), (*graph, widths)))

    @property
    def nbytes(self) -> int:
        """Memory held."""
        lists = (self._modes, self._halves, self._vertex_of, self._begin, *self.graph)
        levels = sum(one.nbytes for one in self.levels) + sum(one.nbytes for one in self._known)
        return levels + sum(one.nbytes for one in lists)

    @property
    def operator_complexity(self) -> float:
        """Numbers in the matrices of all levels over those of the first."""
        first = max(1, self.levels[0].matrix.blocks.size)
        return sum(level.matrix.blocks.size for level in self.levels) / first

    # -- the levels --------------------------------------------------------------------------------

    def factor(self, indptr: Array, indices: Array, data: Array) -> None:
        """Make the levels of a symmetric matrix.

        Entries above the diagonal are not read: either the lower triangle or both may be there.

        Args:
            indptr, indices: Compressed rows of unknowns, in any order within a row; columns from
                `size` on are ghosts and left out.
            data: Entries [nnz].

        Raises:
            DivergenceError: When a vertex's own block is not positive definite; it names the row.
            InputError: When the matrix has an entry without an edge of the graph.
        """
        self.levels = []
        matrix, modes = self._filled(indptr, indices, data), self._modes.copy()
        hold_alone(*matrix.parts, self.width, modes)
        scaling = scale(matrix, modes, 0.0)
        self._raise_failure(scaling)
        self._halves = scaling.halves.astype(np.float32)
        levels = [level_of(matrix, 0)]
        while matrix.size > COARSEST and len(levels) < MOST_LEVELS:
            level, depth = levels[-1], len(levels) - 1
            if depth == len(self._known):
                aggregates = find_aggregates(matrix, scaling.strengths, depth)
                if aggregates is None:
                    break  # nothing hangs together: smoothing does it
                self._known.append(aggregates)
            found = self._known[depth]
            p, modes = make_prolongator(matrix, modes, found, level.largest)
            matrix = make_coarse(matrix, p, found)
            scaling = scale(matrix, modes, PIVOT)
            level.down, level.up = finish(p, scaling.halves, found)
            levels.append(level_of(matrix, depth + 1))
        if matrix.size <= COARSEST:
            levels[-1].halves = dense_halves(matrix)
        self.levels = levels

    def _filled(self, indptr: Array, indices: Array, data: Array) -> BlockRows:
        if len(indptr) - 1 != self.size or len(indices) != len(data):
            raise InputError(
                f"the matrix has {len(indptr) - 1} rows, {len(indices)} indices and {len(data)} "
                f"data; the graph has {self.size} unknowns"
            )
        matrix = BlockRows.allocate(self.graph, self.width, self.width)
        matrix.blocks[:] = 0.0
        misfits = np.empty(matrix.rows, np.int64)
        fill_blocks(
            np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int32),
            np.ascontiguousarray(data, np.float64), self._vertex_of, self._begin, *self.graph,
            self.width, matrix.blocks, misfits,
        )  # fmt: skip
        bad = misfits[misfits >= 0]
        if bad.size:
            row = int(np.searchsorted(indptr, bad[0], side="right")) - 1
            raise InputError(
                f"the matrix joins the unknowns {row} and {int(indices[bad[0]])}, whose vertices "
                "are no neighbours in the graph"
            )
        return matrix

    def _raise_failure(self, scaling: Scaling) -> None:
        advice = "look for values that are not finite, a negative stiffness, or missing mass"
        bad = np.flatnonzero(scaling.failed >= 0)
        if bad.size:
            row = int(self._begin[bad[0]] + scaling.failed[bad[0]])
            raise DivergenceError(
                f"the matrix is not positive definite: the pivot of row {row} in the own block of "
                f"vertex {int(bad[0])} is not positive; {advice}"
            )
        if not np.isfinite(scaling.strengths.sum()):
            raise DivergenceError(f"the matrix has entries that are not finite; {advice}")

    # -- the cycle ---------------------------------------------------------------------------------

    def solve(self, b: Array, x: Array) -> None:
        """Write a V-cycle's answer to b to x; both float64 [size], and may be the same array."""
        if not self.levels:
            raise SetupError("there are no levels to solve with: call factor first")
        first = self.levels[0]
        largest = float(np.abs(b).max(initial=0.0))
        scaling = largest if largest > 0.0 else 1.0  # single precision reaches down to 1e-38 only
        enter(self._begin, self._halves, self.width, b, 1.0 / scaling, first.r)
        run_cycle(self.levels)
        leave(self._begin, self._halves, self.width, first.x, scaling, x)


def neighbours(indptr: Array, indices: Array, widths: Array) -> Pattern:
    """Neighbours of each vertex and itself, ascending, from the compressed rows of its unknowns.

    Columns from the last unknown on are ghosts and have no vertex here.
    """
    vertices, size = len(widths), int(np.sum(widths))
    rows = np.ascontiguousarray(indptr[_offsets(widths)], np.int64)
    columns = np.ascontiguousarray(indices, np.int32)
    places = np.arange(max(size, int(columns.max(initial=-1)) + 1) + 1, dtype=np.int64)
    owners = np.minimum(places, size), np.repeat(np.arange(vertices, dtype=np.int32), widths)
    found = product_pattern((rows, columns), owners, vertices)
    own = np.repeat(np.arange(vertices), np.diff(found[0]))
    is_alone = np.ones(vertices, np.bool_)
    is_alone[own[own == found[1]]] = False
    alone = np.flatnonzero(is_alone)
    if not alone.size:
        return found
    columns = np.insert(found[1], found[0][alone], alone.astype(np.int32))
    starts = found[0] + np.searchsorted(alone, np.arange(vertices + 1))
    each = np.arange(vertices + 1, dtype=np.int64), np.arange(vertices, dtype=np.int32)
    return product_pattern((starts, columns), each, vertices)


def _offsets(lengths: Array) -> Array:
    """Where ranges of these lengths begin, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
