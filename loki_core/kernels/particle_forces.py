"""Forces between the particles of a fluid: viscous stress and cohesion.

Viscous stress in the form of Monaghan 2005, which acts along the line between two particles and so
conserves momentum and angular momentum; a drop that turns as a whole feels none of it:

    a_i = 10 nu sum_j V_j c_ij (v_ij . x_ij) / r^2 x_ij,     c_ij x_ij = grad W_ij

Cohesion is a force between pairs that pulls at some distance and pushes nearby,

    a_i = -K / rho sum_j V_j (1 - q)^3 (q - q0) x_ij,     q0 = 5/9

with q0 such that it adds no pressure where all around is filled (the integral of r^3 f is zero).
For a surface of even density, Kirkwood and Buff's formula gives its tension

    sigma = pi/8 integral of r^4 f(r) dr = pi/8 K h^6 (B(7,4) - q0 B(6,4))

A wall that is wetted pulls as so much liquid behind its surface would, in closed form for a plane.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.lanes import (
    LANES,
    at_least,
    at_most,
    lanes_at,
    same_lanes,
    square_root,
    store_lanes_of,
    vectors_of_cluster,
)

TURN = 5.0 / 9.0  # q0, where the force changes its sign
#: B(7, 4) - q0 B(6, 4)
MOMENT = 1.0 / 840.0 - TURN / 504.0
#: r^2 over h^2 below which the line between two particles has no direction.
CLOSE = 1.0e-6


def cohesion(surface_tension: float) -> float:
    """Return K h^6 for a tension [N/m] in the continuum."""
    return surface_tension * 8.0 / (math.pi * MOMENT)


@parallel_kernel
def apply_viscosity(
    clusters, first, last, entries, packed, support, uniform, norm, strength, weight, velocity,
    result,
):  # fmt: skip
    """Fill result [4 places] = rho_i v_i - dt rho_i a_i, for the implicit step.

    Args: strength, nu dt; weight [places] or [1], density over the Object's; velocity [4 places].
    The density of a pair is the lesser of the two, so that light particles follow heavy ones.
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        viscosity_of_cluster(
            i, first[c], last[c], entries, packed, support, 200.0 * norm * strength, weight,
            velocity, result,
        )  # fmt: skip


@device
def viscosity_of_cluster(
    i, begin, end, entries, packed, support, factor, weight, velocity, result
):  # fmt: skip
    four = np.uint64(4)
    many = weight.shape[0] > 1
    heavy = lanes_at(weight, i) if many else same_lanes(weight[0])
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
        square = dx * dx + dy * dy + dz * dz
        left = at_least(1.0 - square_root(square) * inverse, 0.0)
        squared = inverse * inverse
        along = (
            dx * (u - velocity[j])
            + dy * (v - velocity[j + np.uint64(1)])
            + dz * (w - velocity[j + np.uint64(2)])
        )
        share = left * left * left * (squared * squared * inverse) * packed[j + np.uint64(3)]
        share = share * along / at_least(square, CLOSE / squared)
        share = share * at_most(heavy, weight[n] if many else weight[0])
        su = su + share * dx
        sv = sv + share * dy
        sw = sw + share * dz
    store_lanes_of(result, 4 * i, 4, heavy * u + su * factor)
    store_lanes_of(result, 4 * i + 1, 4, heavy * v + sv * factor)
    store_lanes_of(result, 4 * i + 2, 4, heavy * w + sw * factor)


@parallel_kernel
def add_cohesion(
    clusters, first, last, entries, packed, support, uniform, norm, strength, weight, change
):  # fmt: skip
    """Add the accelerations of cohesion, times a factor, to change [4 places].

    Args: strength, -K h^6 / rho of the Object times the factor.
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        cohesion_of_cluster(
            i, first[c], last[c], entries, packed, support, strength, weight, change
        )


@device
def cohesion_of_cluster(i, begin, end, entries, packed, support, strength, weight, change):
    four = np.uint64(4)
    many = weight.shape[0] > 1
    x, y, z = vectors_of_cluster(packed, i)
    half = lanes_at(support, i) * 0.5
    sx = same_lanes(packed[0] - packed[0])
    sy = sx
    sz = sx
    for entry in range(begin, end):
        n = np.uint64(entries[entry])
        inverse = 1.0 / (half + support[n] * 0.5)
        j = n * four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        q = square_root(dx * dx + dy * dy + dz * dz) * inverse
        left = at_least(1.0 - q, 0.0)
        cube = inverse * inverse * inverse
        pull = left * left * left * (q - TURN) * (cube * cube) * packed[j + np.uint64(3)]
        sx = sx + pull * dx
        sy = sy + pull * dy
        sz = sz + pull * dz
    own = lanes_at(weight, i) if many else same_lanes(weight[0])
    factor = strength / own
    cx, cy, cz = vectors_of_cluster(change, i)
    store_lanes_of(change, 4 * i, 4, cx + sx * factor)
    store_lanes_of(change, 4 * i + 1, 4, cy + sy * factor)
    store_lanes_of(change, 4 * i + 2, 4, cz + sz * factor)


@device
def wall_pull(zeta):
    """Integral of (1 - q)^3 (q - q0) z over the half space behind a plane, over h^4."""
    z = min(max(zeta, 0.0), 1.0)
    z2 = z * z
    z4 = z2 * z2
    return 2.0 * math.pi * (
        -1.0 / 5040.0 + z2 / 180.0 - z4 * 5.0 / 72.0 + z4 * z * 8.0 / 45.0
        - z4 * z2 * 7.0 / 36.0 + z4 * z2 * z * 32.0 / 315.0 - z4 * z4 / 48.0
    )  # fmt: skip
