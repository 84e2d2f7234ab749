"""A meadow at eye level of a beetle, in low sun, with a gust running through it."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_vfx.examples.grass.example import EARTH
from loki_vfx.examples.grass.meadow import WIDTH

from . import materials
from .picture import Frame, Picture
from .stage import add_bloom, add_camera, add_sun, mirrored_tiles, set_world, smooth

#: Where the meadow goes on, mirrored, in its own widths along x and z.
TILES = [(x, z) for z in (0, -1, -2, -3) for x in (-2, -1, 0, 1, 2) if (x, z) != (0, 0)]


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a low sun against the camera and a hazy sky."""
    set_world(scene, (0.06, 0.22, 0.75), (0.55, 0.78, 1.0), strength=0.8)
    add_camera(scene, (-0.1, 0.36, 1.5), (0.0, 0.19, 0.0), lens=45.0, stop=2.0, focus=(0, 0.2, 0.6))
    add_sun(scene, (0.62, -0.30, 0.75), strength=16.0, angle=0.02, color=(1.0, 0.74, 0.42))
    add_bloom(scene, strength=0.15)
    blades, earth = materials.blades(), materials.painted(roughness=0.9)

    def show(frame: Frame) -> None:
        raised = np.eye(4)
        raised[1, 3] = 0.5 * EARTH  # a shell has its faces in its middle
        ground = frame.streams["ground"].transformed(raised)
        shown = [frame.show("ground", earth, ground), frame.show("Grass/Blades", blades)]
        smooth(shown[0])
        mirrored_tiles(scene, shown, width=WIDTH, places=TILES)

    return show


PICTURE = Picture(dress, still=40, clip=(13, 60, 2), options={"blades": 8000}, samples=(64, 10))
