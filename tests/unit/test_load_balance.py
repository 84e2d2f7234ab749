"""Load balance: parts of nearly equal weight, in curve order, that cover everything."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.bucket_set import BucketSet
from loki_core.data.grid_domain import GridDomain
from loki_core.data.load_balance import (
    JOURNEY,
    RENEWAL,
    Prospect,
    cut_by_weight,
    foresee,
    join_runs,
    maximum_over_mean,
)
from loki_core.parallel.comm import SerialCommunicator

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


# -- runs, and what pays -------------------------------------------------------------------


def test_joined_runs_keep_all_weight_and_cut_nearly_as_well():
    weights = uneven_weights(np.random.default_rng(5), 10_000, PARTS)
    keys = np.arange(10_000, dtype=np.uint64) * np.uint64(7)
    places, joined = join_runs(keys, weights, 64 * PARTS)
    assert len(places) == len(joined) <= 64 * PARTS
    assert places[0] == 0 and np.all(np.diff(places.astype(np.int64)) > 0)
    np.testing.assert_allclose(joined.sum(), weights.sum(), rtol=1e-12)
    cuts = np.searchsorted(keys, np.append(places, keys[-1] + np.uint64(1)))
    cuts = cuts[cut_by_weight(joined, PARTS)]
    assert_covers(cuts, 10_000, PARTS)
    # A run is 1/64 of a part, so no part gains more than that.
    best = maximum_over_mean(weights, cut_by_weight(weights, PARTS))
    assert maximum_over_mean(weights, cuts) <= best + 1.0 / 64.0


@pytest.mark.parametrize("weights", [np.ones(5), np.zeros(100), np.eye(1, 100, 40)[0]])
def test_runs_of_few_or_weightless_buckets(weights):
    keys = np.arange(len(weights), dtype=np.uint64)
    places, joined = join_runs(keys, weights, 8)
    assert 1 <= len(places) <= 8 and places[0] == 0
    assert joined.sum() == weights.sum() and np.all(joined >= 0.0)


def test_a_change_pays_when_its_gain_until_the_next_exceeds_its_cost():
    prospect = Prospect(before=1.5, after=1.0, mean=1.0, moved=0.5)
    enough = (RENEWAL * 1.0 + JOURNEY * 0.5) / 0.5
    assert not prospect.pays(enough - 1) and prospect.pays(enough + 1)
    assert prospect.pays(enough - 1, is_due=True)  # Buckets change anyway: much costs nothing more
    assert prospect.imbalance_before == 1.5 and prospect.imbalance_after == 1.0


def test_no_gain_never_pays():
    assert not Prospect(before=1.0, after=1.0, mean=1.0, moved=0.0).pays(1e9)
    assert not Prospect(before=1.0, after=1.2, mean=1.0, moved=0.3).pays(1e9)
    nothing = Prospect(0.0, 0.0, 0.0, 0.0)
    assert not nothing.pays(20) and nothing.imbalance_before == nothing.imbalance_after == 1.0


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


# -- what is foreseen ----------------------------------------------------------------------


def test_a_prospect_weighs_ranks_as_they_are_and_as_they_would_be():
    one = SerialCommunicator()
    weights = np.array([1.0, 2.0, 3.0])
    here = np.zeros(3, np.int32)
    assert foresee(one, here, here, weights) == Prospect(6.0, 6.0, 6.0, 0.0)
    nothing = np.empty(0, np.int32)
    assert foresee(one, nothing, nothing, np.empty(0)) == Prospect(0.0, 0.0, 0.0, 0.0)
