"""Solids on the faces of a volume: areas and volumes against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.surface import Surface
from loki_core.errors import SetupError
from loki_core.kernels.colliders.open_parts import open_part
from loki_core.kernels.colliders.solid_fractions import open_area
from loki_core.objects.colliders.collider import add_solids
from loki_core.objects.colliders.signed_distance import narrow_band

pytestmark = pytest.mark.compiles


def air(domain, first, last, resolution=8):
    """A volume of Buckets [first, last) along each axis, all open and at rest."""
    volume = DiscreteVolume(domain, name="Air", dtype=np.float64)
    for name in ("open_fraction", "solid_velocity"):
        volume.add_channel(name, components=3, location="face", resolution=resolution)
    volume.add_channel("kind", np.uint8, resolution=resolution)
    axes = np.meshgrid(*[np.arange(first, last)] * 3, indexing="ij")
    volume.set_buckets(np.stack(axes, axis=-1).reshape(-1, 3).astype(np.int32))
    volume.local("open_fraction")[:] = 1.0
    volume.local("kind")[:] = 1
    return volume


def dense(volume, name):
    """A channel as one array [c, n, n, n]."""
    coords = volume.buckets.local_coords
    stored = volume.local(name)
    r = stored.shape[2]
    first = coords.min(axis=0)
    size = (coords.max(axis=0) - first + 1) * r
    whole = np.zeros((stored.shape[1], *size), stored.dtype)
    for place, block in zip((coords - first) * r, stored, strict=True):
        i, j, k = place
        whole[:, i : i + r, j : j + r, k : k + r] = block
    return whole


def half_space(normal, offset):
    """A closed slab, far larger than the volume, whose one face is the plane n x = offset."""
    normal = np.asarray(normal, float) / np.linalg.norm(normal)
    box = trimesh.creation.box(extents=(8.0, 8.0, 8.0))
    turn = trimesh.geometry.align_vectors([0.0, 0.0, 1.0], normal)
    box.apply_translation((0.0, 0.0, -4.0))
    box.apply_transform(turn)
    box.apply_translation(normal * offset)
    return Surface.from_faces(np.array(box.vertices), np.array(box.faces))


def sphere(radius, subdivisions=5, centre=(0.0, 0.0, 0.0)):
    mesh = trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)
    return Surface.from_faces(np.array(mesh.vertices) + centre, np.array(mesh.faces))


def polygon_area(corners):
    """Part of the unit square with a positive bilinear-on-edges distance, by dense clipping."""
    places = np.array([(0, 0), (1, 0), (1, 1), (0, 1)], float)
    out = []
    for k in range(4):
        a, b = corners[k], corners[(k + 1) % 4]
        if a > 0:
            out.append(places[k])
        if (a > 0) != (b > 0):
            out.append(places[k] + a / (a - b) * (places[(k + 1) % 4] - places[k]))
    if len(out) < 3:
        return 0.0
    x, y = np.array(out).T
    return 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))


def test_marching_squares_in_all_cases():
    rng = np.random.default_rng(2)
    for case in range(16):
        for _ in range(20):
            size = rng.uniform(0.05, 1.0, 4)
            corners = np.where([(case >> k) & 1 for k in range(4)], size, -size)
            area = open_area(*corners)
            if case in (5, 10) and corners.sum() <= 0:  # opposite corners, not joined
                expected = 1.0 - polygon_area(-corners)
            else:
                expected = polygon_area(corners)
            np.testing.assert_allclose(area, expected, rtol=0, atol=1e-14, err_msg=f"{case:04b}")
            np.testing.assert_allclose(area + open_area(*-corners), 1.0, rtol=0, atol=1e-14)
            turned = [open_area(*np.roll(corners, k)) for k in range(4)]
            np.testing.assert_allclose(turned, area, rtol=0, atol=1e-14)
    assert open_area(0.0, 0.0, 0.0, 0.0) == 0.0  # touching is closed
    assert open_area(1.0, 1.0, 0.0, 0.0) == 1.0


def test_zeros_and_areas_of_curved_surfaces_are_third_order():
    """A circle of radius R cuts a face of size 1: its distance is given at the corners alone."""
    errors = []
    for radius in (8.0, 16.0):
        worst = 0.0
        for angle in np.linspace(0.1, 1.5, 12):
            centre = (radius + 0.05) * np.array([np.cos(angle), np.sin(angle)])
            u, v = np.meshgrid(*[(np.arange(400) + 0.5) / 400 - 0.5] * 2, indexing="ij")
            is_open = np.hypot(u - centre[0], v - centre[1]) > radius
            corner = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
            away = np.linalg.norm(corner - centre, axis=1)
            bend = [
                np.linalg.norm(centre + step) + np.linalg.norm(centre - step)
                - 2.0 * np.linalg.norm(centre)
                for step in np.eye(2)
            ]  # fmt: skip
            area, *middle = open_part(*(away - radius), *bend)
            worst = max(worst, abs(area - is_open.mean()))
            expected = (u[is_open].mean(), v[is_open].mean())
            np.testing.assert_allclose(middle, expected, atol=0.5 / radius)
        errors.append(worst)
    # Straight lines are off by 1 / 12 R, 0.0104 and 0.0052; what is left is the sampling's 1 / 400.
    assert errors[0] < 2e-3 and errors[1] < 1.5e-3


@pytest.mark.parametrize(
    "normal", [(0, 1, 0), (1, 1, 0), (1, 2, 3), (-0.3, 0.9, 0.2), (0.01, 1.0, -0.02)]
)
def test_a_half_space_has_the_exact_fraction_on_every_section(normal):
    domain = GridDomain(0.25)
    volume = air(domain, -2, 2)  # 32 voxels of 1/32 m: one cubic metre
    offset = 0.0371
    add_solids(volume, [narrow_band(domain, half_space(normal, offset), dtype=np.float64)],
               smallest=0.0)  # fmt: skip
    opening = dense(volume, "open_fraction")
    unit = np.asarray(normal, float) / np.linalg.norm(normal)
    for axis in range(3):
        # A section is the square |y|, |z| < 1/2, cut by a line: clip the whole square at once.
        for index in range(0, 32, 5):
            place = -0.5 + index / 32
            b, c = (axis + 1) % 3, (axis + 2) % 3
            values = [
                unit[axis] * place + unit[b] * y + unit[c] * z - offset
                for y, z in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
            ]
            section = np.take(opening[axis], index, axis=axis)
            np.testing.assert_allclose(section.mean(), polygon_area(values), rtol=0, atol=1e-12)


def test_solid_volume_of_a_sphere_converges():
    radius, errors = 0.4, []
    for voxels in (16, 32, 64):
        domain = GridDomain(8.0 / voxels)
        volume = air(domain, -voxels // 16, voxels // 16)
        add_solids(volume, [narrow_band(domain, sphere(radius, 6), dtype=np.float64)])
        opening = dense(volume, "open_fraction")[0]
        # The mean over all sections along x of the closed area: a volume by Cavalieri.
        solid = (1.0 - opening).sum() / voxels**3
        errors.append(abs(solid / (4.0 / 3.0 * np.pi * radius**3) - 1.0))
        kind = dense(volume, "kind")[0]
        x = (np.stack(np.meshgrid(*[np.arange(voxels)] * 3, indexing="ij")) + 0.5) / voxels - 0.5
        r = np.linalg.norm(x, axis=0)
        h = 1.0 / voxels
        assert (kind[r < radius - 0.9 * h] == 0).all()
        assert (kind[r > radius + 0.1 * h] == 1).all()
    # Second order, from sections at planes; the sphere itself is a mesh that is 1.4e-4 too small.
    assert (np.array(errors) < 0.15 * (np.array([16, 32, 64]) * radius) ** -2.0).all()


@pytest.mark.parametrize("offset", [0.0, 0.0371])
@pytest.mark.parametrize("normal", [(0, 1, 0), (-1, 0, 0), (1, 1, 0), (1, 2, 3), (0.01, 1.0, 0.0)])
def test_open_parts_of_voxels_that_a_plane_cuts(normal, offset):
    """Against dense sampling; with offset 0 a wall runs along faces, and takes nothing."""
    domain = GridDomain(0.25)
    volume = air(domain, -1, 1)
    volume.add_channel("open_part", resolution=8)
    plane = narrow_band(domain, half_space(normal, offset), dtype=np.float64)
    add_solids(volume, [plane], smallest=0.0)
    unit = np.asarray(normal, float) / np.linalg.norm(normal)
    axis = (np.arange(16 * 12) + 0.5) / (12 * 32) - 0.25
    x, y, z = np.meshgrid(axis, axis, axis, indexing="ij", sparse=True)
    is_open = unit[0] * x + unit[1] * y + unit[2] * z > offset
    expected = is_open.reshape(16, 12, 16, 12, 16, 12).mean(axis=(1, 3, 5))
    # A sample stands for 1 / 12 of a voxel across the plane, and lies within half of that.
    np.testing.assert_allclose(dense(volume, "open_part")[0], expected, rtol=0, atol=0.05)


def test_open_parts_of_voxels_add_up_to_the_volume_outside_a_sphere():
    radius, errors = 0.4, []
    for voxels in (16, 32):
        domain = GridDomain(8.0 / voxels)
        volume = air(domain, -voxels // 16, voxels // 16)
        volume.add_channel("open_part", resolution=8)
        add_solids(volume, [narrow_band(domain, sphere(radius, 6), dtype=np.float64)])
        solid = 1.0 - float(dense(volume, "open_part").mean())
        errors.append(abs(solid / (4.0 / 3.0 * np.pi * radius**3) - 1.0))
    assert errors[0] < 0.015 and errors[1] < 0.3 * errors[0]  # second order


def test_whole_buckets_deep_inside_are_solid():
    domain = GridDomain(0.125)
    volume = air(domain, -6, 6)
    field = narrow_band(domain, sphere(0.7), dtype=np.float64)
    add_solids(volume, [field])
    deep = volume.buckets.index_in(field.volume.buckets) < 0
    deep &= np.linalg.norm((volume.buckets.local_coords + 0.5) * 0.125, axis=1) < 0.5
    assert deep.sum() > 50
    assert (volume.local("kind")[deep] == 0).all()
    assert (volume.local("open_fraction")[deep] == 0.0).all()
    container = air(domain, -6, 6)
    add_solids(container, [narrow_band(domain, sphere(0.7), mode="solid_outside",
                                       dtype=np.float64)])  # fmt: skip
    assert (container.local("kind")[deep] == 1).all()
    assert (dense(container, "kind")[0][:2] == 0).all()  # corners and sides of the box
    # Inside and outside of one sphere share out every face, but for openings that are closed.
    together = volume.local("open_fraction") + container.local("open_fraction")
    np.testing.assert_allclose(together, 1.0, rtol=0, atol=0.0101)


def test_a_collider_that_fills_the_domain_leaves_nothing_open():
    domain = GridDomain(0.25)
    volume = air(domain, -2, 2)
    add_solids(volume, [narrow_band(domain, sphere(5.0))])
    assert not volume.local("kind").any()
    assert not volume.local("open_fraction").any()


def test_two_solids_are_their_union_and_the_nearer_one_moves_the_wall():
    domain = GridDomain(0.25)
    left, right = sphere(0.25, 4, (-0.15, 0, 0)), sphere(0.25, 4, (0.15, 0, 0))
    left.set_channel("point", "velocity", np.tile([1.0, 2.0, 3.0], (left.point_count, 1)))
    right.set_channel("point", "velocity", np.tile([-5.0, 0.0, 7.0], (right.point_count, 1)))
    fields = [narrow_band(domain, mesh, dtype=np.float64) for mesh in (left, right)]
    volume = air(domain, -2, 2)
    add_solids(volume, fields)
    single = []
    for one in fields:
        alone = air(domain, -2, 2)
        add_solids(alone, [one])
        single.append(dense(alone, "open_fraction"))
    both = dense(volume, "open_fraction")
    assert (both <= np.minimum(*single) + 1e-12).all()
    np.testing.assert_array_equal(both[:, :10], single[0][:, :10])  # away from where they meet
    np.testing.assert_array_equal(both[:, 22:], single[1][:, 22:])
    other_order = air(domain, -2, 2)
    add_solids(other_order, fields[::-1])
    # Where both are equally near, the second differences are those of the first.
    np.testing.assert_allclose(dense(other_order, "open_fraction"), both, rtol=0, atol=1e-14)
    moving = dense(volume, "solid_velocity")
    partial = (both > 0.0) & (both < 1.0)
    x = np.arange(32)[:, None, None]
    for axis, (here, there) in enumerate(((1.0, -5.0), (2.0, 0.0), (3.0, 7.0))):
        np.testing.assert_allclose(moving[axis][partial[axis] & (x < 15)], here, atol=1e-12)
        np.testing.assert_allclose(moving[axis][partial[axis] & (x > 17)], there, atol=1e-12)
    assert (moving[both == 1.0] == 0.0).all()


def test_what_the_box_has_closed_stays_closed():
    domain = GridDomain(0.25)
    volume = air(domain, -2, 2)
    volume.local("open_fraction")[:, 1, :, 0] = 0.0
    volume.local("kind")[:, :, 0, 0, 0] = 2
    add_solids(volume, [narrow_band(domain, sphere(0.3, 3))])
    assert (volume.local("open_fraction")[:, 1, :, 0] == 0.0).all()
    kinds = volume.local("kind")[:, :, 0, 0, 0]
    assert set(np.unique(kinds)) == {0, 2}


def test_a_field_of_another_voxel_size_is_refused():
    domain = GridDomain(0.25)
    volume = air(domain, -1, 1, resolution=4)
    with pytest.raises(SetupError, match="8 voxels per Bucket edge, Air 4"):
        add_solids(volume, [narrow_band(domain, sphere(0.3, 2))])
    add_solids(volume, [narrow_band(domain, sphere(0.2, 2), resolution=4)])
    assert (volume.local("kind") == 0).any()


def test_nothing_to_add_changes_nothing():
    domain = GridDomain(0.25)
    volume = air(domain, -1, 1)
    add_solids(volume, [])
    add_solids(volume, [narrow_band(domain, sphere(0.1, 2, (9.0, 0.0, 0.0)))])
    assert (volume.local("open_fraction") == 1.0).all() and (volume.local("kind") == 1).all()
    nobody = air(domain, 0, 0)
    add_solids(nobody, [narrow_band(domain, sphere(0.1, 2))])
    assert nobody.buckets.local_count == 0


@pytest.mark.parametrize("wall", [0, 1])
def test_a_solid_that_goes_on_through_the_box_is_open_as_if_there_were_no_box(wall):
    """Beyond the box nothing is measured; a slanted plane, or a ball, goes on as it is."""
    found = []
    for size in (0.5, 1.5):
        domain = GridDomain(0.25, lower=(-size,) * 3, upper=(size,) * 3)
        volume = air(domain, -2, 2)
        solids = [
            narrow_band(domain, mesh, dtype=np.float64)
            for mesh in (
                half_space((1, 2, 3), -0.2),
                sphere(0.3, centre=(0.4 - 0.8 * wall, -0.47, 0.45)),
            )
        ]
        add_solids(volume, solids, smallest=0.0)
        found.append(dense(volume, "open_fraction"))
    difference = np.abs(found[0] - found[1])
    assert 0.0 < found[1].mean() < 1.0
    assert difference[:, 1:-1, 1:-1, 1:-1].max() < 0.02
    assert difference.max() < 0.05  # the ball is curved, and goes on straight
