"""PGS and predictor-corrector LCP: complementarity, degenerate cases, threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as linalg

from loki_core.errors import InputError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.predictor_corrector_lcp import PredictorCorrectorLcp
from loki_core.linear_solvers.projected_gauss_seidel import ProjectedGaussSeidel
from tests.unit.linear_systems import dam_break, random_spd, system

pytestmark = pytest.mark.compiles

SOLVERS = [ProjectedGaussSeidel, PredictorCorrectorLcp]


def solve(kind, matrix, b, x=None, **options):
    solver = kind()
    solver.prepare(system(matrix))
    x = np.zeros(len(b)) if x is None else x
    return solver.solve(b, x, **options), x


@pytest.mark.parametrize("kind", SOLVERS)
def test_pressure_of_a_dam_break(kind):
    matrix, b = dam_break(12)
    report, x = solve(kind, matrix, b, lower=0.0, tol=1e-7)
    w = matrix @ x + b
    assert report.converged
    # The measure of the validation case, with a diagonal above one a lower bound of the report's.
    assert np.abs(np.minimum(x, w)).max() / np.abs(b).max() <= 1e-7
    held = x == 0.0
    assert 0.02 < held.mean() < 0.5  # the bounds matter
    free = linalg.spsolve(matrix.tocsc(), -b)
    assert free.min() < -0.1


@pytest.mark.parametrize("kind", SOLVERS)
def test_both_bounds(kind):
    matrix = random_spd(400, 1)
    b = np.random.default_rng(2).standard_normal(400)
    lower, upper = np.full(400, -0.2), np.random.default_rng(3).uniform(0.0, 0.3, 400)
    report, x = solve(kind, matrix, b, lower=lower, upper=upper, tol=1e-8)
    assert report.converged
    w = matrix @ x + b
    assert np.all(x >= lower) and np.all(x <= upper)
    np.testing.assert_allclose(w[(x > lower) & (x < upper)], 0.0, atol=1e-7)
    assert np.all(w[x == lower] >= -1e-7) and np.all(w[x == upper] <= 1e-7)
    assert (x == lower).any() and (x == upper).any()


@pytest.mark.parametrize("kind", SOLVERS)
def test_all_bound(kind):
    matrix = random_spd(200, 4)
    report, x = solve(kind, matrix, np.ones(200), lower=0.0)  # w = b > 0 at x = 0
    assert report.converged
    np.testing.assert_array_equal(x, 0.0)


@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("lower", [None, -1e9])
def test_none_bound_is_a_linear_solve(kind, lower):
    matrix = random_spd(300, 5)
    b = np.random.default_rng(6).standard_normal(300)
    report, x = solve(kind, matrix, b, lower=lower, tol=1e-10)
    assert report.converged
    np.testing.assert_allclose(x, linalg.spsolve(matrix.tocsc(), -b), rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", SOLVERS)
def test_equal_bounds_prescribe_and_idle_rows_stay(kind):
    matrix = sp.csr_matrix(np.diag([2.0, 0.0, 4.0]))
    lower = np.array([3.0, 0.0, 0.0])
    upper = np.array([3.0, 1.0, 9.0])
    report, x = solve(
        kind, matrix, np.array([1.0, 5.0, -8.0]), np.array([0.0, 50.0, 0.0]), lower=lower,
        upper=upper,
    )  # fmt: skip
    assert report.converged
    np.testing.assert_allclose(x, [3.0, 50.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize("kind", SOLVERS)
def test_nothing_to_solve(kind):
    report, _ = solve(kind, sp.csr_matrix((0, 0)), np.empty(0), lower=0.0)
    assert report.converged and report.size == 0


@pytest.mark.parametrize("kind", SOLVERS)
def test_bad_input(kind):
    with pytest.raises(InputError, match="bounds of unknown 1 cross"):
        solve(kind, sp.eye(2).tocsr(), np.ones(2), lower=np.array([0.0, 2.0]), upper=1.0)
    report, _ = solve(kind, sp.eye(2).tocsr(), np.array([np.nan, 1.0]), lower=0.0)
    assert not report.converged


@pytest.mark.parametrize("kind", SOLVERS)
def test_threads_do_not_change_a_bit(kind):
    matrix, b = dam_break(12)
    before = thread_count()
    answers = []
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            answers.append(solve(kind, matrix, b, lower=0.0, tol=1e-4)[1])
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(answers[0], answers[1])


def test_the_prediction_saves_most_of_the_sweeps():
    matrix, b = dam_break(16)
    slow, _ = solve(ProjectedGaussSeidel, matrix, b, lower=0.0)
    fast, _ = solve(PredictorCorrectorLcp, matrix, b, lower=0.0)
    assert fast.converged and slow.converged
    assert 4 * fast.iterations < slow.iterations
