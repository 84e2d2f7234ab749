"""Dissipation Operator: exact decay, towards the background, of what was named."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.voxels import Voxels
from loki_core.errors import SetupError
from loki_core.operators.dissipation import DissipationOperator
from loki_core.pipeline.stages import Stage
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles


def test_channels_decay_exponentially_to_their_background_for_any_step():
    ends = []
    for steps in (1, 7):
        one = VolumeScene(DissipationOperator(channels=("density", "temperature"), rate=2.0))
        shape = one.dense("density").shape
        start = np.random.default_rng(3).random(shape)
        one.fill("density", start)
        one.fill("temperature", 293.15 + 100.0 * start)
        for _ in range(steps):
            one.run(Stage.SOLVE_SECONDARIES, dt=0.7 / steps)
        np.testing.assert_allclose(one.dense("density"), start * np.exp(-1.4), rtol=1e-12)
        excess = one.dense("temperature") - 293.15
        np.testing.assert_allclose(excess, 100.0 * start * np.exp(-1.4), rtol=1e-10)
        ends.append(one.dense("density"))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12)


def test_two_of_them_act_together_on_one_channel():
    one = VolumeScene(
        DissipationOperator(rate=1.0, name="slow"), DissipationOperator(rate=3.0, name="fast")
    )
    one.fill("density", np.ones(one.dense("density").shape))
    one.run(Stage.SOLVE_SECONDARIES, dt=0.5)
    np.testing.assert_allclose(one.dense("density"), np.exp(-2.0), rtol=1e-14)


def test_velocity_decays_to_the_ambient_wind():
    one = VolumeScene(
        DissipationOperator(channels=("velocity",), rate=1.0),
        air={"ambient_velocity": (1.0, 2.0, 3.0)},
    )
    one.fill("velocity", np.zeros(one.dense("velocity").shape))
    one.run(Stage.SOLVE_SECONDARIES, dt=1.0)
    for axis, wind in enumerate((1.0, 2.0, 3.0)):
        np.testing.assert_allclose(one.dense("velocity")[axis], wind * (1.0 - np.exp(-1.0)))


def test_a_mask_says_where():
    mask = Voxels.from_dense(np.ones((8, 32, 32)), (0.0, -1.0, -1.0), 0.125, name="mask")
    one = VolumeScene(DissipationOperator(rate=1.0, mask="where"), inputs={"where": mask})
    one.fill("density", np.ones(one.dense("density").shape))
    one.run(Stage.SOLVE_SECONDARIES, dt=1.0)
    found = one.dense("density")[0]
    np.testing.assert_allclose(found[1:7], np.exp(-1.0), rtol=1e-6)
    np.testing.assert_allclose(found[9:], 1.0)


@pytest.mark.parametrize("name", ["pressure", "open_fraction"])
def test_bookkeeping_cannot_fade(name):
    with pytest.raises(SetupError, match=name):
        DissipationOperator(channels=(name,))


def test_unknown_and_repeated_channels_are_refused():
    with pytest.raises(SetupError, match=r'"densty".*did you mean "density"'):
        VolumeScene(DissipationOperator(channels=("densty",)))
    with pytest.raises(SetupError, match="twice"):
        DissipationOperator(channels=("density", "density"))
