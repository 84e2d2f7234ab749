"""Hair dynamics of Blender: a script for the Python that has bpy; prints one line of JSON.

    python _blender_hair.py '{"strands": 1000, "vertices": 17, "frames": 8}'

A hair particle system with dynamics on an upright plane of 1 m: strands of 0.5 m stick out along
the normal, and fall. Blender's solver is that of its cloth with springs along a strand; quality 5,
the default, is 5 substeps a frame of 1/24 s. A frame's time is that of evaluating it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any

FRAMES_PER_SECOND = 24
SUBSTEPS = 5
PLANE, LENGTH = 1.0, 0.5  # m
WARM_UP = 2  # frames that are not counted


def build(case: dict[str, Any]) -> None:
    """Make the scene of a case."""
    import bpy

    for one in list(bpy.data.objects):
        bpy.data.objects.remove(one)
    scene = bpy.context.scene
    frames = 1 + WARM_UP + int(case["frames"])
    scene.render.fps = FRAMES_PER_SECOND
    scene.frame_start, scene.frame_end = 1, frames
    bpy.ops.mesh.primitive_grid_add(
        x_subdivisions=50, y_subdivisions=50, size=PLANE, rotation=(0.0, 0.5 * math.pi, 0.0)
    )
    wall = bpy.context.object
    wall.modifiers.new("Hair", "PARTICLE_SYSTEM")
    system = wall.particle_systems[0]
    settings = system.settings
    settings.type = "HAIR"
    settings.count = int(case["strands"])
    settings.hair_length = LENGTH
    settings.hair_step = int(case["vertices"]) - 1
    system.use_hair_dynamics = True
    system.cloth.settings.quality = SUBSTEPS
    system.point_cache.frame_start, system.point_cache.frame_end = 1, frames


def mean_fall() -> float:
    """How far the tips are below their roots by now, on average [m]."""
    import bpy

    wall = bpy.context.object.evaluated_get(bpy.context.evaluated_depsgraph_get())
    system = wall.particle_systems[0]
    last = 2**system.settings.display_step
    drops = [
        system.co_hair(wall, particle_no=number, step=0)[2]
        - system.co_hair(wall, particle_no=number, step=last)[2]
        for number in range(len(system.particles))
    ]
    return float(sum(drops) / len(drops))


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case and return its figures."""
    import bpy
    import numpy as np

    build(case)
    scene = bpy.context.scene
    scene.frame_set(1)
    seconds, processor = [], []
    for frame in range(2, 2 + WARM_UP + int(case["frames"])):
        start, used = time.perf_counter(), time.process_time()
        scene.frame_set(frame)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    counted = seconds[WARM_UP:]
    return {
        "peer": "Blender hair dynamics",
        "blender": bpy.app.version_string,
        "vertices": int(case["strands"]) * int(case["vertices"]),
        "substeps": SUBSTEPS,
        "frame_seconds": float(np.min(counted)),
        "frame_seconds_mean": float(np.mean(counted)),
        "processor_seconds_mean": float(np.mean(processor[WARM_UP:])),
        "mean_fall": mean_fall(),
    }


if __name__ == "__main__":
    figures = measure(json.loads(sys.argv[1]))
    print("\nFIGURES " + json.dumps(figures), flush=True)
    sys.stderr.flush()
    os._exit(0)  # as in _mantaflow_smoke.py: leaving bpy the ordinary way may abort
