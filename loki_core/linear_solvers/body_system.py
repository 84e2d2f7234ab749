"""Many bodies, each with a matrix of its own, and the couplings between them, as a System.

    A = diag(B_1, B_2, ...) + C

The matrices B of the bodies are symmetric and stored by their lower envelopes
(kernels/algebra/skyline.py), those of large ones by compressed rows, in C
(`sparse_bodies.py`). Attachments and contacts that join bodies are compressed rows C, both
triangles stored; what they add to the diagonal blocks belongs into the bodies, where the
preconditioner sees it. Bodies are whole on one rank; columns of C from `size` on are ghosts, rows
of other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import InputError
from loki_core.kernels.algebra.skyline import (
    add_couplings,
    add_diagonal,
    dot_bodies,
    multiply_bodies,
)
from loki_core.linear_solvers.halo import Halo
from loki_core.linear_solvers.remainder import Remainder
from loki_core.linear_solvers.sparse_bodies import SparseBodies
from loki_core.linear_solvers.system import Rows, Vector
from loki_core.parallel.comm import SERIAL, Communicator
from loki_core.parallel.reduce import exact_sum

Array = NDArray[Any]


class BodySystem:
    """A x = b for bodies and what joins them, this rank's part. Making one is collective.

    Args:
        body_start: First unknown of each body and the end of the last, int64 [bodies + 1].
        first: First stored column of each row, int64 [size].
        row: Where rows begin, from `envelope_of`, int64 [size].
        values: Entries of the bodies' matrices, float64.
        couplings: Compressed rows (indptr int64 [size + 1], indices int32, data float64) of what
            joins bodies, or None; the data of remainders follow those of the rows.
        ghost_rows: Global numbers of the couplings' columns from `size` on, int64.
        sparse: The bodies whose matrices are in the couplings, if any is so large.
        remainders: Elements that join bodies, of sets that change.
        comm: The ranks that share the system.

    Attributes:
        has_couplings: Whether anything joins bodies, on any rank.
        has_sparse: Whether any rank has large bodies.
    """

    kind = "spd"
    block_size = 1
    near_null_space: Sequence[Array] | None = None

    def __init__(
        self,
        body_start: Array,
        first: Array,
        row: Array,
        values: Array,
        couplings: Rows | None = None,
        *,
        ghost_rows: Array | None = None,
        sparse: SparseBodies | None = None,
        remainders: Sequence[Remainder] = (),
        comm: Communicator = SERIAL,
    ) -> None:
        self.comm = comm
        self.size = int(body_start[-1])
        self.body_start, self.first, self.row, self.values = body_start, first, row, values
        self.null_space: list[Vector] = []
        ghosts = 0 if ghost_rows is None else len(ghost_rows)
        error = _complaint(body_start, first, row, values, couplings, self.size + ghosts)
        comm.raise_together(None if error is None else InputError(error))
        self.couplings, self.sparse, self.remainders = couplings, sparse, list(remainders)
        self.has_sparse = comm.any(sparse is not None)
        self.has_couplings = comm.any(
            (couplings is not None and len(couplings[1]) > 0)
            or any(len(one.dofs) > 0 for one in remainders)
        )
        self.halo = Halo(comm, self.size, ghost_rows)
        self.total_size = self.halo.total
        self._partial = np.zeros(len(body_start) - 1)
        self._extended = np.zeros(self.halo.length if ghosts else 0)

    @property
    def bodies(self) -> int:
        """Bodies of this rank."""
        return len(self.body_start) - 1

    def multiply(self, x: Vector, out: Vector) -> None:
        """Write A x to out. Collective."""
        multiply_bodies(self.values, self.row, self.first, self.body_start, x, out)
        if not self.has_couplings:
            return
        if len(self._extended):
            self._extended[: self.size] = x
            x = self._extended
        self.halo.refresh(x)
        if self.couplings is not None:
            add_couplings(*self.couplings, x, out)
            for one in self.remainders:
                one.add_product(self.couplings[2], x, out)

    def dot(self, x: Vector, y: Vector) -> float:
        """Inner product over all ranks; it depends on neither threads nor ranks. Collective."""
        dot_bodies(x, y, self.body_start, self._partial)
        return exact_sum(self.comm, self._partial)

    def diagonal(self) -> Vector:
        """The diagonal of A, this rank's part."""
        found: Vector = self.values[self.row + np.arange(self.size)]
        if self.couplings is not None:
            add_diagonal(*self.couplings, found)
            for one in self.remainders:
                rows, columns, data = one.entries(self.couplings[2])
                own = rows == columns
                np.add.at(found, rows[own], data[own])
        return found

    def csr(self, *, zeros: bool = False) -> Rows:
        """This rank's rows as (indptr, indices, data), both triangles.

        Args:
            zeros: Whether entries that are 0 now are there, so that the pattern stays.
        """
        number = np.arange(self.size, dtype=np.int64)
        lower = np.repeat(number, number - self.first + 1)
        columns = np.arange(len(lower)) - np.repeat(self.row, number - self.first + 1)
        values = self.values[: len(lower)]
        above = lower != columns
        rows = np.concatenate((lower, columns[above]))
        columns = np.concatenate((columns, lower[above]))
        values = np.concatenate((values, values[above]))
        if self.couplings is not None:
            coupled = self._coupling_entries()
            rows = np.concatenate((rows, coupled[0]))
            columns = np.concatenate((columns, coupled[1]))
            values = np.concatenate((values, coupled[2]))
        return _compressed(rows, columns, values, self.size, self.halo.length, zeros=zeros)

    def _coupling_entries(self) -> tuple[Array, Array, Array]:
        assert self.couplings is not None
        indptr, indices, data = self.couplings
        rows = np.repeat(np.arange(self.size), np.diff(indptr))
        parts = [(rows, indices.astype(np.int64), data[: len(indices)])]
        parts += [one.entries(data) for one in self.remainders]
        row, column, value = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return row, column, value


def _compressed(
    rows: Array, columns: Array, values: Array, size: int, width: int, *, zeros: bool
) -> Rows:
    """Compressed rows of entries in any order; those on one place are added."""
    place = rows * max(width, 1) + columns
    order = np.argsort(place, kind="stable")
    place = place[order]
    begins = np.flatnonzero(np.diff(place, prepend=-1))
    data = np.add.reduceat(values[order], begins) if len(begins) else np.empty(0)
    kept = np.ones(len(data), bool) if zeros else data != 0.0
    place = place[begins][kept]
    indptr = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(place // max(width, 1), minlength=size), out=indptr[1:])
    return indptr, (place % max(width, 1)).astype(np.int32), data[kept]


def _complaint(
    body_start: Array, first: Array, row: Array, values: Array, couplings: Rows | None, columns: int
) -> str | None:
    """What is wrong with the parts of a system, or None."""
    size = int(body_start[-1])
    if int(body_start[0]) != 0 or np.any(np.diff(body_start) < 0):
        return "a body system's body_start must begin with 0 and not decrease"
    if len(first) != size or len(row) != size:
        return (
            f"a body system of {size} unknowns has {len(first)} first columns and {len(row)} rows"
        )
    entries = int(row[-1]) + size if size else 0
    if len(values) < entries:
        return f"a body system has {len(values)} values; its envelope has {entries}"
    if couplings is None:
        return None
    indptr, indices, data = couplings
    if len(indptr) != size + 1 or int(indptr[-1]) != len(indices) or len(indices) > len(data):
        return (
            f"the couplings of {size} unknowns have {len(indptr) - 1} rows, {len(indices)} indices "
            f"and {len(data)} data"
        )
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        return (
            f"couplings have columns {int(indices.min())} to {int(indices.max())}; with its ghosts "
            f"the system has only 0 to {columns - 1}"
        )
    return None
