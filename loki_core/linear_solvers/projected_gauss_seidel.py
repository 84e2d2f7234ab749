"""Projected Gauss-Seidel (PGS) for mixed linear complementarity problems.

Each unknown in turn is solved from its own row and moved into its bounds. Rows are visited colour
by colour, so the result does not depend on threads. Across ranks, values are exchanged before every
colour. Rows for which there is no colour left, of which some have 63 neighbours or more, come last,
one by one.
"""

from __future__ import annotations

from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import SetupError
from loki_core.kernels.algebra.sparse_gauss_seidel import greedy_colours, project_rows
from loki_core.linear_solvers.complementarity import Bound, ComplementarityProblem
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_core.linear_solvers.system import SolveReport, Vector

CHECK_EVERY = 10  # sweeps between two looks at the residual
LAST_COLOUR = 63  # of the colouring kernel, which gives it to rows that touch, too


class ProjectedGaussSeidel:
    """PGS in colours; `prepare` once per pattern, `solve` for each right-hand side."""

    name = "projected_gauss_seidel"

    def __init__(self) -> None:
        self._colours: list[NDArray[Any]] = []

    def prepare(self, system: SparseSystem, reuse: str | None = None) -> None:
        """Colour the rows; with `reuse` the colours of the system before are kept. Collective."""
        if system.kind != "spd":
            raise SetupError(f"projected Gauss-Seidel cannot solve a {system.kind} system")
        known = sum(len(rows) for rows in self._colours)
        self.system = system
        # Decided together: a rank without rows always could, and colouring is collective.
        if reuse is not None and not system.comm.any(known != system.size):
            return
        colours = np.full(system.size, -1, dtype=np.int32)
        matrix = system.matrix
        count = int(greedy_colours(matrix.slices, matrix.columns, matrix.values, colours))
        alone = np.flatnonzero(colours == LAST_COLOUR)
        colours[alone] += np.arange(len(alone), dtype=np.int32)
        count = max(count, LAST_COLOUR + len(alone)) if len(alone) else count
        count = int(system.comm.maximum(count))  # every rank takes part in every exchange
        order = np.argsort(colours, kind="stable").astype(np.int32)
        ends = np.cumsum(np.bincount(colours, minlength=count))
        self._colours = np.split(order, ends[:-1]) if count else []

    def solve(
        self,
        b: Vector,
        x: Vector,
        *,
        lower: Bound = None,
        upper: Bound = None,
        tol: float = 1e-6,
        max_iterations: int = 10_000,
    ) -> SolveReport:
        """Improve x until the complementarity residual is at most tol. Collective."""
        start = perf_counter()
        problem = ComplementarityProblem(self.system, b, lower, upper)
        problem.clamp(x)
        residual = problem.evaluate(x)
        sweeps = 0
        while not residual <= tol and isfinite(residual) and sweeps < max_iterations:
            count = min(CHECK_EVERY, max_iterations - sweeps)
            self.sweep(problem, x, count)
            sweeps += count
            residual = problem.evaluate(x)
        return SolveReport(
            self.name,
            self.system.total_size,
            sweeps,
            perf_counter() - start,
            residual,
            bool(residual <= tol),
        )

    def sweep(self, problem: ComplementarityProblem, x: Vector, count: int = 1) -> None:
        """Visit every unknown `count` times. Collective."""
        system, matrix = self.system, self.system.matrix
        halo = system.halo
        extended = x
        if halo.length > system.size:
            extended = np.zeros(halo.length)
            extended[: system.size] = x
        for _ in range(count):
            for rows in self._colours:
                halo.refresh(extended)
                project_rows(
                    matrix.slices, matrix.columns, matrix.values, problem.inverse_diagonal,
                    problem.b, problem.lower, problem.upper, rows, extended,
                )  # fmt: skip
        if extended is not x:
            x[:] = extended[: system.size]
