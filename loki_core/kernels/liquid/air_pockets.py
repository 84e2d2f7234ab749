"""Surface of pockets of air: how much the pressure of each moves the liquid cells around it."""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.gas.mac_grid import FLUID
from loki_core.kernels.jit import device, parallel_kernel, prange


@parallel_kernel
def fill_pocket_columns(kind, pocket, fraction, mobility, neighbours, columns):
    """Write the sum of w m over the faces that each liquid cell shares with a pocket to columns.

    Args: kind, pocket [b, 1, r, r, r], fraction, mobility [b, 3, r, r, r] with ghosts; pocket: its
    number from 1, or 0; columns float64 [pockets, local * r^3], zero before.
    """
    for b in prange(neighbours.shape[0]):
        fill_columns_of_bucket(
            np.int64(b), kind, pocket, fraction, mobility, neighbours, columns
        )  # fmt: skip


@device
def fill_columns_of_bucket(b, kind, pocket, fraction, mobility, neighbours, columns):
    r = kind.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                if kind[b, 0, i, j, k] != FLUID:
                    continue
                row = ((b * r + i) * r + j) * r + k
                for n in range(6):
                    a = n // 2
                    other, ni, nj, nk = beside(neighbours, b, r, a, 2 * (n % 2) - 1, i, j, k)
                    if other < 0 or pocket[other, 0, ni, nj, nk] == 0:
                        continue
                    if n % 2 == 0:
                        moved = np.float64(fraction[b, a, i, j, k]) * mobility[b, a, i, j, k]
                    else:
                        moved = np.float64(fraction[other, a, ni, nj, nk])
                        moved *= mobility[other, a, ni, nj, nk]
                    columns[pocket[other, 0, ni, nj, nk] - 1, row] += moved
