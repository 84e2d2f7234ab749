"""Red wine fills a glass, against the light of a window."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .particle_surface import as_surface
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, let_light_in, set_world, smooth

SPACING = 0.002  # m, of the example


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a table before a bright wall."""
    set_world(scene, (0.95, 0.93, 0.90), (0.35, 0.30, 0.26), strength=0.6)
    add_floor(
        scene, -0.0005, materials.plain((0.28, 0.19, 0.12), roughness=0.3, coat=0.3), size=6.0
    )
    middle = (0.0, 0.11, 0.0)
    add_camera(scene, (0.08, 0.19, 0.42), (0.0, 0.098, 0.0), lens=62.0)
    add_lamp(scene, (-0.5, 0.5, -0.6), middle, power=22.0, size=0.5, color=(1.0, 0.93, 0.82))
    add_lamp(scene, (0.5, 0.4, 0.3), middle, power=7.0, size=0.35, color=(0.85, 0.92, 1.0))
    scene.cycles.transmission_bounces, scene.cycles.max_bounces = 12, 14
    wine, glass = materials.wine(), materials.glass()

    def show(frame: Frame) -> None:
        drops = frame.show("Wine/Particles", wine)
        as_surface(drops, SPACING)
        let_light_in(drops)
        vessel = frame.show("glass", glass)
        smooth(vessel)
        let_light_in(vessel)

    return show


PICTURE = Picture(dress, still=40, clip=(1, 72, 2), samples=(96, 24))
