"""The smoothing kernel of particle fluids, and what walls add to its sums.

Wendland's C2 kernel in three dimensions, of support h, with q = r / h (Wendland 1995; particles do
not pair up under it, Dehnen & Aly 2012):

    W  = N / h^3 (1 - q)^4 (1 + 4 q)                 q < 1
    grad W = -20 N / h^5 (1 - q)^3 x

There is no division by r: coincident particles are harmless. On a cubic lattice of spacing d the
sum of d^3 W is a little above 1 where h is few spacings; N is such that it is 1 (`prototype`), so
that particles on a lattice are at rest density.

Behind a wall particles are missing. Its share of the sum at distance s, zeta = s / h, is that of
particles which would stand there, in planes of one spacing d the first of which is d / 2 behind the
surface; in the plane they are spread out evenly:

    gamma = d sum_k F(s + (k + 1/2) d),     F(z) = 2 pi integral of W r dr from |z| to h

    F h = 2 pi N (1/14 - z^2/2 + 5 z^4/2 - 4 z^5 + 5 z^6/2 - 4 z^7/7),   F' h^2 = -2 pi N z w(z)

with z in units of h and w = (1 - z)^4 (1 + 4 z). That is the density map of Koschier & Bender 2017
for a plane, in closed form, with the sum in place of the integral: a lattice that begins half a
spacing from a wall is at rest density there. Walls that meet leave the product of what each leaves.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import NamedTuple

from loki_core.kernels.jit import device


class Prototype(NamedTuple):
    """Sums over a filled cubic lattice of spacing 1 with supports of h spacings.

    Attributes:
        norm: N of the kernel.
        stiffness: 1 / sum |grad C|^2 of the density constraint (seed 002, equation 3), in units of
            the spacing squared.
        moment: What sums make of the gradient of a linear field: the true one times this.
    """

    norm: float
    stiffness: float
    moment: float


@cache
def prototype(spacings: float) -> Prototype:
    """Return the sums for a support of so many spacings."""
    reach = math.ceil(spacings)
    total = squares = moment = 0.0
    for offset in itertools.product(range(-reach, reach + 1), repeat=3):
        q = math.dist(offset, (0, 0, 0)) / spacings
        if q < 1.0:
            total += (1.0 - q) ** 4 * (1.0 + 4.0 * q) / spacings**3
            slope = 20.0 * (1.0 - q) ** 3 / spacings**5
            squares += (slope * q * spacings) ** 2
            moment += slope * offset[0] ** 2
    norm = 1.0 / total
    return Prototype(norm, 1.0 / (norm**2 * squares), norm * moment)


@device
def wall_share(zeta, step, norm):
    """Gamma at distance zeta h from a wall; step is the spacing over h."""
    total = 0.0
    z = zeta + 0.5 * step
    while z < 1.0:
        x = min(abs(z), 1.0)
        x2 = x * x
        x4 = x2 * x2
        total += (
            1.0 / 14.0 - 0.5 * x2 + 2.5 * x4 - 4.0 * x4 * x + 2.5 * x4 * x2
            - (4.0 / 7.0) * x4 * x2 * x
        )  # fmt: skip
        z += step
    return min(2.0 * math.pi * norm * step * total, 1.0)


@device
def wall_slope(zeta, step, norm):
    """-h d gamma / ds: what the share grows by as the wall comes nearer."""
    total = 0.0
    z = zeta + 0.5 * step
    while z < 1.0:
        x = max(z, 0.0)
        left = (1.0 - x) * (1.0 - x)
        total += x * left * left * (1.0 + 4.0 * x)
        z += step
    return 2.0 * math.pi * norm * step * total
