"""Localised helical buckling of a twisted rod whose ends approach (van der Heijden & Thompson).

A straight rod of L = 100, E I = 1.345 and G J = 0.789 is clamped at both ends. They turn against
each other by 27 turns and come closer by 3; the rod coils up in the middle, less and less towards
the ends. With phi the angle between tangent and axis, and phi0 the largest,

    (cos phi - cos phi0) / (1 - cos phi0) = tanh^2(sqrt(t - m^2 / 4) s / L)

where m and t are moment and tension at the ends, over E I / L and E I / L^2.

Held taut, the rod is twisted first and then let in slowly; damping and a time of rest take the
motion out. (The case is that of PyElastica, whose closed form the table holds.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result, rows_of
from ._rods import orders

Float = NDArray[np.float64]

CASE = "rod_helical_buckling"
PRODUCTION, BEST = 0.08, 0.03
BENDING, TWIST, LENGTH, TURNS, SLACK = 1.345, 0.789, 100.0, 27.0, 3.0
MOMENT, TENSION = 98.541496, 2900.9932  # m and t
RADIUS, LINE = 0.35, 1.0  # m, kg/m
TAUT = 0.01  # m, by which the rod is stretched while it is twisted: so it stays straight
TWISTING, LOADING, REST = 100, 400, 200  # frames of a second: the first two end, the last lasts
SUBSTEPS = 4
DAMPING = 2.0  # s
NUDGE = 1.0e-4  # N, sideways at the middle while the ends approach: the coil begins there


def run() -> list[dict[str, Any]]:
    """Rods of 100 and 200 segments."""
    rows = rows_of("helical_buckling.csv")
    place = np.array([float(row["s_over_L"]) for row in rows])
    table = np.array([float(row["envelope"]) for row in rows])
    # The table is too coarse to be interpolated: 0.02 would be lost where it bends most.
    assert abs(theory(place) - table).max() < 1e-6, "the closed form is that of the table"
    results, errors = [], []
    for segments in (100, 200):
        s, envelope = coil(segments)
        errors.append(float(abs(envelope - theory(s)).max()))
        results.append(
            result(
                CASE,
                f"largest difference of the envelope, N = {segments}",
                errors[-1],
                0.0,
                # The threshold is that of 200 segments.
                production=PRODUCTION if segments == 200 else None,
                best=BEST if segments == 200 else None,
            )
        )
        results[-1]["curves"] = {"n": segments, "s": s, "envelope": envelope}
    results.append(result(CASE, "order", orders(errors)[0], 2.0))
    return results


def theory(s: Float) -> Float:
    """Envelope at places over the length, from the middle of the coil."""
    envelope: Float = np.tanh(np.sqrt(TENSION - 0.25 * MOMENT**2) * s) ** 2
    return envelope


def coil(segments: int) -> tuple[Float, Float]:
    """Places of edges over the length, from the middle of the coil, and the envelope there."""
    edge = LENGTH / segments
    count = segments + 3  # an edge of clamp at either end
    straight = np.zeros((count, 3))
    straight[:, 0] = (np.arange(count) - 1) * edge
    pinned, scale, nudged = np.zeros(count, np.uint8), np.zeros(count), np.zeros(count)
    pinned[[0, 1, -2, -1]] = 1
    scale[[0, -2]] = -0.5, 0.5
    nudged[count // 2] = NUDGE / (LINE * edge)

    def rod(frame: int) -> loki.Curves:
        points = straight.copy()
        approach = 0.5 * np.interp(
            frame - 1, (0, 10, TWISTING, LOADING), (0.0, -TAUT, -TAUT, SLACK)
        )
        points[:2, 0] += approach
        points[-2:, 0] -= approach
        curves = loki.Curves(points, [0, count])
        curves.set_channel("point", "pinned", pinned)
        curves.set_channel("point", "twist_scale", scale)
        curves.set_channel("point", "gravity_acceleration_scale", nudged)
        return curves

    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(
            input="rod",
            rest="straight",
            radius=RADIUS,
            density=LINE / (np.pi * RADIUS**2),
            twist=loki.Keyframes([(10.0, 0.0), (float(TWISTING), 2.0 * np.pi * TURNS)]),
        ),
        loki.StretchingConstraint(stiffness=1.0e4),
        loki.BendingConstraint(stiffness=BENDING, twist_stiffness=TWIST, damping_time=DAMPING),
        loki.GravityForce(
            acceleration=loki.Keyframes([(0.0, (0.0, 1.0, 0.0)), (float(LOADING), (0.0, 0.0, 0.0))])
        ),
        frames_per_second=1.0,
        substeps=SUBSTEPS,
    )
    solver = loki.Solver(setup, {"rod": rod})
    solver.run(LOADING + REST)
    between = np.diff(solver.read("CurvesObject", "position"), axis=0)[1:-1]
    cosine = between[:, 0] / np.linalg.norm(between, axis=1)
    # The middle of the coil is between edges: the lowest point of the parabola through three.
    at = int(np.argmin(cosine))
    before, lowest, after = cosine[at - 1 : at + 2]
    curvature = before - 2.0 * lowest + after
    shift = 0.5 * (before - after) / curvature
    bottom = lowest - 0.25 * (before - after) * shift
    s = (np.arange(segments) - at - shift) * edge / LENGTH
    return s, (cosine - bottom) / (1.0 - bottom)
