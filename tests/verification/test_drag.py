"""Fluid drag: decay, terminal velocities, derivatives, and flows from voxels."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.forces.fluid_drag import LAWS, FluidDragForce, accumulate_drag
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup

AIR_DENSITY, AIR_VISCOSITY = 1.204, 1.81e-5
G = 9.81


def particle(velocity=(0.0, 0.0, 0.0), mass=None, radius=None, position=(0.0, 0.0, 0.0)):
    points = Points(np.array([position], dtype=np.float64))
    points.set_channel("point", "velocity", np.array([velocity], dtype=np.float64))
    for name, value in (("mass", mass), ("radius", radius)):
        if value is not None:
            points.set_channel("point", name, np.array([value]))
    return points


def run(points, *behaviors, frames, inputs=None, **settings):
    setup = SolverSetup(
        "drag", ParticleObject(input="p"), *behaviors, **{"precision": "double", **settings}
    )
    solver = Solver(setup, {"p": points, **(inputs or {})})
    velocities = []
    for _ in range(frames):
        solver.run(1)
        velocities.append(solver.read("ParticleObject", "velocity")[0])
    return np.array(velocities)


# w_n = w_0 / (1 + K h / m)^n exactly; 20 steps of a few roundings each: 1e-15 and 6e-8 apiece.
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-12), ("single", 1e-5)])
@pytest.mark.parametrize("stiffness", [1e-3, 1.0, 1e6])
def test_linear_drag_decays_by_its_factor_in_each_step(precision, tolerance, stiffness):
    mass, h = 0.25, 1 / 24
    coefficient = stiffness * mass / h  # K h / m = stiffness
    flow, start = np.array([1.0, 0.0, -2.0]), np.array([3.0, 1.0, 0.5])
    drag = FluidDragForce(law="linear", coefficient=coefficient, velocity=tuple(flow))
    found = run(particle(tuple(start), mass), drag, frames=20, precision=precision)
    factor = (1.0 + stiffness) ** -np.arange(1.0, 21.0)
    expected = flow + (start - flow) * factor[:, None]
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * 3.0)


def test_the_first_step_of_linear_drag_is_exact_relative_to_itself():
    drag = FluidDragForce(law="linear", coefficient=7.0)
    found = run(particle((3.0, -4.0, 5.0), 2.0), drag, frames=1)[0]
    np.testing.assert_allclose(found, np.array([3.0, -4.0, 5.0]) / (1 + 7 / 24 / 2), rtol=1e-14)


# At rest in the moving frame m g = phi(s) s; backward Euler has the same fixed point, so only the
# relaxation is left, which is over after 400 steps of 1 s (relaxation times are below 1 s here).
def ball_mass(radius, density=1000.0):
    return 4 / 3 * np.pi * radius**3 * density


def terminal(law, radius, **parameters):
    fall = run(
        particle(radius=radius),
        GravityForce(),
        FluidDragForce(law=law, **parameters),
        frames=120,
        frames_per_second=1.0,
        bucket_size=100.0,
    )
    assert abs(fall[-1, 1] - fall[-2, 1]) <= 1e-12 * abs(fall[-1, 1])
    return -fall[-1, 1]


@pytest.mark.parametrize("radius", [1e-6, 20e-6, 100e-6])
def test_stokes_terminal_velocity(radius):
    expected = ball_mass(radius) * G / (6 * np.pi * AIR_VISCOSITY * radius)
    np.testing.assert_allclose(terminal("stokes", radius), expected, rtol=1e-11)
    # 2/9 of (density ratio) g r^2 / nu: the textbook form.
    np.testing.assert_allclose(expected, 2 / 9 * 1000 * G * radius**2 / AIR_VISCOSITY, rtol=1e-12)


@pytest.mark.parametrize("coefficient", [0.1, 0.47, 1.2])
def test_quadratic_terminal_velocity(coefficient):
    radius = 0.01
    area = np.pi * radius**2
    expected = np.sqrt(2 * ball_mass(radius) * G / (AIR_DENSITY * coefficient * area))
    found = terminal("quadratic", radius, drag_coefficient=coefficient)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("radius", [5e-6, 50e-6, 500e-6, 1.5e-3])
def test_schiller_naumann_terminal_velocity(radius):
    speed = terminal("schiller_naumann", radius)
    reynolds = 2 * radius * speed * AIR_DENSITY / AIR_VISCOSITY
    # C = 24 / Re (1 + 0.15 Re^0.687), and 0.44 beyond Re = 1000.
    c = 24 / reynolds * (1 + 0.15 * reynolds**0.687) if reynolds <= 1000 else 0.44
    drag = 0.5 * AIR_DENSITY * c * np.pi * radius**2 * speed**2
    np.testing.assert_allclose(drag, ball_mass(radius) * G, rtol=1e-9)
    assert (reynolds > 1000) == (radius == 1.5e-3)


def test_a_rain_drop_falls_as_measured():
    # Gunn & Kinzer (1949): a water drop of 1 mm diameter falls with 4.03 m/s in air at 20 degC;
    # the drag law of a rigid sphere is within 5 % of experiments here.
    np.testing.assert_allclose(terminal("schiller_naumann", 0.5e-3), 4.03, rtol=0.05)


@pytest.mark.parametrize("law", LAWS)
def test_the_jacobian_is_the_derivative_of_the_force(law):
    # df/dx = (df/dv) / dt; central differences with relative step 1e-6 leave about 1e-9.
    rng = np.random.default_rng(2)
    count, dt = 40, 0.02
    velocity = rng.standard_normal((count, 3)) * 10.0 ** rng.uniform(-3, 1, (count, 1))
    flow = rng.standard_normal((count, 3)) * 0.1
    radius = 10.0 ** rng.uniform(-5, -2, count)
    coefficient = rng.uniform(0.1, 2.0, count)

    def forces(v):
        force, jacobian = np.zeros((count, 3)), np.zeros((count, 3, 3))
        accumulate_drag(
            v, flow, 1, radius, LAWS.index(law), coefficient, 1, np.array([AIR_DENSITY]), 0,
            np.array([AIR_VISCOSITY]), 0, dt, force, jacobian,
        )  # fmt: skip
        return force, jacobian

    speed = np.linalg.norm(velocity - flow, axis=1)
    step = 1e-6 * speed
    _, jacobian = forces(velocity)
    for axis in range(3):
        moved = np.zeros((count, 3))
        moved[:, axis] = step
        difference = (forces(velocity + moved)[0] - forces(velocity - moved)[0]) / (
            2 * step[:, None]
        )
        scale = np.abs(jacobian).max(axis=(1, 2))[:, None] * dt
        assert np.all(np.abs(jacobian[:, :, axis] * dt - difference) <= 1e-6 * scale)
    np.testing.assert_allclose(jacobian, jacobian.transpose(0, 2, 1), rtol=1e-14)
    assert np.linalg.eigvalsh(jacobian).max() <= 0.0  # negative: it can only damp


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("precision", ["single", "double"])
def test_rest_relative_to_the_flow_has_no_force_and_a_finite_jacobian(law, precision):
    drag = FluidDragForce(law=law, velocity=(1.0, 2.0, 3.0))
    found = run(particle((1.0, 2.0, 3.0), 1.0), drag, frames=3, precision=precision)
    np.testing.assert_array_equal(found, np.broadcast_to([1.0, 2.0, 3.0], (3, 3)))


@pytest.mark.parametrize("law", ["linear", "stokes"])
def test_stiff_drag_never_overshoots(law):
    drag = FluidDragForce(law=law, coefficient=1e9, fluid_viscosity=1e3, velocity=(2.0, 0.0, 0.0))
    found = run(particle(mass=1e-6), drag, frames=5)[:, 0]
    assert np.all(np.diff(found) >= 0.0) and np.all((found > 0.0) & (found <= 2.0))


def test_newton_iterations_solve_the_quadratic_law_of_one_step():
    # m (v - v0) = -h k |v| v along one axis: h k v^2 + m v - m v0 = 0.
    mass, radius, h, start = 0.01, 0.1, 1 / 24, 50.0
    k = 0.5 * AIR_DENSITY * 0.47 * np.pi * radius**2
    expected = (-mass + np.sqrt(mass**2 + 4 * h * k * mass * start)) / (2 * h * k)
    found = run(
        particle((start, 0.0, 0.0), mass, radius),
        FluidDragForce(law="quadratic"),
        frames=1,
        newton_iterations=30,
        newton_tolerance=1e-14,
    )
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-12)


def test_a_linear_flow_is_read_at_the_guessed_end_of_the_step():
    # Rotation about z: u = omega x r, which trilinear interpolation reproduces.
    voxel = 0.1
    grid = (np.stack(np.meshgrid(*[np.arange(32)] * 3, indexing="ij")) + 0.5) * voxel - 1.6
    flow = 2.0 * np.stack((-grid[1], grid[0], np.zeros_like(grid[0])))
    wind = Voxels.from_dense({"velocity": flow}, (-1.6, -1.6, -1.6), voxel, background=1e9)
    position, velocity = np.array([0.31, -0.4, 0.2]), np.array([1.0, 2.0, -1.0])
    mass, coefficient, h = 2.0, 30.0, 1 / 24
    found = run(
        particle(tuple(velocity), mass, position=tuple(position)),
        FluidDragForce(
            law="linear", coefficient=coefficient, field="wind", velocity=(0.0, 0.0, 0.5)
        ),
        frames=1,
        inputs={"wind": wind},
    )[0]
    x, y, _ = position + h * velocity
    u = np.array([-2.0 * y, 2.0 * x, 0.5])
    a = coefficient * h / mass
    np.testing.assert_allclose(found, (velocity + a * u) / (1 + a), rtol=0, atol=1e-12)
