"""Sparse factors by nested dissection: against scipy, on any thread count the same bits."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as linalg

from loki_core.errors import DivergenceError, InputError, SetupError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.kept_factors import KeptFactors
from loki_core.linear_solvers.multifrontal import SparseFactors, vertex_graph
from loki_core.linear_solvers.sparse_system import SparseSystem
from tests.unit.test_dissection import graph, grid

pytestmark = pytest.mark.compiles


def random_matrix(neighbours, widths, seed=1, signs=None):
    """A matrix with all entries that the graph allows, diagonally dominant."""
    indptr, indices = neighbours
    rng = np.random.default_rng(seed)
    n = len(indptr) - 1
    pattern = sp.csr_matrix((np.ones(len(indices)), indices, indptr), (n, n))
    vertex_of = np.repeat(np.arange(n), widths)
    whole = pattern[vertex_of][:, vertex_of].tocsr()
    whole.data = rng.uniform(-1.0, 1.0, whole.nnz)
    whole = (whole + whole.T).tocsr()
    whole = whole - sp.diags(whole.diagonal())
    dominant = np.asarray(abs(whole).sum(axis=1)).ravel() + 0.1
    if signs is not None:
        dominant = dominant * signs
    return (whole + sp.diags(dominant)).tocsr()


def rows_of(matrix):
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data


def checked(factors, matrix, signs=None, tol=1e-12):
    """Factorise and solve; the solution."""
    factors.factor(*rows_of(matrix), signs)
    b = np.random.default_rng(5).standard_normal(factors.size)
    x = np.empty_like(b)
    factors.solve(b, x)
    assert np.linalg.norm(matrix @ x - b) <= tol * np.linalg.norm(b)
    return x


def sheet(rows=24, columns=19, seed=1):
    neighbours, places = grid(rows, columns)
    return neighbours, places, random_matrix(neighbours, np.full(len(places), 3), seed)


def test_a_sheet_against_scipy():
    neighbours, places, matrix = sheet()
    factors = SparseFactors(*neighbours, coordinates=places)
    x = checked(factors, matrix)
    b = np.random.default_rng(5).standard_normal(factors.size)
    np.testing.assert_allclose(x, linalg.spsolve(matrix.tocsc(), b), rtol=0, atol=1e-12)
    assert factors.size == 3 * 24 * 19 and factors.replaced == 0
    assert factors.entries < 0.25 * factors.size**2 and factors.nbytes > 8 * factors.entries
    checked(factors, matrix + 3.0 * sp.identity(factors.size))  # the same pattern again


def test_a_solid_and_the_lower_triangle_alone():
    neighbours, places = grid(9, 7, 8)
    matrix = random_matrix(neighbours, np.full(len(places), 3))
    factors = SparseFactors(*neighbours, coordinates=places)
    x = checked(factors, matrix)
    factors.factor(*rows_of(sp.tril(matrix).tocsr()))
    again = np.random.default_rng(5).standard_normal(factors.size)
    factors.solve(again, again)  # in place
    np.testing.assert_array_equal(again, x)


def test_blocks_of_vertices_give_the_same_bits():
    neighbours, places, matrix = sheet(13, 17)
    factors = SparseFactors(*neighbours, coordinates=places)
    x = checked(factors, matrix)
    blocks = sp.tril(matrix.tobsr((3, 3)).tocsr(), k=2).tobsr((3, 3))
    factors.factor(blocks.indptr, blocks.indices, blocks.data)
    b, again = np.random.default_rng(5).standard_normal(factors.size), np.empty(factors.size)
    factors.solve(b, again)
    np.testing.assert_array_equal(again, x)


def test_the_same_bits_on_any_number_of_threads():
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one thread is all there is")
    neighbours, places = grid(12, 12, 12)
    matrix = random_matrix(neighbours, np.full(len(places), 3))
    before, found = thread_count(), []
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            factors = SparseFactors(*neighbours, coordinates=places)
            assert len(factors._top) > 0  # both ways to factorise a front are used
            found.append(checked(factors, matrix))
        set_thread_count(1)
        found.append(checked(factors, matrix))  # the count may change meanwhile
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("n", [0, 1, 2, 40, 300])
def test_any_graph_of_mixed_widths(n):
    rng = np.random.default_rng(n)
    neighbours = graph(rng.integers(0, max(n, 1), (2 * n, 2)), n)
    widths = rng.choice([1, 3, 6], n)
    matrix = random_matrix(neighbours, widths, seed=n)
    factors = SparseFactors(*neighbours, widths=widths)
    assert factors.size == int(widths.sum())
    checked(factors, matrix)


def test_parts_that_hang_together_by_nothing():
    places, matrix = sheet(9, 9)[1:]
    parts = sp.block_diag([matrix, 2.0 * sp.identity(30), matrix]).tocsr()
    n = len(places) * 2 + 10
    found = vertex_graph(*rows_of(parts)[:2], np.full(n, 3))
    factors = SparseFactors(*found)
    checked(factors, parts)


def quasi_definite(seed=2):
    """Points of a sheet and multipliers, each of which holds two points, in mixed order."""
    rng = np.random.default_rng(seed)
    places, matrix = sheet(12, 12)[1:]
    points = len(places)
    held = rng.integers(0, points, (40, 2))
    rows = np.repeat(np.arange(40), 6)
    columns = (3 * held[:, :, None] + np.arange(3)).ravel()
    jacobian = sp.csr_matrix((rng.standard_normal(240), (rows, columns)), (40, 3 * points))
    system = sp.bmat([[matrix, jacobian.T], [jacobian, -1e-3 * sp.identity(40)]]).tocsr()
    widths = np.append(np.full(points, 3), np.full(40, 1))
    vertices = rng.permutation(points + 40)
    starts = np.append(0, np.cumsum(widths))
    order = np.concatenate([np.arange(starts[v], starts[v + 1]) for v in vertices])
    signs = np.where(order < 3 * points, 1.0, -1.0)
    return system[order][:, order].tocsr(), widths[vertices], signs


def test_quasi_definite_matrices():
    matrix, widths, signs = quasi_definite()
    factors = SparseFactors(*vertex_graph(*rows_of(matrix)[:2], widths), widths=widths)
    x = checked(factors, matrix, signs, tol=1e-10)
    b = np.random.default_rng(5).standard_normal(factors.size)
    np.testing.assert_allclose(x, linalg.spsolve(matrix.tocsc(), b), rtol=0, atol=1e-9)
    assert factors.replaced == 0
    with pytest.raises(DivergenceError, match="not positive definite"):
        factors.factor(*rows_of(matrix))
    signs[17] *= -1.0
    with pytest.raises(DivergenceError, match="not quasi-definite with these signs: the pivot of"):
        factors.factor(*rows_of(matrix), signs)


def test_pivots_that_vanish_are_replaced():
    neighbours = graph([(0, 1), (1, 2), (2, 3)], 4)
    matrix = sp.csr_matrix(
        np.array([[2.0, 1, 0, 0], [1, 0.5, 1, 0], [0, 1, -3.0, 1], [0, 0, 1, 4.0]])
    )
    factors = SparseFactors(*neighbours, widths=np.ones(4, dtype=int))
    factors.factor(*rows_of(matrix), np.array([1.0, 1.0, -1.0, 1.0]))
    assert factors.replaced == 1
    b, x = np.arange(1.0, 5.0), np.zeros(4)
    for _ in range(6):
        correction = np.empty(4)
        factors.solve(b - matrix @ x, correction)
        x += correction
    np.testing.assert_allclose(matrix @ x, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("size", [(9, 9), (12, 12, 12)])
def test_a_matrix_that_is_not_definite_names_the_unknown(bad, size):
    neighbours, places = grid(*size)
    matrix = random_matrix(neighbours, np.full(len(places), 3))
    factors = SparseFactors(*neighbours, coordinates=places)
    last = int(np.argmax(factors._places))  # the last pivot: it spoils no other
    for unknown in (100, last):
        broken = matrix.copy().tolil()
        broken[unknown, :] = 0.0
        broken[:, unknown] = 0.0
        broken[unknown, unknown] = bad
        with pytest.raises(DivergenceError, match=f"pivot of unknown {unknown} is not positive"):
            factors.factor(*rows_of(broken.tocsr()))
        with pytest.raises(SetupError, match="call factor first"):
            factors.solve(np.zeros(factors.size), np.zeros(factors.size))
    checked(factors, matrix)


def test_entries_that_no_front_has_are_refused():
    neighbours = graph([(k, k + 1) for k in range(199)], 200)
    factors = SparseFactors(*neighbours)
    matrix = sp.identity(600).tolil()
    matrix[599, 1] = matrix[1, 599] = 0.5
    with pytest.raises(InputError, match="unknowns 599 and 1,"):
        factors.factor(*rows_of(matrix.tocsr()))
    with pytest.raises(InputError, match="has 3 rows"):
        factors.factor(*rows_of(sp.identity(3).tocsr()))


def test_single_precision_preconditions():
    neighbours, places, matrix = sheet()
    factors = SparseFactors(*neighbours, coordinates=places, precision="single")
    x = checked(factors, matrix, tol=1e-5)
    b = np.random.default_rng(5).standard_normal(factors.size)
    correction = np.empty_like(b)
    factors.solve(b - matrix @ x, correction)
    assert np.linalg.norm(b - matrix @ (x + correction)) <= 1e-10 * np.linalg.norm(b)
    with pytest.raises(SetupError, match='"half"'):
        SparseFactors(*neighbours, precision="half")


def test_factors_are_kept_while_they_serve():
    places, matrix = sheet()[1:]
    solver, b = KeptFactors(coordinates=places), np.ones(matrix.shape[0])
    seen = []
    for change in (0.0, 0.05, 0.05, 30.0, 30.0):
        moved = (matrix + change * sp.diags(np.sin(np.arange(matrix.shape[0])) ** 2)).tocsr()
        system = SparseSystem(*rows_of(moved))
        system.block_size = 3
        solver.prepare(system)
        x = np.zeros_like(b)
        report = solver.solve(b, x, tol=1e-10)
        assert report.converged and report.solver == "kept_factors"
        np.testing.assert_allclose(moved @ x, b, rtol=0, atol=1e-8)
        seen.append((solver.factorisations, report.iterations))
    assert seen[0] == (1, 1) and seen[1][0] == seen[2][0] == seen[3][0] == 1
    assert 1 < seen[1][1] <= 8 < seen[3][1]
    assert seen[4] == (2, 1)


def test_factors_may_turn_with_the_vertices():
    places, matrix = sheet()[1:]
    rng = np.random.default_rng(8)
    turns = np.linalg.qr(rng.standard_normal((len(places), 3, 3)))[0]
    count = np.arange(len(places) + 1)
    turn = sp.bsr_matrix((turns, count[:-1], count)).tocsr()
    solver, b = (
        KeptFactors(coordinates=places, widths=np.full(len(places), 3)),
        np.ones(turn.shape[0]),
    )
    solver.prepare(SparseSystem(*rows_of(matrix)))
    solver.prepare(SparseSystem(*rows_of((turn @ matrix @ turn.T).tocsr())))
    assert solver.factorisations == 1
    plain = solver.solve(b, np.zeros_like(b), tol=1e-10).iterations
    solver.turns = turns
    assert solver.solve(b, np.zeros_like(b), tol=1e-10).iterations == 1 < plain
    solver._slow = True
    solver.prepare(solver.system)
    assert solver.factorisations == 2 and solver.turns is None


def test_kept_factors_of_rows_without_entries():
    matrix = sheet(6, 6)[2]
    used = np.ones(matrix.shape[0])
    used[[0, 40, 41, 107]] = 0.0
    matrix = (sp.diags(used) @ matrix @ sp.diags(used)).tocsr()
    matrix.eliminate_zeros()
    solver, x = KeptFactors(), np.zeros(len(used))
    solver.prepare(SparseSystem(*rows_of(matrix)))
    assert solver.solve(np.ones(len(used)), x).converged
    assert np.all(x[used == 0.0] == 0.0)
    np.testing.assert_allclose(matrix @ x, used, rtol=0, atol=1e-7)
