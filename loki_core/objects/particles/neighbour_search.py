"""Neighbour Search: which particles of a Particle System are near each other.

    search = NeighbourSearch(particles)
    search.build(support, volume, skin=skin)   after positions changed; ghosts arrive here
    density = np.empty(search.places)          values by *place*: the order along the curve
    ...kernels over search.clusters, search.first, search.last, search.entries...
    search.share(density)                      other ranks' values come to the places of ghosts

A *place* is a row of the Particle System in search order: this rank's particles, copies of its
neighbours' ones, and images across periodic sides. All sums of a substep share one search, which is
forgotten at its end; see `kernels/particles/neighbour_lists.py` for what the lists hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import DivergenceError, InputError, LokiError, SetupError
from loki_core.kernels.basics.hilbert_tables import cell_order
from loki_core.kernels.basics.lanes import LANES
from loki_core.kernels.buckets.bucket_hash import build_table
from loki_core.kernels.buckets.particle_sort import PositionRangeError, sort_particles
from loki_core.kernels.particles.neighbour_lists import (
    CELLS,
    find_cell_starts,
    gather_places,
    list_neighbours,
    pack_places,
    scatter_places,
    split_places,
)

Array = NDArray[Any]
Float = NDArray[np.floating[Any]]

#: Channels through which values by place travel between ranks.
NEIGHBOUR_CHANNELS = ("neighbour_value", "neighbour_vector")
CURVE = "hilbert"  # clusters are compact along it
#: Supports in one class differ by less than this factor.
CLASS_RATIO = 2.0
#: Entries that a cluster is expected to have at first; what is not used is not touched.
EXPECTED_ENTRIES = 160
SMALLEST_CHUNK, MOST_CHUNKS = 128, 64  # of clusters, of which one thread makes lists at a time
#: Most neighbours that all clusters of a rank together may have.
LARGEST_LISTS = 1 << 33


class NeighbourSearch:
    """Lists of neighbours, valid while particles stay near to where they were listed.

    Attributes:
        places: How many there are, a multiple of eight.
        rows: Row of the Particle System at each place; images have the row of what they copy, and
            the rest of the last eight repeats one, int32 [places].
        own: Places of this rank's particles, each once, int32 [count].
        packed: x, y, z [m] and volume [m^3] by place, [places, 4].
        support: Reach of the kernel of each place [m], [places].
        is_uniform: Whether all supports are the same.
        clusters: Clusters with particles of this rank, int32 [m].
        first, last: Where the list of each of these lies in `entries`, int64 [m].
        entries: Places, int32.
    """

    places: int = 0
    rows: NDArray[np.int32]
    own: NDArray[np.int32]
    packed: Float
    support: Float
    is_uniform: bool = True
    clusters: NDArray[np.int32]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    entries: NDArray[np.int32]

    def __init__(self, particles: ParticleSystem) -> None:
        self.particles = particles
        self._per_cluster = EXPECTED_ENTRIES

    # -- building --------------------------------------------------------------------------

    def build(self, support: Array, volume: Array, *, skin: float) -> None:
        """Sort the particles at their present positions and list their neighbours. Collective.

        Args:
            support: Reach of each local particle's kernel [m], [count].
            volume: Of each local particle [m^3], [count].
            skin: How far two particles may come closer to each other than they are now [m], and
                still be listed.
        """
        particles = self.particles
        self.forget()
        self._skin = float(skin)
        support = support.astype(particles.dtype, copy=False)
        volume = volume.astype(particles.dtype, copy=False)
        largest = particles.domain.comm.maximum(float(support.max(initial=0.0)))
        self._refuse_wide(largest + skin)
        self._find_classes(support, largest)
        rows = self._with_ghosts(support, volume, largest + skin)
        error: LokiError | None = None
        try:
            self._sort(*rows)
            self._list()
        except PositionRangeError as found:
            error = DivergenceError(
                f"{particles.name}: particle id {int(rows[1][found.index])} at {found.position} m "
                f"from the domain's origin {found.reason}"
            )
        except InputError as found:
            error = found
        particles.domain.comm.raise_together(error)

    def forget(self) -> None:
        """Free the lists: the next ones are made from positions alone."""
        nothing: NDArray[np.int32] = np.empty(0, np.int32)
        self.entries = self.rows = self.own = self.clusters = self._entry = self._sent = nothing
        self.first = self.last = np.empty(0, np.int64)
        self.support = np.empty(0, self.particles.dtype)
        self.packed = np.empty((0, 4), self.particles.dtype)
        self.places = 0

    def _find_classes(self, support: Array, largest: float) -> None:
        """Find the largest support of each class on all ranks. Collective.

        Cells, and with them the order of sums, are then those of one rank on any number of them.
        """
        comm = self.particles.domain.comm
        smallest = -comm.maximum(-float(support.min(initial=np.inf)))
        self.is_uniform = not largest - smallest > 1e-6 * largest
        self._class_largest = {0: largest}
        if self.is_uniform:
            return
        octave = _octaves(support, largest)
        mine = [(one, support[octave == one].max()) for one in np.unique(octave)]
        every = np.concatenate(comm.all_gather(np.array(mine, np.float64).reshape(-1)))
        for one, most in every.reshape(-1, 2):
            self._class_largest[int(one)] = max(float(most), self._class_largest.get(int(one), 0.0))

    def _refuse_wide(self, reach: float) -> None:
        domain = self.particles.domain
        if reach > domain.bucket_size and domain.comm.size > 1:
            raise SetupError(
                f"{self.particles.name}: neighbours are up to {reach:g} m away, more than a Bucket "
                f"of {domain.bucket_size:g} m, beyond which a rank does not see; set bucket_size "
                "to that at least, or use one rank"
            )
        for axis in np.flatnonzero(domain.periodic):
            if domain.upper[axis] - domain.lower[axis] < 2.0 * reach:
                raise InputError(
                    f"{self.particles.name}: neighbours are up to {reach:g} m away, but the box is "
                    f"only {domain.upper[axis] - domain.lower[axis]:g} m long along periodic axis "
                    f"{'xyz'[axis]}; it must be twice as long"
                )

    def _with_ghosts(
        self, support: Array, volume: Array, reach: float
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Position, id, support, volume and row of all that may be near. Collective."""
        particles, kind = self.particles, self.particles.dtype
        position, ids = particles.local("position"), particles.local("id")
        if particles.domain.comm.size > 1:
            names = ("position", "id")
            self._refresh(names)
            position, ids = (particles.with_ghosts(name) for name in names)
            support, volume = self._of_ghosts(support), self._of_ghosts(volume)
        row: NDArray[np.int32] = np.arange(len(position), dtype=np.int32)
        self._shift = np.zeros((0, 3), kind)
        if any(particles.domain.periodic):
            source, self._shift = self._images(position, reach)
            position = np.concatenate((position, position[source] + self._shift))
            ids = np.append(ids, ids[source])
            row = np.append(row, source).astype(np.int32)
            support, volume = np.append(support, support[source]), np.append(volume, volume[source])
        return position, ids, support, volume, row

    def _refresh(self, names: Sequence[str]) -> None:
        for name in names:
            self.particles.mark_written(name)
        pending = self.particles.post_ghosts(names)
        if pending is not None:
            pending.wait()

    def _of_ghosts(self, values: Array) -> Array:
        """Values [count] with those of ghosts after them. Collective."""
        name = NEIGHBOUR_CHANNELS[0]
        self.particles.add_channel(name, self.particles.dtype, is_scratch=True)
        self.particles.local(name)[:] = values
        self._refresh((name,))
        return self.particles.with_ghosts(name).copy()

    def _images(self, position: Array, reach: float) -> tuple[NDArray[np.int64], Array]:
        """Rows near periodic sides, and by how much their images are moved [m]."""
        domain, kind = self.particles.domain, position.dtype
        source: NDArray[np.int64] = np.arange(len(position), dtype=np.int64)
        shift = np.zeros((len(position), 3), kind)
        for axis in np.flatnonzero(domain.periodic):
            place = position[source, axis] + shift[:, axis]
            period = kind.type(domain.upper[axis] - domain.lower[axis])
            near_lower = np.flatnonzero(place < domain.relative_lower[axis] + reach)
            near_upper = np.flatnonzero(place > domain.relative_upper[axis] - reach)
            above, below = shift[near_lower].copy(), shift[near_upper].copy()
            above[:, axis] += period
            below[:, axis] -= period
            source = np.concatenate((source, source[near_lower], source[near_upper]))
            shift = np.concatenate((shift, above, below))
        return source[len(position) :], shift[len(position) :]

    def _sort(self, position: Array, ids: Array, support: Array, volume: Array, row: Array) -> None:
        """Bring everything into search order, class by class."""
        kind = position.dtype
        member = self._members(support)
        permutation: list[Array] = []
        self._largest, self._cell, self._sorted = [], [], []
        self._begin = []  # place at which each class begins
        begin = 0
        for one, chosen in member:
            largest = self._class_largest[one]
            cell = largest + self._skin
            here = position if len(member) == 1 else np.ascontiguousarray(position[chosen])
            try:
                found = sort_particles(
                    here, ids if len(member) == 1 else ids[chosen], 8.0 * 0.5 * cell, curve=CURVE
                )
            except PositionRangeError as error:
                error.index = int(chosen[error.index])
                raise
            order = found.permutation.astype(np.int32)  # of fewer than 2^31, or lists are too long
            order = order if len(member) == 1 else chosen[order].astype(np.int32)
            padding = -len(order) % LANES
            permutation.append(np.append(order, np.repeat(order[-1:], padding)))
            self._largest.append(largest)
            self._cell.append(cell)
            self._sorted.append(found)
            self._begin.append(begin)
            begin += len(order) + padding
        order = np.concatenate([np.empty(0, np.int32), *permutation])
        self.places = len(order)
        self._entry = order  # of the rows with images
        self.rows = row[order]
        self.support = support[order]
        self.packed = np.empty((self.places, 4), kind)
        pack_places(order, position, volume, self.packed)
        self._position = position
        self._find_own(len(position) - len(self._shift))

    def _members(self, support: Array) -> list[tuple[int, NDArray[np.int64]]]:
        """Classes that have rows here, the largest first, with these rows."""
        if len(self._class_largest) == 1:
            return [(0, np.arange(len(support)))] if len(support) else []
        octave = _octaves(support, self._class_largest[0])
        member = [(one, np.flatnonzero(octave == one)) for one in sorted(self._class_largest)]
        return [(one, chosen) for one, chosen in member if len(chosen)]

    def _find_own(self, row_count: int) -> None:
        """Know which places are whose."""
        count = self.particles.count
        entry = self._entry
        last = np.ones(self.places, bool)  # a repeated one stands before its copies
        repeated = np.flatnonzero(entry[1:] == entry[:-1]) + 1
        last[repeated] = False
        mine = (entry < count) & last
        self.own = np.flatnonzero(mine).astype(np.int32)
        self._sent = self.own
        if self.particles.domain.comm.size > 1:
            self._sent = self.own[self.particles.sent_rows()[self.rows[self.own]]]
        if len(self.own) == self.places:
            self._ghost_places = self._image_places = np.empty(0, np.int64)
            self.clusters = np.arange(self.places // LANES, dtype=np.int32)
            return
        self._ghost_places = np.flatnonzero((entry >= count) & (entry < row_count))
        images = np.flatnonzero(entry >= row_count)
        place_of: NDArray[np.int64] = np.empty(row_count, np.int64)
        kept = np.flatnonzero(last & (entry < row_count))
        place_of[entry[kept]] = kept
        self._image_places = images
        self._image_source = place_of[self.rows[images]]
        self._image_shift = self._shift[entry[images] - row_count]
        used = (entry < count).reshape(-1, LANES).any(axis=1)
        self.clusters = np.flatnonzero(used).astype(np.int32)

    def _list(self) -> None:
        kind = self.packed.dtype
        axes = [np.empty(self.places + LANES, kind) for _ in range(3)]
        for axis in axes:
            axis[self.places :] = 0.0
        split_places(self._entry, self._position, *axes)
        del self._position
        order = cell_order(CURVE)
        starts, tables, states = [], [], []
        table_ends, block_first = [0], [0]
        for begin, cell, found in zip(self._begin, self._cell, self._sorted, strict=True):
            starts.append(np.empty((len(found.coords), CELLS**3 + 1), np.int32))
            find_cell_starts(
                found.offsets, found.coords, found.states, order, *axes, begin, 2.0 / cell,
                starts[-1],
            )  # fmt: skip
            tables.append(build_table(found.codes))
            states.append(found.states)
            table_ends.append(table_ends[-1] + len(tables[-1][0]))
            block_first.append(block_first[-1] + len(found.coords))
        self._sorted = []
        if not tables:
            self.first = self.last = np.empty(0, np.int64)
            self.entries = np.empty(0, np.int32)
            return
        given = (
            self.clusters, *axes, self.support, self._skin, np.array(self._largest),
            np.array(self._cell), np.concatenate([one[0] for one in tables]),
            np.concatenate([one[1] for one in tables]), np.concatenate(states), order,
            np.concatenate(starts), np.array(table_ends[:-1]), np.array(block_first[:-1]),
            np.array(table_ends[1:]),
        )  # fmt: skip
        count = len(self.clusters)
        self.first, self.last = np.empty(count, np.int64), np.empty(count, np.int64)
        # Few chunks, since the fullest says how much room all have.
        width = max(SMALLEST_CHUNK, -(-count // MOST_CHUNKS))
        used = np.zeros(-(-count // width), np.int64)
        while True:
            capacity = width * self._per_cluster
            if len(used) * capacity > LARGEST_LISTS:
                raise InputError(
                    f"{self.particles.name}: particles have too many neighbours, more than "
                    f"{self._per_cluster // 2} for each eight of them; are too many in one place, "
                    "or are some supports far larger than the others'?"
                )
            self.entries = np.empty(len(used) * capacity, np.int32)
            list_neighbours(*given, width, capacity, self.first, self.last, self.entries, used)
            most = int(used.max(initial=0))
            self._per_cluster = -(-most * 9 // (8 * width)) + LANES
            if most <= capacity:
                return
            self.entries = self.entries[:0].copy()

    # -- values by place -------------------------------------------------------------------

    def gather(self, values: Array) -> Array:
        """Values of rows [count, ...] by place, those of ghosts included. Collective."""
        found: Array = np.zeros((self.places, *values.shape[1:]), values.dtype)
        gather_places(self.rows, _table(values), _table(found))
        self.share(found)
        return found

    def scatter(self, found: Array, values: Array) -> None:
        """Write values by place to this rank's rows."""
        scatter_places(self.own, self.rows, _table(found), _table(values))

    def share(self, found: Array, *, moves: bool = False) -> None:
        """Let the places of ghosts and images have their owners' values. Collective.

        Args:
            found: Values by place, [places], or vectors in the first three columns of [places, c].
            moves: Whether they are positions, which differ between a particle and its image.
        """
        vectors = found if found.ndim == 1 else found[:, :3]
        if self.particles.domain.comm.size > 1:
            particles = self.particles
            name = NEIGHBOUR_CHANNELS[found.ndim - 1]
            particles.add_channel(name, found.dtype, vectors.shape[1:], is_scratch=True)
            scatter_places(self._sent, self.rows, _table(vectors), _table(particles.local(name)))
            self._refresh((name,))
            ghosts = particles.with_ghosts(name)[self.rows[self._ghost_places]]
            vectors[self._ghost_places] = ghosts
        if len(self._image_places):
            images = vectors[self._image_source]
            vectors[self._image_places] = images + self._image_shift if moves else images


def _table(values: Array) -> Array:
    """Values as rows of columns."""
    return values[:, None] if values.ndim == 1 else values


def _octaves(support: Array, largest: float) -> NDArray[np.int64]:
    """Number of the class of each row, 0 for the largest support of all."""
    octave = np.floor(np.log(largest / support) / np.log(CLASS_RATIO) + 1e-6)
    return np.asarray(np.maximum(octave, 0.0), np.int64)
