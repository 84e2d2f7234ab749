"""Accessors on one rank: only what was declared, and a watch on what was not."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.accessors import Access, Declaration, MultiAccessor, split_name
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import AccessError, InputError


@pytest.fixture
def data():
    domain = GridDomain(0.25)
    particles = ParticleSystem(domain, name="Drops", dtype=np.float64)
    particles.add_channel("velocity", np.float64, (3,))
    particles.add_channel("wet", np.bool_)
    position = np.random.default_rng(1).random((300, 3))
    particles.append({"position": position}, ids=np.arange(300))
    particles.rebucketize()
    volume = DiscreteVolume(domain, name="Air", dtype=np.float64)
    volume.add_channel("pressure")
    volume.set_buckets(particles.buckets.coords)
    return {"particles": particles, "volume": volume}


def access_to(data, **declared):
    return Access(Declaration(**declared), data, "Rain/Drops.move")


def test_declared_channels_are_the_storage_itself(data):
    access = access_to(data, reads=("particles.position",), writes=("particles.velocity",))
    assert np.shares_memory(access["particles.position"], data["particles"].local("position"))
    access["particles.velocity"][:] = 3.0
    assert np.all(data["particles"].local("velocity") == 3.0)


def test_an_undeclared_channel_is_refused_by_name(data):
    access = access_to(data, reads=("particles.position",))
    for name in ("particles.velocity", "volume.pressure", "particles.nothing"):
        with pytest.raises(
            AccessError, match=f'"{name}" is used in "Rain/Drops.move" but was never'
        ):
            access[name]


def test_a_declared_channel_that_does_not_exist_is_named(data):
    with pytest.raises(InputError, match='Drops has no channel "velocty"; did you mean "velocity"'):
        access_to(data, reads=("particles.velocty",))["particles.velocty"]
    with pytest.raises(AccessError, match='has no data "cloth"'):
        access_to(data, reads=("cloth.position",))["cloth.position"]
    with pytest.raises(AccessError, match='"position" does not name a channel'):
        split_name("position")


@pytest.mark.parametrize("name", ["particles.velocity", "particles.wet", "volume.pressure"])
def test_an_undeclared_write_is_caught_when_access_is_checked(data, monkeypatch, name):
    monkeypatch.setenv("LOKI_CHECK_ACCESS", "1")
    access = access_to(data, reads=(name,), writes=("particles.position",))
    access.begin()
    access["particles.position"][:] += 1.0
    access[name].reshape(-1)[7] = 1
    with pytest.raises(AccessError, match=f'"{name}" was changed in "Rain/Drops.move"'):
        access.end()


def test_declared_changes_pass_the_check(data, monkeypatch):
    monkeypatch.setenv("LOKI_CHECK_ACCESS", "1")
    access = access_to(
        data, writes=("particles.position",), accumulates=("volume.pressure",), halo=1
    )
    access.begin()
    access["particles.position"][:] += 1.0
    access["volume.pressure"][:] += 1.0
    access.end()
    layout = access_to(data, layout=("particles",))
    layout.begin()
    data["particles"].rebucketize()
    layout.end()


def test_the_check_also_works_without_elements(monkeypatch):
    monkeypatch.setenv("LOKI_CHECK_ACCESS", "1")
    empty = ParticleSystem(GridDomain(1.0), name="Nothing")
    access = Access(Declaration(reads=("particles.position",)), {"particles": empty}, "test")
    access.begin()
    access.end()


def test_without_the_check_nothing_is_watched(data, monkeypatch):
    monkeypatch.delenv("LOKI_CHECK_ACCESS", raising=False)
    access = access_to(data, reads=("particles.velocity",))
    access.begin()
    access["particles.velocity"][:] = 1.0
    access.end()


def test_passes_cover_every_bucket_once(data):
    access = access_to(data, reads=("volume.pressure",), halo=1, overlap=True)
    access.begin()
    visited = np.concatenate(list(access.passes("volume")))
    np.testing.assert_array_equal(np.sort(visited), np.arange(data["volume"].buckets.local_count))


def test_gather_by_id_through_an_accessor(data):
    access = access_to(data, reads=("particles.position",))
    ids = np.array([250, 3, 250])
    plan = access.plan("particles", ids)
    gathered = plan.gather(access["particles.position"])
    rows = [int(np.flatnonzero(data["particles"].local("id") == i)[0]) for i in ids]
    np.testing.assert_array_equal(gathered, data["particles"].local("position")[rows])
    with pytest.raises(AccessError, match='"volume" has no ids to gather by'):
        access.plan("volume", ids)
    with pytest.raises(InputError, match="Drops: particle id 300 does not exist"):
        access.plan("particles", np.array([300]))


def test_a_plan_follows_the_layout(data):
    access = access_to(data, reads=("particles.position",))
    access.plan("particles", np.array([1]))
    data["particles"].local("position")[:] = np.random.default_rng(2).random((300, 3))
    data["particles"].rebucketize()
    plan = access.plan("particles", np.arange(300))
    np.testing.assert_array_equal(plan.gather(data["particles"].local("id")), np.arange(300))


def test_only_declared_channels_can_be_refreshed(data):
    access = access_to(data, reads=("volume.pressure",), halo=1)
    access.refresh("volume.pressure")
    with pytest.raises(AccessError, match=r'"particles.velocity"'):
        access.refresh("particles.velocity")


def test_multi_accessor_pairs_buckets_of_particles_and_volume(data):
    particles, volume = data["particles"], data["volume"]
    both = MultiAccessor(particles, volume)
    assert both.particle_buckets.shape == (volume.buckets.local_count, 27)
    for row in range(volume.buckets.local_count):
        centre = both.particle_buckets[row, 13]
        np.testing.assert_array_equal(particles.buckets.coords[centre], volume.buckets.coords[row])


def test_multi_accessor_refuses_buckets_that_the_particles_do_not_track(data):
    volume = data["volume"]
    volume.set_buckets(np.concatenate((volume.buckets.coords, [[50, 50, 50]])).astype(np.int32))
    with pytest.raises(AccessError, match="Drops does not track all Buckets of Air"):
        MultiAccessor(data["particles"], volume)
