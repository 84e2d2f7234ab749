"""Position-Based Fluid: density, momentum, walls, viscosity, tension, and what may go wrong."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from tests.particle_fluids import G, block, box_mesh, fluid, radius_of, read, sphere_mesh

pytestmark = pytest.mark.compiles

WALLS = {
    "domain_lower": (0.0, 0.0, 0.0),
    "boundary_lower": ("wall",) * 3,
    "boundary_upper": ("wall",) * 3,
}


def momentum(solver):
    return (read(solver, "mass")[:, None] * read(solver, "velocity").astype(np.float64)).sum(axis=0)


def test_what_is_pressed_together_expands_to_the_density_at_rest():
    d = 0.1
    solver = fluid(block(8, 8, 8, spacing=0.93 * d), radius=radius_of(d), substeps=4)
    solver.run(8)
    density = read(solver, "density_ratio")
    assert density.max() < 1.03
    assert np.ptp(read(solver, "position"), axis=0).min() > 7 * 0.93 * d


@pytest.mark.parametrize("precision, tolerance", [("single", 2e-6), ("double", 1e-13)])
def test_momentum_is_kept_by_particles_of_different_size_and_density(precision, tolerance):
    random = np.random.default_rng(4)
    points = lk.Points(block(7, 7, 7, spacing=0.1))
    points.set_channel("point", "radius", radius_of(0.1) * random.uniform(0.8, 1.2, 343))
    points.set_channel("point", "density", random.uniform(500.0, 2000.0, 343))
    points.set_channel("point", "velocity", random.normal(0.0, 0.1, (343, 3)))
    solver = fluid(points, precision=precision, viscosity=0.3, surface_tension=0.5)
    before, size = momentum(solver), float(read(solver, "mass").sum())
    solver.run(5)
    np.testing.assert_allclose(momentum(solver), before, rtol=0, atol=tolerance * size)


def test_a_column_at_rest_carries_its_weight():
    d, height = 0.05, 20
    points = block(8, height, 8, spacing=d)
    solver = fluid(
        points, radius=radius_of(d), gravity=True, iterations=10, fps=240.0, viscosity=0.1,
        domain_upper=(8 * d, 2.0, 8 * d), **WALLS,
    )  # fmt: skip
    solver.run(240)
    y, pressure = read(solver, "position")[:, 1], read(solver, "pressure")
    deep = y < 0.8 * height * d
    slope = np.polyfit(y[deep], pressure[deep], 1)[0]
    assert slope == pytest.approx(-1000.0 * G, rel=0.06)
    assert read(solver, "density_ratio").max() < 1.05
    assert y.max() == pytest.approx(height * d - d / 2, abs=d)


def test_walls_and_colliders_hold_a_falling_block():
    d = 0.05
    points = block(10, 10, 10, spacing=d, corner=(0.3, 0.9, 0.3))
    solver = fluid(
        points, radius=radius_of(d), gravity=True, substeps=8, collider=sphere_mesh(0.3),
        move=(0.55, 0.35, 0.55), domain_upper=(1.1, 2.0, 1.1), **WALLS,
    )  # fmt: skip
    solver.run(30)
    x = read(solver, "position")
    assert np.all(x > 0.4 * d) and np.all(x < np.array([1.1, 2.0, 1.1]) - 0.4 * d)
    inside = np.linalg.norm(x - (0.55, 0.35, 0.55), axis=1) - 0.3
    assert inside.min() > 0.0
    assert len(x) == 1000


def test_a_moving_collider_pushes():
    d = 0.05
    points = block(6, 6, 6, spacing=d, corner=(0.5, 0.0, 0.0))

    def wall(frame):
        return box_mesh((-1.0, -1.0, -1.0), (0.45 + 0.04 * frame, 2.0, 2.0))

    solver = fluid(points, radius=radius_of(d), substeps=4, collider=wall)
    solver.run(10)
    x = read(solver, "position")[:, 0]
    assert x.min() > 0.45 + 0.4
    assert read(solver, "velocity")[:, 0].mean() > 0.5  # at 24 frames a second: 0.96 m/s


@pytest.mark.parametrize("friction", [0.0, 0.3])
def test_a_particle_slides_on_the_floor_by_coulombs_law(friction):
    points = lk.Points([[0.5, 0.03, 0.5]])
    points.set_channel("point", "velocity", [[2.0, 0.0, 0.0]])
    solver = fluid(
        points, radius=radius_of(0.06), gravity=True, friction=friction, fps=100.0,
        domain_upper=(10.0, 2.0, 1.0), **WALLS,
    )  # fmt: skip
    solver.run(50)
    expected = 2.0 - friction * G * 0.5
    assert read(solver, "velocity")[0, 0] == pytest.approx(expected, rel=0.02)


def test_friction_is_painted_on_a_collider():
    mesh = box_mesh((-5.0, -1.0, -5.0), (5.0, 0.0, 5.0))
    rough = np.where(mesh.positions[:, 2] > 0.0, 0.4, 0.0)
    mesh.set_channel("point", "friction", rough)
    points = lk.Points([[0.0, 0.05, -4.9], [0.0, 0.05, 4.9]])
    points.set_channel("point", "velocity", [[1.0, 0.0, 0.0]] * 2)
    solver = fluid(points, radius=radius_of(0.1), gravity=True, collider=mesh, fps=100.0)
    solver.run(20)
    smooth, rubbed = read(solver, "velocity")[:, 0]
    assert smooth == pytest.approx(1.0, abs=0.04)
    assert rubbed == pytest.approx(1.0 - 0.4 * G * 0.2, abs=0.06)


@pytest.mark.parametrize("viscosity", [0.3, 1.0, 10.0, 1000.0])
def test_viscosity_of_any_strength_is_stable(viscosity):
    random = np.random.default_rng(5)
    points = lk.Points(block(6, 6, 6, spacing=0.1))
    points.set_channel("point", "velocity", random.normal(0.0, 1.0, (216, 3)))
    solver = fluid(points, radius=radius_of(0.1), viscosity=viscosity, precision="double")
    before, noise = momentum(solver), read(solver, "velocity").std()
    solver.run(1)
    np.testing.assert_allclose(momentum(solver), before, rtol=0, atol=1e-10)
    assert read(solver, "velocity").std() < noise
    if viscosity >= 10.0:
        assert read(solver, "velocity").std() < 0.5 * noise


def test_tension_holds_a_drop_together():
    random = np.random.default_rng(6)
    x = block(9, 9, 9, spacing=0.1) - 0.45
    x = x[np.linalg.norm(x, axis=1) < 0.42]
    points = lk.Points(x)
    points.set_channel("point", "velocity", 0.1 * random.normal(size=x.shape) + 0.4 * x)
    spread = {}
    for tension in (0.0, 1.0):
        solver = fluid(points, radius=radius_of(0.1), surface_tension=tension, substeps=4)
        solver.run(48)
        spread[tension] = float(read(solver, "position").std())
    assert spread[1.0] < 0.7 * spread[0.0]
    assert read(solver, "density_ratio").max() < 1.1


def test_inequality_only_pushes():
    """Two particles that are too far apart to be dense leave each other alone."""
    for inequality, moves in ((True, False), (False, True)):
        solver = fluid(
            lk.Points([[0.0, 0.0, 0.0], [0.12, 0.0, 0.0]]), radius=radius_of(0.1),
            inequality=inequality, surface_tension=2.0, precision="double",
        )  # fmt: skip
        solver.run(2)
        attracted = read(solver, "velocity")[0, 0] > 1e-6
        assert attracted == moves


def test_vorticity_confinement_speeds_a_vortex_up():
    x = block(12, 12, 12, spacing=0.1) - 0.6
    apart = np.hypot(x[:, 0], x[:, 2])
    speed = np.exp(-((apart / 0.3) ** 2))
    points = lk.Points(x)
    swirl = np.stack((-x[:, 2], 0.0 * apart, x[:, 0]), axis=1) / np.maximum(apart, 1e-9)[:, None]
    points.set_channel("point", "velocity", (3.0 * apart * speed)[:, None] * swirl)
    turning = []
    for strength in (0.0, 5.0):
        solver = fluid(points, radius=radius_of(0.1), vorticity=strength, fps=100.0, viscosity=0.0)
        solver.run(1)
        v = read(solver, "velocity")
        turning.append(float(np.einsum("na,na->", swirl[apart < 0.4], v[apart < 0.4])))
    assert turning[1] > 1.02 * turning[0]


# -- what may go wrong -------------------------------------------------------------------------


def finite(solver):
    return (
        np.isfinite(read(solver, "position")).all() and np.isfinite(read(solver, "velocity")).all()
    )


def test_all_particles_in_one_point():
    solver = fluid(lk.Points(np.zeros((200, 3))), radius=radius_of(0.1), substeps=2)
    solver.run(10)
    assert finite(solver)
    assert np.abs(read(solver, "velocity")).max() < 50.0


def test_overlapping_blocks_part():
    x = np.concatenate((block(6, 6, 6, spacing=0.1), block(6, 6, 6, spacing=0.1) + 0.013))
    solver = fluid(lk.Points(x), radius=radius_of(0.1), substeps=4)
    solver.run(10)
    assert finite(solver)
    assert read(solver, "density_ratio").max() < 1.2


def test_a_single_particle_falls_freely():
    solver = fluid(lk.Points([[1.0, 2.0, 3.0]]), radius=0.1, gravity=True, precision="double")
    solver.run(24)
    assert read(solver, "velocity")[0, 1] == pytest.approx(-G, rel=1e-12)


def test_no_particles():
    solver = fluid(lk.Points(np.zeros((0, 3))), radius=0.1, gravity=True)
    solver.run(2)
    assert len(read(solver, "position")) == 0


def test_far_from_the_origin_the_motion_is_the_same():
    x = block(5, 5, 5, spacing=0.09)
    near, far = (
        fluid(lk.Points(x + shift), radius=radius_of(0.1), precision="double")
        for shift in (0.0, 1.0e6)
    )
    for solver in (near, far):
        solver.run(4)
    np.testing.assert_allclose(
        read(far, "position") - 1.0e6, read(near, "position"), rtol=0, atol=1e-6
    )


def test_radii_that_differ_a_hundred_times():
    small = block(6, 6, 6, spacing=0.01, corner=(0.6, 0.0, 0.0))
    points = lk.Points(np.concatenate(([[0.0, 0.0, 0.0]], small)))
    radius = np.full(217, radius_of(0.01))
    radius[0] = radius_of(1.0)
    points.set_channel("point", "radius", radius)
    solver = fluid(points, precision="double", substeps=2)
    before = momentum(solver)
    solver.run(5)
    assert finite(solver)
    np.testing.assert_allclose(momentum(solver), before, rtol=0, atol=1e-8)


def test_the_result_does_not_depend_on_threads_or_the_order_of_the_input():
    from loki_core.kernels.jit import set_thread_count

    x = block(7, 7, 7, spacing=0.09)
    results = []
    for threads in (1, 2):
        set_thread_count(threads)
        solver = fluid(lk.Points(x), radius=radius_of(0.1), gravity=True)
        solver.run(3)
        results.append(read(solver, "position"))
    np.testing.assert_array_equal(*results)


def test_a_liquid_is_not_made_of_droplets_too():
    setup = lk.SolverSetup(
        "t", lk.ParticleObject(name="P", input="p", radius=0.01), lk.PositionBasedFluid(),
        lk.BinaryDropletCollisions(),
    )  # fmt: skip
    both = "BinaryDropletCollisions and t/PositionBasedFluid both want t/P"
    with pytest.raises(lk.SetupError, match=both):
        lk.Solver(setup, {"p": lk.Points(np.zeros((1, 3)))}).run(1)


@pytest.mark.parametrize("kind", [lk.PositionBasedFluid, lk.SmoothedParticleFluid])
def test_a_shell_of_no_thickness_holds_what_falls_into_it(kind):
    d = 0.02
    tray = box_mesh((-8 * d, 0.0, -8 * d), (8 * d, 40 * d, 8 * d))
    setup = lk.SolverSetup(
        "t", lk.ParticleObject(name="P", input="p", radius=radius_of(d)), kind(),
        lk.Collider(input="tray", mode="shell"), lk.GravityForce(acceleration=(0.0, -G, 0.0)),
        adaptive_substeps=True, max_substeps=64,
    )  # fmt: skip
    places = block(10, 10, 10, spacing=d, corner=(-5 * d, 4 * d, -5 * d))
    solver = lk.Solver(setup, {"p": lk.Points(places), "tray": tray})
    solver.run(12)
    x = solver.read("P", "position")
    assert np.all(np.abs(x[:, [0, 2]]) < 8 * d) and x[:, 1].min() > 0.0


def test_only_one_fluid_acts_on_an_object():
    """The one in the nearest Group."""
    setup = lk.SolverSetup(
        "t",
        lk.Group("Inner", lk.ParticleObject(name="P", input="p"), lk.SmoothedParticleFluid()),
        lk.PositionBasedFluid(),
    )
    solver = lk.Solver(setup, {"p": lk.Points(block(2, 2, 2, spacing=0.01))})
    assert list(solver.actions) == ["Inner/SmoothedParticleFluid"]


@pytest.mark.parametrize("kind", [lk.PositionBasedFluid, lk.SmoothedParticleFluid])
@pytest.mark.parametrize("thickness", [0.2, 0.02])
def test_no_wall_is_too_thin_to_be_met(kind, thickness):
    """Particles that go three spacings a step meet a plate of a fifth of a spacing."""
    d = 0.1
    points = lk.Points(block(5, 3, 5, spacing=d, corner=(0.0, 0.5, 0.0)))
    points.set_channel("point", "velocity", np.tile((2.0, -15.0, 0.0), (75, 1)))
    plate = box_mesh((-3.0, -thickness, -3.0), (3.0, 0.0, 3.0))
    solver = fluid(points, radius=radius_of(d), collider=plate, kind=kind, fps=50.0)
    solver.run(8)
    x = read(solver, "position")
    assert x[:, 1].min() > 0.0
    assert read(solver, "velocity")[:, 0].mean() == pytest.approx(2.0, rel=0.1)  # it is smooth


def test_a_thin_plate_that_moves_takes_particles_along():
    d = 0.1
    points = block(4, 4, 4, spacing=d, corner=(0.05, 0.0, 0.0))

    def plate(frame):
        x = 0.25 * (frame - 1)  # two and a half spacings a step
        return box_mesh((x - 0.03, -2.0, -2.0), (x, 2.0, 2.0))

    solver = fluid(points, radius=radius_of(d), collider=plate)
    solver.run(6)
    assert read(solver, "position")[:, 0].min() > 0.25 * 6


def test_a_drop_that_goes_far_in_a_step_meets_the_floor():
    """Forty spacings a step, beyond where the distance to the floor is known."""
    d = 0.02
    points = lk.Points(block(5, 5, 5, spacing=d, corner=(0.0, 0.3, 0.0)))
    points.set_channel("point", "velocity", np.tile((0.0, -20.0, 0.0), (125, 1)))
    floor = box_mesh((-1.0, -0.2, -1.0), (1.0, 0.0, 1.0))
    solver = fluid(points, radius=radius_of(d), collider=floor)
    solver.run(2)
    assert read(solver, "position")[:, 1].min() > 0.0
