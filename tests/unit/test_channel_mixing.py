"""Channels of liquids: what sources give to particles, and how it mixes."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import InputError, SetupError
from tests.unit.test_hybrid import H, box, drops, jet, tank

STILL = (0.0, 0.0, 0.0)


def canal(*, jitter=0.0, **settings):
    """Points that fill a canal along x, on a lattice or moved at random in their parts of it."""
    axis = (np.arange(32) + 0.5) * H / 2
    places = np.stack(np.meshgrid(axis, axis[:8], axis[:8], indexing="ij"), axis=-1).reshape(-1, 3)
    places += jitter * np.random.default_rng(3).uniform(-0.25, 0.25, places.shape) * H
    wave = np.cos(np.pi * places[:, 0])
    points = drops(places, heat=300.0 + wave, Cd=np.stack((wave, wave**2, 1.0 - wave), axis=1))
    return points, {"size": (1.0, 0.25, 0.25), "gravity": STILL, **settings}


def amplitude(solver, name="heat"):
    """How much of the wave is left."""
    values = solver.read("Water", name).reshape(-1, 1 if name == "heat" else 3)[:, 0]
    wave = np.cos(np.pi * solver.read("Water", "position")[:, 0])
    return float((values - values.mean()) @ wave / (wave @ wave))


@pytest.mark.parametrize("jitter", [0.0, 1.0])
@pytest.mark.parametrize("diffusivity", [0.002, 0.2])  # within a walk of particles, and beyond
def test_a_wave_decays_as_it_should(diffusivity, jitter):
    """c = exp(-D k^2 t) cos(k x) between walls."""
    points, settings = canal(jitter=jitter)
    mixing = lk.ChannelMixing(channels=("heat",), diffusivity=diffusivity)
    solver = tank(
        points, mixing, precision="double", liquid={"density_correction": 0.0}, **settings
    )
    start, frames = amplitude(solver), 6
    solver.run(frames)
    expected = np.exp(-diffusivity * np.pi**2 * frames / 24)
    assert np.log(amplitude(solver) / start) == pytest.approx(np.log(expected), rel=0.02)


@pytest.mark.parametrize(("precision", "error"), [("double", 1e-13), ("single", 1e-7)])
def test_the_sum_stays_and_the_variance_falls(precision, error):
    """In a splash, with a source of sums at the surface, in the air and at walls."""
    places = np.random.default_rng(1).uniform(0.05, 0.4, (2000, 3))
    colour = np.random.default_rng(2).uniform(0.0, 1.0, (2000, 3))
    solver = tank(
        drops(places, Cd=colour, heat=300.0 + colour[:, 0]),
        lk.ChannelMixing(channels=("Cd", "heat"), diffusivity=0.01),
        precision=precision,
    )
    variances, means = [], []
    for _ in range(8):
        values = solver.read("Water", "Cd").astype(np.float64)
        variances.append(values.var(axis=0))
        means.append([*values.mean(axis=0), solver.read("Water", "heat").astype(float).mean()])
        solver.run(1)
    assert np.all(np.diff(variances, axis=0) < 0.0)
    np.testing.assert_allclose(means, np.tile(means[0], (8, 1)), rtol=error)
    assert values.min() >= 0.0 and values.max() <= 1.0  # a mixture is between what is mixed


def test_channels_that_do_not_mix_stay():
    points, settings = canal()
    solver = tank(points, lk.ChannelMixing(channels=("heat",), diffusivity=0.1), **settings)
    before = solver.read("Water", "Cd")
    solver.run(2)
    np.testing.assert_array_equal(solver.read("Water", "Cd"), before)


@pytest.mark.parametrize("name", ["haet", "velocity", "tag"])
def test_only_channels_of_numbers_mix(name):
    points = drops([[0.5, 0.5, 0.5]], heat=[1.0], tag=np.array([3]))
    with pytest.raises(SetupError, match=rf'channels names "{name}"'):
        tank(points, lk.ChannelMixing(channels=(name,)))


def test_nothing_mixes_where_there_is_nothing():
    solver = tank(drops(np.empty((0, 3)), heat=[]), lk.ChannelMixing(channels=("heat",)))
    solver.run(1)
    assert solver.object("Water").count() == 0


def painted(mesh):
    """A nozzle with a colour that goes from 0 to 1 along y, a heat and a number."""
    height = mesh.positions[:, 1]
    mesh.set_channel("point", "Cd", np.stack((height, 1.0 - height, 0.0 * height), axis=1))
    mesh.set_channel("detail", "heat", np.array([350.0]))
    mesh.set_channel("primitive", "tag", np.full(mesh.primitive_count, 7))
    return mesh


def test_a_source_gives_its_channels():
    nozzle = painted(box((0.25, 0.25, 0.25), (0.5, 0.75, 0.5)))
    solver = tank(
        None, jet(channels=("Cd", "heat", "tag", "gloss?")), inputs={"nozzle": nozzle},
        gravity=STILL,
    )  # fmt: skip
    solver.run(2)
    position, colour = solver.read("Water", "position"), solver.read("Water", "Cd")
    assert len(position) > 500
    # Of the nearest place on the mesh, which is at most a half of its width away.
    assert np.abs(colour[:, 0] - position[:, 1]).max() < 0.15
    np.testing.assert_allclose(colour.sum(axis=1), 1.0, rtol=1e-6)
    assert np.all(solver.read("Water", "heat") == 350.0)
    assert np.all(solver.read("Water", "tag") == 7)


def test_a_source_gives_what_the_liquid_has_already():
    pool = drops(np.full((1, 3), 0.1), heat=[300.0])
    nozzle = painted(box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5)))
    solver = tank(pool, jet(), inputs={"nozzle": nozzle})
    solver.run(1)
    assert set(solver.read("Water", "heat").tolist()) == {300.0, 350.0}
    assert "Cd" not in solver.object("Water").particles.channels


def test_the_motion_of_a_source_is_added():
    nozzle = box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5))
    nozzle.set_channel("point", "velocity", np.tile([0.0, 0.0, 1.0], (nozzle.point_count, 1)))
    solver = tank(None, jet(), inputs={"nozzle": nozzle}, gravity=STILL)
    solver.run(1)
    np.testing.assert_allclose(solver.read("Water", "velocity").mean(axis=0), [2, 0, 1], atol=0.05)


def test_a_mesh_that_is_filled_gives_its_channels():
    solver = tank(painted(box((0.25, 0.25, 0.25), (0.5, 0.75, 0.5))))
    position, colour = solver.read("Water", "position"), solver.read("Water", "Cd")
    assert np.abs(colour[:, 0] - position[:, 1]).max() < 0.15


def test_a_missing_channel_of_a_source_is_named():
    nozzle = painted(box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5)))
    with pytest.raises(InputError, match=r'source "nozzle" has no channel "cd"'):
        tank(None, jet(channels=("cd",)), inputs={"nozzle": nozzle})


def test_channels_of_sources_fit_those_of_the_liquid():
    pool = drops(np.full((1, 3), 0.1), Cd=[300.0])
    nozzle = painted(box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5)))
    solver = tank(pool, jet(), inputs={"nozzle": nozzle})
    with pytest.raises(InputError, match=r'point channel "Cd" has 3 numbers.*expected 1'):
        solver.run(1)
