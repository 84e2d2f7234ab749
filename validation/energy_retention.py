"""Energy that steady vortices keep without viscosity, with and without reflection.

The Taylor-Green vortices are a steady solution of Euler's equations, so all the energy that is lost
is the scheme's. Advection-reflection keeps what the projection takes otherwise: at CFL 2, n = 64
MacCormack keeps 67 % of the energy without it and 99.9 % with it (calibrated with a reference code;
validation/data/energy_retention_2d.csv).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._report import result, rows_of
from ._vortices import run_vortices, start_velocity

RESOLUTIONS = (64, 128)
COURANT = (0.5, 2.0)


def run(resolutions: tuple[int, ...] = RESOLUTIONS) -> list[dict[str, Any]]:
    """Compare the energy after five seconds with that at the start."""
    calibrated = {
        (int(row["n"]), float(row["cfl"]), row["reflection"]): float(row["KE_ratio"])
        for row in rows_of("energy_retention_2d.csv")
        if row["ic"] == "tg" and row["scheme"] == "mac"
    }
    results = []
    for n in resolutions:
        start = np.sum(start_velocity(n)[..., 0] ** 2)
        for courant in COURANT:
            for reflection in (False, True):
                final = run_vortices(n, courant=courant, reflection=reflection)
                ratio = float(np.sum(final**2) / start)
                results.append(_judged(n, courant, reflection, ratio, calibrated))
    return results


def _judged(
    n: int, courant: float, reflection: bool, ratio: float, calibrated: dict[Any, float]
) -> dict[str, Any]:
    words = "with reflection" if reflection else "default"
    metric = f"kinetic energy kept, n = {n}, CFL {courant:g}, {words}"
    reference = calibrated[n, courant, "1" if reflection else "0"]
    if reflection:
        one = result(
            "energy_retention", metric, ratio, reference,
            production=0.88, best=0.985, lower_is_better=False,
        )  # fmt: skip
        one["pass"] = bool(one["pass"] and ratio <= 1.002)
        return one
    # The threshold is for CFL 0.5; elsewhere the calibrated value less its spread is asked for.
    least = 0.88 if courant == 0.5 else reference - 0.03
    return result(
        "energy_retention", metric, ratio, reference, production=least, lower_is_better=False
    )
