"""A block of water runs around a pillar."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, let_light_in, set_world, smooth


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a plain room; the tank has no walls to be seen."""
    set_world(scene, (0.55, 0.65, 0.80), (0.85, 0.85, 0.85), strength=0.45)
    add_floor(scene, 0.004, materials.plain((0.13, 0.16, 0.19), roughness=0.5))
    middle = (1.55, 0.3, 0.5)
    add_camera(scene, (2.4, 1.8, 5.4), (1.55, 0.62, 0.5), lens=44.0)
    add_lamp(scene, (-1.0, 4.0, -2.5), middle, power=900.0, size=1.6, color=(1.0, 0.93, 0.82))
    add_lamp(scene, (4.5, 2.5, -1.0), middle, power=250.0, size=1.5, color=(0.8, 0.9, 1.0))
    water = materials.water(color=(0.60, 0.85, 0.92))
    stone = materials.plain((0.45, 0.13, 0.05), roughness=0.45)

    def show(frame: Frame) -> None:
        surface = frame.show("Water/Surface", water)
        smooth(surface)
        let_light_in(surface)
        frame.show("pillar", stone)

    return show


PICTURE = Picture(dress, still=17, clip=(1, 60, 2), samples=(32, 8))
