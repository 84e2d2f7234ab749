"""What tests that bake share: a small simulation, and a clock that is turned by hand."""

from __future__ import annotations

import os
import time
from typing import Any

import bpy

from loki_vfx.bridges.blender import bakes, exposed
from loki_vfx.bridges.blender.clock import tick_all
from loki_vfx.bridges.blender.declared_properties import set_value

LONGEST = float(os.environ.get("LOKI_TEST_SECONDS", "300"))  # the first bake compiles kernels


def set_exposed(tree: Any, **values: Any) -> None:
    """Set exposed parameters by their names."""
    found = {entry.title: target for entry, target in exposed.targets(tree)}
    for name, value in values.items():
        set_value(found[name].owner, found[name].parameter, value)


def hair_of_few_strands(scene: Any, file: str) -> Any:
    """Return the graph of hair in wind on a ball, in a file that was saved."""
    scene.frame_start, scene.frame_end = 1, 10
    bpy.ops.loki.add_template(template="hair_in_wind")
    tree = scene.loki.graph
    set_exposed(tree, hair_count=60, wind_detail=0.1)
    tree.loki.checkpoint_every = 2
    bpy.ops.wm.save_as_mainfile(filepath=file)
    return tree


def pump(until: Any) -> None:
    """Let the clock of the add-on run until something is so."""
    end = time.monotonic() + LONGEST
    while not until():
        tick_all()
        assert time.monotonic() < end, [
            (b.state, b.message, list(b.log)) for _, b in bakes.all_bakes()
        ]
        time.sleep(0.02)
    tick_all()
