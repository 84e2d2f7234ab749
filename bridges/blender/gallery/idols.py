"""A fountain of idols in a garden's afternoon."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .particle_surface import as_surface
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_sun, let_light_in, set_world, smooth

SPACING = 0.018  # m, of the example


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up low sun from behind, that makes the water shine."""
    set_world(scene, (0.30, 0.45, 0.70), (0.55, 0.60, 0.60), strength=0.7)
    add_floor(scene, -0.1, materials.plain((0.05, 0.07, 0.06), roughness=0.35, coat=0.5))
    add_camera(scene, (1.9, 1.5, 4.7), (0.0, 0.78, 0.0), lens=46.0)
    add_sun(scene, (-0.55, -0.65, -0.35), strength=3.5, angle=0.03, color=(1.0, 0.92, 0.80))
    add_sun(scene, (0.3, -0.5, 0.8), strength=2.0, angle=0.05, color=(1.0, 0.95, 0.85))
    water = materials.water(color=(0.80, 0.93, 0.96), foam=0.04)
    stone = materials.rock((0.30, 0.27, 0.23))

    def show(frame: Frame) -> None:
        drops = frame.show("Water/Particles", water)
        as_surface(drops, SPACING)
        let_light_in(drops)
        smooth(frame.show("idols", stone))
        frame.show("plinth", stone)

    return show


PICTURE = Picture(dress, still=72, clip=(13, 84, 2), samples=(48, 10))
