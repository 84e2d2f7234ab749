"""Discrete Volume on one rank: channels, Buckets that come and go, state, accounts."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.errors import InputError, SetupError


def make_volume(coords=None, levels=None):
    volume = DiscreteVolume(GridDomain(0.8), name="Smoke")
    volume.add_channel("density", background=0.25)
    volume.add_channel("velocity", components=3, location="face", resolution=4)
    volume.add_channel("tag", np.int32, resolution=2)
    if coords is not None:
        volume.set_buckets(np.array(coords, np.int32), levels)
        fill(volume)
    return volume


def fill(volume):
    """Every value a function of channel, Bucket and voxel."""
    local = volume.buckets.local_count
    coords = volume.buckets.coords[:local].astype(np.float64)
    mark = coords @ [1.0, 100.0, 10_000.0] + 1e6 * volume.buckets.levels[:local]
    for name in volume.channels:
        values = volume.local(name)
        inside = np.arange(np.prod(values.shape[1:])).reshape(values.shape[1:])
        values[:] = mark[:, None, None, None, None] + inside


def values_by_bucket(volume, name):
    return {
        (int(level), *coord): values
        for level, coord, values in zip(
            volume.buckets.levels, volume.buckets.coords.tolist(), volume.local(name), strict=True
        )
    }


def test_channels_have_their_own_resolution_type_and_location():
    volume = make_volume([[0, 0, 0], [5, 0, -3]])
    assert volume.local("density").shape == (2, 1, 8, 8, 8)
    assert volume.local("velocity").shape == (2, 3, 4, 4, 4)
    assert volume.local("tag").shape == (2, 1, 2, 2, 2)
    assert volume.local("tag").dtype == np.int32 and volume.local("density").dtype == np.float32
    assert volume.channel("velocity").location == "face"
    np.testing.assert_allclose(
        [volume.voxel_size(name) for name in ("density", "velocity", "tag")], [0.1, 0.2, 0.4]
    )
    assert volume.local("density").flags.c_contiguous


def test_buckets_that_stay_keep_their_values():
    old = [[0, 0, 0], [1, 0, 0], [2, 0, 0], [-5, 3, 1]]
    volume = make_volume(old)
    before = {name: values_by_bucket(volume, name) for name in volume.channels}
    version = volume.layout_version
    new = [[-5, 3, 1], [7, 7, 7], [1, 0, 0], [1, 1, 0]]
    volume.set_buckets(np.array(new, np.int32))
    assert volume.layout_version != version
    for name, channel in volume.channels.items():
        after = values_by_bucket(volume, name)
        assert set(after) == {(0, *c) for c in new}
        for place, values in after.items():
            expected = before[name].get(place, np.full_like(values, channel.background[0]))
            np.testing.assert_array_equal(values, expected, err_msg=f"{name} {place}")


def test_repeated_buckets_are_one():
    volume = make_volume([[1, 2, 3], [1, 2, 3], [0, 0, 0]])
    assert volume.buckets.local_count == 2


def test_buckets_of_two_levels_at_one_place_on_the_curve_are_two():
    volume = make_volume([[0, 0, 0], [2, 0, 0]], np.array([1, 0], np.uint8))
    before = values_by_bucket(volume, "density")
    volume.set_buckets(np.array([[2, 0, 0], [0, 0, 0]], np.int32), np.array([0, 1], np.uint8))
    after = values_by_bucket(volume, "density")
    assert set(after) == {(1, 0, 0, 0), (0, 2, 0, 0)}
    for place in after:
        np.testing.assert_array_equal(after[place], before[place])
    # The level tells Buckets of the same coordinates apart: a finer one starts afresh.
    volume.set_buckets(np.array([[0, 0, 0]], np.int32), np.array([0], np.uint8))
    np.testing.assert_array_equal(volume.local("density"), 0.25)


def test_a_volume_may_lose_all_buckets():
    volume = make_volume([[0, 0, 0]])
    volume.set_buckets(np.empty((0, 3), np.int32))
    assert volume.local("velocity").shape == (0, 3, 4, 4, 4)
    volume.set_buckets(np.zeros((1, 3), np.int32))
    np.testing.assert_array_equal(volume.local("density"), 0.25)


def test_a_channel_added_late_has_its_background_everywhere():
    volume = make_volume([[0, 0, 0], [1, 1, 1]])
    volume.add_channel("temperature", np.float64, background=293.0)
    np.testing.assert_array_equal(volume.local("temperature"), np.full((2, 1, 8, 8, 8), 293.0))


def test_rebalancing_alone_changes_nothing_on_one_rank():
    volume = make_volume([[0, 0, 0], [1, 0, 0], [9, 9, 9]])
    before = volume.local("density").copy()
    volume.rebalance()
    np.testing.assert_array_equal(volume.local("density"), before)


def test_state_and_restore_are_a_round_trip():
    volume = make_volume([[0, 0, 0], [1, 0, 0], [-4, 2, 2]], np.array([0, 0, 1], np.uint8))
    fresh = make_volume()
    fresh.restore(volume.state())
    np.testing.assert_array_equal(fresh.buckets.coords, volume.buckets.coords)
    np.testing.assert_array_equal(fresh.buckets.levels, volume.buckets.levels)
    for name in volume.channels:
        np.testing.assert_array_equal(fresh.local(name), volume.local(name), err_msg=name)


def test_a_state_of_another_shape_is_refused_by_channel():
    state = make_volume([[0, 0, 0]]).state()
    state["channels"]["velocity"] = np.zeros((1, 3, 8, 8, 8), np.float32)
    with pytest.raises(InputError, match=r'Smoke: channel "velocity" of the state has shape'):
        make_volume().restore(state)


def test_a_state_without_a_channel_is_refused_by_channel():
    state = make_volume([[0, 0, 0]]).state()
    del state["channels"]["tag"]
    with pytest.raises(InputError, match=r'Smoke.*"tag"'):
        make_volume().restore(state)


def test_memory_is_accounted_for():
    side = np.arange(10)
    coords = np.stack(np.meshgrid(side, side, side, indexing="ij"), -1).reshape(-1, 3)
    volume = DiscreteVolume(GridDomain(0.8), name="Smoke")
    for name, components in (("velocity", 3), ("density", 1), ("heat", 1)):
        volume.add_channel(name, components=components)
    volume.set_buckets(coords.astype(np.int32))
    memory = volume.memory()
    assert memory["channels"] == 1000 * 5 * 512 * 4
    assert memory["channels"] == sum(c.values.nbytes for c in volume.channels.values())
    assert memory["ghosts"] == 0
    # Tables beside velocity and two scalars of 8^3: at most 5 %.
    assert memory["tables"] <= 0.05 * memory["channels"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resolution": 6}, "has 6 voxels per Bucket edge; allowed: 1, 2, 4, 8, 16, 32"),
        ({"location": "face"}, "with 1 components cannot be located"),
        ({"location": "edge"}, 'cannot be located at "edge"'),
        ({"dtype": "complex64"}, "cannot be of type complex64"),
        ({"name": "density"}, 'has a channel "density" already'),
    ],
)
def test_impossible_channels_are_refused_by_name(options, words):
    options = {"name": "new", **options}
    with pytest.raises(SetupError, match=words):
        make_volume().add_channel(**options)


def test_an_unknown_channel_is_named():
    with pytest.raises(InputError, match='Smoke has no channel "densty"; did you mean "density"'):
        make_volume().local("densty")
