"""Direct solution by sparse factorisation: the fail-safe for systems of moderate size.

scipy's SuperLU, or PARDISO where `pypardiso` is installed. On several ranks the system is gathered
and factorised on each of them. A singular system is bordered by its null space. Definite and
quasi-definite matrices need no pivoting (Vanderbei 1995): SuperLU then orders them by their own
graph, and fills in a third. Where rounding shows that one was neither, it is factorised once more.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from loki_core.errors import DivergenceError, SetupError
from loki_core.linear_solvers.multiplier_system import MultiplierSystem
from loki_core.linear_solvers.pardiso import Pardiso, is_there
from loki_core.linear_solvers.system import SolveReport, Vector

Solve = Callable[[Vector], Vector]

SIZE_LIMIT = 150_000  # unknowns over all ranks: fill-in in three dimensions grows as n^(4/3)
SMALL = 20_000  # unknowns up to which PARDISO takes longer to be found than SuperLU to factorise
EPSILON = float(np.finfo(np.float64).eps)


class Direct:
    """Factorise in `prepare`, substitute in `solve`; for systems of any kind."""

    name = "direct"

    def __init__(self, *, size_limit: int = SIZE_LIMIT) -> None:
        self.size_limit = size_limit
        self.system: Any
        self._factors: Solve | None = None
        self._pardiso: Pardiso | None = None
        self._back_end = ""

    def prepare(self, system: Any, reuse: str | None = None) -> None:
        """Gather and factorise; reuse = "values" keeps the factors of that system. Collective."""
        if system.total_size > self.size_limit:
            raise SetupError(
                f"a direct solve of {system.total_size} unknowns would need too much memory (limit "
                f"{self.size_limit}); raise Direct(size_limit=...) or use smoothed_aggregation"
            )
        if reuse == "values" and self._factors is not None and system is self.system:
            return
        self.system = system
        # |A| is at least its largest diagonal entry: a residual of eps |A| |x| is rounding.
        own = float(np.abs(system.diagonal()).max(initial=0.0))
        self._rounding_unit = 2.0 * EPSILON * system.comm.maximum(own)
        self._factorise(pivots=system.kind == "general" or bool(system.null_space))

    def _factorise(self, *, pivots: bool) -> None:
        """Gather the matrix and factorise it on every rank. Collective."""
        system = self.system
        self._pivots = pivots
        comm, halo = system.comm, system.halo
        indptr, indices, data = system.csr()
        own = np.repeat(np.arange(system.size, dtype=np.int64), np.diff(indptr)) + halo.first
        rows = np.concatenate(comm.all_gather(own))
        columns = np.concatenate(comm.all_gather(halo.column_rows()[indices]))
        values = np.concatenate(comm.all_gather(data.astype(np.float64)))
        self._empty = np.bincount(rows, minlength=system.total_size) == 0
        nulls = [np.concatenate(comm.all_gather(null)) for null in system.null_space]
        error = None
        try:
            matrix = _whole_matrix(system.total_size, rows, columns, values, self._empty, nulls)
            self._factors = self._factors_of(matrix, pivots=pivots)
        except (RuntimeError, MemoryError, ValueError) as failure:
            self._factors = None
            error = DivergenceError(
                f"the direct solver could not factorise {system.total_size} unknowns: {failure}"
            )
        comm.raise_together(error)

    def _factors_of(self, matrix: Any, *, pivots: bool) -> Solve:
        """A function that solves with the whole matrix; notes which library does."""
        size, empty = self.system.total_size, self._empty
        self._back_end = "superlu"
        if size == 0:
            return lambda b: b
        solve: Solve | None = None
        if size > SMALL and is_there():
            solve = self._by_pardiso(matrix, "general" if pivots else self.system.kind)
        if solve is None:
            solve = _superlu(matrix, pivots=pivots)

        def solve_whole(b: Vector) -> Vector:
            padded = np.zeros(matrix.shape[0])
            padded[:size] = b
            return np.where(empty, 0.0, solve(padded)[:size])

        return solve_whole

    def _by_pardiso(self, matrix: Any, kind: str) -> Solve | None:
        """PARDISO's solve, whose analysis is kept; None where SuperLU has to take its place."""
        try:
            if self._pardiso is None or self._pardiso.kind != kind:
                self._pardiso = Pardiso(kind)
            self._pardiso.factor(matrix)
        except Exception as failure:  # the library's own errors derive from nothing more specific
            self._pardiso = None
            self._back_end = f"superlu (pardiso failed: {failure})"
            return None
        self._back_end = "pardiso"
        return self._pardiso.solve

    def solve(
        self, b: Vector, x: Vector, *, tol: float = 1e-8, max_iterations: int = 3
    ) -> SolveReport:
        """Solve, and refine until |b - A x| <= tol |b| or the rest is rounding. Collective."""
        start, before = perf_counter(), x.copy()
        report = self._refine(b, x, tol, max_iterations, start)
        if not report.converged and not self._pivots:
            self._factorise(pivots=True)
            x[:] = before
            report = self._refine(b, x, tol, max_iterations, start)
        return report

    def _refine(
        self, b: Vector, x: Vector, tol: float, max_iterations: int, start: float
    ) -> SolveReport:
        system = self.system
        halo = system.halo
        empty = self._empty[halo.first : halo.first + system.size]
        b = np.where(empty, 0.0, b)
        for null in system.null_space:
            b = b - system.dot(null, b) * null
        scale = math.sqrt(system.dot(b, b))
        product = np.empty_like(b)
        if system.null_space or scale == 0.0:
            x[~empty] = 0.0
        iterations, norm = 0, math.inf
        while True:
            system.multiply(x, product)
            residual = b - product
            norm = math.sqrt(system.dot(residual, residual))
            done = not norm > tol * scale or not math.isfinite(norm)
            if iterations == 1 and not self._pivots and norm > 0.0 and math.isfinite(norm):
                done = False  # without pivots the first answer is the lesser one: refine it once
            if done or iterations >= max(1, min(max_iterations, 3)):
                break
            whole = np.concatenate(system.comm.all_gather(residual))
            assert self._factors is not None
            x += self._factors(whole)[halo.first : halo.first + system.size]
            iterations += 1
        rounding = self._rounding_unit * math.sqrt(self._square(x))
        return SolveReport(
            self.name,
            system.total_size,
            iterations,
            perf_counter() - start,
            norm / scale if scale > 0.0 else 0.0,
            math.isfinite(norm) and norm <= max(tol * scale, rounding),
            back_end=self._back_end,
        )

    def _square(self, x: Vector) -> float:
        """Square of the unknowns that the largest entries of the matrix belong to. Collective."""
        system = self.system
        if not isinstance(system, MultiplierSystem):
            return float(system.dot(x, x))
        places = system.split(x)[0]  # not the multipliers, which have another unit
        return float(system.bodies.dot(places, places))


def _whole_matrix(
    size: int, rows: Any, columns: Any, values: Any, empty: Any, nulls: list[Vector]
) -> Any:
    """The gathered matrix, with ones for unknowns that take part in nothing, and its border."""
    sparse = importlib.import_module("scipy.sparse")
    idle = np.flatnonzero(empty)
    all_rows = np.concatenate((rows, idle))
    all_columns = np.concatenate((columns, idle))
    entries = np.concatenate((values, np.ones(idle.size)))
    matrix = sparse.csc_matrix((entries, (all_rows, all_columns)), shape=(size, size))
    if nulls:
        border = sparse.csc_matrix(np.stack(nulls, axis=1))
        matrix = sparse.bmat([[matrix, border], [border.T, None]], format="csc")
    return matrix


def _superlu(matrix: Any, *, pivots: bool) -> Solve:
    """Solve by SuperLU's factors."""
    options: dict[str, Any] = {}
    if not pivots:
        options = {
            "permc_spec": "MMD_AT_PLUS_A",
            "diag_pivot_thresh": 0.0,
            "options": {"SymmetricMode": True},
        }
    solve: Solve = importlib.import_module("scipy.sparse.linalg").splu(matrix, **options).solve
    return solve
