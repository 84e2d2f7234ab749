"""Volume Expression: what a snippet means on the voxels of a volume."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import ExpressionError, SetupError
from loki_core.operators.volume_expression import VolumeExpression
from loki_core.pipeline.stages import Stage
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles


def scene(text, *, stage="PRE_SOLVE", new_channels=(), values=None, **options):
    behavior = VolumeExpression(
        expression=text, stage=stage, new_channels=new_channels, **(values or {})
    )
    return VolumeScene(behavior, **options)


def test_channels_positions_and_values_are_read_and_written():
    one = scene(
        "density = a * position[1] + dt\ntemperature += time",
        values={"a": 2.0},
        lower=(1000.0, -2000.0, 8.0),
    )
    one.run(Stage.PRE_SOLVE, dt=0.25, time=3.0)
    np.testing.assert_allclose(one.dense("density")[0], 2.0 * one.centres()[1] + 0.25, rtol=1e-14)
    np.testing.assert_allclose(one.dense("temperature"), 296.15)


def test_velocity_is_the_mean_of_the_faces_of_a_cell():
    one = scene("density = velocity[0] + 10.0 * velocity[1] + 100.0 * velocity[2]")
    u = np.random.default_rng(1).standard_normal(one.dense("velocity").shape)
    one.fill("velocity", u)
    one.run(Stage.PRE_SOLVE)
    mean = [0.5 * (u[a] + np.roll(u[a], -1, a)) for a in range(3)]
    expected = mean[0] + 10.0 * mean[1] + 100.0 * mean[2]
    np.testing.assert_allclose(one.dense("density")[0], expected, rtol=1e-12, atol=1e-12)


def test_faces_change_by_the_mean_of_their_cells_and_keep_their_detail():
    one = scene("velocity += density * vec3(1.0, 2.0, 3.0)")
    rng = np.random.default_rng(1)
    u = rng.standard_normal(one.dense("velocity").shape)
    push = rng.random(one.dense("density").shape)
    one.fill("velocity", u)
    one.fill("density", push)
    one.run(Stage.PRE_SOLVE)
    for a in range(3):
        expected = u[a] + (a + 1.0) * 0.5 * (push[0] + np.roll(push[0], 1, a))
        np.testing.assert_allclose(one.dense("velocity")[a], expected, rtol=1e-12, atol=1e-12)


def test_a_velocity_that_is_given_back_is_not_touched():
    one = scene("velocity = velocity")
    u = np.random.default_rng(1).standard_normal(one.dense("velocity").shape)
    one.fill("velocity", u)
    one.run(Stage.PRE_SOLVE)
    np.testing.assert_array_equal(one.dense("velocity"), u)
    assert "velocity_change" not in one.volume.channels


@pytest.mark.parametrize("stage", ["PRE_SOLVE", "SUBSTEP_BEGIN"])
def test_cells_outside_the_box_keep_what_they_have(stage):
    one = scene("density = 1.0", stage=stage, sides="wall", domain_upper=(1.5, 2.0, 2.0))
    one.run(Stage[stage])
    found = one.dense("density")[0]
    assert np.all(found[:12] == 1.0)
    assert not np.any(found[12:])


def test_closed_faces_keep_their_velocity():
    one = scene("velocity += vec3(1.0, 1.0, 1.0)", sides="wall")
    one.run(Stage.PRE_SOLVE)
    found = one.dense("velocity")
    for a in range(3):
        rows = np.moveaxis(found[a], a, 0)
        assert not np.any(rows[0])
        np.testing.assert_array_equal(rows[1:], 1.0)


def test_fields_can_be_made_at_the_start():
    one = scene("density = position[0]\nvelocity = vec3(1.0, 2.0, 3.0)", stage="INGEST")
    np.testing.assert_allclose(one.dense("density")[0], one.centres()[0])
    for a in range(3):
        np.testing.assert_array_equal(one.dense("velocity")[a], a + 1.0)


def test_new_channels_are_carried_by_the_gas():
    one = scene("fuel = fuel + 1.0", new_channels=("fuel:0.5",))
    one.run(Stage.PRE_SOLVE)
    assert "fuel" in one.item.materials
    np.testing.assert_array_equal(one.dense("fuel"), 1.5)


def test_voxels_have_ids_of_their_own():
    one = scene("density = rand(0)\nodd = float(id % 2)", new_channels=("odd",))
    one.run(Stage.PRE_SOLVE)
    assert np.unique(one.dense("density")).size == 16**3
    np.testing.assert_array_equal(one.dense("odd")[0, 0, 0], np.arange(16) % 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("position = vec3(0.0, 0.0, 0.0)", "read-only"),
        ("pressure = 1.0", "read-only"),
        ("kind = 1", "read-only"),
        ("density = densty", "densty"),
        ("density = open_fraction", "open_fraction"),
        ("import os", "imports are not allowed"),
    ],
)
def test_what_is_not_in_the_language_is_refused(text, message):
    with pytest.raises(ExpressionError, match=message):
        scene(text)


def test_new_channels_need_a_name_and_a_number():
    for wrong in ("two words", "fuel:much", "fuel:nan"):
        with pytest.raises(SetupError, match="new_channels"):
            VolumeExpression(new_channels=(wrong,))
    with pytest.raises(SetupError, match="velocity"):
        scene("density = 1.0", new_channels=("velocity",))
