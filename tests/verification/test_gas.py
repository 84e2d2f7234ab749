"""Gas against closed forms: Couette, Poiseuille, drag, uniform forces, symmetry, Taylor-Green."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.data.voxels import Voxels
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.force_density_field import ForceDensityField
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup

pytestmark = pytest.mark.compiles

VISCOSITY = 1.0
GAP = 1.0


def channel_flow(voxels, *behaviors, along=0, across=1, corner=(0.0, 0.0, 0.0), pressure=False):
    """Steady flow between two plates a metre apart: profile of the velocity `along`, [voxels].

    Steps are much longer than the time that shear needs from plate to plate, so a few are enough.
    """
    h = GAP / voxels
    upper = np.array(corner) + 8.0 * h
    upper[across] = corner[across] + GAP
    sides = tuple("wall" if axis == across else "periodic" for axis in range(3))
    setup = SolverSetup(
        "channel",
        VolumeObject(
            name="air",
            voxel_size=h,
            region="box",
            density=1.0,
            channels=(),
            velocity_scheme="maccormack" if pressure else "none",
        ),
        ViscosityMaterial(viscosity=VISCOSITY, tolerance=1e-12),
        *((PressureMaterial(tolerance=1e-10),) if pressure else ()),
        *behaviors,
        precision="double",
        domain_lower=corner,
        domain_upper=tuple(upper),
        boundary_lower=sides,
        boundary_upper=sides,
        frames_per_second=0.05,
    )
    solver = Solver(setup)
    solver.run(5)
    u = np.moveaxis(solver.outputs()["air"].to_dense("velocity"), 1 + across, 1)
    for axis in range(3):
        if axis != along:
            np.testing.assert_allclose(u[axis], 0.0, atol=1e-9)
    profile = u[along].reshape(u.shape[1], -1)
    np.testing.assert_allclose(profile, np.broadcast_to(profile[:, :1], profile.shape), atol=1e-9)
    return profile[:, 0]


def push(along, strength=1.0):
    value = [0.0, 0.0, 0.0]
    value[along] = strength
    return ForceDensityField(value=tuple(value), per="volume")


def parabola(voxels):
    """u = f y (GAP - y) / (2 mu), at the centres of voxels."""
    y = (np.arange(voxels) + 0.5) * GAP / voxels
    return y * (GAP - y) / (2.0 * VISCOSITY)


def test_poiseuille_is_of_second_order():
    errors = []
    for voxels in (8, 16, 32):
        profile = channel_flow(voxels, push(0))
        errors.append(np.abs(profile - parabola(voxels)).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.1)
    assert errors[-1] < 2e-4


@pytest.mark.parametrize(
    ("along", "across", "corner"),
    [(2, 0, (0.0, 0.0, 0.0)), (1, 2, (7.3, -2.1, 0.55)), (0, 1, (-1.0e4, 33.3, 1.0e3))],
)
def test_poiseuille_is_the_same_in_any_orientation_and_place(along, across, corner):
    there = channel_flow(16, push(along), along=along, across=across, corner=corner)
    np.testing.assert_allclose(there, channel_flow(16, push(0)), rtol=1e-7)


def test_poiseuille_with_pressure_and_advection():
    profile = channel_flow(16, push(0), pressure=True)
    np.testing.assert_allclose(profile, parabola(16), atol=1e-3)


def test_couette_is_a_straight_line():
    belt = DomainBoundary(sides=("y_upper",), condition="no_slip", velocity=(2.0, 0.0, 0.0))
    y = (np.arange(16) + 0.5) / 16.0
    np.testing.assert_allclose(channel_flow(16, belt), 2.0 * y, atol=1e-8)


def test_poiseuille_between_walls_that_are_not_on_faces():
    """The upper plate lies inside a voxel: the nearest face holds, so the error is O(h)."""
    h = GAP / 16
    sides = ("periodic", "wall", "periodic")
    setup = SolverSetup(
        "channel",
        VolumeObject(
            name="air", voxel_size=h, region="box", density=1.0, channels=(), velocity_scheme="none"
        ),
        ViscosityMaterial(viscosity=VISCOSITY, tolerance=1e-12),
        push(0),
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(8.0 * h, GAP - 3.3 * h, 8.0 * h),
        boundary_lower=sides,
        boundary_upper=sides,
        frames_per_second=0.05,
    )
    solver = Solver(setup)
    solver.run(5)
    width = GAP - 3.3 * h
    y = (np.arange(16) + 0.5) * h
    exact = np.where(y < width, y * (width - y) / (2.0 * VISCOSITY), 0.0)
    u = solver.outputs()["air"].to_dense("velocity")[0, 0, :, 0]
    inside = y < width - h
    np.testing.assert_allclose(u[inside], exact[inside], atol=0.5 * h * width)


# -- forces on faces --------------------------------------------------------------------------


def open_air(*behaviors, precision="double", **settings):
    """A periodic box of gas without pressure: every face is a free point."""
    setup = SolverSetup(
        "points",
        VolumeObject(
            name="air", voxel_size=0.125, region="box", channels=(), velocity_scheme="none"
        ),
        *behaviors,
        **{
            "precision": precision,
            "domain_lower": (0.0, 0.0, 0.0),
            "domain_upper": (1.0, 1.0, 1.0),
            "boundary_lower": ("periodic",) * 3,
            "boundary_upper": ("periodic",) * 3,
            **settings,
        },
    )
    return Solver(setup)


def test_linear_drag_approaches_the_wind_as_backward_euler_does():
    """w = u - wind is multiplied by 1 / (1 + K dt / m) a step, m = rho h^3."""
    wind, coefficient = np.array([1.0, -2.0, 0.5]), 0.03
    solver = open_air(FluidDragForce(law="linear", coefficient=coefficient, velocity=tuple(wind)))
    mass = 1.204 * 0.125**3
    factor = 1.0 / (1.0 + coefficient / 24.0 / mass)
    for step in range(1, 5):
        solver.run(1)
        u = solver.read("air", "velocity")
        for axis in range(3):
            expected = wind[axis] * (1.0 - factor**step)
            np.testing.assert_allclose(u[:, axis], expected, rtol=1e-12)


def test_stiff_drag_stays_at_the_wind():
    solver = open_air(FluidDragForce(law="linear", coefficient=1e9, velocity=(3.0, 0.0, 0.0)))
    solver.run(3)
    np.testing.assert_allclose(solver.read("air", "velocity")[:, 0], 3.0, rtol=1e-9)


@pytest.mark.parametrize("law", ["stokes", "quadratic", "schiller_naumann"])
def test_drag_laws_of_balls_on_a_volume(law):
    """Gas has no radius: the laws of balls either act on it or say why they do not."""
    from loki_core.errors import LokiError

    try:
        solver = open_air(FluidDragForce(law=law, velocity=(3.0, 0.0, 0.0)))
        solver.run(1)
    except LokiError as error:
        assert "radius" in str(error)
    else:
        assert np.all(solver.read("air", "velocity")[:, 0] > 0.0)


@pytest.mark.parametrize(("per", "density"), [("mass", 1.0), ("volume", 1.204)])
def test_force_density_fields_accelerate_by_mass_or_by_volume(per, density):
    value = np.array([0.3, -1.0, 2.0])
    solver = open_air(ForceDensityField(value=tuple(value), per=per))
    solver.run(2)
    u = solver.read("air", "velocity")
    for axis in range(3):
        np.testing.assert_allclose(u[:, axis], value[axis] * 2.0 / 24.0 / density, rtol=1e-12)


def test_newton_iterations_do_not_repeat_forces():
    ends = []
    for iterations in (1, 2, 3):
        solver = open_air(
            ForceDensityField(value=(1.0, 0.0, 0.0)),
            FluidDragForce(law="linear", coefficient=0.01, velocity=(0.0, 2.0, 0.0)),
            ViscosityMaterial(viscosity=0.1, tolerance=1e-12),
            PressureMaterial(tolerance=1e-12),
            newton_iterations=iterations,
            newton_tolerance=0.0,
        )
        rng = np.random.default_rng(0)
        shape = solver.read("air", "velocity").shape
        solver.write("air", "velocity", rng.normal(size=shape))
        solver.run(2)
        ends.append(solver.read("air", "velocity"))
    for other in ends[1:]:
        np.testing.assert_allclose(other, ends[0], atol=1e-9)


# -- symmetry ---------------------------------------------------------------------------------


# Needs lower and upper open sides to be alike in every pass of the advection.
@functools.cache
def symmetric_plume():
    density = np.zeros((16, 16, 16))
    density[5:11, 2:6, 5:11] = 1.0
    source = Voxels.from_dense(density, (0.0, 0.0, 0.0), 0.125)
    setup = SolverSetup(
        "plume",
        VolumeObject(name="air", voxel_size=0.125, region="box"),
        PressureMaterial(tolerance=1e-13),
        BuoyancyForce(),
        VolumeEmission(source="source", temperature=600.0),
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=("open", "wall", "open"),
    )
    solver = Solver(setup, {"source": source})
    solver.run(10)
    return solver.outputs()["air"]


def test_a_plume_from_a_symmetric_source_stays_symmetric():
    smoke = symmetric_plume()
    for name in ("density", "temperature"):
        field = smoke.to_dense(name)[0]
        scale = np.abs(field).max()
        np.testing.assert_allclose(field, field[::-1], atol=1e-9 * scale)
        np.testing.assert_allclose(field, field[:, :, ::-1], atol=1e-9 * scale)
        np.testing.assert_allclose(field, field.transpose(2, 1, 0), atol=1e-9 * scale)
    u = smoke.to_dense("velocity")
    assert u[1].max() > 0.5  # it does rise


def test_the_velocity_of_a_symmetric_plume_is_symmetric_to_round_off():
    u = symmetric_plume().to_dense("velocity")
    np.testing.assert_allclose(u[1], u[1, ::-1], atol=1e-9)
    # Lower faces: those at x = 0 have their mirror image beyond the last stored ones.
    np.testing.assert_allclose(u[0, 1:], -u[0, :0:-1], atol=1e-9)
    np.testing.assert_allclose(u[2, :, :, 1:], -u[2, :, :, :0:-1], atol=1e-9)
    np.testing.assert_allclose(u[0], u[2].transpose(2, 1, 0), atol=1e-9)
