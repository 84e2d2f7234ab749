"""Water at rest in a box, 0.5 m deep, for ten seconds: still, as much as before, p = rho g H below.

Default settings, 24 frames a second and one substep a frame. The speed is the largest of any
particle at any frame, the volume that of the cross-section that is written at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import loki_core as loki

from ._liquids import DENSITY, GRAVITY, area, lattice, slab, written
from ._report import result

RESOLUTIONS = (32, 64)
WIDTH, DEPTH = 1.0, 0.5  # m
SECONDS = 10.0


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS, seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """Run at each resolution."""
    results = []
    for n in resolutions:
        found = rest(n, seconds)
        for metric, reference, production, best in (
            ("largest speed over sqrt(g H)", 0.0, 5e-3, 1e-4),
            ("change of volume", 0.0, 0.01, 1e-3),
            ("pressure at the bottom over rho g H", 1.0, 0.01, 1e-3),
        ):
            value, words = found[metric], f"{metric}, n = {n}"
            one = result(
                "hydrostatic", words, value, reference,
                error=abs(value - reference), production=production, best=best,
            )  # fmt: skip
            results.append(one)
    return results


def rest(n: int, seconds: float) -> dict[str, float]:
    """Leave the water alone; return what should be 0, 0 and 1."""
    h = WIDTH / n
    lower, upper = (0.0, 0.0), (WIDTH, WIDTH)
    solver = slab(
        lattice(lower, (WIDTH, DEPTH), h), loki.GravityForce(),
        voxel_size=h, lower=lower, upper=upper,
    )  # fmt: skip
    fastest = 0.0
    for _ in range(round(24 * seconds)):
        solver.run(1)
        places, velocity = written(solver)
        fastest = max(fastest, float(np.linalg.norm(velocity, axis=1).max()))
    weight = DENSITY * GRAVITY * DEPTH
    return {
        "largest speed over sqrt(g H)": fastest / np.sqrt(GRAVITY * DEPTH),
        "change of volume": area(places, h, lower, upper) / (WIDTH * DEPTH) - 1.0,
        "pressure at the bottom over rho g H": bottom_pressure(solver, n) / weight,
    }


def bottom_pressure(solver: loki.Solver, n: int) -> float:
    """Mean pressure on the floor [Pa], from the two lowest rows of the n cells across the box."""
    pressure = solver.object("Water").voxels(("pressure",)).to_dense("pressure")[0]
    low, above = (float(pressure[:n, j].mean()) for j in (0, 1))
    return low + 0.5 * (low - above)
