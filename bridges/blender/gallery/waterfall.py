"""A waterfall between rocks, whose spray the wind carries away."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_sun, let_light_in, set_world, smooth


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a clear day."""
    set_world(scene, (0.25, 0.42, 0.75), (0.75, 0.80, 0.85), strength=0.8)
    add_floor(scene, -0.05, materials.plain((0.07, 0.08, 0.05), roughness=0.9))
    add_camera(scene, (11.2, 3.6, 7.4), (2.6, 1.95, 2.4), lens=39.0)
    add_sun(scene, (-0.55, -0.8, -0.35), strength=4.0, angle=0.02, color=(1.0, 0.94, 0.84))
    water = materials.water(color=(0.72, 0.90, 0.93), foam=0.05)
    rock = materials.rock((0.21, 0.18, 0.155))

    def show(frame: Frame) -> None:
        surface = frame.show("Water/Surface", water)
        smooth(surface)
        let_light_in(surface)
        frame.show("cliff", rock)
        smooth(frame.show("stones", rock))

    return show


PICTURE = Picture(dress, still=66, clip=(25, 66, 2), samples=(32, 8))
