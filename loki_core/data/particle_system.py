"""Particle System: channels as independent arrays in Bucket order, distributed by Bucket.

    channel   one array [capacity, ...]: local particles first, then copies of neighbouring
              ranks' (ghosts)
    order     by Bucket along the curve, inside it by sort cell, inside that by id: canonical,
              whatever the history, the number of threads or of ranks
    ids       stable, unique over all ranks, never reused

`rebucketize` restores that order after positions changed, moves particles to the ranks that own
their Buckets, and drops those that `remove` masked. Capacity grows and shrinks by steps (seed 002,
section 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from loki_core.data import notes
from loki_core.data.bucket_set import BucketSet
from loki_core.data.grid_domain import GridDomain
from loki_core.errors import InputError, LokiError, SetupError, did_you_mean
from loki_core.kernels.basics.periodic import wrap_positions
from loki_core.kernels.basics.reorder import reorder_channel
from loki_core.kernels.buckets.particle_sort import (
    PositionRangeError,
    cell_coords_of,
    sort_particles,
)
from loki_core.parallel.comm import Pending

Array = NDArray[Any]

SMALLEST_CAPACITY = 256
CAPACITY_GROWTH = 1.25


@dataclass
class ParticleChannel:
    """One value per particle.

    Attributes:
        shape: Of one particle's value: () or (3,) or (3, 3).
        default: What new particles get when nothing is given.
        values: Storage, shape [capacity, *shape].
        ghosts_current: Whether the ghosts equal their owners.
        version: Changes whenever somebody says that values were written.
        is_scratch: Whether it means nothing from one substep to the next: it is not part of a
            state, not sorted, and has no storage until it is asked for.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    default: Any
    values: Array = field(repr=False)
    ghosts_current: bool = True
    version: int = 0
    is_scratch: bool = False

    @property
    def bytes_per_particle(self) -> int:
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))


class ParticleSystem:
    """Particles of one Object (or embedded ones), this rank's share.

    Args:
        domain: The shared Grid Domain.
        name: What messages call it.
        dtype: Of positions and other bulk channels: float32 or float64.
    """

    def __init__(self, domain: GridDomain, *, name: str, dtype: DTypeLike = np.float32) -> None:
        self.domain = domain
        self.name = name
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.count = 0
        self.ghost_count = 0
        self.capacity = 0
        self.next_id = 0
        #: Changes whenever particles change places; plans made for an older one are void.
        self.layout_version = 0
        self.channels: dict[str, ParticleChannel] = {}
        self.buckets = BucketSet(domain, np.empty((0, 3), np.int32))
        #: First particle of each local, then neighbouring Bucket, shape [buckets + 1].
        self.offsets: NDArray[np.int64] = np.zeros(1, np.int64)
        self._tracked: NDArray[np.int32] = np.empty((0, 3), np.int32)
        self._removed: NDArray[np.bool_] | None = None
        self._ghosts_laid_out = True
        if notes.running is not None:
            notes.running.note_new(self)
        self.add_channel("id", np.int64, default=-1)
        self.add_channel("position", self.dtype, (3,))

    # -- channels --------------------------------------------------------------------------

    def add_channel(
        self,
        name: str,
        dtype: DTypeLike,
        shape: tuple[int, ...] = (),
        *,
        default: Any = 0,
        is_scratch: bool = False,
    ) -> None:
        """Add a channel, filled with `default`; adding the same one again does nothing."""
        dtype = np.dtype(dtype)
        if dtype.kind not in "biuf":
            raise SetupError(f'{self.name}: channel "{name}" cannot be of type {dtype}')
        known = self.channels.get(name)
        if known is not None:
            if known.dtype != dtype or known.shape != shape:
                raise SetupError(
                    f'{self.name}: channel "{name}" is {known.dtype}{list(known.shape)} already; '
                    f"it cannot be {dtype}{list(shape)} too"
                )
            return
        values = np.empty((0, *shape), dtype)
        one = ParticleChannel(name, dtype, shape, default, values, is_scratch=is_scratch)
        self.channels[name] = one
        if not is_scratch:
            self._store(one)

    def _store(self, channel: ParticleChannel) -> None:
        """Make room for a channel's values, which are its default."""
        channel.values = np.empty((self.capacity, *channel.shape), channel.dtype)
        channel.values[: self.count + self.ghost_count] = channel.default

    @contextmanager
    def scratch(self, name: str, dtype: DTypeLike, shape: tuple[int, ...] = ()) -> Iterator[str]:
        """Lend a channel for the length of a block, so that its ghosts can be exchanged.

        Its values are not set. It gives the name, `name` after a "/", which no user could give.
        """
        own = f"scratch/{name}"
        if own in self.channels:
            raise SetupError(f'{self.name} has lent the channel "{own}" already')
        dtype = np.dtype(dtype)
        values = np.empty((self.capacity, *shape), dtype)
        self.channels[own] = ParticleChannel(own, dtype, shape, 0, values, False, True)
        try:
            yield own
        finally:
            del self.channels[own]

    def release_scratch(self) -> None:
        """Free the storage of scratch channels, where nothing needs them in this substep."""
        for channel in self.channels.values():
            if channel.is_scratch:
                channel.values = channel.values[:0].copy()

    def store_as(self, dtype: DTypeLike) -> None:
        """Keep all floating-point channels in another precision, before there are particles."""
        if self.capacity:
            raise SetupError(f"{self.name}: there are particles already, of type {self.dtype}")
        self.dtype = np.dtype(dtype)
        for channel in self.channels.values():
            if channel.dtype.kind == "f":
                channel.dtype = self.dtype
                channel.values = np.empty((0, *channel.shape), self.dtype)

    def channel(self, name: str) -> ParticleChannel:
        """The channel of this name, or an error that suggests one."""
        if name not in self.channels:
            raise InputError(
                f'{self.name} has no channel "{name}"{did_you_mean(name, self.channels)}'
            )
        found = self.channels[name]
        if found.is_scratch and len(found.values) < self.capacity:
            self._store(found)
        return found

    def local(self, name: str) -> Array:
        """Local particles' values, shape [count, ...]."""
        if notes.running is not None:
            notes.running.note_use(self, name)
        return self.channel(name).values[: self.count]

    def with_ghosts(self, name: str) -> Array:
        """Local and neighbouring particles' values; current only after `post_ghosts`."""
        if notes.running is not None:
            notes.running.note_use(self, name)
        return self.channel(name).values[: self.count + self.ghost_count]

    def mark_written(self, name: str) -> None:
        """Note that local values changed, so that the ghosts elsewhere are stale."""
        if notes.running is not None:
            notes.running.note_write(self, name)
        channel = self.channel(name)
        channel.ghosts_current = False
        channel.version += 1

    # -- particles come and go -------------------------------------------------------------

    def append(self, values: Mapping[str, ArrayLike], *, ids: NDArray[np.int64]) -> None:
        """Add particles on this rank; they find their Buckets and ranks in `rebucketize`.

        Args:
            values: Channel values, each shape [n, ...]; "position" is relative to the domain's
                origin [m].
            ids: Unique ids from `reserve_ids`, shape [n].
        """
        if notes.running is not None:
            notes.running.note_layout(self)
        new = len(ids)
        for name, given in values.items():
            expected = (new, *self.channel(name).shape)
            if np.shape(given) != expected:
                raise InputError(
                    f'{self.name}: channel "{name}" has shape {np.shape(given)}, not {expected}'
                )
        self._drop_ghosts()
        self._reserve(self.count + new)
        rows = slice(self.count, self.count + new)
        for name, channel in self.channels.items():
            if len(channel.values) or not channel.is_scratch:
                channel.values[rows] = values.get(name, channel.default)
        self.channels["id"].values[rows] = ids
        if self._removed is not None:
            self._removed = np.concatenate((self._removed, np.zeros(new, dtype=bool)))
        self.count += new
        self.layout_version += 1

    def reserve_ids(self, count: int) -> int:
        """Set `count` ids aside, the same on every rank, and return the first."""
        first = self.next_id
        self.next_id += count
        return first

    def remove(self, mask: NDArray[np.bool_]) -> None:
        """Mask local particles, shape [count]; they are gone after the next `rebucketize`."""
        if notes.running is not None:
            notes.running.note_layout(self)
        self._removed = mask.copy() if self._removed is None else self._removed | mask

    def kept(self) -> NDArray[np.bool_] | slice:
        """Selects the local particles that are not masked for removal."""
        return slice(0, self.count) if self._removed is None else ~self._removed

    def clear(self) -> None:
        """Drop all local particles and ghosts (collective, as every change of layout)."""
        self.count = self.ghost_count = 0
        self._removed = None
        self.rebucketize()

    # -- order and ownership ---------------------------------------------------------------

    def rebucketize(self) -> None:
        """Sort by Bucket, move particles to their owners, drop removed ones. Collective."""
        if notes.running is not None:
            notes.running.note_layout(self)
        self._drop_ghosts()
        self.wrap()
        comm = self.domain.comm
        coords, keys = self._sort()
        if comm.size > 1:
            coords, keys = self._migrate(coords, keys)
        coords = self._add_tracked(coords, keys)
        same = len(coords) == self.buckets.local_count and np.array_equal(
            coords, self.buckets.local_coords
        )
        if comm.any(not same or not np.array_equal(self._cuts_used, self.domain.cuts)):
            self.buckets = BucketSet(self.domain, coords)
            self._cuts_used = self.domain.cuts
        self._ghosts_laid_out = self.buckets.domain.comm.size == 1
        self._shrink()
        for channel in self.channels.values():
            channel.ghosts_current = self._ghosts_laid_out
        self.layout_version += 1

    _cuts_used: NDArray[np.uint64] = np.empty(0, np.uint64)

    def track(self, coords: NDArray[np.int32]) -> None:
        """Keep these Buckets even while they hold no particle, from the next `rebucketize` on.

        A volume that gathers from particles needs its own Buckets here, so that the particles
        around them arrive as ghosts.

        Args:
            coords: Lattice coordinates of level-0 Buckets that this rank owns, shape [n, 3].
        """
        self._tracked = np.ascontiguousarray(coords, dtype=np.int32)

    def _add_tracked(
        self, coords: NDArray[np.int32], keys: NDArray[np.uint64]
    ) -> NDArray[np.int32]:
        """Put tracked Buckets among the occupied ones, with no particles."""
        self._hand_over_tracked()
        if len(self._tracked) == 0:
            return coords
        both = np.concatenate((keys, self.domain.keys(self._tracked)))
        merged, chosen = np.unique(both, return_index=True)
        places = np.searchsorted(keys, merged, side="left")
        self.offsets = np.append(self.offsets[places], self.count).astype(np.int64)
        return np.concatenate((coords, self._tracked))[chosen]

    def _hand_over_tracked(self) -> None:
        """Tell new owners of tracked Buckets that they track them now."""
        comm = self.domain.comm
        owners = self.domain.owners(self.domain.keys(self._tracked))
        if not comm.any(bool(np.any(owners != comm.rank))):
            return
        sent = comm.all_to_all(
            [self._tracked[owners == rank].reshape(-1) for rank in range(comm.size)]
        )
        self._tracked = np.concatenate(sent).reshape(-1, 3)

    def wrap(self) -> None:
        """Bring positions back into the box along periodic axes."""
        lower, upper = self.domain.relative_lower, self.domain.relative_upper
        kind = self.dtype.type
        for axis in np.flatnonzero(self.domain.periodic):
            highest = self._highest_inside(int(axis))
            wrap_positions(
                self.local("position"), axis, kind(lower[axis]), kind(upper[axis]), highest
            )

    def _highest_inside(self, axis: int) -> Any:
        """Largest coordinate that is sorted into the last Bucket of a periodic axis."""
        first, last = self.domain.bucket_range()
        size = self.domain.bucket_size
        highest = self.dtype.type(min(self.domain.relative_upper[axis], last[axis] * size))
        place = np.zeros((1, 3), self.dtype)
        while True:
            place[0, axis] = highest
            if cell_coords_of(place, size)[0, axis] < 8 * last[axis]:
                return highest
            highest = np.nextafter(highest, self.dtype.type(first[axis] * size))

    def _sort(self) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
        error: LokiError | None = None
        keep = None if self._removed is None else ~self._removed
        try:
            order = sort_particles(
                self.local("position"),
                self.local("id"),
                self.domain.bucket_size,
                curve=self.domain.curve,
                mask=keep,
            )
        except PositionRangeError as found:
            particle = int(self.local("id")[found.index])
            error = InputError(
                f"{self.name}: particle id {particle} at {found.position} m from the domain's "
                f"origin {found.reason}"
            )
        self.domain.comm.raise_together(error)
        self._removed = None
        if not order.is_identity:
            self._reorder(order.permutation)
        self.offsets = order.offsets
        return order.coords, order.keys

    def _kept_channels(self) -> dict[str, ParticleChannel]:
        """Those that particles take along."""
        return {name: one for name, one in self.channels.items() if not one.is_scratch}

    def _reorder(self, permutation: NDArray[np.uint32]) -> None:
        """Gather every channel through the permutation, with one channel of scratch.

        A channel takes the scratch for its storage and leaves its own to the next of its width.
        """
        new_count = len(permutation)
        by_width: dict[int, list[ParticleChannel]] = {}
        for channel in self._kept_channels().values():
            by_width.setdefault(channel.bytes_per_particle, []).append(channel)
        for width, channels in by_width.items():
            scratch = np.empty(self.capacity * width, np.uint8)
            for channel in channels:
                target = scratch.view(channel.dtype).reshape(self.capacity, *channel.shape)
                reorder_channel(channel.values[: self.count], permutation, target[:new_count])
                scratch = channel.values.reshape(-1).view(np.uint8)
                channel.values = target
            del scratch
        self.count = new_count

    def _migrate(
        self, coords: NDArray[np.int32], keys: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
        """Send particles to the ranks that own their Buckets; returns the Buckets kept.

        The sorted particles of another rank are one run, since every rank owns one run of the
        curve.
        """
        comm = self.domain.comm
        ends = np.searchsorted(keys, self.domain.cuts[1:-1], side="left")
        runs = self.offsets[np.concatenate(([0], ends, [len(keys)]))]
        leaving = int(runs[-1] - (runs[comm.rank + 1] - runs[comm.rank]))
        if not comm.any(leaving > 0):
            return coords, keys
        kept = slice(int(runs[comm.rank]), int(runs[comm.rank + 1]))
        arrived: dict[str, Array] = {}
        for name, channel in self._kept_channels().items():
            parts = [
                channel.values[runs[r] : runs[r + 1]] if r != comm.rank else channel.values[:0]
                for r in range(comm.size)
            ]
            received = comm.all_to_all([part.reshape(-1) for part in parts])
            arrived[name] = np.concatenate(received).reshape(-1, *channel.shape)
        for channel in self._kept_channels().values():
            channel.values[: kept.stop - kept.start] = channel.values[kept].copy()
        self.count = kept.stop - kept.start
        new = len(arrived["id"])
        self._reserve(self.count + new)
        for name, channel in self._kept_channels().items():
            channel.values[self.count : self.count + new] = arrived[name]
        self.count += new
        return self._sort()

    # -- ghosts ----------------------------------------------------------------------------

    def post_ghosts(
        self, names: Sequence[str], *, halo: int = 1, corners: bool = True
    ) -> Pending | None:
        """Start to fill the channels' stale ghosts; None if none is stale. Collective."""
        if halo > 1:
            raise SetupError(
                f"{self.name}: halo={halo}, but one layer of Buckets is kept around a rank; "
                "make bucket_size at least the interaction radius"
            )
        comm = self.domain.comm
        if comm.size == 1:
            return None
        if not self._ghosts_laid_out:
            self._lay_out_ghosts()
        stale = [name for name in names if not self.channel(name).ghosts_current]
        if not stale:
            return None
        pending = []
        for name in stale:
            values = self.channel(name).values
            sends = {
                rank: np.ascontiguousarray(values[rows]) for rank, rows in self._send_rows.items()
            }
            receives = {rank: values[run] for rank, run in self._receive_rows.items()}
            pending.append(comm.post(sends, receives))
            self.channels[name].ghosts_current = True
        return _All(pending)

    def sent_rows(self) -> NDArray[np.bool_]:
        """Which local particles other ranks have copies of, shape [count]; ghosts are laid out."""
        sent = np.zeros(self.count, bool)
        for rows in self._send_rows.values() if self.domain.comm.size > 1 else ():
            sent[rows] = True
        return sent

    def add_ghosts_to_owners(self, name: str) -> None:
        """Add what was accumulated on ghosts to their owners, in rank order. Collective."""
        if self.domain.comm.size == 1:
            return
        values = self.channel(name).values
        sends = {rank: values[run] for rank, run in self._receive_rows.items()}
        arrived = {
            rank: np.empty((len(rows), *values.shape[1:]), values.dtype)
            for rank, rows in self._send_rows.items()
        }
        self.domain.comm.post(sends, arrived).wait()
        for rank in sorted(arrived):  # a local particle occurs once in each rank's list
            values[self._send_rows[rank]] += arrived[rank]
        self.mark_written(name)

    def zero_ghosts(self, name: str) -> None:
        """Lay the ghosts out and clear them before contributions are accumulated. Collective."""
        if self.domain.comm.size > 1 and not self._ghosts_laid_out:
            self._lay_out_ghosts()
        self.channel(name).values[self.count : self.count + self.ghost_count] = 0

    def _lay_out_ghosts(self) -> None:
        """Learn how many particles each neighbouring Bucket holds and make room for them."""
        buckets, comm = self.buckets, self.domain.comm
        counts = np.diff(self.offsets)
        ghost_counts = np.zeros(buckets.ghost_count, np.int64)
        sends = {rank: counts[rows] for rank, rows in buckets.send_buckets.items()}
        receives = {rank: ghost_counts[run] for rank, run in buckets.receive_buckets.items()}
        comm.post(sends, receives).wait()
        ghost_count = int(ghost_counts.sum())
        self._reserve(self.count + ghost_count)
        self.ghost_count = ghost_count
        ghost_ends = self.count + np.cumsum(ghost_counts)
        self._send_rows = {
            rank: _rows_of(self.offsets, rows) for rank, rows in buckets.send_buckets.items()
        }
        self.offsets = np.concatenate((self.offsets, ghost_ends))
        first = buckets.local_count
        self._receive_rows = {
            rank: slice(int(self.offsets[first + run.start]), int(self.offsets[first + run.stop]))
            for rank, run in buckets.receive_buckets.items()
        }
        self._ghosts_laid_out = True

    def _drop_ghosts(self) -> None:
        self.ghost_count = 0
        self.offsets = self.offsets[: self.buckets.local_count + 1]
        self._ghosts_laid_out = self.domain.comm.size == 1

    # -- storage ---------------------------------------------------------------------------

    def _reserve(self, needed: int) -> None:
        if needed > self.capacity:
            self._resize(capacity_step(needed))

    def _shrink(self) -> None:
        if self.capacity > SMALLEST_CAPACITY and self.count < self.capacity // 2:
            self._resize(capacity_step(self.count))

    def _resize(self, capacity: int) -> None:
        used = min(self.count + self.ghost_count, capacity)
        for channel in self.channels.values():
            if channel.is_scratch and not len(channel.values):
                continue
            values = np.empty((capacity, *channel.shape), channel.dtype)
            values[:used] = channel.values[:used]
            channel.values = values
        self.capacity = capacity

    def memory(self) -> dict[str, int]:
        """Bytes held: channels of local particles, tables, unused capacity, ghosts."""
        stored = [one for one in self.channels.values() if len(one.values)]
        width = sum(channel.bytes_per_particle for channel in stored)
        return {
            "channels": width * self.count,
            "tables": self.offsets.nbytes + self.buckets.memory(),
            "slack": width * (self.capacity - self.count - self.ghost_count),
            "ghosts": width * self.ghost_count,
        }

    # -- the whole state -------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that a restart needs, as plain arrays: this rank's part."""
        kept = self.kept()
        whole = isinstance(kept, slice)
        return {
            "channels": {
                name: self.local(name).copy() if whole else self.local(name)[kept]
                for name in self._kept_channels()
            },
            "next_id": self.next_id,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a state back; it may come from another partition. Collective."""
        values = {name: np.asarray(array) for name, array in state["channels"].items()}
        ids = values.pop("id").astype(np.int64)
        for name, array in values.items():
            self.add_channel(name, array.dtype, array.shape[1:])
        self.count = self.ghost_count = 0
        self._removed = None
        self.append(values, ids=ids)
        self.next_id = int(state["next_id"])
        self.rebucketize()


class _All(Pending):
    def __init__(self, pending: Sequence[Pending]) -> None:
        self._pending = pending

    def wait(self) -> None:
        for one in self._pending:
            one.wait()


def capacity_step(needed: int) -> int:
    """Smallest of the fixed capacities 256, 320, 400, ... that holds `needed` particles."""
    capacity = SMALLEST_CAPACITY
    while capacity < needed:
        capacity = int(np.ceil(capacity * CAPACITY_GROWTH))
    return capacity


def _rows_of(offsets: NDArray[np.int64], buckets: NDArray[np.int32]) -> NDArray[np.int64]:
    """Particle rows of these Buckets, concatenated in their order."""
    starts, lengths = offsets[buckets], offsets[buckets + 1] - offsets[buckets]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    rows: NDArray[np.int64] = np.arange(total, dtype=np.int64)
    rows += np.repeat(starts - (ends - lengths), lengths)
    return rows
