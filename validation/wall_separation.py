"""Walls that let go: a block of water under a ceiling and at side walls is released.

Nothing holds it, so its centre of mass falls as if it were alone, by the steps' own rule: after n
steps of dt by g dt^2 n (n + 1) / 2. The pressure solves a complementarity problem, whose residual
is the largest |min(p, outflow)| in the units of the outflow, over the largest of that without any
pressure.
"""

from __future__ import annotations

from typing import Any

import loki_core as loki

from ._liquids import GRAVITY, lattice, slab, written
from ._report import result

RESOLUTIONS = (32, 64)
WIDTH, BOTTOM = 1.0, 0.6  # m
FRAMES, RATE = 12, 96.0  # until it has fallen by a sixteenth of the box


def run(resolutions: tuple[int, ...] = RESOLUTIONS) -> list[dict[str, Any]]:
    """Release it at each resolution, in both precisions."""
    results = []
    for n in resolutions:
        for precision, production, best in (("double", 1e-6, 1e-9), ("single", 1e-5, 1e-5)):
            off, residual = release(n, precision)
            for metric, value, limits in (
                ("fall of the centre of mass", off, (production, best)),
                ("complementarity", residual, (1e-6, 1e-6)),
            ):
                one = result(
                    "wall_separation", f"{metric}, n = {n}, {precision}", value, 0.0,
                    error=value, production=limits[0], best=limits[1],
                )  # fmt: skip
                results.append(one)
    return results


def release(n: int, precision: str, frames: int = FRAMES) -> tuple[float, float]:
    """Largest relative error of the fall a step, and the largest complementarity residual."""
    h = WIDTH / n
    lower, upper = (0.0, 0.0), (WIDTH, WIDTH)
    solver = slab(
        lattice((0.0, BOTTOM), (WIDTH, WIDTH), h), loki.GravityForce(),
        voxel_size=h, lower=lower, upper=upper, precision=precision, frames_per_second=RATE,
    )  # fmt: skip
    start, off, residual = written(solver)[0][:, 1].mean(), 0.0, 0.0
    for step in range(1, frames + 1):
        solver.run(1)
        exact = GRAVITY * step * (step + 1) / (2.0 * RATE**2)
        off = max(off, abs((start - written(solver)[0][:, 1].mean()) / exact - 1.0))
        residual = max(residual, solver.actions["PressureMaterial"][0].report.residual)
    return off, residual
