"""Domain Boundary: what the sides of the box do to the gas, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.errors import SetupError
from loki_core.keyframes import Keyframes
from loki_core.objects.gas.surroundings import INFLOW, NO_SLIP, OPEN, PERIODIC, SLIP, Surroundings
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles

H = 0.125


def box(*behaviors, air=None, **settings):
    """A Solver with 16^3 voxels of air."""
    values = {
        "domain_lower": (0.0, 0.0, 0.0),
        "domain_upper": (2.0, 2.0, 2.0),
        "boundary_lower": ("wall",) * 3,
        "boundary_upper": ("wall",) * 3,
        "precision": "double",
        **settings,
    }
    volume = VolumeObject(name="air", voxel_size=H, region="box", **(air or {}))
    return Solver(SolverSetup("box", volume, PressureMaterial(), *behaviors, **values))


def whole(solver, channel):
    return solver.outputs()["air"].to_dense(channel)


def inlet(side="x_lower", velocity=(2.0, 0.0, 0.0), **options):
    return DomainBoundary(sides=(side,), condition="inflow", velocity=velocity, **options)


@pytest.mark.parametrize(
    ("axis", "sign", "precision"),
    [(0, 1.0, "single"), (1, -1.0, "double"), (2, 1.0, "double")],
)
def test_wind_through_an_empty_tunnel_stays_uniform(axis, sign, precision):
    wind = np.zeros(3)
    wind[axis] = sign * 3.0
    side = "xyz"[axis] + ("_lower" if sign > 0 else "_upper")
    other = "boundary_upper" if sign > 0 else "boundary_lower"
    sides = tuple("open" if a == axis else "wall" for a in range(3))
    solver = box(
        inlet(side, tuple(wind)),
        air={"ambient_velocity": tuple(wind)},
        precision=precision,
        **{other: sides},
    )
    for _ in range(3):
        solver.run(1)
        u = whole(solver, "velocity")
        noise = 1e-5 if precision == "single" else 1e-12
        np.testing.assert_allclose(
            u, np.broadcast_to(wind[:, None, None, None], u.shape), atol=noise
        )


def test_wind_that_starts_at_an_inlet_fills_the_tunnel_at_once():
    # Incompressible: with the walls slippery, the only flow is the plug of the inlet.
    solver = box(inlet(), boundary_upper=("open", "wall", "wall"))
    solver.run(1)
    u = whole(solver, "velocity")
    np.testing.assert_allclose(u[0], 2.0, atol=1e-4)
    np.testing.assert_allclose(u[1:], 0.0, atol=1e-4)


def test_gas_that_flows_in_brings_its_materials():
    solver = box(
        inlet(density=0.7, temperature=350.0),
        boundary_upper=("open", "wall", "wall"),
        air={"ambient_velocity": (2.0, 0.0, 0.0)},
        frames_per_second=16.0,
    )
    solver.run(4)  # 0.25 s at 2 m/s: half a metre, four voxels
    density, temperature = whole(solver, "density")[0], whole(solver, "temperature")[0]
    np.testing.assert_allclose(density[:2], 0.7, atol=0.02)
    np.testing.assert_allclose(temperature[:2], 350.0, atol=2.0)
    np.testing.assert_allclose(density[8:], 0.0, atol=0.02)
    # Bounds hold, and what came in is what flowed in: 0.7 over half a metre.
    assert density.min() >= 0.0 and density.max() <= 0.7 + 1e-12
    np.testing.assert_allclose(density.sum(axis=0) * H, 0.35, rtol=0.1)


def test_an_inlet_may_suck():
    solver = box(inlet(velocity=(-1.0, 0.0, 0.0)), boundary_upper=("open", "wall", "wall"))
    solver.run(2)
    np.testing.assert_allclose(whole(solver, "velocity")[0], -1.0, atol=1e-3)


def test_an_inlet_into_a_closed_box_does_not_blow_up():
    solver = box(inlet())
    solver.run(3)
    u = whole(solver, "velocity")
    assert np.isfinite(u).all()
    assert np.abs(u).max() <= 4.0


def test_an_inlet_follows_its_keyframes():
    gust = Keyframes([(1, (0.0, 0.0, 0.0)), (5, (4.0, 0.0, 0.0))], time_unit="frame")
    solver = box(inlet(velocity=gust), boundary_upper=("open", "wall", "wall"))
    speeds = []
    for _ in range(4):
        solver.run(1)
        speeds.append(float(whole(solver, "velocity")[0].mean()))
    assert np.all(np.diff(speeds) > 0.5)


@pytest.mark.parametrize("viscous", [False, True])
def test_slip_walls_leave_a_flow_along_them_alone(viscous):
    behaviors = [ViscosityMaterial(viscosity=0.5)] if viscous else []
    wind = (1.0, 0.0, 0.5)
    solver = box(
        DomainBoundary(sides=("y_lower", "y_upper"), condition="slip"),
        *behaviors,
        air={"ambient_velocity": wind},
        boundary_lower=("periodic", "wall", "periodic"),
        boundary_upper=("periodic", "wall", "periodic"),
    )
    solver.run(2)
    u = whole(solver, "velocity")
    np.testing.assert_allclose(
        u, np.broadcast_to(np.reshape(wind, (3, 1, 1, 1)), u.shape), atol=1e-6
    )


def test_walls_hold_a_viscous_gas_unless_they_are_told_to_let_go():
    kinds = {}
    for viscous in (False, True):
        materials = (ViscosityMaterial(),) if viscous else ()
        scene = VolumeScene(*materials, sides="wall")
        kinds[viscous] = set(scene.item.surroundings().kinds)
    assert kinds == {False: {SLIP}, True: {NO_SLIP}}


def test_sides_are_entered_where_they_were_named():
    scene = VolumeScene(
        DomainBoundary(name="a", sides=("x_lower",), condition="inflow", velocity=(1.0, 2.0, 3.0)),
        DomainBoundary(name="b", sides=("z_upper", "x_upper"), condition="open"),
        boundary_lower=("wall", "periodic", "wall"),
        boundary_upper=("wall", "periodic", "wall"),
        sides="wall",
    )
    around = scene.item.surroundings()
    assert around.kinds == (INFLOW, OPEN, PERIODIC, PERIODIC, SLIP, OPEN)
    np.testing.assert_array_equal(around.velocity[0], [1.0, 2.0, 3.0])
    assert not np.any(around.velocity[1:])


def test_all_leaves_out_periodic_axes():
    scene = VolumeScene(
        DomainBoundary(sides=("all",), condition="no_slip", velocity=(0.0, 0.0, 1.0)),
        boundary_lower=("wall", "periodic", "wall"),
        boundary_upper=("wall", "periodic", "wall"),
        sides="wall",
    )
    assert scene.item.surroundings().kinds == (
        NO_SLIP,
        NO_SLIP,
        PERIODIC,
        PERIODIC,
        NO_SLIP,
        NO_SLIP,
    )


@pytest.mark.parametrize(
    ("boundary", "settings", "message"),
    [
        ({"sides": ()}, {}, "sides is empty"),
        ({"sides": ("x_lowr",)}, {}, "x_lower"),
        (
            {"sides": ("y_lower",)},
            {"boundary_lower": ("wall", "periodic", "wall"),
             "boundary_upper": ("wall", "periodic", "wall")},
            "periodic",
        ),
        ({"sides": ("x_lower",), "velocity": (np.nan, 0.0, 0.0)}, {}, "not finite"),
        ({"sides": ("x_lower",), "temperature": -1.0}, {}, "minimum"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(boundary, settings, message):
    with pytest.raises(SetupError, match=message):
        box(DomainBoundary(**boundary), **settings)


def test_a_side_needs_a_box():
    setup = SolverSetup(
        "open",
        VolumeObject(name="air", voxel_size=H),
        DomainBoundary(sides=("y_lower",), condition="slip"),
    )
    with pytest.raises(SetupError, match="domain_lower"):
        Solver(setup)


@pytest.mark.parametrize(("lower", "upper", "expected"), [(0.5, 2.5, (0, 3)), (1.5, 3.5, (1, 4))])
def test_a_voxel_whose_middle_lies_on_a_plane_is_inside(lower, upper, expected):
    around = Surroundings(lower=np.full(3, lower), upper=np.full(3, upper), kinds=(SLIP,) * 6)
    np.testing.assert_array_equal(around.planes()[:, 0], expected)
