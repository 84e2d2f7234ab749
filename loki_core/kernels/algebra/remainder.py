"""Products with elements as they are: matrices [d, d] over unknowns of any bodies, no pattern.

Every unknown knows where it stands in elements, in their order: threads share out the unknowns, so
sums are the same for any number of them.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import kernel, parallel_kernel, prange


@kernel
def find_places(dofs, size, begins, places):
    """Find where each own unknown stands in elements, in their order.

    Args: dofs int32 [n, d], own unknowns and then ghosts, from size on; begins int64 [size + 1],
        filled; places int64 [n d], filled: n d + a of element n.
    """
    for i in range(size + 1):
        begins[i] = 0
    for n in range(dofs.shape[0]):
        for a in range(dofs.shape[1]):
            if dofs[n, a] < size:
                begins[dofs[n, a] + 1] += 1
    for i in range(size):
        begins[i + 1] += begins[i]
    for n in range(dofs.shape[0]):
        for a in range(dofs.shape[1]):
            i = dofs[n, a]
            if i < size:
                places[begins[i]] = n * dofs.shape[1] + a
                begins[i] += 1
    for i in range(size, 0, -1):
        begins[i] = begins[i - 1]
    begins[0] = 0


@parallel_kernel
def group_unknowns(dofs, size, first, groups):
    """Put unknowns of an element that lie in one another's envelopes into groups, int8 [n, d].

    Within a group all pairs do, so what the envelope gets of an element is block diagonal, and as
    definite as the element. Ghosts have a group for each, as has what fits nowhere.
    """
    for n in prange(dofs.shape[0]):
        count = 0
        for a in range(dofs.shape[1]):
            groups[n, a] = -1
            i = dofs[n, a]
            for g in range(count):
                fits = i < size
                for b in range(a):
                    j = dofs[n, b]
                    if groups[n, b] == g and (
                        j >= size or (j <= i and j < first[i]) or (j > i and i < first[j])
                    ):
                        fits = False
                if fits:
                    groups[n, a] = g
                    break
            if groups[n, a] < 0:
                groups[n, a] = count
                count += 1


@parallel_kernel
def add_forces_by_place(begins, places, forces, fixed, rhs):
    """Add element forces [n, d] to those of unknowns that are not prescribed."""
    flat = forces.reshape(-1)
    for i in prange(rhs.shape[0]):
        if fixed[i] == 0:
            total = 0.0
            for e in range(begins[i], begins[i + 1]):
                total += flat[places[e]]
            rhs[i] += total


@parallel_kernel
def keep_matrices(dofs, groups, matrices, fixed, size, data):
    """Add element matrices [n, d, d] to data [n, d, d], but for what envelopes take.

    Prescribed rows and columns get nothing.
    """
    for n in prange(dofs.shape[0]):
        for a in range(dofs.shape[1]):
            if fixed[dofs[n, a]] == 1:
                continue
            own, group = dofs[n, a] < size, groups[n, a]
            for b in range(dofs.shape[1]):
                inside = own and group == groups[n, b] and dofs[n, b] < size
                if fixed[dofs[n, b]] == 0 and not inside:
                    data[n, a, b] += matrices[n, a, b]


@parallel_kernel
def share_matrices(begins, places, dofs, groups, matrices, fixed, row, values):
    """Add what lies within groups to envelopes."""
    width = np.uint64(dofs.shape[1])
    for i in prange(begins.shape[0] - 1):
        if fixed[i] == 1:
            continue
        for e in range(begins[i], begins[i + 1]):
            n = np.uint64(places[e]) // width
            a = np.uint64(places[e]) - n * width
            group = groups[n, a]
            for b in range(width):
                j = dofs[n, b]
                if groups[n, b] == group and j <= i and fixed[j] == 0:
                    values[row[i] + j] += matrices[n, a, b]


@parallel_kernel
def add_elements(begins, places, dofs, data, x, out):
    """Add the product of element matrices [n, d, d] with x to out."""
    width = np.uint64(dofs.shape[1])
    for i in prange(out.shape[0]):
        total = 0.0
        for e in range(begins[i], begins[i + 1]):
            n = np.uint64(places[e]) // width
            a = np.uint64(places[e]) - n * width
            for b in range(width):
                total += data[n, a, b] * x[dofs[n, b]]
        out[i] += total
