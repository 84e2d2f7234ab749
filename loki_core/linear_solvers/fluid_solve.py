"""Linear systems whose unknowns are voxels or faces, and the solver that stays with one of them.

Callers number unknowns by their place in the channel, over local Buckets, then ghosts: a vector is
the channel's array, flat. What takes part in nothing has no entries, and lines of eight places
without any have no rows: a liquid pays for its own voxels, not for the air in its Buckets. Lines
stay whole, because products with the matrix load eight neighbours at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.errors import LokiError
from loki_core.kernels.algebra.sparse_sliced import BLOCK, dot_blocks, ordered_sum, renumber
from loki_core.kernels.basics.rows import LANES
from loki_core.linear_solvers.choice import Solver, choose_solver, solve_with_fallback
from loki_core.linear_solvers.halo import Halo
from loki_core.linear_solvers.predictor_corrector_lcp import PredictorCorrectorLcp
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from loki_core.linear_solvers.sparse_system import Boxes, SparseSystem
from loki_core.linear_solvers.system import SolveReport, Vector
from loki_core.linear_solvers.unheld_parts import constant_of, hold_unheld_parts
from loki_core.parallel.comm import Communicator

Array = NDArray[Any]
ROUGH = 1.0e-2  # tolerance at which a solution shows where bounds will hold
Fill = Callable[[Array, Array, Array], None]

ROUND_OFF = 1.0e-12  # of a right-hand side, of which only what no solution can reach was taken


def voxel_system(
    volume: DiscreteVolume,
    counts: NDArray[np.int32],
    fill: Fill,
    *,
    resolution: int,
    components: int = 1,
    is_closed: bool = False,
    may_fall_apart: bool = False,
) -> SparseSystem:
    """Assemble a symmetric positive definite system over a volume's local Buckets. Collective.

    Args:
        counts: Entries of each local row; the first is the diagonal's.
        fill: Writes all rows, given their starts [rows + 1], to columns and data.
        resolution: Unknowns along the edge of a Bucket.
        components: How often a Bucket has them.
        is_closed: Whether a constant can be added to all unknowns.
        may_fall_apart: Whether parts of the system may be cut off from the rest.
    """
    buckets, comm = volume.buckets, volume.domain.comm
    places, rows_per_bucket = len(counts), components * resolution**3
    starts = row_starts(counts)
    columns = np.empty(int(starts[-1]), np.int32)
    data = np.empty(int(starts[-1]), volume.dtype)
    fill(starts, columns, data)
    ghosts = number_ghosts(volume, columns, places, rows_per_bucket)
    used = _lines_in_use(counts)
    ghost_rows = _number_rows(used, columns, places, ghosts, comm)
    starts = np.append(starts[used], starts[-1:])
    null_space: list[Vector] = []
    if may_fall_apart:
        null_space = hold_unheld_parts(starts, columns, data, comm, ghost_rows)
    elif is_closed:
        null_space = constant_of(np.diff(starts) > 0, comm)
    boxes = Boxes.of_cubes(components * buckets.local_count, resolution)
    return SparseSystem(
        starts, columns, data, comm=comm, ghost_rows=ghost_rows, null_space=null_space,
        boxes=boxes.of_rows(used), places=used,
    )  # fmt: skip


def row_starts(counts: NDArray[np.int32]) -> Array:
    """Where the entries of each row begin, and where the last ones end: int32 if that suffices."""
    starts = np.zeros(len(counts) + 1, np.int32 if counts.sum(dtype=np.int64) < 2**31 else np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _lines_in_use(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Places of all lines of eight in which any has entries."""
    lines = np.zeros(-(-len(counts) // LANES) * LANES, np.bool_)
    np.greater(counts, 0, out=lines[: len(counts)])
    lines.reshape(-1, LANES)[lines.reshape(-1, LANES).any(axis=1)] = True
    return np.flatnonzero(lines[: len(counts)])


def _number_rows(
    used: NDArray[np.int64],
    columns: NDArray[np.int32],
    places: int,
    ghosts: NDArray[np.int64] | None,
    comm: Communicator,
) -> NDArray[np.int64] | None:
    """Turn columns that are places into rows, in place; return the rows of ghosts. Collective.

    Args:
        used: Places that are rows.
        places: How many there are here; columns from this on are ghosts.
        ghosts: Their places among those of all ranks; None on one rank.
    """
    row = np.zeros(places + (0 if ghosts is None else len(ghosts)), np.int32)
    row[used] = np.arange(len(used), dtype=np.int32)
    row[places:] = np.arange(len(used), len(used) + len(row) - places, dtype=np.int32)
    renumber(columns, row)
    if ghosts is None:
        return None
    rows = comm.all_gather(np.array([len(used)], np.int64))
    first = int(sum(int(count[0]) for count in rows[: comm.rank]))
    found: NDArray[np.int64] = Halo(comm, places).fetch(
        ghosts, row[:places].astype(np.int64) + first
    )
    return found


def number_ghosts(
    volume: DiscreteVolume, columns: Array, rows: int, rows_per_bucket: int
) -> NDArray[np.int64] | None:
    """Number the ghosts among columns, in place, from `rows` on; return their places on all ranks.

    None on one rank.
    """
    if volume.domain.comm.size == 1:
        return None
    buckets = volume.buckets
    foreign = columns >= rows
    touched, places = np.unique(columns[foreign], return_inverse=True)
    columns[foreign] = rows + places.astype(np.int32)
    bucket = touched // rows_per_bucket - buckets.local_count
    # Ranks own runs of the curve, so a row's number is its Bucket's place among all.
    ghost_rows: NDArray[np.int64] = buckets.ghosts[bucket].astype(np.int64) * rows_per_bucket
    ghost_rows += touched % rows_per_bucket
    return ghost_rows


class FluidSolve:
    """A solver that is kept from step to step, with what it prepared.

    Attributes:
        system: The system it is prepared for.
        report: What the last solve did.
        warning: What went wrong in it, or nothing.
    """

    system: SparseSystem
    report: SolveReport
    warning: str = ""

    def __init__(self) -> None:
        self._solver: Solver | None = None
        self._name = "auto"
        self._fresh_iterations: int | None = None  # of the first solve after all was made anew

    def prepare(self, system: SparseSystem, name: str, *, similar: bool = False) -> None:
        """Take a new matrix. Collective.

        Nothing of the last one is kept, so that a resumed run does the same to the last bit, unless
        the caller says that the matrix is `similar`: of the same rows, with other values, and the
        one before not from before the last checkpoint. Then coarse levels stay while they do. A
        solver that cannot be prepared is tried once more by `solve`, which then takes the next.
        """
        former, self._solver = self._solver, None
        keeps = similar and name == self._name and former is not None and self._still_good()
        self.system, self._name = system, name
        if keeps and former is not None:
            solver = former
        else:
            former = None  # frees its memory
            solver = choose_solver(system, name)
            self._fresh_iterations = None
        try:
            solver.prepare(system, "values" if keeps else None)
        except LokiError:
            return
        self._solver = solver

    def forget(self) -> None:
        """Keep nothing: the state was put back, or will be kept."""
        self._solver = None
        self._fresh_iterations = None

    def release(self) -> None:
        """Free what was prepared; the report stays."""
        self.forget()
        if hasattr(self, "system"):
            del self.system

    def _still_good(self) -> bool:
        """Whether the last solve took not many more iterations than the first did."""
        first = self._fresh_iterations
        if first is None or self.report.fell_back_from is not None:
            return False
        return self.report.iterations <= first + max(2, first // 2)

    def dot(self, x: Vector, y: Vector) -> float:
        """Inner product of two vectors over the unknowns of all ranks. Collective."""
        rows = self.system.places
        return self.system.dot(x[rows], y[rows])

    def attainable(self, b: Vector, faces: Array, tolerance: float) -> float:
        """Tolerance that is not below the round-off of the velocities behind b. Collective.

        In still air all of b is round-off: no pressure could take that away.
        """
        flat = faces.reshape(-1)
        partial = np.empty(-(-flat.size // BLOCK))
        dot_blocks(flat, flat, partial)
        speeds = self.system.comm.all_reduce(np.array([ordered_sum(partial)]), "sum")[0]
        scale = np.sqrt(self.dot(b, b))
        if not scale > 0.0:
            return tolerance
        noise = 0.5 * float(np.finfo(faces.dtype).eps) * np.sqrt(speeds)
        return float(min(0.5, max(tolerance, noise / scale)))

    def solve(self, b: Vector, x: Vector, *, tol: float, max_iterations: int) -> SolveReport:
        """Improve x; another solver takes over where this one fails. Collective.

        What no x can reach, such as the net flux of a closed box, is taken out of b in place.
        """
        rows = self.system.places
        own_b, own_x = b[rows], x[rows]
        self._solve(own_b, own_x, tol, max_iterations)
        b[rows], x[rows] = own_b, own_x
        return self.report

    def _solve(self, b: Vector, x: Vector, tol: float, max_iterations: int) -> None:
        """Do that for vectors of rows."""
        size = self.system.dot(b, b) if self.system.null_space else 0.0
        for null in self.system.null_space:
            b -= self.system.dot(null, b) * null
        if size > 0.0 and self.system.dot(b, b) <= ROUND_OFF**2 * size:
            b[:] = 0.0  # the rest is round-off, which no x could take away either
        self.report = solve_with_fallback(
            self.system, b, x, name=self._name, solver=self._solver, tol=tol,
            max_iterations=max_iterations,
        )  # fmt: skip
        self.warning = self.report.warning
        if self._fresh_iterations is None and self.report.fell_back_from is None:
            self._fresh_iterations = self.report.iterations

    def solve_bounded(
        self,
        b: Vector,
        x: Vector,
        bounded: NDArray[np.bool_],
        *,
        tol: float,
        bound_tol: float,
        max_iterations: int,
        least: float | Vector = 0.0,
    ) -> bool:
        """Improve x, of which no bounded unknown may be below `least`. Collective.

        Where one would be, it is that and its row of A x - b above 0 instead. A part that nothing
        holds, such as a box that is full, has any constant that suits: its lowest bounded unknown
        is `least`.

        Args:
            bound_tol: Largest complementarity that is left where a bound holds, over that of b.

        Returns:
            Whether a bound holds anywhere.
        """
        rows = self.system.places
        own_b, own_x = b[rows], x[rows]
        own_least = least[rows] if isinstance(least, np.ndarray) else np.full(len(own_x), least)
        holds = self._solve_bounded(
            own_b, own_x, bounded[rows], own_least, tol, bound_tol, max_iterations
        )
        b[rows], x[rows] = own_b, own_x
        return holds

    def _solve_bounded(
        self,
        b: Vector,
        x: Vector,
        bounded: NDArray[np.bool_],
        least: Vector,
        tol: float,
        bound_tol: float,
        max_iterations: int,
    ) -> bool:
        """Do that for vectors of rows."""

        def is_below() -> bool:
            self._raise_free_parts(x, bounded, least)
            return self.system.comm.any(bool(np.any(bounded & (x < least))))

        # Whether bounds hold is mostly clear from a rough solution.
        self._solve(b, x, max(tol, ROUGH), max_iterations)
        if not is_below():
            rough = self.report.iterations
            self._solve(b, x, tol, max_iterations)
            self.report = replace(self.report, iterations=rough + self.report.iterations)
            if not is_below():
                return False
        before, solver, known = self.report.iterations, PredictorCorrectorLcp(), self._solver
        solver.prepare(
            self.system, predictor=known if isinstance(known, SmoothedAggregation) else None
        )
        lower = np.where(bounded, least, -np.inf)
        report = solver.solve(-b, x, lower=lower, tol=bound_tol, max_iterations=max_iterations)
        self.report = replace(report, iterations=before + report.iterations)
        if not report.converged:
            self.warning = (
                f"walls that let go: complementarity {report.residual:.2g} after "
                f"{report.iterations} iterations, wanted {bound_tol:.2g}"
            )
        return True

    def _raise_free_parts(self, x: Vector, bounded: NDArray[np.bool_], least: Vector) -> None:
        """Give parts that nothing holds the constant that suits their bounds. Collective."""
        for null in self.system.null_space:
            part = null > 0.0
            above = (x - least)[part & bounded]
            lowest = -self.system.comm.maximum(float(np.max(-above, initial=-np.inf)))
            if np.isfinite(lowest):
                x[part] -= lowest
