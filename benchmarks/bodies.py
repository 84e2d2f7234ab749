"""Factors of large bodies against PARDISO, a sheet of springs, elements that change."""

from __future__ import annotations

import importlib
import importlib.util
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp

from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.elastic_aggregation import ElasticAggregation
from loki_core.linear_solvers.kept_factors import KeptFactors
from loki_core.linear_solvers.multifrontal import SparseFactors
from loki_core.linear_solvers.rigid_modes import rigid_modes
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_vfx.benchmarks._body_matrices import FOLDS, graph_of, sheet, tetrahedra
from loki_vfx.benchmarks._measure import best_seconds, figure
from loki_vfx.benchmarks._sheet_cases import remainder_figures, sheet_figures

THREADS = 2
TURN = 2.0  # degrees
TOLERANCE = 1e-4
NO_PEER = "pypardiso is not installed: pip install pypardiso"


def run(quick: bool) -> dict[str, dict[str, Any]]:
    """Measure everything; `quick` uses smaller bodies, which each figure names."""
    before = thread_count()
    set_thread_count(THREADS)
    try:
        figures = _figures("sheet", sheet, 60 if quick else 200)
        figures |= _figures("tets", tetrahedra, 12 if quick else 27)
        figures |= _multigrid_figures("sheet", sheet, 60 if quick else 200)
        figures |= _multigrid_figures("tets", tetrahedra, 12 if quick else 27)
        figures |= remainder_figures(quick)
    finally:
        set_thread_count(before)
    return figures | sheet_figures(quick)


def _figures(kind: str, make: Any, n: int) -> dict[str, dict[str, Any]]:
    matrix, rest = make(n)
    graph, rows = graph_of(matrix), _rows(matrix)
    vertices, size = len(rest), matrix.shape[0]
    SparseFactors(*graph, coordinates=rest).factor(*rows)  # compiles the kernels
    start = perf_counter()
    factors = SparseFactors(*graph, coordinates=rest)
    symbolic = perf_counter() - start
    b, x = np.random.default_rng(0).standard_normal(size), np.empty(size)
    work = {"factor": lambda: factors.factor(*rows)}
    peer = _Pardiso(matrix) if importlib.util.find_spec("pypardiso") else None
    if peer is not None:
        work["peer"] = peer.factor
    best = best_seconds(work, rounds=8)
    turns = {"solve": lambda: factors.solve(b, x)}
    if peer is not None:
        turns["peer"] = lambda: peer.solve(b)
    solve = best_seconds(turns, rounds=12)
    residual = float(np.linalg.norm(matrix @ x - b) / np.linalg.norm(b))
    where = f"{size} unknowns, {factors.entries / 1e6:.1f} M entries, {THREADS} threads"
    theirs = best.get("peer")
    how = f"{where}; numeric factorisation, ours {best['factor']:.3f} s, " + (
        f"PARDISO (mtype 2) {theirs:.3f} s; residual {residual:.1e}" if theirs else NO_PEER
    )
    solving = f"{where}; one right-hand side" + (
        f", PARDISO {1e6 * solve['peer'] / vertices:.2f} us" if theirs else ""
    )
    return {
        f"factor_vs_pardiso_{kind}": figure(
            theirs / best["factor"] if theirs else None, "x", 1.0, "higher", how
        ),
        f"refactor_us_per_vertex_{kind}": figure(
            1e6 * best["factor"] / vertices, "us", None, "lower", where
        ),
        f"solve_us_per_vertex_{kind}": figure(
            1e6 * solve["solve"] / vertices, "us", None, "lower", solving
        ),
        f"symbolic_seconds_{kind}": figure(
            symbolic, "s", None, "lower", f"{where}; order and fronts, once for each graph"
        ),
        f"bytes_per_vertex_{kind}": figure(
            factors.nbytes / vertices, "B", None, "lower",
            f"{where}; factors, updates and lists; the factors alone are "
            f"{8 * factors.entries / vertices:.0f}",
        ),
        f"kept_factor_iterations_{kind}": figure(
            _kept(make, n, rows, rest, b), "", 8, "lower",
            f"{where}; to 1e-4 with factors from before a turn of {TURN:g} degrees",
        ),
    }  # fmt: skip


def _multigrid_figures(kind: str, make: Any, n: int) -> dict[str, dict[str, Any]]:
    """Elastic smoothed aggregation, set-up and solve, on the same matrices."""
    matrix, rest = make(n)
    place, system = _present(kind, rest), SparseSystem(*_rows(matrix), block_size=3)
    b = np.random.default_rng(0).standard_normal(system.size)
    solver = ElasticAggregation(coordinates=place)
    reports = {}

    def solve() -> None:
        reports["ours"] = solver.solve(b, np.zeros(len(b)), tol=TOLERANCE)

    def both() -> None:
        solver.prepare(system)
        solve()

    both()  # compiles the kernels
    best = best_seconds({"both": both, "solve": solve}, rounds=6)
    hierarchy = solver.hierarchy
    assert hierarchy is not None
    peer = _pyamg(matrix, place, b)
    where = f"{system.size} unknowns, a random right-hand side to {TOLERANCE:g}, {THREADS} threads"
    how = (
        f"{where}; solve alone {best['solve']:.3f} s of {best['both']:.3f}, "
        f"{hierarchy.nbytes / len(rest):.0f} B a vertex; {peer}"
    )
    return {
        f"amg_us_per_vertex_{kind}": figure(
            1e6 * best["both"] / len(rest), "us", None, "lower", how
        ),
        f"amg_iterations_{kind}": figure(reports["ours"].iterations, "", None, "lower", where),
    }  # fmt: skip


def _present(kind: str, rest: Any) -> Any:
    """Where the vertices are when the matrix is taken."""
    place = rest.copy()
    if kind == "sheet":
        waves = np.sin(FOLDS * rest[:, 0]) * np.sin(FOLDS * rest[:, 1] + rest[:, 0])
        place[:, 2] = 0.05 * waves
    return place


def _pyamg(matrix: Any, place: Any, b: Any) -> str:
    """What pyamg takes with the same modes; it solves on one thread."""
    if importlib.util.find_spec("pyamg") is None:
        return "pyamg is not installed: pip install pyamg"
    pyamg = importlib.import_module("pyamg")
    modes, residuals = rigid_modes(place, np.full(len(place), 3)), []
    start = perf_counter()
    levels = pyamg.smoothed_aggregation_solver(
        matrix.tobsr((3, 3)), B=modes, strength=("symmetric", {"theta": 0.05}), max_coarse=300
    )
    setup = perf_counter() - start
    levels.solve(b, tol=TOLERANCE, accel="cg", residuals=residuals)
    whole = perf_counter() - start
    return f"pyamg {setup:.2f} + {whole - setup:.2f} s, {len(residuals) - 1} iterations"


def _kept(make: Any, n: int, rows: Any, rest: Any, b: Any) -> int:
    """Iterations with the factors from before the body turned."""
    solver = KeptFactors(coordinates=rest)
    for matrix in (rows, _rows(make(n, TURN)[0])):
        system = SparseSystem(*matrix)
        system.block_size = 3
        solver.prepare(system)
        report = solver.solve(b, np.zeros(len(b)), tol=1e-4)
    return report.iterations


def _rows(matrix: Any) -> Any:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data


class _Pardiso:
    """Its Cholesky factorisation of the upper triangle, with the analysis done beforehand."""

    def __init__(self, matrix: Any) -> None:
        pypardiso = importlib.import_module("pypardiso")
        self._matrix = sp.triu(matrix, format="csr")
        self._matrix.sort_indices()
        self._solver = pypardiso.PyPardisoSolver(mtype=2)
        self._solver.libmkl.MKL_Set_Num_Threads(THREADS)
        # Its own settings, the order of METIS, the factorisation for many threads.
        for number, value in ((1, 1), (2, 2), (24, 1)):
            self._solver.set_iparm(number, value)
        self._empty = np.zeros((matrix.shape[0], 1))
        self._call(11, self._empty)

    def factor(self) -> None:
        self._call(22, self._empty)

    def solve(self, b: Any) -> Any:
        return self._call(33, b.reshape(-1, 1))

    def _call(self, phase: int, b: Any) -> Any:
        self._solver.set_phase(phase)
        return self._solver._call_pardiso(self._matrix, b)
