"""The choice of a linear solver, the direct one, and what happens when one fails."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as linalg

from loki_core.errors import DivergenceError, SetupError
from loki_core.linear_solvers.choice import choose_solver, solve_with_fallback
from loki_core.linear_solvers.direct import Direct
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from tests.unit.linear_systems import box, poisson, random_spd, system

pytestmark = pytest.mark.compiles


def rhs(count):
    return np.random.default_rng(1).standard_normal(count)


@pytest.mark.parametrize(
    ("n", "kind", "name", "expected"),
    [
        (12, "spd", "auto", "smoothed_aggregation"),
        (5, "spd", "auto", "direct"),
        (12, "general", "auto", "direct"),
        (12, "quasi-definite", "direct", "direct"),
        (5, "spd", "conjugate_gradient", "conjugate_gradient"),
        (5, "spd", "smoothed_aggregation", "smoothed_aggregation"),
    ],
)
def test_the_choice(n, kind, name, expected):
    found = system(poisson(box(n)), kind=kind)
    assert choose_solver(found, name).name == expected
    x = np.zeros(n**3)
    report = solve_with_fallback(found, rhs(n**3), x, name=name)
    assert report.solver == expected and report.converged and report.fell_back_from is None
    expected_x = linalg.spsolve(poisson(box(n)).tocsc(), rhs(n**3))
    np.testing.assert_allclose(x, expected_x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["smoothed_aggregation", "conjugate_gradient"])
def test_conjugate_gradients_never_get_a_system_that_is_not_spd(name):
    with pytest.raises(SetupError, match=f'"{name}" cannot solve a general system'):
        choose_solver(system(sp.eye(3).tocsr(), kind="general"), name)


def test_a_misspelt_name():
    with pytest.raises(SetupError, match='did you mean "direct"'):
        choose_solver(system(sp.eye(3).tocsr()), "dirct")


def test_a_failing_solver_falls_back_and_says_so():
    matrix = poisson(box(12))
    x = np.ones(12**3)
    report = solve_with_fallback(
        system(matrix), rhs(12**3), x, name="smoothed_aggregation", max_iterations=2
    )
    assert report.solver == "direct" and report.converged
    assert "smoothed_aggregation (residual" in report.fell_back_from
    assert "after 2 iterations" in report.fell_back_from
    assert "conjugate_gradient" in report.fell_back_from
    np.testing.assert_allclose(matrix @ x, rhs(12**3), rtol=0, atol=1e-6)


def test_a_prepared_solver_is_used_first():
    found = system(poisson(box(12)))
    solver = SmoothedAggregation()
    solver.prepare(found)
    hierarchy = solver.hierarchy
    report = solve_with_fallback(found, rhs(12**3), np.zeros(12**3), solver=solver)
    assert report.solver == "smoothed_aggregation" and solver.hierarchy is hierarchy


def test_when_all_fail_the_error_names_size_iterations_and_residual():
    b = rhs(12**3)
    b[3] = np.nan
    x = np.ones(12**3)
    told = r"1728 unknowns \(spd\) was not solved: .* residual"
    with pytest.raises(DivergenceError, match=told) as raised:
        solve_with_fallback(system(poisson(box(12))), b, x)
    assert raised.value.together  # or ranks would end where they could try a shorter step
    np.testing.assert_array_equal(x, 1.0)


def test_direct_solves_general_and_singular_systems():
    rng = np.random.default_rng(2)
    matrix = (sp.random(300, 300, 0.02, random_state=rng) + 3.0 * sp.eye(300)).tocsr()
    solver, x = Direct(), np.zeros(300)
    solver.prepare(system(matrix, kind="general"))
    report = solver.solve(rhs(300), x, tol=1e-12)
    assert report.converged and report.residual <= 1e-12
    np.testing.assert_allclose(x, linalg.spsolve(matrix.tocsc(), rhs(300)), rtol=1e-8, atol=1e-10)

    fluid = box(6)
    fluid[2, 2, 2] = False
    closed = poisson(fluid, dirichlet_top=False)
    null = fluid.ravel() / np.sqrt(fluid.sum())
    x = np.full(216, 5.0)
    solver.prepare(system(closed, null_space=[null]))
    report = solver.solve(rhs(216), x, tol=1e-10)
    assert report.converged
    b = np.where(fluid.ravel(), rhs(216) - null * (null @ rhs(216)), 0.0)
    np.testing.assert_allclose(closed @ x, b, rtol=0, atol=1e-9)
    assert x[2 * 36 + 2 * 6 + 2] == 5.0


def test_direct_refuses_what_is_too_large():
    with pytest.raises(SetupError, match=r"direct solve of 512 unknowns .*limit 500"):
        Direct(size_limit=500).prepare(system(poisson(box(8))))


def test_an_exactly_singular_matrix_is_a_clear_error():
    matrix = sp.csr_matrix(np.array([[1.0, 1.0], [1.0, 1.0]]))
    with pytest.raises(DivergenceError, match="could not factorise 2 unknowns"):
        Direct().prepare(system(matrix, kind="general"))


def test_random_systems_by_every_solver():
    matrix = random_spd(1500, 3)
    expected = linalg.spsolve(matrix.tocsc(), rhs(1500))
    for name in ("smoothed_aggregation", "conjugate_gradient", "direct"):
        x = np.zeros(1500)
        report = solve_with_fallback(system(matrix), rhs(1500), x, name=name, tol=1e-11)
        assert report.solver == name
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
