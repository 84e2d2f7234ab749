"""Michell's ring: a circle closed from a twisted straight rod leaves its plane (Michell 1889).

For a round section the ring is stable while the twist with which its ends were joined is below

    Tw = 2 pi sqrt(3) E I / (G J) = 2 pi sqrt(3) (1 + nu)            16.32 rad for nu = 0.5

The twist is the Behavior's natural twist: the rod is without stress when it is twisted as much the
other way, which for a round section is the same as joining the ends at an angle. Rings of different
twist side by side get a small push out of the plane, in the shape cos(2 phi); that part of their
motion dies, or grows. Backward Euler is converged by Newton iterations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result
from ._rods import critical, grows

Float = NDArray[np.float64]

CASE = "rod_michell_ring"
PRODUCTION, BEST = 0.03, 0.01
RING, RADIUS, DENSITY, MODULUS, POISSON = 1.0, 0.02, 1000.0, 1.0e7, 0.5
CRITICAL = 2.0 * np.pi * np.sqrt(3.0) * (1.0 + POISSON)
PUSH = 1.0e-6  # m/s
FRAMES_PER_SECOND = 2.0  # the plain ring sways at 2.7 rad/s
FRAMES = 60


def run() -> list[dict[str, Any]]:
    """Rings of 64 and 128 segments."""
    results = []
    for segments in (64, 128):
        twist = critical(
            lambda twists, n=segments: leaves(twists, n), 0.9 * CRITICAL, 1.1 * CRITICAL
        )
        results.append(
            result(
                CASE,
                f"critical twist, N = {segments}",
                twist,
                CRITICAL,
                error=abs(twist - CRITICAL) / CRITICAL,
                production=PRODUCTION,
                best=BEST,
            )
        )
    return results


def leaves(twists: Float, segments: int) -> NDArray[np.bool_]:
    """Whether rings of these twists [rad] move ever more out of their plane."""
    count, angle = len(twists), np.arange(segments) * (2.0 * np.pi / segments)
    ring = np.stack((np.cos(angle), np.sin(angle), np.zeros(segments)), axis=1) * RING
    velocity = np.zeros_like(ring)
    velocity[:, 2] = PUSH * np.cos(2.0 * angle)
    offsets = np.arange(count + 1) * segments
    curves = loki.Curves(np.tile(ring, (count, 1)), offsets, closed=True)
    curves.set_channel("point", "velocity", np.tile(velocity, (count, 1)))
    length = segments * float(np.linalg.norm(ring[1] - ring[0]))
    curves.set_channel("primitive", "bending_natural_twist", -twists / length)
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="rings", rest="straight", radius=RADIUS, density=DENSITY),
        loki.StretchingConstraint(young_modulus=MODULUS),
        loki.BendingConstraint(
            young_modulus=MODULUS, shear_modulus=0.5 * MODULUS / (1.0 + POISSON)
        ),
        frames_per_second=FRAMES_PER_SECOND,
        newton_iterations=20,  # converged: with one, twist and bending together need short steps
    )
    solver = loki.Solver(setup, {"rings": curves})
    wave = np.exp(-2.0j * angle)

    def out_of_plane(places: Float) -> Float:
        heights = places[:, 2].reshape(count, segments)
        amplitudes: Float = abs(heights @ wave) * (2.0 / segments)
        return amplitudes

    return grows(solver, "CurvesObject", out_of_plane, frames=FRAMES, most=0.001 * RING)
