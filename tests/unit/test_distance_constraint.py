"""Distance Constraint: Hooke's law, its derivatives, and hanging chains."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk

pytestmark = pytest.mark.compiles

PATH = "Chain/CurvesObject"


def chain(points, *, newton=1, substeps=1, root="pinned", gravity=True, **distance):
    curves = lk.Curves(points, [0, len(points)])
    behaviors = [
        lk.CurvesObject(input="c", radius=1e-3, root=root),
        lk.DistanceConstraint(**distance),
        *([lk.GravityForce()] if gravity else []),
    ]
    setup = lk.SolverSetup(
        "chain",
        lk.Group("Chain", *behaviors),
        newton_iterations=newton,
        substeps=substeps,
    )
    return lk.Solver(setup, {"c": curves})


def down(count, length):
    points = np.zeros((count, 3))
    points[:, 1] = -length * np.arange(count)
    return points


def constraint_of(solver):
    return solver.actions["Chain/DistanceConstraint"][0]


def test_a_hanging_chain_stretches_by_the_weight_below():
    stiffness, length, count = 20.0, 0.1, 6
    solver = chain(down(count, length), stiffness=stiffness, damping_time=0.02)
    solver.run(120)
    mass = solver.read(PATH, "mass")
    position = solver.read(PATH, "position")
    stretch = np.linalg.norm(np.diff(position, axis=0), axis=1) - length
    below = np.cumsum(mass[::-1])[::-1][1:]  # what hangs below every edge
    np.testing.assert_allclose(stretch, below * 9.81 / stiffness, rtol=1e-6)


def test_rest_scale_sets_the_length_without_force():
    solver = chain(down(4, 0.1), rest_scale=0.5, stiffness=50.0, damping_time=0.05, gravity=False)
    solver.run(100)
    lengths = np.linalg.norm(np.diff(solver.read(PATH, "position"), axis=0), axis=1)
    np.testing.assert_allclose(lengths, 0.05, rtol=1e-6)


def test_stiffness_may_be_painted():
    points = down(3, 0.1)
    curves = lk.Curves(points, [0, 3])
    curves.set_channel("point", "distance_stiffness", np.array([5.0, 5.0, 45.0]))
    setup = lk.SolverSetup(
        "chain",
        lk.Group(
            "Chain",
            lk.CurvesObject(input="c", radius=1e-3, root="pinned"),
            lk.DistanceConstraint(),
        ),
    )
    solver = lk.Solver(setup, {"c": curves})
    solver.run(1)
    np.testing.assert_allclose(constraint_of(solver).k[:, 0], [5.0, 25.0])


def test_gradient_and_parameters_by_central_differences():
    rng = np.random.default_rng(2)
    points = down(5, 0.1) + rng.normal(scale=0.02, size=(5, 3))
    solver = chain(points, rest_scale=0.8)
    solver.run(1)
    action = constraint_of(solver)
    rods = action.target
    value, gradient = np.zeros_like(action.value), np.zeros_like(action.gradient)
    action.evaluate(value, gradient)
    step = 1e-6
    position = rods.particles.local("position").copy()
    for edge in range(4):
        for d in range(6):
            sides = []
            for sign in (1.0, -1.0):
                moved = position.copy()
                moved[edge + d // 3, d % 3] += sign * step
                rods.particles.local("position")[:] = moved
                found = np.zeros_like(value)
                action.evaluate(found, np.zeros_like(gradient))
                sides.append(found[edge, 0])
            assert gradient[edge, 0, d] == pytest.approx(
                (sides[0] - sides[1]) / (2 * step), abs=1e-8
            )
    rods.particles.local("position")[:] = position
    # Momentum: forces of an edge are opposite.
    np.testing.assert_allclose(gradient[:, 0, :3], -gradient[:, 0, 3:], atol=1e-15)
    # dC/dp = -1, also with a scale on the rest length.
    rest = action.rest_parameters()
    np.testing.assert_allclose(rest[:, 0], 0.8 * rods.edges.local("rest_length"))
    action.set_rest_parameters(rest + 0.01)
    np.testing.assert_allclose(action.rest_parameters(), rest + 0.01, rtol=1e-14)
    after = np.zeros_like(value)
    action.evaluate(after, gradient)
    np.testing.assert_allclose(after, value - 0.01, atol=1e-15)
    only = np.zeros_like(value)
    rods.edges.local("length")[:] = np.linalg.norm(np.diff(position, axis=0), axis=1)
    action.evaluate_only(only)
    np.testing.assert_allclose(only, after, atol=1e-15)


def test_the_period_of_two_points_on_a_spring():
    # One free point on a pinned spring: omega = sqrt(k / m); backward Euler at 400 steps a period.
    solver = chain(down(2, 0.1), stiffness=1.0, gravity=False)
    mass = solver.read(PATH, "mass")[1]
    frames_per_period = 24.0 * 2.0 * np.pi * np.sqrt(mass / 1.0)
    substeps = max(1, round(400 / frames_per_period))
    solver = chain(down(2, 0.1), stiffness=1.0, gravity=False, substeps=substeps)
    velocity = np.zeros((2, 3))
    velocity[1, 1] = -1e-3
    solver.write(PATH, "velocity", velocity)
    seen = []
    solver.observe("SUBSTEP_END", lambda s, step: seen.append(
        (step.time + step.dt, float(s.read(PATH, "velocity")[1, 1]))
    ))  # fmt: skip
    solver.run(max(2, int(2 * frames_per_period)))
    times, speeds = np.array(seen).T
    turns = np.flatnonzero(np.sign(speeds[1:]) != np.sign(speeds[:-1]))
    half = np.diff(times[turns]).mean()
    assert half == pytest.approx(np.pi * np.sqrt(mass / 1.0), rel=0.02)
