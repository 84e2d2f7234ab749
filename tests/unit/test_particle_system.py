"""Particle System on one rank: order, ids, channels, removal, capacity, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.data.particle_system import SMALLEST_CAPACITY, ParticleSystem, capacity_step
from loki_core.errors import InputError, SetupError

PERIODIC = BoundaryCondition("periodic")


def make_particles(count=2000, *, dtype=np.float32, seed=1, domain=None, spread=2.0):
    rng = np.random.default_rng(seed)
    domain = GridDomain(0.25) if domain is None else domain
    particles = ParticleSystem(domain, name="Sand", dtype=dtype)
    particles.add_channel("heat", np.float32)
    particles.add_channel("tag", np.int32)
    particles.add_channel("frame", np.float64, (3, 3))
    particles.add_channel("wet", np.bool_)
    position = (spread * (rng.random((count, 3)) - 0.5)).astype(dtype)
    append(particles, position)
    particles.rebucketize()
    return particles


def append(particles, position):
    """Particles whose every channel is a function of the id."""
    first = particles.reserve_ids(len(position))
    ids = np.arange(first, first + len(position))
    particles.append({"position": position, **channels_of(ids)}, ids=ids)


def channels_of(ids):
    ids = np.asarray(ids)
    return {
        "heat": (ids * 0.5).astype(np.float32),
        "tag": (ids * 7 % 1000).astype(np.int32),
        "frame": ids[:, None, None] + np.arange(9.0).reshape(3, 3),
        "wet": ids % 3 == 0,
    }


def assert_channels_follow_ids(particles):
    ids = particles.local("id")
    assert len(np.unique(ids)) == particles.count
    for name, expected in channels_of(ids).items():
        np.testing.assert_array_equal(particles.local(name), expected, err_msg=name)


def assert_in_buckets(particles):
    """Offsets and Buckets agree with the positions, and ids ascend inside a sort cell."""
    size = particles.domain.bucket_size
    position = particles.local("position").astype(np.float64)
    assert particles.offsets[0] == 0 and particles.offsets[-1] == particles.count
    rows = np.repeat(np.arange(particles.buckets.local_count), np.diff(particles.offsets))
    np.testing.assert_array_equal(particles.buckets.coords[rows], np.floor(position / size))
    cells = np.floor(position * (8 / size)).astype(np.int64)
    same = np.all(cells[1:] == cells[:-1], axis=1)
    assert np.all(np.diff(particles.local("id"))[same] > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("curve", ["hilbert", "morton"])
def test_particles_lie_in_their_buckets_in_canonical_order(dtype, curve):
    particles = make_particles(dtype=dtype, domain=GridDomain(0.25, curve=curve))
    assert particles.count == 2000
    assert_in_buckets(particles)
    assert_channels_follow_ids(particles)


def test_the_order_does_not_depend_on_the_history():
    rng = np.random.default_rng(2)
    one = make_particles(500)
    final = (rng.random((500, 3)) - 0.5).astype(np.float32)
    for _ in range(5):  # one wanders about first, the other goes there at once
        one.local("position")[:] = rng.random((500, 3)) - 0.5
        one.rebucketize()
    one.local("position")[:] = final[one.local("id")]
    one.rebucketize()
    other = ParticleSystem(GridDomain(0.25), name="Other")
    order = rng.permutation(500)
    other.append({"position": final[order]}, ids=order)
    other.rebucketize()
    np.testing.assert_array_equal(one.local("id"), other.local("id"))
    np.testing.assert_array_equal(one.offsets, other.offsets)


def test_many_steps_of_moving_emission_and_removal_lose_nothing():
    rng = np.random.default_rng(3)
    particles = make_particles(1000)
    expected = {int(i): p for i, p in zip(*by_id(particles), strict=True)}
    for _ in range(30):
        step = (0.2 * rng.standard_normal((particles.count, 3))).astype(np.float32)
        particles.local("position")[:] += step
        for row, ident in enumerate(particles.local("id").tolist()):
            expected[ident] = particles.local("position")[row].copy()
        dead = rng.random(particles.count) < 0.1
        for ident in particles.local("id")[dead].tolist():
            del expected[ident]
        particles.remove(dead)
        new = rng.random((int(rng.integers(0, 200)), 3)).astype(np.float32)
        first = particles.next_id
        append(particles, new)  # before the dead are compacted
        expected.update({first + n: p for n, p in enumerate(new)})
        particles.rebucketize()
        assert_in_buckets(particles)
        assert_channels_follow_ids(particles)
    ids, positions = by_id(particles)
    np.testing.assert_array_equal(ids, sorted(expected))
    np.testing.assert_array_equal(positions, [expected[i] for i in sorted(expected)])


def by_id(particles):
    order = np.argsort(particles.local("id"))
    return particles.local("id")[order], particles.local("position")[order].copy()


def test_removal_masks_first_and_compacts_later():
    particles = make_particles(100)
    mask = particles.local("id") < 40
    particles.remove(mask)
    assert particles.count == 100
    assert np.count_nonzero(particles.kept()) == 60
    particles.remove(particles.local("id") >= 90)  # masks add up
    particles.rebucketize()
    np.testing.assert_array_equal(np.sort(particles.local("id")), np.arange(40, 90))
    assert particles.kept() == slice(0, 50)


def test_everything_may_be_removed_and_others_may_come():
    particles = make_particles(300)
    particles.remove(np.ones(300, bool))
    particles.rebucketize()
    assert particles.count == 0 and particles.buckets.count == 0
    append(particles, np.zeros((5, 3), np.float32))
    particles.rebucketize()
    np.testing.assert_array_equal(particles.local("id"), np.arange(300, 305))  # never reused
    assert_channels_follow_ids(particles)


def test_a_masked_particle_may_be_anywhere():
    particles = make_particles(10)
    particles.local("position")[3] = np.nan
    particles.remove(np.arange(10) == 3)
    particles.rebucketize()
    assert particles.count == 9


def test_capacity_grows_and_shrinks_by_steps():
    particles = make_particles(10)
    assert particles.capacity == SMALLEST_CAPACITY
    append(particles, np.random.default_rng(4).random((5000, 3)).astype(np.float32))
    particles.rebucketize()
    grown = particles.capacity
    assert grown == capacity_step(5010) and 5010 <= grown <= 1.25 * 5010 + 1
    particles.remove(particles.local("id") >= 3000)
    particles.rebucketize()
    assert particles.capacity == grown  # still more than half full: no thrashing
    particles.remove(particles.local("id") >= 700)
    particles.rebucketize()
    assert particles.capacity == capacity_step(700) < grown
    assert all(len(c.values) == particles.capacity for c in particles.channels.values())
    assert_channels_follow_ids(particles)


def test_memory_is_accounted_for():
    particles = make_particles(1000)
    memory = particles.memory()
    width = 8 + 12 + 4 + 4 + 72 + 1
    assert memory["channels"] == 1000 * width
    assert memory["slack"] == (particles.capacity - 1000) * width
    assert memory["ghosts"] == 0
    held = sum(c.values.nbytes for c in particles.channels.values())
    assert memory["channels"] + memory["slack"] == held


def test_a_new_channel_is_filled_with_its_default():
    particles = make_particles(20)
    particles.add_channel("charge", np.float64, (2,), default=1.5)
    np.testing.assert_array_equal(particles.local("charge"), np.full((20, 2), 1.5))
    append(particles, np.zeros((3, 3), np.float32))
    particles.rebucketize()
    np.testing.assert_array_equal(particles.local("charge"), np.full((23, 2), 1.5))
    particles.add_channel("charge", np.float64, (2,))  # the same one again does nothing
    np.testing.assert_array_equal(particles.local("charge"), np.full((23, 2), 1.5))


def test_tracked_buckets_stay_without_particles():
    particles = make_particles(50, spread=0.4)
    far = np.array([[9, 9, 9], [-9, 0, 3]], np.int32)
    particles.track(far)
    particles.rebucketize()
    coords = particles.buckets.coords.tolist()
    counts = np.diff(particles.offsets)
    for place in far.tolist():
        assert counts[coords.index(place)] == 0
    assert counts.sum() == 50
    assert_in_buckets(particles)


# -- periodic axes -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_positions_are_wrapped_along_periodic_axes_only(dtype):
    conditions = [PERIODIC] * 2 + [BoundaryCondition()] * 2 + [PERIODIC] * 2
    domain = GridDomain(0.25, lower=(0, -9, 0), upper=(1, 9, 2), boundaries=conditions)
    particles = ParticleSystem(domain, name="Gas", dtype=dtype)
    rng = np.random.default_rng(5)
    start = (8.0 * (rng.random((3000, 3)) - 0.5)).astype(dtype)
    start[:4, 0] = [1.0, -1e-30, 0.0, np.nextafter(dtype(1.0), dtype(0.0))]
    particles.append({"position": start}, ids=np.arange(3000))
    particles.rebucketize()
    order = np.argsort(particles.local("id"))
    position = particles.local("position")[order]
    expected = start.astype(np.float64)
    expected[:, 0] %= 1.0
    expected[:, 2] %= 2.0
    # A shift by whole periods; a particle on the upper side may be found on the lower one.
    period = np.array([1.0, np.inf, 2.0])
    difference = np.abs(position - expected)
    difference = np.minimum(difference, period - difference)
    assert difference.max() <= 4 * np.finfo(dtype).eps
    assert np.all((position[:, [0, 2]] >= 0.0) & (position[:, [0, 2]] < [1.0, 2.0]))
    assert np.all(particles.buckets.coords[:, 0] < 4) and np.all(
        particles.buckets.coords >= [0, -99, 0]
    )


@pytest.mark.parametrize(
    ("bucket_size", "length", "place"),
    [(0.1, 0.1 * 3, 0.3), (0.3333333333, 1.0, 1.0 - 1e-11)],
)
def test_a_particle_just_below_the_period_lies_in_the_last_bucket(bucket_size, length, place):
    # The period is whole Buckets but for round-off, which must not open one Bucket more.
    domain = GridDomain(
        bucket_size, lower=(0, 0, 0), upper=(length,) * 3, boundaries=(PERIODIC,) * 6
    )
    particles = ParticleSystem(domain, name="Gas", dtype=np.float64)
    assert place < length
    particles.append({"position": np.full((1, 3), place)}, ids=np.arange(1))
    particles.rebucketize()
    assert np.all(particles.buckets.coords < domain.period)


# -- state ---------------------------------------------------------------------------------


def test_state_and_restore_are_a_round_trip():
    particles = make_particles(400)
    particles.remove(particles.local("id") % 5 == 0)
    state = particles.state()
    assert len(state["channels"]["id"]) == 320
    fresh = ParticleSystem(GridDomain(0.25), name="Sand")
    fresh.restore(state)
    particles.rebucketize()
    for name in particles.channels:
        np.testing.assert_array_equal(fresh.local(name), particles.local(name), err_msg=name)
        assert fresh.local(name).dtype == particles.local(name).dtype
    assert fresh.next_id == particles.next_id
    np.testing.assert_array_equal(fresh.offsets, particles.offsets)


def test_a_state_does_not_share_memory():
    particles = make_particles(10)
    state = particles.state()
    before = state["channels"]["position"].copy()
    particles.local("position")[:] = 7.0
    np.testing.assert_array_equal(state["channels"]["position"], before)


# -- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.0e9])
def test_a_particle_without_a_bucket_is_named_by_its_id(bad):
    particles = make_particles(100)
    row = int(np.flatnonzero(particles.local("id") == 42)[0])
    particles.local("position")[row, 2] = bad
    with pytest.raises(
        InputError, match=r"Sand: particle id 42 at \(.*\) m .*(key range|not finite)"
    ):
        particles.rebucketize()


def test_wrong_shapes_and_names_are_refused():
    particles = make_particles(5)
    with pytest.raises(InputError, match=r'Sand: channel "position" has shape \(2, 2\)'):
        particles.append({"position": np.zeros((2, 2))}, ids=np.arange(2))
    with pytest.raises(InputError, match='Sand has no channel "heta"; did you mean "heat"'):
        particles.append({"heta": np.zeros(2)}, ids=np.arange(2))
    with pytest.raises(InputError, match='Sand has no channel "velocity"'):
        particles.local("velocity")
    with pytest.raises(SetupError, match=r'channel "heat" is float32\[\] already'):
        particles.add_channel("heat", np.float64)
    with pytest.raises(SetupError, match='channel "name" cannot be of type'):
        particles.add_channel("name", "U8")
    assert particles.count == 5


def test_more_than_one_layer_of_buckets_is_refused():
    with pytest.raises(SetupError, match=r"halo=2.*bucket_size"):
        make_particles(5).post_ghosts(["position"], halo=2)


def test_one_rank_has_no_ghosts_to_wait_for():
    particles = make_particles(5)
    particles.mark_written("heat")
    assert particles.post_ghosts(["heat"]) is None
    np.testing.assert_array_equal(particles.with_ghosts("heat"), particles.local("heat"))


def test_precision_is_chosen_before_there_are_particles():
    particles = ParticleSystem(GridDomain(1.0), name="Dust")
    particles.add_channel("heat", np.float32)
    particles.add_channel("tag", np.int64)
    particles.store_as(np.float64)
    assert particles.dtype == np.float64
    particles.append({"position": np.full((1, 3), 0.1)}, ids=np.array([0]))
    assert particles.local("position")[0, 0] == 0.1
    assert particles.local("heat").dtype == np.float64
    assert particles.local("tag").dtype == np.int64
    with pytest.raises(SetupError, match="Dust: there are particles already"):
        particles.store_as(np.float32)


def test_scratch_channels_have_no_storage_until_they_are_asked_for():
    particles = make_particles(1000)
    held = particles.memory()["channels"]
    particles.add_channel("push", np.float32, (3,), default=2.0, is_scratch=True)
    assert particles.memory()["channels"] == held
    assert "push" not in particles.state()["channels"]
    particles.local("push")[:] += 1.0
    append(particles, np.zeros((5000, 3), np.float32))  # grows
    assert particles.local("push").shape == (6000, 3)
    assert np.all(particles.local("push")[:1000] == 3.0)
    particles.rebucketize()
    particles.release_scratch()
    assert np.all(particles.local("push") == 2.0)
    particles.restore(particles.state())
    assert particles.count == 6000
