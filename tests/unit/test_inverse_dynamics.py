"""Inverse dynamics: sag-free starts, targets, and the derivatives they are made of."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import InputError, SetupError
from loki_core.operators.rest_problem import RestProblem, undisturbed

pytestmark = pytest.mark.compiles

PATH = "Hair/CurvesObject"


def curly_groom(strands=50, count=20, length=0.08):
    """Curls that leave a ball in all directions of the upper half."""
    rng = np.random.default_rng(0)
    points = []
    for _ in range(strands):
        along = rng.normal(size=3)
        along[1] = 0.3 * abs(along[1])
        along /= np.linalg.norm(along)
        first = np.cross(along, [0.3, 0.5, 0.8])
        first /= np.linalg.norm(first)
        second, phase = np.cross(along, first), rng.uniform(0.0, 6.28)
        t = np.linspace(0.0, 1.0, count)[:, None]
        curl = np.cos(18.0 * t + phase) * first + np.sin(18.0 * t + phase) * second
        points.append(along * (0.1 + length * t) + 0.006 * np.minimum(1.0, 4.0 * t) * curl)
    return lk.Curves(np.concatenate(points), count * np.arange(strands + 1))


def bent_strands(strands=4, count=14, length=0.05):
    """Straight strands, and the same bent by half a radian with the same edges."""
    rng = np.random.default_rng(3)
    straight, bent = [], []
    for _ in range(strands):
        along = rng.normal(size=3)
        along[1] = 0.3 * abs(along[1])
        along /= np.linalg.norm(along)
        first = np.cross(along, [0.3, 0.5, 0.8])
        first /= np.linalg.norm(first)
        second = np.cross(along, first)
        edge = length / (count - 1)
        straight.append(along * edge * np.arange(count)[:, None])
        angle = 0.05 * np.maximum(np.arange(count - 1) - 1.0, 0.0)[:, None]
        turned = np.cos(angle) * along + np.sin(angle) * first + 0.1 * np.sin(3 * angle) * second
        turned /= np.linalg.norm(turned, axis=1, keepdims=True)
        bent.append(np.concatenate((np.zeros((1, 3)), np.cumsum(edge * turned, axis=0))))
    offsets = count * np.arange(strands + 1)
    return lk.Curves(np.concatenate(straight), offsets), lk.Curves(np.concatenate(bent), offsets)


def solver_of(curves, *more, inputs=(), damping=0.01, substeps=1, newton=1, **stretching):
    setup = lk.SolverSetup(
        "groom",
        lk.Group(
            "Hair",
            lk.CurvesObject(input="curves", radius=1e-4),
            lk.StretchingConstraint(**stretching),
            lk.BendingConstraint(damping_time=damping),
            lk.GravityForce(),
            *more,
        ),
        substeps=substeps,
        newton_iterations=newton,
    )
    return lk.Solver(setup, {"curves": curves, **dict(inputs)})


def furthest(solver, curves, frames):
    """Largest distance from the start in these frames, over the length of a strand."""
    length = np.linalg.norm(np.diff(curves.positions[: curves.offsets[1]], axis=0), axis=1).sum()
    found = 0.0
    for _ in range(frames):
        solver.run(1)
        moved = np.linalg.norm(solver.read(PATH, "position") - curves.positions, axis=1)
        found = max(found, float(moved.max()))
    return found / length


# -- sag-free start ----------------------------------------------------------------------------


@pytest.mark.parametrize("newton", [1, 4])
def test_a_curly_groom_does_not_sag(newton):
    curves = curly_groom()
    plain = solver_of(curves, newton=newton)
    assert furthest(plain, curves, 12) > 0.05
    solver = solver_of(curves, lk.SagFreeStart(), newton=newton)
    assert furthest(solver, curves, 48) < 1e-6
    before, after = solver.actions["Hair/SagFreeStart"][0].largest_force
    assert after < 1e-7 * before


def test_a_sag_free_groom_comes_back_after_a_push():
    curves = curly_groom(strands=8)
    solver = solver_of(curves, lk.SagFreeStart(), damping=0.05, substeps=2)
    solver.run(1)
    rng = np.random.default_rng(1)
    velocity = rng.normal(scale=0.02, size=curves.positions.shape)
    solver.write(PATH, "velocity", velocity)
    solver.run(1)
    moved = np.abs(solver.read(PATH, "position") - curves.positions).max()
    assert moved > 2e-5  # it is not frozen
    solver.run(96)
    assert np.abs(solver.read(PATH, "position") - curves.positions).max() < 0.05 * moved


def test_damping_does_not_see_the_change_of_the_rest_shape():
    curves = curly_groom(strands=3)
    solver = solver_of(curves, lk.SagFreeStart(), damping=1.0)
    solver.run(2)
    assert np.abs(solver.read(PATH, "velocity")).max() < 1e-9


def test_distance_constraints_take_part_and_rest_lengths_stay_positive():
    # Edges so soft that their rest length would have to be below nothing.
    points = np.zeros((5, 3))
    points[:, 1] = -0.1 * np.arange(5)
    curves = lk.Curves(points, [0, 5])
    for stiffness, held in ((20.0, False), (0.05, True)):
        setup = lk.SolverSetup(
            "chain",
            lk.Group(
                "Hair",
                lk.CurvesObject(input="curves", radius=1e-3, root="pinned"),
                lk.DistanceConstraint(stiffness=stiffness),
                lk.GravityForce(),
                lk.SagFreeStart(),
            ),
        )
        solver = lk.Solver(setup, {"curves": curves})
        solver.run(1)
        rest = solver.read(PATH, "edges.rest_distance")
        assert np.all(rest > 0.0) and np.all(rest < 0.1)
        before, after = solver.actions["Hair/SagFreeStart"][0].largest_force
        if held:
            assert rest.min() == pytest.approx(0.005) and 0.0 < after < 1.000001 * before
        else:
            mass = solver.read(PATH, "mass")
            below = np.cumsum(mass[::-1])[::-1][1:]
            np.testing.assert_allclose(rest, 0.1 - below * 9.81 / stiffness, rtol=1e-9)
            assert after < 1e-8 * before


def test_a_strand_that_nothing_holds_falls_as_it_is():
    points = np.zeros((6, 3))
    points[:, 0] = 0.01 * np.arange(6)
    setup = lk.SolverSetup(
        "free",
        lk.Group(
            "Hair",
            lk.CurvesObject(input="curves", root="free"),
            lk.StretchingConstraint(),
            lk.BendingConstraint(),
            lk.GravityForce(),
            lk.SagFreeStart(),
        ),
    )
    solver = lk.Solver(setup, {"curves": lk.Curves(points, [0, 6])})
    solver.run(1)
    strain = np.abs(solver.read(PATH, "joints.rest_strain")).max()
    velocity = solver.read(PATH, "velocity")
    assert strain < 1e-6
    np.testing.assert_allclose(velocity[:, 1], -9.81 / 24.0, rtol=1e-5)


def test_unknown_constraints_are_refused():
    with pytest.raises(SetupError, match="BendingConstraint"):
        solver_of(curly_groom(1), lk.SagFreeStart(constraints=("BendingConstrain",)))


# -- targets -----------------------------------------------------------------------------------


def at_rest(solver, target, frames=72):
    solver.run(frames)
    return np.abs(solver.read(PATH, "position") - target.positions).max() / 0.05


def test_strands_come_to_rest_in_the_target():
    straight, bent = bent_strands()
    solver = solver_of(
        straight, lk.MatchTarget(), inputs={"target": bent}, damping=0.02, substeps=2
    )
    assert at_rest(solver, bent) < 1e-6


def test_gauss_newton_helps_where_parameters_are_too_few():
    straight, bent = bent_strands()

    def distance(iterations):
        operator = lk.MatchTarget(iterations=iterations, constraints=("BendingConstraint",))
        inputs = {"target": bent}
        solver = solver_of(straight, operator, inputs=inputs, damping=0.02, substeps=2)
        reached = at_rest(solver, bent)
        return reached, solver.actions["Hair/MatchTarget"][0].distances

    direct, found = distance(0)
    assert len(found) == 1 and direct == pytest.approx(found[0] / 0.05, rel=0.05)
    better, found = distance(4)
    assert better < 1e-3 and better < 0.1 * direct
    assert better == pytest.approx(found[-1] / 0.05, rel=0.2)


def test_a_target_of_other_curves_is_refused():
    straight, _ = bent_strands()
    other = lk.Curves(straight.positions[:10], [0, 10])
    solver = solver_of(straight, lk.MatchTarget(), inputs={"target": other})
    with pytest.raises(InputError, match="same curves"):
        solver.run(1)


# -- derivatives -------------------------------------------------------------------------------


@pytest.fixture
def problem():
    curves = curly_groom(strands=2, count=8)
    solver = solver_of(curves, stiffness=1e-3)
    solver.run(3)
    rods = solver.object(PATH)
    load = np.zeros(rods.system.size)
    load[rods.unknowns.joint("position")] = rods.particles.local("mass")[:, None] * np.array(
        [0.0, -9.81, 0.0]
    )
    return RestProblem(rods, load, regularization=1e-3)


def parameters_of(problem):
    """Every parameter of the first strand, as (term, index)."""
    for term in problem.terms:
        for index in np.ndindex(term.value.shape):
            if index[0] < term.elements.runs[1]:
                yield term, index


def test_constraint_by_rest_parameter_is_minus_one(problem):
    problem.force()
    for term, index in parameters_of(problem):
        step, rest = 1e-7, term.constraint.rest_parameters()
        sides = []
        for sign in (1.0, -1.0):
            changed = rest.copy()
            changed[index] += sign * step
            term.constraint.set_rest_parameters(changed)
            term.constraint.evaluate_only(term.value)
            sides.append(term.value.copy())
        term.constraint.set_rest_parameters(rest)
        derivative = (sides[0] - sides[1]) / (2.0 * step)
        expected = np.zeros_like(derivative)
        expected[index] = -1.0
        np.testing.assert_allclose(derivative, expected, atol=1e-7)


def test_force_by_rest_parameter_by_central_differences(problem, monkeypatch):
    problem.force()
    begin, end = problem.range_of(0)
    analytic = problem.force_by_rest(0)
    # k = EA / l depends on a rest length too; that part is what iterations are for.
    for term in problem.terms:
        kept = term.k.copy()
        monkeypatch.setattr(term.constraint, "stiffness", lambda kept=kept: (kept, 1))
    assert analytic.shape[1] == sum(1 for _ in parameters_of(problem))
    for column, (term, index) in enumerate(parameters_of(problem)):
        step, rest = 1e-6, term.constraint.rest_parameters()
        sides = []
        for sign in (1.0, -1.0):
            changed = rest.copy()
            changed[index] += sign * step
            term.constraint.set_rest_parameters(changed)
            sides.append(problem.force()[begin:end])
        term.constraint.set_rest_parameters(rest)
        derivative = (sides[0] - sides[1]) / (2.0 * step)
        scale = np.abs(analytic[:, column]).max()
        np.testing.assert_allclose(derivative, analytic[:, column], rtol=0, atol=1e-6 * scale)


def test_equilibrium_by_rest_parameter(problem):
    # dx/dp = -[df/dx]^-1 df/dp, without load: then the Gauss-Newton matrix is all of df/dx.
    problem.load[:] = 0.0
    with undisturbed(problem.target):
        problem.settle()
        problem.force()
        solve = problem.solver(problem.matrix())
        begin, end = problem.range_of(0)
        by_rest = problem.force_by_rest(0)
        places = problem.places()
        assert problem.largest(problem.force()) < 1e-14
        points = problem.is_point()[begin:end]
        for column, (term, index) in enumerate(parameters_of(problem)):
            if column % 5:
                continue
            right = np.zeros(problem.system.size)
            right[begin:end] = by_rest[:, column]
            expected = solve(right)[begin:end][points]
            rest, step = term.constraint.rest_parameters(), 1e-5
            changed = rest.copy()
            changed[index] += step
            term.constraint.set_rest_parameters(changed)
            problem.load[begin] = 0.0
            with undisturbed(problem.target):
                problem.settle()
                moved = (problem.places() - places)[begin:end][points] / step
            term.constraint.set_rest_parameters(rest)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(moved, expected, rtol=0, atol=2e-3 * scale + 1e-9)


# -- stability ---------------------------------------------------------------------------------


def upright(gamma, *, segments=24, length=0.02, **sag_free):
    """A strand that stands up, of weight w L^3 / (E I) = gamma, in its first substep."""
    young, density, gravity = 3e9, 1300.0, 9.81
    radius = np.sqrt(4.0 * density * gravity * length**3 / (young * gamma))
    x = np.zeros((segments + 2, 3))  # the first edge is clamped
    x[:, 1] = np.linspace(-length / segments, length, segments + 2)
    setup = lk.SolverSetup(
        "upright",
        lk.CurvesObject(name="S", input="s", radius=float(radius), density=density),
        lk.StretchingConstraint(),
        lk.BendingConstraint(),
        lk.GravityForce(),
        lk.SagFreeStart(**sag_free),
        substeps=8,
    )
    solver = lk.Solver(setup, {"s": lk.Curves(x, [0, len(x)])})
    solver.run(1)
    return solver


@pytest.mark.parametrize("gamma", [4.0, 7.0, 9.0, 20.0, 60.0])
def test_a_column_is_stiffened_where_it_would_buckle(gamma):
    """Greenhill 1881: a clamped column buckles under its own weight from w L^3 = 7.837 E I on."""
    solver = upright(gamma)
    (factor,) = np.unique(solver.read("S", "joints.rest_stiffening"))
    if gamma < 7.837:
        assert factor == 1.0 and not solver.warnings
    else:
        needed = gamma / 7.837
        assert 0.99 * needed < factor / 1.1 < 1.16 * needed  # factors are tried 15 % apart
        assert "1 of 1 strands would buckle" in solver.warnings[0]


def test_what_is_stiffened_stays_when_it_is_disturbed():
    def tip_after(frames, **sag_free):
        solver = upright(20.0, **sag_free)
        velocity = solver.read("S", "velocity")
        velocity[-1, 0] = 1e-3
        solver.write("S", "velocity", velocity)
        solver.run(frames)
        return solver.read("S", "position")[-1, 0] / 0.02

    assert abs(tip_after(24)) < 0.01
    assert abs(tip_after(24, stabilize=False)) > 0.3
