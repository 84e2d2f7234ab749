"""Collision Constraint: solids against the distance fields of colliders."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

import loki_core as lk
from loki_core.constraints.contact_detection import contact_points
from loki_core.objects.colliders.body_collider import colliders_of

pytestmark = pytest.mark.compiles

PATH = "Hair/CurvesObject"
RADIUS, SECTION = 0.1, 1e-3
GRAVITY = 9.81


def surface(mesh, shift=(0.0, 0.0, 0.0), keep=None):
    faces = np.array(mesh.faces)
    return lk.Surface.from_faces(
        np.array(mesh.vertices) + shift, faces if keep is None else faces[keep]
    )


def sphere(subdivisions=5, shift=(0.0, 0.0, 0.0)):
    return surface(trimesh.creation.icosphere(subdivisions=subdivisions, radius=RADIUS), shift)


def slope_of(angle):
    """A plank whose upper side falls along +x by an angle."""
    mesh = trimesh.creation.box((2.0, 0.2, 2.0))
    mesh.apply_translation((0.0, -0.1, 0.0))
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    return lk.Surface.from_faces(np.array(mesh.vertices) @ turn.T, np.array(mesh.faces))


def row(points, half, height=0.0):
    """A straight strand along x."""
    places = np.zeros((points, 3))
    places[:, 0] = np.linspace(-half, half, points)
    places[:, 1] = height
    return places


def solver_of(
    points,
    collider,
    *,
    gravity=True,
    root="free",
    newton=1,
    substeps=1,
    bucket_size=None,
    rough=None,
    **options,
):
    setup = lk.SolverSetup(
        "contact",
        lk.Group(
            "Hair",
            lk.CurvesObject(input="curves", radius=SECTION, root=root),
            lk.StretchingConstraint(young_modulus=1e6),
            lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5, damping_time=0.01),
            *([lk.GravityForce()] if gravity else []),
            lk.Collider(input="solid", friction=rough),
            lk.CollisionConstraint(**options),
        ),
        newton_iterations=newton,
        substeps=substeps,
        **({} if bucket_size is None else {"bucket_size": bucket_size}),
    )
    return lk.Solver(setup, {"curves": lk.Curves(points, [0, len(points)]), "solid": collider})


def action_of(solver):
    return solver.actions["Hair/CollisionConstraint"][0]


def depth_in_sphere(solver, centre=(0.0, 0.0, 0.0)):
    """How far vertices and middles of edges are inside of the ball with the strand's radius."""
    p = solver.read(PATH, "position") - np.asarray(centre)
    p = np.concatenate((p, 0.5 * (p[1:] + p[:-1])))
    return float((RADIUS + SECTION - np.linalg.norm(p, axis=1)).max())


def energy(solver):
    mass, velocity = solver.read(PATH, "mass"), solver.read(PATH, "velocity")
    height = solver.read(PATH, "position")[:, 1]
    return float((0.5 * mass * (velocity**2).sum(axis=1) + mass * GRAVITY * height).sum())


# -- resting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("newton", [1, 4])
def test_a_strand_falls_on_a_ball_and_rests_outside(newton):
    solver = solver_of(
        row(61, 0.15, 0.12), sphere(), newton=newton, substeps=4, friction_coefficient=0.8
    )
    start, highest, deepest = energy(solver), -np.inf, 0.0
    for _ in range(48):
        solver.run(1)
        highest = max(highest, energy(solver))
        deepest = max(deepest, depth_in_sphere(solver))
    weight = solver.read(PATH, "mass").sum() * GRAVITY
    assert depth_in_sphere(solver) < 1e-3 * RADIUS
    assert deepest < 2e-2 * RADIUS  # while it wraps around at more than 1 m/s
    assert highest <= start + 1e-9 * weight
    speed = np.linalg.norm(solver.read(PATH, "velocity"), axis=1)
    assert speed.max() < 5e-3
    assert np.abs(solver.read(PATH, "position")).max() < 0.16  # it did not fall off
    # Contacts carry what lies on the ball: their forces add up to the weight.
    action = action_of(solver)
    carried = action.normal_force @ action.contacts.normal
    rubbed = -action._sticking.sum(axis=0)
    assert (carried + rubbed)[1] == pytest.approx(weight, rel=0.1)


def test_a_flat_strand_rests_at_its_thickness():
    solver = solver_of(row(9, 0.04, 0.01), slope_of(0.0), bucket_size=0.1, thickness=2e-3)
    solver.run(24)
    height = solver.read(PATH, "position")[:, 1]
    np.testing.assert_allclose(height, SECTION + 2e-3, rtol=0, atol=1e-5)
    assert np.abs(solver.read(PATH, "velocity")).max() < 1e-4


def test_a_given_stiffness_sinks_in_by_the_weight():
    solver = solver_of(
        row(2, 0.01, 0.0), slope_of(0.0), bucket_size=0.1, stiffness=5.0, edge_samples=0, substeps=4
    )
    solver.run(24)
    sunk = SECTION - solver.read(PATH, "position")[:, 1]
    np.testing.assert_allclose(sunk, solver.read(PATH, "mass") * GRAVITY / 5.0, rtol=1e-3)


def test_a_mesh_with_a_hole_stops_too():
    mesh = trimesh.creation.icosphere(subdivisions=4, radius=RADIUS)
    keep = np.array(mesh.vertices)[np.array(mesh.faces)].mean(axis=1)[:, 1] > -0.07
    solver = solver_of(row(31, 0.1, 0.11), surface(mesh, keep=keep), substeps=4)
    solver.run(12)
    assert depth_in_sphere(solver) < 5e-3 * RADIUS
    assert solver.read(PATH, "position")[15, 1] > RADIUS - 1e-3


# -- friction ----------------------------------------------------------------------------------


def on_slope(angle, mu, *, slope=None, z=0.0, **options):
    along = np.array([np.cos(angle), -np.sin(angle), 0.0])
    up = np.array([np.sin(angle), np.cos(angle), 0.0])
    points = np.zeros((5, 3))
    points[:, 2] = np.linspace(-0.02, 0.02, 5)
    points += -0.3 * along + SECTION * up + np.array([0.0, 0.0, z])
    slope = slope_of(angle) if slope is None else slope
    solver = solver_of(points, slope, bucket_size=0.1, friction_coefficient=mu, **options)
    return solver, along


@pytest.mark.parametrize(("newton", "substeps"), [(1, 1), (1, 4), (4, 1)])
def test_friction_holds_below_its_angle(newton, substeps):
    mu = 0.5
    solver, along = on_slope(np.arctan(mu) - 0.02, mu, newton=newton, substeps=substeps)
    start = solver.read(PATH, "position")
    solver.run(24)
    # What sticks creeps by the depth of the penalty in every step.
    assert np.abs((solver.read(PATH, "position") - start) @ along).max() < 2e-5
    assert np.abs(solver.read(PATH, "velocity")).max() < 2e-5


@pytest.mark.parametrize(("newton", "substeps"), [(1, 1), (1, 4), (4, 1)])
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_a_strand_slides_with_coulombs_acceleration(mu, newton, substeps):
    angle = np.radians(35.0)
    solver, along = on_slope(angle, mu, newton=newton, substeps=substeps)
    solver.run(4)
    before = (solver.read(PATH, "velocity") @ along).mean()
    solver.run(6)
    after = (solver.read(PATH, "velocity") @ along).mean()
    expected = GRAVITY * (np.sin(angle) - mu * np.cos(angle))
    assert (after - before) / (6.0 / 24.0) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("rough", [None, 0.0, 0.4, "painted"])
def test_the_friction_of_a_collider_is_used_before_that_of_the_constraint(rough):
    angle, z = np.radians(35.0), 0.5
    slope, mu = slope_of(angle), {None: 0.2, "painted": 0.4 + 0.3 * z}.get(rough, rough)
    if rough == "painted":
        slope.set_channel("point", "friction", 0.4 + 0.3 * slope.positions[:, 2])
    given = 0.9 if rough == "painted" else rough
    solver, along = on_slope(angle, 0.2, slope=slope, z=z, substeps=2, rough=given)
    solver.run(4)
    before = (solver.read(PATH, "velocity") @ along).mean()
    solver.run(6)
    found = ((solver.read(PATH, "velocity") @ along).mean() - before) / (6.0 / 24.0)
    assert found == pytest.approx(GRAVITY * (np.sin(angle) - mu * np.cos(angle)), rel=0.01)


def test_friction_stops_a_slide_and_does_not_turn_it_round():
    mu, speed = 0.4, 0.5
    solver = solver_of(
        row(5, 0.02, SECTION), slope_of(0.0), bucket_size=0.1, friction_coefficient=mu, substeps=4
    )
    velocity = np.zeros((5, 3))
    velocity[:, 2] = speed
    solver.write(PATH, "velocity", velocity)
    seen = []
    solver.observe("SUBSTEP_END", lambda s, step: seen.append(s.read(PATH, "velocity")[:, 2]))
    solver.run(12)
    assert np.min(seen) > -1e-4
    assert np.abs(seen[-1]).max() < 1e-4
    way = solver.read(PATH, "position")[:, 2].mean()
    step = 1.0 / 96.0  # backward Euler moves by the speed at the end of a step
    expected = speed**2 / (2.0 * mu * GRAVITY) - 0.5 * speed * step
    assert way == pytest.approx(expected, rel=0.03)


def test_a_moving_slope_carries_what_lies_on_it():
    def belt(frame):
        mesh = trimesh.creation.box((2.0, 0.2, 2.0))
        shift = (0.01 * (frame - 1), -0.1, 0.0)
        return surface(mesh, shift)

    solver = solver_of(
        row(5, 0.02, SECTION), belt, bucket_size=0.1, friction_coefficient=0.5, substeps=4
    )
    solver.run(16)
    velocity = solver.read(PATH, "velocity")
    np.testing.assert_allclose(velocity[:, 0], 0.24, rtol=1e-3)
    np.testing.assert_allclose(velocity[:, 1:], 0.0, atol=1e-3)


# -- motion ------------------------------------------------------------------------------------


def test_a_moving_ball_pushes_a_strand_ahead():
    def moving(frame):
        return sphere(4, (0.0, 0.0, -0.14 + 0.02 * (frame - 1)))

    solver = solver_of(row(21, 0.1), moving, gravity=False, substeps=4, friction_coefficient=0.0)
    solver.run(12)
    centre = (0.0, 0.0, -0.14 + 0.02 * 12)
    assert depth_in_sphere(solver, centre) < 5e-3 * RADIUS
    velocity, mass = solver.read(PATH, "velocity"), solver.read(PATH, "mass")
    assert (
        0.4 < (mass @ velocity[:, 2]) / mass.sum() < 0.75
    )  # the ball's 0.48 m/s, no bounce to 2 v
    assert solver.read(PATH, "position")[10, 2] > centre[2] + RADIUS


def test_edges_find_what_vertices_miss():
    # A blade of 6 mm between vertices that are 50 mm apart.
    blade = trimesh.creation.box((0.006, 0.1, 0.2))

    def lowest(samples):
        solver = solver_of(
            row(4, 0.075, 0.06), surface(blade), bucket_size=0.02, substeps=4, edge_samples=samples
        )
        solver.run(10)
        return solver.read(PATH, "position")[1:3, 1].mean()

    assert lowest(7) > 0.04
    assert lowest(0) < -0.2


def test_a_fast_point_comes_out_where_it_went_in():
    # 10 m/s and 96 steps a second: 10 cm into the plank in one step, deeper than the band.
    solver = solver_of(
        row(5, 0.02, 0.05), slope_of(0.0), bucket_size=0.05, substeps=4, friction_coefficient=0.0
    )
    velocity = np.zeros((5, 3))
    velocity[:, 1] = -10.0
    solver.write(PATH, "velocity", velocity)
    solver.run(12)
    height = solver.read(PATH, "position")[:, 1]
    np.testing.assert_allclose(height, SECTION, rtol=0, atol=1e-4)


# -- the parts ---------------------------------------------------------------------------------


def test_contacts_may_be_at_vertices_and_points_of_edges_in_the_order_of_bodies():
    points = np.concatenate((row(4, 0.1), row(3, 0.1, 0.2)))
    setup = lk.SolverSetup("places", lk.CurvesObject(input="curves"), lk.StretchingConstraint())
    solver = lk.Solver(setup, {"curves": lk.Curves(points, [0, 4, 7])})
    solver.solids.renew()
    rods = solver.object("CurvesObject")
    places, _, number = contact_points(rods, 2)
    body = rods.unknowns.body_of("position")[places.rows[:, 0]]
    assert places.count == 7 + 2 * 5
    assert np.all(np.diff(body) >= 0)
    np.testing.assert_allclose(places.weights.sum(axis=1), 1.0)
    x = places.carry(points)[:, 0]
    inside = np.unique(x[(number >= 0) & (body == 0)].round(9))
    expected = -0.1 + 0.2 / 9.0 * np.array([1, 2, 4, 5, 7, 8])
    np.testing.assert_allclose(inside, expected.round(9))


def test_the_pattern_stays_while_contacts_come_and_go():
    solver = solver_of(row(21, 0.1, 0.11), sphere(4), substeps=2)
    solver.run(1)
    values, counts = solver.solids.values, set()
    for _ in range(12):
        solver.run(1)
        counts.add(int(action_of(solver).active.sum()))
        assert solver.solids.values is values
    assert len(counts) > 1


def test_slopes_are_never_negative_and_friction_obeys_coulomb():
    solver = solver_of(row(31, 0.12, 0.12), sphere(4), substeps=4, newton=6)
    seen = []

    def look(solver, step):
        action = action_of(solver)
        if action.contacts.count == 0:
            return
        assert action.slope.min() >= 0.0
        rubbing = np.linalg.norm(action._before[:, 1:] * action.slope[:, 1:], axis=1)
        slips = action.active & (action._grip < action.k) & ~action._breaks
        limit = action._mu * action._pressure
        if step.newton > 0 and slips.any():
            assert np.all(rubbing[slips] <= limit[slips] * (1.0 + 1e-9))
            seen.append(slips.sum())

    solver.observe("EVALUATE_CONSTRAINTS", look)
    solver.run(8)
    assert sum(seen) > 10


def test_a_restart_continues_bit_for_bit():
    def moving(frame):
        return sphere(3, (0.003 * (frame - 1), 0.0, 0.0))

    def make():
        return solver_of(row(21, 0.1, 0.11), moving, substeps=2)

    whole, first, second = make(), make(), make()
    whole.run(10)
    first.run(6)
    second.restore(first.state())
    second.run(4)
    for name in ("position", "velocity", "contact", "edges.contact"):
        np.testing.assert_array_equal(second.read(PATH, name), whole.read(PATH, name), name)


def test_nothing_is_measured_where_nobody_collides():
    setup = lk.SolverSetup(
        "idle",
        lk.CurvesObject(input="curves"),
        lk.StretchingConstraint(),
        lk.Collider(input="solid"),
    )
    solver = lk.Solver(setup, {"curves": lk.Curves(row(5, 0.1, 0.1), [0, 5]), "solid": sphere(2)})
    solver.run(1)
    (collider,) = colliders_of(solver.object("CurvesObject"))
    assert collider.field.volume.buckets.local_count == 0


def test_roots_may_stand_inside():
    points = np.zeros((8, 3))
    points[:, 1] = RADIUS - 0.004 + 0.01 * np.arange(8)
    solver = solver_of(points, sphere(4), root="clamped", gravity=False)
    solver.run(6)
    np.testing.assert_allclose(solver.read(PATH, "position"), points, atol=1e-9)
