"""Particles that wander, appear and vanish, checked in every step.

    wandering_particles.py TARGET COUNT STEPS [VARIANT ...]

Every particle's move, birth and death is a function of its id and the step, so that runs on any
number of ranks do the same. TARGET gets all channels, ordered by id, of each variant.
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.data.accessors import Access, Declaration
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.data.particle_directory import ParticleDirectory
from loki_core.data.particle_system import ParticleSystem, capacity_step
from loki_core.errors import InputError
from loki_core.parallel.comm import one_fails_all_fail, world

OFFSETS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
VARIANTS = ("open", "periodic", "vanish", "lonely")


class Wanderers:
    """One variant of the scene on this rank."""

    def __init__(self, comm, variant, count, steps):
        self.comm, self.variant, self.count, self.steps = comm, variant, count, steps
        length = max(2, round((count / 20) ** (1 / 3)))  # about 20 particles in a Bucket
        self.bucket_size = 1.0 / length
        kind = "periodic" if variant == "periodic" else "open"
        kinds = (kind, "open", kind)
        self.domain = GridDomain(
            self.bucket_size,
            lower=(0.0, -50.0, 0.0) if variant == "periodic" else None,
            upper=(1.0, 50.0, 1.0) if variant == "periodic" else None,
            boundaries=[BoundaryCondition(k) for k in kinds for _ in range(2)],
            comm=comm,
        )
        self.particles = ParticleSystem(self.domain, name="Wanderers")
        for name, dtype, shape in (
            ("heat", np.float32, ()),
            ("tag", np.int64, ()),
            ("frame", np.float64, (3, 3)),
            ("wet", np.bool_, ()),
            ("path", np.float32, ()),
        ):
            self.particles.add_channel(name, dtype, shape)
        self.alive = np.ones(0, bool)  # by id, the same on all ranks

    def run(self):
        self.emit(self.count, 0)
        self.particles.rebucketize()
        self.balance()
        self.check()
        for step in range(1, self.steps + 1):
            self.move(step)
            self.remove(step)
            self.emit(self.count // 40, step)
            self.particles.rebucketize()
            if step % 4 == 0:
                self.balance()
            self.check()

    def random(self, step, purpose, shape):
        rng = np.random.default_rng([17, step, purpose])
        return rng.random((self.particles.next_id, *shape), dtype=np.float32)

    def move(self, step):
        ids = self.particles.local("id")
        # Up to three quarters of a Bucket a step: many change Buckets and ranks.
        moves = (self.random(step, 1, (3,))[ids] - 0.5) * np.float32(1.5 * self.bucket_size)
        self.particles.local("position")[:] += moves
        self.particles.local("path")[:] += np.abs(moves).max(axis=1)

    def remove(self, step):
        dies = self.random(step, 2, ()) < 0.02
        if self.variant == "vanish" and step == self.steps // 2:
            dies[:] = True
        self.particles.remove(dies[self.particles.local("id")])
        self.alive[dies] = False

    def emit(self, count, step):
        comm, particles = self.comm, self.particles
        first = particles.reserve_ids(count)
        rng = np.random.default_rng([18, step])
        box = 0.9 * self.bucket_size if self.variant == "lonely" else 1.0
        position = rng.random((count, 3), dtype=np.float32) * np.float32(box)
        mine = slice(count * comm.rank // comm.size, count * (comm.rank + 1) // comm.size)
        ids = np.arange(first, first + count)[mine]
        values = {"position": position[mine], **channels_of(ids)}
        particles.append(values, ids=ids)
        self.alive = np.append(self.alive, np.ones(count, bool))

    def balance(self):
        counts = np.diff(self.particles.offsets)[: self.particles.buckets.local_count]
        self.domain.balance(self.particles.buckets.keys, counts + 1.0)
        self.particles.rebucketize()

    # -- what must hold in every step ------------------------------------------------------

    def check(self):
        particles, comm = self.particles, self.comm
        ids = np.concatenate(comm.all_gather(particles.local("id").copy()))
        # Nothing lost, nothing doubled: the ids of all ranks are those that live.
        np.testing.assert_array_equal(np.sort(ids), np.flatnonzero(self.alive))
        for name, expected in channels_of(particles.local("id")).items():
            np.testing.assert_array_equal(particles.local(name), expected, err_msg=name)
        self.check_buckets()
        self.check_ghosts()

    def check_buckets(self):
        particles, domain = self.particles, self.domain
        buckets = particles.buckets
        local = buckets.local_count
        rows = np.repeat(np.arange(local), np.diff(particles.offsets[: local + 1]))
        lattice = domain.bucket_coordinates(particles.local("position"))
        np.testing.assert_array_equal(buckets.coords[rows], lattice)
        assert np.all(domain.owners(domain.keys(lattice)) == self.comm.rank)
        # The neighbouring subset is every foreign Bucket around a local one, and no other.
        around = (buckets.coords[:local, None] + OFFSETS).reshape(-1, 3).astype(np.int32)
        around = {tuple(c) for c in domain.wrap(around).tolist()}
        foreign = buckets.all_coords[buckets.all_owners != self.comm.rank].tolist()
        expected = {tuple(c) for c in foreign} & around
        found = [tuple(c) for c in buckets.coords[local:].tolist()]
        assert len(found) == len(set(found)) == buckets.ghost_count
        assert set(found) == expected

    def check_ghosts(self):
        particles, comm = self.particles, self.comm
        names = list(particles.channels)
        pending = particles.post_ghosts(names)
        assert (pending is None) == (comm.size == 1)
        if pending is not None:
            pending.wait()
        assert particles.post_ghosts(names) is None  # current now
        buckets, first = particles.buckets, particles.count
        counts = np.concatenate(comm.all_gather(np.diff(particles.offsets)[: buckets.local_count]))
        ghost_counts = np.diff(particles.offsets)[buckets.local_count :]
        np.testing.assert_array_equal(ghost_counts, counts[buckets.ghosts])
        assert particles.ghost_count == ghost_counts.sum()
        # Nothing of the remote subset: room for local particles and ghosts, and one step of slack.
        held = particles.count + particles.ghost_count
        largest = capacity_step(max(2 * particles.count, held, 1))
        assert held <= particles.capacity <= largest, (held, particles.capacity, largest)
        ghost_ids = particles.with_ghosts("id")[first:].copy()
        plan = ParticleDirectory(particles).plan(ghost_ids)
        for name in names:
            owned = plan.gather(particles.local(name))
            ghosts = particles.with_ghosts(name)[first:]
            assert owned.tobytes() == np.ascontiguousarray(ghosts).tobytes(), name

    # -- exchanges through Accessors ---------------------------------------------------------

    def check_accessors(self):
        self.check_staleness()
        self.check_accumulation()
        self.check_gather()

    def access(self, **declared):
        return Access(Declaration(**declared), {"particles": self.particles}, "test")

    def check_staleness(self):
        comm, particles = self.comm, self.particles
        declared = {"reads": ("particles.heat", "particles.tag"), "halo": 1}
        for name in particles.channels:
            particles.mark_written(name)

        def sent_by(**declaration):
            before = comm.bytes_sent
            access = self.access(**declaration)
            access.begin()
            access.end()
            return comm.total(comm.bytes_sent - before)

        both = sent_by(**declared)
        assert (both > 0) == (comm.size > 1)
        assert sent_by(**declared) == 0  # nothing changed, nothing is sent
        sent_by(writes=("particles.heat",))
        one = sent_by(**declared)
        assert one * 3 == both  # 4 of 12 bytes a ghost: the tags were still current
        assert sent_by(reads=("particles.heat",)) == 0  # no halo, no exchange

    def check_accumulation(self):
        comm, particles = self.comm, self.particles
        particles.add_channel("sum", np.float64)
        particles.local("sum")[:] = particles.local("id")
        access = self.access(reads=("particles.id",), accumulates=("particles.sum",), halo=1)
        access.begin()
        assert np.all(access["particles.sum"][particles.count :] == 0.0)
        access["particles.sum"][:] += 1.0 + comm.rank
        access.end()
        # Each rank that keeps a copy adds 1 + rank, as the owner does.
        copies = np.concatenate(comm.all_gather(particles.with_ghosts("id").copy()))
        sizes = [len(part) for part in comm.all_gather(particles.with_ghosts("id").copy())]
        added = np.repeat(np.arange(1.0, comm.size + 1.0), sizes)
        totals = np.bincount(copies, added, minlength=particles.next_id)
        ids = particles.local("id")
        np.testing.assert_array_equal(particles.local("sum"), ids + totals[ids])
        assert comm.size == 1 or not particles.channel("sum").ghosts_current

    def check_gather(self):
        comm, particles = self.comm, self.particles
        everyone = np.sort(np.concatenate(comm.all_gather(particles.local("id").copy())))
        rng = np.random.default_rng(100 + comm.rank)
        wanted = rng.choice(everyone, 500)  # anywhere, with repeats, another list on each rank
        access = self.access(reads=("particles.tag",))
        plan = access.plan("particles", wanted)
        np.testing.assert_array_equal(plan.gather(access["particles.tag"]), wanted * 7 % 1001)
        target = np.zeros((particles.count, 2))
        plan.scatter_add(np.stack((np.ones(500), wanted), axis=1), target)
        asked = np.bincount(np.concatenate(comm.all_gather(wanted)), minlength=particles.next_id)[
            particles.local("id")
        ]
        np.testing.assert_array_equal(target[:, 0], asked)
        np.testing.assert_array_equal(target[:, 1], asked * particles.local("id"))
        missing = np.array([particles.next_id + 5] if comm.rank == comm.size - 1 else [], np.int64)
        try:
            access.plan("particles", missing)
        except InputError as error:
            assert f"particle id {particles.next_id + 5} does not exist" in str(error)
        else:
            raise AssertionError("an unknown id was found")


def channels_of(ids):
    return {
        "heat": (ids * 0.5).astype(np.float32),
        "tag": ids * 7 % 1001,
        "frame": ids[:, None, None] + np.arange(9.0).reshape(3, 3),
        "wet": ids % 3 == 0,
    }


def whole(comm, particles):
    """All particles of all ranks, ordered by id."""
    ids = np.concatenate(comm.all_gather(particles.local("id").copy()))
    order = np.argsort(ids)
    found = {}
    for name, channel in particles.channels.items():
        flat = np.concatenate(comm.all_gather(particles.local(name).reshape(-1).copy()))
        found[name] = flat.reshape(-1, *channel.shape)[order]
    return found


def main(target, count, steps, variants):
    comm = world()
    with one_fails_all_fail(comm):
        saved = {}
        for variant in variants:
            small = variant in ("vanish", "lonely")
            scene = Wanderers(comm, variant, min(count, 2000) if small else count, steps)
            scene.run()
            counts = comm.all_gather(np.array([scene.particles.count]))
            saved[f"{variant}.counts"] = np.concatenate(counts)
            if variant == "open":
                scene.check_accessors()
            for name, values in whole(comm, scene.particles).items():
                if name != "sum":
                    saved[f"{variant}.{name}"] = values
        if comm.rank == 0:
            np.savez(target, **saved)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] or VARIANTS)
