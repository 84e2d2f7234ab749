"""First bending mode of a cantilever, small and free, against beam theory.

    f = beta^2 / (2 pi L^2) sqrt(E I / (rho A)),     beta = 1.875104

Backward Euler vibrates slower than that by a factor that is known exactly: the argument of the root
z of (1 + (omega h)^2) z^2 - 2 z + 1 = 0 over omega h. The measured frequency is compared with f
times that factor. The rod starts with velocities in the shape of the mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result
from ._rods import backward_euler, modulus_and_angle, orders, straight

Float = NDArray[np.float64]

CASE = "rod_frequency"
PRODUCTION, BEST = 0.02, 0.005
BETA = 1.8751040687
LENGTH, RADIUS, DENSITY, MODULUS = 1.0, 0.01, 1000.0, 1.0e8
AMPLITUDE = 1.0e-6  # of the length
STEPS = (0.05, 0.2)  # omega h
FRAMES = 160


def run() -> list[dict[str, Any]]:
    """Rods of 16 and 32 segments, with short and with long steps."""
    omega = BETA**2 / LENGTH**2 * np.sqrt(0.25 * MODULUS * RADIUS**2 / DENSITY)
    results = []
    for omega_h in STEPS:
        step = omega_h / omega
        exact = backward_euler(omega_h)[1] / (2.0 * np.pi * step)
        errors = []
        for segments in (16, 32):
            tip = vibrate(segments, omega, step)
            value = modulus_and_angle(tip[FRAMES // 4 :])[1] / (2.0 * np.pi * step)
            errors.append(abs(value - exact) / exact)
            results.append(
                result(
                    CASE,
                    f"frequency, omega h = {omega_h:g}, N = {segments}",
                    value,
                    exact,
                    error=errors[-1],
                    production=PRODUCTION,
                    best=BEST,
                )
            )
        results.append(result(CASE, f"order, omega h = {omega_h:g}", orders(errors)[0], 2.0))
    return results


def vibrate(segments: int, omega: float, step: float) -> Float:
    """Deflection of the tip [m] at the end of every step."""
    points = straight(LENGTH, segments)
    velocity = np.zeros_like(points)
    velocity[1:, 1] = AMPLITUDE * LENGTH * omega * mode(points[1:, 0] / LENGTH)
    curves = loki.Curves.from_strands(points[None])
    curves.set_channel("point", "velocity", velocity)
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="rod", radius=RADIUS, density=DENSITY),
        loki.StretchingConstraint(young_modulus=MODULUS),
        loki.BendingConstraint(young_modulus=MODULUS),
        frames_per_second=1.0 / step,
    )
    solver = loki.Solver(setup, {"rod": curves})
    tip = []
    for _ in range(FRAMES):
        solver.advance_frame()
        tip.append(solver.read("CurvesObject", "position")[-1, 1])
    return np.array(tip)


def mode(s: Float) -> Float:
    """First mode of a clamped-free beam, one at its tip, s from 0 to 1."""
    ratio = (np.cosh(BETA) + np.cos(BETA)) / (np.sinh(BETA) + np.sin(BETA))
    shape = np.cosh(BETA * s) - np.cos(BETA * s) - ratio * (np.sinh(BETA * s) - np.sin(BETA * s))
    scaled: Float = 0.5 * shape
    return scaled
