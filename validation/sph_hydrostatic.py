"""A column of fluid particles, 1 m deep, that has settled for 5 s: still, with p = rho g (H - y).

The slope of the pressure is fitted by least squares to the particles of the lower 80 %. Slope and
speed are the worst of all frames of a quarter of a second after the settling. Beside them stand, to
tell why, the mean speed and where the surface is: a lattice that melts into disorder needs more
room at the same density.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._particle_fluids import (
    DENSITY,
    FLUIDS,
    FRAMES_PER_SECOND,
    GRAVITY,
    lattice,
    tank,
    written,
)
from ._report import result

RESOLUTIONS = (20, 40)  # layers
DEPTH, WIDTH = 1.0, 0.5  # m
SETTLING, WATCHED = 5.0, 0.25  # s
FITTED = 0.8  # part of the depth


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS,
    fluids: tuple[str, ...] = FLUIDS,
    settling: float = SETTLING,
) -> list[dict[str, Any]]:
    """Let each fluid settle at each resolution."""
    results = []
    for fluid in fluids:
        for n in resolutions:
            found = settle(fluid, n, settling)
            for metric, reference, production, best in (
                ("slope, dp/dy over -rho g", 1.0, 0.05, 0.01),
                ("largest_speed, over sqrt(g H)", 0.0, 1e-2, 1e-3),
                ("rms_speed, over sqrt(g H)", 0.0, None, None),
                ("level, of the surface over H", 1.0, None, None),
            ):
                name, _, words = metric.partition(", ")
                value = found[name]
                one = result(
                    "sph_hydrostatic", f"{fluid}_{name}, {words}, {n} layers", value, reference,
                    error=abs(value - reference), production=production, best=best,
                )  # fmt: skip
                results.append(one)
            results[-1]["curves"] = found["curves"]
    return results


def settle(fluid: str, n: int, settling: float) -> dict[str, Any]:
    """Leave the column alone; return what should be 1, 0, 0 and 1, and curves."""
    d = DEPTH / n
    solver = tank(
        fluid, lattice((0.0, 0.0, 0.0), (WIDTH, DEPTH, WIDTH), d), spacing=d,
        upper=(WIDTH, 1.5 * DEPTH, WIDTH),
    )  # fmt: skip
    times, speeds = [], []
    settled, watched = (round(FRAMES_PER_SECOND * time) for time in (settling, WATCHED))
    slopes, rms, level = [], [], []
    for frame in range(settled + watched):
        solver.run(1)
        speed = np.linalg.norm(written(solver, "velocity"), axis=1) / np.sqrt(GRAVITY * DEPTH)
        times.append(solver.time)
        speeds.append(float(speed.max()))
        if frame >= settled:
            height = written(solver, "position")[:, 1]
            pressure = written(solver, "pressure")
            deep = height < FITTED * DEPTH
            slope = np.polyfit(height[deep], pressure[deep], 1)[0]
            slopes.append(float(slope) / (-DENSITY * GRAVITY))
            rms.append(float(np.sqrt(np.mean(speed**2))))
            level.append(float(np.median(np.sort(height)[-(len(height) // n) :])) + 0.5 * d)
    return {
        "slope": max(slopes, key=lambda value: abs(value - 1.0)),
        "largest_speed": max(speeds[settled:]),
        "rms_speed": max(rms),
        "level": level[-1] / DEPTH,
        "curves": {
            "n": n,
            "fluid": fluid,
            "depth": DEPTH,
            "times": np.array(times),
            "speeds": np.array(speeds),
            "height": height,
            "pressure": pressure,
        },
    }
