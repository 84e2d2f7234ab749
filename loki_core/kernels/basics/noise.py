"""Smooth 3D noise and its curl, from a hash of the integer lattice: no tables, no state.

Gradient noise after Perlin, "Improving Noise" (SIGGRAPH 2002), with the hash `pcg3d` of Jarzynski
and Olano, "Hash Functions for GPU Rendering" (JCGT 2020). With unit gradients g_c at the corners c
of the cell, d_c the offset from the corner and w_c the quintic trilinear weight,

    n(x) = 2 / sqrt(3) * sum_c w_c (g_c . d_c)

The weights sum to one and sum_c w_c |d_c|^2 <= 3/4, hence |n| <= 1 everywhere. Derivatives are
exact, so that the curl noise of Bridson, Hourihan and Nordenstam, "Curl-Noise for Procedural Fluid
Flow" (SIGGRAPH 2007), has no divergence beyond round-off. A cell of the lattice is one unit wide;
the noise repeats after 2**32 cells; a coordinate that is not finite gives NaN.

The formulas are compiled without fast-math: an element must not change by a bit when it moves from
the vectorised part of a loop to its remainder, as it does when ranks or emission shift the arrays.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, strict_kernel

# Words are kept below 2**32 inside 64 bits, so that no product or sum ever overflows.
WORD = np.uint64(0xFFFFFFFF)
THREE = np.uint64(3)
HALF_WORD = np.uint64(16)
WHOLE_WORD = np.uint64(32)
MULTIPLIER = np.uint64(1664525)
INCREMENT = np.uint64(1013904223)
PERIOD = 4294967296.0  # lattice cells after which the noise repeats

LAYER_STEP = np.uint64(0x9E3779B9)
LAYER_0, LAYER_1, LAYER_2, LAYER_3 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)

# Edge directions of a cube are sqrt(2) long: this makes unit vectors of them, times 2 / sqrt(3).
GRADIENT_SCALE = math.sqrt(2.0 / 3.0)


@strict_kernel
def lattice_word(cell):
    """A whole float64 of any size and sign as a lattice coordinate, modulo 2**32."""
    return np.uint64(cell - PERIOD * np.floor(cell / PERIOD))


@device
def lattice_hash(x, y, z, layer):
    """A random 32-bit word for each point (x, y, z) of the lattice and each layer."""
    x = (x * MULTIPLIER + INCREMENT) & WORD
    y = (y * MULTIPLIER + INCREMENT) & WORD
    z = (z * MULTIPLIER + INCREMENT + layer * LAYER_STEP) & WORD
    x = (x + y * z) & WORD
    y = (y + z * x) & WORD
    z = (z + x * y) & WORD
    y ^= y >> HALF_WORD
    z ^= z >> HALF_WORD
    return ((x ^ (x >> HALF_WORD)) + y * z) & WORD


@strict_kernel
def lattice_gradient(word):
    """One of the 12 edge directions of a cube, chosen by a random word without a branch."""
    flat = np.int64((word * THREE) >> WHOLE_WORD)  # the axis across the edge: 0, 1 or 2
    bits = np.int64(word)
    gx = (1.0 - ((bits >> 8) & 2)) * (flat != 0)
    gy = (1.0 - ((bits >> 9) & 2)) * (flat != 1)
    gz = (1.0 - ((bits >> 10) & 2)) * (flat != 2)
    return gx, gy, gz


@strict_kernel
def noise_with_gradient(x, y, z, layer):
    """Noise and its three derivatives at a point: (n, dn/dx, dn/dy, dn/dz)."""
    if not (abs(x) < math.inf and abs(y) < math.inf and abs(z) < math.inf):
        return math.nan, math.nan, math.nan, math.nan
    i, j, k = np.floor(x), np.floor(y), np.floor(z)
    fx, fy, fz = x - i, y - j, z - k
    sx = fx * fx * fx * (fx * (fx * 6.0 - 15.0) + 10.0)
    sy = fy * fy * fy * (fy * (fy * 6.0 - 15.0) + 10.0)
    sz = fz * fz * fz * (fz * (fz * 6.0 - 15.0) + 10.0)
    tx = 30.0 * fx * fx * (fx * (fx - 2.0) + 1.0)
    ty = 30.0 * fy * fy * (fy * (fy - 2.0) + 1.0)
    tz = 30.0 * fz * fz * (fz * (fz - 2.0) + 1.0)
    word_x, word_y, word_z = lattice_word(i), lattice_word(j), lattice_word(k)
    value, dx, dy, dz = 0.0, 0.0, 0.0, 0.0
    for corner in range(8):
        a, b, c = corner & 1, (corner >> 1) & 1, corner >> 2
        corner_x = (word_x + np.uint64(a)) & WORD
        corner_y = (word_y + np.uint64(b)) & WORD
        corner_z = (word_z + np.uint64(c)) & WORD
        gx, gy, gz = lattice_gradient(lattice_hash(corner_x, corner_y, corner_z, layer))
        along = gx * (fx - a) + gy * (fy - b) + gz * (fz - c)
        wx = sx if a else 1.0 - sx
        wy = sy if b else 1.0 - sy
        wz = sz if c else 1.0 - sz
        weight = wx * wy * wz
        value += weight * along
        dx += weight * gx + (2.0 * a - 1.0) * tx * wy * wz * along
        dy += weight * gy + (2.0 * b - 1.0) * ty * wx * wz * along
        dz += weight * gz + (2.0 * c - 1.0) * tz * wx * wy * along
    return GRADIENT_SCALE * value, GRADIENT_SCALE * dx, GRADIENT_SCALE * dy, GRADIENT_SCALE * dz


@strict_kernel
def noise3(x, y, z):
    """Smooth noise in [-1, 1], zero at whole coordinates."""
    value, _, _, _ = noise_with_gradient(x, y, z, LAYER_0)
    return value


@strict_kernel
def curl_noise3(x, y, z):
    """Smooth vector field without divergence: the curl of three layers of noise."""
    _, _, py, pz = noise_with_gradient(x, y, z, LAYER_1)  # p, q, r: the vector potential
    _, qx, _, qz = noise_with_gradient(x, y, z, LAYER_2)
    _, rx, ry, _ = noise_with_gradient(x, y, z, LAYER_3)
    return ry - qz, pz - rx, qx - py
