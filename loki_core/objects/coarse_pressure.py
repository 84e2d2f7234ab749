"""Coarse Pressure: multipliers of a particle fluid that vary slowly, found on a lattice of cells.

Iterations from particle to particle take away what is wrong with densities over a few spacings;
over longer ways they need as many as there are particles in a row. That part is solved for on cells
of several spacings (`kernels/coarse_pressure.py`): a two-grid method, in which the number of
iterations does not grow with the depth of a liquid. Every rank has the cells of all and solves the
same system, which is small.
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
        moment: float,
        spacing: float,
    ) -> None:
        self.comm, self.active = domain.comm, active
        size = CELL * spacing
        while True:
            self._divide(domain, size)
            cells, numbers = self._occupied(own, packed)
            if self.comm.total(len(cells)) <= MOST_CELLS:
                break
            size *= 2.0
        self.first: NDArray[np.int64] = np.empty(len(cells) + 1, np.int64)
        order: NDArray[np.int64] = np.empty(len(own), np.int64)
        sort_by_cell(numbers, self.first, order)
        self.places = own[order]
        matrix = np.empty((len(cells), CORNERS, CORNERS))
        assemble_cells(
            self.first, self.places, packed, weight, active, push, moment, self.inverse,
            np.empty((len(cells), CORNERS, 3)), matrix,
        )  # fmt: skip
        self._number_corners(cells)
        self.matrix = self._of_all(matrix)

    def _divide(self, domain: GridDomain, size: float) -> None:
        """Choose cells of about a size [m], whole numbers of which fit into periodic boxes."""
        self.inverse = np.full(3, 1.0 / size)
        self.period: NDArray[np.int64] = np.zeros(3, np.int64)
        self.begin = np.zeros(3, np.int64)
        for axis in np.flatnonzero(domain.periodic):
            length = float(domain.upper[axis] - domain.lower[axis])
            self.period[axis] = max(1, round(length / size))
            self.inverse[axis] = self.period[axis] / length

    def _occupied(self, own: Array, packed: Array) -> tuple[Array, Array]:
        """Cells of this rank that have particles [n, 3], and the number of each own place's."""
        cells: NDArray[np.int32] = np.empty((len(own), 3), np.int32)
        find_cells(own, packed, self.inverse, cells)
        if not len(own):
            return cells, np.empty(0, np.int64)
        low, high = cells.min(axis=0).astype(np.int64), cells.max(axis=0).astype(np.int64)
        extent = high - low + 1
        if np.prod(extent.astype(np.float64)) > LARGEST_BOX:
            found, numbers = np.unique(cells, axis=0, return_inverse=True)
            return found, numbers.reshape(-1).astype(np.int64)
        code = cells - low.astype(np.int32)
        flat = (code[:, 0] * np.int64(extent[1]) + code[:, 1]) * np.int64(extent[2]) + code[:, 2]
        present = np.zeros(int(np.prod(extent)), bool)
        present[flat] = True
        occupied = np.flatnonzero(present)
        number: NDArray[np.int64] = np.cumsum(present) - 1
        return np.stack(np.unravel_index(occupied, tuple(extent)), axis=1) + low, number[flat]

    def _number_corners(self, cells: Array) -> None:
        """Number the corners of all ranks' cells. Collective."""
        nodes = (cells[:, None] + CORNER_OFFSETS).astype(np.int64)
        for axis in np.flatnonzero(self.period):
            nodes[..., axis] %= self.period[axis]
        half = 1 << 20
        codes = ((nodes[..., 0] + half) << 42) | ((nodes[..., 1] + half) << 21)
        codes |= nodes[..., 2] + half
        parts = self.comm.all_gather(codes.reshape(-1))
        known, numbers = np.unique(np.concatenate(parts), return_inverse=True)
        self.nodes = len(known)
        self.corners = numbers.reshape(-1, CORNERS)
        begin = sum(len(part) for part in parts[: self.comm.rank]) // CORNERS
        self.own_corners = np.ascontiguousarray(self.corners[begin : begin + len(cells)])

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
        restricted = np.empty((len(self.first) - 1, CORNERS))
        restrict_errors(
            self.first, self.places, packed, self.inverse, self.active, density, target, most,
            restricted,
        )  # fmt: skip
        parts = self._of_all(restricted)
        right = np.bincount(self.corners.reshape(-1), parts.reshape(-1), minlength=self.nodes)
        values, *scratch = np.empty((6, self.nodes))
        solve_cells(self.corners, self.matrix, right, ITERATIONS, STOP, values, *scratch)
        multiplier[:] = 0.0
        interpolate_multipliers(
            self.first, self.places, packed, self.inverse, self.active, self.own_corners, values,
            applied, multiplier,
        )  # fmt: skip
