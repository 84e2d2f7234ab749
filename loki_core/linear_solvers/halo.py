"""Ghost rows of distributed vectors: who owns them, and how their values get here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import InputError
from loki_core.kernels.algebra.sparse_sliced import gather_rows
from loki_core.parallel.comm import Communicator

Array = NDArray[Any]


class Halo:
    """The ghosts of one distribution of rows over ranks. Making one is collective.

    A row's global number is the number of rows on lower ranks plus its place on its own rank.

    Attributes:
        rows: Rows of this rank.
        first: Global number of this rank's first row.
        total: Rows of all ranks.
        ghost_rows: Global numbers of the ghosts, int64; they follow the own rows in vectors.
    """

    def __init__(self, comm: Communicator, rows: int, ghost_rows: Array | None = None) -> None:
        self.comm = comm
        self.rows = rows
        if ghost_rows is None:
            ghost_rows = np.empty(0, dtype=np.int64)
        self.ghost_rows = np.ascontiguousarray(ghost_rows, dtype=np.int64)
        counts = np.concatenate(comm.all_gather(np.array([rows], dtype=np.int64)))
        self.offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
        self.first, self.total = int(self.offsets[comm.rank]), int(self.offsets[-1])
        wrong = np.flatnonzero((self.ghost_rows < 0) | (self.ghost_rows >= self.total))
        comm.raise_together(
            InputError(
                f"ghost_rows[{wrong[0]}] = {self.ghost_rows[wrong[0]]} is not a row of the "
                f"system, which has {self.total} over {comm.size} ranks"
            )
            if wrong.size
            else None
        )
        self._receive, asked = self._ask(self.ghost_rows)
        self._send = {r: a for r, a in enumerate(asked) if a.size}

    @property
    def length(self) -> int:
        """Own rows and ghosts: the length of a vector that is multiplied."""
        return self.rows + int(self.ghost_rows.size)

    def column_rows(self) -> NDArray[np.int64]:
        """Global row number of each column of a matrix: own rows, then ghosts."""
        own = np.arange(self.first, self.first + self.rows, dtype=np.int64)
        return np.concatenate((own, self.ghost_rows))

    def refresh(self, x: Array) -> None:
        """Bring the ghosts of a vector of `length` up to date. Collective."""
        if not self._send and not self._receive:
            return
        sends = {r: np.empty(rows.size, dtype=x.dtype) for r, rows in self._send.items()}
        for r, rows in self._send.items():
            gather_rows(x, rows, sends[r])
        receives = {r: np.empty(places.size, dtype=x.dtype) for r, places in self._receive.items()}
        self.comm.post(sends, receives).wait()
        for r, places in self._receive.items():
            x[self.rows + places] = receives[r]

    def fetch(self, wanted: NDArray[np.int64], values: Array) -> Array:
        """Return `values` (one per own row) of the wanted global rows, any rank's. Collective."""
        places, asked = self._ask(wanted)
        replies = self.comm.all_to_all([values[rows] for rows in asked])
        found = np.empty(wanted.size, dtype=values.dtype)
        for r, here in places.items():
            found[here] = replies[r]
        return found

    def fetch_rows(
        self, wanted: NDArray[np.int64], rows: tuple[Array, Array, Array]
    ) -> tuple[Array, Array, Array]:
        """Return compressed rows of the wanted global rows, columns as global numbers. Collective.

        Args:
            wanted: Global numbers of rows, sorted.
            rows: Own rows as (indptr, indices, data).
        """
        indptr, indices, data = rows
        column_rows = self.column_rows()
        places, asked = self._ask(wanted)
        lengths, columns, values = [], [], []
        for asked_rows in asked:
            length = np.diff(indptr)[asked_rows].astype(np.int64)
            entries = ranges(indptr[asked_rows].astype(np.int64), length)
            lengths.append(length)
            columns.append(column_rows[indices[entries]].astype(np.int64))
            values.append(data[entries])
        got_lengths = self.comm.all_to_all(lengths)
        got_columns = self.comm.all_to_all(columns)
        got_values = self.comm.all_to_all(values)
        # `wanted` is sorted, so replies in rank order are in its order.
        order = np.concatenate([places[r] for r in sorted(places)] or [np.empty(0, np.int64)])
        assert np.array_equal(order, np.arange(wanted.size))
        length = np.concatenate(got_lengths)
        starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(length)))
        return starts, np.concatenate(got_columns), np.concatenate(got_values)

    def _ask(self, wanted: NDArray[np.int64]) -> tuple[dict[int, Array], list[Array]]:
        """Places in `wanted` by owner, and the own rows that each rank wants from here."""
        owner = np.searchsorted(self.offsets, wanted, side="right") - 1
        places = {int(r): np.flatnonzero(owner == r) for r in np.unique(owner)}
        requests = [
            wanted[places[r]] - self.offsets[r] if r in places else np.empty(0, dtype=np.int64)
            for r in range(self.comm.size)
        ]
        return places, self.comm.all_to_all(requests)


def ranges(starts: Array, lengths: Array) -> Array:
    """Concatenate the ranges [start, start + length)."""
    total = int(lengths.sum())
    if total == 0:
        return np.empty(0, dtype=np.int64)
    ends = np.cumsum(lengths)
    result: Array = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return result
