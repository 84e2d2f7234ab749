"""Droplet Ghosts: what a rank knows of droplets of other ranks, and of images across borders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.particle_system import ParticleSystem
from loki_core.kernels.particles.droplet_search import LANES, Contacts, mark_rows_in
from loki_core.objects.particles.droplet_rows import NONE, DropletRows
from loki_core.parallel.comm import Communicator

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

COARSE_BOXES = 512  # that a rank tells others of where its droplets go
NO_SHIFT = 13  # of the 27 ways to shift an image by a period


class DropletGhosts:
    """Droplets of other ranks, and images across periodic borders, that may meet this rank's own.

    Each rank tells the others where its droplets go, as a few hundred moving boxes, and sends them
    those of its own that meet theirs. What has changed tells its new box, and is sent to whoever
    knows it, or has droplets where it goes.

    Args:
        rows: Of this rank; ghosts are added to them.
        period: Of the domain along each axis [m], 0 where it is not periodic.
    """

    def __init__(self, rows: DropletRows, comm: Communicator, period: Float64) -> None:
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
    def of(cls, rows: DropletRows, particles: ParticleSystem) -> DropletGhosts | None:
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
