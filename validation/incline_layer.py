"""A layer of liquid on a frictionless incline that is turned against the grid slides freely.

    v = g sin(angle) t       all through the layer, until its ends are felt

The incline is a Collider. The middle of the layer, which is long, is judged before waves from the
ends, of speed sqrt(g D), reach it. Default settings. The speed near the wall, within a voxel of it,
is told as well: faces that the solid closes must not hold the liquid back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import loki_core as loki

from ._liquids import DENSITY, GRAVITY, PER_AXIS, THICKNESS, written
from ._report import result
from .tilted_tank import prism, turned

RESOLUTIONS = (32, 64)  # voxels a metre
ANGLES = (15.0, 20.0)  # degrees
LENGTH, DEPTH, MIDDLE = 3.0, 0.2, 0.4  # m; the middle is twice as long as MIDDLE
SLIDE = 0.6  # m
REACH = 5.0  # m, of the incline, far beyond the layer's ends


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS, angles: tuple[float, ...] = ANGLES
) -> list[dict[str, Any]]:
    """Run at each resolution and angle."""
    results = []
    for n in resolutions:
        for angle in angles:
            speed, at_wall = slide(n, angle)
            words = f"n = {n} a metre, {angle:g} degrees"
            one = result(
                "incline_layer", f"speed over g sin(a) t, {words}", speed, 1.0,
                error=abs(speed - 1.0), production=0.01, best=0.005,
            )  # fmt: skip
            results.append(one)
            metric = f"speed within a voxel of the wall over that, {words}"
            results.append(result("incline_layer", metric, at_wall, 1.0, error=abs(at_wall - 1.0)))
    return results


def slide(n: int, angle: float, distance: float = SLIDE) -> tuple[float, float]:
    """Speed of the layer's middle over the exact one, and that of its particles at the wall."""
    h, turn = 1.0 / n, turned(-angle)
    along, normal = turn[:, 0], turn[:, 1]
    slope = np.array(((-REACH, -REACH), (REACH, -REACH), (REACH, 0.0), (-REACH, 0.0))) @ turn.T
    spacing = h / PER_AXIS
    line = spacing * (np.arange(-round(LENGTH / spacing), round(LENGTH / spacing)) + 0.5)
    flat = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    height = flat @ normal
    flat = flat[(np.abs(flat @ along) < 0.5 * LENGTH) & (height > 0.0) & (height < DEPTH)]
    z = spacing * (np.arange(THICKNESS * PER_AXIS) + 0.5)
    places = np.column_stack((np.tile(flat, (len(z), 1)), np.repeat(z, len(flat))))
    sides = ("open", "open", "wall")
    setup = loki.SolverSetup(
        "incline",
        loki.HybridObject(name="Water", voxel_size=h, input="water", density=DENSITY),
        loki.PressureMaterial(),
        loki.GravityForce(),
        loki.Collider(input="slope"),
        domain_lower=(-4.0, -4.0, 0.0),
        domain_upper=(5.0, 3.0, THICKNESS * h),
        boundary_lower=sides,
        boundary_upper=sides,
    )
    inputs = {"water": loki.Points(places), "slope": prism(slope, -2.0, THICKNESS * h + 2.0)}
    solver = loki.Solver(setup, inputs)
    middle = solver.read("Water", "id")[np.abs(written(solver)[0][:, :2] @ along) < MIDDLE]
    pull = GRAVITY * np.sin(np.radians(angle))
    frames = int(24 * np.sqrt(2.0 * distance / pull))
    solver.run(frames)
    found, velocity = written(solver)
    in_middle = np.isin(solver.read("Water", "id"), middle)  # spray ahead may leave the box
    exact = pull * frames / 24.0
    speed = velocity[in_middle, :2] @ along / exact
    at_wall = found[in_middle, :2] @ normal < h
    return float(speed.mean()), float(speed[at_wall].mean())
