"""Bodies that the pressure moves: added mass, neutral buoyancy, the draft of a floating box."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

import loki_core as lk
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step
from tests.skeleton.floating_body import FloatingBody, announce
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles

DENSITY = 1000.0
H = 1 / 16


def ball(middle, radius):
    mesh = trimesh.creation.icosphere(subdivisions=4, radius=radius)
    return lk.Surface.from_faces(np.array(mesh.vertices) + middle, np.array(mesh.faces))


def immersed(surface, sides, size):
    """Fluid that fills a box around a body."""
    return VolumeScene(
        lk.PressureMaterial(tolerance=1e-9), lk.Collider(input="body"), sides=sides, size=size, h=H,
        inputs={"body": surface}, air={"density": DENSITY},
    )  # fmt: skip


def pushed(scene, body):
    """Velocity of the body after one solve."""
    body.write_velocity()
    scene.run(Stage.SOLVE_PRESSURE)
    return body.velocity


def test_added_mass_of_a_ball():
    """Half the mass of the fluid that it displaces; walls near by make it more, open sides less."""
    radius, middle = 4.0 * H, 16 * H * np.ones(3)
    added = []
    for sides in ("open", "wall"):
        scene = immersed(ball(middle, radius), sides, (4, 4, 4))
        around = (middle - 1.5 * radius, middle + 1.5 * radius)
        body = FloatingBody(scene.item, *around, mass=1.0, velocity=(1.0, 0.0, 0.0))
        announce(scene.solver)
        scene.run(Stage.UPDATE_COLLIDERS)
        scene.run(Stage.UPDATE_BOUNDARIES)
        body.mass = body.displaced_mass()
        assert body.mass == pytest.approx(DENSITY * 4.0 / 3.0 * np.pi * radius**3, rel=0.09)
        velocity = pushed(scene, body)
        assert np.abs(velocity[1:]).max() < 1e-6
        added.append(1.0 / velocity[0] - 1.0)
    assert added[0] < added[1]
    assert np.mean(added) == pytest.approx(0.5, rel=0.03)


def test_a_ball_as_heavy_as_the_fluid_hangs_in_it():
    middle, radius = np.array([7.4, 8.1, 8.3]) * H, 3.0 * H
    scene = immersed(ball(middle, radius), "wall", (2, 2, 2))
    body = FloatingBody(
        scene.item, middle - 5 * H, middle + 5 * H, mass=1.0, velocity=(0.0, -1.0, 0.0)
    )
    announce(scene.solver)
    scene.run(Stage.UPDATE_COLLIDERS)
    scene.run(Stage.UPDATE_BOUNDARIES)
    body.mass = body.displaced_mass()
    fallen = np.zeros_like(scene.dense("velocity"))
    fallen[1] = np.where(scene.dense("open_fraction")[1] > 0.0, -1.0, 0.0)
    scene.fill("velocity", fallen)
    assert np.abs(pushed(scene, body)).max() < 1e-6
    assert np.abs(scene.dense("velocity")).max() < 1e-5


def test_a_floating_box_has_its_draft():
    """It rests when it is as heavy as what it displaces, rises when lighter, sinks when heavier."""
    lower, upper = np.array([6, 4, 6]) * H, np.array([10, 12, 10]) * H
    axis = 0.5 * H * (np.arange(32) + 0.5)
    water = np.stack(np.meshgrid(axis, axis[:16], axis, indexing="ij"), axis=-1).reshape(-1, 3)
    water = water[~np.all((water > lower) & (water < upper), axis=1)]
    setup = lk.SolverSetup(
        "dock",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.GravityForce(),
        lk.PressureMaterial(tolerance=1e-9),
        lk.Collider(input="speck"),  # so that the liquid knows solids
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    speck = ball(np.array([0.9, 0.9, 0.9]), 0.01 * H)
    solver = lk.Solver(setup, {"water": lk.Points(water), "speck": speck})
    liquid, step = solver.object("Water"), Step(frame=1, time=0.0, dt=0.01, seed=0)
    body = FloatingBody(liquid, lower - 0.1 * H, upper + 0.1 * H, mass=1e9)
    announce(solver)
    for stage in Stage:
        if stage.loop in ("substep", "newton") and stage.order < Stage.SOLVE_PRESSURE.order:
            solver.run_stage(stage, step)
        if stage is Stage.UPDATE_BOUNDARIES:
            body.close_voxels()
    fallen = liquid.volume.local("velocity").copy()
    solver.run_stage(Stage.SOLVE_PRESSURE, step)
    lifted = body.mass * body.velocity[1] / (9.81 * step.dt)
    # The surface beside solids is not exact, hence not the draft either.
    assert lifted == pytest.approx(DENSITY * 0.5 * np.prod(upper - lower), rel=0.15)
    for part in (0.8, 1.0, 1.2):
        body.mass, body.velocity = part * lifted, np.array([0.0, -9.81 * step.dt, 0.0])
        liquid.volume.local("velocity")[:] = fallen
        body.write_velocity()
        solver.run_stage(Stage.SOLVE_PRESSURE, step)
        moved = body.velocity / (9.81 * step.dt)
        assert np.abs(moved[[0, 2]]).max() < 1e-6
        if part == 1.0:
            assert abs(moved[1]) < 1e-5
        else:  # it takes a part of the water along
            assert 0.4 < moved[1] / (1.0 / part - 1.0) < 1.0
