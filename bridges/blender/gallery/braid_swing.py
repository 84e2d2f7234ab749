"""A blond braid that swings, close up."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridges.standalone.gallery import find_example

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_lamp, set_world
from .strand_children import Children

OPTIONS = {"strands_per_ply": 60}
CHILDREN = 14_000


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a studio with a strong rim light."""
    set_world(scene, (0.10, 0.14, 0.20), (0.03, 0.035, 0.045), strength=0.6)
    middle = (0.06, -0.15, 0.0)
    add_camera(scene, (0.18, -0.10, 1.05), (0.09, -0.15, 0.0), lens=75.0, stop=2.8)
    add_lamp(scene, (-0.7, 0.4, -0.7), middle, power=16.0, size=0.3, color=(1.0, 0.84, 0.66))
    add_lamp(scene, (0.8, 0.5, 0.9), middle, power=11.0, size=0.6, color=(1.0, 0.96, 0.92))
    add_lamp(scene, (-0.9, -0.3, 0.7), middle, power=2.5, size=0.8, color=(0.6, 0.75, 1.0))
    blond, thread = materials.hair(0.22, 0.35), materials.painted(roughness=0.6)
    start = find_example("braid_swing").build(**OPTIONS)[1]["braid"](1)
    children = Children.between(start, CHILDREN, astray=0.0006, radius=(6.0e-5, 3.0e-5))

    def show(frame: Frame) -> None:
        frame.show("Braid/Strands", blond, children.of(frame.streams["Braid/Strands"]))
        frame.show("Braid/Tie", thread)

    return show


PICTURE = Picture(dress, still=26, clip=(5, 44, 2), options=OPTIONS, samples=(80, 14))
