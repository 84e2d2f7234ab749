"""A steel ball swings through rising smoke."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, set_world, smooth


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a dusk with a lamp on each side."""
    set_world(scene, (0.10, 0.12, 0.18), (0.03, 0.03, 0.04), strength=0.6)
    add_floor(scene, 0.0, materials.plain((0.06, 0.06, 0.065), roughness=0.4))
    middle = (0.0, 1.4, 0.0)
    add_camera(scene, (0.0, 1.5, 7.0), (0.0, 1.55, 0.0), lens=60.0)
    add_lamp(scene, (-3.5, 3.0, -1.5), middle, power=800.0, size=1.2, color=(1.0, 0.72, 0.45))
    add_lamp(scene, (3.5, 3.0, -1.0), middle, power=600.0, size=1.2, color=(0.45, 0.65, 1.0))
    smoke = materials.smoke(40.0, color=(0.75, 0.75, 0.75))
    steel = materials.plain((0.75, 0.75, 0.76), roughness=0.12, metallic=1.0)
    burner = materials.plain((0.02, 0.02, 0.02), roughness=0.4)

    def show(frame: Frame) -> None:
        frame.show("Smoke/Plume", smoke)
        smooth(frame.show("ball", steel), levels=2)
        smooth(frame.show("burner", burner))

    return show


PICTURE = Picture(dress, still=56, clip=(13, 60, 2), options={"voxel_size": 0.025}, samples=(40, 8))
