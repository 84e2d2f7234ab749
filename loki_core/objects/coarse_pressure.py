"""Coarse Pressure: multipliers of a particle fluid that vary slowly, found on a lattice of cells.

Iterations from particle to particle take away what is wrong with densities over a few spacings;
over longer ways they need as many as there are particles in a row. That part is solved for on cells
of several spacings (`kernels/coarse_pressure.py`): a two-grid method, in which the number of
iterations does not grow with the depth of a liquid. Every rank has the cells of all and solves the
same system, which is small.

A part of the liquid without a free surface bears any pressure, and no displacement makes it less
dense on the whole: there the mean of the errors is left out, and that of the multipliers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import GridDomain
from loki_core.kernels.coarse_pressure import (
    CORNERS,
    assemble_cells,
    find_cells,
    interpolate_multipliers,
    restrict_errors,
    solve_cells,
    sort_by_cell,
)

Array = NDArray[Any]

CELL = 4.0  # spacings
MOST_CELLS = 1 << 16  # of all ranks; beyond, cells are larger
LARGEST_BOX = 1 << 24  # cells around all, up to which they are numbered by their place
ITERATIONS, STOP = 100, 1e-12  # so that any number of ranks finds the same
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
            if self._count_of_all(cells) <= MOST_CELLS:
                break
            size *= 2.0
        self.cells = cells
        self.first: NDArray[np.int64] = np.empty(len(cells) + 1, np.int64)
        order: NDArray[np.int64] = np.empty(len(own), np.int64)
        sort_by_cell(numbers, self.first, order)
        self.places = own[order]
        matrix = np.empty((len(cells), CORNERS, CORNERS))
        assemble_cells(
            cells, self.first, self.places, packed, weight, active, push, hold, moment,
            self.inverse,
            np.empty((len(cells), CORNERS, 3)), matrix,
        )  # fmt: skip
        self._number_corners(cells)
        self.matrix = self._of_all(matrix)
        self._find_closed_parts(packed, density)

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

    def _count_of_all(self, cells: Array) -> int:
        """How many cells all ranks have together, those that they share once. Collective."""
        return len(np.unique(np.concatenate(self.comm.all_gather(_codes(cells)))))

    def _number_corners(self, cells: Array) -> None:
        """Number the corners of all ranks' cells. Collective."""
        nodes = (cells[:, None] + CORNER_OFFSETS).astype(np.int64)
        for axis in np.flatnonzero(self.period):
            nodes[..., axis] %= self.period[axis]
        parts = self.comm.all_gather(_codes(nodes.reshape(-1, 3)))
        known, numbers = np.unique(np.concatenate(parts), return_inverse=True)
        self.nodes = len(known)
        self.corners = numbers.reshape(-1, CORNERS)
        begin = sum(len(part) for part in parts[: self.comm.rank]) // CORNERS
        self.own_corners = np.ascontiguousarray(self.corners[begin : begin + len(cells)])

    def _find_closed_parts(self, packed: Array, density: Array) -> None:
        """Number the parts of the liquid that hang together and have no surface. Collective."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        lowest = (
            np.minimum.reduceat(density[self.places], self.first[:-1])
            if len(self.places)
            else np.empty(0)
        )
        has_surface = self._of_all((lowest < SURFACE).astype(np.float64)) > 0.0
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
        restricted = np.empty((len(self.first) - 1, CORNERS))
        restrict_errors(
            self.cells, self.first, self.places, packed, self.inverse, self.active, density, target,
            most, restricted,
        )  # fmt: skip
        parts = self._of_all(restricted).reshape(-1)
        return np.bincount(self.corners.reshape(-1), parts, minlength=self.nodes)

    def _of_all(self, values: Array) -> Array:
        """Values of the cells of all ranks. Collective."""
        if self.comm.size == 1:
            return values
        whole = np.concatenate(self.comm.all_gather(np.ascontiguousarray(values).reshape(-1)))
        return whole.reshape(-1, *values.shape[1:])

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
