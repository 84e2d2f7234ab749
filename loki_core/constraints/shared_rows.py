"""Shared rows: tables whose rows belong to ranks, and copies that other ranks have of them.

A row is owned by one rank, and whoever else needs it has a copy. Rows are known by numbers, which
stay theirs while they travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.parallel.comm import Communicator

Array = NDArray[Any]
Int64 = NDArray[np.int64]
Table = dict[str, Array]


def send_rows(comm: Communicator, table: Mapping[str, Array], rows: Sequence[Int64]) -> Table:
    """Send `rows[r]` of a table to rank r; returns what came here, in rank order. Collective."""
    arrived: Table = {}
    for name, values in table.items():
        parts = comm.all_to_all([np.ascontiguousarray(values[some]).reshape(-1) for some in rows])
        arrived[name] = np.concatenate(parts).reshape(-1, *values.shape[1:])
    return arrived


class Copies:
    """Which rows of this rank others have copies of, and where its own copies come from.

    Making one is collective.

    Args:
        numbers: Of this rank's rows, ascending, [n].
        is_owner: Which of them it owns, [n].
        owners: Rank that owns each of the others, [n - owned].
    """

    def __init__(
        self, comm: Communicator, numbers: Int64, is_owner: NDArray[np.bool_], owners: Int64
    ) -> None:
        self._comm = comm
        copied = np.flatnonzero(~is_owner)
        self._places = [copied[owners == rank] for rank in range(comm.size)]
        asked = comm.all_to_all([numbers[places] for places in self._places])
        self._asked = [np.searchsorted(numbers, wanted) for wanted in asked]

    def refresh(self, rows: Array) -> Array:
        """Rows [n, ...] as their owners have them. Collective."""
        shape = rows.shape[1:]
        parts = self._comm.all_to_all(
            [np.ascontiguousarray(rows[some]).reshape(-1) for some in self._asked]
        )
        fresh = rows.copy()
        for places, part in zip(self._places, parts, strict=True):
            fresh[places] = part.reshape(-1, *shape)
        return fresh
