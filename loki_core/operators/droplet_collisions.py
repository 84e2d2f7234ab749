"""Binary Droplet Collisions: ballistic droplets that coalesce, separate or bounce where they meet.

Droplets are the particles of a Particle Object. In a substep each moves along a straight line from
where it was to where it is, x(t) = x - (dt - t) v. Two that touch on their ways collide then, and
what comes out of it goes on from there for the rest of the substep, free to collide again. What it
is depends on the Weber number, the offset of the paths and the ratio of the sizes
(`kernels/particles/droplet_collisions.py`: Ashgriz and Poo 1990, Jones and Southern 2017).

A substep is done in rounds. In each, the pairs that are each other's first contact collide; those
that have changed, and satellites that were born, then look for contacts anew, until there are none
left. Ids decide between contacts of the same time, so the outcome depends on the droplets alone:
not on threads, ranks or the order in which they are stored.

Surface tension and restitution may vary by droplet. A pair has the mean by mass of its two, which
is also what a droplet has that the two become.

Mass and momentum are kept to round-off, and kinetic and surface energy together never grow.
Angular momentum is not kept, since droplets do not spin: coalescence takes all that the two had
around each other, separation a part. `DropletCollisionsAction.account` says how much.

On ranks, and across periodic borders, droplets that may meet those of another rank are known there
as ghosts, however far they travel; the owner of the larger of two drops resolves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.data.accessors import Access
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import DivergenceError, LokiError
from loki_core.kernels.particles.droplet_collisions import (
    BOUNCE,
    COALESCENCE,
    REFLEXION,
    SETTINGS,
    STRETCHING,
    resolve_contacts,
    resolve_varied_contacts,
)
from loki_core.kernels.particles.droplet_search import (
    NO_CONTACTS,
    NUMBERS,
    VX,
    Contacts,
    ContactSearch,
    TooManyContacts,
    choose_contacts,
    keep_unchanged,
)
from loki_core.objects.basics.capabilities import LooseParticles
from loki_core.objects.basics.override_channels import override_names
from loki_core.objects.colliders.body_collider import MeetsColliders
from loki_core.objects.particles.droplet_ghosts import DropletGhosts
from loki_core.objects.particles.droplet_rows import NONE, DropletRows
from loki_core.objects.particles.particle_matter import ParticleMatter
from loki_core.operators.operator import Operator
from loki_core.parallel.comm import Communicator
from loki_core.parallel.reduce import exact_sums
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task
from loki_core.sparse_parameters import resolve

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

OUTCOMES = {
    COALESCENCE: "coalescences",
    REFLEXION: "reflexions",
    STRETCHING: "stretchings",
    BOUNCE: "bounces",
}


class BinaryDropletCollisions(ParticleMatter, varies="vertex"):
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
        1.0e-5,
        unit="m",
        minimum=1.0e-9,
        varies="no",  # what is resolved
        doc="Radius below which no satellite is made.",
    )
    max_rounds: int = parameter(
        1000, minimum=1, maximum=100_000, doc="Most collisions of one droplet in a substep."
    )


class DropletCollisionsAction(
    MeetsColliders, Operator[LooseParticles], behavior=BinaryDropletCollisions
):
    """Collides the droplets of one Particle Object.

    Attributes:
        account: What has happened so far, over all ranks: how many "coalescences", "reflexions",
            "stretchings", "bounces" and "satellites"; the kinetic and surface "energy" that was
            dissipated [J]; the "angular_momentum" that was lost [kg m^2/s], three numbers.
    """

    settings: BinaryDropletCollisions
    target: LooseParticles
    cost = 0.3  # of a droplet
    meeting = ("collide",)

    def __init__(self, behavior: BinaryDropletCollisions, target: LooseParticles) -> None:
        super().__init__(behavior, target)
        target.become_droplets(self)  # in double precision: mass and momentum are exact
        self.account: dict[str, Any] = {
            **dict.fromkeys((*OUTCOMES.values(), "satellites"), 0),
            "energy": 0.0,
            "angular_momentum": np.zeros(3),
        }
        self._rows = DropletRows()
        self._ghosts: DropletGhosts | None = None
        self._search = ContactSearch()
        self._mixing: dict[str, int] = {}  # channels of the user that mix, and how wide they are

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
        walls = self.target.contacts
        if walls is not None:
            walls.remember()
        self._ghosts = DropletGhosts.of(rows, particles)
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
            if walls is not None:
                walls.settle(step.dt)
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
            start = ("start_position",) if self.target.keeps_start else ()
            copied = ("age", "lifetime", *start, *self.target.vertex_channels())
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
        settings: Any = tuple(self._of_all(name) for name in SETTINGS)
        collide = resolve_contacts
        if self.target.overriding_channels(self.behavior):
            settings, collide = self._of_pairs(pairs, settings), resolve_varied_contacts
        collide(
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

    def _of_all(self, name: str) -> float:
        """A setting, as it is where no droplet has one of its own."""
        if self.behavior.parameters()[name].varies == "no":
            return float(getattr(self.settings, name))
        return float(self.target.of_object(self.behavior, name, label=self.path))

    def _of_pairs(self, pairs: Contacts, settings: tuple[float, ...]) -> Float64:
        """Settings of each pair, [n, 5]: means by mass of the two droplets."""
        table = np.tile(np.array(settings), (len(pairs.time), 1))
        mass1, mass2 = self._rows.mass[pairs.first], self._rows.mass[pairs.second]
        for column, name in enumerate(SETTINGS):
            if self.behavior.parameters()[name].varies == "vertex":
                first, second = (self._of_rows(name, r) for r in (pairs.first, pairs.second))
                table[:, column] = (mass1 * first + mass2 * second) / (mass1 + mass2)
        return table

    def _of_rows(self, name: str, rows: Array) -> Array:
        """A parameter of some droplets, as they are now, [n] or [1]."""
        item = self.target
        begin, channels = 0, {}
        for one, width in self._mixing.items():
            channels[one] = self._rows.luggage[rows, begin]
            begin += width
        wanted = override_names(type(self.behavior), name)
        vertex = {one: values for one, values in channels.items() if one in wanted}
        settings = item.scope.settings
        return resolve(
            self.behavior,
            name,
            behavior_label=self.path,
            channels={"detail": item.details, "vertex": vertex},
            counts={"vertex": len(rows)},
            time=item.time,
            frames_per_second=settings.frames_per_second,
            start_frame=settings.start_frame,
        ).values

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
