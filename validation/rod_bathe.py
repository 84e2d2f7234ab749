"""A curved cantilever under a large load at its tip (Bathe & Bolourchi 1979).

An arc of 45 degrees and radius 100, clamped at one end, of a unit square section with E = 1e7 and
G = E / 2, carries a dead force across its plane. It bends and twists at once, so all of the rod's
frames matter. The reference is the rod itself, geometrically exact and elastic in tension, bending
and twist, with a moment M and the force F, the same everywhere:

    r' = (1 + F.t / E A) t,     M' = -r' x F,     M(end) = 0
    curvature - (0, 0, 1 / R) = M / (G J, E I, E I)      in the axes of the section

found by collocation (`scipy.integrate.solve_bvp`). Its tips are within 0.2 of those that Bathe &
Bolourchi and Simo & Vu-Quoc (1986) printed, who took the polar moment for J, as is done here.

Rods of three loads lie side by side. They are loaded slowly, with one Newton iteration a step, the
default, and with twenty; along an axis and turned; of even and of uneven segments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result
from ._rods import orders, settle

Float = NDArray[np.float64]

CASE = "rod_bathe"
PRODUCTION, BEST = 0.03, 0.005  # of the tip's way, as under the tip load of a straight rod
LOADS = (300.0, 450.0, 600.0)
RING, ANGLE = 100.0, 0.25 * np.pi
MODULUS, AREA, INERTIA, POLAR = 1.0e7, 1.0, 1.0 / 12.0, 1.0 / 6.0
DENSITY = 1.0
PRINTED = {300.0: (58.84, 22.33, 40.08), 600.0: (47.23, 15.79, 53.37)}  # Simo & Vu-Quoc
PRINTED_TO = 0.005  # of the arc's length: two authors differ by half of that
UNBALANCED = 1.0e-8
RAMP = 20.0  # seconds in which the load grows; the first mode is at 0.5 rad/s


def run() -> list[dict[str, Any]]:
    """Rods of 16 and 32 segments."""
    exact = reference(LOADS)
    way = np.linalg.norm(exact - arc(np.array([1.0]))[0], axis=1)
    results, errors = [], {}
    for newton, kind in ((1, "plain"), (20, "plain"), (20, "turned"), (20, "uneven")):
        for segments in (16, 32):
            tips, left = load_tips(segments, newton, kind)
            error = np.linalg.norm(tips - exact, axis=1) / way
            errors[newton, kind, segments] = float(error.max())
            label = f"{kind}, N = {segments}, {newton} iterations"
            for at, load in enumerate(LOADS):
                results.append(
                    result(
                        CASE,
                        f"tip over its way, P = {load:g}, {label}",
                        error[at],
                        0.0,
                        production=PRODUCTION,
                        best=BEST,
                    )
                )
            results.append(
                result(
                    CASE,
                    f"force left over load, {label}",
                    left,
                    0.0,
                    production=UNBALANCED,
                    best=UNBALANCED,
                )
            )
    worst = [errors[20, "plain", segments] for segments in (16, 32)]
    results.append(result(CASE, "order of the largest error", orders(worst)[0], 2.0))
    for load, printed in PRINTED.items():
        apart = float(np.linalg.norm(exact[LOADS.index(load)] - printed)) / (RING * ANGLE)
        results.append(
            result(
                CASE,
                f"reference against Simo & Vu-Quoc, over the length, P = {load:g}",
                apart,
                0.0,
                production=PRINTED_TO,
                best=PRINTED_TO,
            )
        )
    return results


def arc(parts: Float) -> Float:
    """Places on the arc at parts of its length, [n, 3]; it starts along x and bends to y."""
    angle = ANGLE * np.asarray(parts)
    places: Float = RING * np.stack(
        (np.sin(angle), 1.0 - np.cos(angle), np.zeros_like(angle)), axis=1
    )
    return places


def load_tips(segments: int, newton: int, kind: str = "plain") -> tuple[Float, float]:
    """Places of the tips [loads, 3], turned back, and the force left over the load."""
    lengths = np.ones(segments)
    if kind == "uneven":
        lengths += np.random.default_rng(5).uniform(-0.5, 0.5, segments)
    parts = np.concatenate(([0.0], np.cumsum(lengths))) / lengths.sum()
    points = arc(parts)
    clamp = points[:1] - (np.linalg.norm(points[1] - points[0]), 0.0, 0.0)
    points = np.concatenate((clamp, points))
    turn = _rotation(np.array([1.0, 2.0, -2.0]), 1.1) if kind == "turned" else np.eye(3)
    strands = np.stack([points @ turn.T] * len(LOADS))
    tip_mass = 0.5 * DENSITY * AREA * float(np.linalg.norm(points[-1] - points[-2]))
    scale = np.zeros(strands.shape[:2])
    scale[:, -1] = np.array(LOADS) / tip_mass
    curves = loki.Curves.from_strands(strands)
    curves.set_channel("point", "gravity_acceleration_scale", scale.reshape(-1))
    up = tuple(turn @ (0.0, 0.0, 1.0))
    bending = MODULUS * INERTIA
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="rods", radius=np.sqrt(AREA / np.pi), density=DENSITY),
        loki.StretchingConstraint(stiffness=MODULUS * AREA),
        loki.BendingConstraint(
            stiffness=bending, second_stiffness=bending, twist_stiffness=0.5 * MODULUS * POLAR
        ),
        loki.GravityForce(
            acceleration=loki.Keyframes(
                [(0.0, (0.0, 0.0, 0.0)), (RAMP, up)], interpolation="smooth"
            )
        ),
        frames_per_second=1.0,
        newton_iterations=newton,
    )
    solver = loki.Solver(setup, {"rods": curves})
    solver.run(round(RAMP))
    left = settle(solver, "CurvesObject", np.array(LOADS), tolerance=0.5 * UNBALANCED, most=2000)
    tips = solver.read("CurvesObject", "position").reshape(strands.shape)[:, -1]
    return tips @ turn, float(left.max())


def reference(loads: tuple[float, ...]) -> Float:
    """Places of the tip under these loads, [loads, 3]."""
    from scipy.integrate import solve_bvp

    length = RING * ANGLE
    s = np.linspace(0.0, length, 41)
    state = np.zeros((10, len(s)))  # place, quaternion of the section, moment
    state[:3] = arc(s / length).T
    state[3], state[6] = np.cos(0.5 * s / RING), np.sin(0.5 * s / RING)
    give = np.array([1.0 / (0.5 * MODULUS * POLAR)] + 2 * [1.0 / (MODULUS * INERTIA)])[:, None]
    tips = []
    for load in loads:
        force = np.array([0.0, 0.0, load])

        def slope(s: Float, y: Float, force: Float = force) -> Float:
            w, i, j, k = y[3:7] / np.linalg.norm(y[3:7], axis=0)
            axes = np.array(
                [
                    [1 - 2 * (j * j + k * k), 2 * (i * j - w * k), 2 * (i * k + w * j)],
                    [2 * (i * j + w * k), 1 - 2 * (i * i + k * k), 2 * (j * k - w * i)],
                    [2 * (i * k - w * j), 2 * (j * k + w * i), 1 - 2 * (i * i + j * j)],
                ]
            )
            a, b, c = give * np.einsum("abn,an->bn", axes, y[7:])
            c = c + 1.0 / RING
            tangent = axes[:, 0]
            place = tangent * (1.0 + (force @ tangent) / (MODULUS * AREA))
            spin = 0.5 * np.array(
                [
                    -i * a - j * b - k * c,
                    w * a + j * c - k * b,
                    w * b - i * c + k * a,
                    w * c + i * b - j * a,
                ]
            )
            return np.concatenate((place, spin, -np.cross(place.T, force).T))

        def ends(first: Float, last: Float) -> Float:
            return np.concatenate((first[:3], first[3:7] - (1.0, 0.0, 0.0, 0.0), last[7:]))

        found = solve_bvp(slope, ends, s, state, tol=1e-9, max_nodes=100_000)
        if not found.success:
            raise ValueError(f"no equilibrium under {load:g}: {found.message}")
        s, state = found.x, found.y
        tips.append(state[:3, -1])
    return np.array(tips)


def _rotation(axis: Float, angle: float) -> Float:
    """Rodrigues' formula."""
    k = axis / np.linalg.norm(axis)
    cross = np.cross(np.eye(3), -k)
    matrix: Float = np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
    return matrix
