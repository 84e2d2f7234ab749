"""Hot smoke above a glowing ball, lit from behind."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, set_world


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a dark room with a warm lamp behind the smoke and a cool one before it."""
    set_world(scene, (0.10, 0.13, 0.20), (0.02, 0.025, 0.035), strength=0.5)
    add_floor(scene, 0.0, materials.plain((0.05, 0.05, 0.055), roughness=0.35))
    middle = (0.0, 1.7, 0.0)
    add_camera(scene, (0.0, 1.5, 7.5), (0.0, 1.62, 0.0), lens=62.0)
    add_lamp(scene, (-3.6, 4.2, -2.5), middle, power=900.0, size=1.5, color=(1.0, 0.85, 0.68))
    add_lamp(scene, (4.5, 2.5, 2.0), middle, power=220.0, size=2.5, color=(0.62, 0.78, 1.0))
    smoke = materials.smoke(45.0, color=(0.62, 0.60, 0.58), glow=9.0, glow_from=430.0)
    ball = materials.plain((0.02, 0.02, 0.02), roughness=0.4)

    def show(frame: Frame) -> None:
        frame.show("Smoke/Plume", smoke)
        frame.show("ball", ball)

    return show


PICTURE = Picture(dress, still=60, clip=(9, 68), options={"voxel_size": 0.02}, samples=(96, 12))
