"""Formulas on one triangle: its closest point, and the solid angle under which it is seen.

Triangles are rows of corners [t, 9]: a, b, c. The closest point is a + v (b - a) + w (c - a), after
Ericson, "Real-Time Collision Detection" (2005), section 5.1.5; a triangle without area is the
nearest of its three edges. The solid angle is van Oosterom and Strackee's (1983).
"""

from __future__ import annotations

import math

from loki_core.kernels.jit import device


@device
def segment_place(px, py, pz, dx, dy, dz):
    """Part of the way 0..1 along d, from the origin, that lies nearest to p."""
    length2 = dx * dx + dy * dy + dz * dz
    if length2 <= 0.0:
        return 0.0
    return min(1.0, max(0.0, (px * dx + py * dy + pz * dz) / length2))


@device
def flat_closest(ax, ay, az, bx, by, bz, cx, cy, cz):
    """(v, w) nearest to the origin on the three edges; corners are relative to the point."""
    best = math.inf
    best_v = 0.0
    best_w = 0.0
    t = segment_place(-ax, -ay, -az, bx - ax, by - ay, bz - az)
    x, y, z = ax + t * (bx - ax), ay + t * (by - ay), az + t * (bz - az)
    if x * x + y * y + z * z < best:
        best = x * x + y * y + z * z
        best_v, best_w = t, 0.0
    t = segment_place(-ax, -ay, -az, cx - ax, cy - ay, cz - az)
    x, y, z = ax + t * (cx - ax), ay + t * (cy - ay), az + t * (cz - az)
    if x * x + y * y + z * z < best:
        best = x * x + y * y + z * z
        best_v, best_w = 0.0, t
    t = segment_place(-bx, -by, -bz, cx - bx, cy - by, cz - bz)
    x, y, z = bx + t * (cx - bx), by + t * (cy - by), bz + t * (cz - bz)
    if x * x + y * y + z * z < best:
        best_v, best_w = 1.0 - t, t
    return best_v, best_w


@device
def closest_on_triangle(corners, t, px, py, pz):
    """(squared distance, v, w) of the point of triangle t nearest to p."""
    ax, ay, az = corners[t, 0] - px, corners[t, 1] - py, corners[t, 2] - pz
    bx, by, bz = corners[t, 3] - px, corners[t, 4] - py, corners[t, 5] - pz
    cx, cy, cz = corners[t, 6] - px, corners[t, 7] - py, corners[t, 8] - pz
    abx, aby, abz = bx - ax, by - ay, bz - az
    acx, acy, acz = cx - ax, cy - ay, cz - az
    d00 = abx * abx + aby * aby + abz * abz
    d01 = abx * acx + aby * acy + abz * acz
    d11 = acx * acx + acy * acy + acz * acz
    if d00 * d11 - d01 * d01 <= 1e-14 * d00 * d11:
        v, w = flat_closest(ax, ay, az, bx, by, bz, cx, cy, cz)
    else:
        d1 = -(abx * ax + aby * ay + abz * az)
        d2 = -(acx * ax + acy * ay + acz * az)
        d3 = d1 - d00
        d4 = d2 - d01
        d5 = d1 - d01
        d6 = d2 - d11
        va = d3 * d6 - d5 * d4
        vb = d5 * d2 - d1 * d6
        vc = d1 * d4 - d3 * d2
        if d1 <= 0.0 and d2 <= 0.0:
            v, w = 0.0, 0.0
        elif d3 >= 0.0 and d4 <= d3:
            v, w = 1.0, 0.0
        elif d6 >= 0.0 and d5 <= d6:
            v, w = 0.0, 1.0
        elif vc <= 0.0 and d1 >= 0.0 and d3 <= 0.0:
            v, w = d1 / (d1 - d3), 0.0
        elif vb <= 0.0 and d2 >= 0.0 and d6 <= 0.0:
            v, w = 0.0, d2 / (d2 - d6)
        elif va <= 0.0 and d4 - d3 >= 0.0 and d5 - d6 >= 0.0:
            w = (d4 - d3) / ((d4 - d3) + (d5 - d6))
            v = 1.0 - w
        else:
            scale = 1.0 / (va + vb + vc)
            v, w = vb * scale, vc * scale
    x = ax + v * abx + w * acx
    y = ay + v * aby + w * acy
    z = az + v * abz + w * acz
    return x * x + y * y + z * z, v, w


@device
def solid_angle(corners, t, px, py, pz):
    """Part of the full sphere that triangle t covers as seen from p; above 0 from behind."""
    ax, ay, az = corners[t, 0] - px, corners[t, 1] - py, corners[t, 2] - pz
    bx, by, bz = corners[t, 3] - px, corners[t, 4] - py, corners[t, 5] - pz
    cx, cy, cz = corners[t, 6] - px, corners[t, 7] - py, corners[t, 8] - pz
    a = math.sqrt(ax * ax + ay * ay + az * az)
    b = math.sqrt(bx * bx + by * by + bz * bz)
    c = math.sqrt(cx * cx + cy * cy + cz * cz)
    determinant = ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx)
    below = (
        a * b * c
        + (ax * bx + ay * by + az * bz) * c
        + (bx * cx + by * cy + bz * cz) * a
        + (cx * ax + cy * ay + cz * az) * b
    )
    if determinant == 0.0:
        return 0.0  # seen edge-on, or without area
    return math.atan2(determinant, below) * (0.5 / math.pi)
