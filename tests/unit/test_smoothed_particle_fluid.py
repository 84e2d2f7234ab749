"""Smoothed Particle Fluid: compression, pressure, viscosity, surface tension and adhesion."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from tests.particle_fluids import G, block, box_mesh, fluid, radius_of, read

pytestmark = pytest.mark.compiles

SPH = lk.SmoothedParticleFluid
WALLS = {
    "domain_lower": (0.0, 0.0, 0.0),
    "boundary_lower": ("wall",) * 3,
    "boundary_upper": ("wall",) * 3,
}
PERIODIC = {
    "domain_lower": (0.0, 0.0, 0.0),
    "boundary_lower": ("periodic",) * 3,
    "boundary_upper": ("periodic",) * 3,
}


def momentum(solver):
    return (read(solver, "mass")[:, None] * read(solver, "velocity").astype(np.float64)).sum(axis=0)


def test_compression_stays_below_the_tolerance_in_a_dam_break():
    d = 0.05
    solver = fluid(
        block(8, 16, 6, spacing=d), kind=SPH, radius=radius_of(d), gravity=True, fps=240.0,
        domain_upper=(1.2, 2.0, 6 * d), **WALLS,
    )  # fmt: skip
    worst, mean = 0.0, 0.0
    for _ in range(60):
        solver.run(1)
        density = read(solver, "density_ratio")
        worst = max(worst, float(density.max() - 1.0))
        mean = max(mean, float(np.maximum(density - 1.0, 0.0).mean()))
    assert mean < 0.0011
    assert worst < 0.02
    assert read(solver, "position")[:, 0].max() > 8 * d + 0.1  # it has flown


def test_a_column_at_rest_carries_its_weight():
    d, height = 0.05, 20
    solver = fluid(
        block(8, height, 8, spacing=d), kind=SPH, radius=radius_of(d), gravity=True, fps=240.0,
        domain_upper=(8 * d, 2.0, 8 * d), **WALLS,
    )  # fmt: skip
    solver.run(180)
    y, pressure = read(solver, "position")[:, 1], read(solver, "pressure")
    deep = y < 0.8 * height * d
    slope = np.polyfit(y[deep], pressure[deep], 1)[0]
    assert slope == pytest.approx(-1000.0 * G, rel=0.04)
    speed = np.linalg.norm(read(solver, "velocity"), axis=1)
    assert np.sqrt(np.mean(speed**2)) < 0.03 * np.sqrt(G * height * d)


def test_a_deep_column_is_stable_at_a_long_step():
    """(omega dt)^2 of the fastest vibration is 7 at the bottom: an explicit pressure explodes."""
    d, height = 0.02, 40
    solver = fluid(
        block(5, height, 5, spacing=d), kind=SPH, radius=radius_of(d), gravity=True, fps=160.0,
        domain_upper=(5 * d, 2.0, 5 * d), **WALLS,
    )  # fmt: skip
    solver.run(40)
    y = read(solver, "position")[:, 1]
    assert y.max() < 1.1 * height * d
    assert y.mean() == pytest.approx(0.5 * height * d, rel=0.05)


@pytest.mark.parametrize("support, least", [(2.0, 0.5), (3.0, 0.85)])
def test_a_shear_wave_decays_with_the_viscosity(support, least):
    """u = sin(k y) loses exp(-nu k^2 t); sums over few neighbours find a part of nu."""
    d, n, nu = 0.1, 12, 0.02
    x = block(n, n, n, spacing=d)
    k = 2.0 * np.pi / (n * d)
    points = lk.Points(x)
    velocity = np.zeros_like(x)
    velocity[:, 0] = 0.02 * np.sin(k * x[:, 1])
    points.set_channel("point", "velocity", velocity)
    solver = fluid(
        points, kind=SPH, radius=radius_of(d), viscosity=nu, fps=100.0, precision="double",
        support=support, domain_upper=(n * d,) * 3, **PERIODIC,
    )  # fmt: skip
    solver.run(50)
    y, u = read(solver, "position")[:, 1], read(solver, "velocity")[:, 0]
    decay = -np.log(2.0 * np.mean(u * np.sin(k * y)) / 0.02) / 0.5
    assert least < decay / (nu * k * k) < 1.05


def test_viscous_stress_keeps_momentum_and_lets_a_drop_turn():
    x = block(9, 9, 9, spacing=0.1) - 0.45
    x = x[np.linalg.norm(x, axis=1) < 0.4]
    points = lk.Points(x)
    spin = np.stack((-x[:, 1], x[:, 0], 0.0 * x[:, 0]), axis=1)
    points.set_channel("point", "velocity", 0.05 * spin + (0.1, 0.2, 0.3))
    solver = fluid(
        points, kind=SPH, radius=radius_of(0.1), viscosity=100.0, fps=100.0, precision="double"
    )
    before = momentum(solver)
    solver.run(10)
    np.testing.assert_allclose(momentum(solver), before, rtol=1e-9)
    p, v = read(solver, "position"), read(solver, "velocity")
    p, v = p - p.mean(axis=0), v - v.mean(axis=0)
    turning = np.cross(p, v)[:, 2].sum() / np.square(np.hypot(p[:, 0], p[:, 1])).sum()
    assert turning == pytest.approx(0.05, rel=0.02)


def drop(spacings, stretch=1.0):
    """A drop of a radius of 1 cm, drawn out along x."""
    d = 0.01 / spacings
    n = 2 * spacings + 6
    x = block(n, n, n, spacing=d) - 0.5 * n * d + np.array([0.13, 0.07, 0.21]) * d
    inside = np.linalg.norm(x / (stretch, stretch**-0.5, stretch**-0.5), axis=1) < 0.01
    return x[inside], d


@pytest.mark.slow
@pytest.mark.compiles
def test_pressure_in_a_drop_is_laplaces():
    x, d = drop(8)
    solver = fluid(
        lk.Points(x), kind=SPH, radius=radius_of(d), surface_tension=0.0728, viscosity=1e-4,
        fps=2000.0, precision="double",
    )  # fmt: skip
    solver.run(120)
    p, pressure = read(solver, "position"), read(solver, "pressure")
    apart = np.linalg.norm(p - p.mean(axis=0), axis=1)
    assert pressure[apart < 0.006].mean() == pytest.approx(2.0 * 0.0728 / 0.01, rel=0.15)
    assert apart.max() < 0.0115


def test_tension_rounds_a_drop():
    x, d = drop(5, stretch=1.3)
    solver = fluid(
        lk.Points(x), kind=SPH, radius=radius_of(d), surface_tension=0.0728, fps=1000.0,
    )  # fmt: skip
    before = x.std(axis=0)
    solver.run(60)
    after = read(solver, "position").std(axis=0)
    assert after[0] / after[1] < 0.85 * before[0] / before[1]


@pytest.mark.parametrize("angle", [0.5, 2.6])
def test_the_contact_angle_decides_whether_a_drop_spreads(angle):
    d = 0.001
    x = block(10, 6, 10, spacing=d, corner=(0.005, 0.0, 0.005))
    solver = fluid(
        lk.Points(x), kind=SPH, radius=radius_of(d), surface_tension=0.0728, contact_angle=angle,
        fps=1000.0, viscosity=1e-4, domain_upper=(0.02, 0.02, 0.02), **WALLS,
    )  # fmt: skip
    solver.run(100)
    p = read(solver, "position")
    low = p[p[:, 1] < 1.5 * d]
    width = np.hypot(*(low[:, [0, 2]] - p[:, [0, 2]].mean(axis=0)).T)
    outline = float(np.quantile(width, 0.95)) if len(width) else 0.0
    assert (outline > 0.0062) == (angle < 1.5)


def test_steps_resolve_capillary_waves():
    x, d = drop(5)
    solver = fluid(lk.Points(x), kind=SPH, radius=radius_of(d), surface_tension=0.0728)
    limit = solver.time_step_limit()
    assert limit == pytest.approx(0.4 * np.sqrt(1000.0 * d**3 / (2.0 * np.pi * 0.0728)), rel=1e-3)


@pytest.mark.parametrize("cloud", ["one point", "single", "overlapping", "none"])
def test_degenerate_clouds(cloud):
    x = {
        "one point": np.zeros((100, 3)),
        "single": np.zeros((1, 3)),
        "overlapping": np.concatenate([block(5, 5, 5, spacing=0.1)] * 2),
        "none": np.zeros((0, 3)),
    }[cloud]
    solver = fluid(
        lk.Points(x), kind=SPH, radius=radius_of(0.1), gravity=True, substeps=4,
        surface_tension=0.05, max_iterations=20,
    )  # fmt: skip
    solver.run(4)
    assert np.isfinite(read(solver, "velocity")).all()


def test_it_says_when_iterations_do_not_suffice():
    solver = fluid(
        block(6, 20, 6, spacing=0.05), kind=SPH, radius=radius_of(0.05), gravity=True, fps=20.0,
        max_iterations=1, domain_upper=(0.3, 2.0, 0.3), **WALLS,
    )  # fmt: skip
    solver.run(3)
    assert any("on the mean after 1 iterations" in one for one in solver.warnings)


@pytest.mark.parametrize("speed", [0.0, 1.0])
def test_a_particle_stays_on_a_collider(speed):
    """One alone is never dense, so no iteration is made: walls hold it all the same."""
    d = 0.02
    points = lk.Points([[0.0, 0.5 * d, 0.0]])
    points.set_channel("point", "velocity", [[speed, 0.0, 0.0]])
    table = box_mesh((-2.0, -0.2, -2.0), (2.0, 0.0, 2.0))
    solver = fluid(
        points, radius=radius_of(d), kind=lk.SmoothedParticleFluid, gravity=True, collider=table,
        substeps=4,
    )  # fmt: skip
    for _ in range(12):
        solver.run(1)
        assert read(solver, "position")[0, 1] == pytest.approx(0.5 * d, abs=0.02 * d)
    assert read(solver, "velocity")[0, 0] == pytest.approx(speed, abs=1e-3)


def test_a_drop_that_lands_on_a_collider_gains_no_energy():
    d = 0.02
    x = block(6, 6, 6, spacing=d, corner=(-0.06, 0.05, -0.06))
    table = box_mesh((-1.3, -0.2, -1.3), (1.3, 0.0, 1.3))
    setup = lk.SolverSetup(
        "t", lk.ParticleObject(name="P", input="p", radius=radius_of(d)),
        lk.SmoothedParticleFluid(), lk.Collider(input="table"), lk.GravityForce(),
        adaptive_substeps=True, max_substeps=64,
    )  # fmt: skip
    solver = lk.Solver(setup, {"p": lk.Points(x), "table": table})
    energy = []
    for _ in range(14):
        solver.run(1)
        v, y = read(solver, "velocity").astype(np.float64), read(solver, "position")[:, 1]
        energy.append(float(np.sum(0.5 * (v**2).sum(axis=1) + G * y)))
    assert np.all(np.diff(energy) < 0.02 * energy[0])
    assert read(solver, "position")[:, 1].min() > 0.45 * d


def test_particles_in_one_point_part_without_a_bang():
    d = 0.02
    solver = fluid(np.full((300, 3), 0.5), kind=SPH, radius=radius_of(d))
    solver.run(3)
    assert any("stand where another one does" in one for one in solver.warnings)
    assert np.abs(read(solver, "velocity")).max() < 0.5
    assert read(solver, "density_ratio").max() < 1.1
