"""Weed in a tank of clear water, and the ball that swings through it."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, let_light_in, set_world, smooth


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up light from behind, which the water is full of."""
    set_world(scene, (0.35, 0.48, 0.60), (0.75, 0.78, 0.78), strength=0.6)
    add_floor(scene, 0.004, materials.plain((0.50, 0.43, 0.32), roughness=0.8))
    middle = (0.62, 0.27, 0.32)
    add_camera(scene, (1.25, 0.62, 2.55), middle, lens=52.0)
    add_lamp(scene, (-0.6, 2.4, -1.6), middle, power=160.0, size=0.9, color=(1.0, 0.94, 0.82))
    add_lamp(scene, (2.4, 1.6, 1.4), middle, power=60.0, size=1.0, color=(0.85, 0.93, 1.0))
    water = materials.water(color=(0.80, 0.94, 0.95))
    weed = materials.plain((0.22, 0.42, 0.05), roughness=0.45, coat=0.3)
    paint = materials.plain((0.85, 0.32, 0.08), roughness=0.3, coat=0.5)

    def show(frame: Frame) -> None:
        surface = frame.show("Water/Surface", water)
        smooth(surface)
        let_light_in(surface)
        frame.show("Weed/Stems", weed)
        smooth(frame.show("ball", paint), levels=2)

    return show


PICTURE = Picture(dress, still=56, clip=(1, 94, 3), samples=(32, 8))
