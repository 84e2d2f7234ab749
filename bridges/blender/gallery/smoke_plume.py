"""Hot smoke above a glowing ball, lit from behind."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .picture import Frame, Picture
from .stage import add_bloom, add_camera, add_floor, add_lamp, set_world


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a dark room with a warm lamp behind the smoke and a cool one before it."""
    set_world(scene, (0.05, 0.07, 0.11), (0.012, 0.014, 0.02), strength=0.5)
    add_floor(scene, 0.0, materials.plain((0.018, 0.018, 0.02), roughness=0.35))
    middle = (0.0, 1.6, 0.0)
    add_camera(scene, (0.0, 1.3, 8.0), (0.0, 1.45, 0.0), lens=62.0)
    add_lamp(scene, (-3.8, 4.4, -2.2), middle, power=1500.0, size=1.0, color=(1.0, 0.86, 0.70))
    add_lamp(scene, (4.5, 2.0, -1.0), middle, power=450.0, size=1.2, color=(0.45, 0.65, 1.0))
    add_bloom(scene, strength=0.25)
    smoke = materials.smoke(50.0, color=(0.36, 0.34, 0.32), glow=5.0, glow_from=440.0)
    ball = materials.plain((0.02, 0.02, 0.02), roughness=0.4)

    def show(frame: Frame) -> None:
        frame.show("Smoke/Plume", smoke)
        frame.show("ball", ball)

    return show


PICTURE = Picture(dress, still=46, clip=(9, 56, 2), options={"voxel_size": 0.02}, samples=(40, 8))
