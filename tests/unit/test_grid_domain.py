"""Grid Domain: the lattice, the box, precision far away, and who owns what."""

from __future__ import annotations

import re

import numpy as np
import pytest

from loki_core.data.grid_domain import (
    BOUNDARY_KINDS,
    FACES,
    BoundaryCondition,
    GridDomain,
    neighbour_code,
)
from loki_core.data.points import Points
from loki_core.errors import InputError, SetupError
from loki_core.objects.particles.particles import ParticleObject
from loki_core.parallel.comm import SerialCommunicator
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup

OPEN = BoundaryCondition("open")
PERIODIC = BoundaryCondition("periodic")


class OneOfFour(SerialCommunicator):
    """Rank 0 of four, the others without data."""

    size = 4

    def all_gather(self, array):
        return [array, *[array[:0]] * 3]


def periodic_domain(bucket_size, lower=(0, 0, 0), upper=(1, 1, 1), axes="xyz", **options):
    conditions = [PERIODIC if axis in axes else OPEN for axis in "xyz" for _ in range(2)]
    return GridDomain(bucket_size, lower=lower, upper=upper, boundaries=conditions, **options)


# -- place and precision -------------------------------------------------------------------


def test_origin_is_the_lattice_point_nearest_to_the_data():
    domain = GridDomain(0.5, near=(10.3, -7.9, 0.2))
    np.testing.assert_array_equal(domain.origin, [10.5, -8.0, 0.0])


def test_the_lattice_of_a_periodic_axis_starts_at_the_box():
    domain = periodic_domain(0.5, (0.2, 0, 0), (1.7, 2, 2), axes="x", near=(9.0, 9.1, 0.0))
    np.testing.assert_allclose(domain.origin, [0.2, 9.0, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(domain.period, [3, 0, 0])


def test_single_precision_keeps_a_micrometre_a_thousand_kilometres_away():
    rng = np.random.default_rng(1)
    world = np.array([1.0e6, -1.0e6, 3.0e5]) + rng.random((2000, 3)) * 8.0
    domain = GridDomain(0.7, near=world.mean(axis=0))
    stored = domain.to_relative(world).astype(np.float32)
    # |relative| < 8 m has a float32 spacing of 4.8e-7 m, half of which is lost at most.
    assert np.abs(domain.to_world(stored) - world).max() < 0.5e-6
    assert np.abs(world.astype(np.float32) - world).max() > 1e-2  # what would be lost otherwise


def test_a_far_scene_keeps_its_precision_through_the_solver():
    rng = np.random.default_rng(2)
    world = np.array([1.0e6, 2.0e6, -1.0e6]) + rng.random((500, 3)) * 8.0
    solver = Solver(SolverSetup("far", ParticleObject(input="p")), {"p": Points(world)})
    solver.run(2)  # nothing acts, so nothing moves
    assert solver.objects["ParticleObject"].particles.dtype == np.float32
    assert np.abs(solver.read("ParticleObject", "position") - world).max() < 1e-6


def test_a_far_scene_in_a_large_open_box_keeps_its_precision():
    # The box may be large; the origin belongs near the data, not into the middle of the box.
    rng = np.random.default_rng(3)
    world = np.array([1.0e6, 0.0, 0.0]) + rng.random((500, 3)) * 8.0
    setup = SolverSetup(
        "far",
        ParticleObject(input="p"),
        bucket_size=10.0,
        domain_lower=(-2.0e6, -2.0e6, -2.0e6),
        domain_upper=(2.0e6, 2.0e6, 2.0e6),
    )
    solver = Solver(setup, {"p": Points(world)})
    assert np.abs(solver.read("ParticleObject", "position") - world).max() < 1e-6


# -- the box -------------------------------------------------------------------------------


def test_a_periodic_axis_must_be_whole_buckets_and_the_error_names_the_nearest_sizes():
    with pytest.raises(SetupError) as raised:
        periodic_domain(0.3, axes="y")
    text = str(raised.value)
    assert "axis y" in text and "0.3 m" in text
    sizes = [float(size) for size in re.findall(r"([\d.]+) m", text.partition("sizes:")[2])]
    np.testing.assert_allclose(sizes, [1 / 4, 1 / 3, 1 / 2], rtol=1e-8)
    for size in (1 / 4, 1 / 3, 1 / 2):
        assert periodic_domain(size, axes="y").period[1] == round(1 / size)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_periods_that_are_whole_but_for_round_off_are_accepted(count):
    domain = periodic_domain(0.1, upper=(0.1 * count,) * 3)
    np.testing.assert_array_equal(domain.period, [count] * 3)
    first, last = domain.bucket_range()
    np.testing.assert_array_equal(first, [0, 0, 0])
    np.testing.assert_array_equal(last, [count] * 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucket_size": 0.0}, "bucket_size = 0.0 m"),
        ({"bucket_size": float("nan")}, "bucket_size = nan m"),
        ({"bucket_size": -1.0}, "bucket_size = -1.0 m"),
        ({"bucket_size": 1.0, "curve": "peano"}, '"peano"'),
        ({"bucket_size": 1.0, "boundaries": [OPEN] * 5}, "5 given"),
        (
            {
                "bucket_size": 1.0,
                "boundaries": [OPEN] * 3 + [BoundaryCondition("sticky")] + [OPEN] * 2,
            },
            'y upper is "sticky"',
        ),
        ({"bucket_size": 1.0, "lower": (0, 2, 0), "upper": (1, 1, 1)}, "empty along y"),
        ({"bucket_size": 1.0, "boundaries": [PERIODIC] + [OPEN] * 5}, "axis x is periodic on one"),
        ({"bucket_size": 1.0, "boundaries": [OPEN] * 4 + [PERIODIC] * 2}, "axis z is periodic but"),
    ],
)
def test_impossible_domains_are_refused_by_name(options, words):
    with pytest.raises(SetupError, match=re.escape(words)):
        GridDomain(**options)


def test_a_box_may_end_inside_a_bucket():
    domain = GridDomain(0.25, lower=(-0.3, -0.25, 0.0), upper=(1.1, 1.0, 0.01))
    # The lattice starts at the box, and the origin is the point of it nearest to the data.
    np.testing.assert_allclose(domain.origin, [-0.05, 0.0, 0.0], atol=1e-15)
    first, last = domain.bucket_range()
    np.testing.assert_array_equal(first, [-1, -1, 0])
    np.testing.assert_array_equal(last, [5, 4, 1])
    first, last = domain.bucket_range(level=1)
    np.testing.assert_array_equal(first, [-1, -1, 0])
    np.testing.assert_array_equal(last, [3, 2, 1])


def test_an_unbounded_box_reaches_as_far_as_the_keys():
    first, last = GridDomain(1.0).bucket_range()
    np.testing.assert_array_equal(first, [-(1 << 17)] * 3)
    np.testing.assert_array_equal(last, [1 << 17] * 3)


def test_face_codes_are_negative_and_distinct():
    codes = [neighbour_code(face) for face in range(len(FACES))]
    assert codes == [-2, -3, -4, -5, -6, -7]
    assert set(BOUNDARY_KINDS) == {"open", "wall", "inflow", "periodic"}


# -- Buckets of positions ------------------------------------------------------------------


def test_bucket_coordinates_wrap_along_periodic_axes_only():
    domain = periodic_domain(0.25, axes="xz")
    relative = np.array([[1.1, 1.1, 1.1], [-0.1, -0.1, -0.1], [0.3, 0.3, 0.3]])
    found = domain.bucket_coordinates(relative - np.where(domain.periodic, 0.0, domain.origin))
    expected = np.floor((relative - np.where(domain.periodic, 0.0, domain.origin)) / 0.25)
    expected[:, 0] %= 4
    expected[:, 2] %= 4
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0e5, -2.0e5])
def test_positions_without_a_bucket_are_named(bad):
    domain = GridDomain(1.0)
    positions = np.zeros((5, 3))
    positions[3, 1] = bad
    with pytest.raises(InputError, match=r"seed\[3\] = .*bucket_size \(1 m\)"):
        domain.bucket_coordinates(positions, label="seed")


# -- keys and owners -----------------------------------------------------------------------


@pytest.mark.parametrize("curve", ["hilbert", "morton"])
def test_keys_are_unique_and_a_coarse_bucket_spans_the_keys_of_its_children(curve):
    domain = GridDomain(1.0, curve=curve)
    side = np.arange(-4, 4)
    lattice = np.stack(np.meshgrid(side, side, side, indexing="ij"), -1).reshape(-1, 3)
    lattice = lattice.astype(np.int32)
    keys = domain.keys(lattice)
    assert len(np.unique(keys)) == 512
    for level in (1, 2):
        coarse = lattice >> level
        parents = domain.keys(coarse, np.full(512, level, np.uint8))
        assert np.all(keys >= parents)
        assert np.all(keys - parents < 8**level)


def test_hilbert_keys_step_from_neighbour_to_neighbour():
    domain = GridDomain(1.0, curve="hilbert")
    side = np.arange(8)
    lattice = np.stack(np.meshgrid(side, side, side, indexing="ij"), -1).reshape(-1, 3)
    lattice = lattice.astype(np.int32)
    path = lattice[np.argsort(domain.keys(lattice))]
    np.testing.assert_array_equal(np.abs(np.diff(path, axis=0)).sum(axis=1), 1)


def test_owners_follow_the_cuts():
    domain = GridDomain(1.0, comm=OneOfFour())
    domain.cuts = np.array([0, 10, 10, 50, 1 << 54], dtype=np.uint64)  # rank 1 owns nothing
    keys = np.array([0, 9, 10, 49, 50, (1 << 54) - 1], dtype=np.uint64)
    np.testing.assert_array_equal(domain.owners(keys), [0, 0, 2, 2, 3, 3])


def test_balance_cuts_by_weight_and_says_whether_anything_changed():
    domain = GridDomain(1.0, comm=OneOfFour())
    side = np.arange(8)
    lattice = np.stack(np.meshgrid(side, side, side, indexing="ij"), -1).reshape(-1, 3)
    keys = np.sort(domain.keys(lattice.astype(np.int32)))
    weights = np.linspace(1.0, 3.0, 512)
    assert domain.balance(keys, weights)
    assert not domain.balance(keys, weights)
    loads = np.bincount(domain.owners(keys), weights, minlength=4)
    assert loads.max() <= weights.sum() / 4 + weights.max()
    assert domain.cuts[0] == 0 and domain.cuts[-1] == 1 << 54
    # Every possible key has an owner, not only those that are stored.
    assert set(domain.owners(np.array([0, (1 << 54) - 1], np.uint64))) == {0, 3}


class OneOfTwins(SerialCommunicator):
    """Rank 0 of two that have the same to say."""

    size = 2

    def all_gather(self, array):
        return [array, array]


def test_a_bucket_that_two_ranks_weigh_is_cut_once():
    domain = GridDomain(1.0, comm=OneOfTwins())
    keys = np.array([10, 20, 30, 40], np.uint64)
    assert domain.balance(keys, np.ones(4))
    np.testing.assert_array_equal(domain.cuts, [0, 30, 1 << 54])
    np.testing.assert_array_equal(domain.owners(keys), [0, 0, 1, 1])


@pytest.mark.parametrize("curve", ["hilbert", "morton"])
def test_places_of_bodies_refine_those_of_their_buckets(curve):
    places = np.random.default_rng(4).uniform(-3.0, 3.0, (200, 3))
    domain = GridDomain(0.5, curve=curve)
    homes = domain.home_keys(places, label="places")
    buckets = domain.keys(domain.bucket_coordinates(places))
    np.testing.assert_array_equal(homes >> np.uint64(9), buckets)
    assert len(np.unique(homes)) > len(np.unique(buckets)) / 2
    same = GridDomain(0.5, curve=curve, comm=OneOfFour())
    np.testing.assert_array_equal(same.body_owners(homes), same.owners(buckets))  # at the start


def test_places_of_bodies_are_the_same_beyond_a_periodic_side():
    domain = periodic_domain(0.25)
    inside = np.random.default_rng(5).random((50, 3)) * 0.9
    beyond = domain.home_keys(inside + np.array([1.0, -1.0, 2.0]), label="places")
    np.testing.assert_array_equal(beyond, domain.home_keys(inside, label="places"))


def test_balance_without_buckets_keeps_the_cuts():
    domain = GridDomain(1.0, comm=OneOfFour())
    before = domain.cuts.copy()
    assert not domain.balance(np.empty(0, np.uint64), np.empty(0))
    np.testing.assert_array_equal(domain.cuts, before)
