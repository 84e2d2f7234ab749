"""Cantilever with a dead load at its tip, against Bisshopp & Drucker (1945).

A weightless rod, horizontally clamped, carries a vertical force P at its end, with
alpha = P L^2 / (E I). The inextensible elastica gives how far the tip goes down, w, and how far
from the clamp it stays, x, by elliptic integrals.

The load is the weight of the last vertex alone: an acceleration P / m there and none elsewhere. It
grows slowly, on rods of one kind side by side; backward Euler takes the motion out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result, rows_of
from ._rods import orders, settle, straight

Float = NDArray[np.float64]

CASE = "rod_elastica"
PRODUCTION, BEST = 0.03, 0.005
LOADS = (0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
LENGTH, RADIUS, DENSITY, MODULUS = 0.1, 2.0e-4, 1300.0, 3.0e9
UNBALANCED = 1.0e-8
RAMP = 4.0  # seconds in which the load grows


def run() -> list[dict[str, Any]]:
    """Load rods of 32 and 64 segments."""
    down, along = _reference()
    errors = {}
    results = []
    for segments in (32, 64):
        tips, left = load_tips(segments)
        for name, found, exact in (("w", -tips[:, 1], down), ("x", tips[:, 0], along)):
            errors[name, segments] = error = abs(found - exact) / exact
            for at, load in enumerate(LOADS):
                results.append(
                    result(
                        CASE,
                        f"{name}/L, alpha = {load:g}, N = {segments}",
                        found[at],
                        exact[at],
                        error=error[at],
                        production=PRODUCTION,
                        best=BEST,
                    )
                )
        results[-1]["curves"] = {"n": segments, "alpha": LOADS, "w": -tips[:, 1], "x": tips[:, 0]}
        results.append(
            result(
                CASE,
                f"force left over load, N = {segments}",
                left,
                0.0,
                production=UNBALANCED,
                best=UNBALANCED,
            )
        )
    for name in ("w", "x"):
        worst = [float(errors[name, segments].max()) for segments in (32, 64)]
        results.append(result(CASE, f"order of the largest error, {name}/L", orders(worst)[0], 2.0))
    return results


def load_tips(segments: int) -> tuple[Float, float]:
    """Places of the tips over the length [rods, 3], and the force left."""
    force = np.array(LOADS) * MODULUS * 0.25 * np.pi * RADIUS**4 / LENGTH**2
    tip_mass = 0.5 * np.pi * RADIUS**2 * DENSITY * LENGTH / segments
    strands = np.stack([straight(LENGTH, segments)] * len(LOADS))
    scale = np.zeros(strands.shape[:2])
    scale[:, -1] = force / tip_mass
    curves = loki.Curves.from_strands(strands)
    curves.set_channel("point", "gravity_acceleration_scale", scale.reshape(-1))
    load = loki.Keyframes(
        [(0.0, (0.0, 0.0, 0.0)), (RAMP, (0.0, -1.0, 0.0))], interpolation="smooth"
    )
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="rods", radius=RADIUS, density=DENSITY),
        loki.StretchingConstraint(young_modulus=MODULUS),
        loki.BendingConstraint(young_modulus=MODULUS),
        loki.GravityForce(acceleration=load),
    )
    solver = loki.Solver(setup, {"rods": curves})
    solver.run(round(RAMP * setup.settings.frames_per_second))
    left = settle(solver, "CurvesObject", force, tolerance=0.5 * UNBALANCED, most=2000)
    places = solver.read("CurvesObject", "position").reshape(strands.shape)
    return places[:, -1] / LENGTH, float(left.max())


def _reference() -> tuple[Float, Float]:
    """w/L and x/L of the loads."""
    rows = {float(row["alpha"]): row for row in rows_of("elastica_tip_load.csv")}
    down = np.array([float(rows[load]["w_over_L"]) for load in LOADS])
    along = np.array([float(rows[load]["x_over_L"]) for load in LOADS])
    return down, along
