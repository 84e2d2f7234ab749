"""Auburn hair on a mannequin's head, in a gust of wind against the light."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridges.standalone.gallery import find_example

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_lamp, set_world, smooth
from .strand_children import Children

STRANDS = 3000
CHILDREN = 45_000


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a studio: a warm rim from behind, a soft key, a dark backdrop."""
    set_world(scene, (0.16, 0.19, 0.24), (0.05, 0.055, 0.065), strength=0.6)
    middle = (0.0, 0.0, -0.05)
    add_camera(scene, (1.05, 0.06, 0.62), (0.02, -0.03, -0.10), lens=68.0, stop=4.0)
    add_lamp(scene, (-0.9, 0.8, -1.3), middle, power=42.0, size=0.5, color=(1.0, 0.80, 0.60))
    add_lamp(scene, (1.4, 1.1, 0.9), middle, power=26.0, size=0.9, color=(1.0, 0.95, 0.90))
    add_lamp(scene, (-1.2, 0.2, 1.2), middle, power=6.0, size=1.2, color=(0.65, 0.78, 1.0))
    porcelain = materials.plain((0.55, 0.50, 0.47), roughness=0.38, coat=0.3)
    auburn = materials.hair(0.62, 0.85)
    start = find_example("hair_in_wind").build(strands=STRANDS)[1]["hair"](1)
    children = Children.between(start, CHILDREN, astray=0.0022, radius=(8.0e-5, 3.0e-5))

    def show(frame: Frame) -> None:
        smooth(frame.show("head", porcelain))
        frame.show("Hair/Strands", auburn, children.of(frame.streams["Hair/Strands"]))

    return show


PICTURE = Picture(dress, still=66, clip=(25, 72), samples=(128, 20))
