"""Bodies with Lagrange multipliers: Constraints in compliance mode, as a System.

    [ A   G^T ] [ x ]   [ b ]          A: bodies and what joins them, spd
    [ G   -c  ] [ y ] = [ g ]          c > 0: compliance of each row of G

It is symmetric quasi-definite (Vanderbei 1995): its factors exist for any order of the unknowns. A
stiff Constraint has a small c, a rigid one none to speak of, and the system is as well conditioned
as before, where a stiffness 1 / c added to A would not be (Tournier et al. 2015).

Vectors are this rank's unknowns x, followed by its multipliers y. Rows whose compliance is infinite
are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.solids.constraint_assembly import predict_tension, scatter_forces
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.halo import Halo
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_core.linear_solvers.system import Rows, Vector
from loki_core.parallel.reduce import exact_sum

Array = NDArray[Any]
Int64 = NDArray[np.int64]


@dataclass
class MultiplierBlock:
    """Rows of G of one Constraint: elements of m rows over d unknowns.

    Attributes:
        runs: Elements of each own body; where bodies are joined there are no runs, [1].
        dofs: Unknowns of each element, own ones and then ghosts of the bodies, int32 [n, d].
        gradient: Entries, 0 for prescribed unknowns, [n, m, d].
        compliance: c, infinite where there is no row, [n, m].
        firmness: Stiffness that A has for each row already, [n, m]; it guides the preconditioner.
        is_owner: Elements whose multipliers are this rank's unknowns, [n].
        numbers: What all ranks call the elements, [n].
    """

    runs: Int64
    dofs: NDArray[np.int32]
    gradient: Vector
    compliance: Vector
    firmness: Vector
    is_owner: NDArray[np.bool_]
    numbers: Int64
    rows: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = np.isfinite(self.compliance) & self.is_owner[:, None]

    @property
    def joins_bodies(self) -> bool:
        return len(self.runs) == 1 and len(self.dofs) > 0


class MultiplierSystem:
    """Bodies and multipliers, this rank's part. Making one is collective."""

    kind = "quasi-definite"
    block_size = 1
    near_null_space: Sequence[Array] | None = None

    def __init__(
        self, bodies: BodySystem, blocks: Sequence[MultiplierBlock], fixed: NDArray[np.uint8]
    ) -> None:
        self.bodies, self.blocks, self.fixed = bodies, list(blocks), fixed
        self.comm = bodies.comm
        self.null_space: list[Vector] = []
        counts = [int(np.count_nonzero(block.rows)) for block in blocks]
        self.starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self.multipliers = int(self.starts[-1])
        self.size = bodies.size + self.multipliers
        self.joins_bodies = self.comm.any(any(block.joins_bodies for block in blocks))
        self._whole: SparseSystem | None = None
        self.total_size = self.comm.total(self.size)

    def split(self, vector: Vector) -> tuple[Vector, Vector]:
        """Views of the unknowns of bodies and of the multipliers."""
        return vector[: self.bodies.size], vector[self.bodies.size :]

    # -- rows of elements that lie in own bodies -------------------------------------------

    def strains(self, x: Vector, out: Vector) -> None:
        """Write G x for own unknowns [bodies.size] to out [multipliers]."""
        for number, block in enumerate(self.blocks):
            shape = block.compliance.shape
            found = np.empty(shape)
            nothing, one = np.zeros(shape), np.ones(shape)
            predict_tension(block.dofs, block.gradient, nothing, one, x, found)
            out[self.starts[number] : self.starts[number + 1]] = found[block.rows]

    def subtract_forces(self, y: Vector, out: Vector) -> None:
        """Subtract G^T y of multipliers from out [bodies.size]."""
        for number, block in enumerate(self.blocks):
            tension = np.zeros(block.compliance.shape)
            tension[block.rows] = y[self.starts[number] : self.starts[number + 1]]
            scatter_forces(block.runs, block.dofs, block.gradient, tension, self.fixed, out)

    def of_rows(self, name: str) -> Vector:
        """A quantity of the blocks' rows, one for each multiplier."""
        parts = [getattr(block, name)[block.rows] for block in self.blocks]
        return np.concatenate([np.empty(0), *parts])

    def dot_multipliers(self, y: Vector, z: Vector) -> float:
        """Inner product of multipliers; it depends on neither threads nor ranks. Collective."""
        return exact_sum(self.comm, y * z)

    # -- the whole matrix ------------------------------------------------------------------

    @property
    def whole(self) -> SparseSystem:
        """The same as one sparse matrix. Collective at the first call."""
        if self._whole is None:
            self._whole = self._assemble()
        return self._whole

    @property
    def is_local(self) -> bool:
        """Whether nothing joins unknowns of two ranks. Collective."""
        return self.comm.size == 1 or not self.comm.any(len(self.halo.ghost_rows) > 0)

    @property
    def halo(self) -> Halo:
        return self.whole.halo

    def multiply(self, x: Vector, out: Vector) -> None:
        """Write the product with x to out. Collective."""
        self.whole.multiply(x, out)

    def dot(self, x: Vector, y: Vector) -> float:
        """Inner product over all ranks. Collective."""
        return self.whole.dot(x, y)

    def diagonal(self) -> Vector:
        return np.concatenate((self.bodies.diagonal(), -self.of_rows("compliance")))

    def csr(self) -> Rows:
        return self.whole.csr()

    def rows_with_zeros(self) -> Rows:
        """As `csr`, with entries that are 0 now: a pattern that stays. Collective at first."""
        assert self.whole is not None
        return self._rows

    def _assemble(self) -> SparseSystem:
        """One matrix, its unknowns numbered rank by rank: bodies, then multipliers. Collective."""
        bodies, size = self.bodies, self.bodies.size
        sizes = np.concatenate(self.comm.all_gather(np.array([size], np.int64)))
        counts = np.concatenate(self.comm.all_gather(np.array([self.multipliers], np.int64)))
        before = np.cumsum(counts) - counts  # multipliers of lower ranks
        ends = np.cumsum(sizes)

        # Numbers of the columns of the bodies' matrix among all unknowns of all ranks.
        plain = bodies.halo.column_rows()
        column = plain + before[np.searchsorted(ends, plain, side="right")]
        first = int(ends[self.comm.rank] - size + before[self.comm.rank])
        indptr, indices, data = bodies.csr(zeros=True)
        rows = [np.repeat(np.arange(size), np.diff(indptr))]
        columns, values = [column[indices]], [data]
        for number, block in enumerate(self.blocks):
            place = self._places(block, first + size + int(self.starts[number]))
            n, m, d = block.gradient.shape
            # Zeros stay: in the next step they may be none, and the pattern is worth keeping.
            there = np.repeat(place >= 0, d).reshape(n, m, d)
            dof = np.broadcast_to(block.dofs[:, None, :], (n, m, d))[there]
            row = np.broadcast_to(place[:, :, None], (n, m, d))[there]
            entry = block.gradient[there]
            own = dof < size  # G^T, in the rows of own unknowns
            rows.append(dof[own].astype(np.int64))
            columns.append(row[own])
            values.append(entry[own])
            mine = np.broadcast_to(block.rows[:, :, None], (n, m, d))[there]  # G
            rows.append(row[mine] - first)
            columns.append(column[dof[mine]])
            values.append(entry[mine])
            own_rows = place[block.rows]
            rows.append(own_rows - first)
            columns.append(own_rows)
            values.append(-block.compliance[block.rows])
        return self._compressed(
            np.concatenate(rows), np.concatenate(columns), np.concatenate(values), first
        )

    def _places(self, block: MultiplierBlock, first: int) -> Int64:
        """Number of each row's multiplier among all unknowns, -1 without one, [n, m]. Collective.

        Args:
            first: Number of the first of the block's own multipliers.
        """
        place = np.full(block.compliance.shape, -1, np.int64)
        place[block.rows] = first + np.arange(np.count_nonzero(block.rows))
        if self.comm.size == 1 or not self.comm.any(block.joins_bodies):
            return place
        m = block.compliance.shape[1]
        key = block.numbers[:, None] * m + np.arange(m)
        keys = np.concatenate(self.comm.all_gather(key[block.rows]))
        places = np.concatenate(self.comm.all_gather(place[block.rows]))
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
        foreign = ~block.is_owner
        at = np.minimum(np.searchsorted(keys, key[foreign]), max(len(keys) - 1, 0))
        if len(keys):
            place[foreign] = np.where(keys[at] == key[foreign], places[at], -1)
        return place

    def _compressed(self, rows: Int64, columns: Int64, values: Vector, first: int) -> SparseSystem:
        own = (columns >= first) & (columns < first + self.size)
        ghosts = np.unique(columns[~own])
        local = np.where(own, columns - first, self.size + np.searchsorted(ghosts, columns))
        width = self.size + len(ghosts)
        order = np.argsort(rows * max(width, 1) + local, kind="stable")
        indptr = np.zeros(self.size + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=self.size), out=indptr[1:])
        self._rows = indptr, local[order].astype(np.int32), values[order]
        return SparseSystem(
            indptr.astype(np.int32), *self._rows[1:], comm=self.comm, ghost_rows=ghosts,
            kind=self.kind,
        )  # fmt: skip
