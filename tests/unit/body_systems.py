"""Random bodies with skyline matrices, and couplings between them, for tests."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from loki_core.kernels.algebra.skyline import envelope_of
from loki_core.linear_solvers.body_system import BodySystem


def rod_first(vertices, closed=False):
    """First column of each row of a rod: 4 unknowns per vertex, bending reaches two back."""
    unknowns = np.arange(4 * vertices if closed else 4 * vertices - 1)
    vertex, part = unknowns // 4, unknowns % 4
    first = 4 * np.maximum(vertex - np.where(part < 3, 2, 1), 0)
    if closed:  # the last two vertices and the closing edge reach the first ones
        first[4 * (vertices - 2) :] = 0
    return first


def full_first(count):
    return np.zeros(count, dtype=np.int64)


def shape(firsts):
    """body_start, first and row of bodies given by their own first columns."""
    sizes = [len(first) for first in firsts]
    body_start = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    moved = [first + begin for first, begin in zip(firsts, body_start[:-1], strict=True)]
    first = np.concatenate([np.empty(0, np.int64), *moved]).astype(np.int64)
    row, count = envelope_of(body_start, first)
    return body_start, first, row, count


def random_values(body_start, first, row, count, seed):
    """Diagonally dominant entries, so positive definite whatever the envelope."""
    values = np.random.default_rng(seed).uniform(-1.0, 1.0, count)
    matrix = dense(body_start, first, row, values)
    diagonal = row + np.arange(len(row))
    values[diagonal] = np.abs(matrix).sum(axis=1) - np.abs(values[diagonal]) + 0.1
    return values


def dense(body_start, first, row, values):
    """The bodies' matrix, all of it."""
    size = int(body_start[-1])
    matrix = np.zeros((size, size))
    for i in range(size):
        entries = values[row[i] + first[i] : row[i] + i + 1]
        matrix[i, first[i] : i + 1] = entries
        matrix[first[i] : i + 1, i] = entries
    return matrix


def add_springs(parts, values, ends, normals, stiffness):
    """Join pairs of unknowns' triples by springs: the own part to the bodies, the rest to C."""
    size = int(parts[0][-1])
    row = parts[2]
    rows, columns, data = [], [], []
    for (a, b), normal in zip(ends, normals, strict=True):
        block = stiffness * np.outer(normal, normal)
        for i in range(3):
            for j in range(3):
                rows += [a + i, b + i]
                columns += [b + j, a + j]
                data += [-block[i, j], -block[i, j]]
                if j <= i:
                    values[row[a + i] + a + j] += block[i, j]
                    values[row[b + i] + b + j] += block[i, j]
    matrix = sp.coo_matrix((data, (rows, columns)), (size, size)).tocsr()
    matrix.sum_duplicates()
    return matrix


def rows_of(matrix):
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data


def random_springs(body_start, count, seed):
    """Pairs of first unknowns of vertices of different rods, and directions."""
    rng = np.random.default_rng(seed)
    bodies = len(body_start) - 1
    pairs = [rng.choice(bodies, 2, replace=False) for _ in range(count)]
    vertices = (np.diff(body_start) + 1) // 4
    ends = [[body_start[b] + 4 * rng.integers(vertices[b]) for b in pair] for pair in pairs]
    normals = rng.standard_normal((count, 3))
    return ends, normals / np.linalg.norm(normals, axis=1)[:, None]


def coupled_rods(bodies, vertices, springs, seed, stiffness=1.0):
    """Parts, values and couplings of rods joined by springs."""
    parts = shape([rod_first(vertices)] * bodies)
    values = stiffness * random_values(*parts, seed)
    ends, normals = random_springs(parts[0], springs, seed + 1)
    couplings = add_springs(parts, values, ends, normals, 1.0)
    return parts, values, couplings


def share(parts, values, couplings, comm, cuts):
    """This rank's bodies cuts[rank] to cuts[rank + 1] of a system that every rank knows."""
    body_start, first, row, _ = parts
    bodies = slice(cuts[comm.rank], cuts[comm.rank + 1])
    starts = body_start[bodies.start : bodies.stop + 1]
    begin, end = int(starts[0]), int(starts[-1])
    own_start, own_first = starts - begin, first[begin:end] - begin
    own_row, count = envelope_of(own_start, own_first)
    offset = int(row[begin] + first[begin]) if end > begin else 0
    mine = couplings[begin:end].tocsr()
    own = (mine.indices >= begin) & (mine.indices < end)
    ghosts = np.unique(mine.indices[~own]).astype(np.int64)
    columns = np.where(
        own, mine.indices - begin, end - begin + np.searchsorted(ghosts, mine.indices)
    )
    rows = mine.indptr.astype(np.int64), columns.astype(np.int32), mine.data
    system = BodySystem(
        own_start, own_first, own_row, values[offset : offset + count], rows,
        ghost_rows=ghosts, comm=comm,
    )  # fmt: skip
    return system, slice(begin, end)
