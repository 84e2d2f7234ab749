"""A free drop of particles that is drawn out by 5 % and let go: its slowest oscillation.

    omega^2 = 8 sigma / (rho R^3),    decay 5 nu / R^2      (Rayleigh 1879, Lamb 1932)

The drop is a linear map of a ball that is cut from a lattice of particles; its shape is told by the
second moments of the particles. The frequency is that of the damped cosine that fits best over one
period and a half. SPH adds viscosity where there is too little (`SmoothedParticleFluid.
artificial_viscosity`), so the decay is reported and not judged. Adaptive substeps, default
settings.

The one knob of Position-Based Fluids is no surface tension in N/m. Of it is asked that a cube
becomes a ball, told by the smallest over the largest of its moments, and that momentum is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result
from .drop_oscillation_flip import frequency

Array = NDArray[np.float64]

RESOLUTIONS = (10, 20)
RADIUS = 0.01  # m
TENSION = 0.0728  # N/m
DENSITY = 1000.0
STRETCH = 0.05
FRAMES = 32  # of a period
OFF_CENTRE = (0.13, 0.07, 0.21)  # spacings
CUBE = 14  # particles along an edge


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS, periods: float = 1.5, seconds: float = 4.0
) -> list[dict[str, Any]]:
    """Run at each resolution."""
    results = []
    for n in resolutions:
        words = f"R = {n} spacings"
        found = oscillate(n, periods)
        value, left = frequency(found["times"], found["shapes"])
        case = "drop_oscillation"
        results += [
            result(
                case, f"frequency over that of theory, {words}", value, 1.0,
                error=abs(value - 1.0), production=0.15, best=0.05,
            ),
            result(case, f"amplitude left after a period, {words}", left, 1.0),
            result(case, f"momentum, {words}", found["momentum"], 0.0),
        ]  # fmt: skip
        results[-3]["curves"] = {"n": n, **found}
    return results + round_off(seconds)


def oscillate(n: int, periods: float) -> dict[str, Any]:
    """Let the drop go; return times [periods] and shapes of frames, and its momentum."""
    omega = np.sqrt(8.0 * TENSION / (DENSITY * RADIUS**3))
    d = RADIUS / n
    steps = d * (np.arange(-n - 2, n + 2) + 0.5)
    places = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    places = places + np.array(OFF_CENTRE) * d
    side = 1.0 / np.sqrt(1.0 + STRETCH)
    places = places[np.linalg.norm(places, axis=1) < RADIUS] * (side, 1.0 + STRETCH, side)
    fluid = loki.SmoothedParticleFluid(surface_tension=TENSION)
    solver = _solver(
        places, fluid, d, frames_per_second=FRAMES * omega / (2.0 * np.pi), adaptive_substeps=True,
        max_substeps=1000,
    )  # fmt: skip
    shapes, velocities = [_shape(places)], []
    for _ in range(round(FRAMES * periods)):
        solver.run(1)
        written = solver.outputs()["Drop"]
        shapes.append(_shape(np.asarray(written.positions, np.float64)))
        velocities.append(np.asarray(written.channels["point"]["velocity"], np.float64))
    momentum = max(np.linalg.norm(v.sum(axis=0)) for v in velocities)
    return {
        "times": np.arange(len(shapes)) / FRAMES,
        "shapes": np.array(shapes),
        "momentum": float(momentum / max(np.linalg.norm(v, axis=1).sum() for v in velocities)),
    }


def round_off(seconds: float) -> list[dict[str, Any]]:
    """Let a cube of position-based particles become a ball."""
    d = 0.01
    steps = d * (np.arange(CUBE) + 0.5)
    places = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    fluid = loki.PositionBasedFluid(surface_tension=1.0)
    solver = _solver(places, fluid, d, frames_per_second=24.0, substeps=10, precision="double")
    solver.run(round(24 * seconds))
    written = solver.outputs()["Drop"]
    x = np.asarray(written.positions, np.float64)
    x = x - x.mean(axis=0)
    apart = np.linalg.norm(x, axis=1)
    directions = _directions()
    # How far the drop reaches in each direction: its outermost particles.
    reach = np.array([np.sort(x @ one)[-3:].mean() for one in directions])
    v = np.asarray(written.channels["point"]["velocity"], np.float64)
    momentum = float(np.linalg.norm(v.sum(axis=0)) / len(v))  # m/s, of all together
    spans = np.sqrt(np.linalg.eigvalsh(x.T @ x / len(x)))
    case = "drop_oscillation"
    return [
        result(
            case, "sphericity of a cube under kappa = 1", float(spans[0] / spans[2]), 1.0,
            production=0.98, best=0.98, lower_is_better=False,
        ),
        result(case, "least over largest reach", float(reach.min() / reach.max()), 1.0),
        result(case, "largest distance over a ball's", _over_ball(apart, d), 1.0),
        result(
            case, "drift of the cube under kappa = 1 [m/s]", momentum, 0.0, production=1e-9,
            best=1e-12,
        ),
    ]  # fmt: skip


def _over_ball(apart: Array, d: float) -> float:
    return float(apart.max() / (d * (3.0 * len(apart) / (4.0 * np.pi)) ** (1.0 / 3.0)))


def _directions() -> Array:
    found = np.random.default_rng(1).normal(size=(200, 3))
    unit: Array = found / np.linalg.norm(found, axis=1)[:, None]
    return unit


def _shape(places: Array) -> float:
    """How much longer than wide the drop is, by moments of what is not torn off."""
    x = places - np.median(places, axis=0)
    x = x[np.linalg.norm(x, axis=1) < 1.4 * RADIUS]
    span = x.std(axis=0)
    return float(2.0 * span[1] / (span[0] + span[2]) - 1.0) * 2.0 / 3.0


def _solver(places: Array, fluid: Any, spacing: float, **settings: Any) -> loki.Solver:
    radius = spacing * (3.0 / (4.0 * np.pi)) ** (1.0 / 3.0)
    drop = loki.ParticleObject(name="Drop", input="drop", radius=radius, density=DENSITY)
    setup = loki.SolverSetup("drop", drop, fluid, **settings)
    return loki.Solver(setup, {"drop": loki.Points(places)})
