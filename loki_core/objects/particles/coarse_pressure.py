"""Coarse Pressure: multipliers of a particle fluid that vary slowly, found on a lattice of cells.

Iterations from particle to particle take away what is wrong with densities over a few spacings;
over longer ways they need as many as there are particles in a row. That part is solved for on cells
of several spacings (`kernels/particles/coarse_pressure.py`): a two-grid method, in which the number
of iterations does not grow with the depth of a liquid. Every rank has the cells of all, in one
order, and solves the same system, which is small: the same to the last bit for any number of ranks.

A part of the liquid without a free surface bears any pressure, and no displacement makes it less
dense on the whole: there the mean of the errors is left out, and that of the multipliers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import GridDomain
from loki_core.kernels.particles.coarse_pressure import (
    CORNERS,
    ENTRIES,
    assemble_cells,
    bound_entries,
    find_cells,
    interpolate_multipliers,
    restrict_errors,
    solve_cells,
    sort_by_cell,
    unfold_matrices,
)
from loki_core.parallel.reduce import fixed_point_scale, of_limbs

Array = NDArray[Any]

CELL = 4.0  # spacings
MOST_CELLS = 1 << 16  # of all ranks; beyond, cells are larger
LARGEST_BOX = 1 << 24  # cells around all, up to which they are numbered by their place
ITERATIONS, STOP = 100, 1e-12
#: Density below which a particle is at a free surface; a flat one has 0.88.
SURFACE = 0.93
CORNER_OFFSETS = np.array([(c >> 2, (c >> 1) & 1, c & 1) for c in range(CORNERS)])


class CoarsePressure:
    """The cells around the particles of one step, for one set of particles under pressure.

    Args:
        domain: Of the particles.
        packed: x, y, z [m] and volume [m^3] by place, [places, 4].
        own: Places of this rank's particles.
        weight: Density of places over the Object's, or one for all.
        active: Which places are under pressure, 1 or 0, [places].
        push: What a multiplier of 1 at all of these displaces places by, times weight [3, places].
        hold: Response of places of their own where few neighbours are under pressure [1/m^2].
        density: Of places over that at rest, walls included.
        moment: Of the kernel.
        spacing: Of particles [m], the largest of all ranks.
    """

    def __init__(
        self,
        domain: GridDomain,
        *,
        packed: Array,
        own: Array,
        weight: Array,
        active: Array,
        push: Array,
        hold: Array,
        density: Array,
        moment: float,
        spacing: float,
    ) -> None:
        self.comm, self.active = domain.comm, active
        size = CELL * spacing
        while True:
            self._divide(domain, size)
            cells, numbers = self._occupied(own, packed)
            self._agree_on(cells)
            if len(self.known) <= MOST_CELLS:
                break
            size *= 2.0
        self.cells = cells
        self.first: NDArray[np.int64] = np.empty(len(cells) + 1, np.int64)
        order: NDArray[np.int64] = np.empty(len(own), np.int64)
        sort_by_cell(numbers, self.first, order)
        self.places = own[order]
        self._number_corners()
        self.largest_volume = self.comm.maximum(float(packed[own, 3].max(initial=0.0)))
        self._assemble(packed, weight, active, push, hold, moment)
        self._find_closed_parts(packed, density)

    def _assemble(
        self, packed: Array, weight: Array, active: Array, push: Array, hold: Array, moment: float
    ) -> None:
        """Fill the matrices of all ranks' cells. Collective."""
        given = (packed, weight, active, push, hold, moment, self.inverse)
        bounds = np.empty(len(self.places))
        bound_entries(self.places, *given, bounds)
        scale = fixed_point_scale(self.comm.maximum(float(bounds.max(initial=0.0))))
        count = len(self.cells)
        limbs = np.empty((count, ENTRIES, 2), np.int64)
        scratch = np.empty((count, CORNERS, 3))
        assemble_cells(self.cells, self.first, self.places, *given, scale, scratch, limbs)
        entries = of_limbs(self._of_all(limbs), scale)
        self.matrix = np.empty((len(entries), CORNERS, CORNERS))
        unfold_matrices(entries, self.matrix)

    def _divide(self, domain: GridDomain, size: float) -> None:
        """Choose cells of about a size [m], whole numbers of which fit into periodic boxes."""
        self.inverse = np.full(3, 1.0 / size)
        self.period: NDArray[np.int64] = np.zeros(3, np.int64)
        for axis in np.flatnonzero(domain.periodic):
            length = float(domain.upper[axis] - domain.lower[axis])
            self.period[axis] = max(1, round(length / size))
            self.inverse[axis] = self.period[axis] / length

    def _occupied(self, own: Array, packed: Array) -> tuple[Array, Array]:
        """Cells of this rank that have particles [n, 3], and the number of each own place's."""
        cells: NDArray[np.int32] = np.empty((len(own), 3), np.int32)
        find_cells(own, packed, self.inverse, cells)
        if not len(own):
            return cells.astype(np.int64), np.empty(0, np.int64)
        low, high = cells.min(axis=0).astype(np.int64), cells.max(axis=0).astype(np.int64)
        extent = high - low + 1
        if np.prod(extent.astype(np.float64)) > LARGEST_BOX:
            found, numbers = np.unique(cells, axis=0, return_inverse=True)
            return found.astype(np.int64), numbers.reshape(-1).astype(np.int64)
        code = cells - low.astype(np.int32)
        flat = (code[:, 0] * np.int64(extent[1]) + code[:, 1]) * np.int64(extent[2]) + code[:, 2]
        present = np.zeros(int(np.prod(extent)), bool)
        present[flat] = True
        occupied = np.flatnonzero(present)
        number: NDArray[np.int64] = np.cumsum(present) - 1
        return np.stack(np.unravel_index(occupied, tuple(extent)), axis=1) + low, number[flat]

    def _agree_on(self, cells: Array) -> None:
        """Number the cells of all ranks, those that they share once, by their place. Collective."""
        parts = self.comm.all_gather(_codes(cells))
        codes, numbers = np.unique(np.concatenate(parts), return_inverse=True)
        self.known = _places(codes)
        self.numbers = numbers.reshape(-1)  # of the cells of each rank, rank after rank
        begin = sum(len(part) for part in parts[: self.comm.rank])
        self.own_numbers = self.numbers[begin : begin + len(cells)]

    def _number_corners(self) -> None:
        """Number the corners of all ranks' cells."""
        nodes = self.known[:, None] + CORNER_OFFSETS
        for axis in np.flatnonzero(self.period):
            nodes[..., axis] %= self.period[axis]
        codes, numbers = np.unique(_codes(nodes.reshape(-1, 3)), return_inverse=True)
        self.nodes = len(codes)
        self.corners = numbers.reshape(-1, CORNERS)
        self.own_corners = np.ascontiguousarray(self.corners[self.own_numbers])

    def _find_closed_parts(self, packed: Array, density: Array) -> None:
        """Number the parts of the liquid that hang together and have no surface. Collective."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        lowest = (
            np.minimum.reduceat(density[self.places], self.first[:-1])
            if len(self.places)
            else np.empty(0)
        )
        has_surface = self._of_all((lowest < SURFACE).astype(np.int64)) > 0
        ends = self.corners[:, 1:].reshape(-1)
        begins = np.repeat(self.corners[:, 0], CORNERS - 1)
        links = coo_matrix((np.ones(len(ends)), (begins, ends)), shape=(self.nodes, self.nodes))
        count, part = connected_components(links, directed=False)
        is_open = np.zeros(count, bool)
        is_open[part[self.corners[has_surface, 0]]] = True
        self.part: NDArray[np.int64] = np.where(is_open[part], -1, part)
        self.share = np.empty(0)  # volume of each node of closed parts
        if is_open.all():
            return
        volume = self._restrict(packed, np.zeros(len(density)), np.ones(1), 1.0)
        self.share = np.where(self.part < 0, 0.0, volume)

    def _without_mean(self, values: Array, *, weigh: bool) -> Array:
        """Values of nodes less their mean over each closed part; sums of them, if they weigh."""
        if not len(self.share):
            return values
        inside = self.part >= 0
        part, share, own = self.part[inside], self.share[inside], values[inside]
        total = np.maximum(np.bincount(part, share), 1e-300)
        mean = np.bincount(part, own if weigh else own * share) / total
        values = values.copy()
        values[inside] -= mean[part] * (share if weigh else 1.0)
        return values

    def _restrict(self, packed: Array, density: Array, target: Array, most: float) -> Array:
        """Minus the errors, by node. Collective."""
        scale = fixed_point_scale(self.largest_volume * most)
        limbs = np.empty((len(self.cells), CORNERS, 2), np.int64)
        restrict_errors(
            self.cells, self.first, self.places, packed, self.inverse, self.active, density, target,
            most, scale, limbs,
        )  # fmt: skip
        parts = of_limbs(self._of_all(limbs), scale).reshape(-1)
        return np.bincount(self.corners.reshape(-1), parts, minlength=self.nodes)

    def _of_all(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums of integers of the cells over all ranks, in the cells' common order. Collective."""
        if self.comm.size == 1:
            return values
        parts = np.concatenate(self.comm.all_gather(values.reshape(-1)))
        sums: NDArray[np.int64] = np.zeros((len(self.known), *values.shape[1:]), np.int64)
        np.add.at(sums, self.numbers, parts.reshape(-1, *values.shape[1:]))
        return sums

    def correct(
        self, packed: Array, density: Array, target: Array, most: float, applied: Array,
        multiplier: Array,
    ) -> None:  # fmt: skip
        """Fill multiplier with what is to be added to `applied`. Collective.

        Args:
            density: By place, walls included; target is what it should be, [places] or [1].
            most: Largest error that is answered.
        """
        right = self._without_mean(self._restrict(packed, density, target, most), weigh=True)
        values, *scratch = np.empty((6, self.nodes))
        solve_cells(self.corners, self.matrix, right, ITERATIONS, STOP, values, *scratch)
        values = self._without_mean(values, weigh=False)
        multiplier[:] = 0.0
        interpolate_multipliers(
            self.cells, self.first, self.places, packed, self.inverse, self.active,
            self.own_corners, values, applied, multiplier,
        )  # fmt: skip


def _codes(places: Array) -> NDArray[np.int64]:
    """One number for each of some places on the lattice [n, 3]."""
    shifted = places.astype(np.int64) + (1 << 20)
    codes: NDArray[np.int64] = (shifted[:, 0] << 42) | (shifted[:, 1] << 21) | shifted[:, 2]
    return codes


def _places(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places [n, 3] that have these numbers."""
    parts = (codes >> 42, codes >> 21 & 0x1FFFFF, codes & 0x1FFFFF)
    return np.stack(parts, axis=1) - (1 << 20)
