"""Distance to triangles and the inside of closed surfaces, on a lattice of whole numbers.

Distances are exact within a band around the triangles (closest point on a triangle after Ericson,
"Real-Time Collision Detection", 2005, section 5.1.5). The inside is found by counting crossings
along x; a column through an edge or corner is treated as if it were shifted by an infinitesimal
(e, e^2) along y and z, so that neighbours along an edge never both count, nor neither.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from loki_core.data.mesh import unique_edges
from loki_core.data.surface import Surface
from loki_core.errors import InputError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Shape = tuple[int, int, int]

CANDIDATES = 1 << 20  # pairs of voxel and triangle that are looked at in one go


def check_closed(surface: Surface) -> None:
    """Check that a surface has an inside.

    Raises:
        InputError: An edge does not join exactly two faces that run in opposite directions.
    """
    pairs = surface.half_edges()
    edges, counts = unique_edges(pairs, surface.point_count)
    for found, words in (
        (counts == 1, "boundary edges: it is open, so it has no inside; close its holes"),
        (counts > 2, "edges with more than two faces; split these edges"),
    ):
        if found.any():
            a, b = edges[int(np.argmax(found))].tolist()
            raise InputError(
                f"the surface has {int(found.sum())} {words} (the first joins points {a} and {b})"
            )
    keys = pairs[:, 0].astype(np.int64) * surface.point_count + pairs[:, 1]
    _, repeated = np.unique(keys, return_counts=True)
    if (repeated > 1).any():
        raise InputError(
            f"the surface has {int((repeated > 1).sum())} edges whose two faces look in opposite "
            "directions; make all faces look outward"
        )


def band_distance(triangles: Floats, shape: Shape, *, limit: float) -> Floats:
    """Return the distance to the nearest triangle at every lattice point, at most `limit`.

    Args:
        triangles: Corners [t, 3, 3], in lattice units.
        shape: Lattice points along each axis.
        limit: Width of the band, in lattice units.
    """
    result = np.full(shape, limit * limit)
    flat = result.reshape(-1)
    top = np.array(shape) - 1
    lower = np.clip(np.ceil(triangles.min(axis=1) - limit), 0, top).astype(np.int64)
    upper = np.clip(np.floor(triangles.max(axis=1) + limit), 0, top).astype(np.int64)
    sizes = np.maximum(upper - lower + 1, 0)
    for chosen, local in _boxes(sizes):
        voxel = lower[chosen] + local
        squared = _squared_distance(voxel.astype(np.float64), triangles[chosen])
        rows = np.ravel_multi_index((voxel[:, 0], voxel[:, 1], voxel[:, 2]), shape)
        np.minimum.at(flat, rows, squared)
    return np.asarray(np.sqrt(result))


def inside_of(triangles: Floats, shape: Shape) -> npt.NDArray[np.bool_]:
    """Return which lattice points lie inside a closed surface.

    Args:
        triangles: Corners [t, 3, 3], in lattice units.
        shape: Lattice points along each axis.
    """
    turns = np.zeros((shape[0] + 1, shape[1], shape[2]), np.int32)
    top = np.array(shape[1:]) - 1
    plane = triangles[:, :, 1:]
    lower = np.clip(np.ceil(plane.min(axis=1)), 0, top).astype(np.int64)
    upper = np.clip(np.floor(plane.max(axis=1)), 0, top).astype(np.int64)
    sizes = np.concatenate(
        [np.ones((len(triangles), 1), np.int64), np.maximum(upper - lower + 1, 0)], axis=1
    )
    for chosen, local in _boxes(sizes):
        column = lower[chosen] + local[:, 1:]
        sides = np.stack(
            [_side(plane[chosen], k, column.astype(np.float64)) for k in range(3)],
            axis=1,
        )
        signs = np.where(sides[:, :, 1] > 0.0, 1, -1)
        hit = (signs == signs[:, :1]).all(axis=1)
        corner = triangles[chosen][hit]
        areas = sides[hit][:, :, 0]  # of the parts opposite to corners 2, 0, 1
        total = areas.sum(axis=1)
        total[total == 0.0] = 1.0
        weights = areas[:, [1, 2, 0]] / total[:, None]
        x = np.einsum("nk,nk->n", weights, corner[:, :, 0])
        row = np.clip(np.ceil(x), 0, shape[0]).astype(np.int64)
        np.add.at(turns, (row, column[hit][:, 0], column[hit][:, 1]), signs[hit][:, 0])
    return np.asarray(np.cumsum(turns, axis=0)[:-1] != 0)


def _side(plane: Floats, k: int, column: Floats) -> Floats:
    """Return twice the area of (edge k, column), and a sign that is never zero, [n, 2].

    Both triangles at an edge compute it from the same end, so that their numbers are opposite to
    the last bit.
    """
    a, b = plane[:, k], plane[:, (k + 1) % 3]
    swap = (a[:, 0] > b[:, 0]) | ((a[:, 0] == b[:, 0]) & (a[:, 1] > b[:, 1]))
    start = np.where(swap[:, None], b, a)
    end = np.where(swap[:, None], a, b)
    along = end - start
    area = along[:, 0] * (column[:, 1] - start[:, 1]) - along[:, 1] * (column[:, 0] - start[:, 0])
    # what the area changes by when the column moves by (e, e^2): -along_z first, then along_y
    tie = np.where(along[:, 1] != 0.0, -along[:, 1], along[:, 0])
    sign = np.where(area != 0.0, area, tie)
    flip = np.where(swap, -1.0, 1.0)
    return np.stack([area * flip, np.where(sign > 0.0, 1.0, -1.0) * flip], axis=1)


def _boxes(sizes: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Split boxes of lattice points [t, 3] into pieces of (box of each point, its place in it)."""
    volumes = np.prod(sizes, axis=1)
    ends = np.cumsum(volumes)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, CANDIDATES):
        number = np.arange(start, min(start + CANDIDATES, total))
        chosen = np.searchsorted(ends, number, side="right")
        number -= ends[chosen] - volumes[chosen]
        ny, nz = sizes[chosen, 1], sizes[chosen, 2]
        local = np.stack([number // (ny * nz), number // nz % ny, number % nz], axis=1)
        yield chosen, local


def _squared_distance(p: Floats, triangles: Floats) -> Floats:
    """Return the squared distance of places [n, 3] to triangles [n, 3, 3]."""
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    ab, ac, ap = b - a, c - a, p - a
    normal = np.cross(ab, ac)
    area = np.einsum("ij,ij->i", normal, normal)
    safe = np.where(area > 0.0, area, 1.0)
    v = np.einsum("ij,ij->i", np.cross(ap, ac), normal) / safe
    w = np.einsum("ij,ij->i", np.cross(ab, ap), normal) / safe
    over = (area > 0.0) & (v >= 0.0) & (w >= 0.0) & (v + w <= 1.0)
    height = np.einsum("ij,ij->i", ap, normal)
    edges = np.minimum(_to_segment(p, a, b), np.minimum(_to_segment(p, b, c), _to_segment(p, c, a)))
    return np.where(over, height * height / safe, edges)


def _to_segment(p: Floats, start: Floats, end: Floats) -> Floats:
    along = end - start
    length = np.einsum("ij,ij->i", along, along)
    t = np.einsum("ij,ij->i", p - start, along) / np.where(length > 0.0, length, 1.0)
    offset = p - start - np.clip(t, 0.0, 1.0)[:, None] * along
    return np.asarray(np.einsum("ij,ij->i", offset, offset))
