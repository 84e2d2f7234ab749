"""Smoothed aggregation: right answers, few iterations, symmetric preconditioner, reuse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as linalg

from loki_core.errors import SetupError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.hierarchy import Hierarchy
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from loki_core.linear_solvers.sparse_system import Boxes, SparseSystem
from tests.unit.linear_systems import box, box_with_holes, poisson, random_spd, system

pytestmark = pytest.mark.compiles


def solve(found, b, x=None, **options):
    solver = SmoothedAggregation()
    solver.prepare(found)
    x = np.zeros(len(b)) if x is None else x
    return solver.solve(b, x, **options), x, solver


def rhs(count, seed=0):
    return np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", ["box", "holes", "random", "weights"])
def test_the_answer_is_that_of_a_direct_solve(make, dtype):
    rng = np.random.default_rng(3)
    if make == "random":
        matrix = random_spd(3000, 4)
    elif make == "weights":  # contrast of a thousand, as cut cells have
        matrix = poisson(box(14), weights=10.0 ** rng.uniform(-3, 0, (3, 14, 14, 14)))
    else:
        matrix = poisson(box(14) if make == "box" else box_with_holes(16))
    matrix.data = matrix.data.astype(dtype).astype(np.float64)
    used = matrix.diagonal() > 0.0
    if make == "holes":  # pockets without outlet are singular: tie each cell a little
        matrix = (matrix + sp.diags(np.where(used, 2.0**-10, 0.0))).tocsr()
    b = rhs(matrix.shape[0])
    x = np.full(len(b), 7.0)
    report, x, _ = solve(system(matrix, dtype), b, x, tol=1e-10)
    assert report.converged and report.solver == "smoothed_aggregation" and report.size == len(b)
    expected = linalg.spsolve(matrix[used][:, used].tocsc(), b[used])
    np.testing.assert_allclose(x[used], expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_array_equal(x[~used], 7.0)  # rows of zeros: x stays as given
    true = np.linalg.norm((b - matrix @ x)[used]) / np.linalg.norm(b[used])
    np.testing.assert_allclose(report.residual, true, rtol=1e-3)
    assert true <= 1e-10


def test_iterations_are_few_and_grow_little():
    rates = []
    for n in (16, 32):
        matrix = poisson(box(n))
        report, _, solver = solve(system(matrix), rhs(n**3), tol=1e-8)
        assert report.converged and report.iterations <= 15
        assert solver.hierarchy.operator_complexity < 1.4
        rates.append(np.log(report.residual) / report.iterations)
    assert rates[0] / rates[1] < 1.35


def test_the_preconditioner_is_symmetric_and_positive():
    matrix = poisson(box_with_holes(12))
    _, _, solver = solve(system(matrix), rhs(12**3), max_iterations=1)
    rng = np.random.default_rng(5)
    used = matrix.diagonal() > 0.0
    for _ in range(3):
        a, b = np.where(used, rng.standard_normal((2, len(used))), 0.0)
        ma = solver.precondition(a, 1.0).astype(np.float64)
        mb = solver.precondition(b, 1.0).astype(np.float64)
        # Float32 rounds each of some hundred steps by 6e-8.
        assert abs(b @ ma - a @ mb) < 1e-5 * np.sqrt((a @ ma) * (b @ mb))
        assert a @ ma > 0.0


@pytest.mark.parametrize("n", [5, 13])
def test_a_closed_box_is_solved_off_its_null_space(n):
    fluid = box(n)
    fluid[1, 2, 3] = False
    matrix = poisson(fluid, dirichlet_top=False)
    used = fluid.ravel()
    null = used / np.sqrt(used.sum())
    b = rhs(n**3) + 3.0  # not in the range
    report, x, _ = solve(system(matrix, null_space=[null]), b, tol=1e-10)
    assert report.converged and report.iterations <= 20
    expected = np.where(used, b - null * (null @ b), 0.0)
    np.testing.assert_allclose(matrix @ x, expected, rtol=0, atol=1e-8)
    assert abs(null @ x) < 1e-10


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tiny_systems(count):
    report, x, _ = solve(system(sp.csr_matrix(4.0 * np.eye(count))), np.ones(count))
    assert report.converged and report.size == count
    np.testing.assert_allclose(x, 0.25, rtol=1e-7)


def test_nothing_but_zeros():
    x = np.arange(20.0)
    report, x, _ = solve(system(sp.csr_matrix((20, 20))), np.ones(20), x)
    assert report.converged and report.iterations == 0
    np.testing.assert_array_equal(x, np.arange(20.0))


def test_diagonal_matrices_converge_without_aggregates():
    diagonal = np.geomspace(1.0, 100.0, 2000)
    report, x, _ = solve(system(sp.diags(diagonal)), np.ones(2000))
    assert report.converged
    np.testing.assert_allclose(x, 1.0 / diagonal, rtol=1e-6)


def test_a_start_that_is_right_takes_no_iteration():
    matrix = poisson(box(8))
    exact = rhs(512, 6)
    report, x, _ = solve(system(matrix), matrix @ exact, exact.copy())
    assert report.iterations == 0 and report.converged
    np.testing.assert_array_equal(x, exact)


def test_zero_right_hand_side():
    report, x, _ = solve(system(poisson(box(8))), np.zeros(512), np.ones(512))
    assert report.converged and report.residual == 0.0
    np.testing.assert_array_equal(x, 0.0)


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_scale_of_matrix_and_right_hand_side_do_not_matter(scale):
    matrix = poisson(box(12))
    one, _, _ = solve(system(matrix), rhs(12**3))
    other, _, _ = solve(system(matrix * 1e-6), scale * rhs(12**3))
    assert other.converged and abs(other.iterations - one.iterations) <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_does_not_converge_and_leaves_no_trace(bad):
    b = rhs(12**3)
    _, clean, solver = solve(system(poisson(box(12))), b)
    poisoned = b.copy()
    poisoned[5] = bad
    assert not solver.solve(poisoned, np.zeros_like(b)).converged
    x = np.zeros_like(b)
    assert solver.solve(b, x).converged
    np.testing.assert_array_equal(x, clean)


def test_reuse():
    matrix = poisson(box(16))
    b = rhs(16**3)
    weights = np.random.default_rng(7).uniform(0.5, 2.0, (3, 16, 16, 16))
    changed = poisson(box(16), weights=weights)
    _, expected, _ = solve(system(changed), b, tol=1e-10)
    solver = SmoothedAggregation()
    solver.prepare(system(matrix), reuse="pattern")  # nothing to reuse yet
    aggregate = solver.hierarchy.levels[0].aggregate
    coarse = solver.hierarchy.levels[1].matrix
    iterations = {}
    for reuse in ("pattern", "values"):
        solver.prepare(system(changed), reuse=reuse)
        assert solver.hierarchy.levels[0].aggregate is aggregate
        x = np.zeros_like(b)
        report = solver.solve(b, x, tol=1e-10)
        assert report.converged
        iterations[reuse] = report.iterations
        # tol 1e-10 on the residual of a matrix with a condition of some hundred
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-7 * np.abs(expected).max())
        assert (solver.hierarchy.levels[1].matrix is coarse) == (reuse == "values")
        coarse = solver.hierarchy.levels[1].matrix
    solver.prepare(system(poisson(box(12))), reuse="values")  # another size: built anew
    x = np.zeros(12**3)
    assert solver.solve(rhs(12**3), x).converged
    with pytest.raises(SetupError, match='reuse = "all" is not known'):
        solver.prepare(system(matrix), reuse="all")


def test_three_components_do_not_share_aggregates():
    # The same Poisson matrix three times, interleaved, with a weak coupling between components.
    one = poisson(box(10))
    coupling = np.full((3, 3), 0.02) + np.eye(3)
    matrix = sp.kron(one, coupling).tocsr()
    indicators = [np.tile(np.arange(3) == c, 1000) for c in range(3)]
    found = system(matrix, near_null_space=indicators)
    report, x, solver = solve(found, rhs(3000), tol=1e-9)
    assert report.converged and report.iterations <= 20
    np.testing.assert_allclose(matrix @ x, rhs(3000), rtol=0, atol=1e-6)
    level = solver.hierarchy.levels[0]
    for aggregate in range(len(level.starts) - 1):
        members = level.members[level.starts[aggregate] : level.starts[aggregate + 1]]
        assert len(set(members % 3)) == 1
    with pytest.raises(SetupError, match=r"near_null_space\[0\] is not constant"):
        solve(system(matrix, near_null_space=[np.arange(3000.0)]), rhs(3000))


def test_threads_do_not_change_a_bit():
    matrix = poisson(box_with_holes(20))
    matrix = (matrix + sp.diags(np.where(matrix.diagonal() > 0, 2.0**-10, 0.0))).tocsr()
    before = thread_count()
    answers = []
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            answers.append(solve(system(matrix, np.float32), rhs(20**3))[1])
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(answers[0], answers[1])


def test_only_spd_systems_are_taken():
    with pytest.raises(SetupError, match="cannot solve a general system"):
        SmoothedAggregation().prepare(system(sp.eye(3), kind="general"))


def test_running_out_of_iterations_is_reported():
    report, _, _ = solve(system(poisson(box(12))), rhs(12**3), tol=1e-12, max_iterations=2)
    assert report.iterations == 2 and not report.converged and report.residual > 1e-12


def connected(matrix, rows):
    """Whether rows are one piece by their couplings."""
    part = matrix[rows][:, rows]
    return sp.csgraph.connected_components(part, directed=False)[0] == 1


def test_boxes_of_the_lattice_become_aggregates_where_nothing_cuts_them():
    matrix = poisson(box_with_holes(16))
    boxes = Boxes.of_cubes(1, 16)
    hierarchy = Hierarchy(system(matrix).matrix, system(matrix).halo, boxes=boxes)
    aggregate = hierarchy.levels[0].aggregate
    used = matrix.diagonal() > 0.0
    whole, cut = 0, 0
    for number in range(boxes.number.max() + 1):
        rows = np.flatnonzero(boxes.number == number)
        found = np.unique(aggregate[rows])
        inner = matrix[rows][:, rows]
        if used[rows].all() and inner.nnz - len(rows) == boxes.contacts[number]:
            assert len(found) == 1 and np.count_nonzero(aggregate == found[0]) == len(rows)
            whole += 1
        elif used[rows].any():
            cut += 1
    assert whole > 20 and cut > 5
    for number in np.unique(aggregate[aggregate >= 0]):  # also of what was left over
        assert connected(matrix, np.flatnonzero(aggregate == number))
    assert np.all(aggregate[~used] == -1)


def test_boxes_do_not_change_the_answer():
    matrix = poisson(box(20))
    b = rhs(20**3)
    indptr, indices, data = matrix.indptr, matrix.indices, matrix.data
    found = SparseSystem(indptr, indices, data, boxes=Boxes.of_cubes(1, 20))
    report, x, _ = solve(found, b, tol=1e-10)
    plain, y, _ = solve(system(matrix), b, tol=1e-10)
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-8 * np.abs(y).max())
    assert report.iterations <= plain.iterations + 1


def test_a_row_of_many_aggregates_is_computed_once_more_with_more_room():
    # One unknown that touches all others: its coarse row is longer than any stencil's.
    n = 14
    matrix = poisson(box(n)).tolil()
    matrix[0, :] = -1.0
    matrix[:, 0] = -1.0
    matrix.setdiag(matrix.diagonal() + 1.0)
    matrix[0, 0] = 2.0 * n**3
    matrix = matrix.tocsr()
    b = rhs(n**3)
    report, x, solver = solve(system(matrix), b, tol=1e-9)
    assert report.converged and len(solver.hierarchy.levels[0].starts) - 1 > 100
    np.testing.assert_allclose(matrix @ x, b, atol=1e-8 * np.linalg.norm(b))


@pytest.mark.parametrize(
    ("data", "kind"),
    [([2.0, -1.0], np.int8), ([200.0, -1.0], np.float32), ([1.0 / 3.0, -0.1], np.float64)],
)
def test_entries_are_kept_in_the_smallest_type_that_loses_nothing(data, kind):
    values = np.array([data[0], data[1], data[1], data[0]])
    found = SparseSystem(np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32), values)
    assert found.matrix.values.dtype == kind
    out = np.empty(2)
    found.multiply(np.array([3.0, 5.0]), out)
    np.testing.assert_allclose(out, values.reshape(2, 2) @ [3.0, 5.0], rtol=1e-15)
    np.testing.assert_array_equal(found.csr()[2].astype(np.float64), values)
