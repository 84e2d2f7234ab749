"""Level sets as Colliders: voxels with a distance, for gas, liquids, particle fluids and solids."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.behavior import isolated_registry
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, SetupError
from loki_core.objects.colliders.body_collider import colliders_of
from loki_core.objects.colliders.level_set_mesh import collider_mesh
from loki_core.solver_setup import SolverSetup
from loki_vfx.serialization.volumes import read_vdb, write_vdb
from tests.mpi.scripts.collider_scene import define_air, level_set_ball
from tests.particle_fluids import G, radius_of, read
from tests.unit.test_collision_constraint import PATH, SECTION, row, solver_of
from tests.unit.test_hybrid import H as HYBRID_VOXEL
from tests.unit.test_hybrid import box, tank
from tests.unit.test_volume import plume

pytestmark = pytest.mark.compiles

RADIUS = 0.3


@pytest.fixture
def air():
    with isolated_registry():
        yield define_air()


def table(name="distance", *, top=0.0, edge=0.05, blocks=(10, 2, 10)):
    """A slab whose upper side is at `top`; its other sides are those of the blocks."""
    h, shape = edge, tuple(8 * n for n in blocks)
    origin = np.array(
        [-4.0 * h * blocks[0], top - 4.0 * h * blocks[1] - 0.3 * h, -4.0 * h * blocks[2]]
    )
    height = origin[1] + h * (np.arange(shape[1]) + 0.5) - top
    distance = np.broadcast_to(np.clip(height, -3 * h, 3 * h)[None, :, None], shape)
    return Voxels.from_dense({name: distance.astype(np.float32)}, origin, h, background=3 * h)


def is_closed(mesh):
    one, two, three = mesh.triangles().T
    sides = np.sort(np.column_stack([np.r_[one, two, three], np.r_[two, three, one]]), axis=1)
    return bool((np.unique(sides, axis=0, return_counts=True)[1] == 2).all())


def solver_with(air, stream, **options):
    setup = SolverSetup(
        "scene",
        air(name="air"),
        lk.Collider(input="solid", name="solid", **options),
        bucket_size=0.25,
        precision="double",
    )
    return lk.Solver(setup, {"solid": stream})


def test_the_mesh_of_a_level_set_is_closed_and_on_its_surface():
    mesh = collider_mesh(level_set_ball(RADIUS, edge=0.05), label="solid")
    away = np.linalg.norm(mesh.positions, axis=1) - RADIUS
    assert np.abs(away).max() < 0.05**2 / (8.0 * RADIUS)
    assert is_closed(mesh)
    corners = mesh.positions[mesh.triangles()]
    volume = np.linalg.det(corners).sum() / 6.0
    assert volume == pytest.approx(4.0 / 3.0 * np.pi * RADIUS**3, rel=0.02)  # it faces outwards


def test_solid_blocks_without_neighbours_are_closed_by_the_background():
    voxels = Voxels([[0, 0, 0], [3, 0, 0]], 0.1)
    voxels.set_channel("distance", np.full((2, 8, 8, 8), -0.1), background=0.1)
    mesh = collider_mesh(voxels, label="solid")
    np.testing.assert_allclose(mesh.bounds(), [[0, 0, 0], [3.2, 0.8, 0.8]], atol=1e-6)
    assert is_closed(mesh)


@pytest.mark.parametrize("mode", ["solid_inside", "solid_outside"])
def test_a_volume_meets_a_level_set_with_its_velocity(air, tmp_path, mode):
    """Through a VDB, as it comes from other programs: the distance, and the wall's velocity."""
    ball = level_set_ball(RADIUS, edge=0.05, velocity=(1.0, -2.0, 0.5))
    write_vdb(tmp_path / "ball.vdb", ball, classes={"distance": "level set"})
    solver = solver_with(air, read_vdb(tmp_path / "ball.vdb"), mode=mode)
    solver.run(1)
    item = solver.object("solid")
    random = np.random.default_rng(3)
    ways = random.normal(size=(200, 3))
    places = ways / np.linalg.norm(ways, axis=1)[:, None] * random.uniform(0.25, 0.36, (200, 1))
    sample = item.sample(item.scope.domain.to_relative(places))
    expected = np.linalg.norm(places, axis=1) - RADIUS
    sign = 1.0 if mode == "solid_inside" else -1.0
    np.testing.assert_allclose(
        sample.distance, sign * expected, rtol=0, atol=3e-3
    )  # h^2 / (4 R), and the field's own
    np.testing.assert_allclose(sample.velocity, np.tile([1.0, -2.0, 0.5], (200, 1)), atol=1e-6)
    closed = 1.0 - solver.object("air").volume.local("open_fraction")
    share = closed.sum(axis=(0, 2, 3, 4)) / closed[:, 0].size
    part = 4.0 / 3.0 * np.pi * RADIUS**3 / 2.0**3
    np.testing.assert_allclose(share, part if sign > 0 else 1.0 - part, rtol=0.03)


def test_gas_goes_around_a_level_set():
    setup, inputs = plume(lk.Collider(name="ball", input="ball"), air={"region": "box"})
    inputs["ball"] = level_set_ball(0.5, edge=0.06, centre=(1.5, 1.2, 1.5))
    solver = lk.Solver(setup, inputs)
    solver.run(1)
    solid = solver.object("air").voxels(("open_fraction",))
    closed = 1.0 - solid.to_dense("open_fraction")[1][2:-2, 4:-4, 2:-2]  # lower faces along y
    taken = float(closed.sum()) * solid.voxel_size**3
    assert taken == pytest.approx(4.0 / 3.0 * np.pi * 0.5**3, rel=0.05)


def test_liquid_goes_around_a_level_set():
    centre, radius = np.array([0.5, 0.3, 0.5]), 0.2
    given = {"ball": level_set_ball(radius, edge=0.05, centre=centre)}
    solver = tank(box((0, 0, 0), (1, 0.5, 1)), lk.Collider(input="ball"), inputs=given)
    start = solver.accounts()["Water"]["start"]
    assert start == pytest.approx(0.5 - 4.0 / 3.0 * np.pi * radius**3, rel=0.02)
    solver.run(2)
    away = np.linalg.norm(solver.read("Water", "position") - centre, axis=1)
    assert away.min() > radius - 0.1 * HYBRID_VOXEL


def test_a_particle_fluid_rests_on_a_level_set_and_rides_on_its_velocity():
    d = 0.1
    slab = table()
    moving = np.zeros((slab.block_count, 3, 8, 8, 8), np.float32)
    moving[:, 0] = 1.0
    slab.set_channel("velocity", moving)
    setup = lk.SolverSetup(
        "belt", lk.ParticleObject(name="P", input="p", radius=radius_of(d), density=1000.0),
        lk.PositionBasedFluid(), lk.Collider(input="solid", friction=0.5), lk.GravityForce(),
        frames_per_second=100.0,
    )  # fmt: skip
    solver = lk.Solver(setup, {"p": lk.Points([[0.0, 0.5 * d, 0.0]]), "solid": slab})
    solver.run(10)
    assert read(solver, "position")[0, 1] == pytest.approx(0.5 * d, abs=0.03 * d)
    # Friction draws it along: Coulomb's law says 0.5 g t, up to the belt's own speed.
    assert read(solver, "velocity")[0, 0] == pytest.approx(0.5 * G * 0.1, rel=0.1)


def test_a_strand_rests_on_a_level_set():
    slab = table(edge=0.02, blocks=(4, 2, 4))
    solver = solver_of(row(9, 0.04, 0.01), slab, bucket_size=0.1, thickness=2e-3)
    solver.run(24)
    height = solver.read(PATH, "position")[:, 1]
    np.testing.assert_allclose(height, SECTION + 2e-3, rtol=0, atol=2e-5)


def test_voxels_without_a_level_set_are_refused_in_words(air):
    smoke = Voxels([[0, 0, 0]], 0.1)
    smoke.set_channel("density", np.ones((1, 8, 8, 8)))
    smoke.set_channel("heat", np.ones((1, 8, 8, 8)))
    with pytest.raises(InputError, match=r'input "solid" is voxels without a channel "distance"'):
        solver_with(air, smoke)
    with pytest.raises(InputError, match=r'"density" is 0 outside of its blocks; a level set is p'):
        one = Voxels([[0, 0, 0]], 0.1)
        one.set_channel("density", np.ones((1, 8, 8, 8)))
        solver_with(air, one)
    named = collider_mesh(table("surface"), label="solid")  # as Houdini calls it
    assert named.point_count > 0


def test_cell_size_and_domain_offset_are_what_solids_and_particle_fluids_get():
    points = row(9, 0.04, 0.01)
    slab = table(edge=0.02, blocks=(4, 2, 4))

    def field_of(**options):
        setup = lk.SolverSetup(
            "contact",
            lk.CurvesObject(input="curves", radius=SECTION),
            lk.StretchingConstraint(),
            lk.Collider(input="solid", **options),
            lk.CollisionConstraint(),
            bucket_size=0.1,
        )
        solver = lk.Solver(setup, {"curves": lk.Curves(points, [0, 9]), "solid": slab})
        solver.run(1)
        (collider,) = colliders_of(solver.object("CurvesObject"))
        return collider.field

    usual = field_of()
    assert usual.voxel_size == pytest.approx(0.1 / 8) and usual.band == pytest.approx(0.6 / 8)
    finer = field_of(cell_size=0.007)
    assert finer.voxel_size == pytest.approx(0.1 / 16)  # the largest that is not above
    narrow, wide = field_of(domain_offset=0.03), field_of(domain_offset=0.15)
    assert narrow.band == pytest.approx(0.03) and wide.band == pytest.approx(0.15)
    with pytest.raises(
        SetupError, match=r"cell_size = 0\.001 m is below 0\.003125 m, the smallest"
    ):
        field_of(cell_size=0.001)

    def of_fluid(**options):
        setup = lk.SolverSetup(
            "t", lk.ParticleObject(name="P", input="p", radius=radius_of(0.1)),
            lk.PositionBasedFluid(), lk.Collider(input="solid", **options), bucket_size=0.8,
        )  # fmt: skip
        solver = lk.Solver(setup, {"p": lk.Points([[0.0, 0.05, 0.0]]), "solid": table()})
        solver.run(1)
        return colliders_of(solver.object("P"))[0].field

    assert of_fluid(cell_size=0.05).voxel_size == pytest.approx(0.05)
    assert of_fluid(domain_offset=1.5).band == pytest.approx(1.5)
