"""Velocities of particle fluids: XSPH smoothing and vorticity confinement.

Velocities are by place (`neighbour_lists`), with four numbers a place of which the last is unused.
Smoothing conserves momentum: what a particle gains by a pair the other one loses; where the
strength varies, a pair has the mean of the two.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.basics.lanes import (
    LANES,
    at_least,
    at_most,
    lanes_at,
    same_lanes,
    square_root,
    store_lanes_of,
    vectors_of_cluster,
)
from loki_core.kernels.jit import device, parallel_kernel, prange

#: Relative change of |omega| within a support below which it counts as even.
EVEN = 0.01


@parallel_kernel
def smooth_velocities(
    clusters, first, last, entries, packed, support, uniform, norm, density, strength, part, weight,
    velocity, smoothed,
):  # fmt: skip
    """One XSPH iteration: v_i += strength sum_j V_j / c_j (v_j - v_i) W_ij (equation 6).

    The compression c_j is taken as the mean of both sides, and of particles of different density
    the heavier one follows less, so that a pair gains no momentum. Args: density over rest density
    [places]; part of the strength that each has, [places], or [1] for all of it; weight [places] or
    [1]; velocity, smoothed [4 places].
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        smooth_cluster(
            i, first[c], last[c], entries, packed, support, norm * strength, density, part, weight,
            velocity, smoothed,
        )  # fmt: skip


@device
def smooth_cluster(
    i, begin, end, entries, packed, support, factor, density, part, weight, velocity, smoothed
):  # fmt: skip
    four = np.uint64(4)
    varies = part.shape[0] > 1
    half_part = (lanes_at(part, i) if varies else same_lanes(part[0])) * 0.5
    many = weight.shape[0] > 1
    heavy = lanes_at(weight, i) if many else same_lanes(weight[0])
    x, y, z = vectors_of_cluster(packed, i)
    u, v, w = vectors_of_cluster(velocity, i)
    half = lanes_at(support, i) * 0.5
    own = lanes_at(density, i) * 0.5
    su = same_lanes(packed[0] - packed[0])
    sv = su
    sw = su
    for entry in range(begin, end):
        n = np.uint64(entries[entry])
        inverse = 1.0 / (half + support[n] * 0.5)
        j = n * four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        q = square_root(dx * dx + dy * dy + dz * dz) * inverse
        left = at_least(1.0 - q, 0.0)
        left = left * left
        share = left * left * (q * 4.0 + 1.0) * (inverse * inverse * inverse)
        share = share * packed[j + np.uint64(3)] / at_least(own + density[n] * 0.5, 1.0)
        share = share * at_most(heavy, weight[n] if many else weight[0])
        if varies:
            share = share * (half_part + part[n] * 0.5)
        su = su + share * (velocity[j] - u)
        sv = sv + share * (velocity[j + np.uint64(1)] - v)
        sw = sw + share * (velocity[j + np.uint64(2)] - w)
    gain = factor / heavy
    store_lanes_of(smoothed, 4 * i, 4, u + su * gain)
    store_lanes_of(smoothed, 4 * i + 1, 4, v + sv * gain)
    store_lanes_of(smoothed, 4 * i + 2, 4, w + sw * gain)


@parallel_kernel
def find_vorticity(
    clusters, first, last, entries, packed, support, uniform, norm, velocity, vortex
):  # fmt: skip
    """Fill vortex [4 places]: omega_i = sum_j V_j (v_i - v_j) x grad W_ij."""
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        vorticity_of_cluster(
            i, first[c], last[c], entries, packed, support, norm, velocity, vortex
        )  # fmt: skip


@device
def vorticity_of_cluster(i, begin, end, entries, packed, support, norm, velocity, vortex):
    four = np.uint64(4)
    x, y, z = vectors_of_cluster(packed, i)
    u, v, w = vectors_of_cluster(velocity, i)
    half = lanes_at(support, i) * 0.5
    su = same_lanes(packed[0] - packed[0])
    sv = su
    sw = su
    for entry in range(begin, end):
        n = np.uint64(entries[entry])
        inverse = 1.0 / (half + support[n] * 0.5)
        j = n * four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        left = at_least(1.0 - square_root(dx * dx + dy * dy + dz * dz) * inverse, 0.0)
        squared = inverse * inverse
        slope = left * left * left * (squared * squared * inverse) * packed[j + np.uint64(3)]
        du = u - velocity[j]
        dv = v - velocity[j + np.uint64(1)]
        dw = w - velocity[j + np.uint64(2)]
        su = su + slope * (dv * dz - dw * dy)
        sv = sv + slope * (dw * dx - du * dz)
        sw = sw + slope * (du * dy - dv * dx)
    factor = -20.0 * norm
    store_lanes_of(vortex, 4 * i, 4, su * factor)
    store_lanes_of(vortex, 4 * i + 1, 4, sv * factor)
    store_lanes_of(vortex, 4 * i + 2, 4, sw * factor)


@parallel_kernel
def confine_vortices(
    clusters, first, last, entries, packed, support, uniform, norm, vortex, size, strength,
    velocity,
):  # fmt: skip
    """Add strength h (N x omega) to velocities, N = grad |omega| / |grad |omega||.

    Args: size [places], |omega| [1/s]; strength [places] or [1], with the length of the step [s].
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        for p in range(i, i + LANES):
            confine_one(
                p, first[c], last[c], entries, packed, support, norm, vortex, size, strength,
                velocity,
            )  # fmt: skip


@device
def confine_one(
    p, begin, end, entries, packed, support, norm, vortex, size, strength, velocity
):  # fmt: skip
    gx = 0.0
    gy = 0.0
    gz = 0.0
    for entry in range(begin, end):
        n = np.int64(entries[entry])
        h = 0.5 * (support[p] + support[n])
        dx = packed[4 * p] - packed[4 * n]
        dy = packed[4 * p + 1] - packed[4 * n + 1]
        dz = packed[4 * p + 2] - packed[4 * n + 2]
        left = 1.0 - math.sqrt(dx * dx + dy * dy + dz * dz) / h
        if left > 0.0:
            # grad f = sum V_j (f_j - f_i) grad W_ij, and grad W points from i to j
            slope = left * left * left * packed[4 * n + 3] / h**5 * (size[p] - size[n])
            gx += slope * dx
            gy += slope * dy
            gz += slope * dz
    factor = 20.0 * norm
    length = math.sqrt(gx * gx + gy * gy + gz * gz) * factor
    if length * support[p] > EVEN * size[p]:
        own = strength[p] if strength.shape[0] > 1 else strength[0]
        gain = own * support[p] * factor / length
        ox, oy, oz = vortex[4 * p], vortex[4 * p + 1], vortex[4 * p + 2]
        velocity[4 * p] += gain * (gy * oz - gz * oy)
        velocity[4 * p + 1] += gain * (gz * ox - gx * oz)
        velocity[4 * p + 2] += gain * (gx * oy - gy * ox)


@parallel_kernel
def farthest_apart(own, first, second):
    """Largest distance between places [3, n] of two lists, of own ones [m]; [3, 0] is zeros."""
    largest = 0.0
    away = second.shape[1] > 0
    for m in prange(own.shape[0]):
        p = np.int64(own[m])
        dx = first[0, p] - (second[0, p] if away else 0.0)
        dy = first[1, p] - (second[1, p] if away else 0.0)
        dz = first[2, p] - (second[2, p] if away else 0.0)
        largest = max(largest, dx * dx + dy * dy + dz * dz)
    return math.sqrt(largest)
