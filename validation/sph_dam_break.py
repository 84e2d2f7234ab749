"""A column of fluid particles that collapses, against the experiment of Martin & Moyce (1952).

The column, the tables and the errors are those of `dam_break`; its height is 30 and 60 spacings.
The slab is periodic along z, all other walls let slip. A particle reaches half a spacing beyond its
centre, and so do front and height. Position-Based Fluid has 240 steps a second, in which the toe
crosses five of the finer spacings a step; with its adaptive substeps it is reported beside that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._particle_fluids import FLUIDS, GRAVITY, lattice, tank, written
from ._report import result
from .dam_break import BASE, CEILING, LARGEST_SHIFT, LAST, LENGTH, measured

Array = NDArray[np.float64]

RESOLUTIONS = (30, 60)  # spacings along the column's height
THICKNESS = 8  # spacings of the slab
VARIANTS = (*FLUIDS, "pbf adaptive")


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS,
    fluids: tuple[str, ...] = VARIANTS,
    last: float = LAST,
) -> list[dict[str, Any]]:
    """Run each fluid at each resolution, until tau = `last`."""
    results = []
    for fluid in fluids:
        for n in resolutions:
            curves = collapse(fluid, n, last)
            results += _judged(fluid, n, curves)
            results[-1]["curves"] = curves
    return results


def collapse(fluid: str, n: int, last: float) -> dict[str, Any]:
    """Let the column go; return T and Z, tau and H at every frame."""
    d = 2.0 * BASE / n
    kind, _, adaptive = fluid.partition(" ")
    solver = tank(
        kind, lattice((0.0, 0.0, 0.0), (BASE, 2.0 * BASE, THICKNESS * d), d), spacing=d,
        upper=(LENGTH * BASE, CEILING * BASE, THICKNESS * d), sides=("wall", "wall", "periodic"),
        adaptive=True if adaptive else None,
    )  # fmt: skip
    times, fronts, heights = [0.0], [BASE], [2.0 * BASE]
    while times[-1] * np.sqrt(GRAVITY / BASE) < last:
        solver.run(1)
        places = written(solver, "position")
        times.append(solver.time)
        fronts.append(float(np.percentile(places[:, 0], 99)) + 0.5 * d)
        beside = places[places[:, 0] < 2.0 * d, 1]
        top = float(np.percentile(beside, 99)) + 0.5 * d if len(beside) else 0.0
        heights.append(top)
    time = np.array(times)
    return {
        "n": n,
        "fluid": fluid,
        "T": time * np.sqrt(2.0 * GRAVITY / BASE),
        "Z": np.array(fronts) / BASE,
        "tau": time * np.sqrt(GRAVITY / BASE),
        "H": np.array(heights) / (2.0 * BASE),
    }


def _judged(fluid: str, n: int, curves: dict[str, Any]) -> list[dict[str, Any]]:
    time, front = measured("front_n2_2")
    time, front = time[front < 4.0], front[front < 4.0]
    tau, height = measured("height_n2_2")
    tau, height = tau[tau <= curves["tau"][-1]], height[tau <= curves["tau"][-1]]

    def front_error(shift: float) -> float:
        return _rms(np.interp(time + shift, curves["T"], curves["Z"]) / front - 1.0)

    shift = min(np.linspace(-LARGEST_SHIFT, LARGEST_SHIFT, 81), key=front_error)
    name, words = fluid.replace(" ", "_"), f"height = {n} spacings"
    production = 0.08 if fluid in FLUIDS else None
    return [
        result(
            "sph_dam_break", f"{name}_front, rms error, {words}", front_error(0.0), 0.0,
            production=production, best=0.04,
        ),
        result(
            "sph_dam_break", f"{name}_front_shifted, rms error, by {shift:.3f}, {words}",
            front_error(shift), 0.0, production=production, best=0.04,
        ),
        result(
            "sph_dam_break", f"{name}_height, rms error, {words}",
            _rms(np.interp(tau, curves["tau"], curves["H"]) / height - 1.0), 0.0, best=0.05,
        ),
    ]  # fmt: skip


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
