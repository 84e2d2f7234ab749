"""Discrete Volumes on ranks: ghosts, accumulation, migration, each against a known function.

    volume_exchange.py

Every voxel's value is a function of its Bucket and place, so each rank knows what its ghosts must
be without asking anyone.
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.data.accessors import Access, Declaration
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.errors import SetupError
from loki_core.parallel.comm import one_fails_all_fail, world

OFFSETS = [(n // 9 - 1, n // 3 % 3 - 1, n % 3 - 1) for n in range(27)]
FACES = (4, 10, 12, 14, 16, 22)
NOT_SENT = -1.0


def value_of(volume, name, coords, levels):
    """The function that fills a channel: shape [buckets, c, r, r, r]."""
    channel = volume.channel(name)
    c, r = channel.components, channel.resolution
    mark = coords.astype(np.float64) @ [7.0, 61.0, 509.0] % 1021.0 + 3000.0 * levels + 1100.0
    inside = np.arange(c * r**3).reshape(c, r, r, r)
    values = mark[:, None, None, None, None] * 4096.0 + inside
    return values.astype(channel.dtype)


def fill(volume):
    """Right values in local Buckets, none in ghosts."""
    local, buckets = volume.buckets.local_count, volume.buckets
    for name in volume.channels:
        values = value_of(volume, name, buckets.coords[:local], buckets.levels[:local])
        volume.local(name)[:] = values
        volume.with_ghosts(name)[local:] = NOT_SENT
        volume.mark_written(name)


def assert_filled(volume):
    local, buckets = volume.buckets.local_count, volume.buckets
    for name in volume.channels:
        expected = value_of(volume, name, buckets.coords[:local], buckets.levels[:local])
        np.testing.assert_array_equal(volume.local(name), expected, err_msg=name)


def make_volume(comm, kinds=("open",) * 3, counts=(6, 5, 4), keep=0.8, levels=False):
    conditions = [BoundaryCondition(kind) for kind in kinds for _ in range(2)]
    domain = GridDomain(
        1.0, lower=(0, 0, 0), upper=counts, boundaries=conditions, comm=comm,
        near=0.5 * np.array(counts),
    )  # fmt: skip
    volume = DiscreteVolume(domain, name="Air", dtype=np.float64)
    volume.add_channel("pressure")
    volume.add_channel("velocity", components=3, location="face", resolution=4)
    volume.add_channel("tag", np.int32, resolution=2)
    rng = np.random.default_rng(5)
    first, last = domain.bucket_range()
    lattice = np.argwhere(rng.random(last - first) < keep) + first
    level = np.zeros(len(lattice), np.uint8)
    if levels:  # the lower half along x in Buckets twice as large
        coarse = np.unique(lattice[lattice[:, 0] < 0] >> 1, axis=0)
        fine = lattice[lattice[:, 0] >= 0]
        lattice = np.concatenate((coarse, fine))
        level = np.repeat([1, 0], [len(coarse), len(fine)]).astype(np.uint8)
    lattice = lattice.astype(np.int32)
    keys = domain.keys(lattice, level)
    order = np.argsort(keys, kind="stable")
    mine = keys[order] if comm.rank == 0 else keys[:0]
    domain.balance(mine, np.ones(len(mine)))
    shares = np.array_split(np.arange(len(lattice)), comm.size)[comm.rank]
    volume.set_buckets(lattice[shares], level[shares])  # any rank names any Bucket
    assert comm.total(volume.buckets.local_count) == len(lattice)
    fill(volume)
    return volume


def slab(offset, resolution, layers):
    """Voxels of a neighbour in the direction of `offset` that a halo of `layers` needs."""
    ranges = {
        0: slice(0, resolution),
        1: slice(0, layers),
        -1: slice(resolution - layers, resolution),
    }
    return tuple(ranges[o] for o in offset)


# -- checks --------------------------------------------------------------------------------


def check_slabs(volume):
    """Every needed layer of every ghost equals its owner, for all widths."""
    buckets = volume.buckets
    local = buckets.local_count
    for corners in (False, True):
        for layers in range(1, 9):
            names = [n for n, c in volume.channels.items() if c.resolution >= layers]
            fill(volume)
            pending = volume.post_ghosts(names, halo=layers, corners=corners)
            if pending is not None:
                pending.wait()
            assert volume.post_ghosts(names, halo=layers, corners=corners) is None
            for name in names:
                values, r = volume.with_ghosts(name), volume.channel(name).resolution
                expected = value_of(volume, name, buckets.coords, buckets.levels)
                needed = np.zeros(values.shape, bool)
                for row, direction in np.argwhere(buckets.neighbours >= local):
                    if not corners and direction not in FACES:
                        continue
                    ghost = buckets.neighbours[row, direction]
                    same = buckets.levels[ghost] == buckets.levels[row]
                    part = slab(OFFSETS[direction], r, layers) if same else (slice(None),) * 3
                    needed[(ghost, slice(None), *part)] = True
                np.testing.assert_array_equal(values[needed], expected[needed], err_msg=name)
                if not np.any(buckets.levels):  # with one level nothing else is sent
                    rest = ~needed
                    rest[:local] = False
                    assert np.all(values[rest] == NOT_SENT), (name, layers, corners)
            assert_filled(volume)


def check_staleness(volume):
    comm = volume.domain.comm
    fill(volume)

    def sent_by(*names, **options):
        before = comm.bytes_sent
        pending = volume.post_ghosts(names, **options)
        if pending is not None:
            pending.wait()
        return comm.total(comm.bytes_sent - before)

    one = sent_by("pressure", halo=1)
    assert (one > 0) == (comm.size > 1)
    assert sent_by("pressure", halo=1) == 0
    two = sent_by("pressure", halo=2)
    assert two == 2 * one
    assert sent_by("pressure", halo=1) == 0  # two layers hold one
    with_corners = sent_by("pressure", halo=1, corners=True)
    assert with_corners >= one
    volume.mark_written("velocity")  # another channel does not matter
    assert sent_by("pressure", halo=1, corners=True) == 0
    volume.mark_written("pressure")
    assert sent_by("pressure", halo=1) == one


def check_accumulation(volume):
    comm, buckets = volume.domain.comm, volume.buckets
    local = buckets.local_count
    fill(volume)
    access = Access(
        Declaration(accumulates=("volume.pressure", "volume.velocity"), halo=1),
        {"volume": volume},
        "t",
    )
    access.begin()
    for name in ("volume.pressure", "volume.velocity"):
        assert np.all(access[name][local:] == 0.0)
        access[name][local:] += 1.0 + comm.rank
    access.end()
    # Rank r keeps a copy of a Bucket if one of its own touches it.
    holders = np.zeros(local)
    codes = {tuple(c): n for n, c in enumerate(buckets.all_coords.tolist())}
    assert not np.any(buckets.all_levels)
    for row in range(local):
        around = buckets.coords[row] + np.array(OFFSETS, np.int32)
        around = volume.domain.wrap(around.astype(np.int32)).tolist()
        owners = {int(buckets.all_owners[codes[tuple(c)]]) for c in around if tuple(c) in codes}
        holders[row] = sum(1.0 + rank for rank in owners - {comm.rank})
    for name in ("pressure", "velocity"):
        expected = value_of(volume, name, buckets.coords[:local], buckets.levels[:local])
        expected = expected + holders[:, None, None, None, None]
        np.testing.assert_array_equal(volume.local(name), expected, err_msg=name)
    assert comm.size == 1 or holders.sum() > 0


def check_passes(volume):
    """Interior Buckets come first, and touch no ghost; all come once."""
    comm, buckets = volume.domain.comm, volume.buckets
    fill(volume)
    access = Access(
        Declaration(reads=("volume.pressure",), halo=1, overlap=True), {"volume": volume}, "t"
    )
    access.begin()
    passes = list(access.passes("volume"))
    access.end()
    visited = np.concatenate(passes)
    np.testing.assert_array_equal(np.sort(visited), np.arange(buckets.local_count))
    if comm.size > 1:
        assert len(passes) == 2
        assert np.all(buckets.neighbours[passes[0]] < buckets.local_count)
        touching = np.any(buckets.neighbours >= buckets.local_count, axis=1)
        np.testing.assert_array_equal(np.sort(passes[1]), np.flatnonzero(touching))
        np.testing.assert_array_equal(np.sort(buckets.interior), np.sort(passes[0]))
    # A Task that leaves before its last pass leaves no request behind.
    volume.mark_written("pressure")
    access = Access(
        Declaration(reads=("volume.pressure",), halo=1, overlap=True), {"volume": volume}, "t"
    )
    access.begin()
    next(iter(access.passes("volume")))
    access.end()
    check_slabs_once(volume)


def check_slabs_once(volume):
    buckets, values = volume.buckets, volume.with_ghosts("pressure")
    expected = value_of(volume, "pressure", buckets.coords, buckets.levels)
    for row, direction in np.argwhere(buckets.neighbours >= buckets.local_count):
        if direction in FACES and buckets.levels[buckets.neighbours[row, direction]] == 0:
            ghost = buckets.neighbours[row, direction]
            place = (ghost, slice(None), *slab(OFFSETS[direction], 8, 1))
            np.testing.assert_array_equal(values[place], expected[place])


def check_migration(volume):
    """Values follow their Buckets when the cuts change, and when Buckets come and go."""
    domain, comm = volume.domain, volume.domain.comm
    fill(volume)
    total = comm.total(volume.buckets.local_count)
    rng = np.random.default_rng(6 + comm.rank)
    changed = False
    for _ in range(3):
        weights = 10.0 ** rng.uniform(-2, 2, len(volume.buckets.keys))
        changed |= domain.balance(volume.buckets.keys, weights)
        volume.rebalance()
        assert comm.total(volume.buckets.local_count) == total
        assert np.all(domain.owners(volume.buckets.keys) == comm.rank)
        assert_filled(volume)
    assert changed == (comm.size > 1)
    # All to one rank: the others have nothing, and still take part.
    domain.cuts = np.array([0] + [1 << 54] * comm.size, dtype=np.uint64)
    volume.rebalance()
    assert volume.buckets.local_count == (total if comm.rank == 0 else 0)
    assert_filled(volume)
    check_staleness_of_nothing(volume)
    domain.balance(volume.buckets.keys, np.ones(volume.buckets.local_count))
    volume.rebalance()
    # The last rank names all Buckets but one, and a new one; values stay, the new one is empty.
    coords, levels = volume.buckets.all_coords, volume.buckets.all_levels
    wanted = np.concatenate((coords[1:], [[5, 5, 5]])).astype(np.int32)
    levels = np.append(levels[1:], 0).astype(np.uint8)
    named = slice(None) if comm.rank == comm.size - 1 else slice(0, 0)
    volume.set_buckets(wanted[named], levels[named])
    assert comm.total(volume.buckets.local_count) == total
    local = volume.buckets.local_count
    new = np.all(volume.buckets.coords[:local] == 5, axis=1)
    expected = value_of(
        volume, "pressure", volume.buckets.coords[:local], volume.buckets.levels[:local]
    )
    np.testing.assert_array_equal(volume.local("pressure")[~new], expected[~new])
    assert np.all(volume.local("pressure")[new] == 0.0)
    assert comm.total(int(new.sum())) == 1


def check_staleness_of_nothing(volume):
    pending = volume.post_ghosts(["pressure"], halo=2, corners=True)
    if pending is not None:
        pending.wait()
    volume.zero_ghosts("pressure")
    volume.add_ghosts_to_owners("pressure")
    assert_filled(volume)


def check_refusals(volume):
    if volume.domain.comm.size == 1:
        return
    try:
        volume.post_ghosts(["tag"], halo=3)
    except SetupError as error:
        assert 'halo=3 for "tag", which has only 2' in str(error)
    else:
        raise AssertionError("a halo wider than a Bucket was accepted")


def check_memory(volume):
    memory = volume.memory()
    width = sum(c.bytes_per_bucket for c in volume.channels.values())
    assert memory["channels"] == width * volume.buckets.local_count
    assert memory["ghosts"] == width * volume.buckets.ghost_count
    held = sum(c.values.nbytes for c in volume.channels.values())
    assert held == memory["channels"] + memory["ghosts"]  # nothing of the remote subset


def main():
    comm = world()
    with one_fails_all_fail(comm):
        for kinds, counts, keep in (
            (("open",) * 3, (6, 5, 4), 0.8),
            (("periodic", "wall", "periodic"), (4, 5, 4), 0.9),
            (("periodic",) * 3, (2, 1, 8), 1.0),
        ):
            volume = make_volume(comm, kinds, counts, keep)
            check_slabs(volume)
            check_staleness(volume)
            check_accumulation(volume)
            check_passes(volume)
            check_refusals(volume)
            check_memory(volume)
            if "periodic" not in kinds:
                check_migration(volume)
        graded = make_volume(comm, counts=(8, 4, 4), keep=1.0, levels=True)
        check_slabs(graded)
        check_migration(graded)
        if comm.rank == 0:
            print("all checks passed")


if __name__ == "__main__":
    sys.exit(main())
