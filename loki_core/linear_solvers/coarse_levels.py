"""Levels of smoothed aggregation: aggregates of rows, and the coarse matrices P' A P.

Rows are joined along their strongest connections, or in boxes where nothing cuts those. Aggregates
do not cross ranks; prolongator smoothing does, so that iterations hardly depend on the number of
ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import SetupError
from loki_core.kernels.algebra import sparse_aggregation as aggregation
from loki_core.kernels.algebra import sparse_cycle as cycle
from loki_core.kernels.algebra.sparse_galerkin import (
    coarse_rows,
    compact_rows,
    prolongator_lengths,
    prolongator_rows,
    smoothing_energies,
)
from loki_core.kernels.basics.rows import LANES
from loki_core.linear_solvers.halo import Halo, ranges
from loki_core.linear_solvers.sparse_system import Boxes, SlicedMatrix

Array = NDArray[Any]

LARGEST = 2.0  # bound of the eigenvalues of D^-1 A, by the choice of D
SAMPLES = 300  # aggregates from which the damping is taken


@dataclass
class Level:
    """One level; vectors hold own rows and ghosts.

    Attributes:
        omega: Damping of the prolongator's smoothing step.
        aggregate: Aggregate of each own row, -1 for none; empty on the coarsest level.
        inverse: This rank's rows of the dense inverse, on the coarsest level only.
    """

    matrix: SlicedMatrix
    halo: Halo
    inverse_diagonal: Array
    labels: Array
    omega: float = 2.0 / 3.0
    aggregate: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    starts: Array = field(default_factory=lambda: np.zeros(1, dtype=np.int32))
    members: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    inverse: Array | None = None

    def allocate(self) -> None:
        """Make the vectors of the cycle."""
        length = self.halo.length
        self.r = np.zeros(self.halo.rows, dtype=np.float32)
        self.x = np.zeros(length, dtype=np.float32)
        self.y = np.zeros(length, dtype=np.float32)
        self.v = np.zeros(length, dtype=np.float32)

    @property
    def entries(self) -> tuple[Array, Array, Array]:
        """Slices, columns and values of the matrix."""
        return self.matrix.slices, self.matrix.columns, self.matrix.values


def component_labels(near_null_space: Sequence[Array] | None, rows: int) -> Array:
    """Component of each unknown, from indicator vectors; empty when there is one component."""
    if near_null_space is None or len(near_null_space) == 0:
        return np.empty(0, dtype=np.int8)
    labels = np.full(rows, -1, dtype=np.int8)
    for number, vector in enumerate(near_null_space):
        inside = vector != 0
        constant = bool(np.all(vector[inside] == vector[inside][:1])) if inside.any() else True
        if not constant or np.any(labels[inside] >= 0):
            raise SetupError(
                f"near_null_space[{number}] is not constant on unknowns of its own; smoothed "
                "aggregation takes one indicator vector per component: use another solver for "
                "systems with other near null spaces"
            )
        labels[inside] = number
    return labels


def make_level(matrix: SlicedMatrix, halo: Halo, labels: Array) -> Level:
    inverse = np.zeros(matrix.rows, dtype=np.float32)
    cycle.inverse_diagonals(matrix.slices, matrix.columns, matrix.values, inverse)
    return Level(matrix, halo, inverse, labels)


def make_aggregates(level: Level, known: Level | None, boxes: Boxes | None) -> None:
    """Fill aggregate, starts, members; take them from a level with the same pattern if given."""
    if known is not None and len(known.aggregate) == level.matrix.rows:
        level.aggregate, level.starts, level.members = known.aggregate, known.starts, known.members
        return
    level.aggregate = np.full(level.matrix.rows, -1, dtype=np.int32)
    count = 0 if boxes is None else _take_boxes(level, boxes)
    # A row without entries takes part in nothing.
    left = np.flatnonzero((level.aggregate < 0) & (level.inverse_diagonal > 0.0))
    if left.size:
        found, more = _join_rows(level, left.astype(np.int32))
        level.aggregate[left] = np.where(found >= 0, found + count, -1)
        count += more
    level.starts = np.zeros(count + 1, dtype=np.int32)
    level.members = np.empty(int(np.count_nonzero(level.aggregate >= 0)), dtype=np.int32)
    aggregation.list_members(level.aggregate, level.starts, level.members)


def _take_boxes(level: Level, boxes: Boxes) -> int:
    """Make aggregates of the boxes that nothing cuts; return their number."""
    contacts = np.empty(level.matrix.rows, dtype=np.int32)
    aggregation.count_contacts(*level.entries, level.labels, boxes.number, contacts)
    total = np.bincount(boxes.number, weights=contacts, minlength=len(boxes.contacts))
    whole = total == boxes.contacts
    cut = np.zeros(len(whole), dtype=np.bool_)
    cut[boxes.number[contacts < 0]] = True
    whole &= ~cut
    numbers = np.where(whole, np.cumsum(whole) - 1, -1).astype(np.int32)
    level.aggregate = numbers[boxes.number]
    return int(np.count_nonzero(whole))


def _join_rows(level: Level, chosen: Array) -> tuple[Array, int]:
    """Aggregate of each of some rows, -1 for none, and the number of aggregates."""
    place = np.full(level.matrix.rows, -1, dtype=np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    graph = _Graph(len(chosen))
    aggregation.strong_graph(*level.entries, level.labels, chosen, place, *graph.lists)
    # A row without strong connections is left to the smoother.
    active = graph.neighbours[:, 0] >= 0
    sizes = np.ones(len(chosen), dtype=np.int32)
    aggregate = np.arange(len(chosen), dtype=np.int32)
    aggregate[~active] = -1
    for _ in range(3):
        group, members, count = _join(graph, active)
        aggregation.compose(aggregate, group)
        new_sizes = np.empty(count, dtype=np.int32)
        aggregation.group_sizes(members, sizes, new_sizes)
        collapsed = _Graph(count)
        aggregation.collapse_graph(*graph.lists, group, members, new_sizes, *collapsed.lists)
        graph, sizes, active = collapsed, new_sizes, np.ones(count, dtype=np.bool_)
    return aggregate, len(sizes)


class _Graph:
    """The strongest connections of each node."""

    def __init__(self, nodes: int) -> None:
        self.neighbours = np.empty((nodes, aggregation.DEGREE), dtype=np.int32)
        self.weights = np.empty((nodes, aggregation.DEGREE), dtype=np.float32)
        self.touch = np.empty((nodes, aggregation.DEGREE), dtype=np.uint8)

    @property
    def lists(self) -> tuple[Array, Array, Array]:
        return self.neighbours, self.weights, self.touch


def _join(graph: _Graph, active: Array) -> tuple[Array, Array, int]:
    """Group of each node, members of each group, and how many groups."""
    nodes = len(active)
    group = np.full(nodes, -1, dtype=np.int32)
    stamp = np.full(nodes, -1, dtype=np.int32)
    members = np.empty((nodes, 4), dtype=np.int32)
    count = int(aggregation.join_chains(graph.neighbours, active, stamp, group, members))
    renumbered = stamp[:count]
    count = int(aggregation.join_leftovers(graph.neighbours, group, members, count, renumbered))
    return group, members[:count], count


def coarsen(level: Level) -> Level:
    """Make the next level: its matrix, and the ghosts that this needs."""
    halo, own = level.halo, len(level.starts) - 1
    extra, extended_inverse, aggregate, ghost_aggregates = _surroundings(level)
    level.omega = _damping(level, extra, extended_inverse)
    matrix = _coarse_matrix(level, extra, extended_inverse, aggregate)
    used, matrix.columns = _used_ghosts(matrix, own, ghost_aggregates)
    labels = level.labels
    if labels.size:
        labels = labels[level.members[level.starts[:-1]]] if own else labels[:0]
    return make_level(matrix, Halo(halo.comm, own, used), labels)


def _coarse_matrix(
    level: Level, extra: SlicedMatrix, extended_inverse: Array, aggregate: Array
) -> SlicedMatrix:
    """P' A P of this rank's aggregates, columns numbered as in `aggregate`."""
    rows, own = level.matrix.rows, len(level.starts) - 1
    matrices = (*level.entries, extra.slices, extra.columns, extra.values, rows)
    prolongator = _prolongator(level, extra, extended_inverse, aggregate)
    lengths = np.zeros(own, dtype=np.int32)
    chosen = np.arange(own, dtype=np.int32)
    places = np.empty(own, dtype=np.int64)
    is_stencil = level.matrix.values.size < 16 * rows
    capacity, width = (1024, 64) if is_stencil else (4096, 256)
    table_columns, table_values = np.empty(0, np.int32), np.empty(0, np.float32)
    while len(chosen):  # rows that did not fit are computed once more, with more room
        places[chosen] = len(table_columns) + width * np.arange(len(chosen), dtype=np.int64)
        more = width * len(chosen)
        table_columns = np.concatenate((table_columns, np.empty(more, np.int32)))
        table_values = np.concatenate((table_values, np.empty(more, np.float32)))
        coarse_rows(
            *matrices, extended_inverse, level.omega, *prolongator, level.starts, level.members,
            capacity, width, chosen, places, lengths, table_columns, table_values,
        )  # fmt: skip
        capacity *= 4 if np.any(lengths == -1) else 1
        width *= 2 if np.any(lengths == -2) else 1
        chosen = np.flatnonzero(lengths < 0).astype(np.int32)
    widths = np.zeros((own + LANES - 1) // LANES * LANES, dtype=np.int64)
    widths[:own] = lengths
    widths = widths.reshape(-1, LANES).max(axis=1, initial=0)
    matrix = SlicedMatrix.allocate(own, widths, np.float32)
    compact_rows(
        lengths, places, table_columns, table_values, matrix.slices, matrix.columns, matrix.values
    )
    return matrix


def _prolongator(
    level: Level, extra: SlicedMatrix, extended_inverse: Array, aggregate: Array
) -> tuple[Array, Array, Array]:
    """Starts, columns and values of the rows of P, of own rows and extra ones."""
    rows = level.matrix.rows
    matrices = (*level.entries, extra.slices, extra.columns, extra.values, rows)
    widest = [int(np.diff(one.slices).max(initial=0)) for one in (level.matrix, extra)]
    longest = max(widest) // LANES
    lengths = np.empty(rows + extra.rows, np.int32)
    prolongator_lengths(*matrices, aggregate, longest + 1, lengths)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    prolongator_rows(
        *matrices, extended_inverse, level.omega, aggregate, starts, columns, values
    )  # fmt: skip
    return starts, columns, values


def _damping(level: Level, extra: SlicedMatrix, extended_inverse: Array) -> float:
    """The omega for which the prolongator's columns have the least energy, from a sample."""
    own = len(level.starts) - 1
    step = max(1, own // SAMPLES)
    energies = np.zeros(((own + step - 1) // step, 2))
    smoothing_energies(
        *level.entries, extra.slices, extra.columns, extra.values, level.matrix.rows,
        extended_inverse, level.starts, level.members, step, energies,
    )  # fmt: skip
    sums = level.halo.comm.all_reduce(energies.sum(axis=0), "sum")
    classic = 4.0 / (3.0 * LARGEST)
    if not (sums[1] > 0.0 and math.isfinite(sums[0] / sums[1])):
        return classic
    return float(min(max(sums[0] / sums[1], 0.5 * classic), 3.0 * classic))


def _used_ghosts(matrix: SlicedMatrix, own: int, ghosts: Array) -> tuple[Array, Array]:
    """Global numbers of the ghost columns that occur, and the columns renumbered to them."""
    if not ghosts.size:
        return ghosts, matrix.columns
    occurs = np.zeros(own + ghosts.size, dtype=np.bool_)
    occurs[matrix.columns[matrix.values != 0.0]] = True
    occurs[:own] = True
    numbers = (np.cumsum(occurs) - 1).astype(np.int32)
    columns = np.where(matrix.values != 0.0, matrix.columns, 0)
    return ghosts[occurs[own:]], numbers[columns]


def _surroundings(level: Level) -> tuple[SlicedMatrix, Array, Array, Array]:
    """What the coarse rows of this rank need of other ranks.

    Returns two layers of rows beyond its own, D^-1 of own rows and those, the aggregate of own rows
    and three layers (own aggregates, then ghosts), and the ghost aggregates' global numbers.
    """
    halo, matrix = level.halo, level.matrix
    own = len(level.starts) - 1
    none = SlicedMatrix(
        0, np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, matrix.values.dtype)
    )
    if halo.comm.size == 1 and not halo.ghost_rows.size:
        return none, level.inverse_diagonal, level.aggregate, np.empty(0, dtype=np.int64)
    rows = matrix.to_csr()
    # Ghosts are numbered in the order of the layers, each sorted; the first is the halo's own.
    known = halo.ghost_rows
    indptr = np.zeros(1, dtype=np.int64)
    columns, values = np.empty(0, np.int64), np.empty(0, matrix.values.dtype)
    layer = known
    for _ in range(2):
        order = np.argsort(layer, kind="stable")
        starts, got_columns, got_values = halo.fetch_rows(layer[order], rows)
        starts, got_columns, got_values = _reorder(starts, got_columns, got_values, order)
        indptr = np.concatenate((indptr, indptr[-1] + starts[1:]))
        columns = np.concatenate((columns, got_columns))
        values = np.concatenate((values, got_values))
        mine = (got_columns >= halo.first) & (got_columns < halo.first + halo.rows)
        layer = np.setdiff1d(got_columns[~mine], known)
        known = np.concatenate((known, layer))
    place = np.argsort(known, kind="stable")
    mine = (columns >= halo.first) & (columns < halo.first + halo.rows)
    local = np.where(mine, columns - halo.first, 0)
    found = place[np.searchsorted(known[place], columns[~mine])]
    local[~mine] = halo.rows + found
    extra = SlicedMatrix.from_csr(indptr, local.astype(np.int32), values)
    if extra.rows == 0:
        extra = none
    inverse = halo.fetch(known, level.inverse_diagonal)
    first = int(sum(int(c[0]) for c in halo.comm.all_gather(np.array([own]))[: halo.comm.rank]))
    numbers = np.where(level.aggregate >= 0, level.aggregate.astype(np.int64) + first, -1)
    ghost_numbers = halo.fetch(known, numbers)
    ghosts = np.unique(ghost_numbers[ghost_numbers >= 0])
    # A self-ghost (a periodic axis on one rank) belongs to an own aggregate.
    ghosts = ghosts[(ghosts < first) | (ghosts >= first + own)]
    ours = (ghost_numbers >= first) & (ghost_numbers < first + own)
    compact = np.where(
        ghost_numbers < 0,
        -1,
        np.where(ours, ghost_numbers - first, own + np.searchsorted(ghosts, ghost_numbers)),
    )
    return (
        extra,
        np.concatenate((level.inverse_diagonal, inverse)),
        np.concatenate((level.aggregate, compact.astype(np.int32))),
        ghosts,
    )


def _reorder(starts: Array, columns: Array, values: Array, order: Array) -> tuple[Any, ...]:
    """Compressed rows that were fetched in sorted order, back in the order of the layer."""
    back = np.argsort(order, kind="stable")
    lengths = np.diff(starts)[back]
    entries = ranges(starts[:-1][back], lengths)
    new_starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    return new_starts, columns[entries], values[entries]
