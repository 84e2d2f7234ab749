"""Space filling curves and the Bucket hash table."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import InputError
from loki_core.kernels.basics import space_filling_curve
from loki_core.kernels.basics.hilbert_tables import cell_order, curve_tables
from loki_core.kernels.buckets import bucket_hash

CURVES = ("morton", "hilbert")


def random_cells(seed: int, count: int = 500) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**20), 2**20, (count, 3)).astype(np.int32)


@pytest.mark.parametrize("curve", CURVES)
def test_cells_survive_the_round_trip(curve):
    cells = random_cells(1)
    cells[:2] = [[-(2**20)] * 3, [2**20 - 1] * 3]
    keys = space_filling_curve.cell_keys(cells, curve)
    assert keys.max() < 2**63
    np.testing.assert_array_equal(space_filling_curve.cell_coords(keys, curve), cells)
    buckets = cells >> 3
    keys, _ = space_filling_curve.bucket_keys(buckets, curve)
    np.testing.assert_array_equal(space_filling_curve.bucket_coords(keys, curve), buckets)


@pytest.mark.parametrize("curve", CURVES)
def test_a_bucket_key_is_the_prefix_of_its_cells_keys(curve):
    cells = random_cells(2)
    cell_keys = space_filling_curve.cell_keys(cells, curve)
    bucket_keys, states = space_filling_curve.bucket_keys(cells >> 3, curve)
    np.testing.assert_array_equal(bucket_keys, cell_keys >> np.uint64(9))
    inside = (cells & 7) @ np.array([64, 8, 1])
    along_curve = cell_order(curve)[states, inside]
    np.testing.assert_array_equal(along_curve, cell_keys & np.uint64(511))


@pytest.mark.parametrize("curve", CURVES)
def test_a_coarse_bucket_key_is_the_prefix_of_the_fine_ones(curve):
    fine = random_cells(3) >> 3
    keys, _ = space_filling_curve.bucket_keys(fine, curve)
    for level in (1, 4):
        siblings = (fine >> level << level) + 2**level - 1
        sibling_keys, _ = space_filling_curve.bucket_keys(siblings, curve)
        shift = np.uint64(3 * level)
        np.testing.assert_array_equal(keys >> shift, sibling_keys >> shift)


def test_consecutive_hilbert_cells_share_a_face():
    for first in (0, 2**61 - 1500, 123_456_789_012_345):
        keys = np.arange(first, first + 5000, dtype=np.uint64)
        cells = space_filling_curve.cell_coords(keys, "hilbert")
        steps = np.abs(np.diff(cells, axis=0)).sum(axis=1)
        np.testing.assert_array_equal(steps, 1)


def test_morton_keys_interleave_bits():
    offset = 2**20
    cells = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 1, 3]], np.int32) - offset
    keys = space_filling_curve.cell_keys(cells, "morton")
    np.testing.assert_array_equal(keys, [4, 2, 1, 0b101011])


def test_the_hilbert_automaton_is_closed():
    tables = curve_tables("hilbert")
    states = len(tables.digits)
    assert states == 12 and tables.children.max() == states - 1
    np.testing.assert_array_equal(np.sort(tables.digits, axis=1), [list(range(8))] * states)
    rows = np.sort(cell_order("hilbert"), axis=1)
    np.testing.assert_array_equal(rows, [list(range(512))] * states)


def test_coordinates_outside_the_key_range_are_refused():
    with pytest.raises(InputError, match=r"Bucket \(0, 131072, 0\) at row 1"):
        space_filling_curve.bucket_keys(np.array([[0, 0, 0], [0, 2**17, 0]]), "hilbert")
    with pytest.raises(ValueError, match="peano"):
        space_filling_curve.cell_keys(np.zeros((1, 3), np.int32), "peano")


def test_codes_survive_the_round_trip():
    buckets = random_cells(4) >> 3
    codes = bucket_hash.pack_buckets(buckets)
    np.testing.assert_array_equal(bucket_hash.unpack_buckets(codes), buckets)
    packed = [bucket_hash.pack_bucket(*map(int, bucket)) for bucket in buckets[:20]]
    np.testing.assert_array_equal(codes[:20], packed)


@pytest.mark.parametrize("count", [0, 1, 4097])
def test_the_table_finds_what_is_there_and_only_that(count):
    buckets = np.unique(random_cells(5, count + 50) >> 3, axis=0)
    codes = bucket_hash.pack_buckets(buckets)
    keys, values = bucket_hash.build_table(codes[:count])
    found = bucket_hash.find_buckets(keys, values, codes=codes)
    np.testing.assert_array_equal(found[:count], np.arange(count))
    np.testing.assert_array_equal(found[count:], -1)
    assert len(keys) & len(keys) - 1 == 0 and len(keys) >= 2 * count


def test_a_dense_block_of_buckets_probes_few_places():
    block = np.stack(np.meshgrid(*[np.arange(-10, 10)] * 3), axis=-1).reshape(-1, 3)
    codes = bucket_hash.pack_buckets(block)
    keys, values = bucket_hash.build_table(codes)
    place = np.empty(len(codes), np.int64)
    place[values[keys != bucket_hash.EMPTY]] = np.flatnonzero(keys != bucket_hash.EMPTY)
    mask = np.uint64(len(keys) - 1)
    first = np.array([int(bucket_hash.first_slot(code, mask)) for code in codes])
    assert np.mean((place - first) % len(keys)) < 1.0
