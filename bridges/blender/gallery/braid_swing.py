"""A blond braid that swings, close up."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_graph.mesh_channels import shallow_copy
from loki_vfx.bridges.standalone.gallery import find_example

from . import materials
from .picture import Frame, Picture
from .stage import add_camera, add_lamp, set_world
from .strand_children import Children

OPTIONS = {"strands_per_ply": 60}
CHILDREN = 14_000
TIE = 0.0012  # m: as thick as the thread is drawn


def dress(scene: Any) -> Callable[[Frame], None]:
    """Set up a studio with a strong rim light."""
    set_world(scene, (0.10, 0.14, 0.20), (0.03, 0.035, 0.045), strength=0.6)
    middle = (0.28, -0.12, 0.0)
    add_camera(scene, (0.36, -0.06, 0.95), middle, lens=78.0, stop=4.0)
    add_lamp(scene, (-0.2, 0.5, -0.8), middle, power=60.0, size=0.3, color=(1.0, 0.84, 0.66))
    add_lamp(scene, (1.1, 0.6, 0.7), middle, power=60.0, size=0.5, color=(1.0, 0.96, 0.92))
    add_lamp(scene, (-0.9, -0.3, 0.7), middle, power=14.0, size=0.8, color=(0.6, 0.75, 1.0))
    blond, thread = materials.hair(0.16, 0.35), materials.painted(roughness=0.6)
    start = find_example("braid_swing").build(**OPTIONS)[1]["braid"](1)
    children = Children.between(start, CHILDREN, astray=0.0007, radius=(1.0e-4, 5.0e-5))

    def show(frame: Frame) -> None:
        frame.show("Braid/Strands", blond, children.of(frame.streams["Braid/Strands"]))
        tie = shallow_copy(frame.streams["Braid/Tie"])
        tie.set_channel("point", "radius", np.full(tie.point_count, TIE, np.float32))
        frame.show("Braid/Tie", thread, tie)

    return show


PICTURE = Picture(dress, still=30, clip=(17, 46, 1), options=OPTIONS, samples=(80, 14))
