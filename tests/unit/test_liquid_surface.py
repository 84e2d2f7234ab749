"""The surface of a liquid: volume, flatness, that it is closed, drops, sheets, walls, channels."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import SetupError
from loki_core.forces.gravity import GravityForce
from loki_core.kernels.buckets.marching_cubes import triangle_table
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import Group, SolverSetup
from loki_vfx.serialization.vdb_sequence import grids_of
from loki_vfx.serialization.volumes import read_vdb
from tests.skeleton.liquid_scene import (
    H,
    box,
    edge_uses,
    enclosed_volume,
    liquid_solver,
    particle_volume,
    surface_of,
)

pytestmark = pytest.mark.compiles

DEPTH = 0.5


def ball(radius, centre=(0.5, 0.5, 0.5)):
    mesh = trimesh.creation.icosphere(subdivisions=4, radius=radius)
    return Surface.from_faces(np.array(mesh.vertices) + centre, np.array(mesh.faces))


def sheet(tilt, seed):
    """One layer of particles half a voxel apart, shaken and tilted."""
    rng, count = np.random.default_rng(seed), 24
    grid = np.stack(np.meshgrid(*[np.arange(count)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    flat = np.insert((grid - 0.5 * count) * 0.5 * H, 1, 0.0, axis=1)
    flat += rng.uniform(-0.1, 0.1, flat.shape) * H
    turn = trimesh.transformations.rotation_matrix(tilt, [1.0, 0.0, 0.3])[:3, :3]
    return Points(flat @ turn.T + 0.503)


def assert_closed(surface):
    counts, has_way_back = edge_uses(surface)
    assert np.all(counts == 1) and np.all(has_way_back)


def top_of(surface):
    """Heights of the free surface, two voxels from the walls [voxels]."""
    x = np.asarray(surface.positions, np.float64)
    inside = np.all((x[:, ::2] > 2 * H) & (x[:, ::2] < 1.0 - 2 * H), axis=1)
    return x[inside & (x[:, 1] > 2 * H), 1] / H


def test_all_cubes_have_triangles():
    counts, edges = triangle_table()
    assert counts[0] == counts[255] == 0 and counts[1:255].min() == 1 and counts.max() == 5
    assert np.all((edges >= 0).sum(axis=1) == 3 * counts)


def test_a_pool_at_rest_is_flat_closed_and_has_its_volume():
    solver = liquid_solver(box((0, 0, 0), (1, DEPTH, 1)))
    surface = solver.object("Surface").output()
    assert_closed(surface)
    assert np.abs(top_of(surface) - DEPTH / H).max() < 0.02
    assert enclosed_volume(surface) == pytest.approx(particle_volume(solver), rel=0.005)
    np.testing.assert_allclose(surface.bounds()[0], 0.0, atol=1e-6)
    np.testing.assert_allclose(surface.bounds()[1], [1.0, DEPTH, 1.0], atol=0.05 * H)


@pytest.mark.parametrize("refinement", [2, 4])
@pytest.mark.parametrize("voxels", [3.0, 6.0])
def test_a_ball_of_liquid_keeps_its_volume(refinement, voxels):
    solver = liquid_solver(ball(voxels * H, (0.51, 0.49, 0.5)), refinement=refinement)
    surface = solver.object("Surface").output()
    assert_closed(surface)
    assert enclosed_volume(surface) == pytest.approx(particle_volume(solver), rel=0.01)
    radius = np.linalg.norm(surface.positions - [0.51, 0.49, 0.5], axis=1)
    # The particles' lattice, half a voxel wide, makes steps of it.
    assert np.abs(radius - voxels * H).max() < 0.25 * H


def test_the_surface_faces_the_air():
    surface = surface_of(ball(0.25))
    x = np.asarray(surface.positions, np.float64)[surface.triangles()]
    away = x.mean(axis=1) - 0.5
    assert np.all(np.einsum("ij,ij->i", surface.area_vectors(), away) > 0.0)


@pytest.mark.parametrize(("refinement", "tolerance"), [(2, 0.35), (4, 0.1)])
def test_a_single_particle_is_a_ball_of_its_own_volume(refinement, tolerance):
    for seed in range(5):
        place = np.random.default_rng(seed).uniform(0.3, 0.7, (1, 3))
        solver = liquid_solver(Points(place), refinement=refinement)
        surface = solver.object("Surface").output()
        assert_closed(surface)
        assert enclosed_volume(surface) == pytest.approx(particle_volume(solver), rel=tolerance)
        np.testing.assert_allclose(surface.positions.mean(axis=0), place[0], atol=0.2 * H)


@pytest.mark.parametrize("tilt", [0.0, 0.4, 0.8])
def test_a_sheet_of_one_layer_has_no_holes(tilt):
    surface = surface_of(sheet(tilt, seed=3))
    assert_closed(surface)
    mesh = trimesh.Trimesh(surface.positions, surface.triangles(), process=False)
    assert mesh.body_count == 1 and mesh.euler_number == 2  # a sphere, flattened


def test_smoothing_keeps_the_volume():
    volumes = [enclosed_volume(surface_of(ball(0.25), smoothing=n)) for n in (0, 1, 4)]
    np.testing.assert_allclose(volumes, volumes[0], rtol=0.01)


def test_liquid_ends_at_a_collider():
    post = box((0.4, -0.1, 0.4), (0.6, 1.1, 0.6))
    solver = liquid_solver(
        box((0, 0, 0), (1, DEPTH, 1)),
        Collider(name="post", input="post"),
        inputs={"post": post},
    )
    surface = solver.object("Surface").output()
    assert_closed(surface)
    x = np.asarray(surface.positions, np.float64)
    inside = np.all(np.abs(x[:, ::2] - 0.5) < 0.1 - 0.15 * H, axis=1)
    assert not inside.any()
    assert enclosed_volume(surface) == pytest.approx(DEPTH * (1.0 - 0.04), rel=0.02)


def test_vertices_have_the_velocity_and_channels_of_the_particles():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.3, 0.7, (2100, 3))
    points = Points(x)
    points.set_channel("point", "velocity", np.stack([x[:, 1], -x[:, 0], 0 * x[:, 0]], axis=1))
    points.set_channel("point", "heat", 2.0 * x[:, 2])
    surface = surface_of(points, channels=("heat",))
    found = surface.channels["point"]
    y = np.asarray(surface.positions, np.float64)
    # Means of particles on the inner side only, a voxel away at most.
    np.testing.assert_allclose(found["velocity"][:, 0], y[:, 1], atol=H)
    np.testing.assert_allclose(found["velocity"][:, 1], -y[:, 0], atol=H)
    np.testing.assert_allclose(found["heat"], 2.0 * y[:, 2], atol=2.0 * H)


def test_no_liquid_has_an_empty_surface():
    surface = surface_of(Points(np.empty((0, 3))))
    assert surface.point_count == 0 and surface.primitive_count == 0
    voxels = surface_of(Points(np.empty((0, 3))), output="level_set")
    assert voxels.block_count == 0


def test_a_level_set_has_true_distances():
    voxels = surface_of(ball(0.25), output="level_set")
    distance = voxels.to_dense("distance")[0]
    first, h = voxels.first_voxel(), voxels.voxel_size
    places = np.stack(np.indices(distance.shape), axis=-1) + first + 0.5
    expected = np.linalg.norm(voxels.origin + places * h - 0.5, axis=-1) - 0.25
    band = voxels.channel("distance").background
    assert band == pytest.approx(3 * h)
    near = np.abs(expected) < 0.8 * band
    assert np.abs(distance - expected)[near].max() < 0.5 * h
    assert np.all(np.sign(distance)[~near] == np.sign(expected)[~near])


@pytest.mark.parametrize("output", ["mesh", "level_set"])
def test_threads_do_not_matter(output):
    before, found = thread_count(), []
    points = Points(np.random.default_rng(1).uniform(0.1, 0.6, (5000, 3)))
    for threads in (1, 2):
        set_thread_count(threads)
        shown = surface_of(points, output=output)
        found.append(
            (shown.positions, shown.triangles())
            if output == "mesh"
            else (shown.coords, shown.channel("distance").values)
        )
    set_thread_count(before)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_surface_follows_the_liquid_and_does_not_change_it():
    runs = []
    for shown in (True, False):
        behaviors = [HybridObject(name="Water", voxel_size=H, input="water")]
        if shown:
            behaviors.append(LiquidSurface(name="Surface"))
        setup = SolverSetup("fall", *behaviors, GravityForce(), substeps=2)
        solver = Solver(setup, {"water": ball(0.2)})
        solver.run(3)
        runs.append(solver)
    np.testing.assert_array_equal(*(run.read("Water", "position") for run in runs))
    surface = runs[0].object("Surface").output()
    centre = 0.5 * (surface.bounds()[0] + surface.bounds()[1])
    np.testing.assert_allclose(
        centre, runs[0].read("Water", "position").mean(axis=0), atol=0.05 * H
    )


def test_the_source_must_be_one_liquid():
    water = Points(np.empty((0, 3)))
    both = [
        Group(name, HybridObject(name="Water", voxel_size=H, input="water")) for name in ("A", "B")
    ]
    with pytest.raises(SetupError, match="A/Water, B/Water"):
        Solver(SolverSetup("two", *both, LiquidSurface()), {"water": water})
    Solver(SolverSetup("two", *both, LiquidSurface(source="A")), {"water": water})
    with pytest.raises(SetupError, match="there is none"):
        Solver(SolverSetup("none", LiquidSurface()), {})
    with pytest.raises(SetupError, match="Watr"):
        Solver(SolverSetup("wrong", both[0], LiquidSurface(source="A/Watr")), {"water": water})
    with pytest.raises(SetupError, match="channels names"):
        surface_of(water, channels=("colour",))


def test_a_liquid_that_is_disabled_has_an_empty_surface():
    setup = SolverSetup(
        "off",
        HybridObject(name="Water", voxel_size=H, enabled=False),
        LiquidSurface(name="Surface"),
    )
    assert Solver(setup, {}).object("Surface").output().point_count == 0


def test_a_level_set_ends_at_walls_and_passes_through_vdb(tmp_path):
    voxels = surface_of(box((0, 0, 0), (1, DEPTH, 1)), output="level_set")
    grids = grids_of(voxels)
    assert grids.classes["distance"] == "level set"
    assert {name.partition(".")[0] for name in grids.voxels.channels} == set(voxels.channels)
    grids.write(tmp_path / "water.vdb")
    distance = read_vdb(tmp_path / "water.vdb", names=["distance"])
    h, dense = voxels.voxel_size, distance.to_dense("distance")[0]
    assert distance.channel("distance").background == pytest.approx(3 * h)
    lower = np.round((distance.origin - 0.0) / h).astype(int) + distance.first_voxel()
    middle = -lower + 16  # a voxel in the middle of the box
    across = dense[:, middle[1] - 8, middle[2]]
    wall = -lower[0]
    # Half a voxel before and behind the wall.
    np.testing.assert_allclose(across[[wall - 1, wall]], [0.5 * h, -0.5 * h], atol=1e-3 * h)
    np.testing.assert_allclose(across[[wall + 31, wall + 32]], [-0.5 * h, 0.5 * h], atol=1e-3 * h)
