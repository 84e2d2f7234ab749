"""The hierarchy of elastic smoothed aggregation: rigid modes, symmetry, graphs, bad matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from loki_core.errors import DivergenceError, SetupError
from loki_core.kernels.algebra.block_scaling import hold_alone
from loki_core.linear_solvers.elastic_hierarchy import ElasticHierarchy, neighbours
from loki_core.linear_solvers.elastic_levels import (
    find_aggregates,
    largest_eigenvalue,
    make_coarse,
    make_prolongator,
    scale,
)
from loki_core.linear_solvers.rigid_modes import rigid_modes
from loki_vfx.benchmarks._body_matrices import graph_of, tetrahedra
from tests.unit.linear_systems import box, poisson
from tests.unit.test_elastic_aggregation import cloth, prescribed, rhs, rows_of

pytestmark = pytest.mark.compiles


def hierarchy_of(matrix, place):
    found = ElasticHierarchy(*graph_of(matrix), coordinates=place)
    found.factor(*rows_of(matrix))
    return found


@pytest.mark.parametrize("is_held", [False, True])
def test_the_prolongator_reproduces_rigid_modes(is_held):
    """P B' = B away from prescribed points, of a solid without mass."""
    # There A B = 0, so P = (I - omega S) T has P B' = T B' = B.
    matrix, place = tetrahedra(9)
    held = np.repeat(is_held & (place[:, 0] == 0.0), 3)
    stiff = prescribed(matrix - sp.diags(matrix @ np.ones(matrix.shape[0])), held)
    found = ElasticHierarchy(*graph_of(matrix), coordinates=place)
    level, modes = found._filled(*rows_of(stiff)), found._modes.copy()
    hold_alone(*level.parts, 3, modes)
    is_near = np.unique(place[:, 0])[1] if is_held else -1.0  # neighbours of prescribed points
    far = place[:, 0] > is_near
    for depth in (0, 1):
        scaling = scale(level, modes, 1e-13)
        wanted = modes[:-8].reshape(level.rows, level.height, 6).copy()
        aggregates = find_aggregates(level, scaling.strengths, depth)
        largest = largest_eigenvalue(level.single())
        p, modes = make_prolongator(level, modes, aggregates, largest)
        blocks, coarse = p.blocks[:-8].reshape(-1, p.height, 6), modes[:-8].reshape(-1, 6, 6)
        prolonged = np.zeros_like(wanted)
        row = np.repeat(np.arange(level.rows), np.diff(p.starts))
        np.add.at(prolonged, row, blocks @ coarse[p.columns])
        tolerance = 1e-10 * np.abs(wanted).max()
        np.testing.assert_allclose(prolonged[far], wanted[far], rtol=0, atol=tolerance)
        if is_held:
            assert np.abs(prolonged - wanted)[~far].max() > 1e6 * tolerance
            return  # which of the coarse vertices are away is another question
        level, far = make_coarse(level, p, aggregates), slice(None)


def test_rigid_modes_of_points_and_frames():
    """A motion that is rigid moves all points as the frames in its midst say."""
    place = np.random.default_rng(2).uniform(99.0, 100.0, (6, 3))
    modes = rigid_modes(place, np.array([3, 6, 3, 6, 1, 2]))
    assert modes.shape == (21, 6) and np.all(modes[18:] == 0.0)
    move, turn = modes[3:6], modes[6:9]
    for point, row in ((0, 0), (2, 9), (3, 12)):
        expected = move + np.cross(turn.T, place[point] - place[1]).T
        np.testing.assert_allclose(modes[row : row + 3], expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(modes[:3, :3], np.eye(3))


def test_the_preconditioner_is_symmetric_and_positive():
    for matrix, place in (cloth(24), tetrahedra(10)):
        found = hierarchy_of(matrix, place)
        assert len(found.levels) > 1 and found.operator_complexity < 2.2
        x, y = rhs(found.size, 1), rhs(found.size, 2)
        mx, my = np.empty_like(x), np.empty_like(y)
        found.solve(x, mx)
        found.solve(y, my)
        # Single precision, and cancellation between unknowns of either sign.
        assert abs(x @ my - y @ mx) <= 1e-5 * np.sqrt((x @ mx) * (y @ my))
        assert x @ mx > 0.0 and y @ my > 0.0
        twice = np.empty_like(x)
        found.solve(1e-30 * x, twice)  # far below what single precision holds when squared
        np.testing.assert_allclose(twice, 1e-30 * mx, rtol=0, atol=1e-35 * np.abs(mx).max())
        found.solve(x, x)
        np.testing.assert_array_equal(x, mx)


@pytest.mark.parametrize("lower", [False, True])
def test_graphs_in_any_order_and_lower_triangles(lower):
    matrix, place = tetrahedra(8)
    graph = sp.csr_matrix((np.ones(len(graph_of(matrix)[1])), *graph_of(matrix)[::-1]))
    graph = graph - sp.diags(graph.diagonal())
    graph.eliminate_zeros()
    indptr, indices, _ = rows_of(graph)
    for i in range(len(indptr) - 1):
        indices[indptr[i] : indptr[i + 1]] = indices[indptr[i] : indptr[i + 1]][::-1]
    found = ElasticHierarchy(indptr, indices, coordinates=place)
    found.factor(*rows_of(sp.tril(matrix) if lower else matrix))
    expected = hierarchy_of(matrix, place)
    b, x, y = rhs(found.size), np.empty(found.size), np.empty(found.size)
    found.solve(b, x)
    expected.solve(b, y)
    np.testing.assert_array_equal(x, y)


def test_scalar_unknowns_with_a_mode_of_their_own():
    matrix = poisson(box(12))
    size = matrix.shape[0]
    found = ElasticHierarchy(
        *rows_of(matrix)[:2], widths=np.ones(size, np.int64), modes=np.ones((size, 1))
    )
    found.factor(*rows_of(matrix))
    x, b = np.zeros(size), rhs(size)
    left = b.copy()
    step = np.empty(size)
    for _ in range(12):
        found.solve(left, step)
        x += step
        left = b - matrix @ x
    assert np.linalg.norm(left) < 1e-3 * np.linalg.norm(b)


def test_ghosts_are_left_out_of_the_hierarchy():
    """Columns beyond the own rows, of another rank, couple in the iteration alone."""
    matrix, place = tetrahedra(8)
    cut = 3 * (len(place) // 2)
    upper = matrix[:cut].tocsr()
    found = neighbours(*rows_of(upper)[:2], np.full(len(place) // 2, 3))
    assert found[1].max() < len(place) // 2
    hierarchy = ElasticHierarchy(*found, coordinates=place[: len(place) // 2])
    hierarchy.factor(*rows_of(upper))
    alone = hierarchy_of(matrix[:cut, :cut].tocsr(), place[: len(place) // 2])
    b, x, y = rhs(cut), np.empty(cut), np.empty(cut)
    hierarchy.solve(b, x)
    alone.solve(b, y)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_matrices_that_are_not_positive_definite(value):
    matrix, place = tetrahedra(6)
    matrix = matrix.copy()
    where = matrix.indptr[31] + np.flatnonzero(matrix[31].indices == 31)[0]
    matrix.data[where] = value
    found = ElasticHierarchy(*graph_of(matrix), coordinates=place)
    with pytest.raises(DivergenceError, match=r"pivot of row 31 in the own block of vertex 10|fin"):
        found.factor(*rows_of(matrix))
    with pytest.raises(SetupError, match="no levels to solve with: call factor first"):
        found.solve(np.ones(648), np.ones(648))
