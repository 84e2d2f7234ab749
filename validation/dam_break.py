"""A column of water that collapses on a dry floor, against the experiment of Martin & Moyce (1952).

Base a = 57.15 mm, height 2a, slip walls, adaptive substeps at CFL 1. The front is the 99th
percentile of the particles' x, Z = x / a against T = t sqrt(2 g / a). The height is that of the
particles beside the back wall, H = h / 2a against tau = t sqrt(g / a). The membrane of the
experiment took a time to go, so errors are told with one fitted shift of T, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._liquids import GRAVITY, PER_AXIS, lattice, slab, written
from ._report import result, rows_of

Array = NDArray[np.float64]

RESOLUTIONS = (16, 32)
BASE = 0.05715  # m
LENGTH, CEILING = 16.0, 3.0  # of the box, in bases
FRAMES_PER_SECOND = 200.0
LARGEST_SHIFT = 0.1  # of T
LAST = 7.4  # tau of the last height in the table


def run(resolutions: tuple[int, ...] = RESOLUTIONS, last: float = LAST) -> list[dict[str, Any]]:
    """Run at each resolution, until tau = `last`."""
    results = []
    for n in resolutions:
        curves = collapse(n, last)
        results += _judged(n, curves)
        results[-1]["curves"] = curves
    return results


def collapse(n: int, last: float) -> dict[str, Any]:
    """Let the column go; return T and Z, tau and H at every frame."""
    h = BASE / n
    solver = slab(
        lattice((0.0, 0.0), (BASE, 2.0 * BASE), h), loki.GravityForce(),
        voxel_size=h, lower=(0.0, 0.0), upper=(LENGTH * BASE, CEILING * BASE),
        frames_per_second=FRAMES_PER_SECOND, adaptive_substeps=True,
    )  # fmt: skip
    times, fronts, heights = [0.0], [BASE], [2.0 * BASE]
    while times[-1] * np.sqrt(GRAVITY / BASE) < last:
        solver.run(1)
        places, _ = written(solver)
        times.append(solver.time)
        fronts.append(float(np.percentile(places[:, 0], 99)))
        beside = places[places[:, 0] < h, 1]  # two rows, whose particles reach half a row further
        heights.append(float(np.percentile(beside, 99)) + 0.5 * h / PER_AXIS)
    time = np.array(times)
    return {
        "n": n,
        "T": time * np.sqrt(2.0 * GRAVITY / BASE),
        "Z": np.array(fronts) / BASE,
        "tau": time * np.sqrt(GRAVITY / BASE),
        "H": np.array(heights) / (2.0 * BASE),
    }


def measured(series: str) -> tuple[Array, Array]:
    """Times and values of one table of the experiment."""
    rows = [row for row in rows_of("martin_moyce.csv") if row["series"] == series]
    return np.array([float(r["T"]) for r in rows]), np.array([float(r["value"]) for r in rows])


def _judged(n: int, curves: dict[str, Any]) -> list[dict[str, Any]]:
    time, front = measured("front_n2_2")
    time, front = time[front < 4.0], front[front < 4.0]
    tau, height = measured("height_n2_2")
    tau, height = tau[tau <= curves["tau"][-1]], height[tau <= curves["tau"][-1]]

    def front_error(shift: float) -> float:
        return _rms(np.interp(time + shift, curves["T"], curves["Z"]) / front - 1.0)

    shift = min(np.linspace(-LARGEST_SHIFT, LARGEST_SHIFT, 81), key=front_error)
    words = f"n = {n} voxels a base"
    return [
        result(
            "dam_break", f"rms error of the front, {words}", front_error(0.0), 0.0,
            production=0.08, best=0.04,
        ),
        result(
            "dam_break", f"rms error of the front, shifted by {shift:.3f}, {words}",
            front_error(shift), 0.0, production=0.08, best=0.04,
        ),
        result(
            "dam_break", f"rms error of the height, {words}",
            _rms(np.interp(tau, curves["tau"], curves["H"]) / height - 1.0), 0.0, best=0.05,
        ),
    ]  # fmt: skip


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
