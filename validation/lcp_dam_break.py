"""Predictor-corrector LCP on the pressure of a dam-break-shaped level set.

A column of liquid stands in a box: ghost-fluid free surface (p = 0), walls that the liquid may
leave, so p >= 0. It falls on the floor and is torn from one wall in stripes, where the pressure
without bounds is negative. Measure: the largest |min(x - l, A x + b)| over the largest |b|, and the
time against plain projected Gauss-Seidel to the same residual.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from loki_core.linear_solvers.predictor_corrector_lcp import PredictorCorrectorLcp
from loki_core.linear_solvers.projected_gauss_seidel import ProjectedGaussSeidel
from loki_core.linear_solvers.sparse_system import SparseSystem

TOLERANCE = 1e-6


def run() -> list[dict[str, Any]]:
    """Solve at 32^3 and 64^3 by both solvers."""
    results = []
    compare(8)  # compiles the kernels
    for n in (32, 64):
        residual, ratio = compare(n)
        results.append(
            _result(f"complementarity, {n}^3", residual, 0.0, TOLERANCE, residual <= TOLERANCE)
        )
        results.append(_result(f"time over that of PGS, {n}^3", ratio, 0.5, 0.5, None))
    return results


def compare(n: int) -> tuple[float, float]:
    """Complementarity residual of PC-LCP, and its time over that of PGS, set-up included."""
    indptr, indices, data, b = dam_break(n)
    system = SparseSystem(indptr, indices, data)
    seconds, residuals = {}, {}
    for solver in (PredictorCorrectorLcp(), ProjectedGaussSeidel()):
        x = np.zeros(system.size)
        start = perf_counter()
        solver.prepare(system)
        solver.solve(b, x, lower=0.0, tol=TOLERANCE, max_iterations=100_000)
        seconds[solver.name] = perf_counter() - start
        w = np.empty_like(x)
        system.multiply(x, w)
        w += b
        residuals[solver.name] = float(np.abs(np.minimum(x, w)).max() / np.abs(b).max())
    # Times compare only where the slower solver got as far.
    assert residuals["projected_gauss_seidel"] <= TOLERANCE
    ratio = seconds["predictor_corrector_lcp"] / seconds["projected_gauss_seidel"]
    return residuals["predictor_corrector_lcp"], ratio


def dam_break(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compressed rows and b of the pressure LCP w = A p + b, p >= 0, on n^3 cells."""
    centre = (np.arange(n) + 0.5) / n
    x, y, z = np.meshgrid(centre, centre, centre, indexing="ij")
    phi = np.maximum(x - 0.5 - 0.05 * np.sin(9.0 * y), y - 0.8 - 0.05 * np.cos(7.0 * z))
    liquid = phi < 0.0
    number = np.full(liquid.shape, -1, dtype=np.int32)
    number[liquid] = np.arange(np.count_nonzero(liquid))
    columns = np.full((*liquid.shape, 7), -1, dtype=np.int32)
    columns[..., 3] = number
    diagonal = np.zeros(liquid.shape)
    for axis in range(3):
        for step, slot in ((-1, axis), (1, 6 - axis)):
            here, there = _pair(axis, step, n)
            inside = liquid[here] & liquid[there]
            columns[here][..., slot][inside] = number[there][inside]
            p, q = phi[here], phi[there]
            surface = liquid[here] & ~liquid[there]
            # The surface lies at theta = p / (p - q) of the way to the neighbour; p = 0 there.
            theta = np.maximum(np.where(surface, p / np.where(surface, p - q, 1.0), 1.0), 0.01)
            diagonal[here] += np.where(inside, 1.0, np.where(surface, 1.0 / theta, 0.0))
    kept = columns[liquid] >= 0
    values = np.where(kept, -1.0, 0.0)
    values[:, 3] = diagonal[liquid]
    indptr = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(kept.sum(axis=1), out=indptr[1:])
    divergence = np.zeros(liquid.shape)
    divergence[:, 0, :] -= 1.0
    divergence[0, :, :] += 6.0 * np.cos(12.0 * z[0]) * (0.5 + y[0])
    return indptr, columns[liquid][kept], values[kept], divergence[liquid]


def _pair(axis: int, step: int, n: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Cells that have a neighbour along an axis, and those neighbours."""
    here, there = [slice(None)] * 3, [slice(None)] * 3
    here[axis] = slice(0, n - 1) if step == 1 else slice(1, n)
    there[axis] = slice(1, n) if step == 1 else slice(0, n - 1)
    return tuple(here), tuple(there)


def _result(
    metric: str, value: float, reference: float, threshold: float, passed: bool | None
) -> dict[str, Any]:
    return {
        "case": "lcp_dam_break",
        "metric": metric,
        "value": value,
        "reference": reference,
        "error": value / threshold,
        "threshold_production": threshold,
        "threshold_best": threshold,
        "pass": passed,
    }
