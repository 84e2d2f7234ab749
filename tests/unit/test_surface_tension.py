"""Surface tension of liquids: pressure in balls, neutral walls, momentum, steps, bad input."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import SetupError
from loki_core.kernels.jit import set_thread_count, thread_count

H = 1 / 16
TENSION = 0.0728


def ball(radius, centre=(0.013, 0.021, 0.007), *, lowest=-np.inf):
    """Particles that fill a ball above a height; two along the edge of a voxel."""
    axis = 0.5 * H * (np.arange(-64, 64) + 0.5)
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    inside = np.linalg.norm(x - centre, axis=1) < radius
    return lk.Points(x[inside & (x[:, 1] > lowest)])


def drop(points, *others, **settings):
    setup = lk.SolverSetup(
        "drop",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.PressureMaterial(),
        lk.SurfaceTensionForce(coefficient=TENSION),
        *others,
        **{"frames_per_second": 1.0, "substeps": 2, **settings},
    )
    return lk.Solver(setup, {"water": points})


def pressures(solver):
    volume = solver.object("Water").volume
    return volume.local("pressure")[volume.local("kind") == 1]


@pytest.mark.parametrize(("voxels", "error"), [(4, 0.05), (7, 0.03)])
def test_the_pressure_in_a_ball_is_that_of_its_curvature(voxels, error):
    solver = drop(ball(voxels * H))
    solver.run(1)
    expected = 2.0 * TENSION / (voxels * H)
    found = pressures(solver)
    assert found.mean() == pytest.approx(expected, rel=error)
    assert found.std() < 0.06 * expected


def test_half_a_ball_on_the_floor_has_the_pressure_of_a_ball():
    """Walls are neutral: the liquid goes on beyond them, as in a mirror."""
    box = {
        "domain_lower": (-1.0, 0.0, -1.0),
        "domain_upper": (1.0, 1.0, 1.0),
        "boundary_lower": ("wall",) * 3,
        "boundary_upper": ("wall",) * 3,
    }
    solver = drop(ball(6 * H, (0.013, 0.0, 0.007), lowest=0.0), **box)
    solver.run(1)
    expected = 2.0 * TENSION / (6 * H)
    found = pressures(solver)
    assert found.mean() == pytest.approx(expected, rel=0.04)
    assert found.std() < 0.08 * expected


def test_a_ball_stays_where_it_is():
    solver = drop(ball(5 * H))
    start = solver.read("Water", "position")
    solver.run(6)
    speed = np.sqrt(TENSION / (1000.0 * 5 * H))
    velocity = solver.read("Water", "velocity")
    assert np.abs(velocity).max() < 0.3 * speed
    assert np.abs(velocity.mean(axis=0)).max() < 2e-3 * speed
    way = solver.read("Water", "position").mean(axis=0) - start.mean(axis=0)
    assert np.abs(way).max() < 0.01 * H


def test_a_viscous_ball_has_its_pressure_and_rests():
    solver = drop(ball(6 * H), lk.ViscosityMaterial(viscosity=0.5), substeps=1)
    solver.run(6)
    assert pressures(solver).mean() == pytest.approx(2.0 * TENSION / (6 * H), rel=0.04)
    speed = np.sqrt(TENSION / (1000.0 * 6 * H))
    assert np.abs(solver.read("Water", "velocity")).max() < 0.2 * speed


def test_results_do_not_depend_on_threads():
    before, found = thread_count(), []
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            solver = drop(ball(5 * H))
            solver.run(3)
            found.append(solver.read("Water", "position"))
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(*found)


def test_a_pool_does_not_notice():
    """A plane has no curvature, up to the walls."""
    axis = 0.5 * H * (np.arange(32) + 0.5)
    x = np.stack(np.meshgrid(axis, axis[:15], axis, indexing="ij"), axis=-1).reshape(-1, 3)
    box = {"domain_lower": (0.0,) * 3, "domain_upper": (1.0,) * 3}
    walls = {"boundary_lower": ("wall",) * 3, "boundary_upper": ("wall",) * 3}
    solver = drop(lk.Points(x), lk.GravityForce(), frames_per_second=24.0, **box, **walls)
    solver.run(6)
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-4


def test_the_step_is_that_of_the_shortest_ripples():
    solver = drop(ball(4 * H), adaptive_substeps=True)
    limit = np.sqrt(1000.0 * H**3 / (2.0 * np.pi * TENSION))
    assert solver.object("Water").time_step_limit() == pytest.approx(limit)


def test_a_long_step_is_warned_of():
    solver = drop(ball(4 * H), frames_per_second=0.2, substeps=1)
    solver.run(1)
    assert any("ripples" in text for text in solver.warnings)


def test_bad_input():
    with pytest.raises(SetupError, match="coefficient"):
        lk.SurfaceTensionForce(coefficient=-1.0)


def test_gas_has_no_tension():
    setup = lk.SolverSetup(
        "gas", lk.VolumeObject(name="Gas", voxel_size=0.25), lk.SurfaceTensionForce()
    )
    lk.Solver(setup, {}).run(1)
