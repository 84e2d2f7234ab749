"""Particle Objects against colliders: they rest, slide, are carried, come and go."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

import loki_core as lk

pytestmark = pytest.mark.compiles

PATH = "Dust/ParticleObject"
RADIUS, GRAVITY = 5e-3, 9.81


def plank(angle=0.0, shift=(0.0, 0.0, 0.0)):
    """A box whose upper side goes through the origin and falls along +x by an angle."""
    mesh = trimesh.creation.box((2.0, 0.2, 2.0))
    mesh.apply_translation((0.0, -0.1, 0.0))
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    return lk.Surface.from_faces(np.array(mesh.vertices) @ turn.T + shift, np.array(mesh.faces))


def solver_of(
    points, collider, *, objects=(), group=(), inputs=None, velocity=None, newton=1, rough=None,
    **more,
):  # fmt: skip
    """Particles, a collider and gravity; more are options of the Constraint and of the Setup."""
    names = ("friction_coefficient", "thickness", "restitution")
    options = {name: more.pop(name) for name in names if name in more}
    settings = {"bucket_size": 0.1, "newton_iterations": newton, **more}
    stream = points if isinstance(points, lk.Points) else lk.Points(np.atleast_2d(points))
    if velocity is not None:
        stream.set_channel("point", "velocity", np.broadcast_to(velocity, stream.positions.shape))
    setup = lk.SolverSetup(
        "contact",
        lk.Group(
            "Dust",
            lk.ParticleObject(input="points", radius=RADIUS),
            lk.GravityForce(),
            lk.Collider(input="solid", friction=rough),
            lk.CollisionConstraint(**options),
            *group,
        ),
        *objects,
        **settings,
    )
    return lk.Solver(setup, {"points": stream, "solid": collider, **(inputs or {})})


def grid(count, spacing, height):
    x, z = np.meshgrid(*[spacing * (np.arange(count) - 0.5 * (count - 1))] * 2, indexing="ij")
    return np.stack((x.ravel(), np.full(count * count, height), z.ravel()), axis=1)


# -- resting and rubbing -----------------------------------------------------------------------


@pytest.mark.parametrize(("newton", "substeps"), [(1, 1), (1, 4), (4, 2)])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_particles_rest_at_their_radius(newton, substeps, precision):
    """What falls stays where it touches, to the last bit."""
    solver = solver_of(
        grid(4, 0.03, 0.02), plank(), newton=newton, substeps=substeps, precision=precision
    )
    solver.run(24)
    there = solver.read(PATH, "position")
    np.testing.assert_allclose(there[:, 1], RADIUS, rtol=0, atol=1e-7)
    solver.run(24)
    np.testing.assert_allclose(solver.read(PATH, "position"), there, rtol=0, atol=1e-8)
    assert np.abs(solver.read(PATH, "velocity")).max() < 1e-6


def on_slope(angle, mu, **settings):
    along = np.array([np.cos(angle), -np.sin(angle), 0.0])
    up = np.array([np.sin(angle), np.cos(angle), 0.0])
    points = -0.3 * along + RADIUS * up + np.array([[0.0, 0.0, z] for z in (-0.05, 0.0, 0.02)])
    return solver_of(points, plank(angle), friction_coefficient=mu, **settings), along


@pytest.mark.parametrize(("newton", "substeps"), [(1, 1), (1, 4), (4, 1)])
def test_friction_holds_below_its_angle(newton, substeps):
    mu = 0.5
    solver, along = on_slope(np.arctan(mu) - 0.02, mu, newton=newton, substeps=substeps)
    start = solver.read(PATH, "position")
    solver.run(24)
    # It falls to where the voxels of the plank have their surface, and stays.
    assert np.abs((solver.read(PATH, "position") - start) @ along).max() < 1e-6
    assert np.abs(solver.read(PATH, "velocity")).max() < 1e-6


@pytest.mark.parametrize(("newton", "substeps"), [(1, 1), (1, 4), (4, 1)])
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_particles_slide_with_coulombs_acceleration(mu, newton, substeps):
    angle = np.radians(35.0)
    solver, along = on_slope(angle, mu, newton=newton, substeps=substeps)
    solver.run(4)
    before = solver.read(PATH, "velocity") @ along
    solver.run(6)
    after = solver.read(PATH, "velocity") @ along
    expected = GRAVITY * (np.sin(angle) - mu * np.cos(angle))
    np.testing.assert_allclose((after - before) / (6.0 / 24.0), expected, rtol=0.01)


@pytest.mark.parametrize("rough", [None, 0.0, 0.4, "painted"])
@pytest.mark.parametrize("droplets", [False, True])
def test_the_friction_of_a_collider_is_used_before_that_of_the_constraint(rough, droplets):
    angle, z = np.radians(35.0), np.array([-0.6, 0.0, 0.6])
    along, up = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]])
    slope, mu = plank(angle), {None: 0.2, "painted": 0.4 + 0.3 * z}.get(rough, rough)
    if rough == "painted":
        slope.set_channel("point", "friction", 0.4 + 0.3 * slope.positions[:, 2])
    solver = solver_of(
        -0.3 * along + RADIUS * up + z[:, None] * [0.0, 0.0, 1.0], slope, substeps=2,
        friction_coefficient=0.2, rough=0.9 if rough == "painted" else rough,
        group=(lk.BinaryDropletCollisions(max_satellites=0),) if droplets else (),
    )  # fmt: skip
    solver.run(4)
    before = solver.read(PATH, "velocity") @ along
    solver.run(6)
    found = (solver.read(PATH, "velocity") @ along - before) / (6.0 / 24.0)
    np.testing.assert_allclose(found, GRAVITY * (np.sin(angle) - mu * np.cos(angle)), rtol=0.01)


def test_each_contact_has_the_friction_of_its_own_collider():
    angle = np.radians(35.0)
    along, up = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]])
    solver = solver_of(
        -0.3 * along + RADIUS * up + np.array([[0.0, 0.0, z] for z in (0.0, 2.0, 4.0)]),
        plank(angle), friction_coefficient=0.3, rough=0.1,
        group=(lk.Collider(input="next"), lk.Collider(input="last", friction=0.5)),
        inputs={
            "next": plank(angle, shift=(0.0, 0.0, 2.0)),
            "last": plank(angle, shift=(0.0, 0.0, 4.0)),
        },
    )  # fmt: skip
    solver.run(4)
    before = solver.read(PATH, "velocity") @ along
    solver.run(6)
    found = (solver.read(PATH, "velocity") @ along - before) / (6.0 / 24.0)
    expected = GRAVITY * (np.sin(angle) - np.array([0.1, 0.3, 0.5]) * np.cos(angle))
    np.testing.assert_allclose(found, expected, rtol=0.01)


def test_a_thrown_particle_comes_to_rest_where_friction_stops_it():
    mu, speed, substeps = 0.4, 0.5, 4
    solver = solver_of(
        (0.0, RADIUS, 0.0),
        plank(),
        velocity=(0.0, 0.0, speed),
        friction_coefficient=mu,
        substeps=substeps,
    )
    seen = []
    solver.observe("SUBSTEP_END", lambda s, _: seen.append(s.read(PATH, "velocity")[0, 2]))
    solver.run(12)
    assert min(seen) > -1e-4 and abs(seen[-1]) < 1e-4
    step = 1.0 / 24.0 / substeps  # backward Euler moves by the speed at the end of a step
    expected = speed**2 / (2.0 * mu * GRAVITY) - 0.5 * speed * step
    assert solver.read(PATH, "position")[0, 2] == pytest.approx(expected, rel=0.03)


# -- moving and impact -------------------------------------------------------------------------


def test_a_moving_collider_carries_what_lies_on_it():
    def belt(frame):
        return plank(shift=(0.01 * (frame - 1), 0.0, 0.0))

    solver = solver_of(grid(3, 0.04, RADIUS), belt, friction_coefficient=0.5, substeps=4)
    solver.run(16)
    velocity = solver.read(PATH, "velocity")
    np.testing.assert_allclose(velocity[:, 0], 0.24, rtol=1e-3)
    np.testing.assert_allclose(velocity[:, 1:], 0.0, atol=1e-3)


def test_a_rising_collider_lifts():
    def lift(frame):
        return plank(shift=(0.0, 0.005 * (frame - 1), 0.0))

    solver = solver_of((0.0, RADIUS, 0.0), lift, substeps=2)
    solver.run(20)
    assert solver.read(PATH, "position")[0, 1] == pytest.approx(RADIUS + 0.1, abs=1e-4)
    assert solver.read(PATH, "velocity")[0, 1] == pytest.approx(0.12, rel=1e-3)


@pytest.mark.parametrize("newton", [1, 4])
@pytest.mark.parametrize("direction", [(0.0, -3.0, 0.0), (2.0, -2.0, 0.5)])
def test_impact_gains_no_energy(direction, newton):
    solver = solver_of(
        grid(3, 0.05, 0.1), plank(0.2), velocity=direction, newton=newton, substeps=2
    )
    mass = solver.read(PATH, "mass")

    def energy(solver):
        speed2 = (solver.read(PATH, "velocity") ** 2).sum(axis=1)
        return mass * (0.5 * speed2 + GRAVITY * solver.read(PATH, "position")[:, 1])

    seen = [energy(solver)]
    solver.observe("SUBSTEP_END", lambda s, _: seen.append(energy(s)))
    solver.run(12)
    assert np.max(np.diff(seen, axis=0)) <= 1e-6 * np.max(seen[0])
    assert np.max(seen[-1] - seen[0]) < 0.0


def test_a_fast_particle_comes_out_where_it_went_in():
    # 10 m/s and 96 steps a second: 10 cm into the plank in one step, deeper than the band.
    solver = solver_of(
        (0.0, 0.05, 0.0), plank(), velocity=(0.0, -10.0, 0.0), substeps=4, bucket_size=0.05
    )
    solver.run(12)
    assert solver.read(PATH, "position")[0, 1] == pytest.approx(RADIUS, abs=1e-4)


def test_a_shallow_band_grows_with_the_particles():
    """Radii that only emitted particles have, larger than the band of the field at the start."""
    stream = lk.Points([[0.0, 0.05, 0.0]])
    setup = lk.SolverSetup(
        "rain",
        lk.ParticleObject(source="tap", rate=24.0, radius=0.04, velocity=(0.0, -1.0, 0.0)),
        lk.GravityForce(),
        lk.Collider(input="solid"),
        lk.CollisionConstraint(),
        bucket_size=0.02,
        substeps=2,
    )
    solver = lk.Solver(setup, {"tap": stream, "solid": plank()})
    solver.run(12)
    assert len(solver.read("ParticleObject", "mass")) == 12
    height = solver.read("ParticleObject", "position")[:-3, 1]
    np.testing.assert_allclose(height, 0.04, atol=1e-4)


# -- rows, births and deaths -------------------------------------------------------------------


def rain(**settings):
    """Particles of different sizes that fall on a plank that moves, appear, and die."""
    rng = np.random.default_rng(7)
    count = 60
    places = np.stack((0.3 * rng.random(count), 0.02 + 0.1 * rng.random(count),
                       0.3 * rng.random(count)), axis=1)  # fmt: skip
    stream = lk.Points(places)
    stream.set_channel("point", "radius", 0.003 + 0.004 * rng.random(count))
    stream.set_channel("point", "velocity", 0.5 * rng.standard_normal((count, 3)))
    stream.set_channel("point", "lifetime", np.where(np.arange(count) % 4, np.inf, 0.2))

    def belt(frame):
        return plank(0.1, (0.004 * (frame - 1), 0.0, 0.0))

    setup = lk.SolverSetup(
        "rain",
        lk.Group(
            "Dust",
            lk.ParticleObject(
                input="points",
                source="tap",
                rate=100.0,
                velocity=(0.5, 0.0, 0.2),
                lifetime=0.4,
                radius=RADIUS,
            ),
            lk.FluidDragForce(law="linear", coefficient=1e-4),
            lk.Collider(input="solid"),
            lk.CollisionConstraint(friction_coefficient=0.4),
        ),
        lk.GravityForce(),
        **{"bucket_size": 0.05, "substeps": 2, **settings},
    )
    return lk.Solver(setup, {"points": stream, "tap": lk.Points(places[:8]), "solid": belt})


def test_a_restart_continues_bit_for_bit():
    whole, first, second = rain(), rain(), rain()
    whole.run(12)
    first.run(7)
    second.restore(first.state())
    second.run(5)
    np.testing.assert_array_equal(second.read(PATH, "id"), whole.read(PATH, "id"))
    for name in ("position", "velocity"):
        np.testing.assert_array_equal(second.read(PATH, name), whole.read(PATH, name), name)


def test_particles_come_and_go_while_others_rest():
    solver = rain()
    present = set()
    for _ in range(24):
        solver.run(1)
        present.add(solver.read(PATH, "id").tobytes())
    assert len(present) > 10
    radius, position = solver.read(PATH, "radius"), solver.read(PATH, "position")
    distance = position[:, 0] * np.sin(0.1) + position[:, 1] * np.cos(0.1)
    distance -= 0.004 * 24 * np.sin(0.1)  # the belt has gone along x
    assert np.min(distance - radius) > -1e-6
    assert (distance - radius < 1e-6).sum() > 30


def test_what_sticks_goes_on_to_whatever_rows_it_is_in():
    """A heap on a belt changes Buckets all the time; what sticks goes on to stick."""

    def belt(frame):
        return plank(shift=(0.02 * (frame - 1), 0.0, 0.013 * (frame - 1)))

    solver = solver_of(
        grid(6, 0.017, RADIUS), belt, friction_coefficient=0.6, substeps=2, bucket_size=0.03
    )
    item, orders = solver.object(PATH), set()
    solver.run(12)
    start = solver.read(PATH, "position")
    for _ in range(6):
        solver.run(1)
        orders.add(item.particles.local("id").tobytes())
    assert len(orders) > 3
    moved = solver.read(PATH, "position") - start
    np.testing.assert_allclose(moved, np.tile([0.12, 0.0, 0.078], (36, 1)), atol=1e-4)


def test_strands_and_particles_meet_one_collider():
    strand = np.zeros((5, 3))
    strand[:, 0], strand[:, 1] = np.linspace(-0.02, 0.02, 5), 0.01
    solver = solver_of(
        grid(2, 0.05, 0.03),
        plank(),
        group=(
            lk.CurvesObject(input="curves", root="free", radius=1e-3),
            lk.StretchingConstraint(young_modulus=1e6),
            lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5, damping_time=0.01),
        ),
        inputs={"curves": lk.Curves(strand, [0, 5])},
        substeps=2,
    )
    solver.run(24)
    np.testing.assert_allclose(solver.read(PATH, "position")[:, 1], RADIUS, atol=1e-5)
    np.testing.assert_allclose(solver.read("Dust/CurvesObject", "position")[:, 1], 1e-3, atol=1e-5)


def test_sides_of_the_box_hold_them_too():
    """A periodic axis and a wall, with a collider inside."""
    solver = solver_of(
        grid(3, 0.05, 0.05),
        plank(),
        velocity=(1.0, 0.0, 0.5),
        friction_coefficient=0.0,
        substeps=4,
        domain_lower=(-0.2, -0.4, -0.2),
        domain_upper=(0.2, 0.4, 0.2),
        boundary_lower=("periodic", "open", "wall"),
        boundary_upper=("periodic", "open", "wall"),
    )
    solver.run(24)
    place, velocity = solver.read(PATH, "position"), solver.read(PATH, "velocity")
    np.testing.assert_allclose(place[:, 1], RADIUS, atol=1e-4)
    np.testing.assert_allclose(place[:, 2], 0.2, atol=1e-6)
    np.testing.assert_allclose(velocity[:, 0], 1.0, rtol=1e-3)
    start = grid(3, 0.05, 0.05)[:, 0]
    expected = (start + 1.0 + 0.2) % 0.4 - 0.2
    gap = (place[:, 0] - expected + 0.2) % 0.4 - 0.2
    np.testing.assert_allclose(gap, 0.0, atol=2e-3)
