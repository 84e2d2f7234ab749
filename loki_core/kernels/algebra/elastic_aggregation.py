"""Aggregates of vertices, and what the near null space is on them.

Vertices i and j are strongly connected where their scaled block (`block_scaling.py`) is large
beside the largest one of either (Frobenius norms):

    |S_ij| > theta min(max_k |S_ik|, max_k |S_jk|)

Vanek, Mandel and Brezina (1996) compare with the diagonal, |A_ij| > theta (|A_ii| |A_jj|)^(1/2),
which is |S_ij| > theta. On coarse levels that leaves vertices out, and the cycle fails for what
they have in common; beside the largest, every vertex that is coupled has a strong neighbour.

An aggregate is a vertex with all its strong neighbours, if none of them has one yet; the vertices
between aggregates join that of their strongest neighbour. On an aggregate the modes B, rigid
motions for instance, become orthonormal columns T and the same modes B' of the coarse vertex:

    B = T B',    T^T T = 1
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, kernel, parallel_kernel, prange

#: Of a mode's norm on an aggregate, what is left of it when it depends on the modes before it.
DEPENDENT = 1e-9


@parallel_kernel
def find_limits(starts, strengths, part, least, limits):
    """Write what |S_ij|^2 has to be above to be strong for each vertex.

    Args:
        strengths: |S_ij|^2 of each block, zero on the diagonal.
        part: theta^2.
        least: Limit of vertices that hardly are coupled.
    """
    for i in prange(limits.shape[0]):
        largest = np.float32(0.0)
        for e in range(starts[i], starts[i + 1]):
            largest = max(largest, strengths[e])
        limits[i] = max(np.float32(part) * largest, np.float32(least))


@device
def is_strong(neighbours, strengths, limits, i, e):
    """Whether entry e of row i is strong."""
    return strengths[e] > min(limits[i], limits[neighbours[e]])


@kernel
def join_neighbours(starts, neighbours, strengths, limits, aggregate):
    """Make aggregates of whole neighbourhoods, in the order of vertices; return their number.

    Args:
        aggregate: Filled: that of each vertex, or -1; int32.
    """
    count = 0
    aggregate[:] = -1
    for i in range(aggregate.shape[0]):
        is_free, is_coupled = aggregate[i] < 0, False
        for e in range(starts[i], starts[i + 1]):
            if is_strong(neighbours, strengths, limits, i, e):
                is_coupled = True
                is_free &= aggregate[neighbours[e]] < 0
        if is_free and is_coupled:
            aggregate[i] = count
            for e in range(starts[i], starts[i + 1]):
                if is_strong(neighbours, strengths, limits, i, e):
                    aggregate[neighbours[e]] = count
            count += 1
    return count


@parallel_kernel
def join_leftovers(starts, neighbours, strengths, limits, aggregate, joined):
    """Let vertices without an aggregate join that of their strongest neighbour.

    Args:
        aggregate: From `join_neighbours`.
        joined: Filled: the aggregate of each vertex; -1 for those that nothing couples.
    """
    for i in prange(aggregate.shape[0]):
        joined[i] = aggregate[i]
        strongest = np.float32(0.0)
        if aggregate[i] < 0:
            for e in range(starts[i], starts[i + 1]):
                owner = aggregate[neighbours[e]]
                if (
                    owner >= 0
                    and strengths[e] > strongest
                    and is_strong(neighbours, strengths, limits, i, e)
                ):
                    strongest, joined[i] = strengths[e], owner


@device
def dot_modes(modes, members, first, last, width, k, m):
    """Inner product of two modes on an aggregate."""
    total = 0.0
    for t in range(first, last):
        at = 6 * width * np.int64(members[t])
        for a in range(width):
            total += modes[at + 6 * a + k] * modes[at + 6 * a + m]
    return total


@device
def subtract_mode(modes, members, first, last, width, k, m, factor):
    """Subtract `factor` times mode m from mode k on an aggregate."""
    for t in range(first, last):
        at = 6 * width * np.int64(members[t])
        for a in range(width):
            modes[at + 6 * a + k] -= factor * modes[at + 6 * a + m]


@device
def scale_mode(modes, members, first, last, width, k, factor):
    """Multiply a mode on an aggregate."""
    for t in range(first, last):
        at = 6 * width * np.int64(members[t])
        for a in range(width):
            modes[at + 6 * a + k] *= factor


@parallel_kernel
def orthonormalise(starts, members, width, modes, coarse_modes):
    """Make the modes on each aggregate orthonormal, by Gram and Schmidt with a second pass.

    A mode that depends on those before it, as the turn about the line of a straight aggregate, has
    a column of zeros: the coarse unknown takes part in nothing.

    Args:
        starts, members: Vertices of each aggregate.
        modes: Of the vertices on entry, [vertices width 6]; T on return.
        coarse_modes: Filled with B', [aggregates 6 6].
    """
    for c in prange(starts.shape[0] - 1):
        first, last = starts[c], starts[c + 1]
        for k in range(6):
            whole = math.sqrt(dot_modes(modes, members, first, last, width, k, k))
            for m in range(6):
                coarse_modes[(6 * c + m) * 6 + k] = 0.0
            for _ in range(2):
                for m in range(k):
                    part = dot_modes(modes, members, first, last, width, k, m)
                    subtract_mode(modes, members, first, last, width, k, m, part)
                    coarse_modes[(6 * c + m) * 6 + k] += part
            rest = math.sqrt(dot_modes(modes, members, first, last, width, k, k))
            if rest > DEPENDENT * whole:
                coarse_modes[(6 * c + k) * 6 + k] = rest
                scale_mode(modes, members, first, last, width, k, 1.0 / rest)
            else:
                scale_mode(modes, members, first, last, width, k, 0.0)
