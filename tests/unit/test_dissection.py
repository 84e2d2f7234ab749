"""Nested dissection: a postorder of separators that part the rest, on graphs of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from loki_core.errors import InputError
from loki_core.linear_solvers.dissection import nested_dissection

pytestmark = pytest.mark.compiles


def graph(edges, n):
    """Neighbours, both ways and each vertex itself."""
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    rows = np.concatenate([edges[:, 0], edges[:, 1], np.arange(n)])
    columns = np.concatenate([edges[:, 1], edges[:, 0], np.arange(n)])
    matrix = sp.coo_matrix((np.ones(len(rows)), (rows, columns)), (n, n)).tocsr()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def grid(*sizes):
    """Edges along the axes and one diagonal of every square, and places."""
    places = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1)
    numbers = np.arange(int(np.prod(sizes))).reshape(sizes)
    edges = []
    for axis in range(len(sizes)):
        here = numbers.swapaxes(0, axis)
        edges.append(np.stack([here[:-1].ravel(), here[1:].ravel()], 1))
    edges.append(np.stack([numbers[:-1, :-1].ravel(), numbers[1:, 1:].ravel()], 1))
    n = numbers.size
    return graph(np.concatenate(edges), n), places.reshape(n, -1).astype(float)


def fill(found, indptr, indices):
    """Entries of the factor, by elimination on sets; checks the tree meanwhile."""
    n, count = len(found.order), len(found.parent)
    assert sorted(found.order.tolist()) == list(range(n))
    assert found.begin[0] == 0 and found.begin[-1] == n and np.all(np.diff(found.begin) > 0)
    assert np.all((found.parent == -1) | (found.parent > np.arange(count)))
    rank = np.empty(n, dtype=int)
    rank[found.order] = np.arange(n)
    boundary, entries = [set() for _ in range(count)], 0
    for f in range(count):
        begin, end = found.begin[f : f + 2]
        for v in found.order[begin:end]:
            boundary[f].update(rank[indices[indptr[v] : indptr[v + 1]]])
        boundary[f] = {place for place in boundary[f] if place >= end}
        own = int(end - begin)
        entries += own * (own + 1) // 2 + own * len(boundary[f])
        if boundary[f]:
            parent = found.parent[f]
            # The front above is the first that holds anything of the boundary.
            assert parent >= 0 and min(boundary[f]) >= found.begin[parent]
            boundary[parent] |= boundary[f]
    return entries


def largest_separator(found):
    return int(np.diff(found.begin)[found.parent == -1].max())


def test_a_sheet_is_cut_along_its_short_side():
    neighbours, places = grid(60, 20)
    found = nested_dissection(*neighbours, coordinates=places)
    assert largest_separator(found) <= 20
    assert fill(found, *neighbours) < 33_000
    again = nested_dissection(*neighbours, coordinates=places)
    np.testing.assert_array_equal(found.order, again.order)


def test_a_solid():
    neighbours, places = grid(11, 9, 10)
    found = nested_dissection(*neighbours, coordinates=places)
    assert largest_separator(found) <= 9 * 10 + 9
    assert fill(found, *neighbours) < 150_000


def test_graph_distance_does_without_coordinates():
    neighbours, places = grid(40, 40)
    by_place = fill(nested_dissection(*neighbours, coordinates=places), *neighbours)
    by_graph = fill(nested_dissection(*neighbours), *neighbours)
    assert by_graph < 1.7 * by_place


def test_folded_coordinates_do_no_harm():
    neighbours, places = grid(40, 40)
    flat = fill(nested_dissection(*neighbours, coordinates=places), *neighbours)
    rng = np.random.default_rng(1)
    crumpled = rng.random((1600, 3))
    pleated = np.abs((places + 0.5) % 8 - 4)
    for bad in (crumpled, pleated, np.zeros((1600, 3)), np.full((1600, 3), np.nan)):
        assert fill(nested_dissection(*neighbours, coordinates=bad), *neighbours) < 1.7 * flat


@pytest.mark.parametrize("with_places", [True, False])
def test_graphs_that_fall_apart(with_places):
    neighbours, places = grid(12, 13)
    matrix = sp.csr_matrix((np.ones(len(neighbours[1])), neighbours[1], neighbours[0]))
    parts = sp.block_diag([matrix, sp.identity(50), matrix, matrix]).tocsr()
    spots = np.concatenate([places, np.zeros((50, 2)), places + 30.0, places])
    found = nested_dissection(
        parts.indptr, parts.indices, coordinates=spots if with_places else None
    )
    alone = fill(nested_dissection(*neighbours, coordinates=places), *neighbours)
    assert fill(found, parts.indptr, parts.indices) < 3 * 1.5 * alone + 50 * 25


def test_any_graph():
    rng = np.random.default_rng(3)
    for n in (1, 2, 30, 200):
        neighbours = graph(rng.integers(0, n, (3 * n, 2)), n)
        for places in (None, rng.random((n, 3))):
            widths = rng.choice([1, 3, 6], n)
            fill(nested_dissection(*neighbours, widths=widths, coordinates=places), *neighbours)


def test_graphs_that_cannot_be_cut():
    n = 60
    every = graph(np.stack(np.meshgrid(np.arange(n), np.arange(n)), -1), n)
    assert fill(nested_dissection(*every), *every) == n * (n + 1) // 2
    star = graph([(0, k) for k in range(1, n)], n)
    assert fill(nested_dissection(*star), *star) <= 25 * n
    heavy = np.ones(n, dtype=int)
    heavy[7] = 500
    fill(nested_dissection(*star, widths=heavy, coordinates=np.eye(n)[:, 5:8]), *star)
    empty = nested_dissection(np.zeros(1), np.zeros(0))
    assert len(empty.order) == 0 and empty.begin.tolist() == [0]


def test_what_cannot_be_a_graph_is_refused():
    with pytest.raises(InputError, match="neighbours 0 to 7"):
        nested_dissection([0, 1, 2], [0, 7])
    with pytest.raises(InputError, match="indptr runs from 0 to 3"):
        nested_dissection([0, 1, 3], [0, 1])
    with pytest.raises(InputError, match="3 widths"):
        nested_dissection([0, 1, 2], [0, 1], widths=[3, 3, 3])
    with pytest.raises(InputError, match="shape \\(5, 3\\)"):
        nested_dissection([0, 1, 2], [0, 1], coordinates=np.zeros((5, 3)))
