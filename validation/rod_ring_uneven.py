"""Michell's ring of uneven segments, and of a section that is stiff in twist.

The ring of `rod_michell_ring` leaves its plane at the twist 2 pi sqrt(3) E I / (G J), however it is
cut into segments. Lengths of 1 +- 0.5, drawn at random, are no circle's equilibrium: an edge feels
the twist's moment with the curvature of its two joints over its own length. Each such ring leans
out of its plane a little at any twist, by less than the cube of a segment, as an imperfect one
does; that grows as the critical twist comes near. Beyond it there is no rest, and the ring snaps
over. So rings of different twist start flat and without any push; those that ever are a tenth of
their radius off the plane that fits them best have buckled.

Even rings with E I / (G J) = 0.9 are pushed, as in `rod_michell_ring`; with few Newton iterations
too, which must not make them buckle early.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result
from ._rods import critical, grows, watch

Float = NDArray[np.float64]

CASE = "rod_ring_uneven"
PRODUCTION, BEST = 0.03, 0.01
RING, RADIUS, DENSITY, MODULUS = 1.0, 0.02, 1000.0, 1.0e7
PUSH = 1.0e-6  # m/s
BUCKLED = 0.1  # of the radius, out of the plane
TURN = np.linalg.qr(np.array([[1.0, 2.0, -2.0], [0.3, 1.0, 1.0], [2.0, -0.5, 1.0]]))[0]


def run() -> list[dict[str, Any]]:
    """Rings of 64 and 128 segments."""
    results = []
    for segments in (64, 128):
        for ratio in (0.9, 1.5):
            results.append(_threshold("uneven", segments, ratio, newton=20))
        for newton in (3, 20):
            results.append(_threshold("even", segments, 0.9, newton=newton))
    return results


def _threshold(kind: str, segments: int, ratio: float, *, newton: int) -> dict[str, Any]:
    exact = 2.0 * np.pi * np.sqrt(3.0) * ratio
    found = critical(
        lambda twists: leaves(twists, segments, ratio, uneven=kind == "uneven", newton=newton),
        0.9 * exact,
        1.1 * exact,
    )
    return result(
        CASE,
        f"critical twist, {kind}, E I / G J = {ratio:g}, N = {segments}, {newton} iterations",
        found,
        exact,
        error=abs(found - exact) / exact,
        production=PRODUCTION,
        best=BEST,
    )


def leaves(
    twists: Float, segments: int, ratio: float, *, uneven: bool, newton: int, frames: int = 0
) -> NDArray[np.bool_]:
    """Whether rings of these twists [rad] leave their plane for good."""
    count, lengths = len(twists), np.ones(segments)
    if uneven:
        lengths += np.random.default_rng(segments).uniform(-0.5, 0.5, segments)
    angle = (np.cumsum(lengths) - lengths) * (2.0 * np.pi / lengths.sum())
    ring = np.stack((np.cos(angle), np.sin(angle), np.zeros(segments)), axis=1) * RING
    velocity = np.zeros_like(ring)
    if not uneven:
        velocity[:, 2] = PUSH * np.cos(2.0 * angle)
    turn = TURN if uneven else np.eye(3)
    offsets = np.arange(count + 1) * segments
    curves = loki.Curves(np.tile(ring @ turn.T, (count, 1)), offsets, closed=True)
    curves.set_channel("point", "velocity", np.tile(velocity @ turn.T, (count, 1)))
    length = float(np.linalg.norm(np.roll(ring, -1, axis=0) - ring, axis=1).sum())
    curves.set_channel("primitive", "bending_natural_twist", -twists / length)
    setup = loki.SolverSetup(
        CASE,
        loki.CurvesObject(input="rings", rest="straight", radius=RADIUS, density=DENSITY),
        loki.StretchingConstraint(young_modulus=MODULUS),
        loki.BendingConstraint(young_modulus=MODULUS, shear_modulus=0.5 * MODULUS / ratio),
        frames_per_second=2.0,  # the plain ring sways at 2.7 rad/s
        newton_iterations=newton,
    )
    solver = loki.Solver(setup, {"rings": curves})
    if uneven:
        off = _off_plane(count, segments)
        return watch(solver, "CurvesObject", off, frames=frames or 200, most=BUCKLED * RING)[0]
    wave = np.exp(-2.0j * angle)

    def amplitude(places: Float) -> Float:
        found: Float = abs(places[:, 2].reshape(count, segments) @ wave) * (2.0 / segments)
        return found

    return grows(solver, "CurvesObject", amplitude, frames=frames or 60, most=0.001 * RING)


def _off_plane(count: int, segments: int) -> Any:
    """Largest distance of each ring's points from the plane that fits them best [m]."""

    def off(places: Float) -> Float:
        rings = places.reshape(count, segments, 3)
        rings = rings - rings.mean(axis=1, keepdims=True)
        normal = np.linalg.svd(rings, full_matrices=False)[2][:, 2]
        found: Float = np.abs(np.einsum("rna,ra->rn", rings, normal)).max(axis=1)
        return found

    return off
