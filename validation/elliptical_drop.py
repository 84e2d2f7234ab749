"""A free round drop that is drawn into an ellipse: u = -A0 x, v = A0 y, no gravity, until A0 t = 1.

    dA/dt = A^2 (a^4 - 1) / (a^4 + 1),   da/dt = -a A,   b = 1 / a     (Monaghan 1994)

Half axes are those of the ellipse with the particles' second moments, <y^2> = b^2 / 4; the area is
that of the cross-section. Momenta, which are 0, are told over what they would be if all particles
went the same way. Adaptive substeps at CFL 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._liquids import area, lattice, slab, written
from ._report import result, rows_of

RESOLUTIONS = (16, 32)
RADIUS, RATE = 1.0, 1.0  # m, 1/s
LOWER, UPPER = (-2.0, -4.0), (2.0, 4.0)  # m, in which the drop stays


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS, precisions: tuple[str, ...] = ("double", "single")
) -> list[dict[str, Any]]:
    """Run at each resolution."""
    results = []
    for precision in precisions:
        for n in resolutions:
            found = stretched(n, precision)
            results += _judged(found, f"n = {n} voxels a radius, {precision}", precision)
            results[-1]["curves"] = {"n": n, "places": found["places"], "b": exact()["b"]}
    return results


def stretched(n: int, precision: str) -> dict[str, Any]:
    """Let the drop go; return what was found at the end."""
    h = RADIUS / n
    places = lattice((-RADIUS, -RADIUS), (RADIUS, RADIUS), h)
    places = places[np.hypot(places[:, 0], places[:, 1]) < RADIUS]
    start = RATE * places * (-1.0, 1.0, 0.0)
    solver = slab(
        places, voxel_size=h, lower=LOWER, upper=UPPER, sides="open", velocity=start,
        adaptive_substeps=True, precision=precision,
    )  # fmt: skip
    solver.run(round(24.0 / RATE))
    end, velocity = written(solver)
    speed, distance = np.linalg.norm(velocity, axis=1), np.linalg.norm(end[:, :2], axis=1)
    turning = end[:, 0] * velocity[:, 1] - end[:, 1] * velocity[:, 0]
    return {
        "places": end,
        "b": 2.0 * float(np.sqrt(np.mean((end[:, 1] - end[:, 1].mean()) ** 2))),
        "area": area(end, h, LOWER, UPPER) / area(places, h, LOWER, UPPER),
        "linear": float(np.linalg.norm(velocity.sum(axis=0)) / speed.sum()),
        "angular": float(abs(turning.sum()) / (distance * speed).sum()),
        "energy": float(np.sum(velocity**2) / np.sum(start**2)),
    }


def exact() -> dict[str, float]:
    """Half axis b and kinetic energy over that at the start, at A0 t = 1."""
    row = next(r for r in rows_of("elliptical_drop.csv") if float(r["tau"]) == 1.0)
    a, b, rate = float(row["a"]), float(row["b"]), float(row["A"])
    return {"b": RADIUS * b, "energy": rate**2 * (a**2 + b**2) / 2.0}


def _judged(found: dict[str, Any], words: str, precision: str) -> list[dict[str, Any]]:
    reference = exact()
    momentum = 1e-8 if precision == "double" else 1e-5
    off = {name: abs(found[name] / reference[name] - 1.0) for name in reference}
    return [
        result(
            "elliptical_drop", f"half axis b [m], {words}", found["b"], reference["b"],
            error=off["b"], production=0.03, best=0.01,
        ),
        result(
            "elliptical_drop", f"area over that at the start, {words}", found["area"], 1.0,
            error=abs(found["area"] - 1.0), production=0.01,
        ),
        result(
            "elliptical_drop", f"linear momentum, {words}", found["linear"], 0.0,
            production=momentum, best=momentum,
        ),
        result(
            "elliptical_drop", f"angular momentum, {words}", found["angular"], 0.0,
            production=momentum, best=momentum,
        ),
        result(
            "elliptical_drop", f"kinetic energy over that at the start, {words}",
            found["energy"], reference["energy"], error=off["energy"], best=0.02,
        ),
    ]  # fmt: skip
