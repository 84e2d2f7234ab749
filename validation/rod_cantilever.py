"""Cantilever under self-weight: a horizontally clamped hair hangs down (Romero et al. 2021).

One number says how far, Gamma = w L^3 / (E I) = 4 rho g L^3 / (E R^2) for a round rod. The
inextensible elastica, theta'' = -Gamma (1 - s) cos(theta), gives height H over width W.

Hair of R = 0.05 mm, rho = 1300 kg/m^3 and E = 3 GPa (the defaults), of nine lengths, falls from the
straight line; backward Euler takes the motion out, until less than 1e-8 of the weight is
unbalanced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result, rows_of
from ._rods import orders, settle, straight

Float = NDArray[np.float64]

CASE = "rod_cantilever"
PRODUCTION, BEST = 0.03, 0.005
NUMBERS = (0.01, 0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
RADIUS, DENSITY, MODULUS, GRAVITY = 5.0e-5, 1300.0, 3.0e9, 9.81
UNBALANCED = 1.0e-8


def run() -> list[dict[str, Any]]:
    """Hang hair of 32 and 64 segments."""
    reference = _reference()
    errors = {}
    results = []
    for segments in (32, 64):
        hung, left = hang(segments)
        ratio = -hung[:, -1, 1] / hung[:, -1, 0]
        errors[segments] = abs(ratio - reference) / reference
        for number, value, exact, error in zip(NUMBERS, ratio, reference, errors[segments]):
            results.append(
                result(
                    CASE,
                    f"H/W, Gamma = {number:g}, N = {segments}",
                    value,
                    exact,
                    error=error,
                    production=PRODUCTION,
                    best=BEST,
                )
            )
        results[-1]["curves"] = {"n": segments, "gamma": NUMBERS, "ratio": ratio}
        results.append(
            result(
                CASE,
                f"force left over weight, N = {segments}",
                left,
                0.0,
                production=UNBALANCED,
                best=UNBALANCED,
            )
        )
    for at in (0, NUMBERS.index(1.0), NUMBERS.index(100.0)):
        order = orders([errors[32][at], errors[64][at]])[0]
        results.append(result(CASE, f"order, Gamma = {NUMBERS[at]:g}", order, 2.0))
    return results


def hang(segments: int) -> tuple[Float, float]:
    """Places of the vertices over the lengths [rods, vertices, 3], and the force left."""
    lengths = np.cbrt(np.array(NUMBERS) * MODULUS * RADIUS**2 / (4.0 * DENSITY * GRAVITY))
    strands = np.stack([straight(length, segments) for length in lengths])
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="hair", radius=RADIUS, density=DENSITY),
        loki.StretchingConstraint(young_modulus=MODULUS),
        loki.BendingConstraint(young_modulus=MODULUS),
        loki.GravityForce(acceleration=(0.0, -GRAVITY, 0.0)),
    )
    solver = loki.Solver(setup, {"hair": loki.Curves.from_strands(strands)})
    weights = np.pi * RADIUS**2 * DENSITY * GRAVITY * lengths
    left = settle(solver, "CurvesObject", weights, tolerance=0.5 * UNBALANCED, most=2000)
    places = solver.read("CurvesObject", "position").reshape(strands.shape)
    return places / lengths[:, None, None], float(left.max())


def _reference() -> Float:
    rows = rows_of("cantilever_self_weight.csv")
    table = {float(row["Gamma"]): float(row["H_over_W"]) for row in rows}
    return np.array([table[number] for number in NUMBERS])
