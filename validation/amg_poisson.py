"""Smoothed-aggregation multigrid on the 7-point Poisson problem: iterations, growth, time.

Neumann walls, one Dirichlet face, a random right-hand side, to a true relative residual of 1e-8.
References: iterations at 150^3 of AMGCL (SPAI0) 24, Trilinos ML 10-11, PETSc GAMG 7-8 (Demidov
2020). LOKI_VALIDATE_LONG=1 adds n = 150. Times are those of one thread and a hierarchy built from
nothing.
"""

from __future__ import annotations

import math
import os
from time import perf_counter
from typing import Any

import numpy as np

from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from loki_core.linear_solvers.sparse_system import SparseSystem

TOLERANCE = 1e-8


def run() -> list[dict[str, Any]]:
    """Solve at n = 32, 64, 128 with one thread."""
    sizes = [32, 64, 128] + ([150] if os.environ.get("LOKI_VALIDATE_LONG") == "1" else [])
    threads = thread_count()
    set_thread_count(1)
    try:
        solve(16)  # compiles the kernels
        found = {n: solve(n) for n in sizes}
    finally:
        set_thread_count(threads)
    results = []
    for n, (report, _, residual) in found.items():
        most, best = (30, 15) if n <= 128 else (24, 15)
        results.append(
            _result(f"iterations, {n}^3", report.iterations, 24, most, best, residual <= TOLERANCE)
        )
        results.append(
            _result(f"true residual, {n}^3", residual, TOLERANCE, TOLERANCE, TOLERANCE, True)
        )
    growth = decades_per_iteration(found[32]) / decades_per_iteration(found[128])
    results.append(_result("growth of iterations, 32^3 to 128^3", growth, 1.0, 1.35, 1.15, True))
    seconds = _result(
        "setup and solve, 128^3, one thread [s]", found[128][1], 7.3, 22.0, 10.0, True
    )
    results.append({**seconds, "pass": None})  # times are reported and do not decide
    return results


def solve(n: int) -> tuple[Any, float, float]:
    """Report, seconds from rows to solution, and the true residual, at n^3."""
    indptr, indices, data = poisson_rows(n)
    b = np.random.default_rng(0).standard_normal(n**3)
    x = np.zeros(n**3)
    start = perf_counter()
    system = SparseSystem(indptr, indices, data)
    solver = SmoothedAggregation()
    solver.prepare(system)
    report = solver.solve(b, x, tol=TOLERANCE)
    seconds = perf_counter() - start
    product = np.empty_like(x)
    system.multiply(x, product)
    return report, seconds, float(np.linalg.norm(b - product) / np.linalg.norm(b))


def decades_per_iteration(found: tuple[Any, float, float]) -> float:
    """Mean reduction of the residual by one iteration, in powers of ten."""
    return -math.log10(found[2]) / int(found[0].iterations)


def poisson_rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compressed rows of the 7-point Laplacian on n^3 cells; p = 0 on the upper face along z."""
    number = np.arange(n**3, dtype=np.int32).reshape(n, n, n)
    columns = np.full((n, n, n, 7), -1, dtype=np.int32)
    columns[..., 3] = number
    # Slots in the order of the columns: -x, -y, -z, itself, +z, +y, +x.
    columns[1:, :, :, 0], columns[:-1, :, :, 6] = number[:-1], number[1:]
    columns[:, 1:, :, 1], columns[:, :-1, :, 5] = number[:, :-1], number[:, 1:]
    columns[:, :, 1:, 2], columns[:, :, :-1, 4] = number[:, :, :-1], number[:, :, 1:]
    there = columns >= 0
    values = np.where(there, -1.0, 0.0)
    values[..., 3] = there.sum(axis=-1) - 1.0
    values[:, :, -1, 3] += 2.0  # the face is half a cell away
    indptr = np.zeros(n**3 + 1, dtype=np.int32)
    np.cumsum(there.reshape(-1, 7).sum(axis=1), out=indptr[1:])
    return indptr, columns[there], values[there]


def _result(
    metric: str, value: float, reference: float, production: float, best: float, valid: bool
) -> dict[str, Any]:
    return {
        "case": "amg_poisson",
        "metric": metric,
        "value": value,
        "reference": reference,
        "error": value / production,
        "threshold_production": production,
        "threshold_best": best,
        "pass": bool(valid and value <= production),
    }
