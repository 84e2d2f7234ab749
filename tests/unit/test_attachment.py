"""Attachments: exact derivatives and balance of forces, what each flexibility holds, emission."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.constraints.attachment_emission import Geometry, find_pairs
from loki_core.errors import InputError, SetupError
from tests.unit.attachment_scenes import attach, line, pairs_stream, solver_of

pytestmark = pytest.mark.compiles

THICK = 2e-3  # m; strands whose rotational inertia is not lost in rounding
SOFT = 1e6  # Pa


def strands(*lines):
    sizes = [len(one) for one in lines]
    return lk.Curves(np.concatenate(lines), np.concatenate(([0], np.cumsum(sizes))))


def rods(name, *, root="free", elastic=True, damping=0.0):
    parts = [lk.CurvesObject(input=name, root=root, radius=THICK)]
    if elastic:
        parts.append(lk.StretchingConstraint(young_modulus=SOFT, damping_time=damping))
        parts.append(lk.BendingConstraint(young_modulus=SOFT, shear_modulus=SOFT / 3))
    return lk.Group(name, *parts)


def two_strands(flexibility, *, orientation=(0.3, 0.2, 0.1), **settings):
    """Strand `a` along x, closed strand `b` above it, joined at places along edges."""
    angle = np.linspace(0.0, 2.0 * np.pi, 7)[:-1]
    ring = np.stack((0.05 + 0.04 * np.cos(angle), 0.03 + 0 * angle, 0.04 * np.sin(angle)), axis=1)
    return solver_of(
        rods("a"),
        rods("b"),
        lk.AttachmentConstraint(
            source="a",
            target="b",
            flexibility=flexibility,
            stiffness=50.0,
            tangential_stiffness=20.0,
            orientation_stiffness=orientation,
            **settings,
        ),
        inputs={"a": strands(line((0.0, 0.0, 0.0))), "b": lk.Curves(ring, [0, 6], True)},
    )


def shake(solver, rng, size=0.004):
    """Move all unknowns a little; frames follow."""
    system = solver.solids
    change = size * rng.standard_normal(system.size)
    for item in system.solids:
        part = system._part(change, item)
        part[item.unknowns.rows("twist")] *= 100.0
        item.displace(part, 1.0, 1.0)


def moved(solver, dof, by):
    change = np.zeros(solver.solids.size)
    change[dof] = by
    for item in solver.solids.solids:
        item.displace(solver.solids._part(change, item), 1.0, 1.0)


# -- algebra -----------------------------------------------------------------------------------


@pytest.mark.parametrize("flexibility", [0.0, 0.5, 1.0])
def test_gradient_is_that_of_central_differences(flexibility):
    solver = two_strands(flexibility)
    solver.run(1)
    shake(solver, np.random.default_rng(3))
    action = attach(solver)
    value, gradient = np.empty_like(action.value), np.empty_like(action.gradient)
    action.evaluate(value, gradient)
    assert np.abs(value).max() > 0.01
    step, found = 1e-6, np.zeros_like(gradient)
    for dof in range(solver.solids.size):
        sides = []
        for by in (step, -2.0 * step):
            moved(solver, dof, by)
            action.evaluate_only(value)
            sides.append(value.copy())
        moved(solver, dof, step)
        for element, places in enumerate(action.global_dofs):
            found[element][:, places == dof] = ((sides[0] - sides[1]) / (2 * step))[element][
                :, None
            ]
    # d is 0.03 m long: derivatives reach 1 / |d|, and their own thirds 1 / |d|^3.
    np.testing.assert_allclose(gradient, found, rtol=0, atol=2e-7 * np.abs(found).max())


@pytest.mark.parametrize("flexibility", [0.0, 0.5, 1.0])
def test_inner_forces_balance(flexibility):
    """Sum of f = 0 and sum of x × f + t f_theta = 0: C does not see rigid motions."""
    solver = two_strands(flexibility)
    solver.run(1)
    shake(solver, np.random.default_rng(4))
    action, system = attach(solver), solver.solids
    action.evaluate(action.value, action.gradient)
    force = np.zeros(system.size)
    tension = action.k * action.value
    np.add.at(force, action.global_dofs, -np.einsum("nma,nm->na", action.gradient, tension))
    total, moment, scale = np.zeros(3), np.zeros(3), np.abs(force).max()
    for item in system.solids:
        own = system._part(force, item)
        on_points = item.unknowns.gather(own, "position")
        total += on_points.sum(axis=0)
        moment += np.cross(item.particles.local("position"), on_points).sum(axis=0)
        moment += item.unknowns.gather(own, "twist")[:, 0] @ item.edges.local("tangent")
    assert scale > 1e-3
    np.testing.assert_allclose(total, 0.0, atol=1e-12 * scale)
    np.testing.assert_allclose(moment, 0.0, atol=1e-12 * scale)


@pytest.mark.parametrize("flexibility", [0.0, 1.0])
def test_rigid_motion_is_free(flexibility):
    solver = two_strands(flexibility)
    solver.run(1)
    turn = rotation((0.3, -0.5, 0.8), 2.0)
    for path in ("a/CurvesObject", "b/CurvesObject"):
        solver.write(path, "position", solver.read(path, "position") @ turn.T + [0.1, 0.2, 0.0])
        item = solver.object(path)
        # Transport leaves out the turn about the edge: frames are turned by hand.
        item.edges.local("reference")[:] = rest_reference(item, turn)
    action = attach(solver)
    action.evaluate_only(action.value)
    np.testing.assert_allclose(action.value, 0.0, atol=1e-12)


def rest_reference(item, turn):
    """References of a strand that has only been turned rigidly since the start."""
    fresh = solver_of(rods("c"), inputs={"c": item.overriding_stream()}).object("c/CurvesObject")
    return fresh.edges.local("reference") @ turn.T


def rotation(axis, angle):
    axis = np.asarray(axis) / np.linalg.norm(axis)
    cross = np.cross(np.eye(3), -axis)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def test_joint_matrix_is_the_sum_over_elements():
    """Envelope and remainder together are M / h^2 + sum of G^T s G, also inside one body."""
    curves = strands(line((0, 0, 0)), line((0, 0.02, 0)), line((0.01, 0.04, 0.01)))
    curves.set_channel("point", "pinned", np.isin(np.arange(18), (2, 9)).astype(np.int32))
    pairs = pairs_stream([0, 1, 0, 5, 7, 5], [8, 12, 5, 4, 14, 3])  # three inside one strand
    solver = solver_of(
        rods("a", elastic=False),
        lk.AttachmentConstraint(
            source="a",
            target="a",
            emission="explicit",
            pairs="pairs",
            flexibility=0.6,
            orientation_stiffness=(0.1, 0.2, 0.3),
        ),
        lk.GravityForce(),
        inputs={"a": curves, "pairs": pairs},
    )
    system, action = solver.solids, attach(solver)
    matrices = []
    solver.observe(
        "EVALUATE_CONSTRAINTS",
        lambda *_: matrices.append((dense(system), action._matrices.copy(), system.rhs.copy())),
    )
    solver.run(3)
    whole, elements, rhs = matrices[-1]
    expected, force = np.zeros((system.size, system.size)), np.zeros(system.size)
    for places, matrix in zip(action.global_dofs, elements, strict=True):
        np.add.at(expected, (places[:, None], places[None]), matrix)
    np.add.at(force, action.global_dofs, -np.einsum("nma,nm->na", action.gradient, action.tension))
    free = system.fixed == 0
    assert free.sum() < system.size
    expected[~free], expected[:, ~free] = 0.0, 0.0
    np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(rhs, force * free, rtol=0, atol=1e-12 * np.abs(force).max())
    assert system.linear.has_couplings


def dense(system):
    import scipy.sparse as sp

    indptr, indices, data = system.linear.csr()
    return sp.csr_matrix((data, indices, indptr), shape=(system.size, system.size)).toarray()


def test_any_number_of_threads_gives_the_same_bits():
    from loki_core.kernels.jit import set_thread_count, thread_count

    before, found = thread_count(), []
    for threads in (1, 2):
        set_thread_count(threads)
        solver = two_strands(0.5, emission="within_range", range=0.06)
        solver.run(3)
        found.append(solver.read("a/CurvesObject", "position"))
    set_thread_count(before)
    np.testing.assert_array_equal(*found)


# -- motion ------------------------------------------------------------------------------------


def momenta(solver, tangents=None):
    """Linear momentum, and angular momentum with that of the edges' own spin about tangents."""
    linear, angular = np.zeros(3), np.zeros(3)
    for item in solver.solids.solids:
        particles, edges = item.particles, item.edges
        impulse = particles.local("mass")[:, None] * particles.local("velocity")
        linear += impulse.sum(axis=0)
        angular += np.cross(particles.local("position"), impulse).sum(axis=0)
        spin = edges.local("inertia") * edges.local("angular_velocity")
        angular += spin @ (edges.local("tangent") if tangents is None else tangents[item.path])
    return linear, angular


def stretched(flexibility, **settings):
    """Six attachments that begin with about 10 mm more than their rest length."""
    return two_strands(flexibility, rest_length=0.02, orientation=(0.0, 0.0, 0.0), **settings)


@pytest.mark.parametrize("flexibility", [0.0, 1.0])
def test_momentum_is_conserved(flexibility):
    solver = stretched(flexibility)
    for path, size in (("a/CurvesObject", 0.5), ("b/CurvesObject", -0.3)):
        velocity = np.random.default_rng(5).standard_normal((6, 3)) * size
        solver.write(path, "velocity", velocity)
    before, _ = momenta(solver)
    solver.run(20)
    after, _ = momenta(solver)
    impulse = 6 * 50.0 * 0.01 * 0.01  # N s, that attachments give each body in a step at first
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-10 * impulse)


@pytest.mark.parametrize("flexibility", [0.0, 1.0])
def test_angular_momentum_from_rest(flexibility):
    """The first step's forces act where the points are, so it adds no angular momentum.

    Later, backward Euler loses h^2 v × f a step, whatever the force: that is its first order.
    """
    solver = stretched(flexibility)
    tangents = {i.path: i.edges.local("tangent").copy() for i in solver.solids.solids}
    solver.run(1)
    _, angular = momenta(solver, tangents)
    scale = sum(
        np.abs(np.cross(i.particles.local("position"), i.particles.local("velocity"))).sum()
        * i.particles.local("mass").max()
        for i in solver.solids.solids
    )
    assert scale > 1e-6
    np.testing.assert_allclose(angular, 0.0, atol=1e-10 * scale)


def test_weight_hangs_on_the_attachment():
    """A strand below a fixed one: k (|d| - L) is its weight."""
    fixed = strands(line((0, 0, 0), (1, 0, 0)))
    fixed.set_channel("point", "pinned", np.ones(6, np.int32))
    k = 30.0
    solver = solver_of(
        rods("fixed"),
        rods("hanging", damping=0.01),
        lk.GravityForce(),
        lk.AttachmentConstraint(
            source="hanging",
            target="fixed",
            emission="explicit",
            pairs="pairs",
            flexibility=1.0,
            stiffness=k,
            damping_time=0.05,
        ),
        inputs={
            "fixed": fixed,
            "hanging": strands(line((0.04, -0.05, 0.0), (0, -1, 0))),
            "pairs": pairs_stream([0], [2]),
        },
    )
    solver.run(150)
    top = solver.read("hanging/CurvesObject", "position")[0]
    weight = 9.81 * solver.read("hanging/CurvesObject", "mass").sum()
    assert weight > 1e-3
    np.testing.assert_allclose(top[[0, 2]], [0.04, 0.0], atol=1e-12)
    assert -top[1] - 0.05 == pytest.approx(weight / k, rel=1e-6)


def energy_after(flexibility, **turned):
    """Energy where one of two strands, joined end to end at a distance, was turned about d = 0."""
    solver = solver_of(
        rods("a"),
        rods("b"),
        lk.AttachmentConstraint(
            source="a",
            target="b",
            emission="explicit",
            pairs="pairs",
            flexibility=flexibility,
            stiffness=10.0,
        ),
        inputs={
            "a": strands(line((0, 0.05, 0), (0, 1, 0))),
            "b": strands(line((0, 0, 0), (-1, 0, 0))),
            "pairs": pairs_stream([0], [0]),
        },
    )
    solver.run(1)
    for name, (axis, angle) in turned.items():
        path = f"{name}/CurvesObject"
        solver.write(path, "position", solver.read(path, "position") @ rotation(axis, angle).T)
    return float(attach(solver).energies(0.01).sum())


def test_flexible_attachment_keeps_the_distance_alone():
    assert energy_after(1.0, a=((0, 0, 1), 1.0)) < 1e-20
    assert energy_after(1.0, b=((0, 0, 1), 1.0)) < 1e-20
    # ½ k |d' - d|², with |d' - d| the chord of the turn
    chord = 2 * 0.05 * np.sin(0.5)
    assert energy_after(0.0, a=((0, 0, 1), 1.0)) == pytest.approx(5.0 * chord**2)
    assert energy_after(0.0, b=((0, 0, 1), 1.0)) == pytest.approx(5.0 * chord**2)
    assert energy_after(0.0, a=((0, 0, 1), 1.0), b=((0, 0, 1), 1.0)) < 1e-20
    assert 0.0 < energy_after(0.5, a=((0, 0, 1), 1.0)) < 5.0 * chord**2


# -- host geometry -----------------------------------------------------------------------------


def test_moving_points_drag_a_strand():
    """Points that move for half a second and stop: the strand's end follows to its distance."""
    start = np.array([[0.0, 0.01, 0.0]])

    def host(frame):
        return lk.Points(start + np.array([0.002 * min(frame - 1, 50), 0.0, 0.0]))

    curves = strands(line((0, 0, 0), (-1, 0, 0)))
    attached = np.zeros(6, np.int32)
    attached[0] = 1
    curves.set_channel("point", "attached", attached)
    solver = solver_of(
        rods("hair", damping=0.01),
        lk.AttachmentConstraint(
            source="hair", target="host", flexibility=1.0, stiffness=500.0, damping_time=0.02
        ),
        lk.FluidDragForce(law="linear", coefficient=0.02),
        inputs={"hair": curves, "host": host},
    )
    solver.run(200)
    assert attach(solver).numbers.tolist() == [0]
    place = solver.read("hair/CurvesObject", "position")
    end = start + np.array([0.1, 0.0, 0.0])
    assert np.linalg.norm(place[0] - end) == pytest.approx(0.01, abs=1e-5)
    assert place[:, 0].max() > 0.09


def turning_triangle(frame):
    corners = np.array([[-1.0, 0.0, -1.0], [2.0, 0.0, -1.0], [-1.0, 0.0, 2.0]]) * 0.1
    angle = 0.01 * (frame - 1)
    return lk.Surface.from_faces(corners @ rotation((1, 2, 0), angle).T, [[0, 1, 2]])


def test_points_keep_their_place_in_a_turning_triangle():
    curves = strands(line((0.01, 0.02, 0.02), (0, 1, 0), points=3, spacing=0.01))
    solver = solver_of(
        rods("hair"),
        lk.AttachmentConstraint(source="hair", target="skin", stiffness=2000.0, damping_time=0.01),
        inputs={"hair": curves, "skin": turning_triangle},
    )
    start = solver.read("hair/CurvesObject", "position")
    solver.run(100)
    expected = start @ rotation((1, 2, 0), 1.0).T
    found = solver.read("hair/CurvesObject", "position")
    assert np.abs(expected - start).max() > 0.015
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_orientation_stiffness_limits_twist():
    angles = {}
    for beta in (0.0, 1e-3):
        curves = strands(line((0, 0.01, 0), (0, 1, 0), points=3))
        solver = solver_of(
            rods("hair"),
            lk.AttachmentConstraint(
                source="hair",
                target="skin",
                stiffness=1000.0,
                orientation_stiffness=(0.0, beta, beta),
            ),
            inputs={"hair": curves, "skin": turning_triangle(1)},
        )
        solver.write("hair/CurvesObject", "edges.angular_velocity", np.full(2, 2.0))
        largest = 0.0
        for _ in range(100):
            solver.run(1)
            largest = max(largest, np.abs(solver.read("hair/CurvesObject", "edges.angle")).max())
        angles[beta] = largest
    assert angles[0.0] == pytest.approx(2.0, rel=1e-3)  # rad: 2 rad/s for a second
    assert angles[1e-3] < 0.2


def test_edges_of_hosts_carry_frames_without_twist():
    """A host curve that swings out and back brings the strand back to its place."""

    def host(frame):
        angle = 0.6 * np.sin(np.pi * min(frame - 1, 60) / 60)
        return strands(line((0, 0, 0), (-1, 0, 0)) @ rotation((0.2, 1, 0.4), angle).T)

    solver = solver_of(
        rods("hair"),
        lk.AttachmentConstraint(source="hair", target="host", stiffness=500.0, damping_time=0.02),
        inputs={"hair": strands(line((0, 0.03, 0), (-1, 0, 0))), "host": host},
    )
    start = solver.read("hair/CurvesObject", "position")
    solver.run(30)
    assert np.abs(solver.read("hair/CurvesObject", "position") - start).max() > 0.03
    solver.run(100)
    np.testing.assert_allclose(solver.read("hair/CurvesObject", "position"), start, atol=1e-3)


# -- emission ----------------------------------------------------------------------------------


def geometry(places, primitives):
    places = np.asarray(places, float)
    return Geometry(places, np.asarray(primitives, np.int64), None, np.ones(len(places), bool))


def pairs_of(source, target, **how):
    return find_pairs(
        source, target, **{"reach": None, "pairs": None, "domain": None, "same": False, **how},
        label="pairs",
    )  # fmt: skip


@pytest.mark.parametrize("corners", [1, 2, 3])
def test_closest_is_that_of_all_primitives(corners):
    rng = np.random.default_rng(corners)
    target = geometry(rng.random((40, 3)), rng.integers(0, 40, (60, corners)))
    points = 1.5 * rng.random((50, 3)) - 0.25
    source = geometry(points, np.arange(50)[:, None])
    one, two = pairs_of(source, target, emission="closest")
    assert one.primitive.tolist() == list(range(50))
    found = np.linalg.norm(target.places_of(two) - points, axis=1)
    # Against many weights of every primitive.
    weights = rng.dirichlet(np.full(corners, 0.4), 4000)
    sampled = np.einsum("sk,pka->psa", weights, target.places[target.primitives]).reshape(-1, 3)
    nearest = np.array([np.linalg.norm(sampled - p, axis=1).min() for p in points])
    assert np.all(found <= nearest + 1e-12)
    assert np.all(found >= nearest - 0.05)
    np.testing.assert_allclose(two.weights.sum(axis=1), 1.0)
    assert two.weights.min() >= 0.0
    # All in range, nearest first, begin with the same distances.
    which, spots = pairs_of(source, target, emission="within_range", reach=2.0)
    distance = np.linalg.norm(target.places_of(spots) - source.places_of(which), axis=1)
    least = np.full(50, np.inf)
    np.minimum.at(least, which.primitive, distance)
    np.testing.assert_allclose(least, found, rtol=1e-9)


def test_range_counts_shared_corners_once():
    target = geometry(line((0, 0, 0)), [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]])
    source = geometry([[0.04, 0.01, 0.0]], [[0]])
    which, spots = pairs_of(source, target, emission="within_range", reach=0.011)
    assert which.count == 1  # the point itself, which two edges have
    assert target.points_of(spots).tolist() == [2]
    which, _ = pairs_of(source, target, emission="within_range", reach=0.023)
    assert which.count == 3  # and the nearest points of the edges beside: their own corners


def test_strands_of_one_object_do_not_hold_on_to_themselves():
    curves = strands(line((0, 0, 0)), line((0, 0.01, 0)), line((0, 0.5, 0)))
    solver = solver_of(
        rods("a"),
        lk.AttachmentConstraint(source="a", target="a", range=0.05),
        inputs={"a": curves},
    )
    solver.run(1)
    table = attach(solver).table
    assert len(table["length"]) == 6  # each pair once, not once from either side
    assert np.all(table["source_corners"][:, 0] // 6 != table["target_corners"][:, 0] // 6)


def test_edges_of_a_wireframe_name_pairs_by_place():
    wire = lk.Wireframe([[0.041, 0, 0], [0.03, 0.02, 0.001]], [[0, 1]])
    solver = solver_of(
        rods("a"),
        rods("b"),
        lk.AttachmentConstraint(source="a", target="b", emission="explicit", pairs="wire"),
        inputs={"a": strands(line((0, 0, 0))), "b": strands(line((0, 0.02, 0))), "wire": wire},
    )
    solver.run(1)
    table = attach(solver).table
    assert table["source_primitive"].tolist() == [2]
    assert table["target_primitive"].tolist() == [1]
    np.testing.assert_allclose(table["target_weights"], [[0.5, 0.5]])


def test_pairs_come_and_go_at_every_step():
    """A strand flies past points: it is held by those in range, and let go behind them."""
    curves = strands(line((0, 0, 0), (0, 1, 0), points=2))
    curves.set_channel("point", "attached", np.array([1, 0], np.int32))
    solver = solver_of(
        rods("a"),
        lk.AttachmentConstraint(
            source="a",
            target="host",
            emission="within_range",
            range=0.015,
            every_step=True,
            stiffness=1e-6,
            flexibility=1.0,
        ),
        inputs={"a": curves, "host": lk.Points(line((0.03, 0, 0), points=3, spacing=0.01))},
    )
    solver.write("a/CurvesObject", "velocity", np.tile([1.0, 0.0, 0.0], (2, 1)))
    counts = []
    for _ in range(8):
        solver.run(1)
        counts.append(len(attach(solver).table["length"]))
    # Points at 3, 4, 5 cm; the strand is at 0, 1, 2 ... cm when pairs are looked for.
    assert counts == [0, 0, 1, 2, 3, 2, 1, 0]


# -- state and bad input -----------------------------------------------------------------------


def test_restored_state_continues_the_same():
    solver = two_strands(0.5, friction=1e-3, friction_stiffness=1.0, damping_time=0.01)
    solver.write("a/CurvesObject", "velocity", np.random.default_rng(1).standard_normal((6, 3)))
    solver.run(3)
    state = solver.state()
    runs = []
    for _ in range(2):
        solver.restore(state)
        solver.run(4)
        runs.append(solver.read("a/CurvesObject", "position"))
    np.testing.assert_array_equal(*runs)


def test_friction_and_line_search_lose_energy_only():
    solver = solver_of(
        rods("a"),
        rods("b"),
        lk.AttachmentConstraint(
            source="a", target="b", flexibility=1.0, friction=0.01, friction_stiffness=10.0
        ),
        inputs={"a": strands(line((0, 0.03, 0))), "b": strands(line((0, 0, 0)))},
        newton_iterations=5,
    )
    solver.write("a/CurvesObject", "velocity", np.random.default_rng(2).standard_normal((6, 3)))

    def kinetic():
        return sum(
            0.5 * (i.particles.local("mass") @ (i.particles.local("velocity") ** 2).sum(axis=1))
            for i in solver.solids.solids
        )

    start = kinetic()
    solver.run(30)
    assert 0.0 < kinetic() < start
    assert np.abs(attach(solver).held_friction).max() <= 0.01 * (1 + 1e-12)


def test_nothing_in_range_is_said_once():
    solver = solver_of(
        rods("a"),
        lk.AttachmentConstraint(source="a", target="host", range=0.01),
        inputs={"a": strands(line((0, 0, 0))), "host": lk.Points([[0.0, 1.0, 0.0]])},
    )
    solver.run(3)
    said = [text for text in solver.warnings if "nothing of a is attached" in text]
    assert len(said) == 1
    assert "within 0.01 m" in said[0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"source": "hair"}, 'source = "hair" is neither an Object nor an input stream'),
        ({"target": "hose"}, 'did you mean "host"'),
        ({"source": "host", "range": 1.0}, "both input streams"),
        ({"emission": "within_range"}, "needs a range"),
        ({"emission": "explicit"}, "needs pairs"),
        ({"target": "a"}, "to itself"),
        ({"range": float("nan")}, "not finite"),
        ({"range": -1.0}, "below the minimum"),
        ({"stiffness": -1.0}, "below the minimum"),
        ({"flexibility": 2.0}, "above the maximum"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(SetupError, match=message):
        solver_of(
            rods("a"),
            lk.AttachmentConstraint(**{"source": "a", "target": "host", **parameters}),
            inputs={"a": strands(line((0, 0, 0))), "host": lk.Points([[0.0, 0.0, 0.0]])},
        )


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (pairs_stream([7], [0]), r"source_id.*\[0\] = 7 is not one of 6 points"),
        (pairs_stream([1.0], [0]), "one integer"),
        (lk.Points([[0.0, 0.0, 0.0]]), "are missing"),
    ],
)
def test_bad_pairs_are_refused(pairs, message):
    solver = solver_of(
        rods("a"),
        lk.AttachmentConstraint(source="a", target="host", emission="explicit", pairs="pairs"),
        inputs={
            "a": strands(line((0, 0, 0))),
            "host": lk.Points([[0.0, 0.0, 0.0]]),
            "pairs": pairs,
        },
    )
    with pytest.raises(InputError, match=message):
        solver.run(1)


def test_hosts_may_not_change_topology():
    solver = solver_of(
        rods("a"),
        lk.AttachmentConstraint(source="a", target="host"),
        inputs={
            "a": strands(line((0, 0, 0))),
            "host": lambda frame: lk.Points(np.zeros((frame, 3))),
        },
    )
    with pytest.raises(InputError, match="topology may not change"):
        solver.run(2)


def test_an_attachment_to_what_is_turned_off_is_inactive():
    for name in ("b", "b/CurvesObject"):
        setup = lk.SolverSetup(
            "scene",
            lk.Group("a", lk.CurvesObject(input="one")),
            lk.Group("b", lk.CurvesObject(input="two"), enabled=False),
            lk.AttachmentConstraint(source="a", target=name),
        )
        inputs = {"one": strands(line((0, 0, 0))), "two": strands(line((0, 0.1, 0)))}
        solver = lk.Solver(setup, inputs)
        assert [one.path for one in solver.inactive] == ["AttachmentConstraint"]


def test_a_target_that_is_a_stream_is_one_of_the_setups_inputs():
    setup = lk.SolverSetup(
        "held",
        lk.Group("Hair", lk.CurvesObject(name="Strands", input="hair")),
        lk.AttachmentConstraint(source="Hair", target="scalp", range=0.1),
        lk.AttachmentConstraint(name="Own", source="Hair", target="Hair/Strands", range=0.1),
    )
    assert {one.name for one in setup.streams()} == {"hair", "scalp"}
    assert setup.idle_streams(["hair", "scalp", "skin"]) == ["skin"]
    with pytest.raises(SetupError, match='target = "scalp" is neither an Object nor an input'):
        lk.Solver(setup, {"hair": lk.Curves(np.eye(3), [0, 3])})
