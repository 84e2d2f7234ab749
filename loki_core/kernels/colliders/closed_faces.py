"""Faces that solids close: normals of the solid there, and velocities that slide along it.

A solid of any shape closes faces which are not parallel to its surface. The liquid beside it has a
velocity along the surface, with a component across such faces, so these are no walls to what the
liquid carries along: they take the liquid's velocity, less its part across the surface.
"""

from __future__ import annotations

import math

from loki_core.kernels.buckets.voxel_places import beside, voxel_at
from loki_core.kernels.colliders.solid_fractions import face_opening
from loki_core.kernels.gas.mac_grid import FLUID
from loki_core.kernels.jit import device, parallel_kernel, prange


@parallel_kernel
def mark_closed_faces(nodes, smallest, deepest, marked):
    """Mark faces that solids close, but not those deeper in them than `deepest` [m].

    Args: nodes float64 [m, 4, r+1, r+1, r+1]; marked uint8 [m, 3, r, r, r], filled.
    """
    r = marked.shape[2]
    for n in prange(marked.shape[0]):
        for axis in range(3):
            for i in range(r):
                for j in range(r):
                    for k in range(r):
                        is_closed = face_opening(nodes[n], axis, i, j, k, smallest) == 0.0
                        near = nodes[n, 0, i, j, k] > -deepest
                        marked[n, axis, i, j, k] = 1 if is_closed and near else 0


@parallel_kernel
def normals_at(nodes, place, normal):
    """Write the solid's outward normals at faces to normal float64 [n, 3]; 0 where there is none.

    Args: place int64 [n, 5]: which of the nodes' Buckets, axis, i, j, k.
    """
    for n in prange(place.shape[0]):
        slope_of_voxel(nodes[place[n, 0], 0], place[n, 2], place[n, 3], place[n, 4], normal[n])


@device
def slope_of_voxel(distance, i, j, k, out):
    """Write the direction in which the distance grows across a voxel's eight nodes to out [3]."""
    out[0], out[1], out[2] = 0.0, 0.0, 0.0
    for n in range(8):
        x, y, z = n // 4, n // 2 % 2, n % 2
        value = distance[i + x, j + y, k + z]
        out[0] += (2 * x - 1) * value
        out[1] += (2 * y - 1) * value
        out[2] += (2 * z - 1) * value
    length = math.sqrt(out[0] * out[0] + out[1] * out[1] + out[2] * out[2])
    scale = 1.0 / length if length > 0.0 else 0.0
    out[0], out[1], out[2] = scale * out[0], scale * out[1], scale * out[2]


@parallel_kernel
def slide_along(
    face, normal, velocity, solid, fraction, known, kind, loose, neighbours, out
):  # fmt: skip
    """Write velocities of closed faces without their part across the solid's surface to out [n].

    Where the liquid presses none is left, elsewhere none that goes into the solid.

    Args: face int64 [n], places in a flat face channel; normal float64 [n, 3]; velocity, solid
    [b, 3, r, r, r] m/s, the liquid's and the solids'; fraction of faces that is open; known uint8,
    0 where no velocity is; kind, loose uint8 [b, 1, r, r, r]: all with ghosts and corners; out
    float64 [n].
    """
    for n in prange(face.shape[0]):
        out[n] = sliding_velocity(
            face[n], normal[n], velocity, solid, fraction, known, kind, loose, neighbours
        )  # fmt: skip


@device
def sliding_velocity(face, normal, velocity, solid, fraction, known, kind, loose, neighbours):
    """Do one face."""
    r = velocity.shape[2]
    k, rest = face % r, face // r
    j, rest = rest % r, rest // r
    i, rest = rest % r, rest // r
    axis, b = rest % 3, rest // 3
    own = float(velocity[b, axis, i, j, k])
    across = 0.0  # of the velocity relative to the solid's
    for a in range(3):
        if a == axis:
            across += normal[a] * (own - solid[b, a, i, j, k])
        else:
            across += normal[a] * mean_beside(
                axis, a, b, i, j, k, velocity, solid, fraction, known, neighbours
            )  # fmt: skip
    other, ni, nj, nk = beside(neighbours, b, r, axis, -1, i, j, k)
    presses = kind[b, 0, i, j, k] == FLUID and loose[b, 0, i, j, k] == 0
    if other >= 0:
        presses |= kind[other, 0, ni, nj, nk] == FLUID and loose[other, 0, ni, nj, nk] == 0
    if presses or across < 0.0:
        own -= normal[axis] * across
    return own


@device
def mean_beside(axis, a, b, i, j, k, velocity, solid, fraction, known, neighbours):
    """Mean of component a, relative to the solid's, of the four faces around one along an axis.

    The solid's is known on faces that it cuts or closes.
    """
    r = velocity.shape[2]
    flow, flows, wall, walls = 0.0, 0, 0.0, 0
    for n in range(4):
        down, up = -(n // 2), n % 2
        x = i + (down if axis == 0 else 0) + (up if a == 0 else 0)
        y = j + (down if axis == 1 else 0) + (up if a == 1 else 0)
        z = k + (down if axis == 2 else 0) + (up if a == 2 else 0)
        other, x, y, z = voxel_at(neighbours, b, r, x, y, z)
        if other < 0:
            continue
        if known[other, a, x, y, z] > 0:
            flow += velocity[other, a, x, y, z]
            flows += 1
        if fraction[other, a, x, y, z] < 1.0:
            wall += solid[other, a, x, y, z]
            walls += 1
    return flow / flows - wall / walls if flows > 0 and walls > 0 else 0.0
