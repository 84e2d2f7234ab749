"""Parts of a system that nothing holds: closed boxes of gas, pockets between solids.

A part is a set of unknowns that entries join, on any ranks. Where the entries of all its rows sum
to zero, a constant can be added to the part and no equation sees it. The constants of the largest
such parts are the system's null space; in smaller ones one unknown is held.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.linear_solvers.halo import Halo
from loki_core.linear_solvers.system import Vector
from loki_core.parallel.comm import Communicator

Array = NDArray[Any]

LARGEST_PARTS = 4  # each costs a vector, and two inner products an iteration


def constant_of(used: NDArray[np.bool_], comm: Communicator) -> list[Vector]:
    """The constant over all used unknowns, as an orthonormal null space."""
    count = comm.total(int(np.count_nonzero(used)))
    return [used / np.sqrt(count)] if count else []


def hold_unheld_parts(
    starts: Array, columns: Array, data: Array, comm: Communicator, ghost_rows: Array | None
) -> list[Vector]:
    """Null space of the largest unheld parts; one unknown of each other is held in `data`.

    Rows begin with their diagonal. Collective.
    """
    labels, count = parts_of(starts, columns, comm, ghost_rows)
    rows = np.flatnonzero(np.diff(starts) > 0)
    sums = np.add.reduceat(data.astype(np.float64), starts[:-1][rows]) if len(rows) else data[:0]
    # Decided row by row: one opening holds a part of any size.
    is_held = sums > 1e-6 * data[starts[:-1][rows]]
    part = labels[rows]
    size = comm.all_reduce(np.bincount(part, minlength=count), "sum")
    held = comm.all_reduce(np.bincount(part[is_held], minlength=count), "sum")
    unheld = np.flatnonzero((size > 0) & (held == 0))
    ordered = unheld[np.argsort(-size[unheld], kind="stable")]
    first = np.full(count, -1, np.int64)
    first[part[::-1]] = rows[::-1]
    owner = comm.all_reduce(np.where(first >= 0, comm.rank, comm.size), "min")
    small = ordered[LARGEST_PARTS:]
    mine = first[small[owner[small] == comm.rank]]
    data[starts[mine]] *= 2.0
    vectors = []
    for one in ordered[:LARGEST_PARTS]:
        constant = np.zeros(len(starts) - 1)
        constant[rows[part == one]] = 1.0 / np.sqrt(size[one])
        vectors.append(constant)
    return vectors


def parts_of(
    starts: Array, columns: Array, comm: Communicator, ghost_rows: Array | None
) -> tuple[NDArray[np.int64], int]:
    """Part of each own unknown, numbered alike on all ranks, and the number of parts."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    rows = len(starts) - 1
    width = rows + (0 if ghost_rows is None else len(ghost_rows))
    ones = np.ones(len(columns), np.int8)
    square = csr_matrix(
        (ones, columns, np.append(starts, np.full(width - rows, starts[-1], starts.dtype))),
        shape=(width, width),
    )
    count, own = connected_components(square, directed=False)
    if comm.size == 1:
        return own.astype(np.int64), int(count)
    halo = Halo(comm, rows, ghost_rows)
    offsets = np.cumsum([0] + [int(c[0]) for c in comm.all_gather(np.array([count], np.int64))])
    mine = own.astype(np.int64) + offsets[comm.rank]
    # A ghost is in a part of mine and in one of its owner's: the two are one.
    theirs = halo.fetch(halo.ghost_rows, mine[:rows])
    pairs = np.unique(np.stack((mine[rows:], theirs), axis=1), axis=0)
    joined = np.concatenate(comm.all_gather(pairs.reshape(-1))).reshape(-1, 2)
    total = int(offsets[-1])
    graph = csr_matrix((np.ones(len(joined), np.int8), joined.T), shape=(total, total))
    count, merged = connected_components(graph, directed=False)
    return merged.astype(np.int64)[mine[:rows]], int(count)
