"""Bring positions back into the periodic box."""

from __future__ import annotations

import math

from loki_core.kernels.jit import parallel_kernel, prange


@parallel_kernel
def wrap_positions(position, axis, lower, upper, highest):
    """Move positions [n, 3] by whole periods into [lower, upper) along one axis.

    `highest` is the largest number that still lies in the last Bucket: rounding may put a tiny
    negative onto `upper` itself, or the last Bucket's end a hair below it.
    """
    length = upper - lower
    for i in prange(position.shape[0]):
        x = position[i, axis]
        if x < lower or x >= upper:
            x = x - length * math.floor((x - lower) / length)
            x = lower if x >= upper or x < lower else x
            position[i, axis] = x
        if x > highest:
            position[i, axis] = highest
