"""Forces between the particles of a fluid: viscous stress and surface tension.

Viscous stress in the form of Monaghan 2005, which acts along the line between two particles and so
conserves momentum and angular momentum; a drop that turns as a whole feels none of it. Where nu
varies, a pair has the harmonic mean 2 nu_i nu_j / (nu_i + nu_j), for which stress is the same on
both sides of a border (Cleary & Monaghan 1999):

    a_i = 10 nu sum_j V_j c_ij (v_ij . x_ij) / r^2 x_ij,     c_ij x_ij = grad W_ij

With supports of two spacings its sums are those of 0.75 to 0.9 nu in the disorder of a liquid, and
of 0.56 nu for shear along the axes of a lattice; with three spacings of 0.9 to 0.95 nu.

Surface tension is a force along the normal of the surface (continuum surface force, Brackbill et
al. 1992, Morris 2000): with n the gradient of the filled part of space and u its direction,

    rho a = 2 sigma A kappa s n,    n_i = sum_j V_j grad W_ij + walls,    s = n^4 / (n^4 + e^4)
    kappa_i = 2 sum_j w_j (u_j - u_i) . t / sum_j w_j t^2,      t = x_ij - (u_i . x_ij) u_i

w_j falls with the distance and where j is not at the surface; the curvature is exact on a sphere,
and is averaged once over the surface. Particles cover the inner half of the profile, hence the 2. A
makes the pull on a lattice's flat surface that of sigma, and corrects what pressure makes of it:
the outermost particles are pressed together until they are as dense as others (`tension_factor`).

A wall counts as filled, which makes a right angle between surface and wall; what an angle theta
differs from that is an attraction to the wall, of energy -sigma cos(theta) sum_i V_i 2 F(s_i), with
F its share per length (`smoothing`).
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
    store_lanes,
    store_lanes_of,
    vectors_of_cluster,
)
from loki_core.kernels.jit import device, parallel_kernel, prange

#: r^2 over h^2 below which the line between two particles has no direction.
CLOSE = 1.0e-6
#: Sum of two parts of the viscosity below which there is none.
SLIGHT = 1.0e-20
#: e h: what the gradient inside of a liquid may be, by disorder.
ROUGHNESS = 0.5
#: Pressure in drops of a radius of 6 to 12 spacings over 2 sigma / R, with the A of a lattice.
PRESSED = 0.62


def tension_factor(spacings: float, norm: float) -> float:
    """Return A for supports of so many spacings: one over the energy of a lattice's flat surface.

    The layers of the lattice are half a spacing below the surface, and whole ones more; a layer
    that is spread out evenly has the gradient F of a wall with no end.
    """
    energy, depth = 0.0, 0.5
    while depth < spacings:
        z, n = depth / spacings, 0.0
        while z < 1.0:  # the layers that are missing above
            n += 2.0 * math.pi * norm * z * (1.0 - z) ** 4 * (1.0 + 4.0 * z) / spacings
            z += 1.0 / spacings
        energy += n * n / math.hypot(n, ROUGHNESS)
        depth += 1.0
    return 0.5 * spacings / energy / PRESSED


@parallel_kernel
def apply_viscosity(
    clusters, first, last, entries, packed, support, uniform, norm, strength, part, weight,
    velocity, result,
):  # fmt: skip
    """Fill result [4 places] = rho_i v_i - dt rho_i a_i, for the implicit step.

    Args: strength, nu dt; part of it that each has, [places], or [1] for all of it; weight [places]
    or [1], density over the Object's; velocity [4 places].
    The density of a pair is the lesser of the two, so that light particles follow heavy ones.
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        viscosity_of_cluster(
            i, first[c], last[c], entries, packed, support, 200.0 * norm * strength, part, weight,
            velocity, result,
        )  # fmt: skip


@device
def viscosity_of_cluster(
    i, begin, end, entries, packed, support, factor, part, weight, velocity, result
):  # fmt: skip
    four = np.uint64(4)
    varies = part.shape[0] > 1
    own_part = lanes_at(part, i) if varies else same_lanes(part[0])
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
        if varies:
            both = at_least(own_part + part[n], SLIGHT)
            share = share * (own_part * (2.0 * part[n]) / both)
        su = su + share * dx
        sv = sv + share * dy
        sw = sw + share * dz
    store_lanes_of(result, 4 * i, 4, heavy * u + su * factor)
    store_lanes_of(result, 4 * i + 1, 4, heavy * v + sv * factor)
    store_lanes_of(result, 4 * i + 2, 4, heavy * w + sw * factor)


@parallel_kernel
def find_normals(gradient, support):
    """Turn gradients [4 places] of the filled part into unit normals; the fourth number is s."""
    for p in prange(support.shape[0]):
        x, y, z = gradient[4 * p], gradient[4 * p + 1], gradient[4 * p + 2]
        rough = ROUGHNESS / support[p]
        square = x * x + y * y + z * z
        inverse = 1.0 / math.sqrt(max(square, 1.0e-6 * rough * rough))
        gradient[4 * p] = x * inverse
        gradient[4 * p + 1] = y * inverse
        gradient[4 * p + 2] = z * inverse
        gradient[4 * p + 3] = square * square / (square * square + rough**4)


@parallel_kernel
def find_curvature(
    clusters, first, last, entries, packed, support, uniform, norm, normal, curvature
):  # fmt: skip
    """Fill curvature [places] 1/m: 2 sum_j w (u_j - u_i) . t / sum_j w t^2.

    t is the part of x_ij along the surface, and w a weight of places at the surface: exact on a
    sphere. Args: normal [4 places], as `find_normals` leaves them.
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        curvature_of_cluster(i, first[c], last[c], entries, packed, support, normal, curvature)


@device
def curvature_of_cluster(i, begin, end, entries, packed, support, normal, curvature):
    four = np.uint64(4)
    x, y, z = vectors_of_cluster(packed, i)
    u, v, w = vectors_of_cluster(normal, i)
    half = lanes_at(support, i) * 0.5
    turn = same_lanes(packed[0] - packed[0])
    total = turn
    for entry in range(begin, end):
        n = np.uint64(entries[entry])
        inverse = 1.0 / (half + support[n] * 0.5)
        j = n * four
        dx = (x - packed[j]) * inverse
        dy = (y - packed[j + np.uint64(1)]) * inverse
        dz = (z - packed[j + np.uint64(2)]) * inverse
        left = at_least(1.0 - square_root(dx * dx + dy * dy + dz * dz), 0.0)
        share = left * left * normal[j + np.uint64(3)]
        along = dx * u + dy * v + dz * w
        dx = dx - along * u
        dy = dy - along * v
        dz = dz - along * w
        bend = dx * (normal[j] - u) + dy * (normal[j + np.uint64(1)] - v)
        bend = bend + dz * (normal[j + np.uint64(2)] - w)
        turn = turn + share * bend * inverse
        total = total + share * (dx * dx + dy * dy + dz * dz)
    store_lanes(curvature, i, turn * 2.0 / at_least(total, 1.0e-4))


@parallel_kernel
def smooth_curvature(
    clusters, first, last, entries, packed, support, uniform, norm, normal, curvature, smoothed
):  # fmt: skip
    """Fill the mean of curvatures over the surface around each place."""
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        smooth_curvature_of_cluster(
            i, first[c], last[c], entries, packed, support, normal, curvature, smoothed
        )


@device
def smooth_curvature_of_cluster(
    i, begin, end, entries, packed, support, normal, curvature, smoothed
):  # fmt: skip
    four = np.uint64(4)
    x, y, z = vectors_of_cluster(packed, i)
    half = lanes_at(support, i) * 0.5
    mean = same_lanes(packed[0] - packed[0])
    total = mean
    for entry in range(begin, end):
        n = np.uint64(entries[entry])
        inverse = 1.0 / (half + support[n] * 0.5)
        j = n * four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        left = at_least(1.0 - square_root(dx * dx + dy * dy + dz * dz) * inverse, 0.0)
        share = left * left * normal[j + np.uint64(3)]
        mean = mean + share * curvature[n]
        total = total + share
    store_lanes(smoothed, i, mean / at_least(total, 1.0e-6))


@parallel_kernel
def add_tension(gradient, normal, curvature, strength, weight, change):
    """Add the accelerations of surface tension, times a factor, to change [4 places].

    Args: strength, 2 sigma A over the Object's density times the factor; gradient, normal
    [4 places]; weight [places] or [1].
    """
    many = weight.shape[0] > 1
    for p in prange(curvature.shape[0]):
        own = weight[p] if many else weight[0]
        gain = strength * curvature[p] * normal[4 * p + 3] / own
        for axis in range(3):
            change[4 * p + axis] += gain * gradient[4 * p + axis]


@parallel_kernel
def multiply_vectors(own, packed, one, two, products):
    """Fill products [own places] with V a . b, of vectors in the first three columns."""
    for m in prange(own.shape[0]):
        p = np.int64(own[m])
        product = np.float64(one[p, 0]) * two[p, 0] + np.float64(one[p, 1]) * two[p, 1]
        products[m] = packed[p, 3] * (product + np.float64(one[p, 2]) * two[p, 2])
