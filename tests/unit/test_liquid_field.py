"""The voxels of a liquid, with density and velocity: all of its volume, and through VDB."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_vfx.serialization.vdb_sequence import grids_of
from loki_vfx.serialization.volumes import read_vdb
from tests.unit.test_hybrid import H, drops, tank

FIELD = lk.LiquidSurface(name="Field", output="field", channels=("heat",))


def still(water, **settings):
    return tank(water, FIELD, gravity=(0.0, 0.0, 0.0), **settings)


def pool(height=0.5):
    """Points that fill the tank to a height, hot below and in uniform motion."""
    axis = (np.arange(32) + 0.5) * H / 2
    places = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    places = places[places[:, 1] < height]
    velocity = np.tile([1.0, 2.0, 3.0], (len(places), 1))
    return drops(places, velocity=velocity, heat=300.0 + places[:, 1])


def test_a_pool_is_full_and_has_its_velocity():
    voxels = still(pool()).outputs()["Field"]
    density = voxels.channel("density").values[:, 0]
    full = density > 0.9
    np.testing.assert_allclose(density[full], 1.0, rtol=1e-5)  # at walls, too
    velocity = np.moveaxis(voxels.channel("velocity").values, 1, -1)
    np.testing.assert_allclose(velocity[full], np.tile([1, 2, 3], (full.sum(), 1)), rtol=1e-5)
    assert density.sum() * H**3 == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("size", [(1.0, 1.0, 1.0), (0.75, 0.75, 0.75)])
def test_the_density_is_all_of_the_volume(size):
    places = np.random.default_rng(4).uniform(0.0, 0.75, (3000, 3))
    solver = still(drops(places, heat=places[:, 0]), size=size)
    solver.run(1)
    density = solver.outputs()["Field"].channel("density").values
    assert density.sum() * H**3 == pytest.approx(solver.accounts()["Water"]["volume"], rel=1e-5)


def test_a_field_passes_through_vdb(tmp_path):
    voxels = still(pool()).outputs()["Field"]
    grids_of(voxels).write(tmp_path / "field.vdb")
    found = read_vdb(tmp_path / "field.vdb", names=["density", "velocity"])
    assert found.channel("density").values.sum() * H**3 == pytest.approx(0.5, rel=1e-5)
    assert found.voxel_size == pytest.approx(H)
    assert found.channel("velocity").values.max() == pytest.approx(3.0)


def test_a_liquid_without_particles_has_no_field():
    solver = still(drops(np.empty((0, 3)), heat=[]))
    solver.run(1)
    assert len(solver.outputs()["Field"].coords) == 0
