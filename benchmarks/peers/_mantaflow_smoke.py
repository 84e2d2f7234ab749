"""Smoke in Blender's Mantaflow: a script for the Python that has bpy; prints one line of JSON.

    python _mantaflow_smoke.py '{"shape": "box", "resolution": 64, "steps": 6, "adaptive": false}'

A cube of 2 m, smoke and heat in place from the start, open sides, MacCormack advection (Blender's
default) of velocity, density and heat, no noise, no dissolving, one solver step of fixed length a
frame, pressure to Mantaflow's default accuracy. Shape "box": smoke everywhere. Shape "plume": a
stem and a ball on it, 5 % of the box. Times are Mantaflow's own, of the solver step alone;
Blender's work around it (emission, files) is in `frame_seconds` only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from _bpy_manta import add_flow, answer, bake, box, cube_domain

EDGE = 2.0  # m
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
    frames = int(case["steps"]) + WARM_UP
    made = cube_domain("GAS", EDGE, int(case["resolution"]), frames, folder)
    domain = made.modifiers["F"].domain_settings
    domain.use_noise = False
    domain.use_dissolve_smoke = False
    domain.use_adaptive_domain = bool(case["adaptive"])
    for one in smoke_shapes(str(case["shape"])):
        flow = add_flow(one, "SMOKE")
        flow.volume_density = 1.0  # the inside too, not the skin only
        flow.density, flow.temperature = 1.0, 1.0
        flow.fuel_amount = 0.0  # else three channels of fire are advected too
    return made


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case and return its figures."""
    import bpy
    import numpy as np

    clock = bake(build, case)
    told = clock.steps()
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
    }


if __name__ == "__main__":
    answer(measure)
