"""Bring positions back into the periodic box."""

from __future__ import annotations

import math

from loki_core.kernels.jit import parallel_kernel, prange


@parallel_kernel
def wrap_positions(position, axis, lower, upper):
    """Move positions [n, 3] by whole periods into [lower, upper) along one axis."""
    length = upper - lower
    for i in prange(position.shape[0]):
        x = position[i, axis]
        if x < lower or x >= upper:
            # Rounding may put a tiny negative onto `upper` itself, which is `lower`.
            x = x - length * math.floor((x - lower) / length)
            position[i, axis] = lower if x >= upper or x < lower else x
