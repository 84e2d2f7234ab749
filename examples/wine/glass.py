"""A wine glass: an outline that is turned about the y axis; in metres."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.data.surface import Surface
from loki_graph.nodes.shape_source import turned

Doubles = npt.NDArray[np.float64]

BOTTOM, RIM = 0.075, 0.158  # heights of the bowl's inside
WIDEST, MOUTH = 0.040, 0.031  # radii of it
BELLY = 0.48  # where it is widest, over its height
WALL = 0.004  # two particles or more, so that none gets through

#: Radius and height from below the foot to where the bowl begins.
FOOT_AND_STEM = (
    (0.0, 0.0),
    (0.036, 0.0),
    (0.0365, 0.0015),
    (0.034, 0.003),
    (0.014, 0.0055),
    (0.006, 0.011),
    (0.0045, 0.022),
    (0.0045, 0.052),
    (0.006, 0.062),
)


def glass() -> Surface:
    """Return the glass, closed."""
    inside = bowl()
    tangent = np.gradient(inside, axis=0)
    outward = np.stack((tangent[:, 1], -tangent[:, 0]), axis=1)
    outside = inside + WALL * outward / np.linalg.norm(outward, axis=1, keepdims=True)
    outside = outside[outside[:, 0] > 0.010]
    lip = 0.5 * (inside[-1] + outside[-1]) + (0.0, 0.5 * WALL)
    outline = np.concatenate((FOOT_AND_STEM, outside, lip[None], inside[::-1]))
    return turned([(float(radius), float(height)) for radius, height in outline], 64)


def bowl(steps: int = 24) -> Doubles:
    """Return the inside of the bowl from the axis to the rim, as radius and height."""
    angle = np.linspace(0.0, 0.5 * np.pi, steps // 2 + 1)
    part = np.linspace(0.0, 1.0, steps // 2 + 1)[1:]
    lower = np.stack((np.sin(angle), BELLY * (1.0 - np.cos(angle))), axis=1) * (WIDEST, 1.0)
    upper = np.stack((WIDEST + (MOUTH - WIDEST) * part**2, BELLY + (1.0 - BELLY) * part), axis=1)
    outline = np.concatenate((lower, upper))
    outline[:, 1] = BOTTOM + (RIM - BOTTOM) * outline[:, 1]
    return outline
