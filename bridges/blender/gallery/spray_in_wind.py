"""Spray against the light, that the wind sorts by size."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loki_graph.mesh_channels import shallow_copy

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, set_world

SEEN = 3.0  # how much larger drops are drawn than they are


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up dusk, with a lamp behind the drops."""
    set_world(scene, (0.05, 0.08, 0.14), (0.02, 0.025, 0.03), strength=0.8)
    add_floor(scene, 0.0, materials.plain((0.03, 0.035, 0.04), roughness=0.25, coat=0.5))
    middle = (1.2, 1.0, 0.0)
    add_camera(scene, (1.9, 1.0, 6.2), (1.4, 1.22, 0.0), lens=43.0)
    add_lamp(scene, (-1.5, 4.0, -4.0), middle, power=1500.0, size=1.2, color=(1.0, 0.90, 0.75))
    add_lamp(scene, (5.0, 3.0, -3.0), middle, power=700.0, size=1.0, color=(0.6, 0.8, 1.0))
    scene.render.use_motion_blur = True
    scene.render.motion_blur_shutter = 0.5
    drops = materials.mist()

    def show(frame: Frame) -> None:
        spray = shallow_copy(frame.streams["Spray/Drops"])
        spray.set_channel("point", "radius", SEEN * spray.channels["point"]["radius"])
        frame.show("Spray/Drops", drops, spray)

    return show


PICTURE = Picture(dress, still=72, clip=(13, 84, 1), samples=(64, 16))
