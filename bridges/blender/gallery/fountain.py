"""Glowing drops that a vortex twists, over a wet black floor."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loki_graph.mesh_channels import shallow_copy

from . import materials
from .picture import Frame, Picture
from .stage import add_bloom, add_camera, add_floor, add_lamp, set_world


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up night: the drops are the light."""
    set_world(scene, (0.015, 0.022, 0.045), (0.004, 0.005, 0.008), strength=1.0)
    add_floor(scene, 0.0, materials.plain((0.012, 0.012, 0.014), roughness=0.22, coat=0.6))
    add_camera(scene, (0.0, 1.0, 8.6), (0.0, 1.08, 0.0), lens=52.0)
    add_lamp(scene, (4.0, 5.0, -5.0), (0.0, 1.5, 0.0), power=120.0, size=3.0, color=(0.4, 0.6, 1.0))
    add_bloom(scene, strength=0.6)
    scene.render.use_motion_blur = True
    scene.render.motion_blur_shutter = 0.7
    embers = materials.embers("glow", strength=9.0)

    def show(frame: Frame) -> None:
        drops = shallow_copy(frame.streams["Fountain/Drops"])
        # Cycles takes the name "heat" for a grid of a volume
        drops.set_channel("point", "glow", drops.channels["point"]["heat"])
        frame.show("Fountain/Drops", embers, drops)

    return show


PICTURE = Picture(dress, still=60, clip=(19, 66, 1), samples=(96, 16))
