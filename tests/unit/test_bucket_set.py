"""Bucket Set: neighbour tables against brute force, levels, look-ups."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.bucket_set import BucketSet, Slabs
from loki_core.data.grid_domain import EMPTY, FINER, BoundaryCondition, GridDomain
from loki_core.errors import LokiError
from loki_core.kernels.buckets.bucket_hash import find_buckets, pack_buckets
from loki_core.parallel.comm import SerialCommunicator

OFFSETS = [(n // 9 - 1, n // 3 % 3 - 1, n % 3 - 1) for n in range(27)]
HALF_RANGE = 1 << 17


class OneOfFour(SerialCommunicator):
    size = 4

    def all_gather(self, array):
        return [array, *[array[:0]] * 3]


def make_domain(bucket_size=1.0, counts=None, kinds=("open",) * 3, **options):
    if counts is None:
        return GridDomain(bucket_size, **options)
    conditions = [BoundaryCondition(kind) for kind in kinds for _ in range(2)]
    return GridDomain(bucket_size, lower=(0, 0, 0), upper=counts, boundaries=conditions, **options)


def brute_force(domain, buckets):
    """Allowed entries of the neighbour table, as sets, from a plain dictionary of Buckets."""
    stored = {
        (int(level), *map(int, coord)): index
        for index, (coord, level) in enumerate(zip(buckets.coords, buckets.levels, strict=True))
    }
    table = []
    for (level, *coord), _ in sorted(stored.items(), key=lambda item: item[1]):
        period = domain.period >> level
        first, last = domain.bucket_range(level)
        row = []
        for offset in OFFSETS:
            place = [c + o for c, o in zip(coord, offset, strict=True)]
            place = [c % p if p else c for c, p in zip(place, period, strict=True)]
            children = [
                (level - 1, *(2 * c + b for c, b in zip(place, bits, strict=True)))
                for bits in np.ndindex(2, 2, 2)
            ]
            outside = {-2 - 2 * a for a in range(3) if place[a] < first[a]}
            outside |= {-3 - 2 * a for a in range(3) if place[a] >= last[a]}
            if (level, *place) in stored:
                row.append({stored[level, *place]})
            elif (level + 1, *(c >> 1 for c in place)) in stored:
                row.append({stored[level + 1, *(c >> 1 for c in place)]})
            elif outside:  # beyond an edge or a corner any of the faces will do
                row.append(outside)
            elif level and any(child in stored for child in children):
                row.append({FINER})
            else:
                row.append({EMPTY})
        table.append(row)
    return table


def assert_equals_brute_force(domain, buckets):
    expected = brute_force(domain, buckets)
    for row in range(buckets.local_count):
        for direction in range(27):
            assert int(buckets.neighbours[row, direction]) in expected[row][direction], (
                buckets.coords[row],
                OFFSETS[direction],
            )


def random_buckets(rng, count, low, high):
    return np.unique(rng.integers(low, high, (count, 3)), axis=0).astype(np.int32)


@pytest.mark.parametrize("curve", ["hilbert", "morton"])
def test_open_neighbours_equal_brute_force(curve):
    domain = make_domain(curve=curve)
    buckets = BucketSet(domain, random_buckets(np.random.default_rng(1), 300, -4, 4))
    assert_equals_brute_force(domain, buckets)
    keys = domain.keys(buckets.coords)
    assert np.all(keys[1:] > keys[:-1])


@pytest.mark.parametrize("counts", [(5, 4, 3), (1, 3, 2), (2, 2, 2), (1, 1, 1), (6, 1, 4)])
@pytest.mark.parametrize("periodic", [("periodic",) * 3, ("periodic", "wall", "periodic")])
def test_periodic_neighbours_equal_brute_force(counts, periodic):
    domain = make_domain(1.0, counts, periodic)
    rng = np.random.default_rng(2)
    coords = np.argwhere(rng.random(counts) < 0.8).astype(np.int32)
    buckets = BucketSet(domain, coords)
    assert_equals_brute_force(domain, buckets)


def test_one_periodic_bucket_is_its_own_neighbour_everywhere():
    buckets = BucketSet(make_domain(1.0, (1, 1, 1), ("periodic",) * 3), np.zeros((1, 3), np.int32))
    np.testing.assert_array_equal(buckets.neighbours, np.zeros((1, 27)))


def test_of_two_periodic_buckets_each_is_on_both_sides_of_the_other():
    domain = make_domain(1.0, (2, 4, 4), ("periodic", "open", "open"))
    buckets = BucketSet(domain, np.array([[0, 1, 1], [1, 1, 1]], np.int32))
    for row in range(2):
        assert buckets.neighbours[row, 4] == buckets.neighbours[row, 22] == 1 - row


def test_each_face_of_the_box_has_its_own_code():
    domain = make_domain(1.0, (3.0, 2.5, 1.5), ("wall",) * 3)  # y and z end inside Buckets
    coords = np.argwhere(np.ones((3, 3, 2))).astype(np.int32)
    buckets = BucketSet(domain, coords)
    assert_equals_brute_force(domain, buckets)
    of = {tuple(c): n for c, n in zip(buckets.coords.tolist(), buckets.neighbours, strict=True)}
    assert (of[0, 1, 0][4], of[2, 1, 0][22]) == (-2, -3)
    assert (of[1, 0, 0][10], of[1, 2, 0][16]) == (-4, -5)
    assert (of[1, 1, 0][12], of[1, 1, 1][14]) == (-6, -7)


def test_buckets_outside_the_box_still_see_each_other():
    domain = make_domain(1.0, (2, 2, 2))
    buckets = BucketSet(domain, np.array([[1, 0, 0], [2, 0, 0]], np.int32))
    assert_equals_brute_force(domain, buckets)
    assert int(np.count_nonzero(buckets.neighbours >= 0)) == 4


def test_buckets_at_opposite_ends_of_the_key_range_do_not_touch():
    coords = np.array([[0, HALF_RANGE - 1, 0], [1, -HALF_RANGE, 0]], np.int32)
    buckets = BucketSet(make_domain(), coords)
    assert_equals_brute_force(buckets.domain, buckets)


# -- levels --------------------------------------------------------------------------------


def graded_buckets(rng):
    """A random union of level-1 and level-0 Buckets that do not overlap."""
    coarse = rng.random((4, 4, 4)) < 0.5
    fine = np.kron(~coarse, np.ones((2, 2, 2))) * (rng.random((8, 8, 8)) < 0.7)
    coords = np.concatenate((np.argwhere(coarse), np.argwhere(fine))) - 2
    coords[: coarse.sum()] += 1  # coarse coordinate c covers fine ones 2 c and 2 c + 1
    levels = np.repeat([1, 0], [int(coarse.sum()), int(fine.sum())]).astype(np.uint8)
    return coords.astype(np.int32), levels


@pytest.mark.parametrize("seed", [3, 4])
def test_neighbours_over_levels_equal_brute_force(seed):
    domain = make_domain()
    coords, levels = graded_buckets(np.random.default_rng(seed))
    buckets = BucketSet(domain, coords, levels)
    assert_equals_brute_force(domain, buckets)
    assert np.any(buckets.neighbours == FINER)
    fine = np.flatnonzero(buckets.levels == 0)
    seen = buckets.neighbours[fine]
    assert np.any(buckets.levels[seen[seen >= 0]] == 1)  # fine Buckets see coarser ones by index
    np.testing.assert_array_equal(
        buckets.all_keys, np.sort(buckets.all_keys), err_msg="curve order holds over levels"
    )


def test_levels_on_periodic_axes_equal_brute_force():
    domain = make_domain(1.0, (8, 8, 8), ("periodic",) * 3)
    coords, levels = graded_buckets(np.random.default_rng(5))
    coords = np.where(levels[:, None] == 1, coords + 1, coords + 2).astype(np.int32) % 8
    coords = np.where(levels[:, None] == 1, coords % 4, coords).astype(np.int32)
    assert_equals_brute_force(domain, BucketSet(domain, coords, levels))


def test_coarse_buckets_on_a_periodic_axis_of_odd_length_are_refused():
    # Three Buckets of level 0 cannot be covered by Buckets twice as large.
    domain = make_domain(1.0, (3, 4, 4), ("periodic",) * 3)
    with pytest.raises(LokiError, match="level"):
        BucketSet(domain, np.zeros((1, 3), np.int32), np.ones(1, np.uint8))


def test_too_coarse_levels_are_refused():
    with pytest.raises(LokiError, match="level 16 is above the maximum 15"):
        BucketSet(make_domain(), np.zeros((1, 3), np.int32), np.array([16], np.uint8))


# -- look-ups ------------------------------------------------------------------------------


def test_on_one_rank_everything_is_interior():
    coords = random_buckets(np.random.default_rng(6), 100, -3, 3)
    buckets = BucketSet(make_domain(), coords)
    assert (buckets.count, buckets.local_count, buckets.ghost_count) == (
        len(coords),
        len(coords),
        0,
    )
    np.testing.assert_array_equal(buckets.interior, buckets.local)
    assert len(buckets.border) == 0
    assert buckets.send_buckets == {} and buckets.receive_buckets == {}
    assert {tuple(c) for c in buckets.coords} == {tuple(c) for c in coords}


def test_index_in_another_set():
    domain = make_domain()
    rng = np.random.default_rng(7)
    one = BucketSet(domain, random_buckets(rng, 80, -3, 3))
    other = BucketSet(domain, random_buckets(rng, 80, -3, 3))
    places = {tuple(c): i for i, c in enumerate(other.coords.tolist())}
    expected = [places.get(tuple(c), -1) for c in one.coords.tolist()]
    np.testing.assert_array_equal(one.index_in(other), expected)
    assert -1 in expected and max(expected) > 0


def test_a_set_without_buckets_has_empty_tables():
    buckets = BucketSet(make_domain(), np.empty((0, 3), np.int32))
    assert buckets.count == 0
    assert buckets.neighbours.shape == (0, 27)
    assert len(buckets.interior) == len(buckets.keys) == 0


def test_a_bucket_of_another_rank_is_refused():
    domain = make_domain(comm=OneOfFour())
    coords = random_buckets(np.random.default_rng(8), 50, -3, 3)
    foreign = coords[domain.owners(domain.keys(coords)) != 0]
    assert len(foreign)
    with pytest.raises(LokiError, match=r"is given on rank 0, but rank [123] owns it"):
        BucketSet(domain, foreign)


def test_slabs_are_sorted_once_each_and_know_their_size():
    slabs = Slabs.ordered(
        np.array([7, 3, 7, 3]), np.array([4, 13, 4, 26], np.int32), np.array([1, 0, 1, 0], np.int32)
    )
    np.testing.assert_array_equal(slabs.buckets, [0, 0, 1])
    np.testing.assert_array_equal(slabs.directions, [13, 26, 4])
    # A whole Bucket, a corner of 2^3, a face of 2 x 8 x 8.
    np.testing.assert_array_equal(slabs.value_counts(8, 2), [512, 8, 128])


# -- one of several ranks ------------------------------------------------------------------


class OneOfSeveral(SerialCommunicator):
    """A rank of several that all know the same Buckets, in curve order."""

    def __init__(self, rank, coords, keys, cuts):
        self.rank, self.size = rank, len(cuts) - 1
        levels = np.zeros(len(keys), np.uint8)
        self.known = {"uint64": (keys, 1), "int32": (coords.reshape(-1), 3), "uint8": (levels, 1)}
        self.ends = np.searchsorted(keys, cuts[1:-1])

    def all_gather(self, array):
        values, width = self.known[array.dtype.name]
        return np.split(values, width * self.ends)


@pytest.mark.parametrize("is_periodic", [False, True])
def test_a_rank_among_others_knows_all_that_touch_it_and_only_those(is_periodic):
    rng = np.random.default_rng(8)
    counts = (8, 8, 8)
    kinds = ("periodic",) * 3 if is_periodic else ("open",) * 3
    lattice = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, 3)
    coords = lattice[rng.random(len(lattice)) < 0.5].astype(np.int32)
    keys = make_domain(counts=counts, kinds=kinds).keys(coords)
    order = np.argsort(keys)
    coords, keys = coords[order], keys[order]
    cuts = np.array([0, *keys[[40, 41, 130]], 1 << 54], np.uint64)  # one rank has one Bucket
    owners = np.searchsorted(cuts[1:-1], keys, side="right")
    for rank in range(4):
        comm = OneOfSeveral(rank, coords, keys, cuts)
        domain = make_domain(counts=counts, kinds=kinds, comm=comm)
        domain.cuts = cuts
        buckets = BucketSet(domain, coords[owners == rank])
        np.testing.assert_array_equal(buckets.all_owners, owners)
        steps = coords[:, None] - coords[owners == rank][None]
        if is_periodic:
            steps = (steps + 4) % 8 - 4
        touches = np.any(np.abs(steps).max(axis=2) <= 1, axis=1)
        expected = np.flatnonzero(touches & (owners != rank))
        np.testing.assert_array_equal(buckets.ghosts, expected)
        codes = pack_buckets(coords)
        found = find_buckets(*buckets.table, codes=codes)
        np.testing.assert_array_equal(np.flatnonzero(found >= 0), np.flatnonzero(touches))
        assert np.all(find_buckets(buckets.table_of_all, np.arange(len(buckets.table_of_all),
                      dtype=np.int32), codes=codes) >= 0)  # fmt: skip
        is_stored = buckets.stored(lattice.astype(np.int32))
        np.testing.assert_array_equal(np.sort(pack_buckets(lattice[is_stored])), np.sort(codes))


def test_nothing_is_stored_in_an_empty_set():
    buckets = BucketSet(make_domain(), np.empty((0, 3), np.int32))
    assert not buckets.stored(np.zeros((2, 3), np.int32)).any()


def test_a_coarse_bucket_is_not_one_of_level_0():
    coords, levels = np.array([[0, 0, 0], [2, 0, 0]], np.int32), np.array([1, 0], np.uint8)
    buckets = BucketSet(make_domain(), coords, levels)
    asked = np.array([[0, 0, 0], [2, 0, 0], [3, 0, 0]], np.int32)
    np.testing.assert_array_equal(buckets.stored(asked), [False, True, False])
