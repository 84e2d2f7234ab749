"""Liquids in a slab one Bucket thick and periodic along z: what cases of the Hybrid Object share.

Two particles along the edge of a voxel, which is the Object's default. The cross-section is found
from the particles that were written, with tent-shaped weights: a cell whose centre lies a depth of
s voxels below a plane surface is filled to

    f = 1 - (1 - s)^2 / 2  (s > 0),     f = (1 + s)^2 / 2  (s < 0)

which gives s back; the surface is where s = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

Array = NDArray[np.float64]

GRAVITY = 9.81  # m/s^2
DENSITY = 1000.0  # kg/m^3
PER_AXIS = 2  # particles along the edge of a voxel
THICKNESS = 8  # voxels of the slab: a Bucket
FINER = 8  # parts of a voxel's edge in which an area is counted


def lattice(lower: tuple[float, float], upper: tuple[float, float], voxel_size: float) -> Array:
    """Places of the particles that fill a rectangle of the slab [m], shape [n, 3]."""
    d = voxel_size / PER_AXIS
    x, y = (
        d * (np.arange(np.floor(low / d + 0.5), np.ceil(high / d - 0.5)) + 0.5)
        for low, high in zip(lower, upper)
    )
    z = d * (np.arange(THICKNESS * PER_AXIS) + 0.5)
    return np.stack(np.meshgrid(x, y, z, indexing="ij"), axis=-1).reshape(-1, 3)


def slab(
    places: Array,
    *behaviors: loki.Behavior,
    voxel_size: float,
    lower: tuple[float, float],
    upper: tuple[float, float],
    sides: str = "wall",
    velocity: Array | None = None,
    transfer: str = "apic",
    **settings: Any,
) -> loki.Solver:
    """Return a solver whose Object "Water" has particles at these places.

    Args:
        places: Where [m], shape [n, 3].
        behaviors: What acts beside the pressure.
        voxel_size: Of the liquid [m].
        lower: Corner of the box in x and y [m].
        upper: The other corner.
        sides: Of the box, "wall" or "open"; "channel" has walls across y and is periodic along x.
        velocity: Of the particles [m/s], shape [n, 3]; none is at rest.
        transfer: The Hybrid Object's.
        settings: Of the Solver Setup.
    """
    points = loki.Points(places)
    if velocity is not None:
        points.set_channel("point", "velocity", velocity)
    around = ("periodic", "wall") if sides == "channel" else (sides, sides)
    setup = loki.SolverSetup(
        "slab",
        loki.HybridObject(
            name="Water",
            voxel_size=voxel_size,
            input="water",
            density=DENSITY,
            particles_per_axis=PER_AXIS,
            transfer=transfer,
        ),
        loki.PressureMaterial(),
        *behaviors,
        domain_lower=(*lower, 0.0),
        domain_upper=(*upper, THICKNESS * voxel_size),
        boundary_lower=(*around, "periodic"),
        boundary_upper=(*around, "periodic"),
        **settings,
    )
    return loki.Solver(setup, {"water": points})


def written(solver: loki.Solver) -> tuple[Array, Array]:
    """Places [m] and velocities [m/s] of the particles, shape [n, 3], in the order of their ids."""
    return tuple(solver.read("Water", name).astype(np.float64) for name in ("position", "velocity"))


def area(
    places: Array, voxel_size: float, lower: tuple[float, float], upper: tuple[float, float]
) -> float:
    """Area of the cross-section [m^2]; what is beyond the box mirrors what is inside."""
    from scipy.ndimage import zoom

    depth = _depth(_filled(places, voxel_size, lower, upper))
    finer = zoom(np.pad(depth, 1, mode="edge"), FINER, order=1, grid_mode=True, mode="nearest")
    inside = finer[FINER:-FINER, FINER:-FINER]
    # A straight cut through a small square covers s + 1/2 of it, near enough.
    covered = np.clip(FINER * inside + 0.5, 0.0, 1.0)
    return float(covered.sum()) * (voxel_size / FINER) ** 2


def _filled(
    places: Array, voxel_size: float, lower: tuple[float, float], upper: tuple[float, float]
) -> Array:
    """Part of each cell that particles fill, over the whole thickness, shape [nx, ny]."""
    corner, size = np.array(lower), np.array(upper) - np.array(lower)
    shape = np.rint(size / voxel_size).astype(int)
    place = (places[:, :2] - corner) / voxel_size - 0.5
    first = np.floor(place).astype(int)
    part = place - first
    filled = np.zeros(shape)
    for i in (0, 1):
        for j in (0, 1):
            weight = np.abs(1 - i - part[:, 0]) * np.abs(1 - j - part[:, 1])
            cell = np.clip(first + np.array((i, j)), 0, shape - 1)
            np.add.at(filled, (cell[:, 0], cell[:, 1]), weight)
    return filled / (PER_AXIS**3 * THICKNESS)


def _depth(filled: Array) -> Array:
    """Depth of cells' centres below the surface, in voxels from -1 to 1."""
    above = np.sqrt(2.0 * np.clip(filled, 0.0, 1.0)) - 1.0
    below = 1.0 - np.sqrt(2.0 * np.clip(1.0 - filled, 0.0, 1.0))
    depth: Array = np.where(filled < 0.5, above, below)
    return depth
