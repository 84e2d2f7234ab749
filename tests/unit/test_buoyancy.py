"""Buoyancy Force: the law on each face, borders of Buckets, missing surroundings."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import SetupError
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.pipeline.stages import Stage
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles

AMBIENT, RHO = 293.15, 1.204


def scene(**parameters):
    one = VolumeScene(BuoyancyForce(**parameters), size=(2, 3, 2))
    rng = np.random.default_rng(5)
    shape = one.dense("density").shape
    one.fill("density", rng.random(shape))
    one.fill("temperature", AMBIENT + 300.0 * rng.random(shape))
    return one


def mean_at_faces(values, axis):
    return 0.5 * (values[0] + np.roll(values[0], 1, axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_ideal_gas_on_every_face_with_periodic_sides(axis):
    g = np.zeros(3)
    g[axis] = -9.81
    one = scene(acceleration=tuple(g), smoke_density=0.2)
    found = one.forces()
    smoke = mean_at_faces(one.dense("density"), axis)
    heat = mean_at_faces(one.dense("temperature"), axis)
    expected = one.h**3 * (0.2 * smoke + RHO * (AMBIENT / heat - 1.0)) * -9.81
    np.testing.assert_allclose(found[axis], expected, rtol=1e-13, atol=1e-17)
    assert not np.any(found[[a for a in range(3) if a != axis]])


def test_boussinesq_takes_the_ambient_temperature_or_a_given_expansion():
    for expansion in (None, 0.01):
        one = scene(temperature_law="boussinesq", smoke_density=0.0, expansion=expansion)
        heat = mean_at_faces(one.dense("temperature"), 1)
        beta = 1.0 / AMBIENT if expansion is None else expansion
        expected = one.h**3 * RHO * beta * (AMBIENT - heat) * -9.81
        np.testing.assert_allclose(one.forces()[1], expected, rtol=1e-12, atol=1e-17)


def test_both_laws_agree_for_little_heat():
    laws = {}
    for law in ("ideal_gas", "boussinesq"):
        one = VolumeScene(BuoyancyForce(temperature_law=law))
        one.fill("temperature", np.full(one.dense("temperature").shape, AMBIENT + 0.01))
        laws[law] = one.forces()[1].mean()
    assert laws["ideal_gas"] > 0.0
    # T0 / T - 1 = -x + x^2 with x = 0.01 / 293
    assert laws["ideal_gas"] == pytest.approx(laws["boussinesq"], rel=4e-5)


def test_ambient_air_is_at_rest_and_beyond_open_sides_is_background():
    one = VolumeScene(BuoyancyForce(smoke_density=1.0), sides="open")
    assert not np.any(one.forces())
    one.fill("density", np.ones(one.dense("density").shape))
    found = one.forces()[1] / (-9.81 * one.h**3)
    np.testing.assert_allclose(found[:, 1:], 1.0, rtol=1e-14)
    np.testing.assert_allclose(found[:, 0], 0.5, rtol=1e-14)  # half of the face is in clean air


def test_a_temperature_of_zero_gives_a_finite_force():
    one = VolumeScene(BuoyancyForce())
    one.fill("temperature", np.zeros(one.dense("temperature").shape))
    assert np.all(np.isfinite(one.forces()))


def test_volumes_without_the_channels_feel_nothing():
    one = VolumeScene(BuoyancyForce(), air={"channels": ()})
    assert not np.any(one.forces())


def test_a_wrong_law_is_refused():
    with pytest.raises(SetupError, match="temperature_law"):
        BuoyancyForce(temperature_law="magic")


def test_single_precision_stays_single():
    one = VolumeScene(BuoyancyForce(), precision="single")
    one.fill("temperature", np.full(one.dense("temperature").shape, 400.0))
    assert one.forces().dtype == np.float32
    one.run(Stage.APPLY_FLUID_FORCES, dt=0.1)
    expected = 0.1 * 9.81 * (1.0 - AMBIENT / 400.0)
    np.testing.assert_allclose(one.dense("velocity")[1], expected, rtol=1e-5)
