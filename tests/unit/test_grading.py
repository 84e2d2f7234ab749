from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.bucket_set import BucketSet
from loki_core.data.grading import graded
from loki_core.data.grid_domain import FINER, BoundaryCondition, GridDomain
from loki_core.errors import InputError


def _fine_corner_in_coarse_space():
    """One level-0 Bucket's worth of space in a corner of 4^3 Buckets of level 3."""
    lattice = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    coarse = lattice[np.any(lattice != 1, axis=1)]
    fine = np.stack(np.meshgrid(*[np.arange(8, 16)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    coords = np.concatenate((coarse, fine)).astype(np.int32)
    levels = np.concatenate((np.full(len(coarse), 3), np.zeros(len(fine)))).astype(np.uint8)
    return coords, levels


def _cells(coords, levels):
    """Level-0 cells that the Buckets cover, as a sorted list."""
    covered = []
    for place, level in zip(coords, levels, strict=True):
        size = 1 << int(level)
        offsets = np.stack(np.meshgrid(*[np.arange(size)] * 3, indexing="ij"), axis=-1)
        covered.append(place.astype(np.int64) * size + offsets.reshape(-1, 3))
    return np.concatenate(covered)


def _level_map(coords, levels, size):
    field = np.full((size, size, size), -1)
    for place, level in zip(coords, levels, strict=True):
        first = place.astype(int) << int(level)
        last = first + (1 << int(level))
        field[first[0] : last[0], first[1] : last[1], first[2] : last[2]] = level
    return field


def test_space_is_kept_and_neighbours_differ_by_at_most_one_level():
    coords, levels = _fine_corner_in_coarse_space()
    new_coords, new_levels = graded(coords, levels)
    before, after = _cells(coords, levels), _cells(new_coords, new_levels)
    assert len(after) == len(before)
    np.testing.assert_array_equal(np.unique(after, axis=0), np.unique(before, axis=0))
    field = _level_map(new_coords, new_levels, 32)
    for offset in np.ndindex(3, 3, 3):
        shift = np.array(offset) - 1
        inner = field[1:-1, 1:-1, 1:-1]
        moved = np.roll(field, -shift, axis=(0, 1, 2))[1:-1, 1:-1, 1:-1]
        assert np.max(np.abs(inner - moved)) <= 1
    assert set(np.unique(new_levels)) == {0, 1, 2, 3}


def test_a_periodic_axis_is_graded_across_its_seam():
    # Along x: four level-0 places, then level 2 twice; the last one touches the first by the seam.
    fine = np.stack(np.meshgrid(np.arange(4), np.arange(4), np.arange(4), indexing="ij"), axis=-1)
    coords = np.concatenate((fine.reshape(-1, 3), [[1, 0, 0], [2, 0, 0], [3, 0, 0]]))
    levels = np.concatenate((np.zeros(64), [2, 2, 2])).astype(np.uint8)
    open_ends = graded(coords.astype(np.int32), levels)
    closed = graded(coords.astype(np.int32), levels, period=np.array([16, 0, 0], np.int32))
    assert np.count_nonzero(open_ends[1] == 2) == 2
    assert np.count_nonzero(closed[1] == 2) == 1


def test_graded_buckets_see_each_other_in_the_neighbour_table():
    coords, levels = graded(*_fine_corner_in_coarse_space())
    domain = GridDomain(1.0, boundaries=[BoundaryCondition("wall")] * 6)
    buckets = BucketSet(domain, coords, levels)
    table = buckets.neighbours
    for row in range(buckets.local_count):
        entries = table[row][table[row] >= 0]
        difference = buckets.levels[entries].astype(int) - int(buckets.levels[row])
        assert set(difference) <= {0, 1}  # the same level, or one coarser; finer is a code
    assert np.any(table == FINER)


def test_overlapping_buckets_are_refused():
    coords = np.array([[0, 0, 0], [1, 1, 1]], np.int32)
    with pytest.raises(InputError, match=r"Bucket \(1, 1, 1\) of level 0 lies inside"):
        graded(coords, np.array([1, 0], np.uint8))
