"""Sorting particles into Buckets, and moving their channels."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.kernels import jit
from loki_core.kernels.basics import space_filling_curve
from loki_core.kernels.basics.reorder import reorder_channel
from loki_core.kernels.buckets import bucket_hash
from loki_core.kernels.buckets.particle_sort import (
    PositionRangeError,
    bucket_codes_of,
    cell_coords_of,
    sort_particles,
)


def expected_order(position, ids, bucket_size, curve, mask=None):
    """Places and cell keys in canonical order, by plain numpy."""
    keep = np.arange(len(position)) if mask is None else np.flatnonzero(mask)
    cells = np.floor(position[keep].astype(np.float64) * (8.0 / bucket_size)).astype(np.int32)
    keys = space_filling_curve.cell_keys(cells, curve)
    order = np.lexsort((ids[keep], keys))
    return keep[order], keys[order]


def check(position, ids, bucket_size, curve, mask=None):
    result = sort_particles(position, ids, bucket_size, curve=curve, mask=mask)
    order, cell_keys = expected_order(position, ids, bucket_size, curve, mask)
    np.testing.assert_array_equal(result.permutation, order)
    keys, counts = np.unique(cell_keys >> np.uint64(9), return_counts=True)
    np.testing.assert_array_equal(result.keys, keys)
    np.testing.assert_array_equal(np.diff(result.offsets), counts)
    assert result.offsets[0] == 0 and result.offsets[-1] == len(order)
    np.testing.assert_array_equal(bucket_hash.pack_buckets(result.coords), result.codes)
    expected_keys, states = space_filling_curve.bucket_keys(result.coords, curve)
    np.testing.assert_array_equal(result.keys, expected_keys)
    np.testing.assert_array_equal(result.states, states)
    return result


def particles(count, seed=0, dtype=np.float32, spread=3.0):
    rng = np.random.default_rng(seed)
    position = (rng.normal(size=(count, 3)) * spread).astype(dtype)
    return position, rng.permutation(count).astype(np.int64)


@pytest.mark.parametrize("curve", ["morton", "hilbert"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bucket_size", [0.05, 1.0, 30.0])
def test_order_is_bucket_then_cell_then_id(curve, dtype, bucket_size):
    position, ids = particles(40_000, dtype=dtype)
    result = check(position, ids, bucket_size, curve)
    assert not result.is_identity


@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_few_particles(count):
    check(*particles(count), 1.0, "hilbert")


def test_masked_particles_get_no_place():
    position, ids = particles(50_000, seed=1)
    mask = np.random.default_rng(2).random(50_000) < 0.3
    position[~mask] = np.nan  # nobody looks at what is dropped
    check(position, ids, 0.7, "hilbert", mask)
    nothing = sort_particles(position, ids, 0.7, curve="hilbert", mask=np.zeros(50_000, bool))
    assert len(nothing.codes) == len(nothing.permutation) == 0
    np.testing.assert_array_equal(nothing.offsets, [0])


def test_sorted_particles_stay_where_they_are():
    position, ids = particles(60_000, seed=3)
    first = sort_particles(position, ids, 0.5, curve="hilbert")
    again = sort_particles(
        position[first.permutation], ids[first.permutation], 0.5, curve="hilbert"
    )
    assert again.is_identity
    np.testing.assert_array_equal(again.permutation, np.arange(60_000))
    np.testing.assert_array_equal(again.offsets, first.offsets)
    swapped = first.permutation.copy()
    swapped[[500, 501]] = swapped[[501, 500]]
    one_off = sort_particles(position[swapped], ids[swapped], 0.5, curve="hilbert")
    assert not one_off.is_identity


def test_particles_of_one_cell_are_ordered_by_id():
    ids = np.random.default_rng(4).permutation(40_000).astype(np.int64)
    position = np.full((40_000, 3), -0.25, np.float32)
    check(position, ids, 1.0, "morton")  # one run: the long way
    position[1::2] = 7.0
    check(position, ids[::-1].copy(), 1.0, "morton")


def test_borders_belong_to_the_upper_cell_and_far_coordinates_are_kept_apart():
    position = np.array([[0, 0, 0], [-1e-9, 0, 0], [1, 1, 1], [131071.9, -131072.0, 0]], np.float64)
    result = check(position, np.arange(4), 1.0, "hilbert")
    assert sorted(map(tuple, result.coords.tolist())) == [
        (-1, 0, 0), (0, 0, 0), (1, 1, 1), (131071, -131072, 0),
    ]  # fmt: skip


def test_many_buckets_make_the_block_tables_grow():
    position, ids = particles(60_000, seed=5, spread=400.0)
    result = check(position, ids, 1.0, "hilbert")
    assert len(result.codes) > 55_000


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, 131072.0, -131072.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_bad_position_is_named(bad, dtype):
    position, ids = particles(40_000, dtype=dtype)
    position[[31_000, 777, 39_999], [2, 1, 0]] = bad
    for call in (
        lambda: sort_particles(position, ids, 1.0, curve="hilbert"),
        lambda: bucket_codes_of(position, 1.0),
        lambda: cell_coords_of(position, 1.0),
    ):
        with pytest.raises(PositionRangeError, match="particle 777") as caught:
            call()
        assert caught.value.index == 777


def test_one_and_two_threads_agree_bit_for_bit():
    position, ids = particles(150_000, seed=6)
    threads = jit.thread_count()
    try:
        results = []
        for count in (1, 2):
            jit.set_thread_count(count)
            results.append(sort_particles(position, ids, 0.3, curve="hilbert"))
    finally:
        jit.set_thread_count(threads)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


def test_codes_and_cells_of_positions():
    position, _ = particles(2000, seed=7)
    cells = np.floor(position.astype(np.float64) * 16.0).astype(np.int32)
    np.testing.assert_array_equal(cell_coords_of(position, 0.5), cells)
    np.testing.assert_array_equal(
        bucket_codes_of(position, 0.5), bucket_hash.pack_buckets(cells >> 3)
    )


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        (np.float32, ()), (np.float32, (3,)), (np.float64, (3,)), (np.int64, ()), (np.uint8, (3,)),
        (np.bool_, ()), (np.float32, (3, 3)), (np.int16, (2,)), (np.float32, (0,)),
    ],
)  # fmt: skip
def test_channels_of_any_type_follow_the_permutation(dtype, shape):
    rng = np.random.default_rng(8)
    channel = rng.integers(0, 100, (1000, *shape)).astype(dtype)
    permutation = rng.permutation(1000)[:900].astype(np.uint32)
    target = np.empty((900, *shape), dtype)
    reorder_channel(channel, permutation, target)
    np.testing.assert_array_equal(target, channel[permutation])


def test_a_target_of_another_shape_is_refused():
    permutation = np.zeros(2, np.uint32)
    with pytest.raises(ValueError, match="cannot move"):
        reorder_channel(np.zeros((2, 3), np.float32), permutation, np.zeros((2, 2), np.float32))
    with pytest.raises(ValueError, match="2 rows"):
        reorder_channel(np.zeros(2), permutation, np.zeros(3))
