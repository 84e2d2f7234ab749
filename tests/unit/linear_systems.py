"""Sparse test matrices: Poisson on boxes with holes, random spd, a dam-break pressure LCP."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from loki_core.linear_solvers.sparse_system import SparseSystem


def poisson(fluid, *, dirichlet_top=True, weights=None):
    """7-point Laplacian of the cells where `fluid`, others zero rows; p = 0 above the last z.

    `weights` scales each cell's face towards higher indices, shape [3, *fluid.shape].
    """
    shape, count = fluid.shape, fluid.size
    number = np.arange(count).reshape(shape)
    rows, columns, values = [], [], []
    for axis in range(3):
        low = [slice(None)] * 3
        high = [slice(None)] * 3
        low[axis], high[axis] = slice(0, -1), slice(1, None)
        low, high = tuple(low), tuple(high)
        both = fluid[low] & fluid[high]
        a, b = number[low][both], number[high][both]
        w = np.ones(len(a)) if weights is None else weights[axis][low][both]
        rows += [a, b, a, b]
        columns += [b, a, a, b]
        values += [-w, -w, w, w]
    if dirichlet_top:
        top = number[:, :, -1][fluid[:, :, -1]]
        rows.append(top)
        columns.append(top)
        values.append(np.full(len(top), 2.0))
    matrix = sp.coo_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), (count, count)
    ).tocsr()
    matrix.sort_indices()
    return matrix


def box(n):
    return np.ones((n, n, n), dtype=bool)


def box_with_holes(n, seed=1):
    """A box with a solid ball and scattered solid cells; the fluid is one or more pieces."""
    centre = np.stack(np.meshgrid(*[np.arange(n) + 0.5] * 3, indexing="ij"), axis=-1)
    ball = np.linalg.norm(centre - 0.45 * n, axis=-1) < 0.25 * n
    return ~ball & (np.random.default_rng(seed).random((n, n, n)) > 0.1)


def random_spd(count, seed):
    rng = np.random.default_rng(seed)
    matrix = sp.random(count, count, density=6.0 / count, random_state=rng, format="csr")
    matrix = matrix + matrix.T
    margin = np.asarray(abs(matrix).sum(axis=1)).ravel()
    return (matrix + sp.diags(0.05 + margin * rng.uniform(1.0, 1.5, count))).tocsr()


def system(matrix, dtype=np.float64, **options):
    matrix = matrix.tocsr()
    return SparseSystem(
        matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32),
        matrix.data.astype(dtype), **options,
    )  # fmt: skip


def share(matrix, comm, cuts, **options):
    """This rank's rows [cuts[rank], cuts[rank + 1]) of a matrix that every rank knows."""
    first, last = cuts[comm.rank], cuts[comm.rank + 1]
    mine = matrix[first:last].tocsr()
    own = (mine.indices >= first) & (mine.indices < last)
    ghosts = np.unique(mine.indices[~own]).astype(np.int64)
    columns = np.where(
        own, mine.indices - first, last - first + np.searchsorted(ghosts, mine.indices)
    )
    return SparseSystem(
        mine.indptr.astype(np.int32), columns.astype(np.int32), mine.data, comm=comm,
        ghost_rows=ghosts, **options,
    )  # fmt: skip


def dam_break(n):
    """Pressure LCP of a column of liquid in a box: matrix, b, with x >= 0.

    Ghost-fluid free surface (p = 0 on the level set), walls that the liquid may leave. It falls on
    the floor and is torn from the wall x = 0 in stripes, where the pressure without bounds is
    negative.
    """
    h = 1.0 / n
    centre = (np.arange(n) + 0.5) * h
    x, y, z = np.meshgrid(centre, centre, centre, indexing="ij")
    phi = np.maximum(x - 0.5 - 0.05 * np.sin(9.0 * y), y - 0.8 - 0.05 * np.cos(7.0 * z))
    liquid = phi < 0.0
    number = np.full(liquid.shape, -1)
    number[liquid] = np.arange(liquid.sum())
    count = int(liquid.sum())
    diagonal, rows, columns = np.zeros(count), [], []
    for axis in range(3):
        for step in (-1, 1):
            here, there = [slice(None)] * 3, [slice(None)] * 3
            here[axis] = slice(0, n - 1) if step == 1 else slice(1, n)
            there[axis] = slice(1, n) if step == 1 else slice(0, n - 1)
            a, b = number[tuple(here)], number[tuple(there)]
            inside = (a >= 0) & (b >= 0)
            rows.append(a[inside])
            columns.append(b[inside])
            np.add.at(diagonal, a[inside], 1.0)
            surface = (a >= 0) & (b < 0)
            p, q = phi[tuple(here)][surface], phi[tuple(there)][surface]
            np.add.at(diagonal, a[surface], 1.0 / np.maximum(p / (p - q), 0.01))
    r, c = np.concatenate(rows), np.concatenate(columns)
    matrix = sp.coo_matrix((-np.ones(len(r)), (r, c)), (count, count)).tocsr()
    matrix = (matrix + sp.diags(diagonal)).tocsr()
    matrix.sort_indices()
    divergence = np.zeros(liquid.shape)
    divergence[:, 0, :] -= 1.0
    divergence[0, :, :] += 6.0 * np.cos(12.0 * z[0]) * (0.5 + y[0])
    return matrix, divergence[liquid]
