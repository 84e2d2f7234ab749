"""What a limiter cut off, handed on to the neighbours that have room for it.

A voxel that was brought down to its upper bound gives its excess e > 0 to the neighbours below it,
in proportion to how far below they are, so that none rises above the giver; one that was brought up
takes its e < 0 from those above it in the same way:

    share of neighbour i = e (f_i - f_j) / sum_n (f_n - f_j)        over n with e (f_n - f_j) < 0

Without this a limited scheme of second order moves a sharp edge by half of the way that it should,
until the edge has become a few voxels wide.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.jit import device, parallel_kernel, prange


@parallel_kernel
def excess_to_rates(values, neighbours, excess):
    """Replace excess by excess / sum of differences to the neighbours that take part, or 0.

    Args: values [b, c, r, r, r] with ghosts; excess [b, c, r, r, r]: local Buckets are changed.
    """
    for b in prange(neighbours.shape[0]):
        rates_of_bucket(np.int64(b), values, neighbours, excess)


@device
def rates_of_bucket(b, values, neighbours, excess):
    """Do one Bucket."""
    r = values.shape[2]
    for c in range(values.shape[1]):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    e = excess[b, c, i, j, k]
                    if e == 0.0:
                        continue
                    here = values[b, c, i, j, k]
                    room = e - e
                    for face in range(6):
                        other, ni, nj, nk = beside(
                            neighbours, b, r, face >> 1, 2 * (face & 1) - 1, i, j, k
                        )
                        if other >= 0:
                            difference = values[other, c, ni, nj, nk] - here
                            if e * difference < 0.0:
                                room += abs(difference)
                    excess[b, c, i, j, k] = e / room if room > 0.0 else e - e


@parallel_kernel
def hand_on(values, rates, neighbours, out):
    """Write values and what the neighbours hand on to out; none passes its givers."""
    for b in prange(neighbours.shape[0]):
        hand_on_in_bucket(np.int64(b), values, rates, neighbours, out)


@device
def hand_on_in_bucket(b, values, rates, neighbours, out):
    """Do one Bucket."""
    r = values.shape[2]
    for c in range(values.shape[1]):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    here = values[b, c, i, j, k]
                    given = here - here
                    low = here
                    high = here
                    for face in range(6):
                        other, ni, nj, nk = beside(
                            neighbours, b, r, face >> 1, 2 * (face & 1) - 1, i, j, k
                        )
                        if other >= 0:
                            rate = rates[other, c, ni, nj, nk]
                            if rate != 0.0:
                                difference = here - values[other, c, ni, nj, nk]
                                if rate * difference < 0.0:
                                    given += rate * abs(difference)
                                    low = min(low, values[other, c, ni, nj, nk])
                                    high = max(high, values[other, c, ni, nj, nk])
                    out[b, c, i, j, k] = min(max(here + given, low), high)
