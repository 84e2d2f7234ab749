"""Bucket Set: the Buckets that one Particle System or Discrete Volume tracks, seen from one rank.

All Buckets of all ranks are known by key, level and owner (the *remote* subset is no more than
that); this rank's own are the *local* subset, and those of other ranks that touch them the
*neighbouring* subset. Local Buckets come first, in curve order, then neighbouring ones, in curve
order too, so each other rank's are one run.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import FINER, MAXIMUM_LEVEL, GridDomain
from loki_core.errors import InputError
from loki_core.kernels.buckets.bucket_hash import build_table, find_buckets, pack_buckets
from loki_core.kernels.buckets.bucket_neighbours import fill_neighbours, finer_pairs

Int32 = NDArray[np.int32]

#: Direction of the 27 that is the Bucket itself; as a slab direction it means the whole Bucket.
CENTRE = 13


class _Connection(NamedTuple):
    """Neighbours by index among all Buckets, and pairs of a local and another rank's Bucket.

    The direction of a pair leads from the local Bucket to the other one.
    """

    table: Int32
    rows: Int32
    others: Int32
    directions: Int32


class BucketSet:
    """Local and neighbouring Buckets with their neighbour table; made collectively.

    Args:
        domain: The Grid Domain; its cuts decide who owns what.
        coords: Lattice coordinates of Buckets that this rank owns, shape [n, 3]; any order, no
            repeats.
        levels: Their levels, shape [n]; level 0 if None.
    """

    def __init__(
        self, domain: GridDomain, coords: Int32, levels: NDArray[np.uint8] | None = None
    ) -> None:
        self.domain = domain
        if levels is None:
            levels = np.zeros(len(coords), dtype=np.uint8)
        self._check_levels(levels)
        keys = domain.keys(coords, levels)
        order = np.lexsort((levels, keys))
        self._check_ownership(keys)
        gathered = self._gather(keys[order], coords[order], levels[order])
        #: Curve places of all Buckets of all ranks, ascending, shape [total].
        self.all_keys: NDArray[np.uint64] = gathered[0]
        self.all_coords: Int32 = gathered[1]
        self.all_levels: NDArray[np.uint8] = gathered[2]
        # Each rank's Buckets are one run of these.
        inner = np.searchsorted(self.all_keys, domain.cuts[1:-1])
        ends = np.concatenate(([0], inner, [len(self.all_keys)]))
        ranks = np.arange(domain.comm.size, dtype=np.int32)
        self.all_owners: Int32 = np.repeat(ranks, np.diff(ends))
        self.local_count = len(coords)
        #: Index of the first local Bucket among all.
        self.first = int(ends[domain.comm.rank])

    def _check_levels(self, levels: NDArray[np.uint8]) -> None:
        highest = int(levels.max(initial=0))
        if highest > MAXIMUM_LEVEL:
            raise InputError(f"Bucket level {highest} is above the maximum {MAXIMUM_LEVEL}")
        for axis, count in enumerate(self.domain.period):
            if count % (1 << highest):
                raise InputError(
                    f"Buckets of level {highest} do not fit the periodic axis {'xyz'[axis]}, which "
                    f"is {count} Buckets long; make that a multiple of {1 << highest}"
                )

    def _check_ownership(self, keys: NDArray[np.uint64]) -> None:
        foreign = self.domain.owners(keys) != self.domain.comm.rank
        if np.any(foreign):
            key = int(keys[np.argmax(foreign)])
            raise InputError(
                f"Bucket with key {key} is given on rank {self.domain.comm.rank}, but rank "
                f"{int(self.domain.owners(keys[foreign][:1])[0])} owns it"
            )

    def _gather(
        self, keys: NDArray[np.uint64], coords: Int32, levels: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint64], Int32, NDArray[np.uint8]]:
        # Ranks own consecutive runs of the curve, so rank order is curve order.
        comm = self.domain.comm
        all_coords = np.concatenate(comm.all_gather(np.ascontiguousarray(coords).reshape(-1)))
        return (
            np.concatenate(comm.all_gather(keys)),
            all_coords.reshape(-1, 3),
            np.concatenate(comm.all_gather(levels)),
        )

    @cached_property
    def _table(self) -> tuple[NDArray[np.uint64], Int32]:
        """Hash table from levelled code to index among all, of Buckets near local ones."""
        near = self._near()
        keys, values = build_table(_codes(self.all_coords[near], self.all_levels[near]))
        if isinstance(near, slice):
            return keys, values
        return keys, np.append(near, -1).astype(np.int32)[values]

    @cached_property
    def table_of_all(self) -> NDArray[np.uint64]:
        """Keys of a hash table of all Buckets: made where one far away has to be known of."""
        if isinstance(self._near(), slice):
            return self._table[0]
        return build_table(_codes(self.all_coords, self.all_levels))[0]

    def _near(self) -> NDArray[np.intp] | slice:
        """Buckets among all that may touch a local one: those in a box around the local ones.

        What a rank does with each Bucket of all ranks does not shrink with their number, so it has
        to be little.
        """
        if self.domain.comm.size == 1:
            return slice(None)
        is_near = np.full(len(self.all_keys), self.local_count > 0)
        highest = int(self.all_levels.max(initial=0))
        size = np.int32(1) << self.all_levels.astype(np.int32) if highest else np.int32(1)
        reach = 2 << highest  # a neighbour may be one level up
        for axis in range(3) if self.local_count else ():
            first = self.all_coords[:, axis] * size
            last = first + size
            mine = slice(self.first, self.first + self.local_count)
            lower, upper = first[mine].min() - reach, last[mine].max() + reach
            period = self.domain.period[axis]
            if not period or (lower >= 0 and upper <= period):
                is_near &= (last >= lower) & (first <= upper)
        return np.flatnonzero(is_near)

    def stored(self, coords: Int32) -> NDArray[np.bool_]:
        """Which Buckets of level 0 are tracked, by whatever rank, shape [n]."""
        if len(self.all_keys) == 0:
            return np.zeros(len(coords), bool)
        keys = self.domain.keys(coords)
        place = np.searchsorted(self.all_keys, keys)  # the finest of those that begin there
        place = np.minimum(place, len(self.all_keys) - 1)
        found: NDArray[np.bool_] = (self.all_keys[place] == keys) & (self.all_levels[place] == 0)
        return found

    @cached_property
    def _connection(self) -> _Connection:
        """Neighbours, found when first asked for: much work needs none."""
        table = np.empty((self.local_count, 27), dtype=np.int32)
        coords, levels = self.local_coords, self.local_levels
        period, first, last = self._lattice()
        fill_neighbours(coords, levels, period, first, last, *self._table, table)
        if self.domain.comm.size == 1:
            none = np.empty(0, np.int32)
            return _Connection(table, none, none, none)
        fine = self._finer(coords, levels, period, table)
        foreign = (table >= 0) & ((table < self.first) | (table >= self.first + self.local_count))
        rows, directions = np.nonzero(foreign)
        others = table[rows, directions]
        # Between levels a slab has no direction: the whole Bucket travels.
        same_level = self.all_levels[others] == levels[rows]
        directions = np.where(same_level, directions, CENTRE)
        whole = np.full(len(fine[0]), CENTRE)
        return _Connection(
            table,
            np.concatenate((rows, fine[0])).astype(np.int32),
            np.concatenate((others, fine[1])).astype(np.int32),
            np.concatenate((directions, whole)).astype(np.int32),
        )

    @cached_property
    def ghosts(self) -> Int32:
        """Index among all of each neighbouring Bucket, ascending."""
        return np.unique(self._connection.others)

    @property
    def ghost_count(self) -> int:
        """Neighbouring Buckets."""
        return len(self.ghosts)

    @cached_property
    def _renumber(self) -> Int32:
        """Local or ghost index of each Bucket among all, -1 for remote ones and at the end."""
        renumber = np.full(len(self.all_keys) + 1, -1, dtype=np.int32)
        mine = slice(self.first, self.first + self.local_count)
        renumber[mine] = np.arange(self.local_count, dtype=np.int32)
        renumber[self.ghosts] = self.local_count + np.arange(self.ghost_count, dtype=np.int32)
        return renumber

    @cached_property
    def neighbours(self) -> Int32:
        """Local or ghost index of each local Bucket's 27 neighbours, or codes of grid_domain."""
        table = self._connection.table
        if self.domain.comm.size == 1:
            return table  # all Buckets are local, and numbered alike
        return np.where(table >= 0, self._renumber[np.maximum(table, -1)], table).astype(np.int32)

    @property
    def local_coords(self) -> Int32:
        """Lattice coordinates of the local Buckets, shape [local_count, 3]."""
        return self.all_coords[self.first : self.first + self.local_count]

    @property
    def local_levels(self) -> NDArray[np.uint8]:
        """Levels of the local Buckets."""
        return self.all_levels[self.first : self.first + self.local_count]

    @cached_property
    def coords(self) -> Int32:
        """Lattice coordinates of local, then neighbouring Buckets."""
        return np.concatenate((self.local_coords, self.all_coords[self.ghosts]))

    @cached_property
    def levels(self) -> NDArray[np.uint8]:
        """Levels of local, then neighbouring Buckets."""
        return np.concatenate((self.local_levels, self.all_levels[self.ghosts]))

    def _lattice(self) -> tuple[Int32, Int32, Int32]:
        count = MAXIMUM_LEVEL + 2  # a look-up one level up must find a row
        ranges = [self.domain.bucket_range(level) for level in range(count)]
        period = np.array([self.domain.period >> level for level in range(count)], dtype=np.int32)
        return period, np.array([r[0] for r in ranges]), np.array([r[1] for r in ranges])

    def _finer(
        self, coords: Int32, levels: NDArray[np.uint8], period: Int32, table: Int32
    ) -> tuple[Int32, Int32]:
        if not np.any(table == FINER):
            return np.empty(0, np.int32), np.empty(0, np.int32)
        none = np.empty(0, np.int32)
        count = finer_pairs(coords, levels, period, table, *self._table, none, none)
        rows, others = np.empty(count, np.int32), np.empty(count, np.int32)
        finer_pairs(coords, levels, period, table, *self._table, rows, others)
        foreign = self.all_owners[others] != self.domain.comm.rank
        return rows[foreign], others[foreign]

    # -- look-ups --------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Local and neighbouring Buckets."""
        return self.local_count + self.ghost_count

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Curve places of the local Buckets, ascending."""
        return self.all_keys[self.first : self.first + self.local_count]

    @cached_property
    def table(self) -> tuple[NDArray[np.uint64], Int32]:
        """Hash table from levelled code to local or ghost index; remote ones have -1 or nothing."""
        keys, values = self._table
        return keys, self._renumber[values]

    @cached_property
    def border(self) -> Int32:
        """Local Buckets that touch a neighbouring one: they wait for the exchange."""
        return np.unique(self._connection.rows).astype(np.int32)

    @cached_property
    def interior(self) -> Int32:
        """Local Buckets whose neighbours are all local: they can be worked on at once."""
        inside = np.ones(self.local_count, dtype=bool)
        inside[self.border] = False
        return np.flatnonzero(inside).astype(np.int32)

    @cached_property
    def local(self) -> Int32:
        """All local Buckets."""
        return np.arange(self.local_count, dtype=np.int32)

    def index_in(self, other: BucketSet) -> Int32:
        """Index of each local and neighbouring Bucket in another set, or -1."""
        return find_buckets(*other.table, codes=_codes(self.coords, self.levels))

    def memory(self) -> int:
        """Bytes of all tables, as if every one had been asked for."""
        tables = (self.neighbours, self.coords, self.levels, *self.table)
        shared = (self.all_keys, self.all_coords, self.all_levels, self.all_owners)
        return sum(array.nbytes for array in (*tables, *shared))

    # -- plans of exchange -----------------------------------------------------------------

    @cached_property
    def send_buckets(self) -> dict[int, Int32]:
        """Local Buckets that each neighbouring rank keeps copies of, in curve order."""
        owners = self.all_owners[self._connection.others]
        return {
            int(rank): np.unique(self._connection.rows[owners == rank]).astype(np.int32)
            for rank in np.unique(owners)
        }

    @cached_property
    def receive_buckets(self) -> dict[int, slice]:
        """Run of neighbouring Buckets (index from 0 among ghosts) that each rank owns."""
        owners = self.all_owners[self.ghosts]
        runs = {}
        for rank in np.unique(owners):
            places = np.flatnonzero(owners == rank)
            runs[int(rank)] = slice(int(places[0]), int(places[-1]) + 1)
        return runs

    def slabs(self, *, corners: bool) -> tuple[dict[int, Slabs], dict[int, Slabs]]:
        """What passes to and from each rank when voxel layers are exchanged.

        Returns:
            For each rank the slabs to send and those to receive, in the same order on both sides. A
            slab is the part of a Bucket that its neighbour needs; its direction is that from the
            neighbour to the Bucket.
        """
        if corners:
            return self._slabs_with_corners
        return self._slabs_of_faces

    @cached_property
    def _slabs_with_corners(self) -> tuple[dict[int, Slabs], dict[int, Slabs]]:
        return self._list_slabs(np.ones(len(self._connection.rows), dtype=bool))

    @cached_property
    def _slabs_of_faces(self) -> tuple[dict[int, Slabs], dict[int, Slabs]]:
        faces = np.isin(self._connection.directions, (4, 10, 12, CENTRE, 14, 16, 22))
        return self._list_slabs(faces)

    def _list_slabs(self, chosen: NDArray[np.bool_]) -> tuple[dict[int, Slabs], dict[int, Slabs]]:
        rows, others = self._connection.rows[chosen], self._connection.others[chosen]
        directions = self._connection.directions[chosen]
        owners = self.all_owners[others]
        sends, receives = {}, {}
        for rank in np.unique(owners):
            of_rank = owners == rank
            mine, theirs, way = rows[of_rank], others[of_rank], directions[of_rank]
            # The neighbour sees my Bucket in the opposite direction.
            sends[int(rank)] = Slabs.ordered(mine + self.first, 26 - way, mine)
            receives[int(rank)] = Slabs.ordered(theirs, way, self._renumber[theirs])
        return sends, receives


class Slabs:
    """Parts of Buckets in an order that sender and receiver share."""

    def __init__(self, buckets: Int32, directions: Int32) -> None:
        self.buckets = buckets
        self.directions = directions

    @classmethod
    def ordered(cls, all_index: NDArray[Any], directions: Int32, buckets: Int32) -> Slabs:
        """Sort by (Bucket among all, direction) and drop repeats."""
        pairs = np.stack((all_index, directions), axis=1)
        _, chosen = np.unique(pairs, axis=0, return_index=True)
        return cls(buckets[chosen].astype(np.int32), directions[chosen].astype(np.int32))

    def value_counts(self, resolution: int, layers: int) -> NDArray[np.int64]:
        """Voxels of each slab for a channel of this resolution, when `layers` are exchanged."""
        along = np.where(np.array([-1, 0, 1]) == 0, resolution, layers)
        whole = self.directions == CENTRE
        ways = self.directions
        counts = along[ways // 9] * along[ways // 3 % 3] * along[ways % 3]
        return np.where(whole, resolution**3, counts).astype(np.int64)


def _codes(coords: Int32, levels: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hash keys of Buckets on any level; `levelled_code` of the kernels."""
    return pack_buckets(coords) | (levels.astype(np.uint64) << np.uint64(54))
