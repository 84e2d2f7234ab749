"""Water, oil, cream and toothpaste on bullets, side by side."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import materials
from .particle_surface import as_surface
from .picture import Frame, Picture
from .stage import add_camera, add_floor, add_lamp, let_light_in, set_world, smooth

SPACING = 0.022  # m, of the example


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a bright studio."""
    set_world(scene, (0.80, 0.85, 0.90), (0.55, 0.55, 0.55), strength=0.55)
    add_floor(scene, -0.1, materials.plain((0.30, 0.32, 0.35), roughness=0.5))
    middle = (0.0, 0.3, 0.0)
    add_camera(scene, (0.0, 2.1, 6.6), (0.0, 0.22, 0.0), lens=46.0)
    add_lamp(scene, (-3.5, 4.0, 1.5), middle, power=420.0, size=2.0, color=(1.0, 0.95, 0.88))
    add_lamp(scene, (4.0, 3.0, -2.5), middle, power=260.0, size=2.0, color=(0.85, 0.92, 1.0))
    steel = materials.plain((0.42, 0.10, 0.06), roughness=0.35, coat=0.5)
    lanes = {
        "Water": materials.water(color=(0.70, 0.90, 0.95)),
        "Oil": materials.plain((0.85, 0.50, 0.05), roughness=0.08, coat=1.0),
        "Cream": materials.plain((0.90, 0.80, 0.62), roughness=0.25, coat=0.4),
        "Toothpaste": materials.plain((0.55, 0.85, 0.82), roughness=0.35, coat=0.3),
    }

    def show(frame: Frame) -> None:
        for name, material in lanes.items():
            drops = frame.show(f"{name}/Particles", material)
            as_surface(drops, SPACING)
            if name == "Water":
                let_light_in(drops)
        smooth(frame.show("solids", steel))

    return show


PICTURE = Picture(dress, still=18, clip=(1, 60, 1), samples=(64, 12))
