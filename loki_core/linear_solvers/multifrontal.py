"""Sparse factors of one large body: nested dissection and dense fronts, our own direct solver.

    A = L S L^T,    S = diag(+1 or -1)

A body of cloth or of tetrahedra is a graph of vertices with some unknowns each. Its order and its
fronts depend on the graph alone: they are found once (`dissection.py`). `factor` takes any matrix
on that graph, `solve` any right-hand side. S is one for a positive definite matrix. That of a
quasi-definite one has the signs of its diagonal blocks, in any order of elimination (Vanderbei
1995). The same bits result on any number of threads.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import DivergenceError, InputError, SetupError
from loki_core.kernels.algebra.front_tiles import PACKED
from loki_core.kernels.algebra.multifrontal import (
    BOUNDARY,
    CHILD,
    CHILDREN,
    COUNT,
    FACTOR,
    FRONT_NUMBERS,
    OWN,
    PLACE,
    STRIPS,
    UNKNOWNS,
    factor_front,
    factor_subtrees,
    find_boundaries,
    locate,
    relate,
    solve_fronts,
    sort_entries,
)
from loki_core.kernels.jit import thread_count
from loki_core.linear_solvers.dissection import (
    Dissection,
    dissection_with_late,
    nested_dissection,
)

Array = NDArray[Any]
SUBTREES = 24  # at least so many for the threads to share, and six for each thread
SMALL = 2.0e6  # multiplications for which threads do not pay
PRECISIONS = {"double": np.float64, "single": np.float32}
EPSILONS = {"double": 2.0**-52, "single": 2.0**-23}


class SparseFactors:
    """Factors of matrices on one graph of vertices.

    Args:
        indptr, indices: Neighbours of each vertex: both directions of every edge, in any order.
        widths: Unknowns of each vertex: 3 for points, 6 for poses, 1 for twists; 3 where nothing is
            given. The unknowns of a vertex follow one another, in the order of the vertices.
        coordinates: Rest positions of the vertices, which suggest where to cut.
        precision: "single" halves the memory, for factors that precondition an iteration.
        late: Vertices that are eliminated right after the last of their neighbours, such as the
            multipliers of a quasi-definite matrix: then what their neighbours leave of them is no
            small pivot, however small their own is. They are no neighbours of each other.

    Attributes:
        size: Unknowns.
        entries: Entries of the factor, zeros that stand in fronts included.
        fronts: How many fronts there are.
        multiplications: Of one factorisation.
        replaced: Pivots that the last factorisation replaced; then the caller has to refine.

    `factor` and `solve` use work space of the object: one call at a time.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        widths: Array | None = None,
        coordinates: Array | None = None,
        precision: str = "double",
        late: Array | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise SetupError(f'precision is "{precision}"; it is "double" or "single"')
        self._dtype: np.dtype[Any] = np.dtype(PRECISIONS[precision])
        self._epsilon = EPSILONS[precision]
        indptr = np.ascontiguousarray(indptr, dtype=np.int64)
        indices = np.ascontiguousarray(indices, dtype=np.int32)
        n = len(indptr) - 1
        if widths is None:
            widths = np.full(n, 3)
        widths = np.ascontiguousarray(widths, dtype=np.int32)
        self.replaced = 0
        if late is None or not np.any(late):
            found = nested_dissection(indptr, indices, widths=widths, coordinates=coordinates)
        else:
            found = dissection_with_late(indptr, indices, widths, coordinates, late)
        self._make_fronts(indptr, indices, widths, found)
        self._plan_subtrees()
        self._plan_updates()
        self._bin_count = 0
        self._pattern: tuple[Array, Array, int] | None = None
        self._factored = False
        self._values = np.empty(0, dtype=self._dtype)

    @property
    def nbytes(self) -> int:
        """Memory held, work space and lists of entries included."""
        held = [one for one in vars(self).values() if isinstance(one, np.ndarray)]
        return sum(one.nbytes for one in held)

    # -- analysis --------------------------------------------------------------------------------

    def _make_fronts(self, indptr: Array, indices: Array, widths: Array, found: Dissection) -> None:
        """Find the own unknowns and the boundary of each front."""
        order, begin, parent = found.order, found.begin, found.parent
        n, count = len(order), len(parent)
        width = widths[order]
        rank = np.empty(n, dtype=np.int32)
        rank[order] = np.arange(n)
        inner = np.flatnonzero(parent >= 0)
        self._children = inner[np.argsort(parent[inner], kind="stable")].astype(np.int32)
        child_begin = _offsets(np.bincount(parent[inner], minlength=count))
        boundary, start = _boundaries(
            indptr, indices, order, rank, begin, child_begin, self._children
        )
        table = np.zeros((count, FRONT_NUMBERS), dtype=np.int64)
        before = _offsets(width)
        table[:, UNKNOWNS] = before[begin[1:]] - before[begin[:-1]]
        table[:, COUNT] = np.diff(_offsets(width[boundary])[start])
        own, outer = -(-table[:, UNKNOWNS] // 8), -(-table[:, COUNT] // 8)
        table[:, OWN], table[:, STRIPS] = own, own + outer
        sizes = 64 * (own * (own + 1) // 2 + own * outer)
        if int(sizes.max(initial=0)) >= 2**31:
            raise SetupError(
                f"{int(before[-1])} unknowns with a separator of {int(table[:, UNKNOWNS].max())} "
                "are too many to factorise: one front has more than 17 GB; use conjugate gradients"
            )
        places, self._factor_size = 8 * _offsets(own), int(sizes.sum())
        table[:, FACTOR], table[:, PLACE] = _offsets(sizes)[:-1], places[:-1]
        lists = 8 * _offsets(outer)
        table[:, BOUNDARY] = lists[:-1]
        table[:, CHILD], table[:, CHILDREN] = child_begin[:-1], np.diff(child_begin)
        front = np.repeat(np.arange(count, dtype=np.int32), np.diff(begin))
        place = (before[:-1] - before[begin[:-1]][front] + places[front]).astype(np.int64)
        self._relative = np.zeros(int(lists[-1]), dtype=np.int32)
        self._beyond = np.full(int(lists[-1]), places[-1], dtype=np.int64)  # that place holds 0
        relate(begin, parent, start, boundary, place, width, table, self._relative, self._beyond)
        self._table, self._parent = table, parent
        self._vertex_of = np.repeat(np.arange(n, dtype=np.int32), widths)
        self.size = len(self._vertex_of)
        within = np.arange(self.size) - _offsets(widths)[:-1][self._vertex_of]
        self._places = place[rank][self._vertex_of] + within
        self._front_of = front[rank]
        self._vector = np.zeros(int(places[-1]) + 8, dtype=self._dtype)
        self._carried = np.zeros(int(lists[-1]), dtype=self._dtype)
        o, b = table[:, UNKNOWNS].astype(np.float64), table[:, COUNT].astype(np.float64)
        self.entries = int((o * (o + 1.0) / 2.0 + o * b).sum())
        self._cost = o * o * o / 6.0 + o * b * (o + b) / 2.0
        self.fronts, self.multiplications = count, float(self._cost.sum())

    def _plan_subtrees(self) -> None:
        """Split the tree into subtrees that threads take whole, and the fronts on top."""
        cost, parent = self._cost.tolist(), self._parent.tolist()
        first, whole = list(range(self.fronts)), list(cost)
        for f, above in enumerate(parent):  # children come first
            if above >= 0:
                whole[above] += whole[f]
                first[above] = min(first[above], first[f])
        heap = [(-whole[f], f) for f, above in enumerate(parent) if above < 0]
        heapq.heapify(heap)
        top: list[int] = []
        done: list[int] = []
        wanted = min(max(SUBTREES, 6 * thread_count()), int(self.multiplications / SMALL))
        children: list[list[int]] = [[] for _ in parent]
        for f, above in enumerate(parent):
            if above >= 0:
                children[above].append(f)
        while heap and len(heap) + len(done) < wanted:
            _, f = heapq.heappop(heap)
            if not children[f] and cost[f] <= SMALL:
                done.append(f)
                continue
            top.append(f)
            for child in children[f]:
                heapq.heappush(heap, (-whole[child], child))
        roots = sorted(done + [f for _, f in heap])
        self._subtrees = [(first[f], f) for f in roots]
        self._subtree_costs = [whole[f] for f in roots]
        self._top = np.array(sorted(top), dtype=np.int64)

    def _plan_updates(self) -> None:
        """Give every update a place: two stacks for each subtree, one room for the rest.

        The children of a front lie on top of one stack, and its own update goes onto the other.
        """
        outer = self._table[:, STRIPS] - self._table[:, OWN]
        sizes = (32 * outer * (outer + 1)).tolist()
        parent = self._parent.tolist()
        kids, child_lists = self._children.tolist(), self._table[:, [CHILD, CHILDREN]].tolist()
        offset = [0] * self.fronts
        odd = [False] * self.fronts
        for f in range(self.fronts - 1, -1, -1):
            odd[f] = parent[f] >= 0 and not odd[parent[f]]
        self._stack_size = 0
        for first, root in self._subtrees:
            tops, peaks = [0, 0], [0, 0]
            for f in range(first, root):
                side = int(odd[f])
                offset[f] = tops[side]
                tops[side] += sizes[f]
                peaks[side] = max(peaks[side], tops[side])
                begin, count = child_lists[f]
                tops[1 - side] -= sum(sizes[c] for c in kids[begin : begin + count])
            for f in range(first, root):
                offset[f] += peaks[0] if odd[f] else 0
            self._stack_size = max(self._stack_size, sum(peaks))
        room = _Room()
        for _, root in self._subtrees:
            offset[root] = room.take(sizes[root])
        for f in self._top.tolist():
            offset[f] = room.take(sizes[f])
            begin, count = child_lists[f]
            for c in kids[begin : begin + count]:
                room.give(offset[c], sizes[c])
        self._shared_size = room.size
        self._offsets = np.array(offset, dtype=np.int64)

    def _make_bins(self, count: int) -> None:
        """Deal the subtrees to bins, the most expensive first, each to the least full bin."""
        count = max(1, min(count, len(self._subtrees)))
        if self.multiplications <= SMALL:
            count = 1
        if count == self._bin_count:
            return
        loads = [(0.0, w) for w in range(count)]
        mine: list[list[int]] = [[] for _ in range(count)]
        for k in sorted(range(len(self._subtrees)), key=lambda k: (-self._subtree_costs[k], k)):
            load, w = heapq.heappop(loads)
            mine[w].append(k)
            heapq.heappush(loads, (load + self._subtree_costs[k], w))
        self._bin_count = count
        self._update = self._offsets + self._factor_size
        lists = []
        for w, subtrees in enumerate(mine):
            stack = self._shared_size + w * self._stack_size
            for k in sorted(subtrees):
                first, root = self._subtrees[k]
                self._update[first:root] += stack
                lists.append(np.arange(first, root + 1, dtype=np.int64))
        self._bins = np.concatenate([np.empty(0, np.int64), *lists])
        lengths = [
            sum(root + 1 - first for first, root in (self._subtrees[k] for k in one))
            for one in mine
        ]
        self._bin_begin = _offsets(np.array(lengths))
        strips, own = self._table[:, STRIPS], self._table[:, OWN]
        self._room = PACKED * int(strips[self._bins].max(initial=0))
        self._sum_room = 64 * int(own[self._bins].max(initial=0))
        packed = max(count * self._room, PACKED * int(strips[self._top].max(initial=0)))
        sums = max(count * self._sum_room, 64 * int(own[self._top].max(initial=0)))
        self._packed = np.empty(packed, dtype=self._dtype)
        self._sums = np.empty(sums, dtype=self._dtype)
        size = self._factor_size + self._shared_size + count * self._stack_size
        if len(self._values) < size:
            self._values = np.empty(0)  # give the old ones back first
            self._values = np.empty(size, dtype=self._dtype)
            self._factored = False

    # -- factorisation ---------------------------------------------------------------------------

    def factor(
        self, indptr: Array, indices: Array, data: Array, signs: Array | None = None
    ) -> None:
        """Factorise a symmetric matrix.

        Entries above the diagonal are not read: either the lower triangle or both may be there.

        Args:
            indptr, indices: Compressed rows of unknowns, in any order within a row. While they are
                the same, where entries go is not looked up again.
            data: Entries [nnz]; or blocks [nnz, w, w], where every vertex has w unknowns and the
                rows are of vertices.
            signs: Sign of each pivot, +1 or -1, of a quasi-definite matrix. Pivots below
                eps max |A| are replaced then. None for a positive definite matrix.

        Raises:
            DivergenceError: When a pivot has not its sign; it names the unknown.
            InputError: When the matrix has an entry without an edge of the graph that fits nowhere.
        """
        self._make_bins(thread_count())
        self._find_entries(indptr, indices, data)
        self._factored = False
        self._signs = np.ones(len(self._vector), dtype=self._dtype)
        least = replacement = 0.0
        data = np.ascontiguousarray(data, dtype=np.float64).reshape(-1)
        if signs is not None:
            self._signs[self._places] = signs
            largest = float(np.abs(data).max(initial=0.0))
            least, replacement = self._epsilon * largest, self._epsilon**0.5 * largest
        entries = self._entry_begin, self._source, self._destination, data
        self.replaced = 0

        def factor_bins(begin: Array, bins: Array) -> None:
            failed = np.empty(len(begin) - 1, dtype=np.int64)
            replaced = np.empty(len(begin) - 1, dtype=np.int64)
            factor_subtrees(
                begin, bins, self._table, self._update, self._children, self._relative, *entries,
                self._signs, self._values, self._packed, self._room, least, replacement, failed,
                replaced,
            )  # fmt: skip
            if np.any(failed >= 0):
                raise self._failure(int(failed[failed >= 0].min()), signs)
            self.replaced += int(replaced.sum())

        factor_bins(self._bin_begin, self._bins)
        for f in self._top.tolist():
            if self._cost[f] < SMALL:
                factor_bins(np.array([0, 1]), np.array([f]))
                continue
            status = factor_front(
                f, self._table, self._update, self._children, self._relative, *entries,
                self._signs, self._values, self._packed, least, replacement,
            )  # fmt: skip
            if status < 0:
                raise self._failure(int(self._table[f, PLACE]) - 1 - status, signs)
            self.replaced += status
        self._factored = True

    def _find_entries(self, indptr: Array, indices: Array, data: Array) -> None:
        """Find where the entries of a pattern go, unless it is the last one."""
        block = data.shape[1] if np.ndim(data) == 3 else 1
        if self._pattern is not None and self._pattern[2] == block:
            known = self._pattern
            same = known[0] is indptr and known[1] is indices
            if same or (np.array_equal(known[0], indptr) and np.array_equal(known[1], indices)):
                return
        if (len(indptr) - 1) * block != self.size or len(indices) != len(data):
            raise InputError(
                f"the matrix has {(len(indptr) - 1) * block} rows, {len(indices)} indices and "
                f"{len(data)} data; the graph has {self.size} unknowns"
            )
        self._pattern = None
        front = np.empty(len(indices) * block * block, dtype=np.int32)
        target = np.empty(len(front), dtype=np.int32)
        locate(
            np.ascontiguousarray(indptr, dtype=np.int64),
            np.ascontiguousarray(indices, dtype=np.int32), block, self._front_of, self._places,
            self._vertex_of, self._table, self._beyond, front, target,
        )  # fmt: skip
        if np.any(front == -2):
            entry = int(np.flatnonzero(front == -2)[0])
            e, row, column = entry // block**2, entry // block % block, entry % block
            i = int(np.searchsorted(indptr, e, side="right")) - 1
            raise InputError(
                f"the matrix joins the unknowns {i * block + row} and "
                f"{int(indices[e]) * block + column}, whose vertices are no neighbours in the graph"
            )
        count = int(np.count_nonzero(front >= 0))
        self._entry_begin = np.empty(self.fronts + 1, dtype=np.int64)
        self._source = np.empty(count, dtype=np.int32)
        self._destination = np.empty(count, dtype=np.int32)
        sort_entries(front, target, self._entry_begin, self._source, self._destination)
        self._pattern = indptr, indices, block

    def _failure(self, place: int, signs: Array | None) -> DivergenceError:
        """What to say of the pivot at a place in the vectors."""
        i = int(np.flatnonzero(self._places == place)[0])
        kind = "positive definite" if signs is None else "quasi-definite with these signs"
        wanted = "positive" if signs is None or signs[i] > 0 else "negative"
        return DivergenceError(
            f"a matrix of {self.size} unknowns is not {kind}: the pivot of unknown {i} is not "
            f"{wanted}; look for values that are not finite, a negative stiffness, or unknowns "
            "without mass"
        )

    # -- solution --------------------------------------------------------------------------------

    def solve(self, b: Array, x: Array) -> None:
        """Write A^-1 b to x; both float64 [size], and may be the same array."""
        if not self._factored:
            raise SetupError("there are no factors to solve with: call factor first")
        solve_fronts(
            self._bin_begin, self._bins, self._top, self._table, self._children, self._relative,
            self._beyond, self._signs, self._values, self._places, b, x, self._vector,
            self._carried, self._sums, self._sum_room,
        )  # fmt: skip


class _Room:
    """Places in one room, the first that is large enough."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        for k, (begin, length) in enumerate(self._free):
            if length >= size:
                self._free[k] = begin + size, length - size
                return begin
        self.size += size
        return self.size - size

    def give(self, begin: int, size: int) -> None:
        joined: list[tuple[int, int]] = []
        for start, length in sorted([*self._free, (begin, size)]):
            if length == 0:
                continue
            if joined and sum(joined[-1]) == start:
                joined[-1] = joined[-1][0], joined[-1][1] + length
            else:
                joined.append((start, length))
        self._free = joined


def vertex_graph(indptr: Array, indices: Array, widths: Array) -> tuple[Array, Array]:
    """Neighbours of the vertices of a matrix whose compressed rows hold both triangles.

    Columns from the last unknown on are ghosts and have no vertex here.
    """
    vertex_of = np.repeat(np.arange(len(widths)), widths)
    rows = np.repeat(vertex_of, np.diff(indptr))
    own = indices < len(vertex_of)
    rows, columns = rows[own], vertex_of[indices[own]]
    key = rows * max(len(widths), 1) + columns
    key = np.unique(key[np.diff(key, prepend=-1) != 0])
    rows, columns = np.divmod(key, max(len(widths), 1))
    return _offsets(np.bincount(rows, minlength=len(widths))), columns.astype(np.int32)


def _boundaries(
    indptr: Array, indices: Array, order: Array, rank: Array, begin: Array, child_begin: Array,
    children: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Boundary vertices of all fronts, as sorted places in the order, and where lists begin."""
    n, count = len(order), len(begin) - 1
    start = np.zeros(count + 1, dtype=np.int64)
    room = 8 * n + 1024
    while True:
        keys = np.empty(room, dtype=np.int64)
        if find_boundaries(indptr, indices, order, rank, begin, child_begin, children, start, keys):
            break
        room *= 2
    keys = keys[: start[-1]]
    keys.sort()
    return keys % max(n, 1), start


def _offsets(lengths: Array) -> Array:
    """Where ranges of these lengths begin, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
