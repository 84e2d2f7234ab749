"""The idols and the plinth that they stand on; in metres, Y up.

An idol is a turned body with a head, and a face, arms and a hat that overlap it: one closed mesh of
many parts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.data.mesh import merge
from loki_core.data.surface import Surface
from loki_graph.nodes.shape_source import turned, unit_sphere

Doubles = npt.NDArray[np.float64]
Place = tuple[float, float, float]

PLINTH = 0.30  # m, its upper side
#: Place on the plinth, height [m] and direction of the face about the y axis [rad] of each idol.
IDOLS = (
    ((0.0, 0.0), 1.15, 0.0),
    ((-0.52, 0.30), 0.72, -0.45),
    ((0.54, 0.26), 0.80, 0.45),
    ((-0.40, -0.46), 0.62, -2.3),
    ((0.38, -0.50), 0.68, 2.4),
)

#: Radius and height over the height of an idol, from below.
BODY = (
    (0.0, -0.02), (0.235, -0.02), (0.24, 0.03), (0.215, 0.06), (0.195, 0.08), (0.205, 0.16),
    (0.235, 0.26), (0.24, 0.34), (0.215, 0.42), (0.165, 0.48), (0.13, 0.515), (0.125, 0.545),
    (0.155, 0.575), (0.19, 0.63), (0.20, 0.70), (0.195, 0.77), (0.18, 0.82), (0.19, 0.835),
    (0.195, 0.86), (0.185, 0.885), (0.15, 0.90), (0.14, 0.945), (0.11, 0.98), (0.06, 0.997),
    (0.0, 1.0),
)  # fmt: skip
#: Middle and half axes of what overlaps it, the face towards +z; those with an x are twice there.
PARTS = (
    ((0.0, 0.675, 0.195), (0.030, 0.070, 0.050)),  # nose
    ((0.0, 0.755, 0.165), (0.130, 0.022, 0.045)),  # brow
    ((0.0, 0.590, 0.150), (0.075, 0.018, 0.040)),  # lips
    ((0.085, 0.705, 0.165), (0.040, 0.028, 0.030)),  # eyes
    ((0.200, 0.690, 0.000), (0.030, 0.085, 0.050)),  # ears
    ((0.235, 0.330, 0.030), (0.060, 0.150, 0.075)),  # arms
    ((0.110, 0.235, 0.205), (0.095, 0.042, 0.050)),  # hands on the belly
    ((0.120, 0.020, 0.205), (0.080, 0.045, 0.090)),  # feet
)


def idols() -> Surface:
    """Return all of them."""
    return merge([_placed(idol(), *one) for one in IDOLS])


def idol() -> Surface:
    """Return an idol of height 1 that looks along z."""
    parts = [turned(list(BODY), 40)]
    for middle, axes in PARTS:
        for side in (1.0, -1.0) if middle[0] else (1.0,):
            parts.append(ellipsoid((side * middle[0], *middle[1:]), axes))
    return merge(parts)


def plinth() -> Surface:
    """Return a round stone with a step."""
    return turned(
        [
            (0.0, -0.10), (1.22, -0.10), (1.24, -0.02), (1.22, 0.02), (1.12, 0.03), (1.08, 0.08),
            (1.08, 0.20), (1.12, 0.25), (1.12, 0.28), (1.08, PLINTH), (0.0, PLINTH),
        ],
        72,
    )  # fmt: skip


def ellipsoid(middle: Place, axes: Place) -> Surface:
    """Return an ellipsoid by its middle and half axes [m]."""
    surface = unit_sphere(20, 12)
    surface.positions = np.array(middle) + 2.0 * np.array(axes) * surface.positions
    return surface


def _placed(surface: Surface, place: tuple[float, float], height: float, turn: float) -> Surface:
    cosine, sine = np.cos(turn), np.sin(turn)
    matrix = np.array([[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]])
    middle = (place[0], PLINTH, place[1])
    surface.positions = height * surface.positions @ matrix.T + np.array(middle)
    return surface
