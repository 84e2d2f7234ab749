"""Particles of a liquid are spread evenly, in long flows and where something pressed them."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.objects.liquid.liquid_crowding import shake_apart
from tests.unit.test_hybrid import H, box, drops, tank

FULL = 8  # particles of a voxel


def in_voxels(solver, shape):
    """Particles in each voxel of the box."""
    voxel = np.floor(solver.read("Water", "position") / H).astype(int)
    counts = np.zeros(shape, int)
    np.add.at(counts, tuple(voxel.T), 1)
    return counts


def inner(counts):
    """Whether all voxels around one have particles, or are beyond a wall."""
    full = np.pad(counts > 0, 1, constant_values=True)
    a, b, c = counts.shape
    steps = [step for step in np.ndindex(3, 3, 3) if step != (1, 1, 1)]
    return np.all([full[i : i + a, j : j + b, k : k + c] for i, j, k in steps], axis=0)


def test_particles_in_one_place_become_their_volume():
    solver = tank(drops(np.full((500, 3), 0.52)), gravity=(0.0, 0.0, 0.0))
    solver.run(4)
    liquid = solver.object("Water")
    assert np.count_nonzero(liquid.volume.local("kind") == 1) > 0.85 * 500 / FULL
    assert in_voxels(solver, (16, 16, 16)).max() <= 2.5 * FULL
    position = solver.read("Water", "position")
    assert np.ptp(position, axis=0).max() < 6 * H  # a lump of four voxels' edge, nothing flew away
    assert np.abs(solver.read("Water", "velocity")).max() == 0.0


def test_shaking_keeps_particles_in_their_voxels_with_their_velocities():
    places = np.random.default_rng(5).uniform(0.5, 0.5 + 0.9 * H, (40, 3))
    velocity = np.random.default_rng(6).normal(size=(40, 3))
    solver = tank(drops(places, velocity=velocity))
    before = solver.read("Water", "position")
    assert shake_apart(solver.object("Water"), solver.timeline.step(0.01)) == 40 - FULL
    after = solver.read("Water", "position")
    np.testing.assert_array_equal(np.floor(after / H), np.floor(before / H))
    np.testing.assert_array_equal(solver.read("Water", "velocity"), velocity.astype(np.float32))


def test_shaking_keeps_particles_in_their_buckets():
    """2.4 m is voxel 24 of 0.1 m by its Bucket of 0.8 m, but 23 by division."""
    assert np.floor(2.4 / 0.1) == 23
    liquid = lk.HybridObject(name="Water", voxel_size=0.1, input="water")
    setup = lk.SolverSetup("crowd", liquid, precision="double")
    places = np.concatenate((np.full((30, 3), 2.4), np.full((1, 3), -2.4)))  # about the origin
    solver = lk.Solver(setup, {"water": drops(places)})
    water = solver.object("Water")
    assert not water.scope.domain.origin.any()
    assert shake_apart(water, solver.timeline.step(0.01)) == 30 - FULL
    assert solver.read("Water", "position")[:30].min() >= 2.4


def test_an_even_pool_is_left_alone():
    solver = tank(box((-1, -1, -1), (2, 0.5, 2)))
    assert shake_apart(solver.object("Water"), solver.timeline.step(0.01)) == 0


def test_a_liquid_that_was_pressed_recovers():
    """A lid presses the water into a sixth of its room, then lets it go."""

    def lid(frame):
        height = 0.6 - 0.1 * (frame - 1) if frame < 7 else 0.1 + 0.2 * (frame - 6)
        return box((-1, height, -1), (2, 3, 2))

    solver = tank(
        box((0, 0, 0), (1, 0.5, 1)), lk.Collider(input="lid"), inputs={"lid": lid},
        size=(0.5, 1.0, 0.5), substeps=3,
    )  # fmt: skip
    solver.run(15)
    assert solver.object("Water").count() == 4096
    assert np.percentile(solver.read("Water", "position")[:, 1], 98) > 0.47


@pytest.mark.slow
@pytest.mark.parametrize("transfer", ["apic", "flip"])
def test_particles_stay_even_in_a_flow_that_goes_on(transfer):
    """Ten seconds of a dam break: no voids, and no crowds."""
    solver = tank(
        box((0, 0, 0), (0.5, 0.75, 1)), size=(1.0, 1.0, 0.5), substeps=3,
        liquid={"transfer": transfer},
    )  # fmt: skip
    for _ in range(5):
        solver.run(48)
        counts = in_voxels(solver, (16, 16, 8))
        inside = counts[inner(counts)]
        assert np.mean(inside < 3) < 0.02 and np.mean(inside == 0) < 0.005
        assert counts.max() <= 2 * FULL + 2  # a substep's inflow
        assert inside.std() < np.sqrt(FULL)  # less than by chance
