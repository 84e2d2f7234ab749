"""Rayleigh damping of Constraints, against the exact behaviour of backward Euler.

E = C^T S C has no 1/2, so k = 2 S; V = tau Cdot^T S Cdot gives c = tau k and zeta = tau omega / 2.
One step multiplies a free vibration by the root z of

    (1 + tau k h / m + k h^2 / m) z^2 - (2 + tau k h / m) z + 1 = 0

First a single spring: one edge with one end held, its free end moving along it. Then the first mode
of a clamped rod, whose omega is that of the discrete rod: second differences for bending, masses at
vertices. Modulus and argument of z are found from the written positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result, rows_of
from ._rods import backward_euler, modulus_and_angle, straight

Float = NDArray[np.float64]

CASE = "rayleigh_damping"
SPRING, ROD = 1.0e-9, 1.0e-6  # thresholds
LENGTH, RADIUS, DENSITY, MODULUS = 1.0, 0.01, 1000.0, 1.0e8
SEGMENTS = 16
MASS = np.pi * RADIUS**2 * DENSITY * LENGTH  # of the rod
AMPLITUDE = 1.0e-7  # of the rod's length: so small that its modes are linear


def run() -> list[dict[str, Any]]:
    """Every pair of omega h and tau omega of the table."""
    results = []
    for name, threshold, vibration in (("spring", SPRING, spring), ("rod", ROD, rod)):
        off = []
        for row in rows_of("backward_euler_oscillator.csv"):
            omega_h, tau_omega = float(row["omega_h"]), float(row["tau_omega"])
            exact = backward_euler(omega_h, tau_omega)
            printed = float(row["modulus"]), float(row["freq_ratio"]) * omega_h
            found = modulus_and_angle(vibration(omega_h, tau_omega))
            off.append((found[0] / exact[0] - 1.0, found[1] / exact[1] - 1.0))
            table = max(abs(exact[0] / printed[0] - 1.0), abs(exact[1] / printed[1] - 1.0))
            assert table < 1e-9, "the roots are those of the table, to its digits"
            for word, value, expected, error in zip(
                ("modulus", "frequency ratio"),
                (found[0], found[1] / omega_h),
                (exact[0], exact[1] / omega_h),
                off[-1],
                strict=True,
            ):
                results.append(
                    result(
                        CASE,
                        f"{word}, {name}, omega h = {omega_h:g}, tau omega = {tau_omega:g}",
                        value,
                        expected,
                        error=abs(error),
                        production=threshold,
                        best=threshold,
                    )
                )
    return results


def spring(omega_h: float, tau_omega: float) -> Float:
    """Stretch of the edge [m] over time; its free vertex has half of the edge's mass."""
    mass, stiffness = 0.5 * MASS, 400.0
    omega = np.sqrt(stiffness / mass)
    points = np.zeros((2, 3))
    points[1, 0] = LENGTH
    velocity = np.zeros((2, 3))
    velocity[1, 0] = 0.1 * LENGTH * omega
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="rod", root="pinned", radius=RADIUS, density=DENSITY),
        loki.StretchingConstraint(stiffness=stiffness * LENGTH, damping_time=tau_omega / omega),
        frames_per_second=omega / omega_h,
    )
    return _record(setup, points, velocity, omega_h)[:, -1, 0] - LENGTH


def rod(omega_h: float, tau_omega: float) -> Float:
    """Amplitude of the rod's first mode [m] over time."""
    omega, shape = first_mode()
    points = straight(LENGTH, SEGMENTS)
    velocity = np.zeros_like(points)
    velocity[2:, 1] = AMPLITUDE * LENGTH * omega * shape / abs(shape).max()
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="rod", radius=RADIUS, density=DENSITY),
        loki.StretchingConstraint(young_modulus=MODULUS),
        loki.BendingConstraint(young_modulus=MODULUS, damping_time=tau_omega / omega),
        frames_per_second=omega / omega_h,
    )
    return _record(setup, points, velocity, omega_h)[:, -1, 1]


def first_mode() -> tuple[float, Float]:
    """Frequency [rad/s] and shape of the free vertices of a small bending vibration.

    A joint's strain is the second difference of deflections over the length of an edge; the joint
    at the clamp has half an edge that bends. The last vertex weighs half.
    """
    edge = LENGTH / SEGMENTS
    strain = np.diff(np.eye(SEGMENTS + 2), 2, axis=0)[:, 2:] / edge
    bending = 0.25 * np.pi * RADIUS**4 * MODULUS
    stiffness = np.full(SEGMENTS, bending / edge)
    stiffness[0] *= 2.0
    mass = np.full(SEGMENTS, MASS / SEGMENTS)
    mass[-1] *= 0.5
    strain /= np.sqrt(mass)  # unknowns that all weigh alike
    squares, shapes = np.linalg.eigh(strain.T @ (stiffness[:, None] * strain))
    return float(np.sqrt(squares[0])), shapes[:, 0] / np.sqrt(mass)


def _record(setup: loki.SolverSetup, points: Float, velocity: Float, omega_h: float) -> Float:
    """Places [frames, vertices, 3] of a strand let go with velocities."""
    curves = loki.Curves.from_strands(points[None])
    curves.set_channel("point", "velocity", velocity)
    solver = loki.Solver(setup, {"rod": curves})
    places = []
    for _ in range(int(np.clip(6.0 / omega_h, 8, 60))):
        solver.advance_frame()
        places.append(solver.read("CurvesObject", "position"))
    return np.array(places)
