"""Conjugate gradients: known answers, null spaces, honest reports."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import LokiError
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient


class Dense:
    """A System around a dense matrix."""

    block_size = 1

    def __init__(self, matrix, *, kind="spd", null_space=()):
        self.matrix, self.kind, self.null_space = matrix, kind, list(null_space)
        self.size = len(matrix)

    def multiply(self, x, out):
        out[:] = self.matrix @ x

    def dot(self, x, y):
        return float(x @ y)

    def diagonal(self):
        return np.diag(self.matrix).copy()


def random_spd(count, condition, seed):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((count, count)))[0]
    return basis @ np.diag(np.geomspace(1.0, condition, count)) @ basis.T


def solve(system, b, x=None, **options):
    solver = ConjugateGradient()
    solver.prepare(system)
    x = np.zeros(len(b)) if x is None else x
    return solver.solve(b, x, **options), x


def test_the_answer_is_that_of_a_direct_solve():
    matrix = random_spd(80, 1e3, 1)
    b = np.random.default_rng(2).standard_normal(80)
    report, x = solve(Dense(matrix), b, tol=1e-12)
    assert report.converged and report.size == 80 and 0 < report.iterations < 1000
    # |x - x*| <= |A^-1| |r| = 1 * 1e-12 |b|.
    np.testing.assert_allclose(
        x, np.linalg.solve(matrix, b), rtol=0, atol=2e-12 * np.linalg.norm(b)
    )
    np.testing.assert_allclose(
        report.residual, np.linalg.norm(b - matrix @ x) / np.linalg.norm(b), atol=1e-13
    )


def test_a_few_eigenvalues_take_as_many_iterations():
    # In exact arithmetic CG ends after as many steps as there are distinct eigenvalues.
    basis = np.linalg.qr(np.random.default_rng(3).standard_normal((30, 30)))[0]
    matrix = np.eye(30) + 8.0 * basis[:, :3] @ basis[:, :3].T
    system = Dense(matrix)
    system.diagonal = lambda: np.ones(30)  # no preconditioning, so that the theorem applies
    report, _ = solve(system, np.ones(30), tol=1e-10)
    assert report.iterations == 2


def test_a_start_that_is_right_takes_no_iteration():
    matrix = random_spd(20, 10.0, 4)
    exact = np.random.default_rng(5).standard_normal(20)
    report, x = solve(Dense(matrix), matrix @ exact, exact.copy(), tol=1e-10)
    assert report.iterations == 0 and report.converged
    np.testing.assert_array_equal(x, exact)


def test_a_singular_system_is_solved_off_its_null_space():
    count = 40
    laplacian = 2.0 * np.eye(count) - np.roll(np.eye(count), 1, 0) - np.roll(np.eye(count), -1, 0)
    null = np.full(count, 1.0 / np.sqrt(count))
    b = np.random.default_rng(6).standard_normal(count) + 5.0  # not in the range
    report, x = solve(Dense(laplacian, null_space=[null]), b, tol=1e-12)
    assert report.converged
    np.testing.assert_allclose(laplacian @ x, b - b.mean(), rtol=0, atol=1e-10)
    assert abs(x.mean()) < 1e-12


def test_rows_without_entries_are_left_alone():
    matrix = np.diag([2.0, 0.0, 4.0])
    report, x = solve(Dense(matrix), np.array([2.0, 0.0, 4.0]))
    assert report.converged
    np.testing.assert_allclose(x, [1.0, 0.0, 1.0], rtol=1e-12)


def test_a_zero_right_hand_side_has_the_zero_solution():
    report, x = solve(Dense(random_spd(20, 10.0, 7)), np.zeros(20), np.ones(20), max_iterations=50)
    np.testing.assert_allclose(x, 0.0, atol=1e-12)
    assert report.converged and report.residual == 0.0


def test_running_out_of_iterations_is_reported():
    report, _ = solve(Dense(random_spd(100, 1e8, 8)), np.ones(100), tol=1e-12, max_iterations=3)
    assert report.iterations == 3 and not report.converged and report.residual > 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_right_hand_side_that_is_not_finite_does_not_converge(bad):
    b = np.ones(5)
    b[2] = bad
    with np.errstate(invalid="ignore"):
        report, _ = solve(Dense(np.eye(5)), b)
    assert not report.converged


def test_an_indefinite_matrix_does_not_converge():
    report, _ = solve(Dense(np.diag([1.0, -1.0, 2.0])), np.array([0.0, 1.0, 0.0]))
    assert not report.converged


@pytest.mark.parametrize("kind", ["general", "quasi-definite"])
def test_only_spd_systems_are_taken(kind):
    with pytest.raises(LokiError, match=f"cannot solve a {kind} system"):
        ConjugateGradient().prepare(Dense(np.eye(2), kind=kind))


def test_the_right_hand_side_is_not_changed():
    b = np.arange(4.0)
    solve(Dense(np.eye(4), null_space=[np.full(4, 0.5)]), b)
    np.testing.assert_array_equal(b, np.arange(4.0))
