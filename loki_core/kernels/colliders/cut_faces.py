"""Middles of the open parts of faces that solids cut, and velocities there.

A face's middle lies half a voxel from its edges, the middle of its open part somewhere else: the
two differ by up to half a voxel along each of the face's two axes. Between the middles of the face
and of the faces next to it, on the open side, a value is linear to second order:

    g(middle of the open part) = g_f + sum_k part_k (g_next(k) - g_f),     0 <= part_k <= 1/2
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.colliders.solid_fractions import face_part
from loki_core.kernels.jit import device, parallel_kernel, prange


@parallel_kernel
def find_open_middles(nodes, rows, place, fraction, neighbours, face, toward, part):
    """Find the middles of cut faces, and the faces next to them on that side.

    Args: nodes float64 [m, 4, r+1, r+1, r+1]; rows int32 [m], their Buckets; place int64 [n, 5]:
    which of the m, axis, i, j, k; fraction [b, 3, r, r, r] with ghosts; face int64 [n] and toward
    int64 [n, 2], filled: places in the flat array, -1 where the next face is closed; part float64
    [n, 2], filled.
    """
    for n in prange(place.shape[0]):
        middle_of_place(
            nodes, rows, place[n], fraction, neighbours, face, toward, part, np.int64(n)
        )


@device
def middle_of_place(nodes, rows, place, fraction, neighbours, face, toward, part, n):
    """Do one face."""
    r = fraction.shape[2]
    axis, i, j, k = place[1], place[2], place[3], place[4]
    b = np.int64(rows[place[0]])
    face[n] = (((b * 3 + axis) * r + i) * r + j) * r + k
    _, along_u, along_v = face_part(nodes[place[0]], axis, i, j, k)
    for side in range(2):
        along = 0 if axis != 0 else 1  # the face's two axes, in order
        if side == 1:
            along = 2 if axis != 2 else 1
        way = along_u if side == 0 else along_v
        toward[n, side], part[n, side] = -1, abs(way)
        if way == 0.0:
            continue
        other, ni, nj, nk = beside(neighbours, b, r, along, 1 if way > 0.0 else -1, i, j, k)
        if other >= 0 and fraction[other, axis, ni, nj, nk] > 0.0:
            toward[n, side] = (((other * 3 + axis) * r + ni) * r + nj) * r + nk


@parallel_kernel
def change_towards_middles(values, face, toward, part, out):
    """Write by how much a face value is more in the middle of the open part to out [n].

    Args: values flat, with ghosts; a next face whose value is 0 has none, as in the air.
    """
    for n in prange(face.shape[0]):
        here = np.float64(values[face[n]])
        total = 0.0
        for side in range(2):
            if toward[n, side] >= 0:
                there = np.float64(values[toward[n, side]])
                if there != 0.0:
                    total += part[n, side] * (there - here)
        out[n] = total
