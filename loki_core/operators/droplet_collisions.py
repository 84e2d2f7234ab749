"""Binary Droplet Collisions: ballistic droplets that coalesce, separate or bounce where they meet.

Droplets are the particles of a Particle Object. In a substep each moves along a straight line from
where it was to where it is, x(t) = x - (dt - t) v. Two that touch on their ways collide then, and
what comes out of it goes on from there for the rest of the substep, free to collide again. What it
is depends on the Weber number, the offset of the paths and the ratio of the sizes
(`kernels/droplet_collisions.py`: Ashgriz and Poo 1990, Jones and Southern 2017).

A substep is done in rounds. In each, the pairs that are each other's first contact collide; those
that have changed, and satellites that were born, then look for contacts anew, until there are none
left. Ids decide between contacts of the same time, so the outcome depends on the droplets alone:
not on threads, ranks or the order in which they are stored.

Mass and momentum are kept to round-off, and kinetic and surface energy together never grow.
Angular momentum is not kept, since droplets do not spin: coalescence takes all that the two had
around each other, separation a part. `DropletCollisionsAction.account` says how much.

On ranks, and across periodic borders, droplets that may meet those of another rank are known there
as ghosts, however far they travel; the owner of the larger of two drops resolves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import DivergenceError, LokiError
from loki_core.kernels.droplet_collisions import (
    BOUNCE,
    COALESCENCE,
    REFLEXION,
    SETTINGS,
    STRETCHING,
    resolve_contacts,
)
from loki_core.kernels.droplet_search import (
    LANES,
    NO_CONTACTS,
    NUMBERS,
    RADIUS,
    VX,
    Contacts,
    ContactSearch,
    TooManyContacts,
    Tree,
    build_tree,
    choose_contacts,
    fill_boxes_of,
    keep_unchanged,
    load_droplets,
    mark_rows_in,
    refit_tree,
)
from loki_core.kernels.particle_sort import PositionRangeError, sort_particles
from loki_core.objects.particles import Particles
from loki_core.operators.operator import Operator
from loki_core.parallel.comm import Communicator
from loki_core.parallel.reduce import exact_sums
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

OUTCOMES = {
    COALESCENCE: "coalescences",
    REFLEXION: "reflexions",
    STRETCHING: "stretchings",
    BOUNCE: "bounces",
}
CROWDED = 1024  # particles in a Bucket above which they are sorted anew: two in a sort cell
COARSE_BOXES = 512  # that a rank tells others of where its droplets go
NO_SHIFT = 13  # of the 27 ways to shift an image by a period
STATE = NUMBERS + 1  # numbers of a droplet that travel between ranks, with its luggage
NONE: Int64 = np.empty(0, np.int64)


class BinaryDropletCollisions(Behavior, kind="operator", exclusive=True):
    """Let droplets that meet coalesce, separate with satellites, or bounce."""

    surface_tension: float = parameter(
        0.0728, unit="N/m", minimum=1.0e-6, doc="Surface tension of the liquid; of water in air."
    )
    bounce: bool = parameter(
        False, doc="Let slow droplets bounce on the gas between them (Estrade 1999)."
    )
    restitution: float = parameter(
        1.0, minimum=0.0, maximum=1.0, doc="Speed apart after a bounce over that towards before."
    )
    max_satellites: int = parameter(
        8, minimum=0, maximum=64, doc="Most droplets that the ligament of a separation leaves."
    )
    minimum_radius: float = parameter(
        1.0e-5, unit="m", minimum=1.0e-9, doc="Radius below which no satellite is made."
    )
    max_rounds: int = parameter(
        1000, minimum=1, maximum=100_000, doc="Most collisions of one droplet in a substep."
    )


class DropletCollisionsAction(Operator, behavior=BinaryDropletCollisions):
    """Collides the droplets of one Particle Object.

    Attributes:
        account: What has happened so far, over all ranks: how many "coalescences", "reflexions",
            "stretchings", "bounces" and "satellites"; the kinetic and surface "energy" that was
            dissipated [J]; the "angular_momentum" that was lost [kg m^2/s], three numbers.
    """

    cost = 0.3  # of a droplet

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        target.particles.store_as(np.float64)  # mass and momentum of droplets are exact
        self.account: dict[str, Any] = {
            **dict.fromkeys((*OUTCOMES.values(), "satellites"), 0),
            "energy": 0.0,
            "angular_momentum": np.zeros(3),
        }
        self._rows = _Rows()
        self._ghosts: _Ghosts | None = None
        self._search = ContactSearch()
        self._mixing: dict[str, int] = {}  # channels of the user that mix, and how wide they are

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Droplets are the particles of a Particle Object."""
        return isinstance(item, Particles)

    def state(self) -> dict[str, Any]:
        return dict(self.account)

    def restore(self, state: dict[str, Any]) -> None:
        self.account |= state
        lost = np.asarray(self.account["angular_momentum"], np.float64)
        self.account["angular_momentum"] = lost

    @task(Stage.SOLVE_SECONDARIES, layout=("particles",))
    def collide(self, access: Access, step: Step) -> None:
        """Find contacts and resolve them, round by round."""
        particles, rows = self.target.particles, self._rows
        comm = particles.domain.comm
        comm.raise_together(self._load(particles, step.dt))
        if comm.total(rows.present) < 2:
            return
        self._ghosts = _Ghosts.of(rows, particles)
        contacts, accounts = self._first_contacts(), []
        for _ in range(int(self.settings.max_rounds)):
            pairs = self._agreed(contacts)
            if not comm.any(len(pairs.time) > 0):
                break
            changed, account = self._resolve(pairs, particles)
            accounts.append(account)
            contacts = self._next_contacts(contacts, changed)
            self.iterations += 1
        else:
            if left := comm.total(len(contacts.time)):
                self.warning = (
                    f"{left} contacts are left after max_rounds = {self.settings.max_rounds}; "
                    "these droplets pass through each other in this substep"
                )
        if accounts:
            self._store(particles)
            self._add_to_account(comm, np.concatenate(accounts))

    # -- in and out ------------------------------------------------------------------------

    def _load(self, particles: ParticleSystem, dt: float) -> LokiError | None:
        """Take the droplets of this substep; returns what is wrong with them, if anything is."""
        keep = np.zeros(particles.count, bool)
        keep[particles.kept()] = particles.local("alive")[particles.kept()]
        self._mixing = {
            name: int(np.prod(values.shape[1:], dtype=np.int64))
            for name, values in self.target.vertex_channels().items()
            if values.dtype.kind == "f"
        }
        bad = self._rows.load(particles, keep, dt, mixing=self._mixing)
        own = ("position", "velocity", "radius", "mass")
        if bad >= 0:
            shown = ", ".join(f"{name} {particles.local(name)[bad].tolist()}" for name in own)
            return DivergenceError(
                f"{self.target.path}: droplet id {int(particles.local('id')[bad])} has {shown}; "
                "finite numbers are expected, and a positive radius and mass"
            )
        for axis in np.flatnonzero(particles.domain.periodic):
            period = particles.domain.upper[axis] - particles.domain.lower[axis]
            way = dt * np.abs(particles.local("velocity")[keep, axis]).max(initial=0.0)
            if way > 0.5 * period:
                return DivergenceError(
                    f"{self.target.path}: a droplet travels {way:g} m in a substep along the "
                    f"periodic axis {'xyz'[axis]}, which is {period:g} m long; use more substeps"
                )
        return None

    def _store(self, particles: ParticleSystem) -> None:
        """Give the particles what has changed, remove those that are gone, append new ones."""
        rows = self._rows
        changed = np.flatnonzero(rows.touched[: particles.count])
        there = changed[rows.radius(changed) >= 0.0]
        for name, values in self._channels_of(there).items():
            particles.local(name)[rows.order[there]] = values
            particles.mark_written(name)
        gone = np.zeros(particles.count, bool)
        gone[rows.order[changed]] = rows.radius(changed) < 0.0
        if gone.any():
            particles.remove(gone)
        born = rows.born()
        if particles.domain.comm.any(len(born) > 0):
            copied = ("age", "lifetime", *self.target.vertex_channels())
            inherited = {name: particles.local(name)[rows.parent[born]] for name in copied}
            particles.append(inherited | self._channels_of(born), ids=rows.ids[born])
        particles.wrap()

    def _channels_of(self, chosen: Int64) -> dict[str, Array]:
        """Values of the channels that collisions change, for some rows."""
        rows, domain = self._rows, self.target.scope.domain
        position = rows.numbers(chosen)[:, :3]
        for axis in range(3):  # what parts beside a wall may come to lie behind it
            lower, upper = domain.relative_lower[axis], domain.relative_upper[axis]
            if domain.boundaries[2 * axis].kind == "wall":
                position[:, axis] = np.maximum(position[:, axis], lower)
            if domain.boundaries[2 * axis + 1].kind == "wall":
                position[:, axis] = np.minimum(position[:, axis], np.nextafter(upper, lower))
        values: dict[str, Array] = {
            "position": position,
            "velocity": rows.numbers(chosen)[:, VX : VX + 3],
            "radius": rows.radius(chosen),
            "mass": rows.mass[chosen],
        }
        begin = 0
        for name, width in self._mixing.items():
            part = rows.luggage[chosen, begin : begin + width]
            values[name] = part.reshape(-1, *self.target.particles.channel(name).shape)
            begin += width
        return values

    def _add_to_account(self, comm: Communicator, lines: Float64) -> None:
        """Add lines of (outcome, satellites, angular momentum, energy) of this rank's pairs."""
        columns = [lines[:, 0] == outcome for outcome in OUTCOMES]
        sums = exact_sums(comm, np.column_stack((*columns, lines[:, 1:])))
        for name, value in zip((*OUTCOMES.values(), "satellites"), sums[:5], strict=True):
            self.account[name] += int(value)
        self.account["angular_momentum"] = self.account["angular_momentum"] + sums[5:8]
        self.account["energy"] += float(sums[8])

    # -- a round ---------------------------------------------------------------------------

    def _first_contacts(self) -> Contacts:
        rows = self._rows
        contacts = self._found(lambda: self._search.among(rows.main, rows.motion, rows.dt))
        if self._ghosts is None:
            return contacts
        return contacts.joined(self._contacts_of(self._ghosts.share(NONE)))

    def _next_contacts(self, contacts: Contacts, changed: Int64) -> Contacts:
        """Contacts that are left, and those of rows that have changed."""
        rows = self._rows
        rows.refit(changed)
        if self._ghosts is not None:
            changed = np.union1d(changed, self._ghosts.share(changed))
        rows.touched[changed] = rows.changed[changed] = 1
        kept = keep_unchanged(*contacts, rows.changed)
        return contacts.part(slice(kept)).joined(self._contacts_of(changed))

    def _contacts_of(self, changed: Int64) -> Contacts:
        """Contacts of these rows with all."""
        rows = self._rows
        rows.changed[changed] = 1
        search = partial(
            self._search.of, changed, (rows.main, rows.side), rows.motion, rows.dt,
            ids=rows.ids, owned=rows.owned, changed=rows.changed,
        )  # fmt: skip
        found = self._found(search)
        rows.changed[changed] = 0
        return found

    def _found(self, search: Callable[[], Contacts]) -> Contacts:
        """What a search finds; all ranks raise if it is too much on one. Collective."""
        found, problem = NO_CONTACTS, None
        try:
            found = search()
        except TooManyContacts as error:
            rows, row = self._rows, np.array([error.row])
            problem = DivergenceError(
                f"{self.target.path}: droplets touch by the million, such as id "
                f"{rows.ids[error.row]} of radius {rows.radius(row)[0]:g} m at "
                f"{rows.numbers(row)[0, :3].tolist()} m from the domain's origin; use smaller "
                "radii, fewer droplets or more substeps"
            )
        self.target.scope.domain.comm.raise_together(problem)
        return found

    def _agreed(self, contacts: Contacts) -> Contacts:
        """Contacts that are the first of both droplets, and resolved here; the larger one first."""
        rows = self._rows
        chosen = np.empty(len(contacts.time), np.int64)
        count = choose_contacts(*contacts, rows.ids, rows.owned, rows.best, chosen)
        pairs = rows.larger_first(contacts.part(chosen[:count]))
        if self._ghosts is not None:
            pairs = self._ghosts.agreed(pairs)
        return pairs.part(np.argsort(pairs.first))  # so that satellites are born along the curve

    def _resolve(self, pairs: Contacts, particles: ParticleSystem) -> tuple[Int64, Float64]:
        """Resolve contacts; returns the rows that have changed, and lines of the account."""
        rows, count = self._rows, len(pairs.time)
        most = int(self.settings.max_satellites)
        outcome, satellites = np.empty(count, np.int64), np.empty(count, np.int64)
        motion, mass = np.empty((count, most, NUMBERS)), np.empty(count)
        luggage, lost = np.empty((count, rows.luggage.shape[1])), np.empty((count, 4))
        settings = tuple(float(getattr(self.settings, name)) for name in SETTINGS)
        resolve_contacts(
            *pairs, rows.dt, settings, rows.motion, rows.mass, rows.luggage,
            outcome, satellites, motion, mass, luggage, lost,
        )  # fmt: skip
        pair, number = _counted(satellites)
        ids = self._new_ids(particles, rows.ids[pairs.first], satellites)
        state = np.column_stack((motion[pair, number], mass[pair], luggage[pair]))
        born = rows.add(state, ids, owned=1)
        rows.parent[born] = rows.particle(pairs.first[pair])
        changed: list[Array] = [pairs.first, pairs.second, born]
        if self._ghosts is not None:
            changed.append(self._ghosts.settle(pairs))
        return np.unique(np.concatenate(changed)), np.column_stack((outcome, satellites, lost))

    def _new_ids(self, particles: ParticleSystem, larger: Int64, counts: Int64) -> Int64:
        """Ids for satellites, in the order of the larger drops' ids on all ranks. Collective."""
        has = counts > 0
        mine = np.column_stack((larger[has], counts[has])).reshape(-1)
        everyone = np.concatenate(particles.domain.comm.all_gather(mine)).reshape(-1, 2)
        everyone = everyone[np.argsort(everyone[:, 0])]
        ends = np.cumsum(everyone[:, 1])
        starts = particles.reserve_ids(int(everyone[:, 1].sum())) + ends - everyone[:, 1]
        pair, number = _counted(counts[has])
        ids: Int64 = starts[np.searchsorted(everyone[:, 0], larger[has])][pair] + number
        return ids


def _counted(counts: Int64) -> tuple[Int64, Int64]:
    """Of things that belong `counts[i]` each to some i: the i, and the number among those."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


class _Rows:
    """Droplets of a substep, leaf by leaf: the particles, then satellites and ghosts.

    Attributes:
        dt: Length of the substep [s].
        present: Particles that take part.
        extra, end: First row that is no particle, and the end of all.
        motion: Numbers of `droplet_search`, shape [leaves, 8, 16].
        mass: [kg], shape [rows].
        luggage: Channels that mix, side by side, shape [rows, columns].
        ids: Of the droplets.
        order: Particle that is in each row.
        parent: Particle whose other channels a satellite gets.
        owned: Whether it is this rank's own, and no ghost.
        holder, way: Rank that owns a ghost, and the way in which it is shifted.
        changed, touched: Whether it has changed in this round, or at all.
        best: Scratch.
        main, side: Trees over the particles, and over the rest.
    """

    main: Tree
    side: Tree

    def __init__(self) -> None:
        self.dt, self.present, self.extra, self.end = 0.0, 0, 0, 0
        self._allocate(0, 0)
        self._boxes: list[Float64 | None] = [None, None]
        self.order = NONE
        self._bucket_size = 0.0  # that the last order was made with [m]

    def _allocate(self, leaves: int, columns: int) -> None:
        rows = leaves * LANES
        self.motion = np.empty((leaves, NUMBERS, LANES))
        self.mass, self.luggage = np.empty(rows), np.empty((rows, columns))
        self.ids, self.parent = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.holder, self.way = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.owned, self.changed = np.ones(rows, np.uint8), np.zeros(rows, np.uint8)
        self.touched, self.best = np.zeros(rows, np.uint8), np.empty(rows, np.int64)

    def load(
        self,
        particles: ParticleSystem,
        keep: NDArray[np.bool_],
        dt: float,
        *,
        mixing: Mapping[str, int],
    ) -> int:
        """Take the particles of a substep; returns one that cannot be, or -1.

        Args:
            keep: Particles that take part.
            dt: Length of the substep [s].
            mixing: Channels that mix, and how many numbers each of them has.
        """
        count = particles.count
        leaves = -(-count // LANES)
        parts = [particles.local(name).reshape(count, width) for name, width in mixing.items()]
        columns = sum(mixing.values())
        self.dt, self.extra, self.end = dt, leaves * LANES, leaves * LANES
        if leaves > len(self.motion) or self.luggage.shape[1] != columns:
            self._allocate(int(1.25 * leaves) + LANES, columns)
        bad = np.empty(leaves, np.uint8)
        self.order = self._along_a_curve(particles)
        own = [particles.local(name) for name in ("position", "velocity", "radius", "mass")]
        load_droplets(
            *own, particles.local("id"), keep, self.order, self.motion[:leaves], self.mass,
            self.ids, bad,
        )  # fmt: skip
        if bad.any():
            rows = np.flatnonzero(np.repeat(bad, LANES)[:count] & keep[self.order])
            one = (
                np.concatenate([np.ravel(values[row]) for values in own])
                for row in self.order[rows]
            )
            good = [np.all(np.abs(v) < 1e50) and v[6] > 0.0 and v[7] > 0.0 for v in one]
            return int(self.order[rows[np.argmin(good)]])
        if columns:
            self.luggage[:count] = np.concatenate(parts, axis=1)[self.order]
        self.owned[:], self.touched[:] = 1, 0
        self.present = int(np.count_nonzero(keep))
        self.main, self.side = self._tree(0, 0, self.extra), self._tree(1, self.extra, self.end)
        return -1

    def _along_a_curve(self, particles: ParticleSystem) -> Int64:
        """Particles as they are stored, or by smaller Buckets where too many are in one."""
        position, ids, domain = particles.local("position"), particles.local("id"), particles.domain
        order: Int64 = np.arange(particles.count, dtype=np.int64)
        crowd = _crowd(particles.offsets[: particles.buckets.local_count + 1])
        if crowd <= CROWDED:
            return order
        size = self._bucket_size or domain.bucket_size * np.cbrt(CROWDED / 8 / crowd)
        finest = 1e-5 * float(np.max(np.abs(position)))  # the keys reach as far as that
        for _ in range(4):
            self._bucket_size = float(max(size, finest))
            try:
                found = sort_particles(position, ids, self._bucket_size, curve=domain.curve)
            except PositionRangeError:
                return order  # what is no number is told later
            order, crowd = found.permutation.astype(np.int64), _crowd(found.offsets)
            if crowd <= CROWDED or size <= finest:
                break
            size *= np.cbrt(CROWDED / 8 / crowd)
        return order

    def _tree(self, which: int, begin: int, end: int) -> Tree:
        first, count = begin // LANES, -(-end // LANES) - begin // LANES
        storage = self._boxes[which]
        tree = build_tree(self.motion, self.dt, first_leaf=first, leaf_count=count, boxes=storage)
        self._boxes[which] = tree.boxes
        return tree

    def refit(self, changed: Int64) -> None:
        """Bound rows that have changed, in ascending order, anew."""
        leaves = np.unique(changed[changed < self.extra] // LANES)
        refit_tree(leaves, self.motion, 0, self.dt, self.main.boxes, self.main.starts)
        if len(changed) and changed[-1] >= self.extra:
            self.side = self._tree(1, self.extra, self.end)

    def numbers(self, rows: Array) -> Float64:
        """Numbers of `droplet_search` of some rows, a copy, shape [n, 8]."""
        numbers: Float64 = self.motion[rows // LANES, :, rows % LANES]
        return numbers

    def particle(self, rows: Array) -> Int64:
        """Particles in some rows of this rank's own, or those that satellites there come from."""
        parents: Int64 = self.parent[rows]
        parents[rows < self.extra] = self.order[rows[rows < self.extra]]
        return parents

    def boxes(self, rows: Int64) -> Float64:
        """Moving boxes of some rows, shape [n, 12]."""
        boxes = np.empty((len(rows), 12))
        fill_boxes_of(rows, self.motion, self.dt, boxes)
        return boxes

    def born(self) -> Int64:
        """Satellites of this rank that are still there."""
        born = self.extra + np.flatnonzero(self.owned[self.extra : self.end])
        return born[self.radius(born) >= 0.0]

    def radius(self, rows: Array) -> Float64:
        """Radii [m] of some rows, negative where there is no droplet any more."""
        radius: Float64 = self.motion[rows // LANES, RADIUS, rows % LANES]
        return radius

    def state(self, rows: Int64) -> Float64:
        """Motion, mass and luggage of some rows, a copy, shape [n, STATE + columns]."""
        return np.column_stack((self.numbers(rows), self.mass[rows], self.luggage[rows]))

    def set_state(self, rows: Int64, state: Float64) -> None:
        """Set what `state` returns."""
        self.motion[rows // LANES, :, rows % LANES] = state[:, :NUMBERS]
        self.mass[rows], self.luggage[rows] = state[:, NUMBERS], state[:, STATE:]

    def add(self, state: Float64, ids: Int64, *, owned: int) -> Int64:
        """Append droplets; returns their rows."""
        rows: Int64 = np.arange(self.end, self.end + len(ids), dtype=np.int64)
        fresh = slice(-(-self.end // LANES), -(-(self.end + len(ids)) // LANES))
        if fresh.stop > len(self.motion):
            self._grow(int(1.25 * fresh.stop) + LANES)
        self.motion[fresh] = 0.0
        self.motion[fresh, RADIUS] = -1.0
        self.end += len(ids)
        self.set_state(rows, state)
        self.ids[rows], self.owned[rows] = ids, owned
        return rows

    def _grow(self, leaves: int) -> None:
        names = ("motion", "mass", "luggage", "ids", "parent", "holder", "way", "owned", "touched")
        kept = {name: getattr(self, name) for name in (*names, "changed")}
        self._allocate(leaves, self.luggage.shape[1])
        for name, values in kept.items():
            getattr(self, name)[: len(values)] = values

    def larger_first(self, pairs: Contacts) -> Contacts:
        """The same pairs with the larger droplet first; of equal ones that of the lower id."""
        time, first, second = pairs
        left, right = self.radius(first), self.radius(second)
        swap = (right > left) | ((right == left) & (self.ids[second] < self.ids[first]))
        return Contacts(time, np.where(swap, second, first), np.where(swap, first, second))


def _crowd(offsets: Int64) -> float:
    """How many particles are in the Bucket of the mean particle."""
    counts = np.diff(offsets).astype(np.float64)
    return float(np.sum(counts**2) / max(np.sum(counts), 1.0))


def _around(*boxes: Float64) -> Float64:
    """The moving box around moving boxes [n, 12]; around none it is inside out."""
    whole = np.concatenate(boxes)
    least, greatest = whole[:, :6].min(0, initial=np.inf), whole[:, 6:].max(0, initial=-np.inf)
    return np.concatenate((least, greatest))


def _meeting(boxes: Float64, other: Float64) -> NDArray[np.bool_]:
    """Which moving boxes [n, 12] may meet another one [12]."""
    beyond = np.all((boxes[:, :6] > other[6:]).reshape(-1, 2, 3), axis=1)
    before = np.all((boxes[:, 6:] < other[:6]).reshape(-1, 2, 3), axis=1)
    return ~np.asarray(np.any(beyond | before, axis=1))


class _Ghosts:
    """Droplets of other ranks, and images across periodic borders, that may meet this rank's own.

    Each rank tells the others where its droplets go, as a few hundred moving boxes, and sends them
    those of its own that meet theirs. What has changed tells its new box, and is sent to whoever
    knows it, or has droplets where it goes.

    Args:
        rows: Of this rank; ghosts are added to them.
        period: Of the domain along each axis [m], 0 where it is not periodic.
    """

    def __init__(self, rows: _Rows, comm: Communicator, period: Float64) -> None:
        self.rows, self.comm = rows, comm
        axes = [(-1, 0, 1) if length > 0.0 else (0,) for length in period]
        #: How far images are shifted [m], by the number of the way; 26 - way leads back.
        self.shifts = {
            9 * (i + 1) + 3 * (j + 1) + k + 1: np.array([i, j, k]) * period
            for i, j, k in product(*axes)
        }
        self._sent: dict[tuple[int, int], NDArray[np.uint8]] = {}  # rows known, by rank and way
        self._has_shared = False
        self._awaited: dict[int, int] = {}  # rows that others resolve in this round, by id

    @classmethod
    def of(cls, rows: _Rows, particles: ParticleSystem) -> _Ghosts | None:
        """The ghosts of a Particle System, or None where there can be none."""
        domain = particles.domain
        if domain.comm.size == 1 and not any(domain.periodic):
            return None
        return cls(rows, domain.comm, np.where(domain.periodic, domain.upper - domain.lower, 0.0))

    def share(self, changed: Int64) -> Int64:
        """Send what has changed, at first all, to whom it may concern; returns ghosts that came."""
        rows, comm = self.rows, self.comm
        mine = changed[rows.owned[changed] != 0]
        there = mine[rows.radius(mine) >= 0.0]
        boxes = rows.boxes(there) if self._has_shared else rows.main.coarse(COARSE_BOXES)
        regions = comm.all_gather(_around(rows.boxes(rows.born()), rows.main.coarse(LANES)))
        ways = [
            (rank, way, shift)
            for rank, (way, shift) in product(range(comm.size), self.shifts.items())
            if rank != comm.rank or way != NO_SHIFT
        ]
        near = [_meeting(boxes, regions[rank] - np.tile(shift, 4)) for rank, _, shift in ways]
        told = comm.all_gather(boxes[np.any(near, axis=0)].reshape(-1))
        states: list[list[Float64]] = [[] for _ in range(comm.size)]
        keys: list[list[Int64]] = [[] for _ in range(comm.size)]
        for (rank, way, shift), meets in zip(ways, near, strict=True):
            queries = told[rank].reshape(-1, 12) - np.tile(shift, 4)
            wanted = there[meets] if self._has_shared else NONE
            chosen = self._chosen((rank, way), queries, wanted, mine)
            state = rows.state(chosen)
            state[:, :3] += shift
            states[rank].append(state)
            keys[rank].append(np.column_stack((rows.ids[chosen], np.full(len(chosen), way))))
        arrived = zip(self._exchange(states), self._exchange(keys), strict=True)
        taken = [self._take(rank, *what) for rank, what in enumerate(arrived)]
        self._has_shared = True
        found: Int64 = np.unique(np.concatenate(taken))
        rows.refit(found)
        return found

    def _chosen(self, to: tuple[int, int], queries: Float64, wanted: Int64, mine: Int64) -> Int64:
        """Rows to send: what meets boxes that were told, what is wanted, and what is known there.

        Args:
            to: Rank and way.
            queries: Moving boxes of that rank, shape [n, 12].
            wanted: Rows that have changed and may meet others of that rank.
            mine: All own rows that have changed.
        """
        rows = self.rows
        if len(queries) + len(wanted) == 0 and to not in self._sent:
            return NONE
        marks = np.zeros(len(rows.owned), np.uint8)
        for tree in (rows.main, rows.side):
            mark_rows_in(
                queries.reshape(-1, 12, 1), rows.motion, rows.dt, tree.first_leaf, tree.boxes,
                tree.starts, marks,
            )  # fmt: skip
        sent = self._sent.get(to, np.zeros(0, np.uint8))
        sent = np.append(sent, np.zeros(len(marks) - len(sent), np.uint8))
        marks &= rows.owned & ~sent
        marks[wanted] = 1
        marks[mine] |= sent[mine]
        self._sent[to] = sent | marks
        return np.flatnonzero(marks)

    def _exchange(self, parts: Sequence[Sequence[Array]]) -> list[Array]:
        """Send arrays [n, width] to every rank; returns what came from each. Collective."""
        whole = [np.concatenate(one) if one else None for one in parts]
        like = next(one for one in whole if one is not None)
        sent = [like[:0] if one is None else one for one in whole]
        came = self.comm.all_to_all([one.reshape(-1) for one in sent])
        return [one.reshape(-1, like.shape[1]) for one in came]

    def _take(self, rank: int, state: Float64, keys: Int64) -> Int64:
        """Add droplets that came from a rank, or bring those that are known up to date."""
        rows = self.rows
        ghosts = rows.extra + np.flatnonzero(rows.owned[rows.extra : rows.end] == 0)
        ghosts = ghosts[rows.holder[ghosts] == rank]
        known = 27 * rows.ids[ghosts] + rows.way[ghosts]
        order = np.argsort(known)
        wanted = 27 * keys[:, 0] + keys[:, 1]
        place = np.searchsorted(known[order], wanted)
        is_known = place < len(known)
        is_known[is_known] = known[order][place[is_known]] == wanted[is_known]
        old = ghosts[order][place[is_known]]
        rows.set_state(old, state[is_known])
        new = rows.add(state[~is_known], keys[~is_known, 0], owned=0)
        rows.holder[new], rows.way[new] = rank, keys[~is_known, 1]
        return np.concatenate((old, new))

    def agreed(self, pairs: Contacts) -> Contacts:
        """Pairs that both owners have chosen, and that are resolved here. Collective.

        Whoever has chosen a pair with a ghost tells its owner, and hears whether that one has too.
        """
        rows = self.rows
        is_own = rows.owned[pairs.first] != 0, rows.owned[pairs.second] != 0
        half = np.flatnonzero(~(is_own[0] & is_own[1]))
        own = np.where(is_own[0], pairs.first, pairs.second)[half]
        ghost = np.where(is_own[0], pairs.second, pairs.first)[half]
        table = np.column_stack((rows.ids[own], rows.ids[ghost], 26 - rows.way[ghost]))
        holder = rows.holder[ghost]
        heard = self._exchange([[table[holder == rank]] for rank in range(self.comm.size)])
        told = {(rank, *line) for rank, lines in enumerate(heard) for line in lines.tolist()}
        expected = np.column_stack((holder, rows.ids[ghost], rows.ids[own], rows.way[ghost]))
        agrees = np.array([tuple(line) in told for line in expected.tolist()], bool)
        is_here = is_own[0] & is_own[1]
        is_here[half] = agrees & is_own[0][half]
        elsewhere = own[agrees & ~is_own[0][half]]
        self._awaited = dict(zip(rows.ids[elsewhere].tolist(), elsewhere.tolist(), strict=True))
        return pairs.part(is_here)

    def settle(self, pairs: Contacts) -> Int64:
        """Tell owners what has become of ghosts; returns own rows that others resolved."""
        rows = self.rows
        ghosts = pairs.second[rows.owned[pairs.second] == 0]
        state = rows.state(ghosts)
        for way, shift in self.shifts.items():
            state[rows.way[ghosts] == way, :3] -= shift
        parts = [
            (rows.ids[ghosts][:, None][chosen], state[chosen])
            for chosen in (rows.holder[ghosts] == rank for rank in range(self.comm.size))
        ]
        ids = np.concatenate(self._exchange([[part[0]] for part in parts]))
        states = np.concatenate(self._exchange([[part[1]] for part in parts]))
        settled = np.array([self._awaited[number] for number in ids[:, 0].tolist()], np.int64)
        rows.set_state(settled, states)
        return settled
