"""Velocities of a liquid beyond its surface: as far as its particles go in a step.

Faces that the liquid has by its pressure are known; those around take the mean of their known
neighbours, layer by layer.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.gas.mac_grid import FLUID, SOLID
from loki_core.kernels.jit import device, parallel_kernel, prange


@parallel_kernel
def mark_known_faces(kind, fraction, loose, neighbours, known):
    """Mark faces of local Buckets that the liquid has, by its pressure or by a wall: 1, else 0.

    A wall has those on which the liquid presses: not where both cells are loose.
    """
    for b in prange(neighbours.shape[0]):
        mark_bucket(np.int64(b), kind, fraction, loose, neighbours, known)


@device
def mark_bucket(b, kind, fraction, loose, neighbours, known):
    r = kind.shape[2]
    for a in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    other, ni, nj, nk = beside(neighbours, b, r, a, -1, i, j, k)
                    liquid = kind[b, 0, i, j, k] == FLUID
                    presses = liquid and loose[b, 0, i, j, k] == 0
                    if other >= 0 and kind[other, 0, ni, nj, nk] == FLUID:
                        liquid = True
                        presses |= loose[other, 0, ni, nj, nk] == 0
                    if fraction[b, a, i, j, k] == 0.0:
                        liquid = presses
                    known[b, a, i, j, k] = 1 if liquid else 0


@parallel_kernel
def mark_reached_faces(weight, fraction, closed, known):
    """Mark faces that a particle reaches, flat arrays.

    Args: closed: part of a face that a solid closes, from which on it is left out.
    """
    for n in prange(known.shape[0]):
        if weight[n] > 0.0 and 1.0 - fraction[n] < closed and known[n] == 0:
            known[n] = 1


@parallel_kernel
def extend_layer(weight, kind, fraction, neighbours, level, velocity, start, known):
    """Give the faces beside known ones their velocity, for local Buckets.

    A face that a particle reaches keeps its own velocity and takes the neighbours' change alone, so
    that drops near the surface keep their momentum. A wall, whose own velocity is there already, is
    left by the liquid but not entered.

    Args: level: what known is for the faces to start from, at most; filled ones get one more.
    """
    for b in prange(neighbours.shape[0]):
        extend_bucket(
            np.int64(b), weight, kind, fraction, neighbours, level, velocity, start, known
        )  # fmt: skip


@device
def extend_bucket(b, weight, kind, fraction, neighbours, level, velocity, start, known):
    r = known.shape[2]
    near = np.empty((r + 2, r + 2, r + 2), known.dtype)
    for a in range(3):
        if not gather_known(known, neighbours, b, a, level, near):
            continue
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    x, y, z = i + 1, j + 1, k + 1
                    known_near = near[x - 1, y, z] + near[x + 1, y, z] + near[x, y - 1, z]
                    known_near += near[x, y + 1, z] + near[x, y, z - 1] + near[x, y, z + 1]
                    if known_near > 0 and known[b, a, i, j, k] == 0:
                        extend_face(
                            b, a, i, j, k, weight, kind, fraction, neighbours, level, velocity,
                            start, known,
                        )  # fmt: skip


@device
def gather_known(known, neighbours, b, a, level, near):
    """Fill near [r + 2]^3 with 1 for known faces up to a level; return whether there are any.

    False too where all faces of the Bucket are known: there is nothing to do.
    """
    r = known.shape[2]
    some, missing = False, False
    near[:] = 0
    for i in range(r):
        for j in range(r):
            for k in range(r):
                value = known[b, a, i, j, k]
                missing |= value == 0
                if 0 < value <= level:
                    near[i + 1, j + 1, k + 1] = 1
                    some = True
    if not missing:
        return False
    for side in range(6):
        axis, upper = side // 2, side % 2
        step = 9 if axis == 0 else (3 if axis == 1 else 1)
        other = np.int64(neighbours[b, 13 + (step if upper == 1 else -step)])
        if other < 0:
            continue
        source, to = (0, r + 1) if upper == 1 else (r - 1, 0)
        for u in range(r):
            for v in range(r):
                if axis == 0:
                    value = known[other, a, source, u, v]
                elif axis == 1:
                    value = known[other, a, u, source, v]
                else:
                    value = known[other, a, u, v, source]
                if 0 < value <= level:
                    some = True
                    if axis == 0:
                        near[to, u + 1, v + 1] = 1
                    elif axis == 1:
                        near[u + 1, to, v + 1] = 1
                    else:
                        near[u + 1, v + 1, to] = 1
    return some


@device
def extend_face(
    b, a, i, j, k, weight, kind, fraction, neighbours, level, velocity, start, known
):  # fmt: skip
    """Give one face the mean of its known neighbours."""
    r = known.shape[2]
    total, change, count = 0.0, 0.0, 0
    for n in range(6):
        other, ni, nj, nk = beside(neighbours, b, r, n // 2, 2 * (n % 2) - 1, i, j, k)
        if other >= 0 and 0 < known[other, a, ni, nj, nk] <= level:
            u = np.float64(velocity[other, a, ni, nj, nk])
            total += u
            change += u - start[other, a, ni, nj, nk]
            count += 1
    change /= count
    new = total / count
    if weight[b, a, i, j, k] > 0.0:
        new = np.float64(start[b, a, i, j, k]) + change
    else:
        start[b, a, i, j, k] = new - change
    if fraction[b, a, i, j, k] == 0.0:
        below, bi, bj, bk = beside(neighbours, b, r, a, -1, i, j, k)
        solid_above = kind[b, 0, i, j, k] == SOLID
        solid_below = below < 0 or kind[below, 0, bi, bj, bk] == SOLID
        wall = np.float64(velocity[b, a, i, j, k])
        if solid_above and not solid_below:
            new = min(new, wall)
        elif solid_below and not solid_above:
            new = max(new, wall)
    velocity[b, a, i, j, k] = new
    known[b, a, i, j, k] = level + 1
