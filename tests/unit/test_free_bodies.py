"""Drops in the air keep momentum, angular momentum and the way of their centre of mass."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

import loki_core as lk

pytestmark = pytest.mark.compiles

H = 1 / 16


def drop(centre, *, radius=0.2, seed=3):
    """Places of a drop that lies anywhere on the grid, and velocities that strain and turn it."""
    axis = (np.arange(-7, 8) + 0.5) * H / 2
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    x = x[np.linalg.norm(x, axis=1) < radius]
    x += np.random.default_rng(seed).uniform(-0.1 * H, 0.1 * H, x.shape)
    velocity = x @ np.array([[-1.0, -2.0, 0.3], [2.0, 1.0, 0.0], [0.0, 0.5, 0.0]]).T
    return x + centre, velocity + np.array([0.4, -0.2, 0.1])


def solver_of(places, velocity, *others, inputs=None, **settings):
    points = lk.Points(np.asarray(places))
    points.set_channel("point", "velocity", np.asarray(velocity))
    setup = lk.SolverSetup(
        "drops",
        lk.HybridObject(
            name="Water", voxel_size=H, input="water", transfer=settings.pop("transfer", "apic")
        ),
        lk.PressureMaterial(),
        *others,
        **{"precision": "double", "substeps": 2, **settings},
    )
    return lk.Solver(setup, {"water": points, **(inputs or {})})


def momenta(places, velocity):
    """Momentum and angular momentum about the centre of mass, in particles, and that centre."""
    centre = places.mean(axis=0)
    return velocity.sum(axis=0), np.cross(places - centre, velocity).sum(axis=0), centre


def read(solver):
    return [solver.read("Water", name).astype(np.float64) for name in ("position", "velocity")]


@pytest.mark.parametrize(
    ("transfer", "precision", "near"),
    [("apic", "double", 1e-12), ("flip", "double", 1e-12), ("apic", "single", 1e-6)],
)
def test_a_drop_keeps_its_momenta_as_it_falls(transfer, precision, near):
    places, velocity = drop((0.31, 0.27, 0.22))
    solver = solver_of(places, velocity, lk.GravityForce(), transfer=transfer, precision=precision)
    p0, l0, x0 = momenta(places, velocity)
    solver.run(4)
    steps, dt = 8, 1 / 48
    p, turning, x = momenta(*read(solver))
    fall = np.array([0.0, -9.81, 0.0])
    scale, count = np.abs(velocity).sum(), len(places)
    assert np.abs(p - p0 - count * steps * dt * fall).max() < near * scale
    assert np.abs(turning - l0).max() < near * scale
    expected = x0 + steps * dt * p0 / count + dt * dt * steps * (steps + 1) / 2 * fall
    np.testing.assert_allclose(x, expected, rtol=0, atol=near)


def test_drops_that_are_far_apart_keep_their_own():
    one, two = drop((0.31, 0.27, 0.22)), drop((4.03, 0.11, -1.9), radius=0.15, seed=5)
    places, velocity = np.concatenate((one[0], two[0])), np.concatenate((one[1], -two[1]))
    solver = solver_of(places, velocity)
    solver.run(3)
    assert solver.object("Water").free_bodies._count == 2
    x, v = read(solver)
    for part in (slice(0, len(one[0])), slice(len(one[0]), None)):
        before, after = momenta(places[part], velocity[part]), momenta(x[part], v[part])
        np.testing.assert_allclose(after[0], before[0], rtol=0, atol=1e-10)
        np.testing.assert_allclose(after[1], before[1], rtol=0, atol=1e-10)


def test_what_a_force_brings_is_kept():
    """A force on half of the space turns the drop; its moment comes with its impulse."""
    places, velocity = drop((0.31, 0.27, 0.22))
    push = lk.ForceDensityField(
        value=(3.0, 0.0, 0.0), mask_center=(0.31, 0.47, 0.22), mask_radius=0.2
    )
    solver = solver_of(places, 0.0 * velocity, push)
    solver.run(2)
    bodies = solver.object("Water").free_bodies
    p, turning, _ = momenta(*read(solver))
    assert p[0] > 0.05 * len(places) * 3.0 / 12 and turning[2] < 0.0
    # Of the last substep alone: the impulse as the grid felt it.
    start = bodies._start[0]
    wanted = start[4:7] + bodies._brought[0, :3] / solver.object("Water").particle_share
    np.testing.assert_allclose(p, wanted, rtol=1e-10, atol=1e-10)


def test_what_touches_a_wall_or_a_solid_is_not_free():
    places, velocity = drop((0.31, 0.27, 0.22))
    floor = {"domain_lower": (-2.0, 0.0, -2.0), "domain_upper": (2.0, 4.0, 2.0)}
    walls = {"boundary_lower": ("open", "wall", "open"), "boundary_upper": ("open",) * 3}
    solver = solver_of(places, velocity, **floor, **walls)
    solver.run(1)
    assert solver.object("Water").free_bodies._count == 0
    mesh = trimesh.creation.icosphere(subdivisions=2, radius=0.2)
    mesh.apply_translation((0.3, -0.2, 0.2))
    stone = lk.Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))
    solver = solver_of(places, velocity, lk.Collider(input="stone"), inputs={"stone": stone})
    solver.run(1)
    assert solver.object("Water").free_bodies._count == 0


def test_across_a_periodic_axis_a_body_is_turned_about_that_axis_alone():
    places, velocity = drop((0.25, 0.25, 0.25))
    box = {"domain_lower": (-2.0, -2.0, 0.0), "domain_upper": (2.0, 2.0, 0.5)}
    sides = ("open", "open", "periodic")
    solver = solver_of(places, velocity, boundary_lower=sides, boundary_upper=sides, **box)
    p0, l0, _ = momenta(places, velocity)
    solver.run(3)
    p, turning, _ = momenta(*read(solver))
    np.testing.assert_allclose(p, p0, rtol=0, atol=1e-10)
    np.testing.assert_allclose(turning[2], l0[2], rtol=0, atol=1e-10)
