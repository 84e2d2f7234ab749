"""Curves Object: masses, what holds strands, inputs that move, painted parameters, bad input."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import DivergenceError, InputError, LokiError, SetupError

pytestmark = pytest.mark.compiles

PATH = "Hair/CurvesObject"
TURN = 2.0 * np.pi
THICK, SOFT = 1.0e-3, 1.0e7  # radius [m] and Young's modulus [Pa] of strands that show something


def line(count, spacing=0.01, direction=(1.0, 0.0, 0.0), *, start=(0.0, 0.0, 0.0)):
    return np.arange(count)[:, None] * spacing * np.asarray(direction) + np.asarray(start)


def curly(count=16, radius=0.01, pitch=0.008):
    """A helix about x that begins at the origin, with no edge in a special direction."""
    angle = 0.6 * np.arange(count)
    return np.stack((pitch * angle, radius * (1.0 - np.cos(angle)), radius * np.sin(angle)), axis=1)


def ring(count=12, radius=0.05):
    angle = TURN * np.arange(count) / count
    return radius * np.stack((np.cos(angle), np.sin(angle), 0.0 * angle), axis=1)


def strands(*parts, closed=False, **channels):
    curves = lk.Curves(
        np.concatenate(parts), np.cumsum([0, *(len(part) for part in parts)]), closed
    )
    for name, values in channels.items():
        curves.set_channel("point", name, np.asarray(values))
    return curves


def solver_of(curves, *more, damping=0.0, object_settings=None, bending=None, **settings):
    """Strands with stretching and bending; `more` are further Behaviors of the Group."""
    chosen = {"input": "c", "radius": THICK} | (object_settings or {})
    moduli = {"young_modulus": SOFT, "shear_modulus": SOFT / 3.0, "damping_time": damping}
    hair = lk.Group(
        "Hair",
        lk.CurvesObject(**chosen),
        lk.StretchingConstraint(young_modulus=SOFT),
        lk.BendingConstraint(**(moduli | (bending or {}))),
        *more,
    )
    return lk.Solver(lk.SolverSetup("hair", hair, **settings), {"c": curves})


def action(solver, name):
    (found,) = solver.actions[f"Hair/{name}Constraint"]
    return found


def strains(solver):
    """Bending and twist beyond those at rest, [joints, 3]."""
    bending = action(solver, "Bending")
    value = np.zeros_like(bending.value)
    bending.evaluate_only(value)
    return value


def rotation(axis, angle):
    k = np.asarray(axis, float) / np.linalg.norm(axis)
    across = np.cross(np.eye(3), k)
    return np.eye(3) + np.sin(angle) * across + (1.0 - np.cos(angle)) * across @ across


# -- masses ------------------------------------------------------------------------------------


def test_masses_and_moments_of_inertia_add_up():
    rng = np.random.default_rng(1)
    open_one = np.cumsum(rng.random((7, 3)), axis=0)
    curves = lk.Curves(np.concatenate((open_one, ring())), [0, 7, 19], np.array([False, True]))
    radius, aspect, density = 2e-3, 1.7, 900.0
    given = {"radius": radius, "aspect": aspect, "density": density}
    solver = solver_of(curves, object_settings=given)
    line_density = density * np.pi * radius**2 * aspect
    lengths = [
        np.linalg.norm(np.diff(open_one, axis=0), axis=1),
        np.linalg.norm(np.diff(ring(), axis=0, append=ring()[:1]), axis=1),
    ]
    mass = solver.read(PATH, "mass")
    assert mass[:7].sum() == pytest.approx(line_density * lengths[0].sum(), rel=1e-13)
    assert mass[7:].sum() == pytest.approx(line_density * lengths[1].sum(), rel=1e-13)
    assert mass[0] == pytest.approx(0.5 * line_density * lengths[0][0], rel=1e-13)
    expected = 0.25 * line_density * np.concatenate(lengths) * radius**2 * (1.0 + aspect**2)
    np.testing.assert_allclose(solver.read(PATH, "edges.inertia"), expected, rtol=1e-13)
    rods = solver.object(PATH)
    np.testing.assert_allclose(rods.point_volumes().sum() * density, mass.sum(), rtol=1e-13)
    assert rods.edges.count == 6 + 12 and rods.joints.count == 5 + 12


# -- what holds a strand -----------------------------------------------------------------------


@pytest.mark.parametrize(("root", "held"), [("clamped", 2), ("pinned", 1), ("free", 0)])
def test_what_holds_the_root(root, held):
    start = line(6)
    solver = solver_of(strands(start), lk.GravityForce(), object_settings={"root": root})
    solver.run(4)
    position = solver.read(PATH, "position")
    np.testing.assert_array_equal(position[:held], start[:held])
    assert np.all(position[held:, 1] < start[held:, 1])
    # Backward Euler of free fall: v = -g t, y = -g h^2 n (n + 1) / 2.
    if root == "free":
        h = 1.0 / 24.0
        np.testing.assert_allclose(position[:, 1], -9.81 * h * h * 10.0, rtol=1e-9)
        np.testing.assert_allclose(solver.read(PATH, "velocity")[:, 1], -9.81 * 4 * h, rtol=1e-9)


def test_painted_points_are_pinned_and_no_root_is_needed():
    start = line(7)
    curves = strands(start, pinned=np.array([0, 0, 0, 1, 0, 0, 0]))
    solver = solver_of(curves, lk.GravityForce(), object_settings={"root": "free"}, damping=0.05)
    solver.run(5)
    position = solver.read(PATH, "position")
    np.testing.assert_array_equal(position[3], start[3])
    np.testing.assert_allclose(position[:3, 1], position[:3:-1, 1], atol=1e-9)  # both sides hang
    assert position[0, 1] < -1e-6


def test_pinned_points_follow_the_input_over_substeps():
    start = line(6)
    turns = [rotation((0.0, 0.0, 1.0), 0.1 * n) for n in range(10)]

    def at(frame):
        return strands(start @ turns[frame - 1].T + [0.02 * (frame - 1), 0.0, 0.0])

    solver = solver_of(at, substeps=4)
    seen = []
    solver.observe("SUBSTEP_END", lambda s, _: seen.append(s.read(PATH, "position")[:2]))
    solver.run(3)
    for frame in (1, 2, 3):
        before, after = at(frame).positions[:2], at(frame + 1).positions[:2]
        for substep in range(4):
            part = 0.25 * (substep + 1)
            np.testing.assert_allclose(
                seen[4 * (frame - 1) + substep], (1 - part) * before + part * after, atol=1e-15
            )
    velocity = solver.read(PATH, "velocity")[:2]
    np.testing.assert_allclose(velocity, 24.0 * (at(4).positions - at(3).positions)[:2], rtol=1e-9)


AXES = {
    "along the root": None,
    "x": (1.0, 0.0, 0.0),
    "y": (0.0, 1.0, 0.0),
    "z": (0.0, 0.0, 1.0),
    "askew": (1.0, -2.0, 0.7),
}


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
@pytest.mark.parametrize("total", [2.0, 1.5 * TURN])
def test_a_clamped_strand_whose_input_turns_is_not_strained(axis, total):
    start, frames = curly(), 24
    axis = start[1] - start[0] if axis is None else axis

    def at(frame):
        angle = total * min((frame - 1) / frames, 1.0)
        return strands(start @ rotation(axis, angle).T)

    solver = solver_of(at, damping=0.1)
    solver.run(frames + 60)  # it swings after the turn, and comes to rest
    turned = start @ rotation(axis, total).T
    np.testing.assert_allclose(solver.read(PATH, "position"), turned, atol=1e-6)
    assert abs(strains(solver)).max() < 1e-4
    # Without a step of inertia in between: the material frame of the clamp turned with it.
    np.testing.assert_allclose(solver.read(PATH, "velocity"), 0.0, atol=1e-5)


def test_a_straight_strand_turns_with_its_normal():
    start, frames, total = line(6), 16, 2.5

    def at(frame):
        angle = total * min((frame - 1) / frames, 1.0)
        curves = strands(start)
        normal = rotation((1.0, 0.0, 0.0), angle) @ np.array([0.0, 1.0, 0.0])
        curves.set_channel("primitive", "normal", normal[None])
        return curves

    solver = solver_of(at, damping=0.05)
    rods = solver.object(PATH)
    solver.run(frames + 40)
    tangent, reference = rods.edges.local("tangent"), rods.edges.local("reference")
    angle = rods.edges.local("angle")[:, None]
    first = np.cos(angle) * reference + np.sin(angle) * np.cross(tangent, reference)
    np.testing.assert_allclose(
        first, np.tile([0.0, np.cos(total), np.sin(total)], (5, 1)), atol=1e-6
    )


def test_twist_counts_full_turns():
    turns = 3.25
    frames = 40
    twist = lk.Keyframes([(0.0, 0.0), (frames / 24.0, turns * TURN)])
    solver = solver_of(
        strands(line(8)), damping=0.02, object_settings={"twist": twist, "density": 100.0}
    )
    solver.run(frames)
    angle = solver.read(PATH, "edges.angle")
    assert angle[0] == pytest.approx(turns * TURN, rel=1e-12)
    solver.run(60)
    np.testing.assert_allclose(solver.read(PATH, "edges.angle"), turns * TURN, rtol=1e-6)
    np.testing.assert_allclose(strains(solver), 0.0, atol=1e-4)


def test_twist_between_two_clamps_is_shared_evenly():
    # Torsion alone does not buckle a strand that is short and stiff: theta is linear along it.
    count, total = 9, 0.5
    twist = np.zeros(count)
    twist[count - 2] = total
    held = np.zeros(count, np.int32)
    held[-2:] = 1
    solver = solver_of(strands(line(count), pinned=held, twist=twist), damping=0.02)
    solver.run(40)
    angle = solver.read(PATH, "edges.angle")
    assert angle[0] == 0.0 and angle[-1] == pytest.approx(total)
    # The clamped edges do not twist, so their joints have half the length of the others.
    parts = np.array([0.5, *np.ones(count - 4), 0.5])
    np.testing.assert_allclose(np.diff(angle), total * parts / parts.sum(), rtol=1e-6)


def test_natural_twist_is_without_stress():
    rate = 4.0
    solver = solver_of(
        strands(line(8)), damping=0.05, object_settings={"root": "free"},
        bending={"natural_twist": rate},
    )  # fmt: skip
    solver.run(60)
    np.testing.assert_allclose(np.diff(solver.read(PATH, "edges.angle")), rate * 0.01, rtol=1e-6)


def test_a_closed_ring_keeps_its_shape_and_momentum():
    curves = lk.Curves(ring(), [0, 12], True)
    start = curves.positions.copy()
    solver = solver_of(curves, object_settings={"root": "clamped"})  # a ring has no root
    assert not solver.object(PATH).held_points().any()
    solver.run(3)
    np.testing.assert_allclose(solver.read(PATH, "position"), start, atol=1e-15)
    rng = np.random.default_rng(3)
    velocity = 0.05 * rng.standard_normal((12, 3))
    solver.write(PATH, "velocity", velocity)
    mass = solver.read(PATH, "mass")[:, None]
    solver.run(10)
    np.testing.assert_allclose(
        (mass * solver.read(PATH, "velocity")).sum(axis=0), (mass * velocity).sum(axis=0),
        atol=1e-12 * abs(mass * velocity).sum(),
    )  # fmt: skip
    lengths = np.linalg.norm(np.diff(solver.read(PATH, "position"), axis=0), axis=1)
    np.testing.assert_allclose(lengths, np.linalg.norm(start[1] - start[0]), rtol=0.02)


# -- painted parameters ------------------------------------------------------------------------


def section(radius, length, aspect=1.0):
    """k = (E I1, E I2, G J) / l of a circular or elliptic section."""
    area_moment = 0.25 * np.pi * radius**4 * aspect
    polar = np.pi * radius**4 * aspect**3 / (1.0 + aspect**2)
    return np.stack(
        (
            SOFT * area_moment / length,
            SOFT * area_moment * aspect**2 / length,
            SOFT / 3.0 * polar / length,
        ),
        axis=-1,
    )


#: Lengths of the joints of a strand of five points: the first edge is clamped.
JOINTS = np.array([0.005, 0.01, 0.01])


def painted_k(curves, **settings):
    solver = solver_of(curves, **settings)
    solver.run(1)
    return action(solver, "Bending").k, action(solver, "Stretching").k[:, 0], solver


def test_radius_by_vertex_and_by_strand():
    radius = np.array([1.0, 0.9, 0.8, 0.7, 0.6]) * THICK
    k, stretch, _ = painted_k(strands(line(5), radius=radius))
    np.testing.assert_allclose(k, section(radius[1:4], JOINTS), rtol=1e-12)
    area = np.pi * radius**2
    np.testing.assert_allclose(stretch, SOFT * 0.5 * (area[1:] + area[:-1]) / 0.01, rtol=1e-12)
    two = strands(line(5), line(5, start=(0.0, 0.0, 0.1)))
    two.set_channel("primitive", "radius", np.array([0.5, 2.0]) * THICK)
    k, _, solver = painted_k(two)
    expected = np.concatenate([section(np.full(3, s * THICK), JOINTS) for s in (0.5, 2.0)])
    np.testing.assert_allclose(k, expected, rtol=1e-12)
    np.testing.assert_allclose(
        solver.read(PATH, "radius"), np.repeat([0.5 * THICK, 2.0 * THICK], 5), rtol=1e-12
    )


def test_bending_stiffness_by_vertex_strand_and_scale():
    given = np.array([9.0, 1.0, 2.0, 3.0, 9.0]) * 1e-6
    k, stretch, _ = painted_k(strands(line(5), bending_stiffness=given))
    plain = section(np.full(3, THICK), JOINTS)
    np.testing.assert_allclose(k[:, 0], given[1:4] / JOINTS, rtol=1e-12)
    np.testing.assert_allclose(k[:, 1], given[1:4] / JOINTS, rtol=1e-12)  # follows the first
    np.testing.assert_allclose(k[:, 2], plain[:, 2], rtol=1e-12)
    np.testing.assert_allclose(stretch, SOFT * np.pi * THICK**2 / 0.01, rtol=1e-12)
    scale = np.array([9.0, 0.5, 2.0, 4.0, 9.0])
    k, _, _ = painted_k(strands(line(5), bending_stiffness_scale=scale))
    np.testing.assert_allclose(k[:, 0], scale[1:4] * plain[:, 0], rtol=1e-12)
    np.testing.assert_allclose(k[:, 2], plain[:, 2], rtol=1e-12)
    # By strand, and vertices within it have the last word.
    two = strands(line(5), line(5, start=(0.0, 0.0, 0.1)))
    two.set_channel("primitive", "bending_stiffness", np.array([1e-6, 5e-6]))
    k, _, _ = painted_k(two)
    np.testing.assert_allclose(k[:, 0], np.repeat([1e-6, 5e-6], 3) / np.tile(JOINTS, 2), rtol=1e-12)
    two.set_channel("point", "bending_stiffness", np.tile(given, 2))
    k, _, _ = painted_k(two)
    np.testing.assert_allclose(k[:, 0], np.tile(given[1:4] / JOINTS, 2), rtol=1e-12)
    # A scale multiplies what the Behavior gives, too.
    k, _, _ = painted_k(
        strands(line(5), bending_stiffness_scale=scale), bending={"stiffness": 3e-6}
    )
    np.testing.assert_allclose(k[:, 0], scale[1:4] * 3e-6 / JOINTS, rtol=1e-12)


def test_natural_twist_may_be_painted():
    rate = np.array([0.0, 0.0, 5.0, 0.0, 0.0, 0.0])
    curves = strands(line(6), bending_natural_twist=rate)
    solver = solver_of(curves, damping=0.05, object_settings={"root": "free"})
    solver.run(60)
    angle = solver.read(PATH, "edges.angle")
    np.testing.assert_allclose(np.diff(angle), 0.01 * rate[1:5], atol=1e-8)


def test_an_elliptic_section_is_stiffer_along_its_wide_side():
    k, _, _ = painted_k(strands(line(5)), object_settings={"aspect": 2.0})
    np.testing.assert_allclose(k, section(np.full(3, THICK), JOINTS, 2.0), rtol=1e-12)


# -- output ------------------------------------------------------------------------------------


def test_output_has_what_the_user_gave():
    parts = [line(4), ring(5) + np.array([0.0, 0.0, 0.1]), line(3, start=(0.0, 0.1, 0.0))]
    curves = lk.Curves(np.concatenate(parts), [0, 4, 9, 12], np.array([False, True, False]))
    rng = np.random.default_rng(2)
    colour, layer = rng.random((12, 3)).astype(np.float32), np.arange(12)
    curves.set_channel("point", "colour", colour)
    curves.set_channel("point", "layer", layer)
    curves.set_channel("primitive", "clump", np.array([4, 5, 6]))
    curves.set_channel("detail", "seed", np.array([7]))
    solver = solver_of(curves)
    solver.run(2)
    found = solver.outputs()[PATH]
    assert isinstance(found, lk.Curves)
    found.validate("output")
    order = found.channels["primitive"]["strand"]
    np.testing.assert_array_equal(np.sort(order), [0, 1, 2])
    np.testing.assert_array_equal(found.closed, curves.closed[order])
    np.testing.assert_array_equal(found.channels["primitive"]["clump"], np.array([4, 5, 6])[order])
    np.testing.assert_array_equal(found.channels["detail"]["seed"], [7])
    ids = found.channels["point"]["id"]
    np.testing.assert_array_equal(found.channels["point"]["colour"], colour[ids])
    assert found.channels["point"]["colour"].dtype == np.float32
    np.testing.assert_array_equal(found.channels["point"]["layer"], layer[ids])
    np.testing.assert_allclose(found.channels["point"]["radius"], THICK)
    assert found.channels["point"]["velocity"].shape == (12, 3)
    np.testing.assert_allclose(found.positions, np.concatenate(parts)[ids], atol=1e-9)
    for own in ("goal", "start_position", "pinned", "force"):
        assert own not in found.channels["point"]


# -- what is refused ---------------------------------------------------------------------------


def bad(curves, match, error=InputError, **settings):
    with pytest.raises(error, match=match):
        solver_of(curves, **settings).run(1)


def test_bad_input_is_refused():
    equal = line(5)
    equal[3] = equal[2]
    bad(strands(equal), "points 2 and 3 of curve 0 are at one place")
    broken = line(5)
    broken[2, 1] = np.nan
    bad(strands(broken), r"positions\[2\]")
    bad(lk.Curves(np.zeros((1, 3)), [0, 1]), "curve 0 has 1 point ")
    bad(lk.Points(line(4)), "Points; curves are expected")
    bad(lambda frame: strands(line(5 if frame < 2 else 6)), "their number may not change")
    bad(
        lambda frame: (
            strands(line(3), line(5, start=(0.0, 0.1, 0.0)))
            if frame < 2
            else strands(line(5), line(3, start=(0.0, 0.1, 0.0)))
        ),
        "may not change",
    )
    bad(strands(line(5)), "radius", SetupError, object_settings={"radius": 0.0})
    bad(strands(line(5), radius=[1e-3, 1e-3, 0.0, 1e-3, 1e-3]), "radius", LokiError)
    bad(strands(line(5), radius=[1e-3, 1e-3, np.nan, 1e-3, 1e-3]), "radius", LokiError)
    two = strands(line(5), line(5, start=(0.0, 0.0, 0.1)))
    two.set_channel("primitive", "radius", np.array([1e-3, 0.0]))
    bad(two, "radius", LokiError)
    bad(strands(line(5), velocity=np.full((5, 3), np.inf)), "velocity")
    bad(strands(line(5), velocity=np.zeros(5)), "velocity")
    bad(strands(line(5), bending_stiffness=[1.0, 1.0, -1.0, 1.0, 1.0]), "stiffness", LokiError)


def test_input_that_goes_bad_is_refused():
    def at(frame):
        points = line(5)
        if frame == 3:
            points[1] = points[0]
        return strands(points)

    solver = solver_of(at)
    solver.run(1)
    with pytest.raises(InputError, match="points 0 and 1 of curve 0 are at one place"):
        solver.run(1)


def test_two_points_are_a_strand():
    solver = solver_of(
        strands(line(2), line(2, start=(0.0, 0.0, 0.1))), lk.GravityForce(),
        object_settings={"root": "pinned"}, substeps=8, newton_iterations=4,
    )  # fmt: skip
    solver.run(4)
    position = solver.read(PATH, "position")
    np.testing.assert_allclose(np.linalg.norm(np.diff(position[:2], axis=0)), 0.01, rtol=0.02)
    assert position[1, 1] < 0.0


# -- hard conditions ---------------------------------------------------------------------------


def fine_hair(count=12, direction=(0.0, -1.0, 0.0)):
    """Strands for a hair's own section and moduli."""
    rng = np.random.default_rng(4)
    starts = [(0.0, 0.0, 0.01 * n) for n in range(3)]
    parts = [line(count, 0.01, direction, start=start) for start in starts]
    return strands(*(part + 1e-3 * rng.random((count, 3)) for part in parts))


def hair_group():
    return lk.Group(
        "Hair", lk.CurvesObject(input="c"), lk.StretchingConstraint(), lk.BendingConstraint()
    )


def run_or_diverge(solver, frames):
    """Frames are finite, or the run stops with a clear error; returns how many came."""
    for frame in range(frames):
        try:
            solver.run(1)
        except DivergenceError as error:
            assert str(error)
            return frame
        for channel in ("position", "velocity", "edges.angle"):
            assert np.all(np.isfinite(solver.read(PATH, channel)))
    return frames


def test_steps_of_a_second():
    setup = lk.SolverSetup("hair", hair_group(), lk.GravityForce(), frames_per_second=1)
    solver = lk.Solver(setup, {"c": fine_hair()})
    assert run_or_diverge(solver, 5) == 5
    position = solver.read(PATH, "position").reshape(3, 12, 3)
    lengths = np.linalg.norm(np.diff(position, axis=1), axis=2)
    assert np.all(abs(lengths / 0.01 - 1.0) < 0.2)


@pytest.mark.parametrize(
    "direction", ["two_way", pytest.param("fluid_to_solids", marks=pytest.mark.slow)]
)
def test_wind_of_a_thousand_metres_a_second(direction):
    air = lk.Group(
        "Wind",
        lk.VolumeObject(
            voxel_size=0.02,
            around="Hair/CurvesObject",
            padding=4,
            channels=(),
            ambient_velocity=(1000.0, 0.0, 0.0),
        ),
        lk.PressureMaterial(),
    )
    drag = lk.CoupledDragForce(direction=direction)
    setup = lk.SolverSetup("storm", hair_group(), air, lk.GravityForce(), drag)
    solver = lk.Solver(setup, {"c": fine_hair()})
    run_or_diverge(solver, 2)


def test_far_from_the_origin():
    shift = np.array([1.0e5, -2.0e5, 0.5e5])
    found = []
    for offset in (np.zeros(3), shift):
        near = fine_hair(direction=(1.0, 0.0, 0.0))
        curves = lk.Curves(near.positions + offset, near.offsets)
        solver = lk.Solver(lk.SolverSetup("hair", hair_group(), lk.GravityForce()), {"c": curves})
        solver.run(6)
        found.append(solver.read(PATH, "position") - offset)
    # Places as far away are given to 3e-11 m; a strand's own weight moves it by centimetres.
    assert np.ptp(found[0][:, 1]) > 0.01
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("animated", [False, True])
def test_a_restart_continues_bit_for_bit(animated):
    start = curly()

    def at(frame):
        return strands(start @ rotation((1.0, 1.0, 0.0), 0.05 * (frame - 1)).T)

    def fresh():
        bending = lk.BendingConstraint(young_modulus=SOFT, damping_time=0.01)
        hair = lk.Group(
            "Hair",
            lk.CurvesObject(input="c", radius=THICK),
            lk.StretchingConstraint(young_modulus=SOFT),
            bending,
        )
        setup = lk.SolverSetup("hair", hair, lk.GravityForce(), substeps=2)
        return lk.Solver(setup, {"c": at if animated else strands(start)})

    whole = fresh()
    whole.run(3)
    state = whole.state()
    kept = {path: item.output() for path, item in whole.objects.items()}
    whole.run(3)
    again = fresh()
    again.restore(state)
    np.testing.assert_array_equal(again.read(PATH, "position"), kept[PATH].positions)
    again.run(3)
    for channel in ("position", "velocity", "edges.angle", "edges.angular_velocity", "mass"):
        np.testing.assert_array_equal(
            again.read(PATH, channel), whole.read(PATH, channel), err_msg=channel
        )


def total_energy(solver, dt, gravity):
    rods = solver.object(PATH)
    mass, velocity = rods.particles.local("mass"), rods.particles.local("velocity")
    spin = rods.edges.local("angular_velocity")
    energy = 0.5 * float(mass @ np.einsum("na,na->n", velocity, velocity))
    energy += 0.5 * float(rods.edges.local("inertia") @ spin**2)
    energy += gravity * float(mass @ rods.particles.local("position")[:, 1])
    for name in ("Stretching", "Bending"):
        energy += float(action(solver, name).energies(dt).sum())
    return energy


@pytest.mark.parametrize("root", ["pinned", "free", "clamped"])
@pytest.mark.parametrize("newton", [1, 4])
def test_the_energy_of_a_swinging_strand_does_not_grow(root, newton):
    gravity = 0.0 if root == "free" else 9.81
    forces = [] if root == "free" else [lk.GravityForce()]
    start = line(10, 0.02)
    solver = solver_of(
        strands(start), *forces, object_settings={"root": root}, substeps=4,
        newton_iterations=newton,
    )  # fmt: skip
    velocity = np.zeros((10, 3))
    velocity[2:, 1] = 0.4 * np.sin(np.arange(8))
    velocity[2:, 2] = 0.3
    solver.write(PATH, "velocity", velocity)
    energies = []
    solver.observe(
        "SUBSTEP_END", lambda s, step: energies.append(total_energy(s, step.dt, gravity))
    )
    solver.run(24)
    energies = np.array(energies)
    kinetic = 0.5 * float(solver.read(PATH, "mass") @ np.einsum("na,na->n", velocity, velocity))
    scale = kinetic + gravity * 0.2 * float(solver.read(PATH, "mass").sum())
    assert energies[-1] < energies[0]
    assert np.all(np.diff(energies) <= 1e-3 * scale)


def test_explain_names_what_is_painted_on_strands():
    from loki_vfx.bridges.standalone.explanation import explain
    from loki_vfx.bridges.standalone.scene import Scene

    curves = lk.Curves(
        np.tile(line(5), (2, 1)) + np.repeat([[0, 0, 0], [0, 0, 1]], 5, 0), [0, 5, 10]
    )
    curves.set_channel("point", "radius", np.linspace(1e-4, 2e-4, 10))
    curves.set_channel("primitive", "bending_stiffness", np.array([1e-6, 3e-6]))
    curves.set_channel("primitive", "stretching_stiffness_scale", np.array([1.0, 2.0]))
    setup = lk.SolverSetup(
        "painted",
        lk.CurvesObject(name="S", input="c"),
        lk.StretchingConstraint(),
        lk.BendingConstraint(),
    )
    found = {
        f"{one['behavior']}.{one['parameter']}": one["overrides"][0]
        for one in explain(Scene(setup, {"c": curves}))["parameters"]
        if one["overrides"]
    }
    assert all(one["error"] is None for one in found.values())
    assert {name: one["origin"] for name, one in found.items()} == {
        "S.radius": 'vertex channel "radius"',
        "BendingConstraint.stiffness": 'primitive channel "bending_stiffness"',
        "StretchingConstraint.stiffness": (
            'derived value × primitive channel "stretching_stiffness_scale"'
        ),
    }
    assert found["BendingConstraint.stiffness"]["maximum"] == 3e-6
