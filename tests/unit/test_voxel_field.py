"""Voxel Field: trilinear samples of voxel streams, cells and faces, near and far."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from loki_core.data.grid_domain import GridDomain
from loki_core.data.points import Points
from loki_core.data.voxel_field import FieldSampler, VoxelField
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError

SIZE = 0.25


def centres(count, origin):
    grid = np.stack(np.meshgrid(*[np.arange(n) + 0.5 for n in count], indexing="ij"))
    return grid * SIZE + np.asarray(origin)[:, None, None, None]


def linear(position, axis=0):
    """A function that trilinear interpolation reproduces."""
    x, y, z = position
    return 1.0 + 2.0 * x - 3.0 * y + 0.5 * z + axis


def field_of(array, origin, *, components, location="cell", **options):
    voxels = Voxels.from_dense({"value": array}, origin, SIZE, location=location, **options)
    return VoxelField(voxels, "value", components=components, label="Wind")


@pytest.mark.parametrize("origin", [(0.0, 0.0, 0.0), (-3.0, 1.25, 7.0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_linear_cell_fields_are_reproduced(origin, dtype):
    count = (12, 16, 9)
    array = linear(centres(count, origin)).astype(dtype)
    field = field_of(array, origin, components=1)
    rng = np.random.default_rng(1)
    world = np.asarray(origin) + SIZE * (0.5 + rng.random((500, 3)) * (np.array(count) - 1))
    domain = GridDomain(0.5, near=world.mean(axis=0))
    sampled = field.sample(domain.to_relative(world).astype(dtype), domain)
    tolerance = 1e-12 if dtype is np.float64 else 2e-5  # |values| < 40, positions rounded too
    np.testing.assert_allclose(sampled[:, 0], linear(world.T), rtol=0, atol=tolerance)


def test_each_component_of_a_face_field_sits_on_its_own_face():
    count, origin = (10, 10, 10), np.array([1.0, -1.0, 0.5])
    array = np.empty((3, *count))
    for axis in range(3):
        places = centres(count, origin)
        places[axis] -= 0.5 * SIZE  # the lower face along the component's axis
        array[axis] = linear(places, axis)
    field = field_of(array, origin, components=3, location="face")
    world = origin + SIZE * (1.0 + 8.0 * np.random.default_rng(2).random((300, 3)))
    domain = GridDomain(0.5)
    sampled = field.sample(domain.to_relative(world), domain)
    for axis in range(3):
        np.testing.assert_allclose(sampled[:, axis], linear(world.T, axis), rtol=0, atol=1e-12)


def test_samples_at_voxel_centres_are_the_voxels():
    count = (9, 8, 10)
    array = np.random.default_rng(3).random((3, *count))
    field = field_of(array, (0, 0, 0), components=3)
    places = centres(count, (0, 0, 0)).reshape(3, -1).T
    sampled = field.sample(places, GridDomain(1.0))
    np.testing.assert_allclose(sampled, array.reshape(3, -1).T, rtol=0, atol=1e-14)


def test_beyond_the_blocks_there_is_the_background():
    field = field_of(np.full((8, 8, 8), 5.0), (0, 0, 0), components=1, background=2.0)
    far = np.array([[100.0, 0, 0], [-1e7, 0, 0], [0, 1e30, 0], [1.0, 1.0, -50.0]])
    np.testing.assert_array_equal(field.sample(far, GridDomain(1.0))[:, 0], 2.0)
    # On the outermost face of the blocks half of the samples are background.
    edge = field.sample(np.array([[2.0, 1.0, 1.0]]), GridDomain(1.0))[0, 0]
    np.testing.assert_allclose(edge, 3.5, rtol=1e-14)


def test_scattered_blocks_equal_the_dense_field():
    rng = np.random.default_rng(4)
    dense = np.where(np.kron(rng.random((4, 4, 4)) < 0.4, np.ones((4, 4, 4))), 1.0, 0.0)
    dense *= 1.0 + rng.random(dense.shape)
    field = field_of(dense, (0, 0, 0), components=1, block_resolution=4)
    assert 0 < field.voxels.block_count < 64
    whole = Voxels.from_dense({"value": dense + 1.0}, (0, 0, 0), SIZE)  # every block is stored
    other = VoxelField(whole, "value", components=1, label="Wind")
    places = SIZE * (1.0 + 14.0 * rng.random((400, 3)))
    one, two = (f.sample(places, GridDomain(1.0)) for f in (field, other))
    np.testing.assert_allclose(one, two - 1.0, rtol=0, atol=1e-14)


def test_far_from_the_world_origin_no_digits_are_lost():
    origin = np.array([1.0e6, -1.0e6, 1.0e6])
    count = (10, 10, 10)
    array = linear(centres(count, (0, 0, 0)))
    field = field_of(array, origin, components=1)
    local = SIZE * (0.5 + 9.0 * np.random.default_rng(5).random((200, 3)))
    domain = GridDomain(0.5, near=origin)
    stored = (local + (origin - domain.origin)).astype(np.float32)
    sampled = field.sample(stored, domain)
    np.testing.assert_allclose(sampled[:, 0], linear(local.T), rtol=0, atol=3e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, bool])
def test_masks_of_whole_numbers_are_interpolated_too(dtype):
    # A mask that was painted as 0 and 1 still has values between them.
    mask = np.zeros((8, 8, 8), dtype)
    mask[4:] = 1
    field = field_of(mask, (0, 0, 0), components=1)
    x = SIZE * np.array([2.0, 3.75, 4.0, 4.3, 6.2])
    places = np.stack((x, np.full(5, 1.03), np.full(5, 0.97)), axis=1)
    expected = np.clip(x / SIZE - 3.5, 0.0, 1.0)
    np.testing.assert_allclose(field.sample(places, GridDomain(1.0))[:, 0], expected, atol=1e-6)


def test_a_stream_without_blocks_is_all_background():
    voxels = Voxels(np.empty((0, 3), np.int32), SIZE)
    voxels.set_channel("value", np.empty((0, 3, 8, 8, 8)), background=0.5)
    field = VoxelField(voxels, "value", components=3, label="Wind")
    np.testing.assert_array_equal(field.sample(np.zeros((4, 3)), GridDomain(1.0)), 0.5)


def test_no_positions_are_no_samples():
    field = field_of(np.ones((8, 8, 8)), (0, 0, 0), components=1)
    assert field.sample(np.empty((0, 3)), GridDomain(1.0)).shape == (0, 1)


def test_bad_streams_are_named():
    voxels = Voxels.from_dense({"value": np.ones((8, 8, 8))}, (0, 0, 0), SIZE)
    with pytest.raises(InputError, match="Wind needs a voxel stream, but got Points"):
        VoxelField(Points(np.zeros((1, 3))), "value", components=1, label="Wind")
    with pytest.raises(InputError, match='voxels have no channel "valu"; did you mean "value"'):
        VoxelField(voxels, "valu", components=1, label="Wind")
    with pytest.raises(InputError, match='Wind needs 3 components in channel "value", found 1'):
        VoxelField(voxels, "value", components=3, label="Wind")
    apart = Voxels(np.array([[0, 0, 0], [1 << 18, 0, 0]]), SIZE)
    apart.set_channel("value", np.zeros((2, 8, 8, 8)))
    with pytest.raises(InputError, match="Wind: voxel blocks are 262144 apart"):
        VoxelField(apart, "value", components=1, label="Wind")


def test_the_sampler_follows_an_animated_stream():
    sampler = FieldSampler("Wind")
    domain = GridDomain(1.0)
    place = np.full((1, 3), 1.0, np.float32)
    for value in (1.0, 2.0):
        stream = Voxels.from_dense({"value": np.full((8, 8, 8), value)}, (0, 0, 0), SIZE)
        scope = SimpleNamespace(inputs={"wind": stream}, domain=domain)
        for _ in range(2):
            found = sampler.sample(scope, "wind", "value", components=1, position=place)
            assert found.dtype == np.float32 and found[0, 0] == value
