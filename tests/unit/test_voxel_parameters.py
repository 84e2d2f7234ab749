"""Parameters that vary by voxel of a gas, by particle of a liquid, and over what emits."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import InputError
from loki_vfx.bridges.standalone.explanation import explain_parameters

pytestmark = pytest.mark.compiles

H = 0.125
AIR, DUST = "VolumeObject", "ParticleObject"


def still_air(*actions, channels=(), inputs=None, **options):
    """A cubic metre of gas that stays where it is but for what acts on it."""
    setup = lk.SolverSetup(
        "air",
        lk.VolumeObject(
            voxel_size=H, region="box", input="gas", channels=channels, velocity_scheme="none",
            density=1.0, ambient_density=0.5,
        ),
        *actions,
        precision="double",
        bucket_size=0.5,
        substeps=1,
        frames_per_second=100.0,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        **options,
    )  # fmt: skip
    return lk.Solver(setup, inputs)


def gas(**channels):
    voxels = lk.Voxels([[0, 0, 0]], H)
    for name, values in channels.items():
        given = np.broadcast_to(np.asarray(values, np.float64), (8, 8, 8))
        voxels.set_channel(name, given[None, None].copy())
    return voxels


def dense(solver, name):
    """A channel of the box, [c, 8, 8, 8]."""
    values = solver.read(AIR, name)
    coords = solver.objects[AIR].volume.buckets.local_coords
    whole = np.empty((values.shape[1], 8, 8, 8))
    for (i, j, k), block in zip(4 * (coords - coords.min(axis=0)), values, strict=True):
        whole[:, i : i + 4, j : j + 4, k : k + 4] = block
    return whole


HALVES = np.where(np.arange(8) < 4, 1.0, 3.0)[:, None, None]


# -- gas -------------------------------------------------------------------------------------------


def test_each_voxel_fades_at_its_own_rate():
    """c(t) = c(0) exp(-rate t), exact for any step."""
    solver = still_air(
        lk.DissipationOperator(rate=100.0),
        inputs={"gas": gas(density=2.0, dissipation_rate=10.0 * HALVES)},
    )
    solver.run(1)
    expected = np.broadcast_to(2.0 * np.exp(-0.1 * HALVES), (8, 8, 8))
    np.testing.assert_allclose(dense(solver, "density")[0], expected, rtol=1e-12)


def test_a_factor_multiplies_and_a_limit_cuts_what_the_flow_has_overshot():
    """A negative rate is none; it is no mistake of the user's, who painted none."""
    solver = still_air(
        lk.DissipationOperator(rate=5.0),
        lk.VolumeExpression(
            expression="dissipation_rate = 10.0 if position[0] > 0.5 else -1.0",
            new_channels=("dissipation_rate", "dissipation_rate_scale:2"),
            stage="SUBSTEP_BEGIN",
        ),
        inputs={"gas": gas(density=1.0)},
    )
    solver.run(1)
    rate = np.where(np.arange(8) < 4, 0.0, 20.0)[:, None, None]
    expected = np.broadcast_to(np.exp(-0.01 * rate), (8, 8, 8))
    np.testing.assert_allclose(dense(solver, "density")[0], expected, rtol=1e-12)


def test_a_face_has_the_mean_of_its_two_cells():
    """v = g dt (1 - rho_air / rho), where gravity is not the same everywhere, too."""
    solver = still_air(
        lk.GravityForce(acceleration=(6.0, 0.0, -2.0)),
        inputs={"gas": gas(gravity_acceleration_scale=HALVES)},
    )
    solver.run(1)
    velocity, half = dense(solver, "velocity"), 0.01 * 0.5
    across = np.array([1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0])[:, None, None]
    expected = np.broadcast_to(6.0 * half * across, (7, 8, 8))
    np.testing.assert_allclose(velocity[0, 1:], expected, rtol=1e-12)
    along = np.broadcast_to(-2.0 * half * HALVES, (8, 8, 7))
    np.testing.assert_allclose(velocity[2, :, :, 1:], along, rtol=1e-12)
    assert not np.any(velocity[1])


@pytest.mark.parametrize("law", ["ideal_gas", "boussinesq"])
def test_buoyancy_of_ones_is_that_of_none(law):
    """What is painted evenly is what the Behavior says."""
    force = lk.BuoyancyForce(smoke_density=0.3, temperature_law=law)
    x = (np.arange(8) + 0.5) * H
    fields = {"density": x[:, None, None], "temperature": 293.0 + 80.0 * x[None, :, None]}
    one = still_air(force, inputs={"gas": gas(**fields)})
    two = still_air(
        lk.BuoyancyForce(smoke_density=9.0, temperature_law=law),
        inputs={"gas": gas(**fields, buoyancy_smoke_density=0.3, buoyancy_acceleration_scale=1.0)},
    )
    for solver in (one, two):
        solver.run(1)
    scale = np.abs(dense(one, "velocity")).max()
    assert scale > 0.0
    np.testing.assert_allclose(
        dense(two, "velocity")[:, 1:, 1:, 1:],
        dense(one, "velocity")[:, 1:, 1:, 1:],
        rtol=0,
        atol=1e-12 * scale,
    )


def test_a_guide_pulls_where_it_is_strong():
    wanted = lk.Voxels([[0, 0, 0]], H)
    wanted.set_channel("heat", np.ones((1, 8, 8, 8)))
    solver = still_air(
        lk.GuideOperator(field="wanted", channel="heat", guided="heat", time_scale=0.1),
        channels=("heat",),
        inputs={"gas": gas(guide_strength=HALVES), "wanted": wanted},
    )
    solver.run(1)
    expected = np.broadcast_to(1.0 - np.exp(-0.1 * HALVES), (8, 8, 8))
    np.testing.assert_allclose(dense(solver, "heat")[0], expected, rtol=1e-12)


def test_an_input_may_not_lose_an_override():
    def moving(frame):
        return gas(density=1.0, **({"dissipation_rate": 1.0} if frame < 3 else {}))

    with pytest.raises(InputError, match='has the channel "dissipation_rate" no more'):
        still_air(lk.DissipationOperator(), inputs={"gas": moving}).run(3)


# -- liquids ---------------------------------------------------------------------------------------


def block(count=4, spacing=0.05):
    axis = (np.arange(count) + 0.5) * spacing
    return np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)


def pool(gravity, **channels):
    points = lk.Points(block())
    for name, values in channels.items():
        points.set_channel("point", name, values)
    setup = lk.SolverSetup(
        "pool",
        lk.HybridObject(name="Water", voxel_size=0.1, input="water", density_correction=0.0),
        gravity,
        precision="double",
        substeps=1,
    )
    solver = lk.Solver(setup, {"water": points})
    solver.run(2)
    return solver


def test_a_liquid_that_is_painted_evenly_falls_as_a_whole():
    """Also at its surface, where cells beside it know nothing; a vector and a factor together."""
    g = np.array([1.0, -4.0, 2.0])
    plain = pool(lk.GravityForce(acceleration=tuple(2.0 * g)))
    painted = pool(
        lk.GravityForce(),
        gravity_acceleration=np.tile(g, (64, 1)),
        gravity_acceleration_scale=np.full(64, 2.0),
    )
    for channel in ("position", "velocity"):
        np.testing.assert_allclose(
            painted.read("Water", channel), plain.read("Water", channel), rtol=0, atol=1e-13
        )


def cloud(**channels):
    """A drop that is stirred, of particles that are not all alike."""
    rng = np.random.default_rng(4)
    points = lk.Points(block(6, 0.02) + 1e-3 * rng.normal(size=(216, 3)))
    points.set_channel("point", "velocity", rng.normal(0.0, 0.3, (216, 3)))
    for name, (low, high) in channels.items():
        points.set_channel("point", name, rng.uniform(low, high, 216))
    return points


FLUIDS = {
    "position_based": (
        lk.PositionBasedFluid(vorticity=0.0),
        {"viscosity": (0.0, 2.0), "surface_tension": (0.0, 2.0)},
    ),
    "smoothed_particle": (lk.SmoothedParticleFluid(), {"viscosity": (0.0, 0.1)}),
}


@pytest.mark.parametrize("kind", FLUIDS)
def test_pairs_of_particles_that_differ_gain_no_momentum(kind):
    behavior, ranges = FLUIDS[kind]
    named = {f"{kind}_fluid_{name}": limits for name, limits in ranges.items()}
    setup = lk.SolverSetup(
        "cloud",
        lk.ParticleObject(input="dust", radius=0.02 * 0.62),
        behavior,
        precision="double",
        frames_per_second=100.0,
    )
    solver = lk.Solver(setup, {"dust": cloud(**named)})
    mass = solver.read(DUST, "mass")[:, None]
    before = (mass * solver.read(DUST, "velocity")).sum(axis=0)
    solver.run(3)
    velocity = solver.read(DUST, "velocity")
    size = float((mass * np.abs(velocity)).sum())
    np.testing.assert_allclose((mass * velocity).sum(axis=0), before, rtol=0, atol=1e-12 * size)


def test_the_viscous_half_of_a_liquid_comes_to_rest_first():
    points = cloud()
    left = points.positions[:, 0] < 0.06
    points.set_channel("point", "position_based_fluid_viscosity", np.where(left, 5.0, 0.0))
    setup = lk.SolverSetup(
        "halves",
        lk.ParticleObject(input="dust", radius=0.02 * 0.62),
        lk.PositionBasedFluid(surface_tension=0.0),
        precision="double",
        frames_per_second=100.0,
    )
    solver = lk.Solver(setup, {"dust": points})
    solver.run(1)
    speed = np.linalg.norm(solver.read(DUST, "velocity"), axis=1)
    assert speed[left].mean() < 0.6 * speed[~left].mean()


def test_two_droplets_bounce_by_the_mean_of_their_own():
    """Head-on, e = (m1 e1 + m2 e2) / (m1 + m2)."""
    points = lk.Points([[0.0, 0.0, 0.0], [0.004, 0.0, 0.0]])
    points.set_channel("point", "velocity", np.array([[0.02, 0.0, 0.0], [-0.02, 0.0, 0.0]]))
    points.set_channel("point", "radius", np.array([1.0e-3, 0.8e-3]))
    points.set_channel("point", "binary_droplet_collisions_restitution", np.array([0.2, 0.9]))
    setup = lk.SolverSetup(
        "pair",
        lk.ParticleObject(input="dust"),
        lk.BinaryDropletCollisions(bounce=True),
        precision="double",
        frames_per_second=10.0,
    )
    solver = lk.Solver(setup, {"dust": points})
    mass = solver.read(DUST, "mass")
    solver.run(2)
    velocity = solver.read(DUST, "velocity")[:, 0]
    mean = (mass @ [0.2, 0.9]) / mass.sum()
    np.testing.assert_allclose(velocity[1] - velocity[0], 0.04 * mean, rtol=1e-9)
    np.testing.assert_allclose(mass @ velocity, 0.02 * (mass[0] - mass[1]), rtol=1e-9)


# -- sources ---------------------------------------------------------------------------------------


def plate():
    corners = [[0.0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1], [2, 0, 0], [2, 0, 1]]
    return lk.Surface.from_faces(
        np.array(corners, float), np.array([[0, 3, 2], [0, 2, 1], [1, 2, 5], [1, 5, 4]])
    )


def emitted(mesh, **options):
    setup = lk.SolverSetup(
        "plate",
        lk.ParticleObject(source="plate", rate=2000.0, **options),
        precision="double",
        frames_per_second=100.0,
        substeps=1,
    )
    solver = lk.Solver(setup, {"plate": mesh})
    solver.run(2)
    return solver


def test_faces_of_a_source_have_speeds_of_their_own():
    mesh = plate()
    mesh.set_channel("primitive", "particle_normal_speed", np.array([1.0, 1.0, 2.0, 2.0]))
    solver = emitted(mesh, normal_speed=5.0)
    position, velocity = solver.read(DUST, "position"), solver.read(DUST, "velocity")
    np.testing.assert_allclose(
        np.abs(velocity[:, 1]), np.where(position[:, 0] < 1.0, 1.0, 2.0), rtol=1e-12
    )
    assert len(position) == 40


def test_points_of_a_source_are_interpolated_and_win():
    mesh = plate()
    x = mesh.positions[:, 0]
    mesh.set_channel("primitive", "particle_radius", np.full(4, 0.5))
    mesh.set_channel("point", "particle_radius", 0.01 + 0.01 * x)
    mesh.set_channel("detail", "particle_rate", np.array([3000.0]))
    mesh.set_channel("point", "particle_velocity_scale", 1.0 + x)
    mesh.set_channel("point", "particle_lifetime", 1.0 + x)
    mesh.set_channel("point", "radius", np.full(6, 7.0))  # its own, and not that of particles
    solver = emitted(mesh, velocity=(0.0, 0.0, 1.0))
    position, velocity = solver.read(DUST, "position"), solver.read(DUST, "velocity")
    assert len(position) == 60
    np.testing.assert_allclose(solver.read(DUST, "radius"), 0.01 + 0.01 * position[:, 0])
    np.testing.assert_allclose(velocity[:, 2], 1.0 + position[:, 0])
    np.testing.assert_allclose(solver.read(DUST, "lifetime"), 1.0 + position[:, 0])
    volume = 4.0 / 3.0 * np.pi * solver.read(DUST, "radius") ** 3
    np.testing.assert_allclose(solver.read(DUST, "mass"), 1000.0 * volume)


def test_smoke_has_the_density_of_the_nearest_place_on_its_source():
    lower, upper = (0.2, 0.2, 0.2), (0.8, 0.8, 0.8)
    x, y, z = zip(lower, upper, strict=True)
    corners = np.array([(a, b, c) for a in x for b in y for c in z])
    quads = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    mesh = lk.Surface.from_polygons(corners, quads)
    mesh.set_channel("point", "volume_emission_density", corners[:, 0])
    solver = still_air(
        lk.VolumeEmission(source="burner", density=None), channels=("density",),
        inputs={"gas": gas(), "burner": mesh},
    )  # fmt: skip
    solver.run(1)
    density, centre = dense(solver, "density")[0], (np.arange(8) + 0.5) * H
    inside = slice(2, 6)  # voxels that lie inside of it wholly
    x = np.broadcast_to(centre[:, None, None], (8, 8, 8))
    found, near = density[inside, 2, inside], x[inside, 2, inside]  # beside its lower side
    np.testing.assert_allclose(found[1:3, 1:3], near[1:3, 1:3], rtol=1e-6)
    assert not np.any(density[0]) and not np.any(density[7])


def test_explain_says_which_voxels_and_which_source_override():
    mesh = plate()
    mesh.set_channel("primitive", "particle_normal_speed", np.array([1.0, 1.0, 2.0, 2.0]))
    setup = lk.SolverSetup(
        "both",
        lk.VolumeObject(voxel_size=H, input="gas"),
        lk.ParticleObject(source="plate"),
        lk.DissipationOperator(),
    )
    inputs = {"gas": gas(dissipation_rate_scale=HALVES), "plate": mesh}
    told = {
        (one["behavior"], one["parameter"]): one["overrides"]
        for one in explain_parameters(setup, inputs)
    }
    (rate,) = told["DissipationOperator", "rate"]
    assert rate["origin"] == 'default × voxel channel "dissipation_rate_scale"'
    assert (rate["object"], rate["count"], rate["maximum"]) == (AIR, 512, 1.5)
    (speed,) = told[DUST, "normal_speed"]
    assert speed["origin"] == 'primitive channel "particle_normal_speed"'
    assert (speed["count"], speed["minimum"], speed["error"]) == (4, 1.0, None)
    assert not told[DUST, "velocity"]
