"""Remainder: elements of a changing set in a system of bodies, such as contacts.

What joins bodies and stays has compressed rows, whose pattern is sorted out once. Elements that
come and go in every step would pay for that every time, so they stay as they are: a matrix each,
which a product visits in a fixed order. What an element does within reach of a body's envelope goes
there, where the preconditioner sees it; the envelope is not widened.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.algebra.remainder import (
    add_elements,
    add_forces_by_place,
    find_places,
    group_unknowns,
    keep_matrices,
    share_matrices,
)

Array = NDArray[Any]
Float = NDArray[np.float64]


class Remainder:
    """The elements of one Constraint.

    Args:
        dofs: Their unknowns: own ones, then ghosts from the number of own ones on, int32 [n, d].
        row: Where the rows of the bodies' matrices begin (kernels/algebra/skyline), [size].
        first: First stored column of each of these rows, [size].
        part: Where the elements' entries are in the array of all that bodies do not keep.
    """

    def __init__(self, dofs: NDArray[np.int32], row: Array, first: Array, part: slice) -> None:
        self.dofs, self._row, self._part = dofs, row, part
        size = len(row)
        self._begins, self._places = np.empty(size + 1, np.int64), np.empty(dofs.size, np.int64)
        find_places(dofs, size, self._begins, self._places)
        self._groups = np.empty(dofs.shape, np.int8)
        group_unknowns(dofs, size, first, self._groups)

    def matrices(self, data: Float) -> Float:
        """The elements' part of that array, [n, d, d]."""
        count, width = self.dofs.shape
        return data[self._part].reshape(count, width, width)

    def add(
        self, forces: Float, matrices: Float, fixed: Array, rhs: Float, values: Float, data: Float
    ) -> None:
        """Add element forces [n, d] and matrices [n, d, d] to the joint system."""
        add_forces_by_place(self._begins, self._places, forces, fixed, rhs)
        keep_matrices(self.dofs, self._groups, matrices, fixed, len(self._row), self.matrices(data))
        share_matrices(
            self._begins, self._places, self.dofs, self._groups, matrices, fixed, self._row, values
        )

    def add_product(self, data: Float, x: Float, out: Float) -> None:
        """Add the product with x, own unknowns and ghosts, to out [size]."""
        add_elements(self._begins, self._places, self.dofs, self.matrices(data), x, out)

    def entries(self, data: Float) -> tuple[Array, Array, Float]:
        """Rows, columns and values of own rows, in any order; some may be on one place."""
        width = self.dofs.shape[1]
        row = np.repeat(self.dofs, width, axis=1).reshape(-1).astype(np.int64)
        column = np.tile(self.dofs, (1, width)).reshape(-1).astype(np.int64)
        own = np.flatnonzero(row < len(self._row))
        return row[own], column[own], data[self._part][own]
