"""Smoke in Blender's Mantaflow: a script for the Python that has bpy; prints one line of JSON.

    python _mantaflow_smoke.py '{"shape": "box", "resolution": 64, "steps": 6, "adaptive": false}'

A cube of 2 m, smoke and heat in place from the start, open sides, MacCormack advection (Blender's
default) of velocity, density and heat, no noise, no dissolving, one solver step of fixed length a
frame, pressure to Mantaflow's default accuracy. Shape "box": smoke everywhere. Shape "plume": a
stem and a ball on it, 5 % of the box. Times are Mantaflow's own, of the solver step alone;
Blender's work around it (emission, files) is in `frame_seconds` only.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from typing import Any

from _bpy_manta import MantaClock, box, repair

EDGE = 2.0  # m
FRAMES_PER_SECOND = 24
STEM_RADIUS, BALL_RADIUS, BALL_CENTER = 0.2, 0.43, 0.95  # m; together 5 % of the cube
WARM_UP = 2  # steps that are not counted


def smoke_shapes(shape: str) -> list[Any]:
    """Return the meshes that are full of smoke at the start."""
    import bpy

    if shape == "box":
        return [box("smoke", (-0.1, -0.1, -0.1), (EDGE + 0.1, EDGE + 0.1, EDGE + 0.1))]
    middle = 0.5 * EDGE
    bpy.ops.mesh.primitive_uv_sphere_add(
        radius=BALL_RADIUS, location=(middle, middle, BALL_CENTER), segments=64, ring_count=32
    )
    ball = bpy.context.object
    bpy.ops.mesh.primitive_cylinder_add(
        radius=STEM_RADIUS, depth=BALL_CENTER, location=(middle, middle, 0.5 * BALL_CENTER)
    )
    return [ball, bpy.context.object]


def build(case: dict[str, Any], folder: str) -> Any:
    """Make the scene of a case and return its domain object."""
    import bpy

    scene = bpy.context.scene
    scene.render.fps = FRAMES_PER_SECOND
    frames = int(case["steps"]) + WARM_UP
    scene.frame_start, scene.frame_end = 1, frames
    made = box("domain", (0.0, 0.0, 0.0), (EDGE, EDGE, EDGE))
    modifier = made.modifiers.new("F", "FLUID")
    modifier.fluid_type = "DOMAIN"
    domain = modifier.domain_settings
    domain.domain_type = "GAS"
    domain.resolution_max = int(case["resolution"])
    domain.cache_directory = folder
    domain.cache_type = "MODULAR"
    domain.cache_frame_start, domain.cache_frame_end = 1, frames
    domain.use_noise = False
    domain.use_dissolve_smoke = False
    domain.use_adaptive_domain = bool(case["adaptive"])
    domain.use_adaptive_timesteps = False
    for one in smoke_shapes(str(case["shape"])):
        modifier = one.modifiers.new("F", "FLUID")
        modifier.fluid_type = "FLOW"
        flow = modifier.flow_settings
        flow.flow_type = "SMOKE"
        flow.flow_behavior = "GEOMETRY"
        flow.volume_density = 1.0  # the inside too, not the skin only
        flow.density, flow.temperature = 1.0, 1.0
        flow.fuel_amount = 0.0  # else three channels of fire are advected too
    bpy.context.view_layer.objects.active = made
    return made


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case and return its figures."""
    import bpy
    import numpy as np

    for one in list(bpy.data.objects):
        bpy.data.objects.remove(one)
    repair()
    clock = MantaClock()
    folder = tempfile.mkdtemp(prefix="mantaflow_")
    try:
        domain = build(case, folder)
        with bpy.context.temp_override(
            object=domain, active_object=domain, scene=bpy.context.scene
        ):
            bpy.ops.fluid.bake_data()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    told = [(start, float(text.split()[2])) for start, text in clock.messages("--- Step")]
    steps = told[WARM_UP:]
    if not steps:
        raise RuntimeError(f"Mantaflow told of {len(told)} steps; expected {case['steps']} more")
    ends = [start for start, _ in clock.messages("Fluid file export, frame")]
    since, until = steps[0][0] - steps[0][1], steps[-1][0]
    sizes = [size for start, size in clock.grids if since <= start <= until]
    by_function = clock.seconds_by_function(since, until)
    counted = [later - sooner for sooner, later in pairwise(ends)]
    return {
        "peer": "Mantaflow",
        "blender": bpy.app.version_string,
        "step_seconds": float(np.min([seconds for _, seconds in steps])),
        "step_seconds_mean": float(np.mean([seconds for _, seconds in steps])),
        "frame_seconds": float(np.mean(counted[-len(steps) :])) if counted else None,
        "steps": len(steps),
        "cells": int(np.mean([np.prod(size) for size in sizes])) if sizes else None,
        "grid": sizes[-1] if sizes else None,
        "seconds_by_function": {
            name: seconds / len(steps) for name, seconds in list(by_function.items())[:8]
        },
        "peak_memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


if __name__ == "__main__":
    started = time.perf_counter()
    figures = measure(json.loads(sys.argv[1]))
    figures["total_seconds"] = time.perf_counter() - started
    print("\nFIGURES " + json.dumps(figures), flush=True)
    sys.stderr.flush()
    os._exit(0)  # Mantaflow's static destructors abort otherwise
