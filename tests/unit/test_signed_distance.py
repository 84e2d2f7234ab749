"""Signed distance of meshes against closed forms, and its signs on meshes that are not sound."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from loki_core.data.body import Body
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import InputError, SetupError
from loki_core.kernels.buckets.bucket_hash import pack_buckets
from loki_core.objects.colliders.signed_distance import narrow_band
from loki_core.objects.colliders.triangles import Triangles

pytestmark = pytest.mark.compiles

VOXELS = np.stack(np.meshgrid(*[np.arange(8)] * 3, indexing="ij"))


def surface(mesh, offset=(0.0, 0.0, 0.0)):
    return Surface.from_faces(np.array(mesh.vertices) + offset, np.array(mesh.faces))


def sphere(radius=0.4, subdivisions=4, offset=(0.0, 0.0, 0.0)):
    return surface(trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius), offset)


def field_of(mesh, voxels_per_metre=32, **options):
    options = {"dtype": np.float64, **options}
    return narrow_band(GridDomain(8.0 / voxels_per_metre), mesh, **options)


def centres(field):
    """Voxel centres relative to the origin [m], shape [voxels, 3]."""
    coords = field.volume.buckets.local_coords[:, :, None, None, None]
    places = (coords * 8 + VOXELS[None] + 0.5) * field.voxel_size
    return places.transpose(0, 2, 3, 4, 1).reshape(-1, 3)


def values(field, name):
    stored = field.volume.local(name)
    return stored.transpose(0, 2, 3, 4, 1).reshape(-1, stored.shape[1])


def distances(field):
    return values(field, "distance")[:, 0]


def solid_anywhere(field, places):
    """Whether the field is solid at places, stored or not."""
    return field.sample(np.atleast_2d(np.asarray(places, np.float64))).distance < 0.0


# -- distances ------------------------------------------------------------------------------


def test_sphere_is_exact_but_for_its_facets():
    # A facet of an icosphere lies inside the sphere by at most edge^2 / (6 R).
    radius = 0.4
    for subdivisions in (3, 4, 5):
        mesh = sphere(radius, subdivisions)
        edge = np.ptp(mesh.positions[mesh.triangles()], axis=1).max()
        field = field_of(mesh)
        exact = np.clip(np.linalg.norm(centres(field), axis=1) - radius, -field.band, field.band)
        error = distances(field) - exact
        assert error.min() > -1e-12
        assert edge**2 / (40.0 * radius) < error.max() < edge**2 / (3.0 * radius)
        assert (np.abs(exact) < field.band).sum() > 10_000


def test_box_is_exact():
    size = np.array([0.6, 0.4, 0.3])
    field = field_of(surface(trimesh.creation.box(extents=size)))
    outside = np.abs(centres(field)) - 0.5 * size
    exact = np.linalg.norm(np.maximum(outside, 0.0), axis=1) + np.minimum(outside.max(axis=1), 0.0)
    np.testing.assert_allclose(
        distances(field), np.clip(exact, -field.band, field.band), rtol=0, atol=1e-14
    )


def test_torus_and_order():
    errors = []
    for sections in (24, 48, 96):
        mesh = trimesh.creation.torus(0.3, 0.1, major_sections=sections, minor_sections=sections)
        field = field_of(surface(mesh), voxels_per_metre=40)
        x = centres(field)
        ring = np.hypot(x[:, 0], x[:, 1]) - 0.3
        exact = np.clip(np.hypot(ring, x[:, 2]) - 0.1, -field.band, field.band)
        errors.append(np.abs(distances(field) - exact).max())
    slopes = np.log2(errors[:-1]) - np.log2(errors[1:])
    np.testing.assert_allclose(slopes, 2.0, atol=0.15)  # facets: second order in their size


def test_the_band_is_complete_and_no_wider_than_needed():
    field = field_of(sphere(), voxels_per_metre=64, domain_offset=0.1)
    assert field.band == 0.1
    grid = np.stack(np.meshgrid(*[np.arange(-48, 48)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    near = np.abs(np.linalg.norm((grid + 0.5) / 64, axis=1) - 0.4) < 0.1
    wanted = np.unique(pack_buckets((grid[near] >> 3).astype(np.int32)))
    stored = pack_buckets(field.volume.buckets.local_coords)
    assert np.isin(wanted, stored).all()
    assert len(stored) < 1.5 * len(wanted)


def test_modes_and_offset():
    h = 1.0 / 32
    mesh, band = sphere(), 6 * h
    plain = field_of(mesh, domain_offset=band)
    unsigned = np.abs(distances(plain))
    for mode, offset, expected in (
        ("solid_inside", 2 * h, distances(plain) - 2 * h),
        ("solid_inside", -2 * h, distances(plain) + 2 * h),
        ("solid_outside", 0.0, -distances(plain)),
        ("solid_outside", h, -distances(plain) - h),
        ("shell", 0.0, unsigned - h),
    ):
        field = field_of(mesh, mode=mode, thickness=2 * h, surface_offset=offset,
                         domain_offset=band)  # fmt: skip
        rows = np.isin(
            pack_buckets(field.volume.buckets.local_coords),
            pack_buckets(plain.volume.buckets.local_coords),
        )
        got = field.volume.local("distance")[rows].reshape(-1)
        sure = unsigned < band
        np.testing.assert_allclose(
            got[sure], np.clip(expected, -band, band)[sure], rtol=0, atol=1e-14, err_msg=mode
        )
    far, deep = [[2.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]]
    outside = field_of(mesh, mode="solid_outside")
    assert solid_anywhere(outside, far) and not solid_anywhere(outside, deep)
    assert outside.is_solid(np.array([[50, 0, 0]], np.int32))[0]
    shell = field_of(mesh, mode="shell", thickness=2 * h)
    assert not solid_anywhere(shell, far) and not solid_anywhere(shell, deep)
    assert solid_anywhere(shell, [[0.4, 0.0, 0.0]])


def test_signs_beyond_the_band():
    field = field_of(sphere(1.0), voxels_per_metre=64)
    inside = np.array([[0, 0, 0], [2, 1, -3], [-1, -1, -1]], np.int32)
    assert field.is_solid(inside).all()
    assert not np.isin(pack_buckets(inside), pack_buckets(field.volume.buckets.local_coords)).any()
    assert not field.is_solid(np.array([[9, 0, 0], [1000, 5, 3]], np.int32)).any()
    sample = field.sample(np.array([[0.0, 0.1, 0.0], [3.0, 0.0, 0.0]]))
    np.testing.assert_array_equal(sample.distance, [-field.band, field.band])
    np.testing.assert_array_equal(sample.primitive, -1)


def test_within_some_buckets_the_values_are_the_same():
    whole, mesh = field_of(sphere()), sphere()
    some = np.array([[1, 0, 0], [0, 1, 0], [40, 0, 0]], np.int32)
    part = field_of(mesh, within=some)
    assert 0 < part.volume.buckets.local_count < whole.volume.buckets.local_count
    part.move_within(some[1:])
    part.move_within(np.array([[-1, 0, 0], [0, 1, 0]], np.int32))
    rows = part.volume.buckets.index_in(whole.volume.buckets)
    assert len(rows) > 20 and (rows >= 0).all()
    for name in ("distance", "primitive", "velocity"):
        np.testing.assert_array_equal(part.volume.local(name), whole.volume.local(name)[rows])


# -- signs on meshes that are not sound ------------------------------------------------------


def flipped(mesh, rows):
    faces = mesh.triangles().copy()
    faces[rows] = faces[rows][:, ::-1]
    return Surface.from_faces(mesh.positions, faces)


def soup(mesh):
    """The same triangles, each on points of its own."""
    corners = mesh.positions[mesh.triangles()].reshape(-1, 3)
    return Surface.from_faces(corners, np.arange(len(corners)).reshape(-1, 3))


def test_flipped_split_and_doubled_triangles_change_nothing():
    mesh = sphere(subdivisions=3)
    faces = mesh.triangles()
    rng = np.random.default_rng(3)
    some = rng.choice(len(faces), 200, replace=False)
    expected = distances(field_of(mesh))
    doubled = Surface.from_faces(mesh.positions, np.concatenate((faces, faces[some])))
    two_sided = Surface.from_faces(mesh.positions, np.concatenate((faces, faces[:, ::-1])))
    point = np.full((5, 3), 7)
    edge = faces[:1, [0, 0, 1]]
    degenerate = Surface.from_faces(mesh.positions, np.concatenate((faces, point, edge)))
    for name, other in {
        "flipped": flipped(mesh, some),
        "inside out": flipped(mesh, slice(None)),
        "split": soup(mesh),
        "split and flipped": soup(flipped(mesh, some)),
        "doubled": doubled,
        "two-sided": two_sided,
        "degenerate": degenerate,
    }.items():
        assert Triangles.of(other, label=name).is_closed, name
        np.testing.assert_allclose(
            distances(field_of(other)), expected, rtol=0, atol=1e-13, err_msg=name
        )


def test_overlapping_spheres_are_one_solid():
    radius, shift = 0.3, 0.2
    left = sphere(radius, offset=(-shift, 0.0, 0.0))
    right = sphere(radius, offset=(shift, 0.0, 0.0))
    both = Surface.from_faces(
        np.concatenate((left.positions, right.positions)),
        np.concatenate((left.triangles(), right.triangles() + left.point_count)),
    )
    field = field_of(both)
    x = centres(field)
    nearest = np.minimum(
        np.linalg.norm(x - [-shift, 0, 0], axis=1), np.linalg.norm(x - [shift, 0, 0], axis=1)
    )
    sure = np.abs(nearest - radius) > 2e-3
    np.testing.assert_array_equal((distances(field) < 0)[sure], (nearest < radius)[sure])
    assert solid_anywhere(field, [[0.0, 0.0, 0.0]])


def test_a_hole_is_closed_smoothly():
    mesh = sphere(0.4)
    middle = mesh.positions[mesh.triangles()].mean(axis=1)
    holed = Surface.from_faces(mesh.positions, mesh.triangles()[middle[:, 0] < 0.36])
    assert not Triangles.of(holed, label="holed").is_closed
    field = field_of(holed)
    x = centres(field)
    radius = np.linalg.norm(x, axis=1)
    sure = (np.abs(radius - 0.4) > 3e-3) & (x[:, 0] < 0.33)
    np.testing.assert_array_equal((distances(field) < 0)[sure], (radius < 0.4)[sure])
    # The lid lies between the plane of the border and the sphere, and is crossed once.
    line = np.stack([np.linspace(0.0, 0.6, 200), np.zeros(200), np.zeros(200)], axis=1)
    solid = solid_anywhere(field, line)
    assert solid[0] and not solid[-1] and (np.diff(solid.astype(int)) != 0).sum() == 1
    assert 0.34 < line[np.argmin(solid), 0] < 0.41
    # Across the lid the distance changes as smoothly as a distance does.
    lid = field.sample(line).distance
    assert np.abs(np.diff(lid)).max() < 2.5 * (line[1, 0] - line[0, 0])


@pytest.mark.parametrize("voxels_per_metre", [32, 100])
def test_an_open_hemisphere_is_a_full_bowl(voxels_per_metre):
    mesh = sphere(0.4)
    middle = mesh.positions[mesh.triangles()].mean(axis=1)
    bowl = Surface.from_faces(mesh.positions, mesh.triangles()[middle[:, 1] < 0.0])
    field = field_of(bowl, voxels_per_metre)
    rng = np.random.default_rng(1)
    x = rng.uniform(-0.5, 0.5, (4000, 3))
    radius = np.linalg.norm(x, axis=1)
    deep = (radius < 0.38) & (x[:, 1] < -0.06)  # by the sphere's solid angle the lid is at y = 0
    out = (radius > 0.42) | (x[:, 1] > 0.06)
    got = solid_anywhere(field, x)
    assert deep.sum() > 300 and got[deep].all() and not got[out].any()


def test_a_flat_sheet_has_no_inside():
    grid = np.stack(np.meshgrid(np.linspace(-0.4, 0.4, 9), np.linspace(-0.4, 0.4, 9)), axis=-1)
    points = np.insert(grid.reshape(-1, 2), 1, 0.03, axis=1)
    corner = np.arange(81).reshape(9, 9)
    quads = np.stack((corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1]), axis=-1)
    sheet = Surface.from_faces(points, quads.reshape(-1, 4))
    tilted = Surface.from_faces(points @ np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]]),
                                quads.reshape(-1, 4))  # fmt: skip
    pancake = Surface.from_faces(
        np.concatenate((points, points)),
        np.concatenate((quads.reshape(-1, 4), quads.reshape(-1, 4)[:, ::-1] + 81)),
    )
    for mesh in (sheet, tilted, pancake):
        field = field_of(mesh)
        assert distances(field).min() >= 0.0
        assert not solid_anywhere(field, [[0.0, 0.02, 0.0], [0.0, 0.2, 0.0], [3.0, 0, 0]]).any()
    shell = field_of(sheet, mode="shell", thickness=0.1)
    x = centres(shell)
    over = (np.abs(x[:, 0]) < 0.4) & (np.abs(x[:, 2]) < 0.4)
    exact = np.clip(np.abs(x[:, 1] - 0.03) - 0.05, -shell.band, shell.band)
    np.testing.assert_allclose(distances(shell)[over], exact[over], rtol=0, atol=1e-14)


def test_degenerate_triangles_alone_are_measured_and_enclose_nothing():
    points = np.array([[0.1, 0.1, 0.1], [0.3, 0.1, 0.1], [0.2, 0.1, 0.1]])
    field = field_of(Surface.from_faces(points, [[0, 1, 2], [0, 0, 0]]))
    x = centres(field)
    along = np.clip(x[:, 0], 0.1, 0.3)
    exact = np.sqrt((x[:, 0] - along) ** 2 + (x[:, 1] - 0.1) ** 2 + (x[:, 2] - 0.1) ** 2)
    np.testing.assert_allclose(distances(field), np.minimum(exact, field.band), rtol=0, atol=1e-12)


def test_random_triangles_have_a_distance():
    # Thin, crossing, unconnected: compared with the distance to dense points on each of them.
    rng = np.random.default_rng(7)
    corners = rng.uniform(-0.3, 0.3, (12, 3, 3))
    corners[4:8, 2] = corners[4:8, 0] + 1e-7 * rng.normal(size=(4, 3))
    field = field_of(Surface.from_faces(corners.reshape(-1, 3), np.arange(36).reshape(-1, 3)),
                     mode="shell", voxels_per_metre=16)  # fmt: skip
    x = centres(field)
    expected = trimesh.proximity.closest_point_naive(
        trimesh.Trimesh(corners.reshape(-1, 3), np.arange(36).reshape(-1, 3), process=False), x
    )[1]
    got = distances(field)
    near = got < field.band
    assert near.sum() > 500
    np.testing.assert_allclose(got[near], expected[near], rtol=0, atol=1e-7)
    assert (expected[~near] >= field.band - 1e-7).all()


# -- sizes and places ------------------------------------------------------------------------


def test_tiny_huge_and_far_away():
    reference = field_of(sphere())
    expected = distances(reference)
    for scale in (1e-4, 1e3):
        mesh = Surface.from_faces(sphere().positions * scale, sphere().triangles())
        field = narrow_band(GridDomain(0.25 * scale), mesh, dtype=np.float64)
        np.testing.assert_allclose(distances(field) / scale, expected, rtol=0, atol=1e-12)
    place = np.array([1e5, -1e5, 1e5])
    far = narrow_band(GridDomain(0.25, near=place), sphere(offset=place), dtype=np.float64)
    np.testing.assert_allclose(distances(far), expected, rtol=0, atol=1e-10)
    speck = field_of(sphere(1e-3))  # far smaller than a voxel: no voxel lies in it, none is lost
    assert distances(speck).min() > 0.0
    assert distances(speck).min() < 0.9 * speck.voxel_size


def test_a_mesh_larger_than_the_box_stays_in_the_box():
    walls = [BoundaryCondition("wall")] * 6
    domain = GridDomain(0.25, lower=(-0.3,) * 3, upper=(0.3,) * 3, boundaries=walls)
    field = narrow_band(domain, sphere(0.4), dtype=np.float64)
    first, last = domain.bucket_range()
    coords = field.volume.buckets.local_coords
    assert len(coords) and (coords >= first).all() and (coords < last).all()
    exact = np.linalg.norm(domain.to_world(centres(field)), axis=1) - 0.4
    near = np.abs(exact) < 0.9 * field.band
    np.testing.assert_allclose(distances(field)[near], exact[near], rtol=0, atol=2e-3)


def test_an_empty_mesh_is_not_solid():
    empty = Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))
    for mode in ("solid_inside", "solid_outside", "shell"):
        field = field_of(empty, mode=mode, thickness=0.1)
        assert field.volume.buckets.local_count == 0
        assert not field.is_solid(np.zeros((2, 3), np.int32)).any()
        assert not solid_anywhere(field, [[0.0, 0.0, 0.0]]).any()


def test_bad_input_is_named():
    broken = sphere()
    broken.positions[5, 1] = np.nan
    with pytest.raises(InputError, match=r"wall\.positions\[5\]"):
        field_of(broken, label="wall")
    with pytest.raises(InputError, match="Points; a collider is a Surface or a Body"):
        field_of(Points(np.zeros((3, 3))))
    with pytest.raises(SetupError, match='mode = "solid_insid"'):
        field_of(sphere(), mode="solid_insid")
    with pytest.raises(InputError, match='no point, vertex or primitive channel "frictoin"'):
        mesh = sphere()
        mesh.set_channel("point", "friction", np.zeros(mesh.point_count))
        field_of(mesh, channels=("frictoin",))


# -- what is carried -------------------------------------------------------------------------


def test_closest_primitive_of_the_given_mesh():
    box = trimesh.creation.box(extents=(0.5, 0.5, 0.5))
    quads = Surface.from_polygons(
        np.array(box.vertices),
        [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]],
    )
    field = field_of(quads)
    normals = quads.area_vectors()
    face = values(field, "primitive")[:, 0]
    known = face >= 0
    assert known.any() and face.max() == 5
    x = centres(field)[known]
    axis = np.argmax(np.abs(x), axis=1)
    size = np.sort(np.abs(x), axis=1)
    clear = (size[:, 1] < 0.25) & (size[:, 2] > size[:, 1] + 1e-9)  # not over an edge
    assert clear.sum() > 1000
    outward = normals[face[known]]
    rows = np.arange(len(x))
    np.testing.assert_array_equal(np.argmax(np.abs(outward), axis=1)[clear], axis[clear])
    assert (outward[rows, axis] * x[rows, axis] > 0)[clear].all()
    np.testing.assert_array_equal(known, np.abs(distances(field)) < field.band)


def test_velocity_of_a_turning_and_moving_body():
    mesh = sphere(0.4, 5)
    turn, drift = np.array([0.0, 3.0, 1.0]), np.array([1.0, -2.0, 0.5])
    mesh.set_channel("point", "velocity", np.cross(turn, mesh.positions) + drift)
    field = field_of(mesh)
    known = values(field, "primitive")[:, 0] >= 0
    x = centres(field)[known]
    closest = 0.4 * x / np.linalg.norm(x, axis=1, keepdims=True)
    exact = np.cross(turn, closest) + drift
    np.testing.assert_allclose(values(field, "velocity")[known], exact, rtol=0, atol=0.01)
    sample = field.sample(np.array([[0.41, 0.0, 0.0], [0.0, 0.0, -0.39]]))
    np.testing.assert_allclose(
        sample.velocity, np.cross(turn, [[0.4, 0, 0], [0, 0, -0.4]]) + drift, atol=0.03
    )


def test_painted_channels_of_every_place():
    mesh = surface(trimesh.creation.box(extents=(0.5, 0.5, 0.5)).subdivide().subdivide())
    slope = np.array([0.3, -0.2, 0.7])
    mesh.set_channel("point", "heat", mesh.positions @ slope)
    mesh.set_channel("vertex", "uv", mesh.positions[mesh.face_vertices][:, :2])
    mesh.set_channel("primitive", "part", np.arange(mesh.primitive_count, dtype=np.int32))
    field = field_of(mesh, channels=("heat", "uv", "part"))
    known = values(field, "primitive")[:, 0] >= 0
    x = centres(field)[known]
    nearest = np.clip(x, -0.25, 0.25)
    inside = np.abs(x).max(axis=1) < 0.25
    nearest, outer = nearest[~inside], ~inside
    # Linear on every face, so exact at the closest point.
    np.testing.assert_allclose(
        values(field, "heat")[known][outer, 0], nearest @ slope, rtol=0, atol=1e-13
    )
    np.testing.assert_allclose(values(field, "uv")[known][outer], nearest[:, :2], atol=1e-13)
    np.testing.assert_array_equal(
        values(field, "part"), values(field, "primitive") * known[:, None]
    )
    sample = field.sample(np.array([[0.26, 0.1, 0.1]]))
    np.testing.assert_allclose(sample.channels["heat"][0, 0], [0.25, 0.1, 0.1] @ slope, atol=1e-9)
    assert sample.channels["uv"].shape == (1, 2)


def test_a_body_is_its_boundary():
    corners = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)]) * 0.5 - 0.25
    tetrahedra = [[0, 4, 6, 7], [0, 6, 2, 7], [0, 2, 3, 7], [0, 3, 1, 7], [0, 1, 5, 7],
                  [0, 5, 4, 7]]  # fmt: skip
    body = Body(corners, tetrahedra)
    assert (body.volumes() > 0).all()
    field = field_of(body)
    box = field_of(surface(trimesh.creation.box(extents=(0.5,) * 3)))
    np.testing.assert_allclose(distances(field), distances(box), rtol=0, atol=1e-14)
    assert set(np.unique(values(field, "primitive"))) == {-1, 0, 1, 2, 3, 4, 5}


def test_sampling_is_trilinear_and_continuous():
    field = field_of(sphere())
    x = centres(field)
    np.testing.assert_allclose(field.sample(x[::7]).distance, distances(field)[::7], atol=1e-15)
    line = np.stack(
        [np.linspace(-0.7, 0.7, 5001), np.full(5001, 0.02), np.full(5001, 0.03)], axis=1
    )
    along = field.sample(line).distance
    assert np.abs(np.diff(along)).max() < 1.01 * (line[1, 0] - line[0, 0])
    exact = np.clip(np.linalg.norm(line, axis=1) - 0.4, -field.band, field.band)
    assert np.abs(along - exact).max() < 0.3 * field.voxel_size
