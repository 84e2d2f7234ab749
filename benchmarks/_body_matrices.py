"""Matrices of large bodies for benchmarks: a sheet of springs and hinges, a block of tetrahedra.

Both are those of one implicit step, M / h^2 + K, as scipy's compressed rows, with rest positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

SPRINGS, BENDING, AREA_DENSITY, SHEET_STEP = 1000.0, 1.0e-5, 0.2, 1.0 / 48.0  # N/m, N m, kg/m^2, s
FOLDS = 20.0  # 1/m: the cloth hangs in waves of 0.3 m
YOUNG, POISSON, DENSITY, SOLID_STEP = 5.0e5, 0.4, 1000.0, 1.0 / 24.0  # Pa, -, kg/m^3, s
#: The corners of a unit cube are walked along its three axes in every order: six tetrahedra.
WALKS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]


def sheet(n: int, turn: float = 0.0) -> tuple[Any, Any]:
    """A draped cloth of n x n vertices on a square metre, turned by some degrees as a whole.

    Diagonals alternate. Edges are springs; hinges of bending join the four vertices of every two
    triangles that share an edge.
    """
    i, j = np.meshgrid(np.arange(n - 1), np.arange(n - 1), indexing="ij")
    i, j = i.ravel(), j.ravel()
    a, b, c, d = i * n + j, (i + 1) * n + j, (i + 1) * n + j + 1, i * n + j + 1
    even = (i + j) % 2 == 0
    first = np.where(even[:, None], np.stack([a, b, c], 1), np.stack([a, b, d], 1))
    second = np.where(even[:, None], np.stack([a, c, d], 1), np.stack([b, c, d], 1))
    triangles = np.concatenate([first, second])
    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    opposite = np.concatenate([triangles[:, 2], triangles[:, 0], triangles[:, 1]])
    sides.sort(axis=1)
    order = np.lexsort((opposite, sides[:, 1], sides[:, 0]))
    sides, opposite = sides[order], opposite[order]
    twin = np.flatnonzero(np.all(sides[1:] == sides[:-1], axis=1))
    edges = np.unique(sides, axis=0)
    hinges = np.column_stack([sides[twin], opposite[twin], opposite[twin + 1]])

    rest = np.zeros((n * n, 3))
    rest[:, 0], rest[:, 1] = np.divmod(np.arange(n * n), n)
    rest /= n - 1
    draped = rest.copy()
    draped[:, 2] = 0.05 * np.sin(FOLDS * rest[:, 0]) * np.sin(FOLDS * rest[:, 1] + rest[:, 0])
    place = draped @ _turned(turn).T
    along = place[edges[:, 1]] - place[edges[:, 0]]
    along /= np.linalg.norm(along, axis=1)[:, None]
    stretch = _difference(np.concatenate([-along, along], axis=1).reshape(-1, 2, 3), edges, n * n)
    weights = np.broadcast_to([1.0, 1.0, -1.0, -1.0], hinges.shape)
    bend = sp.kron(_rows(weights, hinges, n * n), sp.identity(3))
    mass = AREA_DENSITY / (n * n) / SHEET_STEP**2
    stiff = SPRINGS * (stretch.T @ stretch) + BENDING * n**2 * (bend.T @ bend)
    return _whole(stiff + mass * sp.identity(3 * n * n)), rest


def tetrahedra(n: int, turn: float = 0.0) -> tuple[Any, Any]:
    """A cube of a metre, n vertices a side, of linear elastic tetrahedra, turned as a whole."""
    cell = np.stack(np.meshgrid(*[np.arange(n - 1)] * 3, indexing="ij"), -1).reshape(-1, 3)
    tets = []
    for walk in WALKS:
        corners, corner = [cell], cell
        for axis in walk:
            corner = corner + np.eye(3, dtype=int)[axis]
            corners.append(corner)
        tets.append(np.stack([(c[:, 0] * n + c[:, 1]) * n + c[:, 2] for c in corners], axis=1))
    cells = np.concatenate(tets)
    rest = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3) / (n - 1)
    place = rest @ _turned(turn).T
    edges = place[cells[:, 1:]] - place[cells[:, :1]]
    volume = np.abs(np.linalg.det(edges)) / 6.0
    inner = np.linalg.inv(edges).transpose(0, 2, 1)  # gradients of the shape functions
    gradients = np.concatenate([-inner.sum(axis=1, keepdims=True), inner], axis=1)
    shear = YOUNG / (2.0 * (1.0 + POISSON))
    lame = YOUNG * POISSON / ((1.0 + POISSON) * (1.0 - 2.0 * POISSON))
    outer = np.einsum("cai,cbj->cabij", gradients, gradients)
    blocks = lame * outer + shear * outer.swapaxes(3, 4)
    blocks += shear * np.einsum("cabkk->cab", outer)[..., None, None] * np.eye(3)
    blocks *= volume[:, None, None, None, None]
    lumped = np.bincount(cells.ravel(), np.repeat(volume * DENSITY / 4.0, 4)) / SOLID_STEP**2
    unknowns = (3 * cells[:, :, None] + np.arange(3)).reshape(len(cells), 12)
    values = blocks.transpose(0, 1, 3, 2, 4).reshape(len(cells), 144)
    rows, columns = np.repeat(unknowns, 12, axis=1), np.tile(unknowns, 12)
    size = 3 * n**3
    stiff = sp.coo_matrix((values.ravel(), (rows.ravel(), columns.ravel())), (size, size))
    return _whole(stiff.tocsr() + sp.diags(np.repeat(lumped, 3))), rest


def graph_of(matrix: Any) -> tuple[Any, Any]:
    """Neighbours of the vertices, of three unknowns each."""
    blocks = matrix.tobsr((3, 3))
    return blocks.indptr.astype(np.int64), blocks.indices.astype(np.int32)


def _difference(gradients: Any, points: Any, count: int) -> Any:
    """One row for each element, with the gradient by each of its points."""
    unknowns = (3 * points[:, :, None] + np.arange(3)).reshape(len(points), -1)
    return _rows(gradients.reshape(len(points), -1), unknowns, 3 * count)


def _rows(weights: Any, columns: Any, width: int) -> Any:
    begins = np.arange(len(columns) + 1) * columns.shape[1]
    return sp.csr_matrix((weights.ravel(), columns.ravel(), begins), (len(columns), width))


def _turned(degrees: float) -> Any:
    """A turn about the axis (1, 2, 3)."""
    axis = np.array([1.0, 2.0, 3.0]) / np.sqrt(14.0)
    cross = np.cross(np.eye(3), -axis)
    angle = np.radians(degrees)
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross)


def _whole(matrix: Any) -> Any:
    """Compressed rows of whole 3 x 3 blocks in order, both triangles exactly alike."""
    matrix = (0.5 * (matrix + matrix.T)).tobsr((3, 3)).tocsr()
    matrix.sort_indices()
    return matrix
