"""Particles and droplets that a Collision Constraint lets bounce off Colliders."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.data.grid_domain import GridDomain
from loki_core.objects.colliders.body_collider import resolution_for
from loki_vfx.bridges.standalone.checking import check_scene
from loki_vfx.bridges.standalone.scene import Scene
from tests.particle_fluids import box_mesh
from tests.unit.test_particle_contacts import PATH, RADIUS, grid, plank, solver_of

pytestmark = pytest.mark.compiles

G = 9.81


def without_gravity(points, collider, *, velocity, group=(), droplets=False, **options):
    """Particles that fly straight, in double precision."""
    settings = {"bucket_size": 0.1, "precision": "double", "frames_per_second": 24.0}
    settings |= {name: options.pop(name) for name in tuple(options) if name in ("substeps",)}
    stream = lk.Points(np.atleast_2d(points))
    stream.set_channel("point", "velocity", np.broadcast_to(velocity, stream.positions.shape))
    # Satellites may be smaller than the voxels of a wall that is thin.
    more = (lk.BinaryDropletCollisions(max_satellites=0),) if droplets else ()
    dust = lk.Group(
        "Dust",
        lk.ParticleObject(input="points", radius=RADIUS),
        lk.Collider(input="solid"),
        lk.CollisionConstraint(**options),
        *more,
        *group,
    )
    setup = lk.SolverSetup("impacts", dust, **settings)
    return lk.Solver(setup, {"points": stream, "solid": collider})


def contacts_of(solver):
    return next(a for some in solver.actions.values() for a in some if hasattr(a, "impulse"))


@pytest.mark.parametrize("restitution", [0.5, 0.8, 1.0])
def test_a_ball_bounces_to_e_squared_times_its_height(restitution):
    """Backward Euler takes g^2 dt^2 / 2 of the energy in every step of fall and rise."""
    height, substeps = 0.5, 40
    solver = solver_of(
        (0.0, RADIUS + height, 0.0), plank(), restitution=restitution, substeps=substeps,
        precision="double",
    )  # fmt: skip
    seen = []
    solver.observe("SUBSTEP_END", lambda s, _: seen.append(s.read(PATH, "position")[0, 1] - RADIUS))
    fall = np.sqrt(2.0 * height / G)
    solver.run(int(24.0 * fall * (1.0 + restitution)) + 1)
    lowest = int(np.argmin(seen))
    dt = 1.0 / (24.0 * substeps)
    lost = 0.5 * G * dt * fall * (1.0 + restitution)  # over g
    assert min(seen) > -1e-9
    reached = max(seen[lowest:])
    assert reached == pytest.approx(restitution**2 * height, abs=2.0 * lost)
    assert lost < 0.01 * height


def test_what_bounces_comes_to_rest():
    solver = solver_of(
        (0.0, 0.1, 0.0), plank(), restitution=0.7, substeps=8, precision="double"
    )  # fmt: skip
    solver.run(48)
    assert solver.read(PATH, "position")[0, 1] == pytest.approx(RADIUS, abs=1e-6)
    assert np.abs(solver.read(PATH, "velocity")).max() < 1e-9


def test_an_oblique_impact_obeys_coulombs_law():
    """The slide loses mu (1 + e) v_n, and no more than all of it; time does not matter."""
    e, mu = 0.6, 0.2
    velocity = np.array([[3.0, -2.0, 0.5], [0.3, -2.0, -0.2]])
    solver = without_gravity(
        [[-0.3, 0.1, 0.0], [0.0, 0.1, 0.1]], plank(), velocity=velocity, restitution=e,
        friction_coefficient=mu,
    )  # fmt: skip
    solver.run(3)
    found = solver.read(PATH, "velocity")
    np.testing.assert_allclose(found[:, 1], e * 2.0, rtol=1e-6)
    slide = velocity[:, (0, 2)]
    size = np.linalg.norm(slide, axis=1)
    kept = np.maximum(1.0 - mu * (1.0 + e) * 2.0 / size, 0.0)
    np.testing.assert_allclose(found[:, (0, 2)], kept[:, None] * slide, atol=1e-6)
    assert kept[0] > 0.0 and kept[1] == 0.0
    # The rest of the way is that of the new velocity: it was met after 0.095 m / 2 m/s.
    left = 3.0 / 24.0 - (0.1 - RADIUS) / 2.0
    assert solver.read(PATH, "position")[0, 1] == pytest.approx(RADIUS + 1.2 * left, abs=1e-6)


@pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
def test_a_moving_collider_hits_what_stands_still(restitution):
    """A heavy wall at u throws it away with (1 + e) u."""

    def ram(frame):
        return plank(shift=(0.0, 0.03 * (frame - 1), 0.0))

    speed = 0.03 * 24.0
    solver = without_gravity(
        (0.01, 0.1, 0.02), ram, velocity=(0.0, 0.0, 0.0), restitution=restitution,
        friction_coefficient=0.5,
    )  # fmt: skip
    solver.run(5)
    velocity = solver.read(PATH, "velocity")[0]
    np.testing.assert_allclose(velocity, (0.0, (1.0 + restitution) * speed, 0.0), atol=1e-4)
    met = (0.1 - RADIUS) / speed
    height = 0.1 + (5.0 / 24.0 - met) * (1.0 + restitution) * speed
    assert solver.read(PATH, "position")[0, 1] == pytest.approx(height, abs=1e-3)


@pytest.mark.parametrize("droplets", [False, True], ids=["particles", "droplets"])
@pytest.mark.parametrize("restitution", [0.0, 0.9])
def test_thin_walls_do_not_leak(restitution, droplets):
    """A box of walls that are a fifth of a particle, crossed in one step many times over."""
    wall = 0.2 * RADIUS
    inside = 0.2
    outer = box_mesh((-inside - wall,) * 3, (inside + wall,) * 3)
    hollow = box_mesh((-inside,) * 3, (inside,) * 3)
    faces = np.concatenate((outer.triangles(), hollow.triangles()[:, ::-1] + 8))
    shell = lk.Surface.from_faces(np.concatenate((outer.positions, hollow.positions)), faces)
    random = np.random.default_rng(5)
    count = 40
    velocity = random.standard_normal((count, 3))
    velocity *= 40.0 / np.linalg.norm(velocity, axis=1)[:, None]
    solver = without_gravity(
        random.uniform(-0.17, 0.17, (count, 3)), shell, velocity=velocity, restitution=restitution,
        friction_coefficient=0.1, droplets=droplets,
    )  # fmt: skip
    speed = [np.linalg.norm(velocity, axis=1)]
    for _ in range(6):
        solver.run(1)
        reached = np.abs(solver.read(PATH, "position")).max(axis=1) + solver.read(PATH, "radius")
        assert reached.max() < inside + 0.2 * RADIUS  # edges are rounded in voxels
        speed.append(np.linalg.norm(solver.read(PATH, "velocity"), axis=1))
    assert speed[-1].max() < speed[0].max()


@pytest.mark.parametrize("droplets", [False, True], ids=["particles", "droplets"])
def test_momentum_is_what_gravity_and_colliders_give(droplets):
    solver = solver_of(
        grid(6, 0.011, 0.05), plank(0.2), velocity=(0.4, -1.5, 0.2), restitution=0.4, substeps=4,
        precision="double", group=(lk.BinaryDropletCollisions(),) if droplets else (),
    )  # fmt: skip

    def momentum():
        return solver.read(PATH, "mass") @ solver.read(PATH, "velocity")

    mass, start = solver.read(PATH, "mass").sum(), momentum()
    solver.run(10)
    given = contacts_of(solver).impulse + mass * np.array([0.0, -G, 0.0]) * 10.0 / 24.0
    np.testing.assert_allclose(momentum() - start, given, atol=1e-12 * mass)
    assert np.linalg.norm(contacts_of(solver).impulse) > 0.5 * np.linalg.norm(start)


def test_droplets_bounce_and_come_to_lie_outside():
    """Two that merge over a floor go on from there, and others next to it are not in it."""
    solver = solver_of(
        grid(5, 0.012, 0.03), plank(), velocity=(0.0, -3.0, 0.0), restitution=0.3, substeps=4,
        friction_coefficient=0.0, group=(lk.BinaryDropletCollisions(),), precision="double",
    )  # fmt: skip
    solver.write(PATH, "velocity", solver.read(PATH, "velocity") - 20.0 * grid(5, 0.012, 0.0))
    solver.run(12)
    height, radius = solver.read(PATH, "position")[:, 1], solver.read(PATH, "radius")
    assert 1 <= len(height) < 25  # some have merged
    assert np.min(height - radius) > -1e-6


@pytest.mark.parametrize("per_bucket", [3.0, 20.0, 100.0])
def test_voxels_of_colliders_are_of_a_size_that_buckets_can_have(per_bucket):
    """8, 16 or 32 along a Bucket, whatever the size of particles, and no larger than asked."""
    domain = GridDomain(1.0)
    found = resolution_for(domain, 1.0 / per_bucket)
    assert found == {3.0: 8, 20.0: 32, 100.0: 32}[per_bucket]


def test_a_fluid_looks_after_itself():
    """A Collision Constraint in its scope changes nothing of it."""
    found = []
    for more in ((), (lk.CollisionConstraint(restitution=1.0),)):
        stream = lk.Points(grid(4, 0.01, 0.02))
        setup = lk.SolverSetup(
            "fluid",
            lk.ParticleObject(name="Water", input="points", radius=RADIUS),
            lk.PositionBasedFluid(),
            lk.GravityForce(),
            lk.Collider(input="solid"),
            *more,
            precision="double",
        )
        solver = lk.Solver(setup, {"points": stream, "solid": plank()})
        solver.run(3)
        found.append(solver.read("Water", "position"))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("kind", ["particles", "droplets", "fluid", "constrained", "apart"])
def test_check_says_what_passes_through_colliders(kind):
    more = {
        "droplets": (lk.BinaryDropletCollisions(),),
        "fluid": (lk.PositionBasedFluid(),),
        "constrained": (lk.CollisionConstraint(),),
    }.get(kind, ())
    rock = lk.Collider(name="Rock", input="solid")
    dust = lk.Group(
        "Dust",
        lk.ParticleObject(name="Grains", input="points", radius=RADIUS),
        *more,
        *(() if kind == "apart" else (rock,)),
    )
    smoke = lk.Group("Smoke", lk.VolumeObject(voxel_size=0.05), rock) if kind == "apart" else None
    setup = lk.SolverSetup("scene", dust, *([smoke] if smoke else []))
    inputs = {"points": lk.Points(grid(2, 0.03, 0.1)), "solid": plank()}
    found = check_scene(Scene(setup, inputs), frames=2)
    said = [one for one in found if "pass through" in one.message]
    assert len(said) == (kind in ("particles", "droplets"))
    for one in said:
        assert one.severity == "warning" and one.place == "scene/Dust/Grains"
        assert kind in one.message and "scene/Dust/Rock" in one.message
        assert "CollisionConstraint" in one.message


@pytest.mark.parametrize("kind", ["strands", "bodies", "constrained", "free", "apart"])
def test_check_says_what_solids_pass_through_colliders(kind):
    """Strands and sheets have no other contacts than those of a Collision Constraint."""
    solid = lk.CurvesObject(name="Solid", input="solid")
    stream = lk.Curves(np.array([[0.0, 0.1, 0.0], [0.0, 0.2, 0.0], [0.0, 0.3, 0.0]]), [0, 3])
    if kind == "bodies":
        corners = [[0.0, 0.1, 0.0], [0.1, 0.1, 0.0], [0.1, 0.1, 0.1], [0.0, 0.1, 0.1]]
        stream = lk.Surface.from_faces(corners, [[0, 1, 2, 3]])
        solid = lk.GeometryObject(name="Solid", input="solid")
    collision = lk.CollisionConstraint(enabled=kind == "constrained")
    rock = lk.Collider(name="Rock", input="rock", enabled=kind != "free")
    group = (collision,) if kind == "apart" else (rock, collision)
    smoke = lk.Group("Smoke", lk.VolumeObject(voxel_size=0.05), *(rock,) * (kind == "apart"))
    setup = lk.SolverSetup("scene", lk.Group("Hair", solid, *group), smoke)
    found = check_scene(Scene(setup, {"solid": stream, "rock": plank()}), frames=2)
    said = [one for one in found if "pass through" in one.message]
    assert len(said) == (kind in ("strands", "bodies"))
    for one in said:
        assert one.severity == "warning" and one.place == "scene/Hair/Solid"
        assert f"its {kind} pass through scene/Hair/Rock" in one.message
        assert "CollisionConstraint" in one.message
