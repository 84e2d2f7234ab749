"""A braid that hangs: three plies of many strands each, and the tie at its end; metres, Y up.

Ply k of a flat braid runs, with the phase q = 2 pi s / period + 2 pi k / 3, through

    x = a sin(q),   z = b sin(2 q),   y = -s

so that at any height one ply lies in front, one behind and one between them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.data.curves import Curves
from loki_core.data.surface import Surface

Doubles = npt.NDArray[np.float64]

LENGTH = 0.4  # m, from the root to the tips
PERIOD = 0.085  # m in which a ply crosses to the other edge and back
HALF_WIDTH, HALF_DEPTH = 0.0125, 0.0068  # m: a and b
PLY_RADIUS = 0.0098  # m
TIE_HEIGHT = 0.35  # m below the root
TIE_RADIUS, TIE_THICKNESS = 0.0072, 0.0032  # m
ROOT_RADIUS = 4.5e-5  # m
TIP_PART = 0.5
FINE = 1500  # places along a strand before its points are chosen


def braid(strands_per_ply: int = 500, vertices: int = 80) -> Curves:
    """Return the strands of all plies, one ply after another, their roots at the top.

    The point channel "tied" says which points the tie holds; "ply" says where a strand belongs.

    Args:
        strands_per_ply: Strands of each of three plies.
        vertices: Points of a strand, at equal distances.
    """
    random = np.random.default_rng(11)
    fine = np.concatenate([_ply(k, strands_per_ply, random) for k in range(3)])
    strands = _evenly(fine, vertices)
    count = 3 * strands_per_ply
    curves = Curves.from_strands(strands)
    taper = 1.0 - (1.0 - TIP_PART) * np.linspace(0.0, 1.0, vertices) ** 3
    curves.set_channel("point", "radius", np.tile(ROOT_RADIUS * taper, count))
    held = np.abs(curves.positions[:, 1] + TIE_HEIGHT) < TIE_THICKNESS
    curves.set_channel("point", "tied", held)
    curves.set_channel("primitive", "id", np.arange(count, dtype=np.int64))
    curves.set_channel("primitive", "ply", np.repeat(np.arange(3, dtype=np.int32), strands_per_ply))
    return curves


def tie(around: int = 36, across: int = 14) -> Surface:
    """Return the ring that holds the end of the braid."""
    turn = 2.0 * np.pi * np.arange(around)[:, None] / around
    roll = 2.0 * np.pi * np.arange(across)[None, :] / across
    radius = TIE_RADIUS + 0.6 * TIE_THICKNESS * np.cos(roll)
    height = -TIE_HEIGHT + TIE_THICKNESS * np.sin(roll) + 0.0 * turn
    points = np.stack((radius * np.cos(turn), height, radius * np.sin(turn)), axis=2)
    i, j = np.meshgrid(np.arange(around), np.arange(across), indexing="ij")
    after, above = (i + 1) % around, (j + 1) % across
    quads = np.stack(
        (i * across + j, i * across + above, after * across + above, after * across + j), axis=2
    )
    surface = Surface.from_faces(points.reshape(-1, 3), quads.reshape(-1, 4))
    surface.set_channel("point", "Cd", np.tile((0.35, 0.02, 0.03), (surface.point_count, 1)))
    return surface


def _ply(k: int, strands: int, random: np.random.Generator) -> Doubles:
    """Return the strands of one ply, fine, [strands, FINE, 3]."""
    s = np.linspace(0.0, LENGTH, FINE)
    tight = _tightness(s)
    q = 2.0 * np.pi * s / PERIOD + 2.0 * np.pi * k / 3.0
    core = np.stack(
        (HALF_WIDTH * tight * np.sin(q), -s, HALF_DEPTH * tight * np.sin(2.0 * q)), axis=1
    )
    tangent = np.gradient(core, s, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    across = np.cross(tangent, (0.0, 0.0, 1.0))
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    through = np.cross(across, tangent)
    # a sunflower's seeds fill the round section evenly; strands wander in it a little
    index = np.arange(strands) + 0.5
    reach = np.sqrt(index / strands)[:, None]
    wave = random.random((strands, 4))
    wander = 0.35 * np.sin(2.0 * np.pi * (s / (0.11 + 0.08 * wave[:, 1:2]) + wave[:, 2:3]))
    angle = 2.399963229728653 * index[:, None] + wander + 0.6 * s / PERIOD
    loose = 1.0 + 0.05 * np.sin(2.0 * np.pi * (s / (0.05 + 0.04 * wave[:, 3:4]) + wave[:, 0:1]))
    astray = 1.0 + 0.3 * (wave[:, 0:1] > 0.97) * reach * np.sin(np.pi * s / TIE_HEIGHT) ** 2
    radius = PLY_RADIUS * _thickness(s) * reach * loose * astray
    flat = radius[..., None] * (
        np.cos(angle)[..., None] * across + 0.72 * np.sin(angle)[..., None] * through
    )
    return np.asarray(core + flat)


def _tightness(s: Doubles) -> Doubles:
    """Return the part of its full width that a braid has: it is gathered at root and tie."""
    begun = np.clip(s / 0.05, 0.0, 1.0)
    held = np.clip((TIE_HEIGHT - s) / 0.06, 0.0, 1.0)
    return np.asarray((0.12 + 0.88 * _smoothstep(begun)) * (0.12 + 0.88 * _smoothstep(held)))


def _thickness(s: Doubles) -> Doubles:
    """Return the part of its full radius that a ply has; below the tie it fans out to a tuft."""
    above = 1.0 - 0.25 * s / TIE_HEIGHT
    held = 0.55 + (above - 0.55) * _smoothstep(np.clip((TIE_HEIGHT - s) / 0.05, 0.0, 1.0))
    below = np.clip((s - TIE_HEIGHT) / (LENGTH - TIE_HEIGHT), 0.0, 1.0)
    gathered = 0.45 + 0.55 * _smoothstep(np.clip(s / 0.04, 0.0, 1.0))
    return np.asarray(gathered * held + 0.75 * np.sin(0.75 * np.pi * below))


def _smoothstep(x: Doubles) -> Doubles:
    return np.asarray(x * x * (3.0 - 2.0 * x))


def _evenly(fine: Doubles, vertices: int) -> Doubles:
    """Return points on fine strands such that their straight distances are equal."""
    result = np.empty((len(fine), vertices, 3))
    for i, strand in enumerate(fine):
        lengths = np.linalg.norm(np.diff(strand, axis=0), axis=1)
        arc = np.concatenate(([0.0], np.cumsum(lengths)))
        place = np.linspace(0.0, arc[-1], vertices)
        for _ in range(12):  # chords shorten where a strand bends: give them more of its length
            points = np.stack([np.interp(place, arc, strand[:, c]) for c in range(3)], axis=1)
            chords = np.linalg.norm(np.diff(points, axis=0), axis=1)
            covered = np.concatenate(([0.0], np.cumsum(chords)))
            place = np.interp(np.linspace(0.0, covered[-1], vertices), covered, place)
        result[i] = np.stack([np.interp(place, arc, strand[:, c]) for c in range(3)], axis=1)
    return result
