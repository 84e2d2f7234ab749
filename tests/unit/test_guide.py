"""Guide Operator: implicit relaxation to a stream, exact for scalars, off until asked for."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, SetupError
from loki_core.operators.guide import GuideOperator
from loki_core.pipeline.stages import Stage
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles

H, N = 0.2, 16  # voxels of the stream: another size than the volume's 0.125 m
ORIGIN = np.array([-0.55, -0.55, -0.55])


def linear(x):
    return np.stack([1.0 + 2.0 * x[1], x[2] - x[0], 0.5 * x[0] + 3.0])


def stream(location="cell"):
    centre = np.stack(np.meshgrid(*[(np.arange(N) + 0.5) * H] * 3, indexing="ij"))
    centre = centre + ORIGIN[:, None, None, None]
    values = linear(centre)
    if location == "face":
        for a in range(3):
            lower = centre.copy()
            lower[a] -= 0.5 * H
            values[a] = linear(lower)[a]
    return Voxels.from_dense(values, ORIGIN, H, name="velocity", location=location)


def scene(given, **parameters):
    return VolumeScene(
        GuideOperator(field="flow", **parameters), inputs={"flow": given}, size=(2, 2, 1)
    )


@pytest.mark.parametrize("location", ["cell", "face"])
@pytest.mark.parametrize("dt", [0.01, 1.0e6])
def test_velocity_is_pulled_implicitly_for_any_step(location, dt):
    one = scene(stream(location), strength=0.5, time_scale=0.2)
    start = np.random.default_rng(2).standard_normal(one.dense("velocity").shape)
    one.fill("velocity", start)
    one.forces(dt=dt)
    one.run(Stage.APPLY_FLUID_FORCES, dt=dt)
    wanted = np.stack([linear(one.centres(a))[a] for a in range(3)])
    rate = dt * 0.5 / 0.2  # backward Euler: u' = (u + r U) / (1 + r)
    expected = (start + rate * wanted) / (1.0 + rate)
    np.testing.assert_allclose(one.dense("velocity"), expected, rtol=1e-10, atol=1e-10)


def test_it_is_off_by_default():
    one = scene(stream())
    assert not np.any(one.forces())
    assert not np.any(one.dense("drag"))


def test_a_scalar_relaxes_exactly_however_the_time_is_cut():
    heat = Voxels.from_dense(np.full((N, N, N), 500.0), ORIGIN, H, name="heat")
    for steps in (1, 5):
        one = scene(heat, channel="heat", guided="temperature", strength=1.0, time_scale=0.3)
        for _ in range(steps):
            one.run(Stage.SOLVE_SECONDARIES, dt=0.4 / steps)
        expected = 500.0 + (293.15 - 500.0) * np.exp(-0.4 / 0.3)
        np.testing.assert_allclose(one.dense("temperature"), expected, rtol=1e-12)
        assert not np.any(one.dense("density"))


def test_a_mask_says_where():
    mask = Voxels.from_dense(np.ones((3, 30, 30)), (0.0, -1.0, -1.0), 0.125, name="mask")
    one = VolumeScene(
        GuideOperator(field="flow", strength=1.0, mask="where"),
        inputs={"flow": stream(), "where": mask},
    )
    force = one.forces()
    assert np.all(force[0, 1:3] > 0.0)
    assert not np.any(force[:, 5:])


def test_bad_streams_are_refused():
    with pytest.raises(InputError, match=r'"flow" needs a voxel stream, but got Points'):
        scene(Points(np.zeros((3, 3))), strength=1.0).forces()
    scalar = Voxels.from_dense(np.ones((N, N, N)), ORIGIN, H, name="velocity")
    with pytest.raises(InputError, match=r'3 components in channel "velocity", found 1'):
        scene(scalar, strength=1.0).forces()
    with pytest.raises(SetupError, match=r'guided = "open_fraction"'):
        scene(stream(), guided="open_fraction")
    with pytest.raises(SetupError, match=r'guided = "densty".*did you mean "density"'):
        scene(stream(), guided="densty")
