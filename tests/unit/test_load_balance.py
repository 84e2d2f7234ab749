"""Load balance: parts of nearly equal weight, in curve order, that cover everything."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.bucket_set import BucketSet
from loki_core.data.grid_domain import GridDomain
from loki_core.data.load_balance import cut_by_weight, maximum_over_mean

PARTS = 16


def assert_covers(cuts, count, parts):
    assert len(cuts) == parts + 1
    assert cuts[0] == 0 and cuts[-1] == count
    assert np.all(np.diff(cuts) >= 0)


def uneven_weights(rng, count, parts):
    """Weights over two decades, none heavier than 2 % of a part's mean."""
    weights = 10.0 ** rng.uniform(-2.0, 0.0, count)
    weights *= np.repeat(rng.uniform(0.2, 1.0, count // 100), 100)  # heavy and light regions
    while weights.max() > 0.02 * weights.sum() / parts:
        weights = np.minimum(weights, 0.0199 * weights.sum() / parts)
    return weights


@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_uneven_buckets_over_sixteen_parts(seed):
    weights = uneven_weights(np.random.default_rng(seed), 10_000, PARTS)
    assert weights.max() / weights.min() > 10.0
    cuts = cut_by_weight(weights, PARTS)
    assert_covers(cuts, 10_000, PARTS)
    assert maximum_over_mean(weights, cuts) <= 1.05


def test_the_heaviest_part_is_the_lightest_possible():
    # Exhaustive search over all cuts of small cases.
    rng = np.random.default_rng(11)
    for _ in range(30):
        weights = rng.integers(0, 9, 8).astype(np.float64)
        cuts = cut_by_weight(weights, 3)
        assert_covers(cuts, 8, 3)
        ends = np.concatenate(([0.0], np.cumsum(weights)))
        best = min(
            max(ends[a], ends[b] - ends[a], ends[8] - ends[b])
            for a in range(9)
            for b in range(a, 9)
        )
        np.testing.assert_allclose(np.diff(ends[cuts]).max(), best, rtol=1e-9)


def test_zero_weights_are_cut_by_number():
    cuts = cut_by_weight(np.zeros(12), 4)
    np.testing.assert_array_equal(cuts, [0, 3, 6, 9, 12])


def test_zero_weights_at_the_ends_belong_to_someone():
    weights = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    cuts = cut_by_weight(weights, 2)
    assert_covers(cuts, 9, 2)
    assert maximum_over_mean(weights, cuts) == 1.0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_more_parts_than_buckets_leave_parts_empty(count):
    weights = np.arange(1.0, count + 1.0)
    cuts = cut_by_weight(weights, 8)
    assert_covers(cuts, count, 8)
    loads = np.diff(np.concatenate(([0.0], np.cumsum(weights)))[cuts])
    assert loads.max() == weights.max(initial=0.0)  # nothing is added to the heaviest Bucket


def test_one_heavy_bucket_has_a_part_for_itself():
    weights = np.ones(100)
    weights[50] = 1000.0
    cuts = cut_by_weight(weights, 4)
    assert_covers(cuts, 100, 4)
    ends = np.concatenate(([0.0], np.cumsum(weights)))
    assert np.diff(ends[cuts]).max() <= 1000.0 + 1e-6


# -- Hilbert against Morton ----------------------------------------------------------------


def random_blob(seed):
    """Buckets of a union of balls, about three thousand."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.arange(28)] * 3, indexing="ij"), -1).reshape(-1, 3)
    inside = np.zeros(len(grid), bool)
    for _ in range(6):
        centre, radius = rng.uniform(4, 24, 3), rng.uniform(3, 8)
        inside |= ((grid - centre) ** 2).sum(axis=1) < radius**2
    weights = 1.0 + 9.0 * rng.random(len(grid))
    return grid[inside].astype(np.int32) - 14, weights[inside]


def ghost_count(coords, weights, curve):
    """Copies of other parts' Buckets that all parts together keep."""
    domain = GridDomain(1.0, curve=curve)
    buckets = BucketSet(domain, coords)
    cuts = cut_by_weight(weights[np.argsort(domain.keys(coords))], PARTS)
    owner = np.repeat(np.arange(PARTS), np.diff(cuts))
    rows, directions = np.nonzero(buckets.neighbours >= 0)
    others = buckets.neighbours[rows, directions]
    foreign = owner[rows] != owner[others]
    return len(np.unique(owner[rows][foreign] * len(coords) + others[foreign]))


def test_hilbert_keeps_no_more_ghosts_than_morton():
    ghosts = np.array(
        [
            [ghost_count(*random_blob(seed), curve) for curve in ("hilbert", "morton")]
            for seed in range(20)
        ]
    )
    assert ghosts.min() > 0
    hilbert, morton = ghosts.mean(axis=0)
    assert hilbert <= morton, (hilbert, morton)
