"""Discrete Volume: voxel channels on a sparse set of Buckets.

    channel   one array [buckets, components, r, r, r], last axis z: local Buckets first, then
              copies of neighbouring ranks' (ghosts). A component of a Bucket is one contiguous
              scalar block.
    location  "cell", or "face": component a of voxel (i, j, k) then lives on its lower face along a

Resolutions may differ between channels. A voxel's edge is the Bucket's over the resolution. Buckets
may be of several levels, graded so that neighbours, corners included, differ by at most one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loki_core.data import notes
from loki_core.data.bucket_set import BucketSet, Slabs
from loki_core.data.grid_domain import GridDomain
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_core.kernels.buckets.bucket_hash import find_buckets, pack_buckets, unpack_buckets
from loki_core.kernels.buckets.slabs import pack_slabs, unpack_slabs
from loki_core.parallel.comm import Pending

Array = NDArray[Any]

RESOLUTIONS = (1, 2, 4, 8, 16, 32)


@dataclass
class VolumeChannel:
    """One value, or a few, per voxel or face.

    Attributes:
        background: What new Buckets are filled with, one number for each component.
        values: Storage, shape [buckets, components, r, r, r].
        derived: Whether the values follow from others, so that neither a state nor a Bucket that
            moves to another rank needs to bring them.
        current_layers: How many voxel layers of the ghosts equal their owners.
        corners_current: Whether that holds for layers across edges and corners too.
    """

    name: str
    dtype: np.dtype[Any]
    components: int
    resolution: int
    location: str
    background: tuple[float, ...]
    values: Array = field(repr=False)
    derived: bool = False
    current_layers: int = 0
    corners_current: bool = False

    def filled(self, bucket_count: int) -> Array:
        """Storage of so many Buckets, full of the background."""
        r = self.resolution
        values = np.empty((bucket_count, self.components, r, r, r), self.dtype)
        values[:] = np.array(self.background, self.dtype)[:, None, None, None]
        return values

    @property
    def bytes_per_bucket(self) -> int:
        return int(self.dtype.itemsize) * self.components * self.resolution**3


class DiscreteVolume:
    """Voxels of one Object, this rank's share.

    Args:
        domain: The shared Grid Domain.
        name: What messages call it.
        dtype: Of bulk channels: float32 or float64.
    """

    def __init__(self, domain: GridDomain, *, name: str, dtype: DTypeLike = np.float32) -> None:
        self.domain = domain
        self.name = name
        self.dtype = np.dtype(dtype)
        self.channels: dict[str, VolumeChannel] = {}
        self.buckets = BucketSet(domain, np.empty((0, 3), np.int32))
        #: Changes whenever Buckets change; plans made for an older one are void.
        self.layout_version = 0
        if notes.running is not None:
            notes.running.note_new(self)

    # -- channels --------------------------------------------------------------------------

    def add_channel(
        self,
        name: str,
        dtype: DTypeLike | None = None,
        *,
        components: int = 1,
        resolution: int = 8,
        location: str = "cell",
        background: float | Sequence[float] = 0.0,
        derived: bool = False,
    ) -> None:
        """Add a channel, filled with `background`: one number, or one for each component."""
        if resolution not in RESOLUTIONS:
            raise SetupError(
                f'{self.name}: channel "{name}" has {resolution} voxels per Bucket edge; '
                f"allowed: {', '.join(map(str, RESOLUTIONS))}"
            )
        if location not in ("cell", "face") or (location == "face" and components != 3):
            raise SetupError(
                f'{self.name}: channel "{name}" with {components} components cannot be located at '
                f'"{location}"; a face channel has 3 components, others are "cell"'
            )
        if name in self.channels:
            raise SetupError(f'{self.name} has a channel "{name}" already')
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        if dtype.kind not in "biuf":
            raise SetupError(f'{self.name}: channel "{name}" cannot be of type {dtype}')
        given = np.broadcast_to(np.asarray(background, np.float64), components)
        background = tuple(given.tolist())
        channel = VolumeChannel(
            name, dtype, components, resolution, location, background, np.empty(0), derived
        )
        channel.values = channel.filled(self.buckets.count)
        self.channels[name] = channel

    @contextmanager
    def scratch(
        self,
        name: str,
        dtype: DTypeLike | None = None,
        *,
        components: int = 1,
        resolution: int = 8,
        location: str = "cell",
    ) -> Iterator[VolumeChannel]:
        """Lend a channel for the length of a block, so that its ghosts can be exchanged.

        Its values are not set. Its name, `name` after a "/", is none that a user could give.
        """
        own = f"scratch/{name}"
        if own in self.channels:
            raise SetupError(f'{self.name} has lent the channel "{own}" already')
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        shape = (self.buckets.count, components, *(resolution,) * 3)
        background = (0.0,) * components
        self.channels[own] = VolumeChannel(
            own, dtype, components, resolution, location, background, np.empty(shape, dtype), True
        )
        try:
            yield self.channels[own]
        finally:
            del self.channels[own]

    def channel(self, name: str) -> VolumeChannel:
        """The channel of this name, or an error that suggests one."""
        if name not in self.channels:
            raise InputError(
                f'{self.name} has no channel "{name}"{did_you_mean(name, self.channels)}'
            )
        return self.channels[name]

    def voxel_size(self, name: str) -> float:
        """Edge of a level-0 voxel of the channel [m]."""
        return self.domain.bucket_size / self.channel(name).resolution

    def local(self, name: str) -> Array:
        """Local Buckets' values, shape [local, components, r, r, r]."""
        if notes.running is not None:
            notes.running.note_use(self, name)
        return self.channel(name).values[: self.buckets.local_count]

    def with_ghosts(self, name: str) -> Array:
        """Local and neighbouring Buckets' values; current only after `refresh`."""
        if notes.running is not None:
            notes.running.note_use(self, name)
        return self.channel(name).values

    def mark_written(self, name: str) -> None:
        """Note that local values changed, so that the ghosts elsewhere are stale."""
        if notes.running is not None:
            notes.running.note_write(self, name)
        self.channel(name).current_layers = 0

    def kept_channels(self) -> list[str]:
        """Channels that are a part of the state: all but derived ones."""
        return [name for name, channel in self.channels.items() if not channel.derived]

    # -- Buckets ---------------------------------------------------------------------------

    def set_buckets(
        self, coords: NDArray[np.int32], levels: NDArray[np.uint8] | None = None
    ) -> bool:
        """Track these Buckets from now on; those that stay keep their values. Collective.

        Any rank may name any Bucket, also one that others name too: the owner gets it, and the
        values that another rank holds of it travel there.

        Args:
            coords: Lattice coordinates, shape [n, 3].
            levels: Levels, shape [n]; level 0 if None.

        Returns:
            Whether anything changed on any rank.
        """
        if notes.running is not None:
            notes.running.note_layout(self)
        if levels is None:
            levels = np.zeros(len(coords), np.uint8)
        coords, levels = self._to_owners(coords, levels)
        tracked = _codes(self.buckets.local_coords, self.buckets.local_levels)
        same = np.array_equal(_codes(coords, levels), np.sort(tracked))
        if not self.domain.comm.any(not same):
            return False
        self._old_coords = self.buckets.local_coords
        self._old_levels = self.buckets.local_levels
        self._old_values = {name: self.local(name) for name in self.kept_channels()}
        self._replace_buckets(coords, levels)
        return True

    def rebalance(self) -> None:
        """Move Buckets and their values to the owners that the cuts name now. Collective."""
        if notes.running is not None:
            notes.running.note_layout(self)
        coords, levels = self.buckets.local_coords, self.buckets.local_levels
        self._old_coords, self._old_levels = coords, levels
        self._old_values = {name: self.local(name) for name in self.kept_channels()}
        self._replace_buckets(*self._to_owners(coords, levels))

    def _to_owners(
        self, coords: NDArray[np.int32], levels: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Send named Buckets to their owners; returns this rank's, each once, in code order."""
        comm = self.domain.comm
        codes = np.unique(_codes(coords, levels))
        if comm.size > 1:
            owners = self.domain.owners(self.domain.keys(*_places(codes)))
            codes = np.unique(
                np.concatenate(comm.all_to_all([codes[owners == r] for r in range(comm.size)]))
            )
        return _places(codes)

    def _replace_buckets(self, coords: NDArray[np.int32], levels: NDArray[np.uint8]) -> None:
        self._route_old_values()
        self.buckets = BucketSet(self.domain, coords, levels)
        self._carry_values()
        self.layout_version += 1

    def _route_old_values(self) -> None:
        """Send `_old_values` to the owners of their Buckets."""
        comm = self.domain.comm
        coords, levels = self._old_coords, self._old_levels
        owners = self.domain.owners(self.domain.keys(coords, levels))
        if not comm.any(bool(np.any(owners != comm.rank))):
            return
        chosen = [np.flatnonzero(owners == r) for r in range(comm.size)]
        places = np.concatenate((coords, levels[:, None].astype(np.int32)), axis=1).astype(np.int32)
        arrived = np.concatenate(comm.all_to_all([places[rows].reshape(-1) for rows in chosen]))
        arrived = arrived.reshape(-1, 4)
        self._old_coords = arrived[:, :3].astype(np.int32)
        self._old_levels = arrived[:, 3].astype(np.uint8)
        for name, values in self._old_values.items():
            parts = comm.all_to_all([values[rows].reshape(-1) for rows in chosen])
            self._old_values[name] = np.concatenate(parts).reshape(-1, *values.shape[1:])

    def _carry_values(self) -> None:
        """Fill the new Buckets from the old values, and the rest with the background."""
        codes = _codes(self._old_coords, self._old_levels)
        target = find_buckets(*self.buckets.table, codes=codes)
        found = target >= 0
        for name, channel in self.channels.items():
            values = channel.filled(self.buckets.count)
            if not channel.derived:
                values[target[found]] = self._old_values[name][found]
            channel.values = values
            channel.current_layers = 0
        self._old_values = {}

    # -- ghosts ----------------------------------------------------------------------------

    def post_ghosts(
        self, names: Sequence[str], *, halo: int = 1, corners: bool = False
    ) -> Pending | None:
        """Start to make `halo` voxel layers of these channels' ghosts current. Collective.

        Returns None when nothing is stale.
        """
        comm = self.domain.comm
        if comm.size == 1:
            return None
        stale = []
        for name in names:
            channel = self.channel(name)
            if halo > channel.resolution:
                raise SetupError(
                    f'{self.name}: halo={halo} for "{name}", which has only {channel.resolution} '
                    "voxels per Bucket edge; use a wider Bucket"
                )
            if channel.current_layers < halo or (corners and not channel.corners_current):
                stale.append(channel)
        if not stale:
            return None
        sends, receives = self.buckets.slabs(corners=corners)
        arrivals = [_Arrival(comm, channel, sends, receives, halo) for channel in stale]
        for channel in stale:
            channel.current_layers = halo
            channel.corners_current = corners
        return _Arrivals(arrivals)

    def refresh(self, *names: str, halo: int = 1, corners: bool = False) -> None:
        """Make `halo` voxel layers of these channels' ghosts current, and wait. Collective."""
        pending = self.post_ghosts(tuple(dict.fromkeys(names)), halo=halo, corners=corners)
        if pending is not None:
            pending.wait()

    def add_ghosts_to_owners(self, name: str) -> None:
        """Add what was accumulated on ghosts to their owners, in rank order. Collective."""
        comm, buckets = self.domain.comm, self.buckets
        if comm.size == 1:
            return
        values = self.channel(name).values
        first = buckets.local_count
        sends = {
            rank: values[first + run.start : first + run.stop]
            for rank, run in buckets.receive_buckets.items()
        }
        arrived = {
            rank: np.empty((len(rows), *values.shape[1:]), values.dtype)
            for rank, rows in buckets.send_buckets.items()
        }
        comm.post(sends, arrived).wait()
        for rank in sorted(arrived):
            values[buckets.send_buckets[rank]] += arrived[rank]
        self.mark_written(name)

    def zero_ghosts(self, name: str) -> None:
        """Clear the ghosts before contributions are accumulated on them."""
        self.channel(name).values[self.buckets.local_count :] = 0

    # -- accounts and state ----------------------------------------------------------------

    def memory(self) -> dict[str, int]:
        """Bytes held: raw channels of local Buckets, tables beside them, ghosts."""
        width = sum(channel.bytes_per_bucket for channel in self.channels.values())
        buckets = self.buckets
        return {
            "channels": width * buckets.local_count,
            "tables": buckets.memory(),
            "ghosts": width * buckets.ghost_count,
        }

    def state(self) -> dict[str, Any]:
        """Everything that a restart needs, as plain arrays: this rank's part."""
        return {
            "coords": self.buckets.local_coords.copy(),
            "levels": self.buckets.local_levels.copy(),
            "channels": {name: self.local(name).copy() for name in self.kept_channels()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a state back; it may come from another partition. Collective."""
        if notes.running is not None:
            notes.running.note_layout(self)
        coords = np.asarray(state["coords"], np.int32).reshape(-1, 3)
        levels = np.asarray(state["levels"], np.uint8)
        for name in self.kept_channels():
            if name not in state["channels"]:
                raise InputError(f'{self.name}: the state has no channel "{name}"')
        for name, values in state["channels"].items():
            if values.shape[1:] != self.channel(name).values.shape[1:]:
                raise InputError(
                    f'{self.name}: channel "{name}" of the state has shape {values.shape[1:]}, '
                    f"expected {self.channel(name).values.shape[1:]}"
                )
        self._old_coords, self._old_levels = coords, levels
        self._old_values = {name: np.asarray(v) for name, v in state["channels"].items()}
        self._replace_buckets(*self._to_owners(coords, levels))


class _Arrival:
    """Slabs of one channel under way."""

    def __init__(
        self,
        comm: Any,
        channel: VolumeChannel,
        sends: Mapping[int, Slabs],
        receives: Mapping[int, Slabs],
        layers: int,
    ) -> None:
        self.values, self.receives, self.layers = channel.values, receives, layers
        packed = {}
        for rank, slabs in sends.items():
            offsets, buffer = _buffer(slabs, channel, layers)
            pack_slabs(channel.values, slabs.buckets, slabs.directions, layers, offsets, buffer)
            packed[rank] = buffer
        self.buffers = {rank: _buffer(slabs, channel, layers) for rank, slabs in receives.items()}
        self.pending = comm.post(packed, {rank: b for rank, (_, b) in self.buffers.items()})

    def unpack(self) -> None:
        self.pending.wait()
        for rank, slabs in self.receives.items():
            offsets, buffer = self.buffers[rank]
            unpack_slabs(buffer, slabs.buckets, slabs.directions, self.layers, offsets, self.values)


class _Arrivals(Pending):
    def __init__(self, arrivals: Sequence[_Arrival]) -> None:
        self._arrivals = arrivals

    def wait(self) -> None:
        for arrival in self._arrivals:
            arrival.unpack()


def _buffer(slabs: Slabs, channel: VolumeChannel, layers: int) -> tuple[NDArray[np.int64], Array]:
    counts = slabs.value_counts(channel.resolution, layers) * channel.components
    ends = np.cumsum(counts)
    offsets = np.concatenate(([0], ends[:-1])).astype(np.int64)
    return offsets, np.empty(int(ends[-1]) if len(ends) else 0, channel.dtype)


def _codes(coords: NDArray[np.int32], levels: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """One number for each Bucket: its level above its packed coordinates."""
    codes: NDArray[np.uint64] = pack_buckets(coords) | levels.astype(np.uint64) << np.uint64(54)
    return codes


def _places(codes: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Coordinates and levels of such numbers."""
    return unpack_buckets(codes), (codes >> np.uint64(54)).astype(np.uint8)
