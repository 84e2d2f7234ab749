"""Free fall: backward Euler's own formula to round-off, and the parabola to first order.

v_n = v_0 + n h g,     x_n = x_0 + n h v_0 + h^2 g n (n + 1) / 2
"""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup

GRAVITY = np.array([0.5, -9.81, 0.1])


def fall(substeps, *, frames=24, precision="double", newton=1, offset=0.0):
    rng = np.random.default_rng(1)
    start, velocity = rng.random((50, 3)) + offset, rng.standard_normal((50, 3))
    points = Points(start)
    points.set_channel("point", "velocity", velocity)
    points.set_channel("point", "mass", rng.uniform(0.1, 10.0, 50))
    setup = SolverSetup(
        "fall",
        ParticleObject(input="p"),
        GravityForce(acceleration=tuple(GRAVITY)),
        substeps=substeps,
        precision=precision,
        newton_iterations=newton,
        newton_tolerance=0.0,
        bucket_size=1.0,
    )
    solver = Solver(setup, {"p": points})
    solver.run(frames)
    found = solver.read("ParticleObject", "position"), solver.read("ParticleObject", "velocity")
    return start, velocity, *found


# n additions of numbers below 20, each rounded to half a unit in the last place (2^-53 or 2^-24 of
# 16): the errors add up to at most 2 n * 16 * 2^-53, and far less as they have random signs.
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 2e-13), ("single", 4e-5)])
@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize("newton", [1, 3])
def test_every_substep_is_backward_euler(precision, tolerance, substeps, newton):
    start, velocity, position, speed = fall(substeps, precision=precision, newton=newton)
    n, h = 24 * substeps, 1 / 24 / substeps
    expected = start + n * h * velocity + 0.5 * h * h * n * (n + 1) * GRAVITY
    np.testing.assert_allclose(speed, velocity + n * h * GRAVITY, rtol=0, atol=tolerance)
    np.testing.assert_allclose(position, expected, rtol=0, atol=tolerance)


def test_the_parabola_is_met_to_first_order():
    errors = []
    for substeps in (1, 2, 4, 8):
        start, velocity, position, _ = fall(substeps)
        exact = start + velocity + 0.5 * GRAVITY  # t = 1 s
        errors.append(np.abs(position - exact).max())
    # The error is h |g| t / 2 exactly, so each halving of h halves it.
    np.testing.assert_allclose(errors, 0.5 * 9.81 / 24 / np.array([1, 2, 4, 8]), rtol=1e-9)
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 1.0, atol=1e-6)


def test_mass_does_not_matter_and_momentum_grows_by_the_weight():
    _, velocity, _, speed = fall(1)
    gained = speed - velocity
    np.testing.assert_allclose(gained, np.broadcast_to(GRAVITY, gained.shape), rtol=0, atol=1e-12)


def test_far_from_the_origin_single_precision_falls_alike():
    near = fall(2, precision="single")
    far = fall(2, precision="single", offset=1.0e6)
    fallen_near, fallen_far = near[2] - near[0], far[2] - far[0]
    # Positions of 10 m about the domain's origin are spaced 1e-6 m; 48 steps of half of it at most.
    np.testing.assert_allclose(fallen_far, fallen_near, rtol=0, atol=4e-5)
