"""The coarse part of a particle fluid's pressure: trilinear multipliers on a lattice of cells.

Multipliers lambda move particles and with them densities, d rho = A lambda (`density_constraint`).
With V the volume and w the density ratio of particles, A is symmetric in the sum over particles
with weights V, and its energy is that of the displacements:

    <lambda, A lambda> = sum_i V_i / w_i |y_i|^2,   y_i = sum_j V_j (lambda_i + lambda_j) grad W_ij

For a smooth field of multipliers on the particles that are under pressure (a_i = 1, else 0),

    y_i = lambda(x_i) u_i + a_i m grad lambda(x_i)

where u_i is what lambda = a gives, which is zero but at surfaces, and m the moment of the kernel. A
trilinear field on the corners c of cells so has the matrix of Galerkin's method

    A_cd = sum_i V_i / w_i (N_c u_i + a_i m grad N_c) . (N_d u_i + a_i m grad N_d)

the sum of one 8 x 8 matrix for each cell: that of a Laplacian, to which surfaces are a soft
boundary with lambda = 0, and walls a closed one. Where few particles under pressure are near each
other there is no such field; their own response, lambda_i^2 s_i, is added there.

Particles of a cell may lie on several ranks, and the system forgives no round-off: corners that
hardly any particle sees make it nearly singular. So sums over particles are in fixed point
(`accumulate`), which no partition changes.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.basics.accumulate import cut
from loki_core.kernels.jit import device, parallel_kernel, prange, strict_kernel

CORNERS = 8
ENTRIES = CORNERS * (CORNERS + 1) // 2  # of a symmetric matrix: row by row, up to the diagonal
#: Energy of a direction over that of its numbers alone, below which it has none.
FLAT = 1.0e-9
#: Entry on the diagonal over the largest, below which no particle sees a corner: it has no number.
SEEN = 1.0e-7


@parallel_kernel
def find_cells(own, packed, inverse, cells):
    """Fill cells [m, 3], the cell of each own place; inverse [3], of the size of cells [1/m]."""
    for n in prange(own.shape[0]):
        p = own[n]
        for axis in range(3):
            cells[n, axis] = np.int32(math.floor(packed[p, axis] * inverse[axis]))


@strict_kernel
def sort_by_cell(numbers, first, order):
    """Fill order [m] with 0..m-1 by ascending cell number; first [cells + 1] is filled too."""
    first[:] = 0
    for n in range(numbers.shape[0]):
        first[numbers[n] + 1] += 1
    for cell in range(first.shape[0] - 1):
        first[cell + 1] += first[cell]
    for n in range(numbers.shape[0]):
        cell = numbers[n]
        order[first[cell]] = n
        first[cell] += 1
    for cell in range(first.shape[0] - 1, 0, -1):
        first[cell] = first[cell - 1]
    first[0] = 0


@device
def share_of_corner(corner, x, y, z):
    """N_c at x, y, z in 0..1 of a cell."""
    return (
        (x if corner & 4 else 1.0 - x)
        * (y if corner & 2 else 1.0 - y)
        * (z if corner & 1 else 1.0 - z)
    )


@device
def slope_of_corner(corner, x, y, z):
    """Gradient of N_c there, in units of the cell."""
    sx, sy, sz = (
        (1.0 if corner & 4 else -1.0),
        (1.0 if corner & 2 else -1.0),
        (1.0 if corner & 1 else -1.0),
    )
    fx, fy, fz = (
        (x if corner & 4 else 1.0 - x),
        (y if corner & 2 else 1.0 - y),
        (z if corner & 1 else 1.0 - z),
    )
    return sx * fy * fz, fx * sy * fz, fx * fy * sz


@device
def place_in_cell(packed, p, inverse, cells, cell):
    """Where in its cell a place is, 0..1 along each axis, also when it has just left it."""
    return (
        min(max(packed[p, 0] * inverse[0] - cells[cell, 0], 0.0), 1.0),
        min(max(packed[p, 1] * inverse[1] - cells[cell, 1], 0.0), 1.0),
        min(max(packed[p, 2] * inverse[2] - cells[cell, 2], 0.0), 1.0),
    )


@parallel_kernel
def bound_entries(places, packed, weight, active, push, hold, moment, inverse, bounds):
    """Fill bounds [m]: no entry of the matrix gets more from a place; arguments as below."""
    many = weight.shape[0] > 1
    for n in prange(places.shape[0]):
        p = places[n]
        total = np.float64(hold[p])
        for axis in range(3):
            size = abs(push[axis, p]) + moment * active[p] * inverse[axis]
            total += size * size
        bounds[n] = total * packed[p, 3] / (weight[p] if many else weight[0])


@parallel_kernel
def assemble_cells(
    cells, first, places, packed, weight, active, push, hold, moment, inverse, scale, scratch, limbs
):  # fmt: skip
    """Fill limbs [cells, 36, 2] with the matrices of cells, times scale.

    Args: cells [cells, 3], their coordinates; places [first[-1]], by cell; weight [places] or [1];
    active [places], 0 or 1; push [3, places], u; hold [places], s [1/m^2]; inverse [3], of the size
    of cells; scratch [cells, 8, 3].
    """
    many = weight.shape[0] > 1
    for cell in prange(first.shape[0] - 1):
        for entry in range(ENTRIES):
            limbs[cell, entry, 0] = 0
            limbs[cell, entry, 1] = 0
        for n in range(first[cell], first[cell + 1]):
            p = places[n]
            x, y, z = place_in_cell(packed, p, inverse, cells, cell)
            factor = packed[p, 3] / (weight[p] if many else weight[0])
            m = moment * active[p]
            for c in range(CORNERS):
                share = share_of_corner(c, x, y, z)
                sx, sy, sz = slope_of_corner(c, x, y, z)
                scratch[cell, c, 0] = share * push[0, p] + m * inverse[0] * sx
                scratch[cell, c, 1] = share * push[1, p] + m * inverse[1] * sy
                scratch[cell, c, 2] = share * push[2, p] + m * inverse[2] * sz
            entry = 0
            for c in range(CORNERS):
                own = hold[p] * share_of_corner(c, x, y, z)
                for d in range(c + 1):
                    coarse, fine = cut(
                        scale
                        * factor
                        * (
                            scratch[cell, c, 0] * scratch[cell, d, 0]
                            + scratch[cell, c, 1] * scratch[cell, d, 1]
                            + scratch[cell, c, 2] * scratch[cell, d, 2]
                            + own * share_of_corner(d, x, y, z)
                        )
                    )
                    limbs[cell, entry, 0] += coarse
                    limbs[cell, entry, 1] += fine
                    entry += 1


@parallel_kernel
def unfold_matrices(entries, matrix):
    """Fill matrix [cells, 8, 8] with entries [cells, 36]."""
    for cell in prange(matrix.shape[0]):
        entry = 0
        for c in range(CORNERS):
            for d in range(c + 1):
                matrix[cell, c, d] = entries[cell, entry]
                matrix[cell, d, c] = entries[cell, entry]
                entry += 1


@parallel_kernel
def restrict_errors(
    cells, first, places, packed, inverse, active, density, target, most, scale, limbs
):  # fmt: skip
    """Fill limbs [cells, 8, 2] with -sum V N_c of what is wrong with densities, times scale."""
    aims = target.shape[0] > 1
    for cell in prange(first.shape[0] - 1):
        for c in range(CORNERS):
            limbs[cell, c, 0] = 0
            limbs[cell, c, 1] = 0
        for n in range(first[cell], first[cell + 1]):
            p = places[n]
            if active[p] == 0.0:
                continue
            error = density[p] - (target[p] if aims else target[0])
            part = -scale * packed[p, 3] * min(max(error, -most), most)
            x, y, z = place_in_cell(packed, p, inverse, cells, cell)
            for c in range(CORNERS):
                coarse, fine = cut(part * share_of_corner(c, x, y, z))
                limbs[cell, c, 0] += coarse
                limbs[cell, c, 1] += fine


@parallel_kernel
def interpolate_multipliers(
    cells, first, places, packed, inverse, active, corners, values, applied, multiplier
):  # fmt: skip
    """Fill multiplier with what is to be added to `applied`, which stays below zero."""
    for cell in prange(first.shape[0] - 1):
        for n in range(first[cell], first[cell + 1]):
            p = places[n]
            x, y, z = place_in_cell(packed, p, inverse, cells, cell)
            change = 0.0
            for c in range(CORNERS):
                change += values[corners[cell, c]] * share_of_corner(c, x, y, z)
            change *= active[p]
            multiplier[p] = min(applied[p] + change, 0.0) - applied[p]


@strict_kernel
def solve_cells(corners, matrix, right, iterations, stop, x, r, z, d, image, diagonal):
    """Solve for x [nodes] by conjugate gradients with the diagonal.

    Args: corners [cells, 8]; matrix [cells, 8, 8]; right [nodes]; iterations, most; stop, residual
    over that at first; r, z, d, image, diagonal [nodes], scratch.
    """
    nodes = x.shape[0]
    diagonal[:] = 0.0
    for cell in range(corners.shape[0]):
        for c in range(CORNERS):
            diagonal[corners[cell, c]] += matrix[cell, c, c]
    largest = 0.0
    for n in range(nodes):
        largest = max(largest, diagonal[n])
    for n in range(nodes):
        if not diagonal[n] > SEEN * largest:
            diagonal[n] = 0.0
    square = 0.0
    begin = 0.0
    for n in range(nodes):
        x[n] = 0.0
        r[n] = right[n] if diagonal[n] > 0.0 else 0.0
        z[n] = r[n] / diagonal[n] if diagonal[n] > 0.0 else 0.0
        d[n] = z[n]
        square += r[n] * z[n]
        begin += r[n] * r[n]
    left = begin
    for _ in range(iterations):
        if not left > stop * stop * begin:
            break
        image[:] = 0.0
        for cell in range(corners.shape[0]):
            for c in range(CORNERS):
                total = 0.0
                for e in range(CORNERS):
                    total += matrix[cell, c, e] * d[corners[cell, e]]
                image[corners[cell, c]] += total
        curve = 0.0
        scale = 0.0
        for n in range(nodes):
            curve += d[n] * image[n]
            scale += d[n] * d[n] * diagonal[n]
        if not curve > FLAT * scale:  # a liquid without a surface bears any pressure
            break
        step = square / curve
        former = square
        square = 0.0
        left = 0.0
        for n in range(nodes):
            x[n] += step * d[n]
            r[n] -= step * image[n] if diagonal[n] > 0.0 else 0.0
            z[n] = r[n] / diagonal[n] if diagonal[n] > 0.0 else 0.0
            square += r[n] * z[n]
            left += r[n] * r[n]
        for n in range(nodes):
            d[n] = z[n] + square / former * d[n]
