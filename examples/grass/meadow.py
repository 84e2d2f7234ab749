"""A meadow: blades of grass that bend under their own shape, on gently hilly ground; metres, Y up.

A blade stands in one vertical plane. Its direction leans by an angle that grows along it,

    lean(s) = tilt + bend (s / length)^1.5
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.data.curves import Curves
from loki_core.data.surface import Surface

Doubles = npt.NDArray[np.float64]

WIDTH = 2.0  # m, of the ground
CELLS = 40  # of the ground along each edge
ROOT_RADIUS = 1.4e-3  # m
TIP_PART = 0.12  # of the root's radius
SHORTEST, LONGEST = 0.15, 0.35  # m
FRESH, DRY = (0.085, 0.21, 0.030), (0.34, 0.31, 0.085)  # linear colours
EARTH = (0.055, 0.045, 0.028)


def meadow(blades: int = 6000, vertices: int = 10) -> tuple[Surface, Curves]:
    """Return the ground, and blades of grass that are rooted on it.

    Args:
        blades: How many.
        vertices: Points of a blade, at equal distances.
    """
    random = np.random.default_rng(7)
    place = _even_places(blades, random)
    roots = np.stack((place[:, 0], ground_height(place), place[:, 1]), axis=1)
    wave = random.random((blades, 5))
    thick = 0.5 + 0.5 * _swell(place, 5.0, 1.3)  # grass is higher in some places
    lengths = SHORTEST + (LONGEST - SHORTEST) * np.clip(0.6 * wave[:, 0] + 0.4 * thick, 0.0, 1.0)
    # neighbours lean alike, in a direction that drifts over the meadow
    azimuth = 2.5 * _swell(place, 2.3, 0.4) + 2.2 * np.pi * (wave[:, 1] - 0.5)
    tilt = np.radians(3.0 + 16.0 * wave[:, 2])
    bend = np.radians(18.0 + 75.0 * wave[:, 3] ** 2)
    along = (np.arange(vertices - 1) + 0.5) / (vertices - 1)
    lean = tilt[:, None] + bend[:, None] * along**1.5
    step = (lengths / (vertices - 1))[:, None, None]
    sideways = np.stack((np.cos(azimuth), np.zeros(blades), np.sin(azimuth)), axis=1)
    headings = np.sin(lean)[..., None] * sideways[:, None]
    headings[..., 1] += np.cos(lean)
    strands = np.empty((blades, vertices, 3))
    strands[:, 0] = roots
    strands[:, 1:] = roots[:, None] + np.cumsum(step * headings, axis=1)
    curves = Curves.from_strands(strands)
    taper = 1.0 - (1.0 - TIP_PART) * np.linspace(0.0, 1.0, vertices) ** 1.8
    radius = ROOT_RADIUS * (0.7 + 0.6 * wave[:, 4])[:, None] * taper
    curves.set_channel("point", "radius", radius.reshape(-1))
    curves.set_channel("primitive", "id", np.arange(blades, dtype=np.int64))
    # a blade is broad across the plane in which it leans
    across = np.stack((-np.sin(azimuth), np.zeros(blades), np.cos(azimuth)), axis=1)
    curves.set_channel("primitive", "normal", across)
    dry = (wave[:, 1] ** 4)[:, None]
    curves.set_channel("primitive", "Cd", (1.0 - dry) * np.array(FRESH) + dry * np.array(DRY))
    return ground(), curves


def ground() -> Surface:
    """Return the hilly ground, its faces up."""
    line = np.linspace(-0.5 * WIDTH, 0.5 * WIDTH, CELLS + 1)
    x, z = (a.reshape(-1) for a in np.meshgrid(line, line, indexing="ij"))
    corner = (np.arange(CELLS)[:, None] * (CELLS + 1) + np.arange(CELLS)).reshape(-1)
    across, beside = corner + CELLS + 1, corner + 1
    far = across + 1
    triangles = np.concatenate(
        (np.stack((corner, beside, far), axis=1), np.stack((corner, far, across), axis=1))
    )
    surface = Surface.from_faces(np.stack((x, _hills(x, z), z), axis=1), triangles)
    surface.set_channel("point", "Cd", np.tile(EARTH, (len(x), 1)))
    return surface


def ground_height(places: Doubles) -> Doubles:
    """Return the height [m] of the ground's triangles at places (x, z) [n, 2]."""
    cell = WIDTH / CELLS
    scaled = (places + 0.5 * WIDTH) / cell
    low = np.clip(np.floor(scaled), 0, CELLS - 1)
    u, v = (scaled - low).T
    x, z = (low * cell - 0.5 * WIDTH).T
    here, far = _hills(x, z), _hills(x + cell, z + cell)
    across, beside = _hills(x + cell, z), _hills(x, z + cell)
    upper = here + v * (beside - here) + u * (far - beside)
    lower = here + u * (across - here) + v * (far - across)
    return np.asarray(np.where(v >= u, upper, lower))


def _hills(x: Doubles, z: Doubles) -> Doubles:
    slow = 0.055 * np.sin(2.1 * x + 0.7) * np.cos(1.7 * z - 0.4)
    return np.asarray(slow + 0.018 * np.sin(4.3 * x - 3.1 * z + 1.1))


def _swell(place: Doubles, rate: float, phase: float) -> Doubles:
    """Return a smooth field between -1 and 1 that drifts over the meadow."""
    x, z = place.T
    return np.asarray(
        0.6 * np.sin(rate * x + 1.9 * np.sin(0.7 * rate * z + phase))
        + 0.4 * np.sin(1.3 * rate * z - 0.8 * rate * x + 2.0 * phase)
    )


def _even_places(count: int, random: np.random.Generator) -> Doubles:
    """Return places (x, z) [m] that fill the ground evenly: a lattice of irrational steps, shaken.

    The steps are powers of 1 / p, p^3 = p + 1, which leaves no gaps for any count.
    """
    index = np.arange(count)[:, None] + 0.5
    lattice = index * np.array([0.7548776662466927, 0.5698402909980532]) % 1.0
    shaken = lattice + 0.45 * (random.random((count, 2)) - 0.5) / np.sqrt(max(count, 1))
    places: Doubles = (np.clip(shaken, 0.002, 0.998) - 0.5) * WIDTH
    return places
