"""Dahl friction: the inner friction of a Constraint, driven along x (Dahl 1968).

    dF/dx = sigma (1 - F sign(dx) / Fc)

    first loading    F = Fc (1 - exp(-sigma x / Fc))
    steady cycle     peak Fm = Fc tanh(sigma X / Fc),  area W = 4 Fc X - 4 Fc Fm / sigma

One edge whose two ends are prescribed, with a Stretching Constraint of no stiffness: all of its
tension is friction. It is stretched by X, and then goes to and fro between X and -X.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result

Float = NDArray[np.float64]

CASE = "dahl"
PRODUCTION, BEST = 0.01, 0.001
RATE_DEPENDENCE = 1.0e-6
LIMIT, SLOPE = 2.0, 500.0  # Fc [N], sigma [N/m]
AMPLITUDES = (0.002, 0.01)  # X [m]: half of Fc / sigma, and two and a half times that
LENGTH = 0.3  # longer than any stroke
QUARTER = 40  # frames from rest to X
CYCLES = 6


def run() -> list[dict[str, Any]]:
    """Drive with steps h and h / 2, and ten times as fast; compare with the closed forms."""
    results = []
    for amplitude in AMPLITUDES:
        for substeps in (1, 2):
            name = f"X = {amplitude:g} m, {QUARTER * substeps} steps a quarter"
            stretch, force = drive(amplitude, substeps)
            results += _against_theory(amplitude, stretch, force, name, QUARTER * substeps)
        slow = drive(amplitude, 1)[1][::10]
        fast = drive(amplitude, 1, faster=10)[1]
        results.append(
            result(
                CASE,
                f"rate dependence, 10 x the speed, X = {amplitude:g} m",
                float(abs(fast - slow).max()) / LIMIT,
                0.0,
                production=RATE_DEPENDENCE,
                best=RATE_DEPENDENCE,
            )
        )
    overshoot = float(abs(drive(10.0 * AMPLITUDES[-1], 1, faster=QUARTER)[1]).max()) / LIMIT
    results.append(
        result(
            CASE,
            "largest force over the limit, in steps of 25 Fc / sigma",
            overshoot,
            1.0,
            production=1.0,
            best=1.0,
        )
    )
    return results


def _against_theory(
    amplitude: float, stretch: Float, force: Float, name: str, quarter: int
) -> list[dict[str, Any]]:
    first = LIMIT * (1.0 - np.exp(-SLOPE * stretch[: quarter + 1] / LIMIT))
    off = float(abs(force[: quarter + 1] - first).max()) / float(first.max())
    ratio = np.tanh(SLOPE * amplitude / LIMIT)
    peak, area = LIMIT * ratio, 4.0 * LIMIT * amplitude - 4.0 * LIMIT**2 * ratio / SLOPE
    cycle = slice(len(force) - 4 * quarter - 1, None)
    found_peak = float(force[cycle].max())
    found_area = float(np.trapezoid(force[cycle], stretch[cycle]))
    results = [
        result(CASE, f"first loading, {name}", off, 0.0, production=PRODUCTION, best=BEST),
        *(
            result(
                CASE,
                f"{words} of the loop, {name}",
                value,
                exact,
                error=abs(value - exact) / exact,
                production=PRODUCTION,
                best=BEST,
            )
            for words, value, exact in (("peak", found_peak, peak), ("area", found_area, area))
        ),
    ]
    results[0]["curves"] = {
        "n": quarter,
        "amplitude": amplitude,
        "stretch": stretch,
        "force": force,
        "limit": LIMIT,
        "slope": SLOPE,
    }
    return results


def drive(amplitude: float, substeps: int, *, faster: int = 1) -> tuple[Float, Float]:
    """Stretch [m] and friction [N] after every step, from rest on."""
    quarter = QUARTER // faster
    corners = np.concatenate(([0.0, 1.0], np.tile([-1.0, 1.0], CYCLES)))
    frames = quarter * np.concatenate(([0.0, 1.0], 1.0 + 2.0 * np.arange(1, 2 * CYCLES + 1)))

    def edge(frame: int) -> loki.Curves:
        stretch = amplitude * np.interp(frame - 1, frames, corners)
        curves = loki.Curves([[0.0, 0.0, 0.0], [LENGTH + stretch, 0.0, 0.0]], [0, 2])
        curves.set_channel("point", "pinned", np.ones(2, np.uint8))
        return curves

    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="edge"),
        loki.StretchingConstraint(stiffness=0.0, friction=LIMIT, friction_stiffness=SLOPE),
        substeps=substeps,
    )
    solver = loki.Solver(setup, {"edge": edge})
    stretch, force = [0.0], [0.0]

    def note(solver: loki.Solver, step: Any) -> None:
        memory = solver.read("CurvesObject", "edges.stretching_constraint_friction_memory")
        stretch.append(float(solver.read("CurvesObject", "edges.length")[0]) - LENGTH)
        force.append(float(memory[0, 0]))

    solver.observe("SUBSTEP_END", note)
    solver.run(int(frames[-1]))
    return np.array(stretch), np.array(force)
