"""Liquids that meet a wind, strands and balls: one impulse, and only where there is something."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import SetupError
from tests.skeleton.liquid_scene import box as block

pytestmark = pytest.mark.compiles

H, DT = 1.0 / 8.0, 0.01  # m, s
PERIODIC = ("periodic",) * 3
WATER, AIR, HAIR = "Water", "Air", "Hair"
DROP = 1000.0 * H**3 / 8.0  # kg
RADIUS = float(np.cbrt(H**3 / 8.0 / (4.0 / 3.0 * np.pi)))  # m
GROWN = {"boundary_lower": ("wall",) * 3, "boundary_upper": ("wall",) * 3}


def scene(*parts, inputs, **settings):
    """A box of a metre without weight; water has no pressure unless it is given."""
    chosen = {
        "precision": "double",
        "bucket_size": 0.5,
        "frames_per_second": 1.0 / DT,
        "domain_lower": (0.0, 0.0, 0.0),
        "domain_upper": (1.0, 1.0, 1.0),
        "boundary_lower": PERIODIC,
        "boundary_upper": PERIODIC,
    }
    return lk.Solver(lk.SolverSetup("box", *parts, **(chosen | settings)), inputs)


def water(**parameters):
    return lk.HybridObject(name=WATER, voxel_size=H, input="water", **parameters)


def wind(**parameters):
    chosen = {"voxel_size": H, "region": "box", "channels": (), "velocity_scheme": "none"}
    return lk.Group(
        "Wind",
        lk.VolumeObject(name=AIR, **(chosen | parameters)),
        lk.PressureMaterial(tolerance=1e-13),
    )


def spray(count=40, seed=3):
    """A ball of water beside single drops, all in motion."""
    rng = np.random.default_rng(seed)
    axis = (np.arange(16) + 0.5) * 0.5 * H
    lattice = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    ball = lattice[np.linalg.norm(lattice - 0.4, axis=1) < 0.3]
    places = np.concatenate((ball, rng.random((count, 3))))
    points = lk.Points(places)
    velocity = np.array([2.0, -1.0, 0.5]) + rng.standard_normal(places.shape)
    points.set_channel("point", "velocity", velocity)
    return points


def one_drop(velocity=(0.0, 0.0, 0.0), count=1):
    points = lk.Points(np.array([[0.51, 0.47, 0.53]] * count))
    points.set_channel("point", "velocity", np.tile(velocity, (count, 1)))
    return points


def blow(solver, velocity):
    flow = np.zeros_like(solver.read(f"Wind/{AIR}", "velocity"))
    flow[:] = np.asarray(velocity)[None, :, None, None, None]
    solver.write(f"Wind/{AIR}", "velocity", flow)


def wind_momentum(solver):
    return 1.204 * H**3 * solver.read(f"Wind/{AIR}", "velocity").sum(axis=(0, 2, 3, 4))


def water_momentum(solver):
    return DROP * solver.read(WATER, "velocity").sum(axis=0)


def exchanged(solver, place=None):
    found = [a for a in solver.actions["CoupledDragForce"] if place is None or place in a.path]
    assert len(found) == 1
    return found[0].exchange.to_document()


# -- water and wind ----------------------------------------------------------------------------


@pytest.mark.parametrize("transfer", ["apic", "flip"])
@pytest.mark.parametrize("newton", [1, 2])
def test_water_and_wind_keep_their_momentum(transfer, newton):
    solver = scene(
        water(transfer=transfer, flip_part=1.0, drop_radius=0.002),
        wind(),
        lk.CoupledDragForce(),
        inputs={"water": spray()},
        newton_iterations=newton,
    )
    start, air = water_momentum(solver), wind_momentum(solver)
    for _ in range(3):
        solver.run(1)
    given, lost = water_momentum(solver) - start, wind_momentum(solver) - air
    size = np.abs(lost).max()
    assert size > 0.05  # N s
    np.testing.assert_allclose(given + lost, 0.0, atol=1e-12 * np.abs(start).max())
    document = exchanged(solver)
    np.testing.assert_allclose(document["momentum_to_fluid"], lost, rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(document["momentum_residual"], 0.0, atol=1e-12 * size)
    assert document["heat"] > 0.0


def test_one_way_directions():
    solver = scene(
        water(), wind(), lk.CoupledDragForce(direction="fluid_to_solids"),
        inputs={"water": spray()},
    )  # fmt: skip
    start = water_momentum(solver)
    solver.run(2)
    given = water_momentum(solver) - start
    assert not np.any(solver.read(f"Wind/{AIR}", "velocity"))
    document = exchanged(solver)
    size = np.abs(start).max()
    np.testing.assert_allclose(document["momentum_to_solids"], given, atol=1e-12 * size)
    np.testing.assert_allclose(document["momentum_unanswered"], -given, atol=1e-12 * size)
    solver = scene(
        water(), wind(), lk.CoupledDragForce(direction="solids_to_fluid"),
        inputs={"water": spray()},
    )  # fmt: skip
    solver.run(2)
    np.testing.assert_allclose(water_momentum(solver), start, atol=1e-12 * size)
    assert wind_momentum(solver) @ start > 0.0


@pytest.mark.parametrize("law", ["linear", "quadratic", "reynolds"])
def test_a_drop_of_water_is_dragged_as_a_particle_is(law):
    """In 30 m/s, with one step of a drag far beyond what an explicit step would bear."""
    drag = lk.CoupledDragForce(law=law, coefficient=1e3, direction="fluid_to_solids")
    liquid = scene(water(), wind(), drag, inputs={"water": one_drop()})
    dust = lk.ParticleObject(name=WATER, input="water", radius=RADIUS, density=1000.0)
    particle = scene(dust, wind(), drag, inputs={"water": one_drop()})
    for solver in (liquid, particle):
        blow(solver, (30.0, 0.0, 0.0))
        solver.run(5)
    found = liquid.read(WATER, "velocity")
    np.testing.assert_allclose(found, particle.read(WATER, "velocity"), rtol=1e-12)
    assert 0.0 < found[0, 0] < 30.0
    if law == "linear":
        assert found[0, 0] == pytest.approx(30.0 * (1.0 - (1.0 + 1e3 * DT / DROP) ** -5))


def test_fine_drops_are_dragged_more():
    """K of n drops of radius r, where n r^3 is the particle's: with a quadratic law as 1 / r."""
    found = []
    for radius in (RADIUS, RADIUS / 10.0):
        solver = scene(
            water(drop_radius=radius), wind(),
            lk.CoupledDragForce(law="quadratic", direction="fluid_to_solids"),
            inputs={"water": one_drop()},
        )  # fmt: skip
        blow(solver, (30.0, 0.0, 0.0))
        solver.run(1)
        slip = 30.0 - solver.read(WATER, "velocity")[0, 0]
        found.append(30.0 / slip - 1.0)  # K h / m of backward Euler
    assert found[1] == pytest.approx(10.0 * found[0], rel=1e-9)


def test_wind_drags_the_surface_of_a_pool_alone():
    solver = scene(
        water(), wind(),
        lk.CoupledDragForce(law="linear", coefficient=1.0, direction="fluid_to_solids"),
        inputs={"water": block((0, 0, 0), (1, 0.5, 1))}, **GROWN,
    )  # fmt: skip
    blow(solver, (30.0, 0.0, 0.0))
    solver.run(1)
    depth = 0.5 - solver.read(WATER, "position")[:, 1]
    speed = solver.read(WATER, "velocity")[:, 0]
    assert speed[depth < 0.5 * H].min() > 0.1  # m/s
    assert not np.any(speed[depth > 1.01 * H])  # walls and floor are no surface either


def test_a_run_with_wind_goes_on_from_a_state():
    def start():
        return scene(water(), wind(), lk.CoupledDragForce(), inputs={"water": spray()})

    whole, first, second = start(), start(), start()
    whole.run(4)
    first.run(2)
    second.restore(first.state())
    second.run(2)
    np.testing.assert_array_equal(whole.read(WATER, "velocity"), second.read(WATER, "velocity"))
    assert exchanged(whole) == exchanged(second)


def test_liquids_do_not_drag_themselves_nor_each_other():
    other = lk.HybridObject(name="Oil", voxel_size=H, input="water", density=800.0)
    solver = scene(
        water(), other, lk.CoupledDragForce(), lk.CoupledBuoyancyOperator(),
        inputs={"water": spray()},
    )  # fmt: skip
    idle = {one.path for one in solver.inactive}
    assert {"CoupledDragForce", "CoupledBuoyancyOperator"} <= idle


def test_drops_have_a_size():
    with pytest.raises(SetupError, match="drop_radius"):
        water(drop_radius=0.0)


# -- solids in water ---------------------------------------------------------------------------


def strands(lower, upper, count=10, vertices=6, seed=1):
    """Bent strands in a part of the box, in motion."""
    rng = np.random.default_rng(seed)
    lower, upper = np.asarray(lower), np.asarray(upper)
    roots = lower + rng.random((count, 1, 3)) * (upper - lower)
    along = rng.standard_normal((count, 1, 3))
    along *= 0.02 / np.linalg.norm(along, axis=2, keepdims=True)
    curves = lk.Curves.from_strands(roots + np.arange(vertices)[:, None] * along)
    curves.set_channel("point", "velocity", rng.standard_normal((count * vertices, 3)))
    return curves


def hair():
    return lk.Group(
        "Hair",
        lk.CurvesObject(name=HAIR, input="hair", root="free", radius=2e-3, density=900.0),
        lk.StretchingConstraint(young_modulus=1e6),
        lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5),
    )


def test_strands_in_honey_go_on_from_a_state_bit_for_bit():
    """The pressure of the step before acts first, with the mobility that a resumed run has too."""
    inputs = {
        "water": block((0.0, 0.0, 0.0), (1.0, 0.5, 1.0)),
        "hair": strands((0.1, 0.1, 0.1), (0.9, 0.4, 0.9)),
    }
    parts = (
        water(), hair(), lk.PressureMaterial(), lk.ViscosityMaterial(viscosity=10.0),
        lk.GravityForce(), lk.CoupledDragForce(),
    )  # fmt: skip
    whole, other = (scene(*parts, inputs=inputs, **GROWN) for _ in range(2))
    whole.run(2)
    state = whole.state()
    whole.run(2)
    other.restore(state)
    other.run(2)
    for path in (WATER, f"Hair/{HAIR}"):
        np.testing.assert_array_equal(other.read(path, "position"), whole.read(path, "position"))


@pytest.mark.parametrize("transfer", ["apic", "flip"])
@pytest.mark.parametrize("law", ["linear", "reynolds"])
def test_strands_and_water_keep_their_momentum(transfer, law):
    """Some are below the surface, some cross it, some are in the air."""
    solver = scene(
        water(transfer=transfer, flip_part=1.0),
        hair(),
        lk.CoupledDragForce(law=law, coefficient=0.05),
        inputs={
            "water": block((0.0, 0.0, 0.0), (1.0, 0.5, 1.0)),
            "hair": strands((0.1, 0.1, 0.1), (0.9, 0.8, 0.9), count=40),
        },
    )
    path = f"Hair/{HAIR}"

    def momentum():
        strand = solver.read(path, "mass")[:, None] * solver.read(path, "velocity")
        return strand.sum(axis=0), water_momentum(solver)

    start, rest = momentum()
    solver.run(3)
    given, taken = (after - before for after, before in zip(momentum(), (start, rest)))
    size = np.abs(taken).max()
    document = exchanged(solver)
    np.testing.assert_allclose(document["momentum_to_fluid"], taken, rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(document["momentum_residual"], 0.0, atol=1e-12 * size)
    np.testing.assert_allclose(given + taken, 0.0, rtol=0, atol=1e-10 * size)
    assert size > 1e-3


def test_strands_in_the_air_feel_no_water():
    solver = scene(
        water(), lk.PressureMaterial(), lk.GravityForce(), hair(), lk.CoupledDragForce(),
        lk.CoupledBuoyancyOperator(),
        inputs={
            "water": block((0.0, 0.0, 0.0), (1.0, 0.25, 1.0)),
            "hair": strands((0.1, 0.5, 0.1), (0.9, 0.9, 0.9)),
        }, **GROWN,
    )  # fmt: skip
    alone = scene(
        hair(), lk.GravityForce(),
        inputs={"hair": strands((0.1, 0.5, 0.1), (0.9, 0.9, 0.9))}, **GROWN,
    )  # fmt: skip
    for one in (solver, alone):
        one.run(2)
    path = f"Hair/{HAIR}"
    np.testing.assert_allclose(
        solver.read(path, "velocity"), alone.read(path, "velocity"), rtol=0, atol=1e-12
    )


def test_balls_are_lifted_by_the_weight_of_the_water_they_displace():
    """Anywhere below the surface, on the floor and beside walls too, and not above it."""
    rng = np.random.default_rng(6)
    below = rng.uniform((0.001, 0.001, 0.001), (0.999, 0.75 - 1.6 * H, 0.999), (40, 3))
    above = rng.uniform((0.1, 0.75 + 1.1 * H, 0.1), (0.9, 0.99, 0.9), (5, 3))
    density = 600.0
    solver = scene(
        water(), lk.PressureMaterial(tolerance=1e-10), lk.GravityForce(),
        lk.ParticleObject(name="Balls", input="balls", radius=1e-3, density=density),
        lk.CoupledBuoyancyOperator(direction="fluid_to_solids"),
        inputs={
            "water": block((0.0, 0.0, 0.0), (1.0, 0.75, 1.0)),
            "balls": lk.Points(np.concatenate((below, above))),
        }, **GROWN,
    )  # fmt: skip
    solver.run(2)
    velocity = solver.read("Balls", "velocity")
    rise = 9.81 * (1000.0 / density - 1.0) * 2.0 * DT
    np.testing.assert_allclose(velocity[:40], np.tile((0.0, rise, 0.0), (40, 1)), atol=1e-3 * rise)
    np.testing.assert_allclose(velocity[40:, 1], -9.81 * 2.0 * DT)


def terminal_speed(radius, density):
    """Speed at which (rho_s - rho) V g = 6 pi mu r (1 + 0.15 Re^0.687) v, by bisection."""
    weight = (density - 1000.0) * 4.0 / 3.0 * np.pi * radius**3 * 9.81

    def drag(v):
        reynolds = 2.0 * radius * v * 1000.0 / 1e-3
        return 6.0 * np.pi * 1e-3 * radius * v * (1.0 + 0.15 * reynolds**0.687)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if drag(middle) < abs(weight) else (low, middle)
    return np.sign(weight) * low


@pytest.mark.parametrize("density", [2500.0, 400.0])
def test_a_ball_sinks_or_rises_at_its_terminal_speed(density):
    radius = 1e-3
    solver = scene(
        water(), lk.PressureMaterial(tolerance=1e-10), lk.GravityForce(),
        lk.ParticleObject(name="Ball", input="ball", radius=radius, density=density),
        lk.CoupledDragForce(direction="fluid_to_solids"),
        lk.CoupledBuoyancyOperator(direction="fluid_to_solids"),
        inputs={
            "water": block((0.0, 0.0, 0.0), (1.0, 0.75, 1.0)),
            "ball": lk.Points(np.array([[0.48, 0.42, 0.55]])),
        }, **GROWN,
    )  # fmt: skip
    solver.run(24)
    fall = -solver.read("Ball", "velocity")[0]
    expected = terminal_speed(radius, density)
    assert fall[1] == pytest.approx(expected, rel=1e-3)
    assert abs(expected) > 0.1 and np.abs(fall[[0, 2]]).max() < 1e-3 * abs(expected)
