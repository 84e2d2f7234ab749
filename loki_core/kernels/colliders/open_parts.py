"""The open part of a face that a solid cuts: its area and its middle, to third order.

A face is the square with corners (0, 0), (1, 0), (1, 1), (0, 1), where the distances a, b, c, d are
given; s is the second difference of the distance along each of the two axes. Along an edge from a
to b the distance and its zero are

    d(t) = a + (b - a) t - s t (1 - t) / 2,   t = 2 a / (-B +- sqrt(B^2 - 2 s a)),   B = b - a - s/2

The zeros are joined by straight chords, and the area between a chord (e_u, e_v) and the surface is
that of a parabola's segment: 2/3 of the chord's length times d_m / |grad d|, where the distance in
the chord's middle is d_m = -(e_u^2 s_u + 2 e_u e_v s_uv + e_v^2 s_v) / 8 with s_uv = a - b + c - d.

Without the second differences the zeros of a curved surface are wrong by h^2 / 8 R, and open
fractions, differently from face to face, by h / 8 R.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device


@device
def zero_between(a, b, s):
    """Where a distance is 0 on an edge between corners of different signs, from 0 to 1."""
    middle = b - a - 0.5 * s
    root = math.sqrt(max(middle * middle - 2.0 * s * a, 0.0))
    divisor = -middle + (root if a > 0.0 else -root)
    return 2.0 * a / divisor if divisor != 0.0 else 0.0


@device
def open_part(a, b, c, d, s_u, s_v):
    """(area, middle along u, along v) of the part with a distance above 0, of a face that is cut.

    The middle is told from that of the face. Opposite corners of one sign are not for this.
    """
    value = (a, b, c, d)
    corner_u, corner_v = (-0.5, 0.5, 0.5, -0.5), (-0.5, -0.5, 0.5, 0.5)
    u, v = np.empty(6), np.empty(6)
    count, first, second = 0, 0, 0  # of the two zeros
    for n in range(4):
        m = (n + 1) % 4
        if value[n] > 0.0:
            u[count], v[count] = corner_u[n], corner_v[n]
            count += 1
        if (value[n] > 0.0) != (value[m] > 0.0):
            t = zero_between(value[n], value[m], s_u if n % 2 == 0 else s_v)
            u[count] = corner_u[n] + t * (corner_u[m] - corner_u[n])
            v[count] = corner_v[n] + t * (corner_v[m] - corner_v[n])
            first, second = second, count
            count += 1
    area, along_u, along_v = 0.0, 0.0, 0.0  # twice the area, six times the moments
    for n in range(count):
        m = (n + 1) % count
        cross = u[n] * v[m] - u[m] * v[n]
        area += cross
        along_u += cross * (u[n] + u[m])
        along_v += cross * (v[n] + v[m])
    if not area > 0.0:
        return 0.0, 0.0, 0.0
    e_u, e_v = u[second] - u[first], v[second] - v[first]
    bulge = -0.125 * (e_u * e_u * s_u + 2.0 * e_u * e_v * (a - b + c - d) + e_v * e_v * s_v)
    slope_u, slope_v = 0.5 * (b - a + c - d), 0.5 * (d - a + c - b)
    slope = max(math.sqrt(slope_u * slope_u + slope_v * slope_v), 1e-30)
    segment = 2.0 / 3.0 * math.sqrt(e_u * e_u + e_v * e_v) * bulge / slope
    whole = min(max(0.5 * area + segment, 0.0), 1.0)
    return whole, along_u / (3.0 * area), along_v / (3.0 * area)
