"""Accessors: the only way to channel data, and the place where distribution hides.

A Task declares what it touches as "<data>.<channel>" names. An `Access` hands it plain arrays: the
local elements, or, for reads with a halo, local elements and ghosts that were made current first.
What was written has stale ghosts afterwards; what was accumulated on ghosts is returned to its
owners.

In tests the data themselves note what the Task touches (`data/task_notes.py`), so that a
declaration that is not true is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loki_core.data.bucket_set import BucketSet
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_directory import GatherPlan, ParticleDirectory
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import AccessError
from loki_core.parallel.comm import Pending

Array = NDArray[Any]


class ChannelData(Protocol):
    """What Particle Systems and Discrete Volumes have in common."""

    name: str
    domain: GridDomain
    buckets: BucketSet
    layout_version: int
    channels: Any

    def local(self, name: str) -> Array: ...
    def with_ghosts(self, name: str) -> Array: ...
    def post_ghosts(
        self, names: Sequence[str], *, halo: int = 1, corners: bool = False
    ) -> Pending | None: ...
    def mark_written(self, name: str) -> None: ...
    def zero_ghosts(self, name: str) -> None: ...
    def add_ghosts_to_owners(self, name: str) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Declaration:
    """What a Task touches.

    Attributes:
        reads, writes, accumulates: Names "<data>.<channel>".
        halo: Layers of ghosts that reads need and accumulations touch: voxels for volumes, Buckets
            for particles.
        corners: Whether volumes' ghosts are needed across edges and corners too.
        overlap: Whether the Task iterates by `Access.passes`, so that communication hides behind
            interior work.
        layout: Data whose elements the Task adds, removes or moves between ranks.
        local_sums: Whether accumulations stay on local elements, though reads have a halo.
        local_reads: Names that are read on local elements alone, though other reads have a halo,
            or whose ghosts the Task makes current by itself.
        communicates: Whether the Task speaks to other ranks by itself: a linear solve, a decision
            of all ranks, a gather by ids. If it fails on one rank alone, others may wait for that
            rank in the middle of the Task, so the failure ends them too.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    accumulates: tuple[str, ...] = ()
    halo: int = 0
    corners: bool = False
    overlap: bool = False
    layout: tuple[str, ...] = ()
    local_sums: bool = False
    communicates: bool = False
    local_reads: tuple[str, ...] = ()

    def names(self) -> Iterable[str]:
        """Every channel that is touched in any way."""
        return (*self.all_reads, *self.writes, *self.accumulates)

    @property
    def all_reads(self) -> tuple[str, ...]:
        """Every channel that is read, with a halo or without."""
        return (*self.reads, *self.local_reads)

    def speaks(self, data: Mapping[str, Any]) -> bool:
        """Whether other ranks may wait for this one inside the Task, which touches these data."""
        moves = any(data[name].domain.comm.size > 1 for name in self.layout)
        return bool(self.communicates or self.halo or moves)


def split_name(name: str) -> tuple[str, str]:
    """Split "<data>.<channel>"."""
    data, dot, channel = name.partition(".")
    if not dot or not data or not channel:
        raise AccessError(f'"{name}" does not name a channel; write "<data>.<channel>"')
    return data, channel


@dataclass
class Access:
    """Channels of one running Task.

    Args:
        declaration: What the Task may touch.
        data: The Particle Systems and Discrete Volumes by their local names.
        label: Who asks, for messages.
    """

    declaration: Declaration
    data: Mapping[str, ChannelData]
    label: str
    _pending: dict[str, Pending] = field(default_factory=dict)
    _directories: dict[str, ParticleDirectory] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        declared = self.declaration
        sums = () if declared.local_sums else declared.accumulates
        if declared.halo and (name in sums or name in declared.reads):
            return self._holder(name).with_ghosts(split_name(name)[1])
        self._check_declared(name)
        return self._holder(name).local(split_name(name)[1])

    def _check_declared(self, name: str) -> None:
        if name not in self.declaration.names():
            raise AccessError(
                f'"{name}" is used in "{self.label}" but was never declared; '
                "add it to the Task's reads, writes or accumulates"
            )

    def of(self, data_name: str) -> Any:
        """The data itself: its Buckets, offsets and sizes; channels only through `access[name]`."""
        if data_name not in self.data:
            raise AccessError(f'"{self.label}" has no data "{data_name}"')
        return self.data[data_name]

    def passes(self, data_name: str) -> Iterator[NDArray[np.int32]]:
        """Bucket lists that make up all local ones; interior first while ghosts are under way."""
        buckets = self.of(data_name).buckets
        if not self._pending:
            yield buckets.local
            return
        waits = np.zeros(buckets.local_count, dtype=bool)
        for other_name in self._pending:
            waits |= self._touches_ghosts(buckets, self.of(other_name).buckets)
        yield np.flatnonzero(~waits).astype(np.int32)
        self._wait()
        yield np.flatnonzero(waits).astype(np.int32)

    @staticmethod
    def _touches_ghosts(buckets: BucketSet, other: BucketSet) -> NDArray[np.bool_]:
        """Which local Buckets touch the other set's ghosts, or are unknown to it."""
        rows = buckets.index_in(other)[: buckets.local_count]
        touching = np.ones(
            other.count + 1, dtype=bool
        )  # the last answers for Buckets it does not track
        touching[other.interior] = False
        return touching[rows]

    def plan(self, data_name: str, ids: NDArray[np.int64]) -> GatherPlan:
        """Plan to gather from and scatter to any particles, by id. Collective."""
        particles = self.of(data_name)
        if not isinstance(particles, ParticleSystem):
            raise AccessError(f'"{self.label}": "{data_name}" has no ids to gather by')
        directory = self._directories.get(data_name)
        if directory is None or directory.layout_version != particles.layout_version:
            directory = self._directories[data_name] = ParticleDirectory(particles)
        return directory.plan(ids)

    def refresh(self, *names: str) -> None:
        """Make ghosts current inside a Task that iterates, such as a linear solve. Collective."""
        for name in names:
            self._check_declared(name)
            holder, channel = self._holder(name), split_name(name)[1]
            holder.mark_written(channel)
            pending = holder.post_ghosts(
                [channel], halo=max(1, self.declaration.halo), corners=self.declaration.corners
            )
            if pending is not None:
                pending.wait()

    # -- the framework's side --------------------------------------------------------------

    def begin(self) -> None:
        """Make what is read current, or start to. Collective."""
        declared = self.declaration
        if declared.halo:
            for data_name, channels in _by_data(declared.reads).items():
                pending = self.of(data_name).post_ghosts(
                    channels, halo=declared.halo, corners=declared.corners
                )
                if pending is not None:
                    self._pending[data_name] = pending
            if not declared.overlap:
                self._wait()
            for name in () if declared.local_sums else declared.accumulates:
                self._holder(name).zero_ghosts(split_name(name)[1])

    def end(self) -> None:
        """Note what was written and bring accumulations home. Collective."""
        self._wait()  # a Task that left before its last pass must not leave requests behind
        for name in self.declaration.accumulates:
            if self.declaration.halo and not self.declaration.local_sums:
                self._holder(name).add_ghosts_to_owners(split_name(name)[1])
            else:
                self._holder(name).mark_written(split_name(name)[1])
        for name in self.declaration.writes:
            self._holder(name).mark_written(split_name(name)[1])

    def _holder(self, name: str) -> ChannelData:
        data_name, _ = split_name(name)
        holder: ChannelData = self.of(data_name)
        return holder

    def _wait(self) -> None:
        for pending in self._pending.values():
            pending.wait()
        self._pending.clear()


def _by_data(names: Iterable[str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name in names:
        data_name, channel = split_name(name)
        grouped.setdefault(data_name, []).append(channel)
    return grouped


def checks_access() -> bool:
    """Whether Tasks are held to what they declare (slow; the tests set LOKI_CHECK_ACCESS=1)."""
    return os.environ.get("LOKI_CHECK_ACCESS") == "1"


class MultiAccessor:
    """Particles and voxels of the same Bucket, visited together.

    Attributes:
        particle_buckets: For each local Bucket of the volume and each of its 27 neighbours, the
            particles' Bucket index (local or ghost) or a negative code, shape [local, 27].
    """

    def __init__(self, particles: ParticleSystem, volume: ChannelData) -> None:
        rows = volume.buckets.index_in(particles.buckets)[: volume.buckets.local_count]
        if np.any(rows < 0) or np.any(rows >= particles.buckets.local_count):
            raise AccessError(
                f"{particles.name} does not track all Buckets of {volume.name}; "
                "call particles.track(...) with them before the rebucketize"
            )
        self.particles = particles
        self.volume = volume
        self.particle_buckets: NDArray[np.int32] = particles.buckets.neighbours[rows]
