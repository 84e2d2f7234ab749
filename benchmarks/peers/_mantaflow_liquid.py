"""A dam break in Blender's Mantaflow: a script for the Python that has bpy; prints one JSON line.

    python _mantaflow_liquid.py '{"resolution": 64, "frames": 6, "steps": 4, "band": 0}'

A cube of 2 m with closed walls, a column of 1 x 2 x 1 m in a corner, 24 frames a second in steps of
a fixed length, FLIP with 8 particles a cell (Blender's default), no mesh and no spray. Band 0 has
particles everywhere in the liquid, another number so many cells below the surface. Times are
Mantaflow's own, of the solver steps of the last frame alone: those of a developed flow.
"""

from __future__ import annotations

from typing import Any

from _bpy_manta import add_flow, answer, bake, box, cube_domain

EDGE = 2.0  # m
COLUMN = (1.0, 1.0, 2.0)  # m; z is up in Blender
EVERYWHERE = 1000.0  # cells: a band as wide as any liquid


def build(case: dict[str, Any], folder: str) -> Any:
    """Make the scene of a case and return its domain object."""
    made = cube_domain("LIQUID", EDGE, int(case["resolution"]), int(case["frames"]), folder)
    domain = made.modifiers["F"].domain_settings
    domain.use_mesh = False
    domain.use_adaptive_timesteps = True  # else a frame is one step
    domain.timesteps_max = domain.timesteps_min = int(case["steps"])
    domain.particle_band_width = float(case["band"]) or EVERYWHERE
    add_flow(box("column", (0.0, 0.0, 0.0), COLUMN), "LIQUID")
    return made


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case and return its figures."""
    import bpy
    import numpy as np

    clock = bake(build, case)
    told = clock.steps()
    steps = told[-int(case["steps"]) :]
    if len(told) < len(steps) + 1:
        raise RuntimeError(f"Mantaflow told of {len(told)} steps only")
    since, until = steps[0][0] - steps[0][1], steps[-1][0]
    particles = [count for start, count in clock.particles if since <= start <= until]
    by_function = clock.seconds_by_function(since, until)
    return {
        "peer": "Mantaflow",
        "blender": bpy.app.version_string,
        "step_seconds": float(np.min([seconds for _, seconds in steps])),
        "step_seconds_mean": float(np.mean([seconds for _, seconds in steps])),
        "steps": len(told),
        "particles": particles[-1] if particles else None,
        "seconds_by_function": {
            name: seconds / len(steps) for name, seconds in list(by_function.items())[:8]
        },
    }


if __name__ == "__main__":
    answer(measure)
