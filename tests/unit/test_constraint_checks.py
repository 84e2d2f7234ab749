"""What every Constraint on solids has to fulfil, whatever its C is, on every kind of solid.

Constraints are taken from the registry; one that is new needs an entry in SETUPS, by which solids
are under its stress. Then its gradient, forces, matrix, momentum, invariance and damping are tested
as those of all others, on all solids that it acts on.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import loki_core as lk
from loki_core.behavior import action_class_for
from loki_core.constraints.constraint import ConstraintBehavior
from loki_core.objects.basics.capabilities import Triangles
from loki_core.objects.solids.curves import Rods
from loki_core.objects.solids.geometry import Geometry
from loki_core.objects.solids.solid import Solid
from loki_core.pipeline.task import Step

pytestmark = pytest.mark.compiles

THICK, SOFT = 2.0e-3, 1.0e6  # radius [m] and Young's modulus [Pa]
STEP = Step(frame=2, time=0.01, dt=0.01, substep=1)


def attachment(solid, **damping):
    """Two Objects that hold on to each other; `b` is what `a` is attached to.

    Edges of wireframes have no frame that turns, so only the distance from them is held.
    """
    return lk.AttachmentConstraint(
        source="a/Solid",
        target="b/Solid",
        flexibility=1.0 if solid == "wireframe" else 0.4,
        stiffness=50.0,
        tangential_stiffness=20.0,
        orientation_stiffness=(0.0, 0.0, 0.0) if solid == "wireframe" else (0.3, 0.2, 0.1),
        **damping,
    )


#: Behavior class -> function of damping parameters that gives a Behavior with some stress.
SETUPS = {
    "StretchingConstraint": lambda solid, **damping: lk.StretchingConstraint(
        young_modulus=SOFT, **damping
    ),
    "BendingConstraint": lambda solid, **damping: lk.BendingConstraint(
        young_modulus=SOFT, shear_modulus=SOFT / 3.0, natural_twist=3.0, **damping
    ),
    "DistanceConstraint": lambda solid, **damping: lk.DistanceConstraint(
        stiffness=30.0, rest_scale=0.9, **damping
    ),
    "MembraneConstraint": lambda solid, **damping: lk.MembraneConstraint(
        young_modulus=3.0e3, warp_modulus=1.0e3, poisson_ratio=0.4, **damping
    ),
    "AttachmentConstraint": attachment,
}


def wavy(points, seed, shift=(0.0, 0.0, 0.0)):
    rng = np.random.default_rng(seed)
    along = np.arange(points)[:, None] * np.array([0.02, 0.0, 0.0])
    return along + 0.004 * rng.standard_normal((points, 3)) + np.asarray(shift)


def strands():
    """Open strands of several sizes, the shortest of one edge, and a closed one."""
    angle = 2.0 * np.pi * np.arange(6) / 6.0
    ring = 0.03 * np.stack((np.cos(angle), np.sin(angle), 0.2 * np.sin(3.0 * angle)), axis=1)
    ring[:, 2] += 0.1
    first = [wavy(5, 1), ring, wavy(2, 2, (0.0, 0.05, 0.0))]
    second = [wavy(6, 3, (0.0, 0.02, 0.01)), wavy(3, 4, (0.0, -0.02, 0.01))]
    return {
        name: lk.Curves(
            np.concatenate(parts),
            np.cumsum([0, *(len(part) for part in parts)]),
            np.array([part is ring for part in parts]),
        )
        for name, parts in (("a", first), ("b", second))
    }


def patch(seed, shift):
    """Points of a crumpled patch of two quads, and of a triangle beside it."""
    x, y = np.meshgrid(0.02 * np.arange(3), 0.02 * np.arange(2), indexing="ij")
    flat = np.stack((x, y, 0.0 * x), axis=-1).reshape(-1, 3)
    beside = np.array([[0.05, 0.0, 0.0], [0.07, 0.0, 0.0], [0.05, 0.02, 0.0]])
    places = np.concatenate((flat, beside)) + np.asarray(shift)
    return places + 0.004 * np.random.default_rng(seed).standard_normal(places.shape)


def surfaces():
    """Two islands whose points are mixed, of a quad and triangles; and another such mesh."""
    polygons = [[0, 8, 5, 1], [2, 5, 7], [2, 8, 5], [4, 6, 3]]
    mixed = np.array([0, 1, 2, 6, 7, 5, 8, 3, 4])  # of patch(), by number
    return {
        name: lk.Surface.from_polygons(patch(seed, shift)[mixed], polygons)
        for name, seed, shift in (("a", 1, (0.0, 0.0, 0.0)), ("b", 2, (0.004, 0.003, 0.015)))
    }


def wireframes():
    """Branches and a loop."""
    edges = np.array([[0, 1], [1, 2], [2, 3], [2, 5], [4, 5], [6, 7], [7, 8], [8, 6]])
    return {
        name: lk.Wireframe(patch(seed, shift), edges)
        for name, seed, shift in (("a", 3, (0.0, 0.0, 0.0)), ("b", 4, (0.004, 0.003, 0.015)))
    }


def curves_object(name):
    return lk.CurvesObject(name="Solid", input=name, root="free", radius=THICK, aspect=1.5)


def geometry_object(name):
    return lk.GeometryObject(name="Solid", input=name, thickness=THICK)


#: Kind of solid -> its class, its Behavior and its inputs; a new Object needs an entry.
SOLIDS = {
    "strands": (Rods, curves_object, strands),
    "surface": (Geometry, geometry_object, surfaces),
    "wireframe": (Geometry, geometry_object, wireframes),
}


def acts(name, solid):
    """Whether a Constraint acts on a kind of solid."""
    capability = action_class_for(lk.registry()[name]).capability
    if capability is Triangles and solid == "wireframe":  # which has none
        return False
    return capability in SOLIDS[solid][0].__mro__


def solver_with(solid, *behaviors):
    _, make, streams = SOLIDS[solid]
    groups = [lk.Group(name, make(name)) for name in "ab"]
    setup = lk.SolverSetup("scene", *groups, *behaviors, frames_per_second=100)
    return lk.Solver(setup, streams())


def of_solids():
    """Constraints of the registry that act on solids."""
    return sorted(
        name
        for name, behavior in lk.registry().items()
        if issubclass(behavior, ConstraintBehavior) and not behavior.abstract
    )


def test_every_constraint_on_every_solid_is_checked():
    missing = [name for name in of_solids() if name not in SETUPS]
    assert not missing, f"add an entry for {missing} to SETUPS of {__file__}"
    known = {kind for kind, _, _ in SOLIDS.values()}
    new = [one for one in Solid.__subclasses__() if one not in known]
    assert not new, f"add an entry for {new} to SOLIDS of {__file__}"


@pytest.fixture(scope="module")
def made():
    """Solvers with a strained state, each made once."""
    known = {}

    def get(name, solid, **damping):
        key = (name, solid, *damping.items())
        if key not in known:
            solver = solver_with(solid, SETUPS[name](solid, **damping))
            solver.run(1)
            strain(solver)
            known[key] = solver
        return known[key]

    return get


def strain(solver, seed=11, *, amount=0.004, turn=0.6):
    """Move all unknowns at random."""
    rng = np.random.default_rng(seed)
    system = solver.solids
    change = amount * rng.standard_normal(system.size)
    for item in system.solids:
        if "twist" not in item.unknowns:
            continue
        angles = item.unknowns.joint("twist")
        change[angles] = turn * rng.standard_normal(angles.shape)
    displace(system, change)


def displace(system, change):
    for item in system.solids:
        item.displace(change[item.unknowns.range], 1.0, STEP.dt)


@contextmanager
def kept(system):
    """Undo whatever is done to the state of solids."""
    saved = [
        (holder.local(name), holder.local(name).copy())
        for item in system.solids
        for holder in item.data.values()
        for name in holder.channels
    ]
    try:
        yield
    finally:
        for array, values in saved:
            array[:] = values


def actions_of(solver):
    found = [one for some in solver.actions.values() for one in some]
    assert found and all(one.elements.count > 0 for one in found)
    return found


def values_of(action):
    value, gradient = np.zeros_like(action.value), np.zeros_like(action.gradient)
    action.find_values(value, gradient)
    return value, gradient


def forces(action, size):
    """-G^T T of all elements at the present state."""
    action.find_values(action.value, action.gradient)
    action._respond(STEP.dt)
    force = np.zeros(size)
    rows = -np.einsum("nmd,nm->nd", action.gradient, action.tension)
    np.add.at(force, action.elements.dofs, rows)
    return force


def hurry(action):
    """Let the step have begun elsewhere, so that damping acts."""
    rng = np.random.default_rng(5)
    action.find_values_only(action.start)
    action.start += 0.01 * rng.standard_normal(action.start.shape)


EACH = pytest.mark.parametrize(
    ("name", "solid"),
    [(name, solid) for name in sorted(SETUPS) for solid in SOLIDS if acts(name, solid)],
)
DAMPED = {"damping_time": 0.05, "friction": 0.02, "friction_stiffness": 4.0}


@EACH
def test_gradient_by_central_differences(made, name, solid):
    solver = made(name, solid)
    system, h = solver.solids, 1e-6
    for action in actions_of(solver):
        value, gradient = values_of(action)
        only = np.zeros_like(value)
        action.find_values_only(only)
        np.testing.assert_allclose(only, value, rtol=0, atol=1e-13 * max(1.0, abs(value).max()))
        found = np.zeros((*value.shape, system.size))
        for i in range(system.size):
            sides = []
            for sign in (1.0, -1.0):
                with kept(system):
                    displace(system, sign * h * np.eye(system.size)[i])
                    sides.append(values_of(action)[0])
            found[:, :, i] = (sides[0] - sides[1]) / (2.0 * h)
        expected = np.zeros_like(found)
        for n, dofs in enumerate(action.elements.dofs):
            np.add.at(expected[n], (slice(None), dofs), gradient[n])
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-7 * abs(expected).max())


@EACH
@pytest.mark.parametrize("damping", [{}, DAMPED], ids=["elastic", "damped"])
def test_force_is_the_negative_derivative_of_the_energy(made, name, solid, damping):
    solver = made(name, solid, **damping)
    system, h = solver.solids, 1e-7  # friction curves within a small change
    for action in actions_of(solver):
        if damping:
            hurry(action)
        force, found = forces(action, system.size), np.zeros(system.size)
        for i in range(system.size):
            sides = []
            for sign in (1.0, -1.0):
                with kept(system):
                    displace(system, sign * h * np.eye(system.size)[i])
                    sides.append(action.energies(STEP.dt).sum())
            found[i] = (sides[1] - sides[0]) / (2.0 * h)
        assert abs(force).max() > 0.0
        np.testing.assert_allclose(force, found, rtol=0, atol=1e-6 * abs(force).max())


def rigid_motions(system):
    """Six directions of all unknowns: translations, and rotations about the origin."""
    motions = np.zeros((6, system.size))
    for item in system.solids:
        place = item.particles.local("position")
        vertex = item.unknowns.joint("position")
        for axis in range(3):
            motions[axis, vertex[:, axis]] = 1.0
            motions[3 + axis, vertex] = np.cross(np.eye(3)[axis], place)
            if "twist" in item.unknowns:
                # The frame that is carried along does not spin; the material has to.
                edge = item.unknowns.joint("twist")[:, 0]
                motions[3 + axis, edge] = item.edges.local("tangent")[:, axis]
    return motions


@EACH
@pytest.mark.parametrize("damping", [{}, DAMPED], ids=["elastic", "damped"])
def test_inner_forces_have_no_momentum(made, name, solid, damping):
    solver = made(name, solid, **damping)
    for action in actions_of(solver):
        if damping:
            hurry(action)
        force = forces(action, solver.solids.size)
        for motion in rigid_motions(solver.solids):
            assert abs(motion @ force) <= 1e-10 * (abs(motion) @ abs(force))


def rotation(axis, angle):
    k = np.asarray(axis) / np.linalg.norm(axis)
    across = np.cross(np.eye(3), k)
    return np.eye(3) + np.sin(angle) * across + (1.0 - np.cos(angle)) * across @ across


def move_rigidly(system, turn, shift):
    """Turn places and frames; angles are of the material against the frames."""
    for item in system.solids:
        place = item.particles.local("position")
        place[:] = place @ turn.T + shift
        if "twist" in item.unknowns:
            for name in ("tangent", "reference"):
                axis = item.edges.local(name)
                axis[:] = axis @ turn.T
            item._refresh_reference_twist()


@EACH
def test_c_does_not_see_rigid_motion(made, name, solid):
    solver = made(name, solid)
    for action in actions_of(solver):
        value, _ = values_of(action)
        bound = 1e-12 * max(1.0, abs(value).max())
        counts = np.broadcast_to(action.k > 0.0, value.shape)  # without stiffness it may be any
        for angle in (0.3, 2.0, 3.1):
            with kept(solver.solids):
                move_rigidly(solver.solids, rotation((1.0, -2.0, 0.5), angle), (0.3, -0.1, 0.2))
                after, _ = values_of(action)
            np.testing.assert_allclose(after[counts], value[counts], rtol=0, atol=bound)


def dense(system):
    matrix, column = np.zeros((system.size, system.size)), np.zeros(system.size)
    for i in range(system.size):
        unit = system.with_ghosts(np.eye(system.size)[i])
        system.linear.multiply(unit, column)
        matrix[:, i] = column[: system.size]
    return matrix


@EACH
@pytest.mark.parametrize("damping", [{}, DAMPED], ids=["elastic", "damped"])
def test_matrix_is_semi_definite(made, name, solid, damping):
    solver = made(name, solid, **damping)
    system = solver.solids
    for action in actions_of(solver):
        if damping:
            hurry(action)
        system.rhs[:], system.values[:] = 0.0, 0.0
        system.couplings.clear()
        action.accumulate(None, STEP)
        matrix = dense(system)
        largest = abs(matrix).max()
        np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-13 * largest)
        assert np.linalg.eigvalsh(matrix).min() >= -1e-12 * largest
        # Without the second derivative of C it is G^T s G, and the right-hand side is the force.
        plain = np.zeros_like(matrix)
        for dofs, gradient, slope in zip(
            action.elements.dofs, action.gradient, action.slope, strict=True
        ):
            assert np.all(slope >= 0.0)
            np.add.at(plain, np.ix_(dofs, dofs), gradient.T @ (slope[:, None] * gradient))
        assert np.linalg.eigvalsh(matrix - plain).min() >= -1e-12 * largest
        force = forces(action, system.size)
        np.testing.assert_allclose(system.rhs, force, rtol=0, atol=1e-13 * abs(force).max())


@EACH
def test_rayleigh_damping_leaves_rigid_motion_alone(made, name, solid):
    solver = made(name, solid, damping_time=0.3)
    for action in actions_of(solver):
        action.find_values_only(action.start)
        with kept(solver.solids):
            move_rigidly(solver.solids, rotation((0.2, 1.0, -0.4), 1.3), (0.5, 0.1, -0.7))
            force = forces(action, solver.solids.size)
            elastic = action.k * action.value
            np.testing.assert_allclose(
                action.tension, elastic, rtol=0, atol=1e-10 * abs(elastic).max()
            )
            # A change of shape is damped, and loses energy.
            strain(solver, 17)
            forces(action, solver.solids.size)
            lost = (action.tension - action.k * action.value) * (action.value - action.start)
        assert np.all(lost >= 0.0) and lost.sum() > 0.0
        assert np.all(np.isfinite(force))


@EACH
def test_dahl_friction_never_exceeds_its_limit(name, solid):
    limit = 0.02
    solver = solver_with(solid, SETUPS[name](solid, friction=limit, friction_stiffness=40.0))
    rng = np.random.default_rng(8)
    largest = 0.0
    for _ in range(6):
        for item in solver.solids.solids:
            shape = (item.particles.count, 3)
            solver.write(item.path, "velocity", 0.5 * rng.standard_normal(shape))
            if "twist" in item.unknowns:
                spin = 20.0 * rng.standard_normal(item.edges.count)
                solver.write(item.path, "edges.angular_velocity", spin)
        solver.run(1)
        for action in actions_of(solver):
            friction = action._respond(STEP.dt)
            assert friction.size and np.all(abs(friction) <= limit * (1.0 + 1e-12))
            largest = max(largest, abs(friction).max())
    assert largest > 0.5 * limit  # and it comes near
