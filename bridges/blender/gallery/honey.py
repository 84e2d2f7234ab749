"""Honey that coils on a plate, in the light of a kitchen's morning."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, set_world, smooth


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a bright table with the light behind the honey, which it shines through."""
    set_world(scene, (1.0, 0.95, 0.86), (0.30, 0.24, 0.18), strength=0.45)
    table = materials.plain((0.55, 0.50, 0.44), roughness=0.25, coat=0.4)
    add_floor(scene, -0.0002, table, size=4.0)
    middle = (0.0, 0.025, 0.0)
    add_camera(scene, (0.03, 0.10, 0.30), (0.0, 0.027, 0.0), lens=85.0, stop=16.0)
    add_lamp(scene, (-0.20, 0.25, -0.30), middle, power=6.0, size=0.12, color=(1.0, 0.88, 0.70))
    add_lamp(scene, (0.35, 0.30, 0.15), middle, power=2.5, size=0.25, color=(0.85, 0.92, 1.0))
    scene.cycles.transmission_bounces, scene.cycles.max_bounces = 8, 10
    honey = materials.honey()
    steel = materials.plain((0.75, 0.75, 0.76), roughness=0.18, metallic=1.0)

    def show(frame: Frame) -> None:
        smooth(frame.show("Honey/Surface", honey))
        frame.show("pipe", steel)

    return show


PICTURE = Picture(dress, still=60, clip=(13, 72, 1), samples=(96, 24))
