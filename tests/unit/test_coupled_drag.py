"""Coupled drag and buoyancy: both sides get the same impulse, whatever has points."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk

pytestmark = pytest.mark.compiles

N = 8
H = 1.0 / N  # m
RHO = 1.0  # kg/m^3
FACE = RHO * H**3  # kg
DT = 0.01  # s
V0 = np.array([1.0, 0.3, -0.2])
PERIODIC = ("periodic",) * 3
AIR, DUST, HAIR = "Wind/VolumeObject", "Dust/ParticleObject", "Hair/CurvesObject"


def box(*parts, inputs, **settings):
    """A closed periodic box of a metre."""
    chosen = {
        "precision": "double",
        "bucket_size": 0.5,
        "frames_per_second": 1.0 / DT,
        "domain_lower": (0.0, 0.0, 0.0),
        "domain_upper": (1.0, 1.0, 1.0),
        "boundary_lower": PERIODIC,
        "boundary_upper": PERIODIC,
    }
    setup = lk.SolverSetup("box", *parts, **(chosen | settings))
    return lk.Solver(setup, inputs)


def wind(*more, enabled=True, **settings):
    chosen = {"voxel_size": H, "region": "box", "channels": (), "density": RHO} | settings
    return lk.Group(
        "Wind",
        lk.VolumeObject(**chosen),
        lk.PressureMaterial(tolerance=1e-12),
        *more,
        enabled=enabled,
    )


def dust(mass=0.5 * FACE, velocity=V0):
    """One particle for each voxel, all at the same place in theirs."""
    axis = (np.arange(N) + 0.5) * H
    places = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    points = lk.Points(places + 0.3 * H * np.array([0.2, 0.5, 0.7]))
    points.set_channel("point", "velocity", np.tile(velocity, (N**3, 1)))
    points.set_channel("point", "mass", np.full(N**3, mass))
    return points


def dusty(direction="two_way", kh=0.1, mass=0.5 * FACE, **settings):
    """Dust in gas at rest; K h (1/mp + 1/mf) = kh."""
    k = kh / (DT * (1.0 / mass + 1.0 / FACE))
    return box(
        lk.Group("Dust", lk.ParticleObject(input="dust")),
        wind(),
        lk.CoupledDragForce(law="linear", coefficient=k, direction=direction),
        inputs={"dust": dust(mass)},
        **settings,
    ), k


def fluid_mean(solver):
    return solver.read(AIR, "velocity").mean(axis=(0, 2, 3, 4))


def fluid_momentum(solver):
    return FACE * solver.read(AIR, "velocity").sum(axis=(0, 2, 3, 4))


def solid_momentum(solver, path):
    return (solver.read(path, "mass")[:, None] * solver.read(path, "velocity")).sum(axis=0)


def drag_action(solver, name="CoupledDragForce"):
    (found,) = solver.actions[name]
    return found


# -- dust in a box -----------------------------------------------------------------------------


@pytest.mark.parametrize("kh", [0.1, 1.0, 1e4])
def test_slip_falls_by_the_factor_of_backward_euler(kh):
    solver, _ = dusty(kh=kh)
    slip = V0
    start = solid_momentum(solver, DUST)
    for _ in range(3):
        solver.run(1)
        velocity = solver.read(DUST, "velocity")
        after = velocity.mean(axis=0) - fluid_mean(solver)
        np.testing.assert_allclose(after, slip / (1.0 + kh), rtol=1e-9, atol=1e-12)
        slip = after
        total = solid_momentum(solver, DUST) + fluid_momentum(solver)
        np.testing.assert_allclose(total, start, rtol=0, atol=1e-12 * abs(start).max())


def test_one_way_directions():
    solver, k = dusty("fluid_to_solids", kh=0.5)
    solver.run(2)
    expected = V0 / (1.0 + k * DT / (0.5 * FACE)) ** 2
    np.testing.assert_allclose(solver.read(DUST, "velocity"), np.tile(expected, (N**3, 1)))
    assert not np.any(solver.read(AIR, "velocity"))
    document = drag_action(solver).exchange.to_document()
    gained = solver.read(DUST, "mass").sum() * (expected - V0)
    assert document["steps"] == 2 and document["heat"] is None
    np.testing.assert_allclose(document["momentum_to_solids"], gained, rtol=1e-9)
    np.testing.assert_allclose(document["momentum_unanswered"], -gained, rtol=1e-9)
    assert document["momentum_to_fluid"] == document["momentum_to_walls"] == [0.0, 0.0, 0.0]
    solver, k = dusty("solids_to_fluid", kh=0.5)
    solver.run(2)
    np.testing.assert_array_equal(solver.read(DUST, "velocity"), np.tile(V0, (N**3, 1)))
    expected = V0 * (1.0 - 1.0 / (1.0 + k * DT / FACE) ** 2)
    np.testing.assert_allclose(fluid_mean(solver), expected, rtol=1e-9)
    document = drag_action(solver).exchange.to_document()
    assert document["momentum_to_solids"] == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(document["momentum_to_fluid"], fluid_momentum(solver), rtol=1e-9)


def test_off_does_nothing():
    solver, _ = dusty("off")
    assert solver.actions.get("CoupledDragForce", []) == []
    solver.run(1)
    np.testing.assert_array_equal(solver.read(DUST, "velocity"), np.tile(V0, (N**3, 1)))
    assert not np.any(solver.read(AIR, "velocity"))


def test_what_was_exchanged_is_what_changed():
    solver, _ = dusty(kh=1.0)
    points, fluid = solid_momentum(solver, DUST), fluid_momentum(solver)
    solver.run(3)
    document = drag_action(solver).exchange.to_document()
    scale = 1e-12 * abs(points).max()
    assert document["steps"] == 3
    for name, before, after in (
        ("momentum_to_solids", points, solid_momentum(solver, DUST)),
        ("momentum_to_fluid", fluid, fluid_momentum(solver)),
    ):
        np.testing.assert_allclose(document[name], after - before, rtol=0, atol=scale)
    np.testing.assert_allclose(document["momentum_to_walls"], 0.0, atol=scale)
    np.testing.assert_allclose(document["momentum_residual"], 0.0, atol=scale)
    # Energy: what both sides lost is heat.
    mass = solver.read(DUST, "mass")
    lost = 0.5 * mass.sum() * V0 @ V0
    lost -= 0.5 * float(mass @ (solver.read(DUST, "velocity") ** 2).sum(axis=1))
    lost -= 0.5 * FACE * float((solver.read(AIR, "velocity") ** 2).sum())
    assert 0.0 < document["heat"] <= lost * (1.0 + 1e-9)
    assert next(iter(solver.exchanges().values())) == document


# -- gather and splat --------------------------------------------------------------------------


@pytest.mark.parametrize("region", ["box", "sparse"])
def test_splat_is_the_transpose_of_gather(region):
    rng = np.random.default_rng(3)
    points = lk.Points(rng.random((300, 3)))
    more = {} if region == "box" else {"region": "sparse", "around": "near", "padding": 2}
    near = lk.Points(0.6 + 0.1 * rng.random((4, 3)))
    solver = box(
        lk.Group("Dust", lk.ParticleObject(input="dust")),
        wind(voxel_size=0.5 * H, **more),
        lk.CoupledDragForce(law="linear", coefficient=0.0),
        inputs={"dust": points, "near": near},
        bucket_size=0.25,
    )
    solver.run(1)
    boundary, volume = drag_action(solver).boundary, solver.object(AIR).volume
    solver.write(AIR, "velocity", rng.standard_normal(solver.read(AIR, "velocity").shape))
    boundary.take()
    volume.refresh("velocity", corners=True)
    gathered, stored = boundary.gather_stored(volume.with_ghosts("velocity"))
    first, second = rng.standard_normal((2, 300, 3))
    on_faces, squares = np.zeros((2, *volume.local("velocity").shape))
    boundary.splat((first, on_faces), (second, squares))
    for values, faces in ((first, on_faces), (second, squares)):
        there, here = (gathered * values).sum(), (volume.local("velocity") * faces).sum()
        assert there == pytest.approx(here, rel=1e-12, abs=1e-12)
    # Weights sum to one where the gas is, and a uniform flow is found exactly.
    inside = np.all(stored > 1.0 - 1e-12, axis=1)
    assert inside.all() if region == "box" else 0 < inside.sum() < 300
    solver.write(AIR, "velocity", np.full(solver.read(AIR, "velocity").shape, 2.5))
    volume.refresh("velocity", corners=True)
    uniform = boundary.gather(volume.with_ghosts("velocity"))
    np.testing.assert_allclose(uniform[inside], 2.5, rtol=1e-13)


# -- strands -----------------------------------------------------------------------------------


def loose_strands(count=12, vertices=6, seed=1):
    """Bent strands anywhere in the box, of a radius that the gas feels."""
    rng = np.random.default_rng(seed)
    roots, along = rng.random((count, 1, 3)), rng.standard_normal((count, 1, 3))
    along *= 0.05 / np.linalg.norm(along, axis=2, keepdims=True)
    places = roots + np.arange(vertices)[:, None] * along
    curves = lk.Curves.from_strands(places + 0.004 * rng.standard_normal(places.shape))
    curves.set_channel("point", "velocity", rng.standard_normal((count * vertices, 3)))
    return curves


def strands_group(root="free", enabled=True):
    return lk.Group(
        "Hair",
        lk.CurvesObject(input="hair", root=root, radius=2e-3, density=200.0),
        lk.StretchingConstraint(young_modulus=1e6),
        lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5),
        enabled=enabled,
    )


@pytest.mark.parametrize("law", ["linear", "quadratic", "reynolds"])
@pytest.mark.parametrize("newton", [1, 3])
def test_free_strands_and_gas_keep_their_momentum(law, newton):
    solver = box(
        strands_group(),
        wind(velocity_scheme="none"),
        lk.CoupledDragForce(law=law, coefficient=0.02),
        inputs={"hair": loose_strands()},
        newton_iterations=newton,
    )
    start = solid_momentum(solver, HAIR) + fluid_momentum(solver)
    size = abs(solver.read(HAIR, "mass")[:, None] * solver.read(HAIR, "velocity")).sum()
    before = solid_momentum(solver, HAIR)
    for _ in range(5):
        solver.run(1)
        total = solid_momentum(solver, HAIR) + fluid_momentum(solver)
        np.testing.assert_allclose(total, start, rtol=0, atol=1e-10 * size)
    document = drag_action(solver).exchange.to_document()
    np.testing.assert_allclose(
        document["momentum_to_solids"], solid_momentum(solver, HAIR) - before, atol=1e-10 * size
    )
    np.testing.assert_allclose(
        document["momentum_to_fluid"], fluid_momentum(solver), atol=1e-10 * size
    )
    assert abs(fluid_momentum(solver)).max() > 1e-4 * size and document["heat"] > 0.0


def test_roots_that_are_held_take_what_the_gas_lost():
    solver = box(
        strands_group("clamped"),
        wind(velocity_scheme="none"),
        lk.CoupledDragForce(),
        inputs={"hair": loose_strands()},
    )
    flow = np.zeros_like(solver.read(AIR, "velocity"))
    flow[:, 0] = 2.0
    solver.write(AIR, "velocity", flow)
    fluid = fluid_momentum(solver)
    solver.run(3)
    document = drag_action(solver).exchange.to_document()
    size = abs(fluid).max()
    lost = fluid_momentum(solver) - fluid
    np.testing.assert_allclose(document["momentum_to_fluid"], lost, rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(document["momentum_residual"], 0.0, atol=1e-14 * size)
    assert lost[0] < 0.0 < document["momentum_to_walls"][0]


def test_the_fluid_is_measured_on_its_faces():
    """A fluid that loses what it was given is found out."""
    solver, _ = dusty(kh=1.0)
    solver.run(1)
    size = abs(solid_momentum(solver, DUST)).max()
    assert np.abs(drag_action(solver).exchange.to_document()["last_residual"]).max() < 1e-14 * size
    action = drag_action(solver)
    splat = action.boundary.splat

    def lossy(*pairs):
        splat(*pairs)
        pairs[0][1][:] *= 0.99

    action.boundary.splat = lossy
    solver.run(1)
    left = np.abs(action.exchange.to_document()["last_residual"]).max()
    assert left > 1e-4 * np.abs(action.exchange.last[0]).max()


@pytest.mark.parametrize("precision, round_off", [("single", 1e-6), ("double", 1e-13)])
def test_residual_near_walls_and_outside_of_the_gas(precision, round_off):
    """Strands in a head, beside it, and where there is no gas: all of it is accounted for."""
    from loki_graph.nodes.shape_source import unit_sphere

    head = unit_sphere(16, 8)
    head.positions = 0.2 * head.positions + 0.5
    solver = box(
        strands_group("clamped"),
        wind(
            voxel_size=0.5 * H,
            region="sparse",
            around="near",
            padding=2,
            ambient_velocity=(3.0, 0.0, 1.0),
        ),
        lk.CoupledDragForce(),
        lk.Collider(input="head"),
        inputs={"hair": loose_strands(40), "head": head, "near": lk.Points([[0.3, 0.3, 0.3]])},
        bucket_size=0.25,
        precision=precision,
    )
    solver.run(3)
    document = drag_action(solver).exchange.to_document()
    size = np.abs(document["momentum_to_fluid"]).max()
    assert np.abs(document["momentum_unanswered"]).max() > 1e-3 * size > 0.0
    np.testing.assert_allclose(document["momentum_residual"], 0.0, atol=round_off * size)


def test_drag_with_buoyancy_keeps_momentum_as_far_as_it_is_accounted_for():
    solver = box(
        strands_group(),
        wind(velocity_scheme="none"),
        lk.CoupledDragForce(),
        lk.CoupledBuoyancyOperator(),
        inputs={"hair": loose_strands()},
    )
    before = solid_momentum(solver, HAIR)
    size = abs(solver.read(HAIR, "mass")[:, None] * solver.read(HAIR, "velocity")).sum()
    solver.run(5)
    drag = drag_action(solver).exchange.to_document()
    push = drag_action(solver, "CoupledBuoyancyOperator").exchange.to_document()
    gained = np.add(drag["momentum_to_solids"], push["momentum_to_solids"])
    np.testing.assert_allclose(
        gained, solid_momentum(solver, HAIR) - before, rtol=0, atol=1e-10 * size
    )
    np.testing.assert_allclose(drag["momentum_residual"], 0.0, atol=1e-13 * size)
    for name in ("momentum_to_fluid", "momentum_residual", "heat"):
        assert push[name] is None  # the gas keeps the mass of whole faces: nothing to measure


def test_the_same_behavior_drags_particles_and_strands():
    points = lk.Points(loose_strands().positions)
    points.set_channel("point", "velocity", loose_strands().channels["point"]["velocity"])
    drag = lk.CoupledDragForce()
    for group, path, stream in (
        (strands_group(), HAIR, loose_strands()),
        (lk.Group("Dust", lk.ParticleObject(input="hair", radius=2e-3)), DUST, points),
    ):
        solver = box(group, wind(), drag, lk.CoupledBuoyancyOperator(), inputs={"hair": stream})
        speed = np.linalg.norm(solver.read(path, "velocity"), axis=1).mean()
        solver.run(3)
        assert np.linalg.norm(solver.read(path, "velocity"), axis=1).mean() < speed
        assert abs(solver.read(AIR, "velocity")).max() > 1e-4


@pytest.mark.filterwarnings("default")
def test_groups_can_be_disabled():
    behaviors = (lk.CoupledDragForce(), lk.CoupledBuoyancyOperator(), lk.GravityForce())
    inputs = {"hair": loose_strands()}
    calm = box(strands_group(), wind(enabled=False), *behaviors, inputs=inputs)
    calm.run(3)
    alone = box(strands_group(), lk.GravityForce(), inputs=inputs)
    alone.run(3)
    np.testing.assert_array_equal(calm.read(HAIR, "position"), alone.read(HAIR, "position"))
    empty = box(strands_group(enabled=False), wind(), *behaviors, inputs=inputs)
    flow = np.zeros_like(empty.read(AIR, "velocity"))
    flow[:, 0] = 1.0
    empty.write(AIR, "velocity", flow)
    empty.run(3)
    np.testing.assert_allclose(empty.read(AIR, "velocity"), flow, atol=1e-12)
    assert list(empty.objects) == [AIR]


def test_air_around_an_object_that_is_turned_off():
    """It is kept where the Object would be, so that a wind works without its hair."""
    air = lk.Group(
        "Wind",
        lk.VolumeObject(
            voxel_size=0.1, around=HAIR, padding=2, channels=(),
            ambient_velocity=(1.0, 0.0, 0.0),
        ),
        lk.PressureMaterial(),
    )  # fmt: skip
    for hair in (strands_group(enabled=False), strands_group()):
        setup = lk.SolverSetup("scene", hair, air, lk.CoupledDragForce())
        solver = lk.Solver(setup, {"hair": loose_strands()})
        solver.run(1)
        assert solver.counts()[AIR] > 0
    lonely = lk.SolverSetup("scene", strands_group(), air)
    solver = lk.Solver(lonely, {})  # no input, so no hair, and no place for the wind
    solver.run(1)
    assert solver.counts() == {AIR: 0}


# -- buoyancy ----------------------------------------------------------------------------------


def ball(density, direction, radius=0.03):
    """A ball in the middle of still air; returns its upward acceleration in the first step."""
    solver = box(
        lk.Group("Dust", lk.ParticleObject(input="ball", radius=radius, density=density)),
        wind(),
        lk.GravityForce(),
        lk.CoupledBuoyancyOperator(direction=direction),
        inputs={"ball": lk.Points(np.full((1, 3), 0.5))},
    )
    solver.run(1)
    document = drag_action(solver, "CoupledBuoyancyOperator").exchange.to_document()
    if direction == "fluid_to_solids":  # all that moved it, but for its weight
        impulse = solid_momentum(solver, DUST)[1] + 9.81 * DT * solver.read(DUST, "mass")[0]
        assert document["momentum_to_solids"][1] == pytest.approx(impulse, rel=1e-9)
    assert document["momentum_to_fluid"] is None
    return float(solver.read(DUST, "velocity")[0, 1]) / DT


def test_a_ball_is_lifted_by_the_weight_of_the_air_it_displaces():
    for density in (0.5, 1.0, 4.0, 1000.0):
        found = ball(density, "fluid_to_solids")
        assert found == pytest.approx(-9.81 * (1.0 - RHO / density), rel=1e-9, abs=1e-12)
    assert ball(RHO, "two_way") == pytest.approx(0.0, abs=1e-12)  # as heavy as the air


def test_a_light_ball_carries_air_along():
    # The more of a voxel it fills, the more air has to give way to it.
    alone = 9.81 * (RHO / 0.1 - 1.0)
    small, large = (ball(0.1, "two_way", radius) for radius in (0.03, 0.06))
    assert 0.05 * alone < large < small < 0.99 * alone


# -- painted coefficients ----------------------------------------------------------------------


def test_the_normal_coefficient_may_be_painted():
    painted = np.array([0.0, 1.0, 2.0, 4.0])
    places = 0.2 + 0.15 * np.arange(4)[:, None] * np.ones(3)
    points = lk.Points(places)
    points.set_channel("point", "velocity", np.tile([0.0, 2.0, 0.0], (4, 1)))
    points.set_channel("point", "coupled_drag_normal_coefficient", painted)
    solver = box(
        lk.Group("Dust", lk.ParticleObject(input="dust", radius=0.01)),
        wind(),
        lk.CoupledDragForce(law="quadratic", direction="fluid_to_solids"),
        inputs={"dust": points},
    )
    solver.run(1)
    found = np.zeros(4)
    found[solver.object(DUST).particles.local("id")] = drag_action(solver).coefficient[:, 0]
    np.testing.assert_allclose(found, 0.5 * RHO * painted * np.pi * 1e-4 * 2.0, rtol=1e-12)
    mass = solver.read(DUST, "mass")
    expected = 2.0 / (1.0 + found * DT / mass)
    np.testing.assert_allclose(solver.read(DUST, "velocity")[:, 1], expected, rtol=1e-12)
