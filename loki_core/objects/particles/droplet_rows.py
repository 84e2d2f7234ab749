"""Droplet Rows: the droplets of a substep in the order in which contacts are looked for.

Leaf by leaf of a tree of moving boxes: first the particles, then satellites and ghosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.particle_system import ParticleSystem
from loki_core.kernels.buckets.particle_sort import PositionRangeError, sort_particles
from loki_core.kernels.particles.droplet_search import (
    LANES,
    NUMBERS,
    RADIUS,
    Contacts,
    Tree,
    build_tree,
    fill_boxes_of,
    load_droplets,
    refit_tree,
)

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

CROWDED = 1024  # particles in a Bucket above which they are sorted anew: two in a sort cell
STATE = NUMBERS + 1  # numbers of a droplet that travel between ranks, with its luggage
NONE: Int64 = np.empty(0, np.int64)


class DropletRows:
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
