"""Inputs that say where their points are between two frames: who follows them, and how closely."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

import loki_core as lk
from loki_core.behavior import isolated_registry
from loki_core.data.mesh import merge
from loki_core.errors import Cancelled, DivergenceError, InputError
from loki_core.objects.basics.motion import PathInFrame, motion_samples
from loki_core.objects.colliders.collider import Collider
from loki_core.solver_setup import Group, SolverSetup
from tests.mpi.scripts.collider_scene import define_air
from tests.mpi.scripts.motion_scene import (
    CHANNELS,
    HAIR,
    QUARTER,
    SAMPLES,
    hair,
    make_solver,
    sampled,
    turned,
)

FRAME = 1.0 / 24.0  # s


# -- the way itself -------------------------------------------------------------------------------


def test_a_way_leads_through_its_samples_on_straight_pieces():
    knots = np.random.default_rng(1).random((4, 5, 3))
    path = PathInFrame(knots[0], knots[3], [knots[1], knots[2]])
    for number, knot in enumerate(knots):
        np.testing.assert_allclose(path.position(number / 3), knot, rtol=0, atol=1e-15)
    np.testing.assert_allclose(path.position(0.5), 0.5 * (knots[1] + knots[2]), rtol=1e-15)
    # At a sample the velocity is that of the piece which ends there.
    for fraction, piece in ((0.0, 0), (0.2, 0), (1 / 3, 0), (0.4, 1), (2 / 3, 1), (1.0, 2)):
        expected = (knots[piece + 1] - knots[piece]) / (0.5 / 3)
        np.testing.assert_allclose(path.velocity(fraction, 0.5), expected, rtol=1e-13)


def test_without_samples_a_way_is_the_chord_to_the_bit():
    before, after = np.random.default_rng(2).random((2, 50, 3))
    path = PathInFrame(before, after)
    for fraction in (0.0, 1e-12, 0.1, 1 / 3, 0.7, 1.0 - 1e-12):
        start, end, part = path.piece(fraction)
        assert start is before and end is after and part == fraction
        chord = before + fraction * (after - before)
        np.testing.assert_array_equal(path.position(fraction), chord)
        np.testing.assert_array_equal(path.velocity(fraction, FRAME), (after - before) / FRAME)
    assert path.position(1.0) is after


def test_samples_that_cannot_be_right_are_refused():
    points = lk.Points(np.zeros((2, 3)))
    assert motion_samples(points, label="head") == []
    points.set_channel("point", "motion_1", np.zeros((2, 3)))
    points.set_channel("point", "motion_3", np.zeros((2, 3)))
    with pytest.raises(InputError, match=r'head: point channel "motion_2" is missing'):
        motion_samples(points, label="head")
    points.set_channel("point", "motion_2", np.array([[0, 0, 0], [0, np.nan, 0]]))
    with pytest.raises(InputError, match=r'"motion_2"\[1\] = .*nan.* m'):
        motion_samples(points, label="head")
    points.set_channel("point", "motion_2", np.zeros(2))
    with pytest.raises(InputError, match=r'"motion_2" has 1 numbers an element; expected 3'):
        motion_samples(points, label="head")


# -- meshes ---------------------------------------------------------------------------------------


def test_samples_are_moved_as_places():
    points = sampled(lk.Points(np.eye(3)), 2, samples=2)
    shift = np.eye(4)
    shift[:3, 3] = (1.0, 2.0, 3.0)
    moved = points.transformed(shift)
    for name in ("motion_1", "motion_2"):
        expected = points.channels["point"][name] + shift[:3, 3]
        np.testing.assert_allclose(moved.channels["point"][name], expected, rtol=1e-15)


def test_merged_meshes_keep_samples_only_if_all_have_as_many():
    seven, three, none = (sampled(lk.Points(np.eye(3)), 2, samples=n) for n in (7, 3, 0))
    both = merge([seven, seven]).channels["point"]
    assert len(both) == 7
    np.testing.assert_array_equal(both["motion_4"][3:], seven.channels["point"]["motion_4"])
    seven.set_channel("point", "paint", np.ones(3))
    for other in (three, none):
        assert list(merge([seven, other]).channels["point"]) == ["paint"]


# -- colliders ------------------------------------------------------------------------------------


ORBIT, BALL = 0.6, 0.15


def orbiting(samples):
    """A small ball on its way around the origin, which keeps its direction."""
    mesh = trimesh.creation.icosphere(subdivisions=3, radius=BALL)

    def places(part):
        return np.array(mesh.vertices) + turned(np.array([ORBIT, 0.0, 0.0]), QUARTER * part)

    def at(frame):
        surface = lk.Surface.from_faces(places(frame - 1), np.array(mesh.faces))
        for number in range(1, samples + 1):
            way = places(frame - 2 + number / (samples + 1))
            surface.set_channel("point", f"motion_{number}", way)
        return surface

    return at


def seen_collider(samples, substeps):
    """Where the ball is found, and how fast, after each substep of a frame."""
    with isolated_registry():
        air = define_air()
        room = Group("Room", air(name="air"), Collider(input="ball", name="ball"))
        setup = SolverSetup("scene", room, substeps=substeps, bucket_size=0.25)
        solver = lk.Solver(setup, {"ball": orbiting(samples)})
    seen = []

    def look(solver, step):
        collider = solver.object("Room/ball")
        domain = collider.scope.domain
        part = (len(seen) + 1) / substeps
        chord = (1.0 - part) * np.array([ORBIT, 0, 0]) + part * np.array([0, ORBIT, 0])
        centres = {"arc": turned(np.array([ORBIT, 0, 0]), QUARTER * part), "chord": chord}
        around = BALL * np.concatenate((np.eye(3), -np.eye(3)))
        found = {name: collider.sample(domain.to_relative(c + around)) for name, c in
                 centres.items()}  # fmt: skip
        seen.append(found)

    solver.observe("SUBSTEP_END", look)
    solver.run(1)
    return seen


@pytest.mark.compiles
def test_a_collider_with_samples_follows_the_arc_at_its_speed():
    omega = QUARTER / FRAME
    for found in seen_collider(SAMPLES, substeps=8):
        sample = found["arc"]
        np.testing.assert_allclose(sample.distance, 0.0, atol=3e-3)
        speed = np.linalg.norm(sample.velocity, axis=1)
        np.testing.assert_allclose(speed, omega * ORBIT, rtol=0.01)


@pytest.mark.compiles
def test_a_collider_without_samples_takes_the_chord():
    chord = np.sqrt(2.0) * ORBIT / FRAME
    for number, found in enumerate(seen_collider(0, substeps=4)):
        sample = found["chord"]
        np.testing.assert_allclose(sample.distance, 0.0, atol=3e-3)
        np.testing.assert_allclose(np.linalg.norm(sample.velocity, axis=1), chord, rtol=1e-3)
        if number == 1:
            assert np.abs(found["arc"].distance).max() > 0.05


# -- strands --------------------------------------------------------------------------------------


def roots_of(samples, substeps):
    """Places and velocities of roots after each substep of two frames."""
    solver = make_solver(samples=samples, substeps=substeps)
    seen = []

    def look(solver, step):
        seen.append([solver.read(HAIR, name)[::6] for name in ("position", "velocity")])

    solver.observe("SUBSTEP_END", look)
    solver.run(2)
    assert len(seen) == 2 * substeps
    return seen


@pytest.mark.compiles
def test_roots_with_samples_follow_the_arc_at_its_speed():
    start = hair().positions[::6]
    radius, omega = np.linalg.norm(start[:, :2], axis=1), QUARTER / FRAME
    for number, (place, velocity) in enumerate(roots_of(SAMPLES, substeps=8)):
        expected = turned(start, QUARTER * (number + 1) / 8)
        np.testing.assert_allclose(place, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(velocity, axis=1), omega * radius, rtol=0.01)


@pytest.mark.compiles
def test_roots_without_samples_take_the_chord():
    start = hair().positions[::6]
    ends = [turned(start, QUARTER * number) for number in range(3)]
    for number, (place, _) in enumerate(roots_of(0, substeps=4)):
        frame, part = number // 4, (number % 4 + 1) / 4
        expected = (1.0 - part) * ends[frame] + part * ends[frame + 1]
        np.testing.assert_allclose(place, expected, rtol=0, atol=1e-12)


def material_axes(solver):
    """First material axis of every edge."""
    names = ("tangent", "reference", "angle")
    tangent, reference, angle = (solver.read(HAIR, f"edges.{name}") for name in names)
    second = np.cross(tangent, reference)
    return np.cos(angle)[:, None] * reference + np.sin(angle)[:, None] * second


@pytest.mark.compiles
@pytest.mark.parametrize(("substeps", "tolerance"), [(8, 1e-9), (5, 0.02)])
def test_frames_of_clamped_edges_turn_with_the_samples(substeps, tolerance):
    start = hair()
    start.set_channel("point", "pinned", np.ones(start.point_count, np.int32))
    setup = lk.SolverSetup(
        "held", lk.Group("Hair", lk.CurvesObject(input="hair")), substeps=substeps
    )
    solver = lk.Solver(setup, {"hair": lambda frame: sampled(start, frame)})
    axes, seen = material_axes(solver), []
    solver.observe("SUBSTEP_END", lambda solver, _: seen.append(material_axes(solver)))
    solver.run(2)
    for number, found in enumerate(seen):
        expected = turned(axes, QUARTER * (number + 1) / substeps)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.compiles
def test_attached_points_are_pulled_along_the_arc():
    spot = lk.Points(np.array([[0.1, 0.0, 0.0]]))
    strand = lk.Curves(np.array([[0.1, 0.0, 0.0], [0.1, 0.0, 0.02]]), [0, 2])

    def farthest_from_the_arc(samples):
        setup = lk.SolverSetup(
            "tied",
            lk.Group("Hair", lk.CurvesObject(input="hair", root="free", radius=1e-3)),
            lk.AttachmentConstraint(source="Hair", target="spot", stiffness=1e6, damping_time=0.01),
            substeps=16,
        )
        inputs = {"hair": strand, "spot": lambda f: sampled(spot, f, samples=samples)}
        solver, misses = lk.Solver(setup, inputs), []

        def look(solver, step):
            near = np.abs(np.linalg.norm(solver.read(HAIR, "position")[:, :2], axis=1) - 0.1)
            misses.append(near.min())

        solver.observe("SUBSTEP_END", look)
        solver.run(1)
        return max(misses)

    assert farthest_from_the_arc(SAMPLES) < 2e-3
    assert farthest_from_the_arc(0) > 0.02


# -- what stays as it is --------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.parametrize("samples", [0, SAMPLES])
@pytest.mark.parametrize("reached", [5, 6, 7])
def test_a_state_inside_a_frame_continues_to_the_bit(samples, reached):
    whole = make_solver(samples=samples)
    whole.run(3)
    part, done = make_solver(samples=samples), []

    def stop(solver, step):
        done.append(step)
        if len(done) == reached:
            solver.cancel()

    part.observe("SUBSTEP_END", stop)
    with pytest.raises(Cancelled):
        part.run(3)
    again = make_solver(samples=samples)
    again.restore(part.state())
    again.run(2)
    for name in CHANNELS:
        np.testing.assert_array_equal(again.read(HAIR, name), whole.read(HAIR, name), name)


@pytest.mark.compiles
def test_a_substep_that_is_undone_leaves_prescribed_points_on_their_way():
    solver = make_solver()
    failures, seen = [1], []

    def fail(solver, step):
        if failures and step.substep == 1:
            raise DivergenceError(f"failure {failures.pop()}")

    solver.observe("PRE_SOLVE", fail)
    solver.observe("SUBSTEP_END", lambda s, step: seen.append((step, s.read(HAIR, "position"))))
    solver.run(1)
    assert solver.timeline.retried == 1
    start = hair().positions[::6]
    for step, place in seen:
        part = (step.time + step.dt) / FRAME
        expected = turned(start, QUARTER * part)
        np.testing.assert_allclose(place[::6], expected, rtol=0, atol=1e-12)


@pytest.mark.compiles
def test_samples_are_no_part_of_what_comes_out():
    strands = make_solver()
    strands.run(1)
    assert "paint" in strands.outputs()[HAIR].channels["point"]
    seeds = sampled(lk.Points(np.eye(3)), 1)
    seeds.set_channel("point", "paint", np.ones(3))
    dust = lk.Solver(
        lk.SolverSetup("dust", lk.ParticleObject(name="Dust", input="seeds")), {"seeds": seeds}
    )
    dust.run(1)
    assert "paint" in dust.outputs()["Dust"].channels["point"]
    for solver in (strands, dust):
        for stream in solver.outputs().values():
            assert not [name for name in stream.channels["point"] if "motion" in name]
        for item in solver.objects.values():  # strands have them along, but not as the user's
            assert not [name for name in item.vertex_channels() if "motion" in name]


@pytest.mark.compiles
def test_samples_of_an_input_that_stays_the_same_lead_nowhere():
    """They tell the way to the start, which is not simulated."""
    still = sampled(hair(), 1)
    setup = lk.SolverSetup(
        "still",
        lk.Group("Hair", lk.CurvesObject(input="hair")),
        lk.ParticleObject(name="Dust", input="seeds"),
        substeps=4,
    )
    seeds = lk.Points(np.eye(3))
    solver = lk.Solver(setup, {"hair": still, "seeds": lambda frame: seeds})
    solver.observe(
        "SUBSTEP_END",
        lambda solver, _: np.testing.assert_allclose(
            solver.read(HAIR, "position")[::6], still.positions[::6], rtol=0, atol=1e-12
        ),
    )
    solver.run(2)
