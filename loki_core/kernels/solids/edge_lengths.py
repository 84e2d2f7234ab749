"""Lengths of edges between any two points, with first and second derivatives.

    l = |x_1 - x_0|,   dl/dx_1 = t,   dl/dx_0 = -t,   d2l/dx_1^2 = (I - t t^T) / l

An edge of no length has no direction, and no derivatives.
"""

from __future__ import annotations

import math

from loki_core.kernels.basics.vec3 import dot3, load3, sub3
from loki_core.kernels.jit import parallel_kernel, prange
from loki_core.kernels.solids.rod_frames import SHORTEST_SQUARED, direction

SHORTEST = math.sqrt(SHORTEST_SQUARED)


@parallel_kernel
def edge_lengths(x, ends, length):
    """Write the length of each edge [n], whose ends are rows of x [n, 2]."""
    for n in prange(ends.shape[0]):
        between = sub3(load3(x, ends[n, 1]), load3(x, ends[n, 0]))
        squared = dot3(between, between)
        length[n] = math.sqrt(squared) if squared > SHORTEST_SQUARED else 0.0


@parallel_kernel
def edge_strains(x, ends, length, gradient):
    """The same, and the gradient [n, 1, 6] by the two ends."""
    for n in prange(ends.shape[0]):
        between = sub3(load3(x, ends[n, 1]), load3(x, ends[n, 0]))
        t, length[n] = direction(between, (0.0, 0.0, 0.0))
        for axis in range(3):
            gradient[n, 0, axis] = -t[axis]
            gradient[n, 0, 3 + axis] = t[axis]


@parallel_kernel
def length_hessians(gradient, length, tension, definite, matrices):
    """Write T d2C/dx2 of each length [n, 6, 6], from the gradient [n, 1, 6] and T [n, 1].

    It is semi-definite under tension; if that alone is asked for, there is nothing else.
    """
    for n in prange(length.shape[0]):
        inverse = 1.0 / length[n] if length[n] > SHORTEST else 0.0
        weight = max(tension[n, 0], 0.0) if definite == 1 else tension[n, 0]
        for a in range(3):
            for b in range(3):
                along = gradient[n, 0, 3 + a] * gradient[n, 0, 3 + b]
                entry = weight * (((1.0 if a == b else 0.0) - along) * inverse)
                matrices[n, a, b] = entry
                matrices[n, 3 + a, 3 + b] = entry
                matrices[n, a, 3 + b] = -entry
                matrices[n, 3 + a, b] = -entry
