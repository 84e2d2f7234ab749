"""Sums of element forces and matrices at places that several elements share, in a fixed order.

Elements that join bodies cannot be added up body by body. Here every place of the result knows its
contributions, sorted (`objects/solids/couplings.py`): threads share out the places, so the sum is
the same for any number of them.
"""

from __future__ import annotations

from loki_core.kernels.jit import parallel_kernel, prange


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
