"""Sparse Bodies: the bodies of a body system that are too large for an envelope.

An envelope keeps the order of a body's unknowns, and fills: that of a sheet of n^2 points has 9 n^3
entries, where nested dissection needs about 60 n^2 log n. Such bodies keep in the envelope only
what single points have; all else is in the system's compressed rows, with what joins bodies. Their
matrix, couplings between them included, has factors of its own (`multifrontal.py`), which
precondition: so they need not be those of the present state, nor in double precision. Those in
single take two thirds of the time and half of the memory, for two iterations more; where that is
too rough for a matrix, it gets double ones from then on.

Factors of solids grow faster than these: n points take n^2 multiplications. Where they are so many
that multigrid is quicker it preconditions instead (`elastic_hierarchy.py`), if it is known where
all points are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import DivergenceError
from loki_core.linear_solvers.elastic_hierarchy import ElasticHierarchy
from loki_core.linear_solvers.multifrontal import SparseFactors
from loki_core.linear_solvers.system import Vector

Array = NDArray[Any]

#: Iterations with new factors from which single precision is too rough.
ROUGH = 10
#: Multiplications of an envelope's factorisation from which a body is large; below it is as quick.
LARGE = 2.0e7
#: Multiplications of a factorisation, for each unknown, from which multigrid is quicker.
DEAR = 4.0e5


def is_large(first: Array, body_start: Array) -> bool:
    """Whether any of some bodies is, by the envelope of its rows.

    Args:
        first: First stored column of each row, [size].
        body_start: First unknown of each body and the end of the last.
    """
    size = int(body_start[-1] - body_start[0])
    if size == 0:
        return False
    width = (np.arange(body_start[0], body_start[-1]) - first + 1).astype(np.float64)
    starts = body_start[:-1][np.diff(body_start) > 0] - body_start[0]
    return bool(np.add.reduceat(width * width, starts).max() > LARGE)


class SparseBodies:
    """Large bodies of this rank and their factors.

    Args:
        unknowns: Numbers of their unknowns, ascending.
        widths: Unknowns of each of their vertices, which follow one another.
        coordinates: Rest positions of the vertices, which suggest the order; none if unknown.
        rows: Where the envelope's rows begin, of all unknowns.
        first: First stored column of the envelope's rows.
        couplings: Compressed rows (indptr, indices) of all unknowns.
        places: Tells where the vertices are now, [vertices, 3]; None if that is not known.

    Attributes:
        precision: Of the factors, "single" or "double".
        is_dear: Whether factors are, so that a hierarchy takes their place.
        hierarchy: It, once it is made.
        is_fresh: Whether the factors are of the matrix as it was given last.
        has_factors: Whether there are any.
    """

    def __init__(
        self,
        unknowns: Array,
        widths: Array,
        coordinates: Array | None,
        rows: Array,
        first: Array,
        couplings: tuple[Array, Array],
        places: Callable[[], Array] | None = None,
    ) -> None:
        self.unknowns = unknowns
        self.is_fresh = self.has_factors = False
        size, count = len(first), len(unknowns)
        number = np.full(size, -1)
        number[unknowns] = np.arange(count)
        indptr, indices = couplings
        of_row = np.repeat(np.arange(size), np.diff(indptr))
        inside = np.flatnonzero((of_row >= indices) & (number[of_row] >= 0))
        inside = inside[number[indices[inside]] >= 0]
        # Entries of single points, from the envelope.
        lengths = unknowns - first[unknowns] + 1
        row = np.repeat(unknowns, lengths)
        starts = np.cumsum(lengths) - lengths
        column = (
            np.arange(len(row)) - np.repeat(starts, lengths) + np.repeat(first[unknowns], lengths)
        )
        key = np.concatenate((
            number[of_row[inside]] * count + number[indices[inside]],
            number[row] * count + number[column],
        ))  # fmt: skip
        distinct, self._target = _distinct(key)
        self._inside, self._banded = inside, rows[row] + column
        number_of, number_to = np.divmod(distinct, max(count, 1))
        self._indptr = _offsets(number_of, count)
        self._indices = number_to.astype(np.int32)
        vertex = np.repeat(np.arange(len(widths)), widths)
        one, two = vertex[number_of], vertex[number_to]
        ends, _ = _distinct(np.concatenate((one * len(widths) + two, two * len(widths) + one)))
        of, to = np.divmod(ends, max(len(widths), 1))
        self._graph = _offsets(of, len(widths)), to.astype(np.int32)
        self._widths, self._coordinates = widths, coordinates
        self.precision = "single"
        self._factors = self._new_factors()
        self._places = places
        self.is_dear = places is not None and self._factors.multiplications > DEAR * count
        self.hierarchy: ElasticHierarchy | None = None
        self._b, self._x = np.empty(count), np.empty(count)

    def _new_factors(self) -> SparseFactors:
        return SparseFactors(
            *self._graph, widths=self._widths, coordinates=self._coordinates,
            precision=self.precision,
        )  # fmt: skip

    @property
    def bytes(self) -> int:
        """Memory of the factors, and of the lists by which they are filled."""
        lists = (self._target, self._inside, self._banded, self._indptr, self._indices)
        held = self._factors.nbytes + (self.hierarchy.nbytes if self.hierarchy else 0)
        return held + sum(one.nbytes for one in lists)

    def factor(self, values: Array, data: Array) -> None:
        """Factorise the matrix of these entries: the envelope's, and the compressed rows'.

        Raises:
            DivergenceError: It is not positive definite.
        """
        self.is_fresh = self.has_factors = False
        entries = np.concatenate((data[self._inside], values[self._banded]))
        whole = np.bincount(self._target, weights=entries, minlength=len(self._indices))
        self._factor(whole)
        self.is_fresh = self.has_factors = True

    def _factor(self, whole: Array) -> None:
        if self.is_dear and self._places is not None:
            if self.hierarchy is None:
                self.hierarchy = ElasticHierarchy(
                    *self._graph, widths=self._widths, coordinates=self._places()
                )
            else:
                self.hierarchy.take_modes(coordinates=self._places())
            self.hierarchy.factor(self._indptr, self._indices, whole)
            return
        try:
            self._factors.factor(self._indptr, self._indices, whole)
        except DivergenceError:
            if self.precision == "double":
                raise
            self._become_double()
            self._factors.factor(self._indptr, self._indices, whole)

    def note(self, iterations: int) -> None:
        """Take note of how many iterations a solve with new factors took."""
        if iterations > ROUGH and self.precision == "single" and not self.is_dear:
            self._become_double()
            self.has_factors = False

    def _become_double(self) -> None:
        self.precision = "double"
        self._factors = self._new_factors()

    def solve(self, b: Vector, x: Vector) -> None:
        """Write the answer of the factors to the unknowns of these bodies, and to no others."""
        np.take(b, self.unknowns, out=self._b)
        (self.hierarchy or self._factors).solve(self._b, self._x)
        x[self.unknowns] = self._x


def _distinct(keys: Array) -> tuple[Array, Array]:
    """Sorted keys, each once, and which of them each was; quicker than numpy's hash table."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_new = np.diff(ordered, prepend=-1) > 0  # keys are numbers from 0
    which = np.empty(len(keys), np.int64)
    which[order] = np.cumsum(is_new) - 1
    return ordered[is_new], which


def _offsets(rows: Array, count: int) -> Array:
    """Where the entries of each row begin, of entries in the order of their rows."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return offsets
