"""Decay of the Taylor-Green vortices: order of the velocity's error, and the viscous rate.

The scheme's own loss is found in a run without viscosity and subtracted, so that it does not count
as viscosity: rate = [ln KE(nu = 0) - ln KE(nu)] / T against 4 nu.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._report import result
from ._vortices import run_vortices, start_velocity

RESOLUTIONS = (32, 64, 128)
VISCOSITY, SECONDS, COURANT = 0.01, 5.0, 0.5


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS, variants: tuple[bool, ...] = (False, True)
) -> list[dict[str, Any]]:
    """Run at each resolution, by default and with reflection."""
    results = []
    for reflection in variants:
        errors, rates = {}, {}
        for n in resolutions:
            viscous = _run(n, VISCOSITY, reflection)
            exact = start_velocity(n)[..., 0] * np.exp(-2.0 * VISCOSITY * SECONDS)
            errors[n] = float(np.sqrt(np.mean(np.sum((viscous - exact) ** 2, axis=0))))
            lossless = _run(n, 0.0, reflection)
            rates[n] = float(np.log(np.sum(lossless**2) / np.sum(viscous**2)) / SECONDS)
        results += _judged(errors, rates, "with reflection" if reflection else "default")
    return results


def _run(n: int, viscosity: float, reflection: bool) -> NDArray[np.float64]:
    return run_vortices(
        n, courant=COURANT, viscosity=viscosity, seconds=SECONDS, reflection=reflection
    )


def _judged(errors: dict[int, float], rates: dict[int, float], words: str) -> list[dict[str, Any]]:
    results = []
    sizes = sorted(errors)
    for n in sizes:
        error = abs(rates[n] / (4.0 * VISCOSITY) - 1.0)
        judged = {"production": 0.05, "best": 0.01} if n >= 64 else {}
        metric = f"viscous decay rate [1/s], n = {n}, {words}"
        results.append(
            result("taylor_green", metric, rates[n], 4.0 * VISCOSITY, error=error, **judged)
        )
        results.append(
            result("taylor_green", f"L2 error of velocity, n = {n}, {words}", errors[n], 0.0)
        )
    for coarse, fine in pairwise(sizes):
        order = float(np.log2(errors[coarse] / errors[fine]))
        judged = {"production": 1.0, "best": 1.9} if fine == sizes[-1] else {}
        metric = f"order of velocity, n = {coarse} to {fine}, {words}"
        results.append(result("taylor_green", metric, order, None, lower_is_better=False, **judged))
    return results
