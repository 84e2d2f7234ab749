"""Sums of element forces and matrices at places that several elements share, in a fixed order.

Elements that join bodies cannot be added up body by body. Here every place of the result knows its
contributions, sorted (`objects/solids/couplings.py`): threads share out the places, so the sum is
the same for any number of them.
"""

from __future__ import annotations

from loki_core.kernels.jit import kernel, parallel_kernel, prange


@parallel_kernel
def element_forces(gradient, tension, forces):
    """Write f = -G^T T of each element, [n, d]."""
    for n in prange(forces.shape[0]):
        for a in range(forces.shape[1]):
            force = 0.0
            for m in range(tension.shape[1]):
                force -= gradient[n, m, a] * tension[n, m]
            forces[n, a] = force


@parallel_kernel
def add_element_stiffness(gradient, slope, matrices):
    """Add K = G^T s G of each element to matrices [n, d, d], both triangles."""
    for n in prange(matrices.shape[0]):
        for a in range(matrices.shape[1]):
            for b in range(a + 1):
                entry = 0.0
                for m in range(slope.shape[1]):
                    entry += slope[n, m] * gradient[n, m, a] * gradient[n, m, b]
                matrices[n, a, b] += entry
                if b < a:
                    matrices[n, b, a] += entry


@parallel_kernel
def add_sums(starts, parts, contributions, row, column, fixed, places, target):
    """Add sums of contributions [flat] to target[places]; prescribed rows and columns get nothing.

    Args: starts int64 [sums + 1] into parts; parts int64, which contributions; row, column int32
        [sums]: unknowns that a sum belongs to, own ones and then ghosts; fixed uint8 of those;
        places int64 [sums].
    """
    for k in prange(places.shape[0]):
        if fixed[row[k]] == 0 and fixed[column[k]] == 0:
            total = 0.0
            for c in range(starts[k], starts[k + 1]):
                total += contributions[parts[c]]
            target[places[k]] += total


@kernel
def add_to_rows(dofs, gradient, tension, slope, fixed, indptr, indices, rhs, data):
    """Add elements that change in every step, one after the other, to compressed rows.

    Args: dofs int32 [n, d]; gradient [n, m, d]; tension, slope [n, m]; fixed uint8 [size]; indptr
        int64, indices int32: rows with ascending columns, all that elements couple among them.
    """
    for n in range(dofs.shape[0]):
        for a in range(dofs.shape[1]):
            i = dofs[n, a]
            if fixed[i] == 1:
                continue
            for m in range(tension.shape[1]):
                rhs[i] -= gradient[n, m, a] * tension[n, m]
            for b in range(dofs.shape[1]):
                j = dofs[n, b]
                entry = 0.0
                for m in range(slope.shape[1]):
                    entry += slope[n, m] * gradient[n, m, a] * gradient[n, m, b]
                if entry == 0.0 or fixed[j] == 1:
                    continue
                low, high = indptr[i], indptr[i + 1] - 1
                while low < high:
                    middle = (low + high) // 2
                    if indices[middle] < j:
                        low = middle + 1
                    else:
                        high = middle
                data[low] += entry
