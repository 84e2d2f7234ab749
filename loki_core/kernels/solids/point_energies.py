"""From energies of places, or of deformation gradients, to forces and matrices of unknowns.

With the places x_k of an element's points and the gradients g_k of their shares at rest

    F = sum_k x_k g_k^T            dpsi/dx_k = (dpsi/dF) g_k
    d2psi/dx_ki dx_lj = sum_ab g_ka (d2psi / dF_ia dF_jb) g_lb

F has a column for each direction of the material: two in a sheet, three in a body.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange


@parallel_kernel
def gather_places(position, points, places):
    """Write the places of elements' points, [n, k, 3]."""
    for n in prange(points.shape[0]):
        for k in range(points.shape[1]):
            for i in range(3):
                places[n, k, i] = position[points[n, k], i]


@parallel_kernel
def deformation_gradients(position, points, gradients, deformation):
    """Write F [n, 3, c], with gradients of shares [n, k, c]."""
    for n in prange(points.shape[0]):
        for i in range(3):
            for a in range(gradients.shape[2]):
                total = 0.0
                for k in range(points.shape[1]):
                    total += position[points[n, k], i] * gradients[n, k, a]
                deformation[n, i, a] = total


@parallel_kernel
def chain_forces(gradients, size, stress, forces):
    """Write -size dpsi/dx [n, 3 k] from dpsi/dF [n, 3, c]."""
    for n in prange(gradients.shape[0]):
        for k in range(gradients.shape[1]):
            for i in range(3):
                total = 0.0
                for a in range(gradients.shape[2]):
                    total += stress[n, i, a] * gradients[n, k, a]
                forces[n, 3 * k + i] = -size[n] * total


@parallel_kernel
def chain_matrices(gradients, size, second, matrices):
    """Write size d2psi/dx2 [n, 3 k, 3 k] from d2psi/dF2 [n, 3 c, 3 c], F row by row."""
    columns = gradients.shape[2]
    for n in prange(gradients.shape[0]):
        half = np.empty((3 * columns, 3 * gradients.shape[1]))  # d2psi / dF dx
        for row in range(3 * columns):
            for k in range(gradients.shape[1]):
                for j in range(3):
                    total = 0.0
                    for b in range(columns):
                        total += second[n, row, columns * j + b] * gradients[n, k, b]
                    half[row, 3 * k + j] = size[n] * total
        for k in range(gradients.shape[1]):
            for i in range(3):
                for other in range(3 * gradients.shape[1]):
                    total = 0.0
                    for a in range(columns):
                        total += gradients[n, k, a] * half[columns * i + a, other]
                    matrices[n, 3 * k + i, other] = total


@device
def is_definite(matrix, work):
    """Whether all pivots of a symmetric matrix are positive; work is as large."""
    for j in range(matrix.shape[0]):
        for i in range(j, matrix.shape[0]):
            entry = matrix[i, j]
            for c in range(j):
                entry -= work[i, c] * work[j, c] * work[c, c]
            if i == j:
                if not entry > 0.0:
                    return False
                work[j, j] = entry
            else:
                work[i, j] = entry / work[j, j]
    return True


@parallel_kernel
def make_definite(matrices):
    """Replace symmetric matrices [n, q, q] by their semi-definite parts: no eigenvalue below 0."""
    for n in prange(matrices.shape[0]):
        matrix = matrices[n]
        if not is_definite(matrix, np.empty(matrix.shape)):
            values, vectors = np.linalg.eigh(matrix)
            for i in range(matrix.shape[0]):
                for j in range(matrix.shape[0]):
                    total = 0.0
                    for c in range(matrix.shape[0]):
                        total += max(values[c], 0.0) * vectors[i, c] * vectors[j, c]
                    matrix[i, j] = total
