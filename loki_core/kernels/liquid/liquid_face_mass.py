"""Mass that moves with a liquid's faces: their own, and that of faces beyond the surface.

Faces with particles that no liquid cell is beside take the mean change of those beside them that
have one (kernels/liquid_extension), so a change of one face moves

    M_f + sum_s M_s / n_s        s: such faces beside f, with n_s faces that they follow
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.jit import device, parallel_kernel, prange


@parallel_kernel
def share_following(known, weight, fraction, neighbours, part):
    """Write what each local face gives of its weight to every face that it follows.

    Args: known uint8 [b, 3, r, r, r] with ghosts; weight, fraction, part [local, 3, r, r, r].
    """
    for b in prange(neighbours.shape[0]):
        share_bucket(np.int64(b), known, weight, fraction, neighbours, part)


@device
def share_bucket(b, known, weight, fraction, neighbours, part):
    r = known.shape[2]
    for a in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    part[b, a, i, j, k] = 0.0
                    if known[b, a, i, j, k] == 1 or weight[b, a, i, j, k] <= 0.0:
                        continue
                    if fraction[b, a, i, j, k] == 0.0:
                        continue
                    count = 0
                    for n in range(6):
                        other, ni, nj, nk = beside(
                            neighbours, b, r, n // 2, 2 * (n % 2) - 1, i, j, k
                        )
                        if other >= 0 and known[other, a, ni, nj, nk] == 1:
                            count += 1
                    if count > 0:
                        part[b, a, i, j, k] = weight[b, a, i, j, k] / count


@parallel_kernel
def add_following(known, part, neighbours, mass):
    """Add to the mass of known local faces what follows them; known, part with ghosts."""
    for b in prange(neighbours.shape[0]):
        add_bucket(np.int64(b), known, part, neighbours, mass)


@device
def add_bucket(b, known, part, neighbours, mass):
    r = known.shape[2]
    for a in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    if known[b, a, i, j, k] != 1:
                        continue
                    total = 0.0
                    for n in range(6):
                        other, ni, nj, nk = beside(
                            neighbours, b, r, n // 2, 2 * (n % 2) - 1, i, j, k
                        )
                        if other >= 0:
                            total += part[other, a, ni, nj, nk]
                    mass[b, a, i, j, k] += total
