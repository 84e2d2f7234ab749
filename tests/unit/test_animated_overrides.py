"""Overrides of an animated input follow it frame by frame, by id, whatever varies and where."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import loki_core as lk
from loki_core.behavior import registry
from loki_core.errors import InputError
from loki_core.sparse_parameters import channel_names
from tests.unit.painted_scenes import (
    DUST,
    HAIR,
    PLACES,
    SCENES,
    SHOWN,
    STREAMS,
    WATER,
    dust,
    forces,
    groom,
    water,
)

pytestmark = pytest.mark.compiles

#: Parameters without meaning for what a scene shows: strands do not bounce, nothing comes out of
#: what is there from the start, the larger one of two viscosities counts, and Constraints may have
#: moduli of their own.
EMISSION = (
    "velocity", "normal_speed", "velocity_spread", "inherit_velocity", "lifetime",
    "lifetime_variation",
)  # fmt: skip
MODULI = ("young_modulus", "shear_modulus")
FLUID = ("friction", "surface_tension", "contact_angle", "viscosity")
WITHOUT = {
    ("lying", "CollisionConstraint", "restitution"),
    *(("dust", "ParticleObject", name) for name in EMISSION),
    *(("hair", "CurvesObject", name) for name in MODULI),
    *(("foam", "SmoothedParticleFluid", name) for name in FLUID),
    ("honey", "SmoothedParticleFluid", "artificial_viscosity"),
    ("tap", "LiquidSource", "thickness"),
    ("shell", "LiquidSource", "flux"),
}


#: How exact values are where factors of one take another way: as parts of the largest, or by voxel.
ROUNDED = {
    **dict.fromkeys(("positions", "honey", "foam", "droplets"), 1e-11),
    **dict.fromkeys(("water", "puff", "gust"), 1e-6),  # in single precision
}

#: What has no modes of stiffness and compliance.
ALWAYS = {kind for kinds in SHOWN.values() for kind in kinds if not kind.endswith("Constraint")}

NOT_SHOWN = {"restitution"}  # of contacts, which test_particle_contacts.py shows


def cases():
    for scene, kinds in SHOWN.items():
        for kind in kinds:
            for name, declared in registry()[kind].parameters().items():
                for place in PLACES[scene] if declared.varies == "vertex" else ("detail",):
                    has = (name == "compliance") == scene.startswith("soft") or kind in ALWAYS
                    if (scene, kind, name) in WITHOUT or not has:
                        continue
                    if declared.varies != "no":
                        yield pytest.param(
                            scene, kind, name, place, id=f"{scene}-{kind}.{name}-{place}"
                        )


def painted(stream, place, name, factor):
    if place == "voxel":
        stream.set_channel(name, np.full((1, 1, 8, 8, 8), factor), background=factor)
        return stream
    count = {"detail": 1, "point": stream.point_count, "primitive": stream.primitive_count}
    stream.set_channel(place, name, np.full(count[place], factor))
    return stream


def run(scene, frames=2, **inputs):
    make_setup, make_stream, _, others = SCENES[scene]
    given = {STREAMS[scene]: make_stream(), **others, **inputs}
    solver = lk.Solver(make_setup(), given)
    solver.run(frames)
    return solver


def seen(solver, scene):
    """All that a parameter could change, of the start's particles and of how many there are."""
    path = SCENES[scene][2]
    channels = {
        **dict.fromkeys(("water", "tap", "shell", "gust"), ("position", "velocity")),
        "puff": ("velocity", "density"),
        "sheet": ("position", "velocity", "mass", "radius"),
        "chimney": ("velocity", "density", "temperature"),
        "jet": ("position", "velocity", "mass", "lifetime"),
    }.get(scene, ("position", "velocity", "mass"))
    return [solver.read(path, name) for name in channels]


@pytest.fixture(scope="module")
def unpainted():
    """Each scene without any override, once."""
    known = {}

    def of(scene):
        if scene not in known:
            known[scene] = seen(run(scene), scene)
        return known[scene]

    return of


def test_every_parameter_that_varies_is_shown_in_a_scene():
    varying = {
        kind
        for kind, cls in registry().items()
        if cls.__module__.startswith("loki_core")
        and any(one.varies != "no" for one in cls.parameters().values())
    }
    assert varying == {kind for kinds in SHOWN.values() for kind in kinds}
    shown = {(kind, name) for _, kind, name, _ in (case.values for case in cases())}
    for kind in varying:
        names = {n for n, one in registry()[kind].parameters().items() if one.varies != "no"}
        assert names <= {name for one, name in shown if one == kind} | NOT_SHOWN


@pytest.mark.parametrize(("scene", "kind", "parameter", "place"), list(cases()))
def test_overrides_follow_an_animated_input(scene, kind, parameter, place, unpainted):
    """A factor of 1 in the first frames changes no bit; another one in the last frame does."""
    make_stream, name = SCENES[scene][1], f"{channel_names(registry()[kind], parameter)[0]}_scale"

    def stream(frame, last=1.3):
        return painted(make_stream(), place, name, last if frame == 3 else 1.0)

    found = seen(run(scene, **{STREAMS[scene]: stream}), scene)
    same = [
        one.shape == two.shape
        and np.allclose(one, two, rtol=0.0, atol=ROUNDED.get(scene, 0.0) * np.abs(two).max())
        for one, two in zip(found, unpainted(scene), strict=True)
    ]
    assert not all(same), f"{kind}.{parameter} does not follow the {place} channel"


@pytest.mark.parametrize("scene", SCENES)
def test_what_does_not_change_costs_nothing_and_changes_nothing(scene, unpainted, monkeypatch):
    from loki_core.objects.basics.object import Object

    taken = []
    for cls in (Object, *_subclasses(Object)):
        if "take_overrides" in vars(cls):
            monkeypatch.setattr(cls, "take_overrides", lambda *args: taken.append(args))
    make_stream = SCENES[scene][1]

    place = PLACES[scene][-1]

    def stream(frame):
        return painted(make_stream(), place, "gravity_acceleration_scale", 1.0)

    found = seen(run(scene, **{STREAMS[scene]: stream}), scene)
    assert not taken
    for one, two in zip(found, unpainted(scene), strict=True):
        atol = ROUNDED.get(scene, 0.0) * np.abs(two).max()
        np.testing.assert_allclose(one, two, rtol=0, atol=atol)


def _subclasses(cls):
    return [one for sub in cls.__subclasses__() for one in (sub, *_subclasses(sub))]


def test_stiffness_is_found_anew_only_where_its_overrides_change(monkeypatch):
    from loki_core.constraints.bending import BendingAction

    found = []
    inner = BendingAction.stiffness
    monkeypatch.setattr(BendingAction, "stiffness", lambda self: found.append(1) or inner(self))

    def stream(frame):
        curves = painted(groom(), "primitive", "bending_stiffness_scale", 2.0 if frame > 4 else 1.0)
        return painted(curves, "point", "wetness", float(frame))

    run("hair", frames=5, hair=stream)
    assert len(found) == 2


@pytest.mark.parametrize(("scene", "is_held"), [("hair", False), ("dust", False), ("water", True)])
def test_a_stream_is_let_go_where_nobody_needs_it_whole(scene, is_held):
    """What is given as it is stays: it is the caller's."""
    make_stream, name = SCENES[scene][1], STREAMS[scene]
    animated = run(scene, frames=1, **{name: lambda frame: make_stream()})
    assert isinstance(animated.inputs[name], lk.Curves | lk.Points) == is_held
    still = make_stream()
    assert run(scene, frames=1, **{name: still}).inputs[name] is still


# -- what follows from an override -----------------------------------------------------------------


def test_a_thicker_strand_is_heavier_and_its_scale_is_applied_once():
    def stream(frame):
        curves = painted(groom(), "point", "radius", 1e-3 * frame)
        return painted(curves, "point", "curves_radius_scale", 0.5)

    solver = run("hair", frames=0, hair=stream)
    start = solver.read(HAIR, "mass")
    for frame in (2, 3):
        solver.run(1)
        np.testing.assert_allclose(solver.read(HAIR, "radius"), 0.5e-3 * frame, rtol=1e-15)
        np.testing.assert_allclose(solver.read(HAIR, "mass"), start * frame**2, rtol=1e-12)


def test_emitted_particles_have_the_rate_and_size_of_the_present_frame():
    def stream(frame):
        points = painted(dust(), "detail", "particle_rate", 100.0 * (frame == 2))
        return painted(points, "detail", "radius", 0.001 * frame)

    solver = run("dust", dust=stream)
    radius = solver.read(DUST, "radius")
    assert len(radius) == 27 + 1
    np.testing.assert_allclose(radius[:27], 0.003)
    np.testing.assert_allclose(radius[27:], 0.002)


@pytest.mark.parametrize(("scene", "make", "path"), [("dust", dust, DUST), ("water", water, WATER)])
def test_points_are_followed_by_their_ids(scene, make, path):
    """Later frames have other orders and fewer points; what is missing keeps what it had."""
    rng = np.random.default_rng(3)
    kind, parameter = {
        "dust": ("FluidDragForce", "coefficient"),
        "water": ("ViscosityMaterial", "viscosity"),
    }[scene]
    name = channel_names(registry()[kind], parameter)[0]

    def stream(frame):
        whole = make()
        count = whole.point_count
        order = np.arange(count) if frame == 1 else rng.permutation(count)[: count - 2]
        points = lk.Points(whole.positions[order])
        points.set_channel("point", "id", 1000 - order)
        points.set_channel("point", name, order + 0.5 * frame)
        left.append(np.setdiff1d(np.arange(count), order))
        return points

    left = []
    make_setup, _, _, others = SCENES[scene]
    solver = lk.Solver(make_setup(), {scene: stream, **others})
    solver.run(2)
    found = solver.read(path, name)[: make().point_count]
    expected = np.arange(len(found)) + 1.5
    for frame, missing in ((2, left[-1]), (1, np.intersect1d(left[-2], left[-1]))):
        expected[missing] = missing + 0.5 * frame
    np.testing.assert_array_equal(found, expected)


def test_points_without_ids_may_not_change_their_number():
    def stream(frame):
        whole = dust()
        points = lk.Points(whole.positions[: 27 - frame])
        points.set_channel("point", "fluid_drag_coefficient", np.full(27 - frame, 0.1))
        return points

    with pytest.raises(InputError, match=r'has 25 points now, and 26 .* point channel "id"'):
        run("dust", dust=stream)


def test_a_painted_override_may_not_come_or_go():
    def stream(frame):
        return painted(groom(), "point", "bending_stiffness" if frame < 3 else "other", 1e-6)

    with pytest.raises(InputError, match='has the point channel "bending_stiffness" no more'):
        run("hair", hair=stream)


def test_what_an_expression_wrote_lasts_until_the_input_changes(tmp_path):
    """Also where the run goes on from a state that was kept in between."""
    name = "fluid_drag_coefficient"

    def stream(frame):
        return painted(dust(), "point", name, 2e-4 if frame >= 4 else 1e-4)

    def solver():
        group = lk.Group(
            "Dust",
            lk.ParticleObject(input="dust"),
            lk.ParticleExpression(expression=f"{name} = {name} + 1e-5", stage="SUBSTEP_END"),
            *forces(),
        )
        setup = lk.SolverSetup("dust", group, precision="double", substeps=1)
        return lk.Solver(setup, {"dust": stream})

    whole = solver()
    values = []
    for _ in range(4):
        whole.run(1)
        values.append(whole.read(DUST, name)[0])
    np.testing.assert_allclose(values, [1.1e-4, 1.2e-4, 2.1e-4, 2.2e-4], rtol=1e-6)
    first, second = solver(), solver()
    first.run(1)
    second.restore(first.state())
    second.run(3)
    for channel in ("position", "velocity", name):
        np.testing.assert_array_equal(whole.read(DUST, channel), second.read(DUST, channel))


def test_a_resumed_groom_goes_on_bit_for_bit():
    """The frame after the restart looks as the first one did, but not as the one before."""
    values = {1: 1.0, 2: 3.0, 3: 1.0, 4: 2.0}

    def stream(frame):
        curves = painted(groom(), "point", "radius_scale", values[frame])
        return painted(curves, "point", "bending_stiffness_scale", 1.0 / values[frame])

    states = []
    for stop in (3, 1):
        solver = run("hair", frames=stop, hair=stream)
        again = run("hair", frames=0, hair=stream)
        again.restore(solver.state())
        again.run(3 - stop)
        states.append(again)
    for channel in ("position", "velocity", "mass", "radius"):
        one, two = (solver.read(HAIR, channel) for solver in states)
        np.testing.assert_array_equal(one, two)
    assert all(a != b for a, b in pairwise(values.values()))
