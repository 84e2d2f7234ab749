"""A narrow band of particles: the same liquid, with fewer particles."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import SetupError
from tests.skeleton.liquid_scene import enclosed_volume
from tests.unit.test_hybrid import H, ball, box, drops, tank


def volume(solver):
    """Voxels that deep liquid and particles fill together."""
    water = solver.object("Water")
    deep = 0 if water.band is None else int(water.volume.local("deep").sum())
    return deep + water.count() * water.particle_share


def liquid_cells(solver):
    """Heights of cells that are liquid [m], and the kinetic energy of their faces."""
    from loki_core.kernels.gas.mac_grid import FLUID

    water = solver.object("Water")
    grid = water.volume
    liquid = grid.local("kind")[:, 0] == FLUID
    r = water.resolution
    height = (grid.buckets.local_coords[:, 1, None] * r + np.arange(r) + 0.5) * water.voxel_size
    energy = (grid.local("velocity") ** 2).sum(axis=1)[liquid].sum()
    return float((liquid * height[:, None, :, None]).sum() / liquid.sum()), float(energy)


def dam(narrow_band=None, **settings):
    return tank(
        box((-1, -1, -1), (0.6, 0.8, 2)), liquid={"narrow_band": narrow_band}, **settings
    )  # fmt: skip


def test_deep_water_rests_without_particles():
    solver = tank(box((-1, -1, -1), (2, 0.72, 2)), liquid={"narrow_band": 3})
    before = volume(solver)
    solver.run(6)
    water = solver.object("Water")
    assert water.volume.local("deep").sum() > 500
    assert water.count() < 0.8 * 8 * before
    assert volume(solver) == pytest.approx(before, rel=2e-3)
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-3


def test_a_dam_breaks_as_it_does_with_particles_everywhere():
    whole, narrow = dam(), dam(3)
    start = volume(whole)
    for frame in range(12):
        whole.advance_frame()
        narrow.advance_frame()
        assert volume(narrow) == pytest.approx(start, rel=0.01), frame
    assert narrow.object("Water").count() < 0.8 * whole.object("Water").count()
    height, energy = liquid_cells(whole)
    other_height, other_energy = liquid_cells(narrow)
    assert other_height == pytest.approx(height, abs=0.02)  # of which it fell 0.2
    assert other_energy == pytest.approx(energy, rel=0.05)


def test_a_drop_in_flight_keeps_velocity_and_volume():
    # Without forces deep liquid moves as its particles do, and nothing slows it.
    water = ball((0.0, 0.0, 0.0), 0.5)
    solver = tank(
        water, walls="open", size=(8.0, 8.0, 8.0), gravity=(0.0, 0.0, 0.0),
        liquid={"narrow_band": 3, "velocity": (3.0, -1.0, 0.5)}, domain_lower=(-2.0, -2.0, -2.0),
    )  # fmt: skip
    before = volume(solver)
    solver.run(8)
    assert solver.object("Water").volume.local("deep").sum() > 100
    velocity = solver.read("Water", "velocity")
    np.testing.assert_allclose(velocity, np.tile([3.0, -1.0, 0.5], (len(velocity), 1)), atol=1e-4)
    assert volume(solver) == pytest.approx(before, rel=0.01)


def test_the_surface_encloses_deep_water():
    solver = dam(3)
    solver.run(2)
    shown = lk.Solver(
        lk.SolverSetup(
            "shown",
            lk.HybridObject(name="Water", voxel_size=H, input="water", narrow_band=3),
            lk.GravityForce(),
            lk.PressureMaterial(),
            lk.LiquidSurface(name="Surface"),
            substeps=2,
            domain_lower=(0.0, 0.0, 0.0),
            domain_upper=(1.0, 1.0, 1.0),
            boundary_lower=("wall",) * 3,
            boundary_upper=("wall",) * 3,
        ),
        {"water": box((-1, -1, -1), (0.6, 0.8, 2))},
    )
    shown.run(4)
    assert shown.object("Water").volume.local("deep").sum() > 300
    expected = volume(shown) * H**3
    assert enclosed_volume(shown.outputs()["Surface"]) == pytest.approx(expected, rel=0.03)


def test_a_source_in_deep_water_finds_it_full():
    """It appears in frame 4, where there are no particles."""
    nothing = lk.Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))
    nozzle = box((0.4, 0.15, 0.4), (0.6, 0.3, 0.6))
    solver = tank(
        box((-1, -1, -1), (2, 0.72, 2)), lk.LiquidSource(source="nozzle"),
        liquid={"narrow_band": 3},
        inputs={"nozzle": lambda frame: nozzle if frame > 3 else nothing},
    )  # fmt: skip
    solver.run(3)
    assert solver.object("Water").volume.local("deep").sum() > 500
    solver.run(3)
    assert solver.accounts()["Water"]["emitted"] < 0.01 * (0.2 * 0.15 * 0.2)
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-3


def test_a_resumed_run_goes_on_bit_for_bit():
    whole, other = dam(3), dam(3)
    whole.run(3)
    state = whole.state()
    whole.run(3)
    other.restore(state)
    other.run(3)
    for name in ("id", "position", "velocity"):
        np.testing.assert_array_equal(other.read("Water", name), whole.read("Water", name))


def test_channels_of_the_user_are_refused():
    x = np.random.default_rng(2).uniform(0.1, 0.4, (50, 3))
    with pytest.raises(SetupError, match=r"narrow_band.*heat"):
        tank(drops(x, heat=x[:, 0]), liquid={"narrow_band": 3})
