"""Curved rods with several Newton iterations: a bend under a load at its tip, a twisted ring."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from validation import rod_bathe, rod_ring_uneven

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize("kind", ["plain", "uneven"])
def test_a_curved_cantilever_bends_as_the_exact_rod_does(kind):
    """The load grows from nothing, where rounding is all that the potential has."""
    tips, left = rod_bathe.load_tips(8, 20, kind)
    exact = rod_bathe.reference(rod_bathe.LOADS)
    way = np.linalg.norm(exact - rod_bathe.arc(np.array([1.0]))[0], axis=1)
    assert left < rod_bathe.UNBALANCED
    # 16 / N squared of 0.11 %, what the case finds; uneven segments are up to twice as long.
    assert np.all(np.linalg.norm(tips - exact, axis=1) < 0.008 * way)


@pytest.mark.parametrize("newton", [2, 20])
def test_a_sudden_load_that_turns_a_stiff_rod_over_needs_no_shorter_steps(newton):
    """A step of 100 rad, of a rod that stretching would cost a million times its bending."""
    angle = np.linspace(0.0, 0.25 * np.pi, 17)
    arc = 100.0 * np.stack((np.sin(angle), 1.0 - np.cos(angle), 0.0 * angle), axis=1)
    points = np.concatenate((arc[:1] - [5.0, 0.0, 0.0], arc))
    scale = np.zeros(len(points))
    scale[-1] = 1.0e5 / (0.5 * np.linalg.norm(arc[-1] - arc[-2]))
    curves = lk.Curves(points, [0, len(points)])
    curves.set_channel("point", "gravity_acceleration_scale", scale)
    setup = lk.SolverSetup(
        "bend",
        lk.CurvesObject(input="rod", radius=np.sqrt(1.0 / np.pi), density=1.0),
        lk.StretchingConstraint(stiffness=1.0e11),
        lk.BendingConstraint(stiffness=8.0e5, second_stiffness=8.0e5, twist_stiffness=8.0e5),
        lk.GravityForce(acceleration=(0.0, 0.0, 1.0)),
        frames_per_second=1.0,
        newton_iterations=newton,
    )
    solver = lk.Solver(setup, {"rod": curves})
    solver.run(20)
    assert solver.timeline.retried == 0
    assert abs(solver.read("CurvesObject", "velocity")).max() < 1e-4  # m/s: it is at rest
    tip = solver.read("CurvesObject", "position")[-1]
    assert tip[2] > 0.95 * 25.0 * np.pi  # its length, but for the bend at the clamp


@pytest.mark.parametrize("newton", [2, 3])
def test_few_newton_iterations_do_not_make_a_twisted_ring_buckle_early(newton):
    """Michell's ring with E I / G J = 0.9; 32 segments bear 3 % more than the smooth ring."""
    critical = 2.0 * np.pi * np.sqrt(3.0) * 0.9
    parts = np.array([0.9, 0.94, 0.97, 1.0, 1.06])
    left = rod_ring_uneven.leaves(parts * critical, 32, 0.9, uneven=False, newton=newton)
    np.testing.assert_array_equal(left, parts > 1.03)


def test_a_ring_of_uneven_segments_snaps_where_an_even_one_does():
    critical = 2.0 * np.pi * np.sqrt(3.0) * 0.9
    parts = np.array([0.9, 0.97, 1.06])
    left = rod_ring_uneven.leaves(parts * critical, 32, 0.9, uneven=True, newton=20, frames=80)
    np.testing.assert_array_equal(left, parts > 1.03)
