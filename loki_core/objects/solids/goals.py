"""Goals: what is prescribed of a solid's points goes where the points of its input go.

Between two frames the way is straight, or along the samples that the input has
(`objects/basics/motion.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.objects.basics.motion import PathInFrame, Piece

if TYPE_CHECKING:
    from loki_core.objects.solids.solid import Solid

Float = NDArray[np.float64]

STILL = Piece(np.zeros((1, 3)), np.zeros((1, 3)), 1.0)


def start_goals(solid: Solid) -> None:
    """Keep where points are before the input moves them for the first time."""
    particles = solid.particles
    if "goal" in particles.channels:
        return
    for name in ("goal", "goal_before"):
        particles.add_channel(name, np.float64, (3,))
        particles.local(name)[:] = particles.local("position")


def take_goals(solid: Solid, stream: Any) -> None:
    """Let prescribed points go where the input's are at the end of a new frame."""
    particles = solid.particles
    particles.local("goal_before")[:] = particles.local("goal")
    particles.local("goal")[:] = input_places(solid, stream.positions)


def goals(solid: Solid, part: float) -> Piece:
    """Return the straight piece of prescribed points' ways at a part of the frame."""
    if "goal" not in solid.particles.channels:
        return STILL
    before, after = solid.particles.local("goal_before"), solid.particles.local("goal")
    return PathInFrame(before, after, solid.motion_samples()).piece(part)


def input_places(solid: Solid, positions: NDArray[Any]) -> Float:
    """Of all points' world positions those of local points, relative to the domain's origin."""
    return solid.scope.domain.to_relative(positions[solid.particles.local("id")])
