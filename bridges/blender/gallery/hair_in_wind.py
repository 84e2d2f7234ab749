"""Auburn hair on a mannequin's head, in a gust of wind against the light."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loki_vfx.bridges.standalone.gallery import find_example

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_lamp, set_world, smooth
from .strand_children import Children

STRANDS = 3000
CHILDREN = 26_000


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a studio: a warm rim from behind, a soft key, a dark backdrop."""
    set_world(scene, (0.16, 0.19, 0.24), (0.05, 0.055, 0.065), strength=0.6)
    middle = (0.0, 0.0, -0.05)
    add_camera(scene, (1.1, 0.08, 0.62), (0.0, 0.005, -0.10), lens=76.0, stop=5.6)
    add_lamp(scene, (-0.7, 0.9, -1.3), middle, power=40.0, size=0.5, color=(1.0, 0.82, 0.64))
    add_lamp(scene, (1.5, 1.0, 0.2), middle, power=34.0, size=0.7, color=(1.0, 0.95, 0.90))
    add_lamp(scene, (0.9, -0.2, 1.6), middle, power=7.0, size=1.5, color=(0.70, 0.82, 1.0))
    porcelain = materials.plain((0.55, 0.50, 0.47), roughness=0.38, coat=0.3)
    auburn = materials.hair(0.5, 0.8)
    start = find_example("hair_in_wind").build(strands=STRANDS)[1]["hair"](1)
    children = Children.between(start, CHILDREN, astray=0.0018, radius=(1.7e-4, 6.0e-5))

    def show(frame: Frame) -> None:
        smooth(frame.show("head", porcelain))
        frame.show("Hair/Strands", auburn, children.of(frame.streams["Hair/Strands"]))

    return show


PICTURE = Picture(dress, still=66, clip=(25, 72, 2), samples=(80, 14))
