"""The Solver: retry, cancel, state, parameters in time, overrides, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.behavior import Behavior, isolated_registry, parameter
from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import (
    AccessError,
    Cancelled,
    DivergenceError,
    InputError,
    LokiError,
    SetupError,
)
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.force import Force
from loki_core.forces.force_density_field import ForceDensityField
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.operator import Operator
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.pipeline.repartition import state_for_rank
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import task
from loki_core.solver_setup import Group, SolverSetup

DUST = "dust"


def cloud(count=200, seed=1, **channels):
    rng = np.random.default_rng(seed)
    points = Points(rng.random((count, 3)))
    points.set_channel("point", "velocity", rng.standard_normal((count, 3)))
    for name, values in channels.items():
        points.set_channel("point", name, np.asarray(values))
    return points


def dust(*behaviors, points=None, **settings):
    setup = SolverSetup("scene", ParticleObject(input="p", name=DUST), *behaviors, **settings)
    return Solver(setup, {"p": cloud() if points is None else points})


def whole(solver, path=DUST):
    channels = solver.object(path).particles.channels
    kept = [name for name, one in channels.items() if name != "jacobian" and not one.is_scratch]
    return {name: solver.read(path, name) for name in kept}


def assert_same(one, other):
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


# -- rollback and retry --------------------------------------------------------------------


@pytest.fixture
def fragile():
    """A Force that gives NaN when dt is too long, for one particle."""
    with isolated_registry():

        class FragileForce(Behavior, kind="force"):
            longest: float = parameter(1.0, unit="s", doc="Longest dt that it can take.")

        class FragileAction(Force, behavior=FragileForce):
            reads = ("id",)

            def evaluate(self, points, force, jacobian):
                if points.dt > self.settings.longest * (1.0 + 1e-9):
                    force[points["id"] == 17] = np.nan

        yield FragileForce


def stop_after(solver, substeps):
    """Keep a test of endless substeps from running for ever."""
    seen = []

    def count(_, step):
        seen.append(step.dt)
        assert len(seen) <= substeps, "too many substeps"

    solver.observe(Stage.SUBSTEP_BEGIN, count)
    return seen


def test_a_step_that_is_too_long_is_halved_until_it_is_good(fragile):
    solver = dust(GravityForce(), fragile(longest=1 / 96))
    stop_after(solver, 20)
    solver.run(1)
    assert solver.time == 1 / 24
    assert np.all(np.isfinite(solver.read(DUST, "position")))
    assert solver.timeline.retried == len(solver.warnings) == 2
    # The same run with the short substeps asked for: rollback left no trace.
    direct = dust(GravityForce(), fragile(longest=1 / 96), substeps=4)
    direct.run(1)
    assert direct.timeline.retried == 0
    assert_same(whole(solver), whole(direct))


def test_a_step_that_is_always_bad_says_where_and_leaves_the_last_good_state(fragile):
    solver = dust(fragile(longest=0.0), GravityForce(), retries=2)
    before = whole(solver)
    with pytest.raises(DivergenceError) as raised:
        solver.run(1)
    text = str(raised.value)
    assert "frame 2" in text and "scene/dust" in text and "particle id 17" in text
    assert_same(whole(solver), before)
    assert solver.frame == 1 and solver.time == 0.0


def test_the_last_good_state_of_a_later_frame_is_kept(fragile):
    longest = Keyframes([(0.0, 1.0), (2.5 / 24, 1.0), (2.6 / 24, 0.0)])
    solver = dust(fragile(longest=longest), GravityForce(), retries=1)
    solver.run(2)
    before = whole(solver)
    solver.run(1)
    after = whole(solver)
    with pytest.raises(DivergenceError, match="frame 5"):
        solver.run(1)
    assert_same(whole(solver), after)
    assert not np.array_equal(before["position"], after["position"])


def test_a_speed_beyond_the_maximum_is_implausible():
    solver = dust(GravityForce(acceleration=(0.0, -1.0e4, 0.0)), maximum_speed=100.0, retries=0)
    with pytest.raises(DivergenceError, match=r"scene/dust: particle id \d+ .*100 m/s"):
        solver.run(1)


def test_a_particle_that_leaves_the_key_range_is_named_and_the_last_good_state_kept():
    # Two Buckets of 1 mm a frame: the range of 131 m is left in the first frame.
    velocity = np.zeros((20, 3))
    velocity[13, 0] = 9.0e4
    points = cloud(20)
    points.set_channel("point", "velocity", velocity)
    solver = dust(points=points, bucket_size=1e-3, retries=1)
    before = whole(solver)
    with pytest.raises(DivergenceError, match=r"dust.*particle id 13"):
        solver.run(2)
    assert_same(whole(solver), before)


# -- cancel, state, restore ----------------------------------------------------------------


def busy(**settings):
    points = cloud(300, painted=np.arange(300.0))
    setup = SolverSetup(
        "scene",
        ParticleObject(
            input="p",
            source="p",
            rate=500.0,
            lifetime=0.3,
            lifetime_variation=0.5,
            velocity_spread=1.0,
            name=DUST,
        ),
        GravityForce(),
        FluidDragForce(velocity=(1.0, 0.0, 0.0)),
        ParticleExpression(
            expression="heat = heat + dt * length(velocity) + 0.01 * rand(id)",
            new_channels=("heat",),
            stage="SUBSTEP_END",
        ),
        ParticleExpression(
            expression="frames = frames + 1", new_channels=("frames:int",), stage="FRAME_BEGIN"
        ),
        **{"substeps": 3, "bucket_size": 0.3, **settings},
    )
    return Solver(setup, {"p": points})


def test_state_and_restore_continue_bit_for_bit():
    solver = busy()
    solver.run(3)
    state = solver.state()
    solver.run(4)
    resumed = busy()
    resumed.restore(state)
    assert resumed.frame == 4
    resumed.run(4)
    assert resumed.time == solver.time
    assert_same(whole(resumed), whole(solver))
    assert resumed.state()["timeline"] == solver.state()["timeline"]


def test_restoring_a_state_and_asking_for_it_again_is_a_round_trip():
    solver = busy()
    solver.run(3)
    state = solver.state()
    other = busy()
    other.restore(state)
    again = other.state()
    assert again["timeline"] == state["timeline"]
    one, two = (s["objects"][DUST]["data"]["particles"]["channels"] for s in (state, again))
    for name in one:
        order = np.argsort(one["id"]), np.argsort(two["id"])
        np.testing.assert_array_equal(one[name][order[0]], two[name][order[1]], err_msg=name)


@pytest.mark.parametrize("calls", [1, 7, 20, 31])
def test_cancel_in_mid_substep_leaves_a_state_that_continues_bit_for_bit(calls):
    uninterrupted = busy()
    uninterrupted.run(3)
    solver = busy()
    solver.run(1)
    count = [0]

    def cancel_at(label):
        count[0] += 1
        if count[0] == calls:
            solver.cancel()

    solver.observe_tasks(cancel_at)
    with pytest.raises(Cancelled, match="in frame 3"):
        solver.run(1)
    resumed = busy()
    resumed.restore(solver.state())
    resumed.run(2)
    assert_same(whole(resumed), whole(uninterrupted))
    solver.run(2)  # the Solver itself can go on, too
    assert_same(whole(solver), whole(uninterrupted))


def test_a_cancelled_solver_keeps_to_the_substeps_that_are_done():
    solver = busy()
    done = []
    solver.observe(Stage.CHECK_STATE, lambda s, step: done.append(step))

    def cancel_in_third(label):
        if len(done) == 2 and label.endswith(".solve"):
            solver.cancel()

    solver.observe_tasks(cancel_in_third)
    with pytest.raises(Cancelled):
        solver.run(1)
    assert solver.timeline.substep == 2
    assert solver.time == pytest.approx(2 / 72, rel=1e-12)


def test_one_part_serves_any_number_of_ranks_and_many_parts_serve_one():
    solver = busy()
    solver.run(2)
    state = solver.state()
    shares = [state_for_rank([state], rank, 3) for rank in range(3)]
    counts = [len(s["objects"][DUST]["data"]["particles"]["channels"]["id"]) for s in shares]
    assert counts == [solver.object(DUST).particles.count, 0, 0]
    # Cut the state into three parts, as three ranks would have written them.
    parts = []
    for rank in range(3):
        part = {
            **state,
            "objects": {DUST: {**state["objects"][DUST]}},
            "domain": {**state["domain"], "cuts": np.arange(4)},
        }
        data = state["objects"][DUST]["data"]["particles"]
        channels = {n: a[rank::3] for n, a in data["channels"].items()}
        part["objects"][DUST]["data"] = {"particles": {**data, "channels": channels}}
        parts.append(part)
    assert state_for_rank(parts, 1, 3) is parts[1]
    resumed = busy()
    resumed.restore(state_for_rank(parts, 0, 1))
    resumed.run(2)
    solver.run(2)
    assert_same(whole(resumed), whole(solver))
    with pytest.raises(LokiError, match="without parts"):
        state_for_rank([], 0, 1)


def test_a_state_of_another_setup_is_refused():
    state = busy().state()
    other = Solver(SolverSetup("x", ParticleObject(input="p", name="sand")), {"p": cloud()})
    with pytest.raises(InputError, match=r"Objects \['dust'\].*\['sand'\]"):
        other.restore(state)


# -- parameters in time and space ------------------------------------------------------------


def test_keyframed_parameters_change_in_time():
    # g steps from 0 to -10 m/s^2 at frame 3: two frames of rest, then v = -10 k / 24.
    steps = Keyframes(
        [(1, (0.0, 0.0, 0.0)), (3, (0.0, -10.0, 0.0))], interpolation="step", time_unit="frame"
    )
    solver = dust(
        GravityForce(acceleration=steps), points=Points(np.zeros((1, 3))), precision="double"
    )
    speeds = []
    for _ in range(4):
        solver.run(1)
        speeds.append(solver.read(DUST, "velocity")[0, 1])
    np.testing.assert_allclose(speeds, [0.0, 0.0, -10 / 24, -20 / 24], rtol=1e-14)


def test_keyframes_in_frames_count_from_the_start_frame_also_at_ingest():
    radius = Keyframes([(1001, 0.1), (1011, 1.1)], time_unit="frame")
    setup = SolverSetup("s", ParticleObject(input="p", radius=radius, name=DUST), start_frame=1006)
    solver = Solver(setup, {"p": Points(np.zeros((1, 3)))})
    np.testing.assert_allclose(solver.read(DUST, "radius"), 0.6, rtol=1e-6)


def test_animated_inputs_are_read_every_frame():
    def emitter(frame):
        return Points(np.full((1, 3), float(frame)))

    setup = SolverSetup("s", ParticleObject(source="e", rate=24.0, name=DUST))
    solver = Solver(setup, {"e": emitter})
    solver.run(3)
    np.testing.assert_array_equal(solver.read(DUST, "position")[:, 0], [2.0, 3.0, 4.0])


def one_step(*behaviors, **channels):
    points = Points(np.zeros((4, 3)))
    for name, values in channels.items():
        points.set_channel("point", name, np.asarray(values, dtype=np.float64))
    solver = dust(*behaviors, points=points, precision="double", frames_per_second=10.0)
    solver.run(1)
    return solver


def test_painted_vectors_override_a_parameter():
    painted = np.arange(12.0).reshape(4, 3)
    solver = one_step(GravityForce(), gravity_acceleration=painted)
    np.testing.assert_allclose(solver.read(DUST, "velocity"), 0.1 * painted, rtol=1e-14)
    assert "gravity_acceleration" in solver.outputs()[DUST].channels["point"]  # and passes through


def test_painted_scales_multiply_a_parameter():
    solver = one_step(GravityForce(), gravity_acceleration_scale=[0.0, 0.5, 1.0, 2.0])
    np.testing.assert_allclose(
        solver.read(DUST, "velocity")[:, 1], -0.981 * np.array([0.0, 0.5, 1.0, 2.0]), rtol=1e-14
    )


def test_painted_drag_coefficients_override_a_parameter():
    coefficient = np.array([0.0, 1.0, 10.0, 1e6])
    drag = FluidDragForce(law="linear", velocity=(1.0, 0.0, 0.0), coefficient=5.0)
    solver = one_step(drag, fluid_drag_coefficient=coefficient, mass=[1.0] * 4)
    # w1 = w0 / (1 + K h / m) with w0 = -1, h = 0.1, m = 1.
    expected = 1.0 - 1.0 / (1.0 + 0.1 * coefficient)
    np.testing.assert_allclose(solver.read(DUST, "velocity")[:, 0], expected, rtol=1e-12)


def test_shared_channels_set_radius_and_density():
    solver = one_step(radius=[0.1, 0.2, 0.3, 0.4], density=[1.0, 2.0, 3.0, 4.0])
    expected = 4 / 3 * np.pi * np.array([0.1, 0.2, 0.3, 0.4]) ** 3 * [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_allclose(solver.read(DUST, "mass"), expected, rtol=1e-14)
    scaled = one_step(radius_scale=[1.0, 2.0, 1.0, 1.0])
    np.testing.assert_allclose(scaled.read(DUST, "radius"), [0.005, 0.01, 0.005, 0.005], rtol=1e-12)


def test_a_detail_channel_overrides_for_the_whole_object_and_a_painted_one_wins():
    points = Points(np.zeros((2, 3)))
    points.set_channel("detail", "gravity_acceleration", np.array([[0.0, 4.0, 0.0]]))
    solver = dust(GravityForce(), points=points, frames_per_second=1.0)
    solver.run(1)
    np.testing.assert_allclose(solver.read(DUST, "velocity"), [[0, 4.0, 0]] * 2)
    points.set_channel("point", "gravity_acceleration", np.array([[1.0, 0, 0], [2.0, 0, 0]]))
    solver = dust(GravityForce(), points=points, frames_per_second=1.0)
    solver.run(1)
    np.testing.assert_allclose(solver.read(DUST, "velocity"), [[1.0, 0, 0], [2.0, 0, 0]])


def test_a_painted_value_out_of_range_is_named():
    drag = FluidDragForce(law="linear", name="drag")
    points = cloud(4, fluid_drag_coefficient=[1.0, 1.0, -2.0, 1.0])
    with pytest.raises(LokiError, match=r"drag.coefficient.*fluid_drag_coefficient.*-2 kg/s"):
        dust(drag, points=points).run(1)


def test_a_painted_channel_of_the_wrong_size_is_named():
    points = cloud(4, gravity_acceleration=np.ones((4, 2)))
    with pytest.raises(LokiError, match=r"gravity_acceleration.*\[4, 2\]"):
        dust(GravityForce(), points=points).run(1)


# -- walls and sides -----------------------------------------------------------------------


def test_walls_hold_open_sides_let_go_and_periodic_axes_go_round():
    points = Points(np.array([[0.9, 0.5, 0.5], [0.5, 0.9, 0.5], [0.5, 0.5, 0.9]]))
    points.set_channel("point", "velocity", np.array([[24.0, 0, 0], [0, 24.0, 0], [0, 0, 6.0]]))
    setup = SolverSetup(
        "s",
        ParticleObject(input="p", name=DUST),
        bucket_size=0.25,
        domain_lower=(0, 0, 0),
        domain_upper=(1, 1, 1),
        boundary_lower=("wall", "open", "periodic"),
        boundary_upper=("wall", "open", "periodic"),
        precision="double",
    )
    solver = Solver(setup, {"p": points})
    solver.run(2)
    np.testing.assert_array_equal(solver.read(DUST, "id"), [0, 2])
    position, velocity = solver.read(DUST, "position"), solver.read(DUST, "velocity")
    np.testing.assert_allclose(position[0, 0], 1.0, rtol=0, atol=1e-9)
    assert velocity[0, 0] == 0.0
    np.testing.assert_allclose(position[1] % 1.0, [0.5, 0.5, 0.4], atol=1e-12)


def test_a_particle_at_the_upper_wall_stays_in_a_bucket_of_the_box():
    points = Points(np.array([[0.9, 0.5, 0.5]]))
    points.set_channel("point", "velocity", np.array([[24.0, 0, 0]]))
    setup = SolverSetup(
        "s",
        ParticleObject(input="p", name=DUST),
        bucket_size=0.25,
        domain_lower=(0, 0, 0),
        domain_upper=(1, 1, 1),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    solver = Solver(setup, {"p": points})
    solver.run(2)
    last = solver.domain.bucket_range()[1]
    particles = solver.object(DUST).particles
    assert np.all(particles.buckets.coords < last)


# -- reading and writing -------------------------------------------------------------------


def test_what_was_read_can_be_written_also_after_deaths():
    lifetime = np.where(np.arange(20) % 2, 0.01, 9.0)
    solver = dust(points=cloud(20, lifetime=lifetime))
    solver.run(1)
    velocity = solver.read(DUST, "velocity")
    assert velocity.shape == (10, 3)
    solver.write(DUST, "velocity", 2.0 * velocity)
    np.testing.assert_array_equal(solver.read(DUST, "velocity"), 2.0 * velocity)


def test_writing_checks_names_and_shapes():
    solver = dust()
    with pytest.raises(InputError, match=r"dust.velocity: shape \(3, 3\) given, \(200, 3\)"):
        solver.write(DUST, "velocity", np.zeros((3, 3)))
    with pytest.raises(InputError, match='scene has no Object "dusty"; did you mean "dust"'):
        solver.read("dusty", "velocity")
    with pytest.raises(InputError, match='dust has no channel "velocty"; did you mean "velocity"'):
        solver.read(DUST, "velocty")
    moved = solver.read(DUST, "position") + 5.0
    solver.write(DUST, "position", moved)
    np.testing.assert_allclose(solver.read(DUST, "position"), moved, atol=1e-6)


def test_user_channels_of_any_kind_pass_through():
    rng = np.random.default_rng(3)
    given = {
        "tag": np.arange(50, dtype=np.int64),
        "flag": np.arange(50) % 2 == 0,
        "tensor": rng.random((50, 3, 3)),
        "colour": rng.random((50, 3)).astype(np.float32),
    }
    # Floats are stored in the setup's precision, so that double loses nothing of either.
    points = cloud(50, **given)
    solver = dust(GravityForce(), points=points, substeps=2, precision="double")
    solver.run(3)
    output = solver.outputs()[DUST]
    order = np.argsort(output.channels["point"]["id"])
    for name, values in given.items():
        np.testing.assert_array_equal(solver.read(DUST, name), values, err_msg=name)
        found = output.channels["point"][name][order]
        np.testing.assert_array_equal(found, values)
        assert found.dtype.kind == values.dtype.kind


def test_statistics_count_calls_per_task():
    solver = dust(GravityForce(), substeps=3)
    solver.run(2)
    by_task = {entry["task"]: entry for entry in solver.statistics()}
    assert by_task["GravityForce.accumulate"]["calls"] == 6
    assert by_task["dust.rebucket"]["stage"] == "REBUCKET"
    assert all(entry["seconds"] >= 0.0 and entry["bytes_sent"] == 0 for entry in by_task.values())


def test_observers_are_called_at_their_stage():
    solver = dust(substeps=2)
    seen = []
    solver.observe(Stage.FRAME_END, lambda s, step: seen.append(("frame", step.frame, s.time)))
    solver.observe(Stage.SUBSTEP_END, lambda s, step: seen.append(("substep", step.frame, step.dt)))
    solver.run(1)
    assert seen == [("substep", 2, 1 / 48), ("substep", 2, 1 / 48), ("frame", 2, 1 / 24)]


# -- bad input, missing input ----------------------------------------------------------------


@pytest.mark.parametrize("substeps", [1, 2])
def test_no_points_at_all_still_run(substeps):
    solver = dust(
        GravityForce(), FluidDragForce(), points=Points(np.empty((0, 3))), substeps=substeps
    )
    solver.run(2)
    assert solver.counts() == {DUST: 0}
    assert solver.read(DUST, "position").shape == (0, 3)
    assert solver.outputs()[DUST].point_count == 0


def test_behaviors_without_anything_to_do_are_inactive_and_say_why():
    setup = SolverSetup(
        "s",
        Group("Here", ParticleObject(input="p")),
        Group("There", ParticleObject(input="missing"), GravityForce()),
        Group("Nowhere", FluidDragForce()),
        ForceDensityField(field="no_wind"),
    )
    solver = Solver(setup, {"p": cloud(5)})
    solver.run(1)
    why = {inactive.path: inactive.reason for inactive in solver.inactive}
    assert why == {
        "There/ParticleObject": 'there is no input stream "missing"',
        "There/GravityForce": "nothing in its Group to act on",
        "Nowhere/FluidDragForce": "nothing in its Group to act on",
        "ForceDensityField": 'there is no input stream "no_wind"',
    }
    assert list(solver.objects) == ["Here/ParticleObject"]


def nan_positions():
    positions = np.zeros((5, 3))
    positions[3, 1] = np.nan
    return Points(positions)


def with_channel(name, values):
    points = Points(np.zeros((5, 3)))
    points.set_channel("point", name, np.asarray(values))
    return points


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (nan_positions(), r'input "p".positions\[3\] = .*nan'),
        (with_channel("velocity", np.zeros(5)), r'dust: input "p": channel "velocity" has \[\]'),
        (with_channel("mass", [1.0, 1.0, -2.0, 1.0, 1.0]), r'dust: input "p": mass\[2\] = -2.0 kg'),
        (with_channel("mass", [1.0, 1.0, 0.0, 1.0, 1.0]), r"mass\[2\] = 0.0 kg"),
        (with_channel("mass", [1.0, np.nan, 1.0, 1.0, 1.0]), r"mass\[1\] = nan kg"),
        (with_channel("mass", [1.0, np.inf, 1.0, 1.0, 1.0]), r"mass\[1\] = inf kg"),
        (
            with_channel("radius", [1.0, -1.0, 1.0, 1.0, 1.0]),
            r'dust: input "p".*radius.*\[1\] = -1 m',
        ),
        (
            with_channel("density", [1.0, 1.0, 1.0, 0.0, 1.0]),
            r'dust: input "p".*density.*\[3\] = 0',
        ),
        (with_channel("velocity", np.full((5, 3), np.nan)), r'dust: input "p".*velocity\[0\]'),
        (Voxels(np.zeros((1, 3), np.int32), 0.1), r'dust: input "p" is a Voxels'),
        (np.zeros((5, 3)), r'input "p" is a ndarray'),
    ],
)
def test_bad_streams_are_refused_before_the_first_step(points, words):
    setup = SolverSetup("scene", ParticleObject(input="p", name=DUST))
    with pytest.raises(InputError, match=words):
        Solver(setup, {"p": points})


def test_channels_of_the_wrong_size_never_reach_the_solver():
    points = Points(np.zeros((5, 3)))
    with pytest.raises(InputError, match=r'points point channel "heat" has shape \[4\]'):
        points.set_channel("point", "heat", np.zeros(4))
    points.set_channel("point", "heat", np.zeros(5))
    points.positions = np.zeros((6, 3))
    with pytest.raises(InputError, match=r'input "p": point channel "heat" has 5 elements'):
        dust(points=points)


def test_an_unknown_channel_of_a_field_is_named():
    wind = Voxels.from_dense({"velocity": np.ones((3, 8, 8, 8))}, (0, 0, 0), 0.25)
    setup = SolverSetup(
        "s", ParticleObject(input="p"), FluidDragForce(field="wind", channel="velocty")
    )
    with pytest.raises(LokiError, match='no channel "velocty"; did you mean "velocity"'):
        Solver(setup, {"p": cloud(5), "wind": wind}).run(1)


def test_the_error_of_a_bad_input_in_mid_run_is_an_input_error():
    # Halving dt does not heal a source without length; the exit code must say input.
    def vanishing(frame):
        return Wireframe(np.eye(2, 3) * float(frame < 3), [[0, 1]])

    setup = SolverSetup("s", ParticleObject(source="e", rate=240.0, name=DUST))
    solver = Solver(setup, {"e": vanishing})
    solver.run(1)
    with pytest.raises(InputError, match="dust: the source stream has no length or area"):
        solver.run(2)


def test_small_clusters_may_fall_far():
    # A drop of a millimetre falls 10 m in 1.43 s; the automatic Bucket size must leave room for it.
    points = Points(np.random.default_rng(5).random((20, 3)) * 1e-3)
    solver = dust(GravityForce(), points=points)
    solver.run(40)
    assert solver.read(DUST, "position")[:, 1].max() < -10.0


@pytest.fixture
def careless():
    with isolated_registry():

        class CarelessOperator(Behavior, kind="operator"):
            """Touches what it did not declare."""

            way: str = parameter("read", choices=("read", "write"), doc="How.")

        class CarelessAction(Operator, behavior=CarelessOperator):
            @task(Stage.ADVECT, reads=("particles.position",))
            def work(self, access, step):
                if self.settings.way == "read":
                    access["particles.mass"]
                else:
                    access["particles.position"][0] += 1.0

        yield CarelessOperator


def test_a_task_that_reads_what_it_did_not_declare_fails(careless):
    with pytest.raises(AccessError, match=r'"particles.mass" is used in "CarelessOperator.work"'):
        dust(careless()).run(1)


def test_a_task_that_writes_what_it_did_not_declare_fails_in_tests(careless, monkeypatch):
    monkeypatch.setenv("LOKI_CHECK_ACCESS", "1")
    with pytest.raises(AccessError, match=r'"particles.position" was changed in "Careless'):
        dust(careless(way="write")).run(1)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_every_built_in_task_declares_what_it_touches(monkeypatch, precision):
    monkeypatch.setenv("LOKI_CHECK_ACCESS", "1")
    solver = dust(
        GravityForce(),
        FluidDragForce(velocity=(1.0, 0.0, 0.0)),
        ForceDensityField(value=(1.0, 0.0, 0.0), mask_radius=2.0),
        points=cloud(50, gravity_acceleration_scale=np.ones(50), lifetime=np.linspace(0.01, 1, 50)),
        precision=precision,
        domain_lower=(-9, -9, -9),
        domain_upper=(9, 9, 9),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
        bucket_size=0.5,
    )
    solver.run(2)


def test_setups_that_cannot_be_right_are_refused():
    with pytest.raises(SetupError, match="periodic"):
        dust(boundary_lower=("periodic", "open", "open"))
    with pytest.raises(SetupError, match=r"periodic axis x is 1 m long"):
        dust(
            bucket_size=0.3,
            domain_lower=(0, 0, 0),
            domain_upper=(1, 1, 1),
            boundary_lower=("periodic", "open", "open"),
            boundary_upper=("periodic", "open", "open"),
        )


def test_an_automatic_bucket_size_fits_all_periodic_axes():
    solver = dust(
        domain_lower=(0, 0, 0),
        domain_upper=(1.0, 0.75, 3.0),
        boundary_lower=("periodic",) * 3,
        boundary_upper=("periodic",) * 3,
    )
    solver.run(2)
    assert solver.counts()[DUST] == 200


@pytest.mark.parametrize(("channel", "parameter"), [("particle_rate", "rate")])
def test_a_channel_where_a_parameter_may_not_vary_is_refused(channel, parameter):
    points = Points(np.zeros((3, 3)))
    points.set_channel("point", channel, np.ones(3))
    setup = SolverSetup("s", ParticleObject(input="p"))
    with pytest.raises(
        LokiError, match=rf's/ParticleObject.{parameter} does not vary.*"{channel}"'
    ):
        Solver(setup, {"p": points})


def test_inputs_given_in_vain_are_named():
    solver = Solver(
        SolverSetup("s", ParticleObject(input="seeds")), {"sedes": Points(np.zeros((1, 3)))}
    )
    assert 'input "sedes": no enabled Behavior uses it; did you mean "seeds"?' in solver.warnings
    assert any("no Object is active" in text for text in solver.warnings)
    with pytest.raises(
        LokiError, match='there is no Stage "SUBSTEP_ED"; did you mean "SUBSTEP_END"'
    ):
        solver.observe("SUBSTEP_ED", print)
    with pytest.raises(LokiError, match=r"run\(-1\)"):
        solver.run(-1)
