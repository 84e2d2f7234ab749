"""Linear solvers against the machine and pyamg: multigrid, products, complementarity."""

from __future__ import annotations

import importlib
import importlib.util
import math
from time import perf_counter
from typing import Any

import numpy as np

from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_vfx.benchmarks._measure import best_seconds, figure, triad_gbps
from loki_vfx.validation.amg_poisson import poisson_rows
from loki_vfx.validation.lcp_dam_break import compare

TOLERANCE = 1e-8


def run(quick: bool) -> dict[str, dict[str, Any]]:
    """Measure everything; `quick` uses smaller sizes, which each figure names."""
    _solve_once(16)  # compiles the kernels
    figures = multigrid_figures(quick)
    figures |= product_figures(quick)
    n = 32 if quick else 64
    compare(8)
    ratio = min(compare(n)[1] for _ in range(2))
    figures["pclcp_time_over_pgs_64"] = figure(
        ratio, "", 0.25, "lower",
        f"pressure LCP of a dam break at {n}^3 to 1e-6, set-up included, over plain PGS",
    )  # fmt: skip
    return figures


def multigrid_figures(quick: bool) -> dict[str, dict[str, Any]]:
    """Iterations, growth, and times against pyamg's smoothed aggregation."""
    n = 64 if quick else 128
    small = _solve_once(32)
    indptr, indices, data = poisson_rows(n)
    b = np.random.default_rng(0).standard_normal(n**3)
    ours, again, peer = [], [], []
    for _ in range(2):
        peer.append(_pyamg(n, indptr, indices, data, b))
        for _ in range(2):
            start = perf_counter()
            solver = SmoothedAggregation()
            solver.prepare(SparseSystem(indptr, indices, data))
            report = solver.solve(b, np.zeros(n**3), tol=TOLERANCE)
            ours.append(perf_counter() - start)
            start = perf_counter()
            solver.prepare(solver.system, reuse="values")
            solver.solve(b, np.zeros(n**3), tol=TOLERANCE)
            again.append(perf_counter() - start)
    growth = _decades(small) / _decades(report)
    hierarchy = solver.hierarchy
    assert hierarchy is not None
    held = (hierarchy.nbytes + solver.system.matrix.nbytes) / n**3
    stored = solver.system.matrix.values.dtype
    where = f"7-point Poisson, {n}^3, entries kept in {stored} (exact), to a true residual of 1e-8"
    peers = [p for p in peer if p is not None]
    missing = "pyamg is not installed: pip install pyamg"
    theirs = min(peers) if peers else None
    return {
        "amg_iterations_128": figure(report.iterations, "", 15, "lower", where),
        "amg_growth_32_128": figure(
            growth, "", 1.2, "lower",
            f"decades of residual per iteration at 32^3 over those at {n}^3",
        ),
        "amg_vs_pyamg_128": figure(
            theirs / min(ours) if theirs else None, "x", 8.0, "higher",
            f"{where}; set-up and solve, ours {min(ours):.2f} s" if theirs else missing,
        ),
        "amg_resolve_vs_pyamg_128": figure(
            theirs / min(again) if theirs else None, "x", 20.0, "higher",
            f"{where}; solve with the hierarchy at hand, {min(again):.2f} s, against pyamg's "
            "set-up and solve" if theirs else missing,
        ),
        "amg_bytes_per_unknown": figure(
            held + 4 * 8.0, "B", None, "lower",
            f"matrix ({stored}), hierarchy and four vectors of conjugate gradients; x apart",
        ),
    }  # fmt: skip


def product_figures(quick: bool) -> dict[str, dict[str, Any]]:
    """Matrix-vector product against the bandwidth of the machine, in the same run."""
    n = 96 if quick else 128
    indptr, indices, data = poisson_rows(n)
    system = SparseSystem(indptr, indices, 1.1 * data)  # not exact in float32: stays float64
    x, out = np.random.default_rng(1).random(n**3), np.zeros(n**3)
    best = math.inf
    bandwidth = 0.0
    for _ in range(3):
        bandwidth = max(bandwidth, triad_gbps(quick=quick))
        product = best_seconds({"product": lambda: system.multiply(x, out)}, rounds=15)["product"]
        best = min(best, product)
    counted = 12 * len(indices) + indptr.nbytes + x.nbytes + out.nbytes
    return {
        "spmv_of_triad": figure(
            counted / best / (bandwidth * 1e9), "", 0.7, "higher",
            f"{n}^3, 7 entries a row, float64; compressed rows and vectors counted once",
        )
    }  # fmt: skip


def _solve_once(n: int) -> Any:
    indptr, indices, data = poisson_rows(n)
    b = np.random.default_rng(0).standard_normal(n**3)
    solver = SmoothedAggregation()
    solver.prepare(SparseSystem(indptr, indices, data))
    return solver.solve(b, np.zeros(n**3), tol=TOLERANCE)


def _decades(report: Any) -> float:
    return float(-math.log10(report.residual) / report.iterations)


def _pyamg(n: int, indptr: Any, indices: Any, data: Any, b: Any) -> float | None:
    """Seconds of pyamg's smoothed aggregation with CG, set-up and solve; None without pyamg."""
    if importlib.util.find_spec("pyamg") is None:
        return None
    pyamg = importlib.import_module("pyamg")
    sparse = importlib.import_module("scipy.sparse")
    matrix = sparse.csr_matrix((data, indices, indptr), shape=(n**3, n**3))
    start = perf_counter()
    levels = pyamg.smoothed_aggregation_solver(matrix)
    levels.solve(b, tol=TOLERANCE, accel="cg", maxiter=500)
    return perf_counter() - start
