"""Systems of bodies and the manybodies solver: against scipy, and iterations that stay few."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as linalg

from loki_core.errors import DivergenceError, InputError, SetupError
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.choice import choose_solver, solve_with_fallback
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.direct import Direct
from loki_core.linear_solvers.manybodies import Manybodies
from tests.unit.body_systems import (
    coupled_rods,
    dense,
    full_first,
    random_values,
    rod_first,
    rows_of,
    shape,
)
from tests.unit.linear_systems import box, poisson
from tests.unit.linear_systems import system as sparse_system

pytestmark = pytest.mark.compiles


def rhs(count):
    return np.random.default_rng(1).standard_normal(count)


def loose_bodies(seed=2):
    body_start, first, row, count = shape([rod_first(5)] * 9 + [full_first(7), full_first(1)])
    return BodySystem(body_start, first, row, random_values(body_start, first, row, count, seed))


def coupled(bodies=20, vertices=6, springs=120, seed=3, stiffness=1.0):
    parts, values, couplings = coupled_rods(bodies, vertices, springs, seed, stiffness)
    system = BodySystem(*parts[:3], values, rows_of(couplings))
    whole = sp.csr_matrix(dense(*parts[:3], values)) + couplings
    return system, whole.tocsr()


def test_the_system_is_the_sum_of_bodies_and_couplings():
    system, whole = coupled()
    x = rhs(system.size)
    out = np.empty_like(x)
    system.multiply(x, out)
    np.testing.assert_allclose(out, whole @ x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(system.diagonal(), whole.diagonal(), rtol=1e-14)
    indptr, indices, data = system.csr()
    found = sp.csr_matrix((data, indices, indptr), (system.size, system.size))
    assert found.has_canonical_format and np.all(data != 0.0)
    assert abs(found - whole).max() <= 1e-14
    assert abs(found - found.T).max() == 0.0
    assert system.has_couplings and not loose_bodies().has_couplings
    assert abs(system.dot(x, out) - x @ out) <= 1e-12 * np.abs(x * out).sum()


def test_couplings_on_the_place_of_a_body_entry_are_added():
    body_start, first, row, _ = shape([full_first(2)])
    extra = sp.csr_matrix(np.array([[1.0, 0.5], [0.5, 0.0]]))
    values = np.array([4.0, 1.0, 5.0])
    system = BodySystem(body_start, first, row, values, rows_of(extra))
    expected = np.array([[5.0, 1.5], [1.5, 5.0]])
    indptr, indices, data = system.csr()
    np.testing.assert_array_equal(sp.csr_matrix((data, indices, indptr)).toarray(), expected)
    np.testing.assert_array_equal(system.diagonal(), [5.0, 5.0])


def test_loose_bodies_are_solved_directly():
    system = loose_bodies()
    solver, x = Manybodies(), np.full(system.size, 9.0)
    solver.prepare(system)
    b = rhs(system.size)
    report = solver.solve(b, x, tol=1e-12)
    assert report.converged and report.iterations == 1 and report.residual < 1e-13
    assert report.solver == "manybodies" and report.size == system.size
    parts = system.body_start, system.first, system.row, system.values
    np.testing.assert_allclose(x, np.linalg.solve(dense(*parts), b), rtol=0, atol=1e-11)


def test_a_residual_of_rounding_counts_as_solved():
    # A chain of stiffness 1e10 with a mass of 1: |r| of some eps |A| |x| is far above 1e-12 |b|.
    body_start, first, row, count = shape([np.maximum(np.arange(50) - 1, 0)])
    values = np.full(count, -1.0e10)
    values[row + np.arange(50)] = 2.0e10 + 1.0
    values[0] = values[-1] = 1.0e10 + 1.0  # free ends: it moves as a whole, slowly
    solver, x = Manybodies(), np.zeros(50)
    solver.prepare(BodySystem(body_start, first, row, values))
    report = solver.solve(rhs(50), x, tol=1e-12)
    assert report.converged and report.residual > 1e-12
    np.testing.assert_allclose(x.sum(), rhs(50).sum(), rtol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_right_hand_side_that_is_not_finite_does_not_converge(bad):
    for system in (loose_bodies(), coupled()[0]):
        b = rhs(system.size)
        b[3] = bad
        solver = Manybodies()
        solver.prepare(system)
        with np.errstate(invalid="ignore"):
            assert not solver.solve(b, np.zeros(system.size)).converged


def test_couplings_against_a_direct_solve():
    system, whole = coupled()
    b = rhs(system.size)
    expected = linalg.spsolve(whole.tocsc(), b)
    for solver in (Manybodies(), Direct(), ConjugateGradient()):
        x = np.zeros(system.size)
        solver.prepare(system)
        report = solver.solve(b, x, tol=1e-11)
        assert report.converged, report
        scale = np.abs(expected).max()
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-8 * scale, err_msg=solver.name)


def test_iterations_do_not_grow_with_the_stiffness_of_bodies():
    counts, plain = [], []
    for stiffness in (1e2, 1e4, 1e6):
        system, _ = chains(stiffness)
        b = rhs(system.size)
        for solver, found in ((Manybodies(), counts), (ConjugateGradient(), plain)):
            solver.prepare(system)
            x = np.zeros(system.size)
            found.append(solver.solve(b, x, tol=1e-8, max_iterations=3000).iterations)
    assert max(counts) <= 1.3 * min(counts) and max(counts) < 40
    assert plain[-1] >= 10 * counts[-1]


def chains(stiffness, bodies=20, vertices=20, springs=300):
    """Elastic chains of unit masses, joined by springs of stiffness 1."""
    parts, values, couplings = coupled_rods(bodies, vertices, springs, 5, 0.0)
    body_start, first, row = parts[:3]
    for begin, end in itertools.pairwise(body_start):
        for i in range(begin, end):
            values[row[i] + i] += 1.0
            if i - first[i] >= 4:
                values[row[i] + i - 4] -= stiffness
                values[row[i] + i] += stiffness
                values[row[i - 4] + i - 4] += stiffness
    return BodySystem(*parts[:3], values, rows_of(couplings)), couplings


def test_reuse_keeps_factors_of_the_same_values_only():
    system = loose_bodies()
    solver, b = Manybodies(), rhs(system.size)
    solver.prepare(system)
    first = np.zeros(system.size)
    solver.solve(b, first)
    system.values *= 2.0
    solver.prepare(system)
    second = np.zeros(system.size)
    solver.solve(b, second)
    np.testing.assert_allclose(second, 0.5 * first, rtol=0, atol=1e-14)
    factors = solver._factors.copy()
    system.values *= 2.0
    solver.prepare(system, "values")
    np.testing.assert_array_equal(solver._factors, factors)


def test_a_body_that_is_not_positive_definite_is_named():
    system = loose_bodies()
    i = int(system.body_start[4]) + 6
    system.values[system.row[i] + i] = -1.0
    solver = Manybodies()
    with pytest.raises(DivergenceError, match=rf"body 4 of 11 .* row 6 of its 19 \(unknown {i}\)"):
        solver.prepare(system)
    with pytest.raises(DivergenceError, match="body 4"):  # not taken for prepared
        solver.prepare(system, "values")


def test_systems_without_unknowns():
    body_start, first, row, count = shape([])
    system = BodySystem(body_start, first, row, np.empty(count))
    solver = Manybodies()
    solver.prepare(system)
    report = solver.solve(np.empty(0), np.empty(0))
    assert report.converged and report.size == 0
    assert system.csr()[0].tolist() == [0]


def test_the_choice_for_bodies():
    system, whole = coupled()
    assert choose_solver(system).name == "manybodies"
    assert choose_solver(system, "conjugate_gradient").name == "conjugate_gradient"
    x = np.zeros(system.size)
    report = solve_with_fallback(system, rhs(system.size), x, tol=1e-10)
    assert report.solver == "manybodies" and report.fell_back_from is None
    np.testing.assert_allclose(whole @ x, rhs(system.size), rtol=0, atol=1e-8)
    with pytest.raises(SetupError, match='"smoothed_aggregation" cannot solve a system of bodies'):
        choose_solver(system, "smoothed_aggregation")


def test_other_systems_never_get_manybodies():
    system = sparse_system(poisson(box(4)))
    with pytest.raises(SetupError, match='"manybodies" cannot solve a system without rigid modes'):
        choose_solver(system, "manybodies")
    with pytest.raises(SetupError, match="not a SparseSystem"):
        Manybodies().prepare(system)


def test_bodies_that_fail_fall_back():
    system, whole = coupled()
    x = np.zeros(system.size)
    report = solve_with_fallback(system, rhs(system.size), x, tol=1e-10, max_iterations=2)
    assert report.solver == "direct"
    assert "manybodies (residual" in report.fell_back_from
    np.testing.assert_allclose(whole @ x, rhs(system.size), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, c: (p, (c[0], c[1], c[2][:-1])), "couplings of"),
        (lambda p, c: (p, (c[0], c[1] + 1000, c[2])), "couplings have columns"),
        (lambda p, c: ([p[0], p[1][:-1], *p[2:]], c), "first columns"),
        (lambda p, c: ([*p[:3], p[3][:-1]], c), "its envelope has"),
        (lambda p, c: ([p[0] + 1, *p[1:]], c), "must begin with 0"),
    ],
)
def test_parts_that_do_not_fit(change, message):
    parts, values, couplings = coupled_rods(3, 4, 5, 6)
    (body_start, first, row, values), rows = change([*parts[:3], values], rows_of(couplings))
    with pytest.raises(InputError, match=message):
        BodySystem(body_start, first, row, values, rows)


def test_stiff_ties_are_solved_directly_for_the_rest_of_the_frame(monkeypatch):
    """Ties of 1e6 m/h^2 are beyond the patience of iterations; the next frame tries them again."""
    import loki_core as lk

    monkeypatch.setattr("loki_core.objects.solids.solid_system.PATIENCE", 100)

    strands, points = 30, 12
    place = np.zeros((strands, points, 3))
    place[:, :, 0] = np.linspace(0.0, 0.2, points)
    place[:, :, 2] = 0.01 * np.arange(strands)[:, None]
    place[:, :, 1] = 1e-3 * np.random.default_rng(4).random((strands, points))
    setup = lk.SolverSetup(
        "tied",
        lk.CurvesObject(name="S", input="strands"),
        lk.StretchingConstraint(),
        lk.BendingConstraint(),
        lk.GravityForce(),
        lk.AttachmentConstraint(
            source="S", target="S", emission="within_range", range=0.0105, stiffness=1e3
        ),
        substeps=3,
    )
    curves = lk.Curves(place.reshape(-1, 3), points * np.arange(strands + 1))
    solver = lk.Solver(setup, {"strands": curves})
    used = []
    solver.observe("SUBSTEP_END", lambda s, step: used.append(s.solids.report))
    solver.run(2)
    assert [one.solver for one in used] == ["direct"] * 6
    fell_back = [one.fell_back_from is not None for one in used]
    assert fell_back == [True, False, False] * 2
    assert "after 100 iterations" in used[0].fell_back_from
    assert len([one for one in solver.warnings if "took over" in one]) == 2  # once a frame
