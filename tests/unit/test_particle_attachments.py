"""Attachments of Particle Objects: to each other, to strands, to hosts; births and deaths."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import InputError, SetupError
from tests.unit.attachment_scenes import attach, line, pairs_stream, solver_of

pytestmark = pytest.mark.compiles

GRAVITY = 9.81
BALL = 4.0 / 3.0 * np.pi


def points_of(positions, **channels):
    points = lk.Points(np.atleast_2d(np.asarray(positions, float)))
    for name, values in channels.items():
        points.set_channel("point", name, np.asarray(values))
    return points


def beads(name="beads", **options):
    return lk.Group(name, lk.ParticleObject(input=name, **options))


BEADS = "beads/ParticleObject"


# -- particles and particles -------------------------------------------------------------------


def two_beads(
    flexibility=1.0, k=3.0, mass=(0.01, 0.03), stretch=0.1, precision="single", **options
):
    """Two particles at 0.1 m, whose attachment is that much longer than at rest."""
    inputs = {
        "beads": points_of([[0, 0, 0], [0.1, 0, 0]], mass=np.array(mass)),
        "pairs": pairs_stream([0], [1]),
    }
    return solver_of(
        beads(),
        lk.AttachmentConstraint(
            source="beads",
            target="beads",
            emission="explicit",
            pairs="pairs",
            range=1.0,
            stiffness=k,
            rest_length=0.1 * (1.0 - stretch),
            flexibility=flexibility,
            **options,
        ),
        inputs=inputs,
        precision=precision,
    )


@pytest.mark.parametrize("flexibility", [0.0, 1.0])
def test_two_particles_swing_as_backward_euler_does(flexibility):
    """x'' = -w^2 x with w^2 = k (1/m1 + 1/m2): (1 + h^2 w^2) x1 = x0 + h v0, v1 = (x1 - x0) / h."""
    k, mass = 3.0, np.array([0.01, 0.03])
    solver = two_beads(flexibility, k, mass)
    h, square = 0.01, k * np.sum(1.0 / mass)
    x, v = 0.01, 0.0
    for _ in range(40):
        solver.run(1)
        new = (x + h * v) / (1.0 + h * h * square)
        x, v = new, (new - x) / h
        place = solver.read(BEADS, "position")
        assert place[1, 0] - place[0, 0] - 0.09 == pytest.approx(x, abs=1e-12)
    velocity = solver.read(BEADS, "velocity")
    assert velocity[1, 0] - velocity[0, 0] == pytest.approx(v, abs=1e-10)


@pytest.mark.parametrize("flexibility", [0.0, 0.5, 1.0])
def test_momentum_is_conserved(flexibility):
    solver = two_beads(flexibility, damping_time=0.01)
    start = np.array([[0.3, 0.5, -0.2], [-0.1, 0.0, 0.4]])
    solver.write(BEADS, "velocity", start)
    mass = solver.read(BEADS, "mass")
    solver.run(50)
    momentum = mass @ solver.read(BEADS, "velocity")
    np.testing.assert_allclose(momentum, mass @ start, rtol=0, atol=1e-15)


def test_gradient_is_that_of_central_differences():
    solver = two_beads(0.5)
    solver.write(BEADS, "position", [[0.0, 0.01, 0.0], [0.11, 0.0, -0.02]])
    solver.run(1)
    action, item = attach(solver), solver.object(BEADS)
    value, gradient = np.empty_like(action.value), np.empty_like(action.gradient)
    action.evaluate(value, gradient)
    step, found = 1e-6, np.zeros_like(gradient)
    for column, dof in enumerate(action.global_dofs[0]):
        sides = []
        for by in (step, -2.0 * step):
            change = np.zeros(solver.solids.size)
            change[dof] = by
            item.displace(change, 1.0, 1.0)
            action.evaluate_only(value)
            sides.append(value[0].copy())
        change[dof] = step
        item.displace(change, 1.0, 1.0)
        found[0, :, column] = (sides[0] - sides[1]) / (2.0 * step)
    np.testing.assert_allclose(gradient, found, rtol=0, atol=1e-8)
    np.testing.assert_allclose(gradient[:, :, :3], -gradient[:, :, 3:], rtol=0, atol=1e-15)


# -- particles and strands ---------------------------------------------------------------------


def rods(root="pinned", **options):
    return lk.Group(
        "rods",
        lk.CurvesObject(input="rods", root=root, radius=2e-3, **options),
        lk.StretchingConstraint(young_modulus=1e6, damping_time=0.02),
        lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5, damping_time=0.02),
    )


RODS = "rods/CurvesObject"


@pytest.mark.parametrize("source", ["beads", "rods"])
def test_a_strand_carries_a_bead(source):
    """Hung on a strand's end a bead pulls with its weight: k d = m g, and all edges carry it."""
    k, mass = 50.0, 0.02
    sides = {"beads": 0, "rods": 5}
    other = "rods" if source == "beads" else "beads"
    solver = solver_of(
        rods(),
        beads(),
        lk.GravityForce(),
        lk.AttachmentConstraint(
            source=source,
            target=other,
            emission="explicit",
            pairs="pairs",
            stiffness=k,
            flexibility=1.0,
            damping_time=0.05,
        ),
        inputs={
            "rods": lk.Curves(line((0, 0, 0), (0, -1, 0)), [0, 6]),
            "beads": points_of([[0, -0.13, 0]], mass=np.array([mass])),
            "pairs": pairs_stream([sides[source]], [sides[other]]),
        },
    )
    solver.run(300)
    end, bead = solver.read(RODS, "position"), solver.read(BEADS, "position")[0]
    assert np.linalg.norm(end[5] - bead) - 0.03 == pytest.approx(mass * GRAVITY / k, rel=1e-4)
    assert abs(bead[0]) + abs(bead[2]) < 1e-9
    # The uppermost edge carries the bead and what is below it: T = E A (l - L) / L.
    weight = GRAVITY * (mass + solver.read(RODS, "mass")[1:].sum())
    strain = (end[0, 1] - end[1, 1]) / 0.02 - 1.0
    assert 1e6 * np.pi * 2e-3**2 * strain == pytest.approx(weight, rel=1e-3)


def test_a_bead_swings_at_a_strand_like_a_pendulum():
    """A heavy bead at the end of a light strand: the period of a point at its length."""
    length = 0.1
    solver = solver_of(
        rods(),
        beads(),
        lk.GravityForce(),
        lk.AttachmentConstraint(source="beads", target="rods", stiffness=500.0),
        inputs={
            "rods": lk.Curves(line((0, 0, 0), (0.05, -1, 0)), [0, 6]),
            "beads": points_of([line((0, 0, 0), (0.05, -1, 0))[-1]], mass=np.array([0.05])),
        },
        frames_per_second=1000,
    )
    seen = []
    solver.observe("SUBSTEP_END", lambda s, _: seen.append(s.read(BEADS, "position")[0, 0]))
    solver.run(700)
    x = np.array(seen)
    crossings = np.flatnonzero((x[:-1] > 0.0) != (x[1:] > 0.0)) * 1e-3
    period = 2.0 * np.diff(crossings).mean()
    # Bending, stretch and the strand's own mass change the period by some per cent.
    assert period == pytest.approx(2.0 * np.pi * np.sqrt(length / GRAVITY), rel=0.05)


def test_closest_and_range_find_places_on_edges():
    for emission in ("closest", "within_range"):
        solver = solver_of(
            rods("free"),
            beads(),
            lk.AttachmentConstraint(
                source="beads", target="rods", emission=emission, range=0.0105, stiffness=1.0
            ),
            inputs={
                "rods": lk.Curves(line((0, 0, 0), (1, 0, 0)), [0, 6]),
                "beads": points_of([[0.035, 0.01, 0.0], [0.05, 0.5, 0.0], [0.095, 0.01, 0.0]]),
            },
        )
        solver.run(1)
        table = attach(solver).table
        assert table["source_primitive"].tolist() == [0, 2]
        assert table["target_primitive"].tolist() == [1, 4]
        np.testing.assert_allclose(table["target_weights"][:, 1], 0.75, atol=1e-6)


# -- host geometry -----------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["beads", "host"])
def test_particles_follow_an_animated_stream(source):
    start = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0]])

    def host(frame):
        return lk.Points(start + np.array([0.0, 0.002 * min(frame - 1, 50), 0.0]))

    other = "host" if source == "beads" else "beads"
    solver = solver_of(
        beads(),
        lk.AttachmentConstraint(
            source=source, target=other, stiffness=100.0, damping_time=0.02, flexibility=0.0
        ),
        inputs={"beads": points_of(start + np.array([0.01, 0.0, 0.0])), "host": host},
    )
    solver.run(120)
    expected = start + np.array([0.01, 0.1, 0.0])
    np.testing.assert_allclose(solver.read(BEADS, "position"), expected, atol=1e-5)


def test_particles_keep_their_place_on_a_turning_triangle():
    def skin(frame):
        angle = 0.01 * (frame - 1)
        c, s = np.cos(angle), np.sin(angle)
        corners = np.array([[-0.1, 0.0, -0.1], [0.2, 0.0, -0.1], [-0.1, 0.0, 0.2]])
        return lk.Surface.from_faces(corners @ np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]).T,
                                     [[0, 1, 2]])  # fmt: skip

    solver = solver_of(
        beads(),
        lk.AttachmentConstraint(source="beads", target="skin", stiffness=500.0, damping_time=0.01),
        inputs={"beads": points_of([[0.02, 0.01, 0.01]]), "skin": skin},
    )
    solver.run(100)
    c, s = np.cos(1.0), np.sin(1.0)
    expected = np.array([[0.02 * c + 0.01 * s, 0.01, 0.01 * c - 0.02 * s]])
    np.testing.assert_allclose(solver.read(BEADS, "position"), expected, atol=2e-4)


# -- births and deaths -------------------------------------------------------------------------


def test_those_that_die_take_their_attachments_with_them():
    """Four hang on one point; two of them die, and what is left carries their weight alone."""
    places = np.array([[0.02 * i, -0.05, 0.0] for i in range(4)])
    lifetime = np.array([np.inf, 0.055, np.inf, 0.105])
    k = 20.0
    solver = solver_of(
        beads(),
        lk.GravityForce(),
        lk.AttachmentConstraint(
            source="beads", target="host", stiffness=k, damping_time=0.05, friction=1e-4,
            friction_stiffness=1.0,
        ),
        inputs={
            "beads": points_of(places, lifetime=lifetime, mass=np.full(4, 0.01)),
            "host": lk.Points(places + np.array([0.0, 0.05, 0.0])),
        },
    )  # fmt: skip
    counts = []
    for _ in range(14):
        solver.run(1)
        counts.append(len(attach(solver).numbers))
    assert counts == [4] * 6 + [3] * 5 + [2] * 3
    assert attach(solver).table["source_primitive"].tolist() == [0, 2]
    assert len(attach(solver).held_tension) == 2
    solver.run(200)
    sunk = places[[0, 2], 1] - solver.read(BEADS, "position")[:, 1]
    # Friction of 1e-4 N may hold them a little above.
    np.testing.assert_allclose(sunk, 0.01 * GRAVITY / k, rtol=2e-3)


def test_those_that_are_born_are_found_at_every_step():
    """Beads drip past a wire; each is held while it is in range, and let go behind it."""
    solver = solver_of(
        lk.Group(
            "beads",
            lk.ParticleObject(source="tap", rate=50.0, velocity=(1.0, 0.0, 0.0), lifetime=0.3),
        ),
        lk.AttachmentConstraint(
            source="beads",
            target="host",
            emission="within_range",
            range=0.03,
            every_step=True,
            stiffness=1e-9,
            flexibility=1.0,
        ),
        inputs={"tap": lk.Points([[0.0, 0.0, 0.0]]), "host": lk.Points([[0.1, 0.01, 0.0]])},
    )
    seen = set()
    for _ in range(60):
        x = solver.read(BEADS, "position")  # before the step, when pairs are looked for
        ids = solver.read(BEADS, "id")
        solver.run(1)
        reached = np.linalg.norm(x - [0.1, 0.01, 0.0], axis=1) <= 0.03
        held = np.sort(attach(solver).table["source_primitive"])
        np.testing.assert_array_equal(held, ids[reached])
        seen |= set(held.tolist())
    assert len(seen) > 15 and len(solver.read(BEADS, "mass")) < 20


def test_explicit_pairs_wait_for_births_if_they_are_looked_for_again():
    def make(every_step):
        return solver_of(
            lk.Group("beads", lk.ParticleObject(source="tap", rate=50.0, lifetime=0.1)),
            lk.AttachmentConstraint(
                source="beads",
                target="host",
                emission="explicit",
                pairs="pairs",
                every_step=every_step,
            ),
            inputs={
                "tap": lk.Points([[0.0, 0.0, 0.0]]),
                "host": lk.Points([[0.1, 0.0, 0.0]]),
                "pairs": pairs_stream([2, 3], [0, 0]),
            },
        )

    solver, counts = make(True), []
    for _ in range(20):
        solver.run(1)
        counts.append(len(attach(solver).table["length"]))
    assert counts[:6] == [0] * 6 and max(counts) == 2 and counts[-1] == 0
    with pytest.raises(InputError, match=r"\[0\] = 2 is not one of 0 particles that are there"):
        make(False).run(1)
    bad = make(True)
    bad.inputs["pairs"].set_channel("point", "source_id", np.array([-1, 0]))
    with pytest.raises(InputError, match=r"source_id.*= -1"):
        bad.run(1)


# -- numbers, state and bad input --------------------------------------------------------------


def test_a_restart_continues_bit_for_bit():
    rng = np.random.default_rng(3)
    places = 0.1 * rng.random((40, 3))

    def make():
        return solver_of(
            lk.Group(
                "beads",
                lk.ParticleObject(
                    input="beads", source="tap", rate=150.0, velocity=(0.3, 0, 0), lifetime=0.12
                ),
            ),
            rods(),
            lk.GravityForce(),
            lk.AttachmentConstraint(
                source="beads",
                target="beads",
                emission="within_range",
                range=0.03,
                every_step=True,
                stiffness=0.5,
                flexibility=0.5,
                friction=1e-5,
                friction_stiffness=0.1,
                damping_time=0.01,
            ),
            lk.AttachmentConstraint(name="Other", source="rods", target="beads", stiffness=1.0),
            inputs={
                "beads": points_of(places, lifetime=np.where(np.arange(40) % 3, np.inf, 0.08)),
                "tap": lk.Points(places[:5]),
                "rods": lk.Curves(line((0, 0.1, 0), (1, 0, 0)), [0, 6]),
            },
            bucket_size=0.02,
            substeps=2,
        )

    whole, first, second = make(), make(), make()
    whole.run(14)
    first.run(9)
    second.restore(first.state())
    second.run(5)
    assert len(whole.read(BEADS, "mass")) != 40
    for name in ("position", "velocity"):
        np.testing.assert_array_equal(second.read(BEADS, name), whole.read(BEADS, name), name)
        np.testing.assert_array_equal(second.read(RODS, name), whole.read(RODS, name), name)


def test_a_pattern_lasts_while_the_same_particles_change_rows():
    """Numbers go by id: rods and particles keep their matrix, though rows are sorted anew."""
    rng = np.random.default_rng(5)
    places = 0.2 * rng.random((60, 3))
    solver = solver_of(
        beads(),
        rods(),
        lk.AttachmentConstraint(source="beads", target="rods", stiffness=0.1),
        inputs={
            "beads": points_of(places, velocity=rng.standard_normal((60, 3))),
            "rods": lk.Curves(line((0, 0, 0), (1, 0, 0)), [0, 6]),
        },
        bucket_size=0.02,
    )
    solver.run(1)
    item, system = solver.object(BEADS), solver.solids
    values, version, dofs = system.values, system.version, attach(solver).global_dofs
    orders = {item.particles.local("id").tobytes()}
    for _ in range(5):
        solver.run(1)
        orders.add(item.particles.local("id").tobytes())
        np.testing.assert_array_equal(
            item.unknowns.starts("position"), 3 * item.particles.local("id")
        )
        assert system.values is values and system.version == version
        assert attach(solver).global_dofs is dofs
    assert len(orders) > 3


def test_particles_alone_stay_out_of_the_joint_system():
    solver = solver_of(
        beads(),
        lk.GravityForce(),
        lk.Collider(input="skin"),
        lk.SagFreeStart(),
        inputs={
            "beads": points_of([[0, 0, 0]]),
            "skin": lk.Surface.from_faces(np.eye(3), [[0, 1, 2]]),
        },
    )
    solver.run(1)
    assert solver.solids is None
    assert solver.object(BEADS).particles.dtype == np.float32
    labels = {one.label for some in solver.schedule.values() for one in some}
    assert f"{BEADS}.solve" in labels and not any("assemble" in one for one in labels)
    assert {one.path for one in solver.inactive} == {"Collider", "SagFreeStart"}


def test_sag_free_start_leaves_joined_particles_alone():
    solver = solver_of(
        rods("clamped"),
        beads(),
        lk.GravityForce(),
        lk.SagFreeStart(),
        lk.AttachmentConstraint(source="beads", target="host"),
        inputs={
            "rods": lk.Curves(line((0, 0, 0), (1, 0, 0)), [0, 6]),
            "beads": points_of([[0, 0.5, 0]]),
            "host": lk.Points([[0.0, 0.5, 0.0]]),
        },
    )
    start = solver.read(RODS, "position")
    solver.run(10)
    np.testing.assert_allclose(solver.read(RODS, "position"), start, atol=1e-7)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"orientation_stiffness": (0.0, 1.0, 0.0)},
            "AttachmentConstraint.orientation_stiffness = .* beads/ParticleObject has particles",
        ),
        ({"target": "gas"}, 'target = "gas" is a .*; points of Curves and Particle Objects'),
        ({"source": "beads", "target": "beads"}, "to itself"),
    ],
)
def test_what_cannot_be_attached_is_refused(parameters, message):
    with pytest.raises(SetupError, match=message):
        solver_of(
            beads(),
            lk.Group("gas", lk.VolumeObject(voxel_size=0.1, around="beads")),
            lk.AttachmentConstraint(**{"source": "beads", "target": "host", **parameters}),
            inputs={"beads": points_of([[0, 0, 0]]), "host": lk.Points([[0.0, 0.0, 0.0]])},
        )


def test_axes_of_strands_may_be_held_by_those_of_the_world():
    """A particle as target has the world's axes: a strand attached to it does not twist away."""
    turned = {}
    for beta in (0.0, 1e-3):
        solver = solver_of(
            rods("free"),
            beads(),
            lk.AttachmentConstraint(
                source="rods",
                target="beads",
                stiffness=100.0,
                orientation_stiffness=(0, beta, beta),
            ),
            inputs={
                "rods": lk.Curves(line((0, 0, 0), (0, 1, 0), points=3), [0, 3]),
                "beads": points_of([[0.01, 0.0, 0.0]], mass=np.array([1.0])),
            },
        )
        solver.write(RODS, "edges.angular_velocity", np.full(2, 2.0))
        solver.run(50)
        turned[beta] = np.abs(solver.read(RODS, "edges.angle")).max()
    assert turned[0.0] == pytest.approx(1.0, rel=1e-3)
    assert turned[1e-3] < 0.2
