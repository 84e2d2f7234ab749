"""Couplings: elements whose unknowns lie in several bodies, and where they enter the joint system.

    same body         into the body's envelope, which is widened where it has to be
    two bodies        into compressed rows, both triangles; one that is large, too
    another rank's    rows are that rank's to fill; as columns they are ghosts

Every rank has all elements that touch any of its bodies, and keeps its own rows of them. Which
contributions meet at which place is sorted out once, and lasts while elements and bodies stay.
Constraints whose elements change in every step do without (`linear_solvers/remainder.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.solids.coupling_assembly import add_sums
from loki_core.linear_solvers.remainder import Remainder
from loki_core.linear_solvers.system import Rows

Array = NDArray[Any]
Int64 = NDArray[np.int64]
Float = NDArray[np.float64]


class _Sums:
    """Contributions, sorted by the place (row, column) where they meet."""

    def __init__(self, row: Int64, column: Int64, parts: Int64, width: int) -> None:
        key = row * width + column
        order = np.argsort(key, kind="stable")
        self.key: Int64
        self.key, begins = np.unique(key[order], return_index=True)
        self.parts = parts[order].astype(np.int64)
        self.starts = np.append(begins, len(order)).astype(np.int64)
        self.row = (self.key // width).astype(np.int32)
        self.column = (self.key % width).astype(np.int32)
        self.places: NDArray[np.intp] = np.zeros(len(self.key), np.intp)

    def add(self, contributions: Float, fixed: Array, target: Float) -> None:
        add_sums(
            self.starts, self.parts, contributions.reshape(-1), self.row, self.column, fixed,
            self.places, target,
        )  # fmt: skip


class CoupledElements:
    """The elements of one Constraint.

    Attributes:
        dofs: Their unknowns: own ones, then ghosts from the number of own ones on, int32 [n, d].
    """

    def __init__(self, dofs: Int64, body: Int64, width: int) -> None:
        d = dofs.shape[1]
        self.dofs = dofs.astype(np.int32)
        size = len(body)
        flat = dofs.reshape(-1)
        own = np.flatnonzero(flat < size)
        self.forces = _Sums(flat[own], flat[own], own, width)
        self.forces.places = self.forces.row.astype(np.int64)
        row = np.repeat(dofs, d, axis=1).reshape(-1)
        column = np.tile(dofs, (1, d)).reshape(-1)
        extended = np.append(body, np.full(width - size, -1))
        mine = row < size
        same = mine & (extended[row] == extended[column]) & (extended[row] >= 0)
        inside, outside = np.flatnonzero(same & (row >= column)), np.flatnonzero(mine & ~same)
        self.inside = _Sums(row[inside], column[inside], inside, width)
        self.outside = _Sums(row[outside], column[outside], outside, width)

    def add(
        self, forces: Float, matrices: Float, fixed: Array, rhs: Float, values: Float, data: Float
    ) -> None:
        """Add element forces [n, d] and matrices [n, d, d] to the joint system."""
        self.forces.add(forces, fixed, rhs)
        self.inside.add(matrices, fixed, values)
        self.outside.add(matrices, fixed, data)


class Couplings:
    """What joins bodies, of all Constraints of this rank.

    Args:
        body_start: First unknown of each own body, and the end, [bodies + 1].
        first_row: Global number of this rank's first unknown.
        dofs: For each Constraint the global numbers of its elements' unknowns, int64 [n, d].
        large: Which own unknowns are of bodies without an envelope, [size].

    Attributes:
        elements: The elements of each Constraint, in that order.
        remainders: Those of Constraints whose elements change, as `renew` found them.
        ghost_rows: Global numbers of other ranks' unknowns that own ones are joined with.
        data: Entries of the compressed rows, and then of the remainders.
    """

    def __init__(
        self, body_start: Int64, first_row: int, dofs: Sequence[Int64], large: NDArray[np.bool_]
    ) -> None:
        size = int(body_start[-1])
        flat = np.concatenate([np.empty(0, np.int64), *(one.reshape(-1) for one in dofs)])
        self._kept_ghosts = _distinct(flat[(flat < first_row) | (flat >= first_row + size)])
        self.ghost_rows, self._first_row, self._size = self._kept_ghosts, first_row, size
        body = np.repeat(np.arange(len(body_start) - 1), np.diff(body_start))
        body[large] = -1
        width = size + len(self.ghost_rows)
        self.elements = [CoupledElements(self._local(one), body, max(width, 1)) for one in dofs]
        keys = _distinct(
            np.concatenate([np.empty(0, np.int64), *(one.outside.key for one in self.elements)])
        )
        indptr = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(keys // max(width, 1), minlength=size), out=indptr[1:])
        indices = (keys % max(width, 1)).astype(np.int32)
        self._pattern = indptr, indices
        self.data = np.zeros(len(keys))
        self.remainders: list[Remainder] = []
        for one in self.elements:
            one.outside.places = np.searchsorted(keys, one.outside.key)

    @property
    def rows(self) -> Rows:
        """Compressed rows (indptr, indices, data) of what joins bodies and stays."""
        return (*self._pattern, self.data)

    def _local(self, dofs: Int64) -> Int64:
        """Own unknowns, then ghosts: those of what stays, and then further ones."""
        own, kept, size = dofs - self._first_row, self._kept_ghosts, self._size
        ghost = np.searchsorted(kept, dofs)
        further = self.ghost_rows[len(kept) :]
        if len(further):
            is_kept = np.isin(dofs, kept)
            ghost = np.where(is_kept, ghost, len(kept) + np.searchsorted(further, dofs))
        return np.where((own >= 0) & (own < size), own, size + ghost).astype(np.int64)

    def renew(self, changing: Sequence[Int64], row: Int64, first: Int64) -> None:
        """Take the elements of Constraints whose elements change.

        Args:
            changing: Global numbers of their unknowns, [n, d] of each Constraint.
            row: Where the rows of the bodies' matrices begin, [size].
            first: First stored column of each.
        """
        flat = np.concatenate([np.empty(0, np.int64), *(one.reshape(-1) for one in changing)])
        begin, end, kept = self._first_row, self._first_row + self._size, self._kept_ghosts
        foreign = _distinct(flat[(flat < begin) | (flat >= end)])
        self.ghost_rows = np.concatenate((kept, foreign[~np.isin(foreign, kept)]))
        at = len(self._pattern[1])
        self.remainders = []
        for one in changing:
            part = slice(at, at + len(one) * one.shape[1] ** 2)
            dofs = self._local(one).astype(np.int32)
            self.remainders.append(Remainder(dofs, row, first, part))
            at = part.stop
        if at != len(self.data):
            self.data = np.zeros(at)

    def widen(self, first: Int64) -> None:
        """Let the rows of bodies reach every column that an element couples them to."""
        for one in self.elements:
            np.minimum.at(first, one.inside.row, one.inside.column)

    def place(self, row: Int64) -> None:
        """Take where the rows of the bodies' matrices begin."""
        for one in self.elements:
            one.inside.places = row[one.inside.row] + one.inside.column

    def clear(self) -> None:
        """Set what joins bodies to zero."""
        self.data[:] = 0.0


def _distinct(values: Int64) -> Int64:
    """Sorted, each once; for millions of keys quicker than numpy's hash table."""
    ordered = np.sort(values)
    found: Int64 = ordered[np.diff(ordered, prepend=-1) > 0]  # numbers of unknowns, from 0
    return found
