"""Position-Based Fluids: the density constraint and the corrections that follow from it.

(Macklin & Mueller 2013; Alduan, Tena & Otaduy 2015, seed 002, section 3.) With V_j the volume of
particle j at rest and W the kernel of the mean support of two particles,

    C_i       = sum_j V_j W_ij + walls - 1
    lambda_i += -beta k C_i,      at most f(kappa)                             (3, 4)
    dx_i      = 1/rho_i sum_j V_j (rho_i lambda_i + rho_j lambda_j + s_ij) grad W_ij    (5)
    s_ij      = -g(kappa) (W_ij / W(dq))^4                                     (7)

Where kappa varies, f takes that of the particle and g the mean of the two: what one particle gains
by a pair the other loses.

rho_i is the density of i over that of the Object: with it the sum of m dx is zero to round-off for
particles of any mass, size and density. k belongs to a filled neighbourhood of the particle's own
size. It is the sum of the multipliers of all iterations that is limited, and that moves particles:
a Jacobi iteration on the linear complementarity problem. All arrays are by place
(`neighbour_lists`); multipliers are stored as rho lambda.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.basics.lanes import (
    LANES,
    at_least,
    lanes_at,
    lanes_of,
    same_lanes,
    square_root,
    store_lanes,
    store_lanes_of,
    vectors_of_cluster,
)
from loki_core.kernels.jit import device, parallel_kernel, prange

#: Part of k that one iteration applies where particles pull at each other.
PULL = 0.5


@parallel_kernel
def sum_density(clusters, first, last, entries, packed, support, uniform, norm, density):
    """Fill density over rest density, without walls, in the places of the clusters.

    Args: packed [4 places] flat; support [places] m; uniform, whether all are the same; norm N.
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        if uniform:
            h = np.float64(support[0])
            density_of_equals(
                i, first[c], last[c], entries, packed, 1.0 / h, norm / h**3, density
            )  # fmt: skip
        else:
            density_of_mixed(i, first[c], last[c], entries, packed, support, norm, density)


@device
def density_of_equals(i, begin, end, entries, packed, inverse, factor, density):
    four = np.uint64(4)
    x, y, z = vectors_of_cluster(packed, i)
    total = same_lanes(packed[0] - packed[0])
    for entry in range(begin, end):
        j = np.uint64(entries[entry]) * four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        q = square_root(dx * dx + dy * dy + dz * dz) * inverse
        left = at_least(1.0 - q, 0.0)
        left = left * left
        total = total + left * left * (q * 4.0 + 1.0) * packed[j + np.uint64(3)]
    store_lanes(density, i, total * factor)


@device
def density_of_mixed(i, begin, end, entries, packed, support, norm, density):
    four = np.uint64(4)
    x, y, z = vectors_of_cluster(packed, i)
    half = lanes_at(support, i) * 0.5
    total = same_lanes(packed[0] - packed[0])
    for entry in range(begin, end):
        j = np.uint64(entries[entry])
        inverse = 1.0 / (half + support[j] * 0.5)
        j *= four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        q = square_root(dx * dx + dy * dy + dz * dz) * inverse
        left = at_least(1.0 - q, 0.0)
        left = left * left
        share = inverse * inverse * inverse * packed[j + np.uint64(3)]
        total = total + left * left * (q * 4.0 + 1.0) * share
    store_lanes(density, i, total * norm)


@parallel_kernel
def find_multipliers(
    own, density, target, stiffness, strength, weight, most, attraction, part, momentum, applied,
    multiplier, wrong,
):  # fmt: skip
    """Find what is to be added to rho lambda, and what is wrong with densities.

    The sum of all multipliers is limited, not each part: what was too much is taken back. Wrong is
    a density above the target, and one below it while anything pushes (but for what that could
    make of it).

    Args: own places [m]; density over rest density, walls included; target [places] or [1];
    stiffness k [places] or [1] m^2; strength, the part of k that is applied; weight [places] or
    [1], density of a particle over the Object's; most, of compression that is answered at once;
    attraction, largest lambda over the root of k, zero for a constraint that only pushes; part of
    it that each has, [places] or [1] for all of it; momentum, part of what was added before that is
    added again; applied, the sum so far; multiplier, in: what
    was added before; wrong [m], or [0] where it is not asked for.
    """
    many = weight.shape[0] > 1
    differs = stiffness.shape[0] > 1
    aims = target.shape[0] > 1
    asked = wrong.shape[0] > 0
    varies = part.shape[0] > 1
    for m in prange(own.shape[0]):
        p = np.int64(own[m])
        k = stiffness[p] if differs else stiffness[0]
        error = min(density[p] - (target[p] if aims else target[0]), most)
        rho = weight[p] if many else weight[0]
        limit = rho * attraction * math.sqrt(k)
        if varies:
            limit *= part[p]
        if asked:
            wrong[m] = abs(applied[p] - min(applied[p] - rho * k * error, limit)) / (rho * k)
        wanted = applied[p] - rho * min(strength, PULL) * k * error
        if wanted < 0.0:  # what pulls gains energy by acceleration
            wanted = applied[p] + momentum * multiplier[p] - rho * strength * k * error
            wanted = min(0.0, wanted)
        multiplier[p] = min(wanted, limit) - applied[p]


@parallel_kernel
def correct_positions(
    clusters, first, last, entries, packed, support, uniform, norm, multiplier, tensile, part,
    reference, shift,
):  # fmt: skip
    """Fill shift [3, places]: the correction, without walls and without 1 / rho_i.

    Args: tensile, g(kappa) over h (0 for none); part of it that each has, [places], or [1] for all
    of it; reference, W(dq) h^3 / N.
    """
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        if uniform and tensile == 0.0:
            h = np.float64(support[0])
            correct_equals(
                i, first[c], last[c], entries, packed, 1.0 / h, -20.0 * norm / h**5, multiplier,
                shift,
            )  # fmt: skip
        else:
            correct_mixed(
                i, first[c], last[c], entries, packed, support, norm, multiplier, tensile, part,
                1.0 / reference, shift,
            )  # fmt: skip


@device
def correct_equals(i, begin, end, entries, packed, inverse, factor, multiplier, shift):
    four = np.uint64(4)
    x, y, z = vectors_of_cluster(packed, i)
    own = lanes_at(multiplier, i)
    sx = same_lanes(packed[0] - packed[0])
    sy = sx
    sz = sx
    for entry in range(begin, end):
        n = np.uint64(entries[entry])
        j = n * four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        left = at_least(1.0 - square_root(dx * dx + dy * dy + dz * dz) * inverse, 0.0)
        pull = left * left * left * (own + multiplier[n]) * packed[j + np.uint64(3)]
        sx = sx + pull * dx
        sy = sy + pull * dy
        sz = sz + pull * dz
    store_lanes(shift[0], i, sx * factor)
    store_lanes(shift[1], i, sy * factor)
    store_lanes(shift[2], i, sz * factor)


@device
def correct_mixed(
    i, begin, end, entries, packed, support, norm, multiplier, tensile, part, sharpness, shift
):  # fmt: skip
    four = np.uint64(4)
    varies = part.shape[0] > 1
    half_part = (lanes_at(part, i) if varies else same_lanes(part[0])) * 0.5
    x, y, z = vectors_of_cluster(packed, i)
    half = lanes_at(support, i) * 0.5
    own = lanes_at(multiplier, i)
    sx = same_lanes(packed[0] - packed[0])
    sy = sx
    sz = sx
    for entry in range(begin, end):
        n = np.uint64(entries[entry])
        h = half + support[n] * 0.5
        inverse = 1.0 / h
        j = n * four
        dx = x - packed[j]
        dy = y - packed[j + np.uint64(1)]
        dz = z - packed[j + np.uint64(2)]
        q = square_root(dx * dx + dy * dy + dz * dz) * inverse
        left = at_least(1.0 - q, 0.0)
        cube = left * left * left
        near = cube * left * (q * 4.0 + 1.0) * sharpness
        near = near * near
        lift = near * near * h * tensile
        if varies:
            lift = lift * (half_part + part[n] * 0.5)
        squared = inverse * inverse
        pull = cube * (own + multiplier[n] - lift) * (squared * squared * inverse)
        pull = pull * packed[j + np.uint64(3)]
        sx = sx + pull * dx
        sy = sy + pull * dy
        sz = sz + pull * dz
    factor = -20.0 * norm
    store_lanes(shift[0], i, sx * factor)
    store_lanes(shift[1], i, sy * factor)
    store_lanes(shift[2], i, sz * factor)


@parallel_kernel
def move_places(shift, weight, support, furthest, packed, total):
    """Move by the corrections, each at most `furthest` supports, and add them up.

    Args: shift [3, places] m, changed to what was done; weight [places] or [1]; packed
    [places, 4]; total [3, places] m.
    """
    many = weight.shape[0] > 1
    for p in prange(packed.shape[0]):
        light = 1.0 / (weight[p] if many else weight[0])
        dx, dy, dz = shift[0, p] * light, shift[1, p] * light, shift[2, p] * light
        length = math.sqrt(dx * dx + dy * dy + dz * dz)
        limit = furthest * support[p]
        if length > limit:
            fraction = limit / length
            dx *= fraction
            dy *= fraction
            dz *= fraction
        packed[p, 0] += dx
        packed[p, 1] += dy
        packed[p, 2] += dz
        total[0, p] += dx
        total[1, p] += dy
        total[2, p] += dz


@parallel_kernel
def sum_gradients(
    clusters, first, last, entries, packed, support, uniform, norm, gradient, squares
):  # fmt: skip
    """Fill gradient [4 places], sum_j V_j grad W_ij, and squares, sum_j V_i V_j |grad W_ij|^2."""
    for c in prange(clusters.shape[0]):
        i = np.int64(clusters[c]) * LANES
        gradients_of_cluster(
            i, first[c], last[c], entries, packed, support, -20.0 * norm, gradient, squares
        )


@device
def gradients_of_cluster(i, begin, end, entries, packed, support, factor, gradient, squares):
    four = np.uint64(4)
    x, y, z = vectors_of_cluster(packed, i)
    volume = lanes_of(packed, 4 * i + 3, 4)
    half = lanes_at(support, i) * 0.5
    sx = same_lanes(packed[0] - packed[0])
    sy = sx
    sz = sx
    total = sx
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
        slope = left * left * left * (squared * squared * inverse)
        share = slope * packed[j + np.uint64(3)]
        sx = sx + share * dx
        sy = sy + share * dy
        sz = sz + share * dz
        total = total + share * slope * square
    store_lanes_of(gradient, 4 * i, 4, sx * factor)
    store_lanes_of(gradient, 4 * i + 1, 4, sy * factor)
    store_lanes_of(gradient, 4 * i + 2, 4, sz * factor)
    store_lanes(squares, i, total * volume * (factor * factor))


@parallel_kernel
def invert_diagonal(gradient, wall, support, weight, floor, stiffness):
    """Turn squares into 1 / D, with D what lambda of a particle does to its own density.

    D = squares + (S + g) . (S + 2 g), S the sum of gradients and g that of the walls. Args:
    gradient [4 places]; wall [places, 3], gradient of the open part; floor, least D h^2; stiffness
    [places], in: squares, out: m^2.
    """
    many = weight.shape[0] > 1
    for p in prange(stiffness.shape[0]):
        total = 0.0
        for axis in range(3):
            s = gradient[4 * p + axis]
            g = -wall[p, axis] if wall.shape[0] > 1 else 0.0
            total += (s + g) * (s + 2.0 * g)
        rho = weight[p] if many else weight[0]
        least = floor / (support[p] * support[p])
        stiffness[p] = rho / max(stiffness[p] + total, least)
