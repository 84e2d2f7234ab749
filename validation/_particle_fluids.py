"""Particle fluids in boxes: what the cases of Position-Based and Smoothed Particle Fluid share.

Particles begin on a cubic lattice of spacing d, half a spacing from walls, and each fills d^3.
Settings are the Operators' own but for what the cases fix: Position-Based Fluid makes 240 steps of
ten iterations a second; Smoothed Particle Fluid has its own adaptive substeps within such frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

Array = NDArray[np.float64]

GRAVITY = 9.81  # m/s^2
DENSITY = 1000.0  # kg/m^3
SUPPORT = 2.0  # reach of a kernel in spacings, the Operators' default
FRAMES_PER_SECOND = 240.0
ITERATIONS = 10
FLUIDS = ("pbf", "sph")


def lattice(lower: tuple[float, ...], upper: tuple[float, ...], spacing: float) -> Array:
    """Places of the particles that fill a box of whole spacings [m], shape [n, 3]."""
    axes = [
        low + spacing * (np.arange(round((high - low) / spacing)) + 0.5)
        for low, high in zip(lower, upper)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)


def tank(
    fluid: str,
    places: Array,
    *,
    spacing: float,
    upper: tuple[float, float, float],
    sides: tuple[str, str, str] = ("wall", "wall", "wall"),
    adaptive: bool | None = None,
    **settings: Any,
) -> loki.Solver:
    """Return a solver whose Object "Water" has particles at these places, under gravity.

    Args:
        fluid: "pbf" or "sph".
        places: Where [m], shape [n, 3].
        spacing: Of particles [m].
        upper: Corner of the box, the other is the origin [m].
        sides: What the two sides across each axis are.
        adaptive: Whether substeps are; none is as the fluid needs it.
        settings: Of the fluid.
    """
    behavior: loki.Behavior
    if fluid == "pbf":
        behavior = loki.PositionBasedFluid(**{"iterations": ITERATIONS, **settings})
    else:
        behavior = loki.SmoothedParticleFluid(**settings)
    radius = spacing * float(np.cbrt(3.0 / (4.0 * np.pi)))  # of the ball that fills d^3
    setup = loki.SolverSetup(
        "tank",
        loki.ParticleObject(name="Water", input="water", radius=radius, density=DENSITY),
        behavior,
        loki.GravityForce(acceleration=(0.0, -GRAVITY, 0.0)),
        frames_per_second=FRAMES_PER_SECOND,
        adaptive_substeps=fluid == "sph" if adaptive is None else adaptive,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=upper,
        boundary_lower=sides,
        boundary_upper=sides,
    )
    return loki.Solver(setup, {"water": loki.Points(places)})


def written(solver: loki.Solver, name: str) -> Array:
    """A channel of all particles, in the order of their ids."""
    values: Array = solver.read("Water", name).astype(np.float64)
    return values


def iterations_of(solver: loki.Solver) -> int:
    """All that the fluid has made so far."""
    return sum(int(task["iterations"]) for task in solver.statistics() if "Fluid" in task["task"])


def densities(places: Array, spacing: float) -> Array:
    """Density over that at rest, of neighbours alone: what walls count for is missing.

    Wendland's C2 kernel (1 - q)^4 (1 + 4 q) of support h = 2 d, q = r / h, over its sum on a
    lattice: written anew, so that it does not repeat what the solver says of itself.
    """
    from scipy.spatial import cKDTree

    support = SUPPORT * spacing
    pairs = cKDTree(places).query_pairs(support, output_type="ndarray")
    apart = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
    value = _kernel(apart / support)
    found = np.full(len(places), 1.0)  # each one itself
    for side in (0, 1):
        found += np.bincount(pairs[:, side], value, minlength=len(places))
    reach = np.arange(-2, 3) / SUPPORT
    filled = np.stack(np.meshgrid(reach, reach, reach), axis=-1)
    at_rest = _kernel(np.minimum(np.linalg.norm(filled, axis=-1), 1.0)).sum()
    ratio: Array = found / at_rest
    return ratio


def _kernel(q: Array) -> Array:
    value: Array = (1.0 - q) ** 4 * (1.0 + 4.0 * q)
    return value
