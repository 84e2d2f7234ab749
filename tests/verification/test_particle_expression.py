"""Particle Expression: what a snippet means inside a running simulation."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.errors import ExpressionError, LokiError, SetupError
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import USER_STAGES
from loki_core.solver_setup import Group, SolverSetup

START = np.random.default_rng(1).random((40, 3))


def run(*behaviors, frames=1, offset=0.0, channels=None, **settings):
    points = Points(START + offset)
    for name, values in (channels or {}).items():
        points.set_channel("point", name, np.asarray(values))
    setup = SolverSetup(
        "scene",
        ParticleObject(input="p", name="dust"),
        *behaviors,
        **{"precision": "double", **settings},
    )
    solver = Solver(setup, {"p": points})
    solver.run(frames)
    return solver


def expression(text, *new_channels, **options):
    return ParticleExpression(expression=text, new_channels=new_channels, **options)


def test_channels_are_read_and_written():
    solver = run(expression("heat = 2.0 * position[1] + float(id)", "heat"))
    np.testing.assert_allclose(
        solver.read("dust", "heat"), 2.0 * START[:, 1] + np.arange(40), rtol=1e-14
    )


def test_new_channels_have_their_kinds():
    solver = run(
        expression(
            "a_float = 0.5\na_vector = vec3(1.0, 2.0, 3.0)\nan_int = id * 2\na_bool = id > 5",
            "a_float", "a_vector:vector", "an_int:int", "a_bool:bool",
        )
    )  # fmt: skip
    np.testing.assert_array_equal(
        solver.read("dust", "a_vector"), np.tile([1.0, 2.0, 3.0], (40, 1))
    )
    np.testing.assert_array_equal(solver.read("dust", "an_int"), 2 * np.arange(40))
    np.testing.assert_array_equal(solver.read("dust", "a_bool"), np.arange(40) > 5)
    assert solver.read("dust", "an_int").dtype == np.int32
    assert solver.read("dust", "a_float").dtype == np.float64


def test_time_frame_and_user_values_are_those_of_the_substep():
    solver = run(
        expression("total = total + dt\nlast = time\nwhich = frame\nuser = a * 10.0 + d",
                   "total", "last", "which:int", "user", a=1.5, d=0.25),
        frames=3, substeps=2, start_frame=101,
    )  # fmt: skip
    np.testing.assert_allclose(solver.read("dust", "total"), 3 / 24, rtol=1e-14)
    np.testing.assert_allclose(
        solver.read("dust", "last"), 5 / 48, rtol=1e-14
    )  # start of the last one
    np.testing.assert_array_equal(solver.read("dust", "which"), 104)
    np.testing.assert_array_equal(solver.read("dust", "user"), 15.25)


def test_user_values_may_be_keyframed():
    ramp = Keyframes([(0.0, 0.0), (1.0, 24.0)])
    solver = run(expression("seen = a", "seen", a=ramp), frames=4)
    np.testing.assert_allclose(solver.read("dust", "seen"), 3.0, rtol=1e-12)


def test_velocities_written_before_the_solve_move_the_particles():
    solver = run(expression("velocity = vec3(0.0, 2.4, 0.0)"), frames=2)
    np.testing.assert_allclose(
        solver.read("dust", "position"), np.add(START, [0.0, 0.2, 0.0]), rtol=1e-14
    )


def test_positions_are_moved_where_the_snippet_says():
    solver = run(expression("position = position + vec3(1.0, 0.0, float(id))"))
    expected = START + np.stack((np.ones(40), np.zeros(40), np.arange(40.0)), axis=1)
    np.testing.assert_allclose(solver.read("dust", "position"), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_positions_are_world_positions_also_far_away(precision):
    offset = 1.0e6
    solver = run(
        expression(
            "seen = position[0] - 1000000.0\nposition = position + vec3(0.0, 0.5, 0.0)", "seen"
        ),
        offset=offset,
        precision=precision,
    )
    # float64 at 1e6 is spaced 1.2e-10, float32 about the origin 1.2e-7.
    tolerance = 1e-9 if precision == "double" else 3e-7
    np.testing.assert_allclose(solver.read("dust", "seen"), START[:, 0], rtol=0, atol=tolerance)
    moved = solver.read("dust", "position") - offset
    np.testing.assert_allclose(moved, np.add(START, [0.0, 0.5, 0.0]), rtol=0, atol=tolerance)


def test_a_snippet_that_does_not_move_a_far_particle_leaves_its_bits_alone():
    text = "if id == 3:\n    position = vec3(1000000.0, 1000001.0, 1000000.0)"
    moved = run(expression(text), offset=1.0e6, precision="single")
    still = run(offset=1.0e6, precision="single")
    rest = np.arange(40) != 3
    np.testing.assert_array_equal(
        moved.read("dust", "position")[rest], still.read("dust", "position")[rest]
    )


def test_the_dead_are_removed():
    solver = run(expression("if position[0] > 0.5:\n    alive = False"))
    np.testing.assert_array_equal(solver.read("dust", "id"), np.flatnonzero(START[:, 0] <= 0.5))


@pytest.mark.parametrize("stage", USER_STAGES)
def test_every_user_facing_stage_runs_the_snippet(stage):
    solver = run(expression("count = count + 1", "count:int", stage=stage), frames=3, substeps=2)
    loops = {"INGEST": 1, "FRAME_BEGIN": 3, "FRAME_END": 3}
    np.testing.assert_array_equal(solver.read("dust", "count"), loops.get(stage, 6))


def test_expressions_act_on_their_group_and_below():
    setup = SolverSetup(
        "scene",
        Group(
            "A",
            expression("mark = 1.0", "mark"),
            ParticleObject(input="p"),
            Group("B", ParticleObject(input="p")),
        ),
        Group("C", ParticleObject(input="p")),
    )
    solver = Solver(setup, {"p": Points(START)})
    solver.run(1)
    for path in ("A/ParticleObject", "A/B/ParticleObject"):
        np.testing.assert_array_equal(solver.read(path, "mark"), 1.0)
    assert "mark" not in solver.object("C/ParticleObject").particles.channels


def test_a_channel_of_the_input_may_be_changed():
    solver = run(expression("heat = heat * 0.5"), channels={"heat": np.arange(40.0)}, frames=2)
    np.testing.assert_array_equal(solver.read("dust", "heat"), 0.25 * np.arange(40.0))


def test_a_written_channel_may_override_a_parameter():
    solver = run(
        expression("gravity_acceleration_scale = float(id) / 39.0", "gravity_acceleration_scale"),
        GravityForce(),
        frames_per_second=1.0,
    )
    np.testing.assert_allclose(
        solver.read("dust", "velocity")[:, 1], -9.81 * np.arange(40) / 39.0, rtol=1e-12
    )


def test_random_numbers_belong_to_the_particle_not_to_its_place():
    text = "dice = rand(0)"
    one = run(expression(text, "dice"))
    other = run(expression(text, "dice"), offset=np.array([50.0, -20.0, 3.0]))
    dice = one.read("dust", "dice")
    np.testing.assert_array_equal(dice, other.read("dust", "dice"))
    assert len(np.unique(dice)) == 40 and dice.min() >= 0.0 and dice.max() < 1.0
    seeded = run(expression(text, "dice"), random_seed=1)
    assert np.all(seeded.read("dust", "dice") != dice)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os", "expression"),
        ("heat = velocity.x", "attributes are not allowed"),
        ("heat = open(1)", 'unknown function "open"'),
        ("heat = temprature", "temprature"),
        ("id = 3", "id"),
        ("force = vec3(0.0, 0.0, 0.0)", "force"),
        ("while True:\n    heat = 1.0", "while"),
    ],
)
def test_snippets_outside_the_language_name_the_behavior_and_the_place(text, words):
    with pytest.raises(ExpressionError, match=words) as raised:
        run(expression(text, "heat", name="swirl"))
    assert "swirl" in str(raised.value) and "line 1" in str(raised.value)


def test_bad_new_channels_are_refused():
    with pytest.raises(SetupError, match='"2heat" is not "name" or "name:type"'):
        expression("", "2heat")
    with pytest.raises(SetupError, match='"heat:matrix" is not'):
        expression("", "heat:matrix")
    with pytest.raises(LokiError, match=r'channel "velocity" is float64\[3\] already'):
        run(expression("", "velocity:int"))
