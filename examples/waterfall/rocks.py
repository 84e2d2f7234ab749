"""The rocks of the waterfall, and the water between them; in metres, Y up.

A river runs along +X between banks, over a ledge with stones on its lip, into a basin.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.data.mesh import merge
from loki_core.data.surface import Surface
from loki_graph.nodes.shape_source import box_between, unit_sphere

Doubles = npt.NDArray[np.float64]

LEDGE, HEIGHT = 1.83, 3.17  # where the river falls, and from where
RIVER = (1.6, 0.0, 0.0)  # m/s
FLUX = 1.0  # m^3/s
SOURCE = ((0.0, HEIGHT, 1.4), (0.5, HEIGHT + 0.4, 3.4))

#: Corners of what the river runs on and between, and of the basin's rim.
BLOCKS = (
    ((-0.4, -0.4, -0.4), (LEDGE, HEIGHT, 5.2)),
    ((-0.44, HEIGHT - 0.2, -0.44), (LEDGE - 0.1, HEIGHT + 0.9, 1.4)),
    ((-0.44, HEIGHT - 0.2, 3.4), (LEDGE - 0.1, HEIGHT + 0.9, 5.24)),
    ((LEDGE - 0.2, -0.44, -0.48), (5.97, 0.77, 0.37)),
    ((LEDGE - 0.2, -0.4, 4.43), (5.97, 0.77, 5.28)),
    ((5.57, -0.48, 0.17), (6.01, 0.47, 4.63)),
)
#: Middle and half axes of stones: on the lip, below the fall, in the basin.
STONES = (
    ((1.78, 3.20, 2.00), (0.30, 0.42, 0.20)),
    ((1.72, 3.15, 2.80), (0.35, 0.40, 0.26)),
    ((1.65, 3.20, 1.40), (0.30, 0.55, 0.25)),
    ((1.65, 3.20, 3.42), (0.30, 0.50, 0.25)),
    ((1.85, 1.70, 2.55), (0.40, 0.35, 0.45)),
    ((2.75, 0.15, 1.70), (0.50, 0.60, 0.45)),
    ((3.05, 0.05, 3.05), (0.45, 0.50, 0.55)),
    ((4.60, 0.10, 1.15), (0.50, 0.60, 0.40)),
)
WATER = (
    ((LEDGE, 0.0, 0.37), (5.57, 0.5, 4.43)),
    ((0.0, HEIGHT, 1.4), (LEDGE, HEIGHT + 0.3, 3.4)),
)


def cliff() -> Surface:
    """Return what the river runs on and between, and the basin, one closed mesh of many parts."""
    return merge([box_between(*corners) for corners in BLOCKS])


def stones() -> Surface:
    """Return the stones in the water."""
    axes = enumerate(STONES)
    return merge([stone(np.array(middle), np.array(half), k) for k, (middle, half) in axes])


def pool_and_river() -> Surface:
    """Return the water of the start."""
    return merge([box_between(*corners) for corners in WATER])


def stone(middle: Doubles, axes: Doubles, seed: int) -> Surface:
    """Return an ellipsoid with dents."""
    surface = unit_sphere(24, 16)
    way = 2.0 * surface.positions
    random = np.random.default_rng(seed)
    waves, phases = 1.7 * random.standard_normal((5, 3)), 2.0 * np.pi * random.random(5)
    bumps = np.sin(way @ waves.T + phases).mean(axis=1, keepdims=True)
    surface.positions = middle + axes * way * (1.0 + 0.25 * bumps)
    return surface
