"""Particle Directory: reach any particle by id, on whatever rank it is.

For long-range attachments and large bodies, which do not keep to a Bucket and its neighbours
(paper, 3.1 (6)). Every id has a home rank, id modulo ranks, which knows the rank and row where the
particle is now. A `GatherPlan` asks once for a list of ids; then values travel straight between
owner and asker, as often as they are needed while the layout lasts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import InputError
from loki_core.kernels.basics.scatter import scatter_add_rows

Array = NDArray[Any]
Int64 = NDArray[np.int64]


class ParticleDirectory:
    """Home ranks' knowledge of where particles are; void when the layout changes. Collective."""

    def __init__(self, particles: ParticleSystem) -> None:
        self.particles = particles
        self.layout_version = particles.layout_version
        comm = particles.domain.comm
        ids = particles.local("id")
        rows = np.arange(len(ids), dtype=np.int64)
        home = ids % comm.size
        by_home = [np.flatnonzero(home == rank) for rank in range(comm.size)]
        told_ids = comm.all_to_all([ids[chosen] for chosen in by_home])
        told_rows = comm.all_to_all([rows[chosen] for chosen in by_home])
        owners = np.repeat(np.arange(comm.size), [len(part) for part in told_ids])
        known = np.concatenate(told_ids)
        order = np.argsort(known, kind="stable")
        self._ids: Int64 = known[order]
        self._rows: Int64 = np.concatenate(told_rows)[order]
        self._owners: Int64 = owners[order].astype(np.int64)

    def plan(self, ids: Int64) -> GatherPlan:
        """Find these particles; any order, repeats allowed, none need be local. Collective."""
        return GatherPlan(self, np.ascontiguousarray(ids, dtype=np.int64))

    def locate(self, ids: Int64) -> tuple[Int64, Int64]:
        """Owner rank and row of each particle. Collective."""
        owners, rows, asked, answers = self._ask(ids)
        self.particles.domain.comm.raise_together(self._complain(asked, answers))
        return owners, rows

    def owners(self, ids: Int64) -> Int64:
        """Rank of each particle, -1 of those that are not there any more. Collective."""
        return self._ask(ids)[0]

    def _ask(self, ids: Int64) -> tuple[Int64, Int64, list[Int64], list[Int64]]:
        """Owner rank and row, or -1, and what was asked and answered here. Collective."""
        comm = self.particles.domain.comm
        home = ids % comm.size
        by_home = [np.flatnonzero(home == rank) for rank in range(comm.size)]
        asked = comm.all_to_all([ids[chosen] for chosen in by_home])
        answers = [self._look_up(wanted) for wanted in asked]
        owner_parts, row_parts = (
            comm.all_to_all([np.append(known, -1)[places] for places in answers])
            for known in (self._owners, self._rows)
        )
        owners, rows = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        for rank, chosen in enumerate(by_home):
            owners[chosen], rows[chosen] = owner_parts[rank], row_parts[rank]
        return owners, rows, asked, answers

    def _look_up(self, wanted: Int64) -> Int64:
        places = np.searchsorted(self._ids, wanted)
        places = np.minimum(places, max(len(self._ids) - 1, 0))
        if len(self._ids) == 0:
            return np.full(len(wanted), -1, np.int64)
        return np.where(self._ids[places] == wanted, places, -1)

    def _complain(self, asked: list[Int64], answers: list[Int64]) -> InputError | None:
        for wanted, places in zip(asked, answers, strict=True):
            missing = wanted[places < 0]
            if len(missing):
                return InputError(
                    f"{self.particles.name}: particle id {int(missing[0])} does not exist"
                )
        return None


class GatherPlan:
    """Where the values of a list of particles come from and go to."""

    def __init__(self, directory: ParticleDirectory, ids: Int64) -> None:
        self.particles = directory.particles
        self.layout_version = directory.layout_version
        comm = self.particles.domain.comm
        owners, rows = directory.locate(ids)
        self.count = len(ids)
        #: For each rank, which of the listed particles it owns.
        self._places = [np.flatnonzero(owners == rank) for rank in range(comm.size)]
        #: For each rank, rows of mine that it asks for.
        self._asked = comm.all_to_all([rows[places] for places in self._places])

    def gather(self, values: Array) -> Array:
        """Values of the listed particles, given every rank's local ones. Collective."""
        self._check_layout()
        shape = values.shape[1:]
        parts = self.particles.domain.comm.all_to_all(
            [values[rows].reshape(-1) for rows in self._asked]
        )
        gathered = np.empty((self.count, *shape), values.dtype)
        for places, part in zip(self._places, parts, strict=True):
            gathered[places] = part.reshape(-1, *shape)
        return gathered

    def scatter_add(self, contributions: Array, target: Array) -> None:
        """Add contributions to the owners' values, in rank order. Collective."""
        self._check_layout()
        shape = contributions.shape[1:]
        parts = self.particles.domain.comm.all_to_all(
            [contributions[places].reshape(-1) for places in self._places]
        )
        width = int(np.prod(shape, dtype=np.int64))
        flat = target.reshape(len(target), width)
        for rows, part in zip(self._asked, parts, strict=True):
            scatter_add_rows(part.reshape(-1, width), rows, flat)

    def _check_layout(self) -> None:
        if self.layout_version != self.particles.layout_version:
            raise InputError(
                f"{self.particles.name}: this plan was made before the particles changed places; "
                "ask the Accessor for a new one"
            )
