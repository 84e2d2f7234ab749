"""Compression of fluid particles, (rho / rho0 - 1)+: a dam break, and a column at rest.

The column of the dam is 0.5 x 1 x 0.5 m in a tank 2 m long with walls all around; it hits the far
wall and falls back. The other one stands in a tank of its own width, 1 m high. Mean and maximum are
over all particles, the thin surface included, and the worst of all frames is judged. Densities are
those that the fluid writes, walls included, and again, in every sixth frame and for particles whose
kernels reach no wall, sums over neighbours of the places that it writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._particle_fluids import (
    FLUIDS,
    FRAMES_PER_SECOND,
    ITERATIONS,
    SUPPORT,
    densities,
    iterations_of,
    lattice,
    tank,
    written,
)
from ._report import result

Array = NDArray[np.float64]

DAMS = (18, 29)  # spacings along the base: 12,000 and 49,000 particles
COLUMNS = (20, 40)  # layers
BASE, LENGTH, CEILING = 0.5, 2.0, 2.5  # of the dam and its tank [m]
DEPTH, WIDTH = 1.0, 0.5  # of the column [m]
SECONDS = {"dam": 1.2, "column": 1.0}
SUMMED = 6  # frames from one sum over neighbours to the next


def run(
    dams: tuple[int, ...] = DAMS,
    columns: tuple[int, ...] = COLUMNS,
    fluids: tuple[str, ...] = FLUIDS,
    shorter: float = 1.0,
) -> list[dict[str, Any]]:
    """Run both scenes with each fluid at each resolution, for a part of their time."""
    results = []
    for fluid in fluids:
        for scene, sizes in (("dam", dams), ("column", columns)):
            for n in sizes:
                curves = compress(fluid, scene, n, SECONDS[scene] * shorter)
                results += _judged(curves)
                results[-1]["curves"] = curves
    return results


def compress(fluid: str, scene: str, n: int, seconds: float) -> dict[str, Any]:
    """Run a scene; return mean and largest compression of every frame."""
    if scene == "dam":
        d, size, upper = BASE / n, (BASE, 2.0 * BASE, BASE), (LENGTH, CEILING, BASE)
    else:
        d, size, upper = DEPTH / n, (WIDTH, DEPTH, WIDTH), (WIDTH, 1.5 * DEPTH, WIDTH)
    places = lattice((0.0, 0.0, 0.0), size, d)
    solver = tank(fluid, places, spacing=d, upper=upper)
    steps: list[float] = []
    solver.observe(loki.Stage.SUBSTEP_END, lambda _, step: steps.append(step.dt))
    times, told, summed, apart = [], [], [], [0.0]
    for frame in range(round(FRAMES_PER_SECOND * seconds)):
        solver.run(1)
        ratio = written(solver, "density_ratio")
        times.append(solver.time)
        told.append(_compression(ratio))
        if frame % SUMMED == 0:
            places = written(solver, "position")
            reach = SUPPORT * d
            inside = np.all((places > reach) & (places < np.array(upper) - reach), axis=1)
            own = densities(places, d)
            summed.append(_compression(own[inside]))
            apart.append(float(np.abs(own - ratio)[inside].max(initial=0.0)))
    return {
        "n": n,
        "fluid": fluid,
        "scene": scene,
        "count": len(places),
        "times": np.array(times),
        "told": np.array(told),
        "summed": np.array(summed),
        "apart": max(apart),
        "iterations": iterations_of(solver) / len(steps),
        "step": float(np.mean(steps)),
    }


def _compression(ratio: Array) -> tuple[float, float]:
    """Mean and largest of what is above that at rest."""
    above = np.maximum(ratio - 1.0, 0.0)
    return (float(above.mean()), float(above.max())) if len(above) else (0.0, 0.0)


def _judged(curves: dict[str, Any]) -> list[dict[str, Any]]:
    fluid, scene, count = curves["fluid"], curves["scene"], curves["count"]
    where = f"dam break, {count} particles" if scene == "dam" else f"column, {curves['n']} layers"
    results = []
    for key, words in (("told", "as written"), ("summed", "summed over neighbours")):
        mean, largest = curves[key].max(axis=0)
        for name, value, production, best in (
            ("mean_compression", mean, 0.01, 0.001),
            ("max_compression", largest, 0.05, 0.01),
        ):
            metric = f"{fluid}_{name}, {words}, {where}"
            results.append(
                result("sph_density", metric, value, 0.0, production=production, best=best)
            )
    metric = f"{fluid}_disagreement, largest, of the two densities, {where}"
    results.append(result("sph_density", metric, curves["apart"], 0.0))
    metric = f"{fluid}_iterations, a step of {1e3 * curves['step']:.2f} ms, {where}"
    allowed = ITERATIONS if fluid == "pbf" else None
    results.append(result("sph_density", metric, curves["iterations"], None, production=allowed))
    return results
