"""Pressure Material: what it leaves of the divergence, in boxes and between solids of any kind."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.surface import Surface
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.solver_setup import SolverSetup
from tests.skeleton.floating_body import announce
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles

H = 0.125
TOLERANCE = 1.0e-9


def ball(center, radius, *, subdivisions=2):
    mesh = trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)
    return Surface.from_faces(np.array(mesh.vertices) + center, np.array(mesh.faces))


def block(lower, upper):
    """A box of triangles between two corners."""
    mesh = trimesh.creation.box(bounds=np.array([lower, upper], float))
    return Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))


def air(*behaviors, sides="wall", **options):
    """A box of 16^3 voxels in double precision."""
    return VolumeScene(PressureMaterial(tolerance=TOLERANCE), *behaviors, sides=sides, **options)


def divergence(scene):
    """Flux out of every cell over its face's area [m/s], NaN where none is asked for, [x, y, z].

    The definition, from whole arrays: open parts of faces carry the gas, closed ones their solid.
    """
    w, u = scene.dense("open_fraction"), scene.dense("velocity")
    has_solids = "solid_velocity" in scene.volume.channels
    solid = scene.dense("solid_velocity") if has_solids else np.zeros_like(u)
    around = scene.item.surroundings()
    total = np.zeros(u.shape[1:])
    for axis in range(3):
        closed = np.moveaxis(solid[axis].copy(), axis, 0)
        # Beyond the sides of the box the side itself moves the gas.
        last = np.round(around.upper[axis] - scene.first[axis] * 8) if has_end(around, axis) else 0
        closed[0] = around.velocity[2 * axis, axis] if has_end(around, axis) else closed[0]
        faces = np.moveaxis(w[axis] * u[axis], axis, 0) + closed * (
            1.0 - np.moveaxis(w[axis], axis, 0)
        )
        if has_end(around, axis):
            after = np.full_like(faces[:1], around.velocity[2 * axis + 1, axis])
            faces = np.concatenate((faces, after))
            faces[int(last) :] = around.velocity[2 * axis + 1, axis]
        else:
            faces = np.concatenate((faces, faces[:1]))
        total += np.moveaxis(np.diff(faces, axis=0), 0, axis)
    return np.where(scene.dense("kind")[0] == 1, total, np.nan)


def has_end(around, axis):
    return np.isfinite(around.upper[axis])


def stir(scene, seed=0):
    """Random velocities on all faces that are free to move; walls and solids keep theirs."""
    rng = np.random.default_rng(seed)
    scene.fill("velocity", rng.normal(size=scene.dense("velocity").shape))
    scene.run(Stage.UPDATE_COLLIDERS)
    scene.run(Stage.UPDATE_BOUNDARIES)


def left_over(scene):
    """Largest divergence before and after the pressure's solve, relative to the first."""
    stir(scene)
    before = divergence(scene)
    scene.run(Stage.SOLVE_PRESSURE)
    after = divergence(scene)
    assert np.isfinite(scene.dense("velocity")).all()
    assert np.nanmax(np.abs(before)) > 0.5
    return np.sqrt(np.nansum(after**2) / np.nansum(before**2))


@pytest.mark.parametrize("sides", ["wall", "open", "periodic"])
def test_divergence_is_left_at_the_tolerance(sides):
    assert left_over(air(sides=sides)) <= 2.0 * TOLERANCE


@pytest.mark.parametrize("precision", ["single", "double"])
def test_the_default_settings_keep_their_own_tolerance(precision):
    scene = VolumeScene(PressureMaterial(), sides="wall", precision=precision)
    assert left_over(scene) <= 2.0e-5


def test_one_open_side_takes_the_flux_of_an_inflow():
    scene = air(
        DomainBoundary(sides=("x_lower",), condition="inflow", velocity=(2.0, 0.0, 0.0)),
        boundary_upper=("open", "wall", "wall"),
    )
    assert left_over(scene) <= 2.0 * TOLERANCE
    u = scene.dense("velocity")[0]
    # What comes in at one end passes every section of the tunnel.
    np.testing.assert_allclose(u[:15].sum(axis=(1, 2)), 2.0 * 16 * 16, rtol=1e-6)


@pytest.mark.parametrize(
    "upper",
    [
        (2.0 - 3 * H, 2.0 - 5 * H, 2.0 - H),  # ends inside a Bucket, on faces
        (2.0 - 3.3 * H, 2.0 - 5.0 * H, 2.0),  # and between faces, beyond a centre
        (2.0 - 3.7 * H, 2.0 - 0.2 * H, 2.0 - 0.8 * H),
    ],
)
def test_the_box_may_end_anywhere(upper):
    assert left_over(air(domain_upper=upper)) <= 2.0 * TOLERANCE


def test_an_open_box_may_end_inside_a_bucket():
    scene = air(domain_upper=(2.0 - 3 * H, 2.0 - 5 * H, 2.0 - H), sides="open")
    assert left_over(scene) <= 2.0 * TOLERANCE


def test_several_colliders_leave_no_divergence():
    scene = air(
        Collider(name="one", input="one"),
        Collider(name="two", input="two"),
        inputs={"one": ball((0.6, 0.7, 0.8), 0.35), "two": ball((1.3, 1.2, 1.1), 0.4)},
    )
    assert left_over(scene) <= 2.0 * TOLERANCE
    # Nothing moves inside the solids, which are at rest: advection gives their faces back to them.
    scene.run(Stage.ADVECT_MOMENTUM)
    scene.run(Stage.SOLVE_PRESSURE)
    closed = scene.dense("open_fraction") == 0.0
    assert closed.sum() > 1000
    assert not np.any(scene.dense("velocity")[closed])


def test_a_solid_that_moves_in_a_closed_box_does_not_blow_up():
    # A block that touches no wall moves: the fluxes in and out of the gas are in balance. One
    # that is half outside is not: no incompressible gas could follow, and the rest is spread.
    for shift, is_balanced in ((0.0, True), (-0.8, False)):
        solver = box_with_moving_block(shift)
        solver.run(2)
        u = solver.read("air", "velocity")
        report = solver.actions["PressureMaterial"][0].report
        assert report.converged
        assert np.isfinite(u).all()
        assert 1.0 < np.abs(u).max() < 60.0, (is_balanced, np.abs(u).max())


def box_with_moving_block(shift):
    def at(frame):
        x = shift + 0.6 + 0.05 * (frame - 1)
        return block((x, 0.6, 0.6), (x + 0.6, 1.4, 1.4))

    setup = SolverSetup(
        "closed",
        VolumeObject(name="air", voxel_size=H, region="box"),
        PressureMaterial(tolerance=TOLERANCE),
        Collider(name="block", input="block"),
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    return Solver(setup, {"block": at})


def test_a_solid_that_fills_the_domain_leaves_nothing_to_move():
    solver = Solver(
        SolverSetup(
            "full",
            VolumeObject(name="air", voxel_size=H, region="box"),
            PressureMaterial(),
            GravityForce(),
            Collider(name="rock", input="rock"),
            precision="double",
            domain_lower=(0.0, 0.0, 0.0),
            domain_upper=(2.0, 2.0, 2.0),
        ),
        {"rock": block((-1.0, -1.0, -1.0), (3.0, 3.0, 3.0))},
    )
    solver.run(2)
    assert not np.any(solver.read("air", "kind"))
    assert not np.any(solver.read("air", "velocity"))


@pytest.mark.parametrize("sides", ["wall", "open"])
def test_gravity_is_balanced_by_the_ambient_air(sides):
    solver = Solver(still_air(sides))
    solver.run(3)
    assert not np.any(solver.read("air", "velocity"))


def test_heavier_gas_presses_hydrostatically_and_stays():
    # With no air around (ambient_density 0) all of the weight is the pressure's: p = rho g depth.
    solver = Solver(still_air("wall", ambient_density=0.0))
    solver.run(3)
    assert np.abs(solver.read("air", "velocity")).max() < 1e-7
    scene_pressure = solver.outputs()["air"].to_dense("pressure")[0]
    slope = np.diff(scene_pressure, axis=1) / H
    np.testing.assert_allclose(slope, -1.204 * 9.81, rtol=1e-6)


def still_air(sides, **options):
    return SolverSetup(
        "still",
        VolumeObject(name="air", voxel_size=H, region="box", **options),
        PressureMaterial(tolerance=TOLERANCE),
        GravityForce(),
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=(sides,) * 3,
        boundary_upper=(sides,) * 3,
    )


def test_the_pressure_is_the_one_of_the_equation():
    """One Fourier mode of u* in a periodic box: dt lap p / rho = div u*, with known p.

    u = sin(k x) along x is a gradient, so all of it goes: the discrete Laplacian of the mode is
    -(2 sin(k h / 2) / h)^2, and the divergence is (2 / h) sin(k h / 2) cos(k x) at centres.
    """
    scene = air(sides="periodic", air={"density": 2.0})
    k = 2.0 * np.pi / 2.0
    scene.fill_velocity(lambda x: np.stack((np.sin(k * x[0]), 0 * x[0], 0 * x[0])))
    scene.run(Stage.SOLVE_PRESSURE, dt=0.01)
    assert np.abs(scene.dense("velocity")).max() < 1e-8
    symbol = 2.0 * np.sin(0.5 * k * H) / H
    expected = -(2.0 / 0.01) * np.cos(k * scene.centres()[0]) / symbol
    np.testing.assert_allclose(scene.dense("pressure")[0], expected, atol=1e-6 * expected.max())


@pytest.mark.parametrize("solver", ["conjugate_gradient", "smoothed_aggregation", "direct"])
def test_every_named_solver_gives_the_same_flow(solver):
    scene = VolumeScene(
        PressureMaterial(tolerance=1e-9, solver=solver), sides="wall", size=(1, 1, 1)
    )
    assert left_over(scene) <= 2.0e-9


def with_compliance(value, *, flux=0.0):
    """A closed box with a source [1/s] whose cells give way."""
    one = air(sides="wall")
    one.item.need_compliance()
    one.item.need_divergence()
    announce(one.solver)
    stir(one)
    one.volume.local("compliance")[:] = value
    one.volume.local("divergence")[:] = flux
    one.run(Stage.SOLVE_PRESSURE, dt=0.01)
    return one, one.solver.actions["PressureMaterial"][0]


def test_compliance_takes_up_what_a_closed_box_cannot():
    # Net flux: sum over cells of c q = sum of h d, since walls let nothing through.
    one, action = with_compliance(0.5, flux=2.0)
    assert action.report.converged and not action.warning
    scale = action._pressure_scale(0.01)
    q = one.dense("pressure")[0] / scale
    np.testing.assert_allclose(0.5 * q.sum(), H * 2.0 * q.size, rtol=1e-7)


def test_compliance_of_nothing_is_a_closed_box():
    one, action = with_compliance(0.0)
    assert action.report.converged and not action.warning
    found = divergence(one)
    assert np.nanmax(np.abs(found)) < 1e-6
