"""Conjugate gradients with elastic smoothed aggregation: few iterations, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from loki_core.errors import InputError, SetupError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.choice import choose_solver, solve_with_fallback
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.elastic_aggregation import ElasticAggregation
from loki_core.linear_solvers.elastic_hierarchy import ElasticHierarchy
from loki_core.linear_solvers.rigid_modes import rigid_modes
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_vfx.benchmarks._body_matrices import FOLDS, graph_of, sheet, tetrahedra

pytestmark = pytest.mark.compiles


def rows_of(matrix):
    matrix = matrix.tocsr()
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data


def rhs(count, seed=0):
    return np.random.default_rng(seed).standard_normal(count)


def cloth(n):
    """The draped sheet of the benchmarks and where its vertices are."""
    matrix, rest = sheet(n)
    place = rest.copy()
    place[:, 2] = 0.05 * np.sin(FOLDS * rest[:, 0]) * np.sin(FOLDS * rest[:, 1] + rest[:, 0])
    return matrix, place


def rotation(seed=3):
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    return turn * np.sign(np.linalg.det(turn))


def prescribed(matrix, held):
    """The matrix with rows and columns of the identity for the unknowns that are held."""
    free = sp.diags((~held).astype(float))
    matrix = (free @ matrix @ free + sp.diags(held.astype(float))).tocsr()
    matrix.eliminate_zeros()
    return matrix


def solved(matrix, place, tol=1e-4, solver=None, **options):
    """The report of a solve, whose answer is checked."""
    solver = ElasticAggregation(coordinates=place) if solver is None else solver
    solver.prepare(SparseSystem(*rows_of(matrix), block_size=3, **options))
    b, x = rhs(matrix.shape[0]), np.zeros(matrix.shape[0])
    report = solver.solve(b, x, tol=tol)
    assert report.converged and report.solver == "elastic_aggregation"
    assert np.linalg.norm(matrix @ x - b) <= 1.02 * tol * np.linalg.norm(b)
    return report, x


def block_jacobi_iterations(matrix, tol):
    """Iterations of conjugate gradients with the inverse of the diagonal blocks."""
    whole = matrix.tobsr((3, 3))
    n = len(whole.indptr) - 1
    own = np.repeat(np.arange(n), np.diff(whole.indptr)) == whole.indices
    inverse = np.linalg.inv(whole.data[own])

    class BlockJacobi(ConjugateGradient):
        def _apply(self, residual):
            return np.einsum("nij,nj->ni", inverse, residual.reshape(n, 3)).ravel()

    solver = BlockJacobi()
    solver.prepare(SparseSystem(*rows_of(matrix)))
    return solver.solve(rhs(3 * n), np.zeros(3 * n), tol=tol, max_iterations=5000).iterations


def test_iterations_hardly_grow_and_are_few():
    # Measured: cloth of 30^2 and 60^2 vertices 42 and 34, tetrahedra of 8^3 and 14^3 7 and 7;
    # block-Jacobi takes 497, 962, 98 and 180.
    for make, sizes, most, less in ((cloth, (30, 60), 50, 15), (tetrahedra, (8, 14), 10, 15)):
        counts = []
        for n in sizes:
            matrix, place = make(n)
            counts.append(solved(matrix, place)[0].iterations)
        assert max(counts) <= most and counts[1] <= counts[0] + 3
        assert less * counts[1] < block_jacobi_iterations(matrix, 1e-4)


def test_threads_change_no_bit():
    before, found = thread_count(), []
    matrix, place = cloth(40)
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            found.append(solved(matrix, place)[1])
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(*found)


def test_prescribed_points_and_unknowns_stay_where_they_are():
    matrix, place = tetrahedra(11)
    held = np.zeros(matrix.shape[0], bool)
    held.reshape(-1, 3)[place[:, 0] == 0.0] = True
    held.reshape(-1, 3)[place[:, 0] == 1.0, 1] = True  # slides along a wall
    solver = ElasticAggregation(coordinates=place)
    report, x = solved(prescribed(matrix, held), place, tol=1e-9, solver=solver)
    assert report.iterations <= 20  # measured: 14
    np.testing.assert_allclose(x[held], rhs(len(held))[held], rtol=0, atol=1e-6)
    lengths = np.diff(solver.hierarchy.levels[0].down.starts)
    assert np.all(lengths[place[:, 0] == 0.0] == 0)  # no aggregate has them
    assert np.all(lengths[place[:, 0] > 0.0] > 0)


def test_a_turned_body_takes_as_many_iterations():
    turn = rotation()
    for matrix, place in (cloth(30), tetrahedra(9)):
        whole = sp.kron(sp.identity(len(place)), turn, format="csr")
        turned = (whole @ matrix @ whole.T).tobsr((3, 3)).tocsr()
        first = solved(matrix, place)[0].iterations
        assert abs(solved(turned, place @ turn.T)[0].iterations - first) <= 1


def test_a_free_body_without_mass():
    matrix, place = tetrahedra(9)
    stiff = (matrix - sp.diags(matrix @ np.ones(matrix.shape[0]))).tobsr((3, 3)).tocsr()
    null, _ = np.linalg.qr(rigid_modes(place, np.full(len(place), 3)))
    solver = ElasticAggregation(coordinates=place)
    solver.prepare(SparseSystem(*rows_of(stiff), block_size=3, null_space=list(null.T.copy())))
    b, x = rhs(stiff.shape[0]), np.zeros(stiff.shape[0])
    assert solver.solve(b, x, tol=1e-8).iterations <= 25  # measured: 15
    balanced = b - null @ (null.T @ b)
    np.testing.assert_allclose(stiff @ x, balanced, rtol=0, atol=1e-6 * np.abs(b).max())


def test_modes_of_the_system_and_its_choice():
    matrix, place = tetrahedra(9)
    modes = list(rigid_modes(place, np.full(len(place), 3)).T.copy())
    system = SparseSystem(*rows_of(matrix), block_size=3, near_null_space=modes)
    x = np.zeros(system.size)
    report = solve_with_fallback(system, rhs(system.size), x, name="elastic_aggregation")
    assert report.fell_back_from is None and report.iterations <= 17  # measured: 14
    assert choose_solver(system).name in ("direct", "elastic_aggregation")
    translations = SparseSystem(*rows_of(matrix), block_size=3, near_null_space=modes[:3])
    solver = ElasticAggregation()
    solver.prepare(translations)
    assert solver.solve(rhs(system.size), x).converged


def test_vertices_of_several_widths():
    """Points, frames that a spring holds to a point, and single unknowns that hang on points."""
    matrix, place = tetrahedra(8)
    points = len(place)
    frames, singles = points // 10, points // 7
    count = 3 * points + 6 * frames + singles
    rng = np.random.default_rng(4)
    rows, columns, values = [], [], []
    for frame in range(frames):  # k |u - v|^2 + c |turn|^2
        own, point = 3 * points + 6 * frame, 3 * int(rng.integers(points))
        for axis in range(3):
            at, to = own + axis, point + axis
            rows += [at, to, at, to, own + 3 + axis]
            columns += [at, to, to, at, own + 3 + axis]
            values += [5e3, 5e3, -5e3, -5e3, 1.0]
    for single in range(singles):
        at, to = 3 * points + 6 * frames + single, 3 * int(rng.integers(points))
        rows, columns = [*rows, at, to, at, to], [*columns, at, to, to, at]
        values += [300.0, 200.0, 100.0, 100.0]
    more = sp.coo_matrix((values, (rows, columns)), (count, count))
    grown = sp.block_diag([matrix, sp.csr_matrix((count - 3 * points,) * 2)])
    whole = (grown + more).tocsr()
    widths = np.concatenate((np.full(points, 3), np.full(frames, 6), np.full(singles, 1)))
    coordinates = np.concatenate((place, rng.random((frames + singles, 3))))
    solver = ElasticAggregation(widths=widths, coordinates=coordinates)
    report, _ = solved(whole, None, tol=1e-8, solver=solver)
    assert report.iterations <= 20  # measured: 12


def test_rows_of_zeros_parts_and_straight_aggregates():
    """Rods of two and three points, a point alone, and an unknown that takes part in nothing."""
    matrix, place = cloth(12)
    pair = np.kron([[2.0, -1.0], [-1.0, 2.0]], np.diag([3.0, 1.0, 2.0]))
    rod = np.kron([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]], np.diag([9.0, 1.0, 1.0]))
    nothing = sp.csr_matrix((3, 3))
    parts = [matrix, *[pair] * 150, *[rod] * 50, np.eye(3), nothing]
    whole = sp.block_diag(parts).tocsr()
    line = np.linspace(5.0, 9.0, 300 + 150 + 2)[:, None] * [1.0, 0.0, 0.0]
    solver = ElasticAggregation(coordinates=np.concatenate((place, line)))
    solver.prepare(SparseSystem(*rows_of(whole), block_size=3))
    b, x = rhs(whole.shape[0]), np.full(whole.shape[0], 7.0)
    assert solver.solve(b, x, tol=1e-9).converged
    np.testing.assert_allclose((whole @ x - b)[:-3], 0.0, atol=1e-7)
    np.testing.assert_array_equal(x[-3:], 7.0)


@pytest.mark.parametrize("vertices", [0, 1, 2])
def test_bodies_of_hardly_any_vertices(vertices):
    matrix = sp.diags(np.arange(1.0, 3 * vertices + 1)).tocsr()
    solver = ElasticAggregation(coordinates=np.random.default_rng(1).random((vertices, 3)))
    solver.prepare(SparseSystem(*rows_of(matrix), block_size=3))
    b, x = np.ones(3 * vertices), np.zeros(3 * vertices)
    assert solver.solve(b, x).converged
    np.testing.assert_allclose(matrix @ x, b, rtol=1e-7)


def test_reuse():
    matrix, place = cloth(30)
    stiffer = (matrix + 0.5 * sp.diags(matrix.diagonal())).tocsr()
    solver = ElasticAggregation(coordinates=place)
    solved(matrix, place, solver=solver)
    before = solver.hierarchy
    known, halves = before._known[0], before._halves
    system = SparseSystem(*rows_of(stiffer), block_size=3)
    for reuse, kept in (("pattern", False), ("values", True)):
        solver.prepare(system, reuse=reuse)
        assert solver.hierarchy is before and before._known[0] is known
        assert (before._halves is halves) == kept
        halves = before._halves
        assert solver.solve(rhs(system.size), np.zeros(system.size)).converged
    other, place = cloth(12)
    solver.coordinates = place
    solver.prepare(SparseSystem(*rows_of(other), block_size=3), reuse="values")
    assert solver.hierarchy is not before  # another size: made anew
    with pytest.raises(SetupError, match='reuse = "all" is not known'):
        solver.prepare(system, reuse="all")


def test_what_is_refused():
    matrix, place = tetrahedra(6)
    rows = rows_of(matrix)
    with pytest.raises(SetupError, match="cannot solve a general system"):
        ElasticAggregation(coordinates=place).prepare(SparseSystem(*rows, kind="general"))
    with pytest.raises(SetupError, match="needs rigid modes: give the coordinates"):
        ElasticAggregation().prepare(SparseSystem(*rows, block_size=3))
    with pytest.raises(SetupError, match=r"coordinates have the shape \[5, 3\]"):
        ElasticAggregation(coordinates=place[:5]).prepare(SparseSystem(*rows, block_size=3))
    with pytest.raises(SetupError, match="coordinates have numbers that are not finite"):
        ElasticAggregation(coordinates=place + np.nan).prepare(SparseSystem(*rows, block_size=3))
    with pytest.raises(SetupError, match=r"modes have the shape \[648, 7\]"):
        ElasticHierarchy(*graph_of(matrix), modes=np.ones((648, 7)))
    with pytest.raises(SetupError, match="216 vertices have 216 widths, from 3 to 7"):
        ElasticHierarchy(*graph_of(matrix), widths=np.r_[7, np.full(215, 3)], coordinates=place)
    with pytest.raises(SetupError, match="make 645 unknowns; the system has 648"):
        ElasticAggregation(widths=np.full(215, 3), coordinates=place).prepare(SparseSystem(*rows))
    found = ElasticHierarchy(*graph_of(matrix), coordinates=place)
    with pytest.raises(SetupError, match="no levels to solve with: call factor first"):
        found.solve(np.ones(648), np.ones(648))
    with pytest.raises(InputError, match="the matrix has 3 rows"):
        found.factor(*rows_of(sp.eye(3)))
    joined = matrix.tolil()
    joined[647, 0] = joined[0, 647] = 1.0
    with pytest.raises(InputError, match="joins the unknowns 647 and 0, whose vertices are no"):
        found.factor(*rows_of(joined))
