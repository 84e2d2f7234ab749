"""Lateral buckling of a strip under its own weight: how heavy it may be and stay in its plane.

A horizontal cantilever, thin across and wide along gravity, turns over sideways beyond

    w L^3 = 12.8538 sqrt(E I_2 G J)          E I_2 = E b t^3 / 12,  G J = G b t^3 / 3

for width b and thickness t, where E I_1 = E t b^3 / 12 is much larger than E I_2. Strips of
different weight side by side get a small push sideways; the critical one is between those whose
motion dies and those whose motion grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result
from ._rods import critical, grows, straight

Float = NDArray[np.float64]

CASE = "rod_lateral_buckling"
PRODUCTION, BEST = 0.05, 0.015
CRITICAL = 12.853763
LENGTH, WIDTH, THICKNESS = 1.0, 0.04, 0.001
DENSITY, MODULUS, POISSON = 1000.0, 1.0e9, 0.3
STIFF = MODULUS * THICKNESS * WIDTH**3 / 12.0
SOFT = MODULUS * WIDTH * THICKNESS**3 / 12.0
TWIST = 0.5 * MODULUS / (1.0 + POISSON) * WIDTH * THICKNESS**3 / 3.0
PUSH = 1.0e-6  # m/s at the tip
FRAMES_PER_SECOND = 1.0  # the free strip sways at 1 rad/s
FRAMES, SUBSTEPS = 100, 10  # coarser steps are unstable with one Newton iteration


def run() -> list[dict[str, Any]]:
    """Strips of 32 and 64 segments."""
    results = []
    for segments in (32, 64):
        load = critical(lambda loads, n=segments: sways(loads, n), 0.9 * CRITICAL, 1.1 * CRITICAL)
        results.append(
            result(
                CASE,
                f"critical w L^3 / sqrt(E I_2 G J), N = {segments}",
                load,
                CRITICAL,
                error=abs(load - CRITICAL) / CRITICAL,
                production=PRODUCTION,
                best=BEST,
            )
        )
    return results


def sways(loads: Float, segments: int) -> NDArray[np.bool_]:
    """Whether strips of these w L^3 / sqrt(E I_2 G J) move ever more sideways."""
    line = DENSITY * WIDTH * THICKNESS
    gravity = loads * np.sqrt(SOFT * TWIST) / (LENGTH**3 * line)
    strands = np.stack([straight(LENGTH, segments)] * len(loads))
    acceleration, velocity = np.zeros_like(strands), np.zeros_like(strands)
    acceleration[:, :, 1] = -gravity[:, None]
    velocity[:, 2:, 2] = PUSH * (strands[:, 2:, 0] / LENGTH) ** 2
    curves = loki.Curves.from_strands(strands)
    curves.set_channel("point", "gravity_acceleration", acceleration.reshape(-1, 3))
    curves.set_channel("point", "velocity", velocity.reshape(-1, 3))
    upright = np.tile([0.0, 1.0, 0.0], (len(loads), 1))
    curves.set_channel("primitive", "normal", upright)
    half = 0.5 * WIDTH
    setup = loki.SolverSetup(
        CASE,
        # An ellipse of the strip's width and area; stiffnesses are the strip's own.
        loki.CurvesObject(
            input="strips", radius=half, aspect=WIDTH * THICKNESS / (np.pi * half**2),
            density=DENSITY,
        ),
        loki.StretchingConstraint(young_modulus=MODULUS),
        loki.BendingConstraint(stiffness=STIFF, second_stiffness=SOFT, twist_stiffness=TWIST),
        loki.GravityForce(),
        frames_per_second=FRAMES_PER_SECOND,
        substeps=SUBSTEPS,
    )  # fmt: skip
    solver = loki.Solver(setup, {"strips": curves})

    def sideways(places: Float) -> Float:
        tips: Float = abs(places.reshape(strands.shape)[:, -1, 2])
        return tips

    return grows(solver, "CurvesObject", sideways, frames=FRAMES, most=0.001 * LENGTH)
