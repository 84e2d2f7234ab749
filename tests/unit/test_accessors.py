"""Accessors on one rank: only what was declared, and a watch on what was not."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.accessors import Access, Declaration, MultiAccessor, split_name
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.data.task_notes import Seen, TaskNotes
from loki_core.errors import AccessError, InputError
from loki_core.objects.solids.solid_unknowns import SolidUnknowns
from loki_core.parallel.comm import SERIAL
from loki_core.parallel.observed import ObservedCommunicator


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


ORIGIN = np.zeros((1, 3), np.int32)

# -- what Tasks really do ----------------------------------------------------------------------


def noted(data, comm=SERIAL, **declared):
    """Notes of a Task, and what they saw."""
    seen = Seen()
    return TaskNotes(Declaration(**declared), data, "Rain/Drops.move", seen).taken(comm), seen


@pytest.mark.parametrize("name", ["particles.velocity", "particles.wet", "volume.pressure"])
def test_an_undeclared_change_is_named(data, name):
    notes, _ = noted(data, reads=(name,), writes=("particles.position",))
    access = access_to(data, reads=(name,), writes=("particles.position",))
    with (
        pytest.raises(
            AccessError, match=f'"{name}" was changed in "Rain/Drops.move".*writes or accumulates'
        ),
        notes,
    ):
        access["particles.position"][:] += 1.0
        access[name].reshape(-1)[7] = 1


@pytest.mark.parametrize(
    ("touch", "message"),
    [
        (lambda d: d["particles"].local("velocity"), '"particles.velocity" is used in'),
        (lambda d: d["particles"].with_ghosts("wet"), '"particles.wet" is used in'),
        (lambda d: d["volume"].local("pressure"), '"volume.pressure" is used in'),
        (lambda d: d["volume"].mark_written("pressure"), '"volume.pressure" was changed in'),
        (lambda d: d["particles"].rebucketize(), 'the layout of "particles" is changed in'),
        (
            lambda d: d["particles"].remove(np.zeros(300, bool)),
            'the layout of "particles" is changed in',
        ),
        (
            lambda d: d["volume"].set_buckets(np.zeros((1, 3), np.int32)),
            'the layout of "volume" is changed in',
        ),
        (lambda d: d["solids"].local("force"), '"solids.force" is used in'),
        (lambda d: d["solids"].replace("change", np.zeros(3)), '"solids.change" was changed in'),
    ],
)
def test_data_note_what_is_touched_behind_the_access(data, touch, message):
    data["solids"] = SolidUnknowns("Solids")
    notes, _ = noted(data, reads=("particles.position",))
    told = f'{message} "Rain/Drops.move".*; add it to the Task'
    with pytest.raises(AccessError, match=told), notes:
        touch(data)
    touch(data)  # nobody takes notes any more


def test_data_that_the_owner_does_not_name_are_refused(data):
    volume = data.pop("volume")
    notes, _ = noted(data, reads=("particles.position",))
    told = r'Air is used in "Rain/Drops.move".*`task_data`'
    with pytest.raises(AccessError, match=told), notes:
        volume.local("pressure")


def test_a_task_may_do_what_it_likes_with_what_it_makes(data):
    notes, seen = noted(data, reads=("volume.pressure",))
    with notes:
        own = ParticleSystem(GridDomain(0.25), name="Own", dtype=np.float64)
        own.append({"position": np.zeros((2, 3))}, ids=np.arange(2))
        own.rebucketize()
        with data["volume"].scratch("lent") as lent:
            data["volume"].local(lent.name)[:] = 1.0
    assert seen.runs == 1 and seen.touched == set()


def test_declared_changes_pass_the_check(data):
    declared = {"writes": ("particles.position",), "accumulates": ("volume.pressure",), "halo": 1}
    notes, seen = noted(data, **declared)
    access = access_to(data, **declared)
    access.begin()
    with notes:
        access["particles.position"][:] += 1.0
        access["volume.pressure"][:] += 1.0
    access.end()
    assert seen.changed == seen.touched == {"particles.position", "volume.pressure"}
    notes, seen = noted(data, layout=("particles",))
    with notes:
        data["particles"].rebucketize()
    assert seen.moved == {"particles"}


def test_speaking_to_other_ranks_has_to_be_declared(data):
    comm = ObservedCommunicator(SERIAL)
    notes, _ = noted(data, comm)
    with pytest.raises(AccessError, match=r'"Rain/Drops.move" speaks to other ranks'), notes:
        comm.any(False)
    for allowed in ({"communicates": True}, {"halo": 1}, {"layout": ("particles",)}):
        notes, seen = noted(data, comm, **allowed)
        with notes:
            comm.any(False)
        assert seen.spoke


def test_what_is_declared_in_vain_is_told(data):
    declared = Declaration(
        reads=("particles.id", "particles.wet"),
        writes=("particles.velocity",),
        layout=("volume",),
        communicates=True,
    )
    seen = Seen()
    with TaskNotes(declared, data, "Rain/Drops.move", seen).taken(SERIAL):
        data["particles"].local("id")
        data["particles"].local("velocity")
    assert seen.idle(declared) == {
        "touches particles.wet",
        "changes particles.velocity",
        "moves volume",
        "communicates",
    }


def test_the_check_also_works_without_elements():
    empty = ParticleSystem(GridDomain(1.0), name="Nothing")
    notes, seen = noted({"particles": empty}, reads=("particles.position",))
    with notes:
        empty.local("position")
    assert seen.touched == {"particles.position"}


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
