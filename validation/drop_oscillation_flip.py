"""A free drop of water that is drawn out by 5 % and let go: its slowest oscillation.

    omega^2 = 8 sigma / (rho R^3) of a ball,   6 sigma / (rho R^3) of a cylinder   (Rayleigh 1879)

The drop is a linear map of a ball, which does not lie on the grid; its shape is told by the second
moments of its particles. omega is that of the damped cosine that fits best over three quarters of a
period. Volume is that of the ellipsoid with the particles' moments, at worst; momentum is told over
what it would be if all particles went the same way when they are fastest. The same drop without
stretch tells what moves by itself: the largest speed over sqrt(sigma / (rho R)). A ball that is cut
from a lattice is not quite round, so a part of that is true. Adaptive substeps, single precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._liquids import DENSITY, lattice, slab, written
from ._report import result

Array = NDArray[np.float64]

RESOLUTIONS = (8, 16)
RADIUS = 0.01  # m
TENSION = 0.0728  # N/m
STRETCH = 0.05
FRAMES = 24  # of a period
OFF_GRID = (0.1, 0.23, 0.37)  # of a voxel
SPEED = np.sqrt(TENSION / (DENSITY * RADIUS))  # m/s


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS,
    dimensions: tuple[int, ...] = (3, 2),
    periods: float = 0.75,
) -> list[dict[str, Any]]:
    """Run at each resolution."""
    results = []
    for dimension in dimensions:
        for n in resolutions:
            words = f"R = {n} voxels, {dimension}D"
            found = oscillate(n, dimension, periods)
            results += _judged(found, words)
            results[-4]["curves"] = {"n": n, "dimension": dimension, **found}
    coarsest = min(resolutions)
    for dimension in dimensions:
        speed = oscillate(coarsest, dimension, periods, stretch=0.0)["speeds"].max()
        words = f"R = {coarsest} voxels, {dimension}D"
        results.append(
            result("drop_oscillation_flip", f"largest speed at rest, {words}", speed, 0.0)
        )
    return results


def oscillate(
    n: int, dimension: int, periods: float, *, stretch: float = STRETCH, **settings: Any
) -> dict[str, Any]:
    """Let the drop go; return times [periods], shapes, speeds, volumes and momenta of frames."""
    omega = np.sqrt({3: 8.0, 2: 6.0}[dimension] * TENSION / (DENSITY * RADIUS**3))
    settings["frames_per_second"] = FRAMES * omega / (2.0 * np.pi)
    solver = _solver(n, dimension, stretch, settings)
    states = [written(solver)]
    for _ in range(round(FRAMES * periods)):
        solver.run(1)
        states.append(written(solver))
    spans = np.array([_spans(places, dimension) for places, _ in states])
    volumes = np.prod(spans, axis=1)
    speeds = [float(np.linalg.norm(velocity, axis=1).max()) / SPEED for _, velocity in states]
    return {
        "times": np.arange(len(states)) / FRAMES,
        "shapes": (spans[:, 1] / spans[:, 0] - 1.0) * (1.0 - 1.0 / dimension),
        "speeds": np.array(speeds),
        "volume": float(np.abs(volumes / volumes[0] - 1.0).max()),
        "momentum": _not_kept([velocity for _, velocity in states]),
    }


def _solver(n: int, dimension: int, stretch: float, settings: dict[str, Any]) -> loki.Solver:
    """A drop of n voxels' radius, alone in space or in a slab."""
    h = RADIUS / n
    tension = loki.SurfaceTensionForce(coefficient=TENSION)
    settings["adaptive_substeps"] = True
    if dimension == 2:
        places = _inside(lattice((-1.1 * RADIUS,) * 2, (1.1 * RADIUS,) * 2, h), h, 2)
        places[:, :2] *= (1.0 / (1.0 + stretch), 1.0 + stretch)
        box = {"lower": (-2.0 * RADIUS,) * 2, "upper": (2.0 * RADIUS,) * 2}
        return slab(places, tension, voxel_size=h, sides="open", **box, **settings)
    steps = 0.5 * h * (np.arange(-2 * n - 2, 2 * n + 2) + 0.5)
    places = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    side = 1.0 / np.sqrt(1.0 + stretch)
    places = _inside(places, h, 3) * (side, 1.0 + stretch, side)
    setup = loki.SolverSetup(
        "drop",
        loki.HybridObject(name="Water", voxel_size=h, input="water", density=DENSITY),
        loki.PressureMaterial(),
        tension,
        **settings,
    )
    return loki.Solver(setup, {"water": loki.Points(places)})


def _inside(places: Array, h: float, dimension: int) -> Array:
    """Those within the radius, moved off the grid."""
    places = places + np.array(OFF_GRID) * (h, h, h if dimension == 3 else 0.0)
    return places[np.linalg.norm(places[:, :dimension], axis=1) < RADIUS]


def _spans(places: Array, dimension: int) -> Array:
    """Standard deviations of places along the axes of the drop [m]."""
    return places[:, :dimension].std(axis=0)


def _not_kept(velocities: list[Array]) -> float:
    """Largest momentum of all frames over the largest of sum |v|."""
    total = max(np.linalg.norm(velocity.sum(axis=0)) for velocity in velocities)
    return float(total / max(np.linalg.norm(velocity, axis=1).sum() for velocity in velocities))


def frequency(times: Array, shapes: Array) -> tuple[float, float]:
    """Frequency, and part that a period leaves, of the damped cosine that fits best.

    Args:
        times: In periods of theory.
        shapes: About any mean.

    Returns:
        Periods in a period of theory, and amplitude after one over that before.
    """
    from scipy.optimize import curve_fit

    def wave(t: Array, amplitude: float, rate: float, f: float, phase: float, mean: float) -> Array:
        return amplitude * np.exp(-rate * t) * np.cos(2.0 * np.pi * f * t + phase) + mean

    best, _ = curve_fit(wave, times, shapes, (shapes[0], 0.0, 1.0, 0.0, 0.0))
    return float(best[2]), float(np.exp(-best[1]))


def _judged(found: dict[str, Any], words: str) -> list[dict[str, Any]]:
    value, left = frequency(found["times"], found["shapes"])
    case = "drop_oscillation_flip"
    return [
        result(
            case, f"frequency over that of theory, {words}", value, 1.0, error=abs(value - 1.0),
            production=0.15, best=0.05,
        ),
        result(case, f"amplitude left after a period, {words}", left, 1.0),
        result(case, f"change of volume, {words}", found["volume"], 0.0),
        result(case, f"momentum, {words}", found["momentum"], 0.0),
    ]  # fmt: skip
