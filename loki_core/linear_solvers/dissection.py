"""The order in which a sparse factorisation eliminates the vertices of a body.

Nested dissection (George 1973): a separator is eliminated after the two halves that it keeps apart,
and they after theirs. The tree of separators is at once the tree of fronts of the factorisation
(`multifrontal.py`). A sheet of n vertices fills in n log n entries, a solid n^(4/3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import InputError
from loki_core.kernels.algebra.dissection import dissect, edge_lengths

Array = NDArray[Any]
LEAF = 72  # unknowns of a piece that is not cut: 24 points
_AXES = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
_DIAGONALS = [(1, 1, 0), (1, -1, 0), (1, 0, 1), (1, 0, -1), (0, 1, 1), (0, 1, -1)]
DIRECTIONS = np.array(_AXES + _DIAGONALS, dtype=np.float64)
DIRECTIONS /= np.linalg.norm(DIRECTIONS, axis=1)[:, None]


@dataclass(frozen=True)
class Dissection:
    """Order of elimination, cut into fronts; children come before their parents.

    Attributes:
        order: Vertices in the order of their elimination, int32 [n].
        begin: Where each front's own vertices begin in it, int64 [fronts + 1].
        parent: The front that a front's updates go to, or -1, int32 [fronts].
    """

    order: Array
    begin: Array
    parent: Array


def nested_dissection(
    indptr: Array,
    indices: Array,
    *,
    widths: Array | None = None,
    coordinates: Array | None = None,
    leaf: int = LEAF,
) -> Dissection:
    """Order the vertices of a graph.

    Args:
        indptr, indices: Neighbours of each vertex, both directions of every edge; a vertex may be
            its own neighbour.
        widths: Unknowns of each vertex; three where nothing is given.
        coordinates: Rest position of each vertex, [n, 1 to 3]. They only suggest where to cut:
            where they are folded, distances in the graph are used, as without coordinates.
        leaf: Unknowns of a piece that is not cut any further.

    Raises:
        InputError: When the graph has a neighbour that does not exist, or lengths do not fit.
    """
    indptr = np.ascontiguousarray(indptr, dtype=np.int64)
    indices = np.ascontiguousarray(indices, dtype=np.int32)
    n = len(indptr) - 1
    if widths is None:
        widths = np.full(n, 3)
    widths = np.ascontiguousarray(widths, dtype=np.int32)
    _check(n, indptr, indices, widths, coordinates)
    places = np.zeros((0, 3))
    if coordinates is not None and np.all(np.isfinite(coordinates)):
        places = np.zeros((n, 3))
        places[:, : np.shape(coordinates)[1]] = coordinates
    longest, mean = np.zeros(len(DIRECTIONS)), np.zeros(len(DIRECTIONS))
    if len(places):
        edge_lengths(indptr, indices, places, DIRECTIONS, longest, mean)
    order = np.empty(n, dtype=np.int32)
    begin = np.empty(n, dtype=np.int64)
    parent = np.empty(n, dtype=np.int32)
    count = dissect(
        indptr, indices, widths, places, DIRECTIONS, longest, mean, leaf, order, begin, parent
    )
    begin, parent = begin[:count], parent[:count]
    # By their first vertices fronts are in postorder: what a separator parts lies before it.
    upwards = np.argsort(begin)
    number = np.empty(count + 1, dtype=np.int32)
    number[upwards] = np.arange(count)
    number[-1] = -1  # the parent of a root
    return Dissection(order, np.append(begin[upwards], n), number[parent[upwards]])


def _check(n: int, indptr: Array, indices: Array, widths: Array, coordinates: Any) -> None:
    if int(indptr[0]) != 0 or np.any(np.diff(indptr) < 0) or int(indptr[-1]) != len(indices):
        raise InputError(
            f"the graph of {n} vertices has {len(indices)} neighbours, but its indptr runs from "
            f"{int(indptr[0])} to {int(indptr[-1])}"
        )
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= n):
        raise InputError(
            f"a graph of {n} vertices has the neighbours {int(indices.min())} to "
            f"{int(indices.max())}"
        )
    if len(widths) != n or (n and int(widths.min()) < 1):
        raise InputError(f"a graph of {n} vertices has {len(widths)} widths; each must be positive")
    if coordinates is not None and (np.ndim(coordinates) != 2 or len(coordinates) != n):
        raise InputError(
            f"coordinates have the shape {np.shape(coordinates)}; expected ({n}, 2) or ({n}, 3)"
        )


def dissection_with_late(
    indptr: Array, indices: Array, widths: Array, coordinates: Array | None, late: Array
) -> Dissection:
    """Order the vertices of a graph, some of them after the last of their neighbours.

    The others are dissected as if neighbours of one late vertex were neighbours of each other: so
    these lie on one way to the root, and the late vertex belongs to the front of the highest.

    Args:
        indptr, indices, widths, coordinates: As of `nested_dissection`; places of late vertices are
            not used.
        late: Which vertices are, [n]; they are no neighbours of each other.
    """
    from scipy.sparse import csr_matrix

    n = len(indptr) - 1
    early, after = np.flatnonzero(~late), np.flatnonzero(late)
    graph = csr_matrix((np.ones(len(indices), np.int8), indices, indptr), (n, n))
    own, reached = graph[early][:, early], graph[after][:, early]
    joined = (own + reached.T.astype(np.int32) @ reached.astype(np.int32)).tocsr()
    joined.sort_indices()
    found = nested_dissection(
        joined.indptr.astype(np.int64), joined.indices.astype(np.int32), widths=widths[early],
        coordinates=None if coordinates is None else coordinates[early],
    )  # fmt: skip
    fronts = len(found.parent)
    front = np.empty(len(early), np.int64)
    front[found.order] = np.repeat(np.arange(fronts), np.diff(found.begin))
    highest = np.full(len(after), max(fronts - 1, 0))
    reached.sort_indices()
    some = np.flatnonzero(np.diff(reached.indptr))
    if len(some):  # fronts come after their children, so the highest number is the highest front
        highest[some] = np.maximum.reduceat(front[reached.indices], reached.indptr[some])
    vertices = np.concatenate((early[found.order], after))
    of_front = np.concatenate((front[found.order], highest))
    order = vertices[np.argsort(of_front, kind="stable")].astype(np.int32)
    begin = np.zeros(max(fronts, 1) + 1, np.int64)
    np.cumsum(np.bincount(of_front, minlength=max(fronts, 1)), out=begin[1:])
    parent = found.parent if fronts else np.full(1, -1, np.int32)
    return Dissection(order, begin, parent)
