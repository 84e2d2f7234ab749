"""Marching cubes over Buckets: a closed, oriented surface of triangles where a channel is 0.

A cube has a voxel's centre, its *node*, at each of its eight corners; nodes below 0 are inside.
Vertices lie on edges of cubes between a node inside and one outside (Lorensen & Cline 1987). The
table is derived, not copied: on each face of a cube the crossed edges are joined by segments that
keep the inside on their left and never join two inside corners across a face, so that both cubes
at a face agree; the segments close to polygons, which are cut into triangles without a diagonal on
a face. What comes out is closed and has two triangles at every edge.

A vertex near a node would make triangles without area. It is moved along the surface, away from
the node, by up to SLIDE of an edge.

The surface is worked on in *blocks*: the r^3 nodes of a Bucket, one layer of the next ones above,
and one more on every side for gradients: node (i, j, k) is stored at (i + 1, j + 1, k + 1). Below a
lower side of the domain box lies one more block, so that liquid is closed there too.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.buckets.voxel_places import voxel_at
from loki_core.kernels.jit import device, parallel_kernel, prange

#: Vertices keep this part of an edge from its ends: no triangle is without area.
SMALLEST_PART = 0.01
#: Nearer to a node than this, in edges, a vertex slides along the surface, by this at most.
SLIDE = 0.25
MOST_CORNERS = 15  # of the triangles in one cube

#: Edge e runs along axis e // 4, from the corner with these offsets along (x, y, z).
EDGE_STARTS = np.array(
    [np.roll([0, n // 2, n % 2], axis) for axis in range(3) for n in range(4)], np.int64
)


@cache
def triangle_table() -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Number of triangles of each of the 256 cubes, and the edges of their corners [256, 15]."""
    counts = np.zeros(256, np.int8)
    edges = np.full((256, MOST_CORNERS), -1, np.int8)
    for case in range(256):
        triangles = [one for loop in _loops(case) for one in _triangulate(loop)]
        counts[case] = len(triangles)
        edges[case, : 3 * len(triangles)] = [edge for one in triangles for edge in one]
    return counts, edges


def _corner(offset: Any) -> int:
    """Number of a corner; its bit in a case is 1 << number."""
    return int(4 * offset[0] + 2 * offset[1] + offset[2])


def _edge_between(one: Any, other: Any) -> int:
    """Number of the edge between two corners."""
    axis = int(np.flatnonzero(np.not_equal(one, other))[0])
    start = np.minimum(one, other)
    return next(
        e for e in range(4 * axis, 4 * axis + 4) if np.array_equal(EDGE_STARTS[e], start)
    )  # fmt: skip


@cache
def _faces() -> list[list[tuple[int, int, int]]]:
    """The six faces, each its four corners in turn, counter-clockwise from outside the cube."""
    faces = []
    for axis in range(3):
        for side in range(2):
            ring = [(0, 0), (1, 0), (1, 1), (0, 1)]
            if side == 0:
                ring = ring[::-1]
            corners = []
            for u, v in ring:
                corner = [0, 0, 0]
                corner[axis], corner[(axis + 1) % 3], corner[(axis + 2) % 3] = side, u, v
                corners.append((corner[0], corner[1], corner[2]))
            faces.append(corners)
    return faces


def _loops(case: int) -> list[list[int]]:
    """Polygons of a cube as lists of edges, counter-clockwise seen from the air."""
    following: dict[int, int] = {}
    for face in _faces():
        inside = [bool(case >> _corner(corner) & 1) for corner in face]
        for n in range(4):
            # A run of inside corners begins after corner n: round it, against the ring.
            if inside[n] or not inside[(n + 1) % 4]:
                continue
            last = next(m for m in range(1, 5) if not inside[(n + m + 1) % 4])
            begin = _edge_between(face[n], face[(n + 1) % 4])
            end = _edge_between(face[(n + last) % 4], face[(n + last + 1) % 4])
            following[begin] = end
    loops = []
    while following:
        start, edge = next(iter(following.items()))
        loop = [start]
        del following[start]
        while edge != start:
            loop.append(edge)
            edge = following.pop(edge)
        loops.append(loop)
    return loops


def _triangulate(loop: list[int]) -> list[tuple[int, int, int]]:
    """Cut a polygon into triangles without a diagonal that lies on a face of the cube."""
    if len(loop) == 3:
        return [(loop[0], loop[1], loop[2])]
    for n in range(len(loop)):  # cut off one corner, whose diagonal is inside the cube
        before, here, after = loop[n - 1], loop[n], loop[(n + 1) % len(loop)]
        if _share_a_face(before, after):
            continue
        rest = _triangulate(loop[:n] + loop[n + 1 :])
        if rest:
            return [(before, here, after), *rest]
    return []


def _share_a_face(one: int, other: int) -> bool:
    """Whether two edges of the cube lie on one of its faces."""
    ends = []
    for edge in (one, other):
        lower = EDGE_STARTS[edge]
        ends += [lower, lower + np.eye(3, dtype=np.int64)[edge // 4]]
    return bool((np.ptp(np.array(ends), axis=0) == 0).any())


@parallel_kernel
def bucket_extremes(values, lowest, highest):
    """Least and greatest value in each Bucket of [b, 1, r, r, r]."""
    for b in prange(values.shape[0]):
        lowest[b] = values[b].min()
        highest[b] = values[b].max()


@parallel_kernel
def load_nodes(values, coords, neighbours, parents, shifts, lower, upper, empty, nodes):
    """Bring the nodes of all blocks together; beyond the box is air.

    Args: values [b, 1, r, r, r] in voxels, with two layers of ghosts; parents int32 [m], the Bucket
    of each block; shifts int64 [m, 3], Buckets from it to the block; lower, upper float64 [3]:
    planes of the box in voxels; empty: value where no Bucket is; nodes [m, r + 3, r + 3, r + 3].
    """
    for m in prange(nodes.shape[0]):
        load_block(
            np.int64(parents[m]), values, coords, neighbours, shifts[m], lower, upper, empty,
            nodes[m],
        )  # fmt: skip


@device
def load_block(b, values, coords, neighbours, shift, lower, upper, empty, nodes):
    r = values.shape[2]
    for i in range(-1, r + 2):
        for j in range(-1, r + 2):
            for k in range(-1, r + 2):
                x, dx = inside_box(i + shift[0] * r, coords[b, 0] * r, lower[0], upper[0])
                y, dy = inside_box(j + shift[1] * r, coords[b, 1] * r, lower[1], upper[1])
                z, dz = inside_box(k + shift[2] * r, coords[b, 2] * r, lower[2], upper[2])
                other, x, y, z = voxel_at(neighbours, b, r, x, y, z)
                value = empty
                if other >= 0:
                    value = np.float64(values[other, 0, x, y, z])
                nodes[i + 1, j + 1, k + 1] = max(value, max(dx, max(dy, dz)))


@device
def inside_box(place, first, lower, upper):
    """(nearest voxel inside the box, distance beyond the box) of a voxel of a Bucket."""
    centre = first + place + 0.5
    if centre < lower:
        return np.int64(math.ceil(lower - 0.5)) - first, lower - centre
    if centre > upper:
        return np.int64(math.floor(upper - 0.5)) - first, centre - upper
    return np.int64(place), max(lower - centre, centre - upper)


@parallel_kernel
def count_vertices(nodes, counts):
    """Count the crossed edges that begin at nodes of each block."""
    for m in prange(nodes.shape[0]):
        counts[m] = number_edges(nodes[m], 0, np.empty((1, 1, 1, 1), np.int32))


@parallel_kernel
def number_vertices(nodes, firsts, numbers):
    """Number the vertices of each block from `firsts`, on edges [m, 3, r, r, r]; others have -1."""
    for m in prange(nodes.shape[0]):
        number_edges(nodes[m], firsts[m], numbers[m])


@device
def number_edges(nodes, first, numbers):
    """Number crossed edges of a block, where there is room for numbers; returns their count."""
    r = nodes.shape[0] - 3
    writes = numbers.shape[0] == 3
    count = 0
    for i in range(r):
        for j in range(r):
            for k in range(r):
                inside = nodes[i + 1, j + 1, k + 1] < 0.0
                for a in range(3):
                    above = nodes[i + 1 + (a == 0), j + 1 + (a == 1), k + 1 + (a == 2)]
                    crossed = inside != (above < 0.0)
                    if writes:
                        numbers[a, i, j, k] = first + count if crossed else -1
                    if crossed:
                        count += 1
    return count


@device
def crossing(inside, outside, smallest):
    """Part of the way from a node to the next at which the value is 0."""
    return min(max(inside / (inside - outside), smallest), 1.0 - smallest)


@parallel_kernel
def place_vertices(nodes, numbers, corners, smallest, slide, places):
    """Write the places of vertices [n, 3], in voxels from the domain's origin.

    Args: corners int64 [m, 3]: first node of each block.
    """
    for m in prange(nodes.shape[0]):
        r = nodes.shape[1] - 3
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    for a in range(3):
                        row = np.int64(numbers[m, a, i, j, k])
                        if row >= 0:
                            place_vertex(
                                nodes[m], corners[m], smallest, slide, a, i, j, k, places[row]
                            )


@device
def place_vertex(nodes, corner, smallest, slide, a, i, j, k, place):
    """Set the place of the vertex on the edge along a from a node."""
    here = (i + 1, j + 1, k + 1)
    there = (i + 1 + (a == 0), j + 1 + (a == 1), k + 1 + (a == 2))
    part = crossing(np.float64(nodes[here]), np.float64(nodes[there]), smallest)
    along = slide - part if part < 0.5 else 1.0 - slide - part
    if (along > 0.0) != (part < 0.5):
        along = 0.0
    # the edge's direction, less what of it leaves the surface
    x0, y0, z0 = gradient(nodes, here)
    x1, y1, z1 = gradient(nodes, there)
    x, y, z = x0 + part * (x1 - x0), y0 + part * (y1 - y0), z0 + part * (z1 - z0)
    off = along * (x if a == 0 else (y if a == 1 else z)) / max(x * x + y * y + z * z, 1.0e-12)
    place[0] = corner[0] + i + 0.5 + (part + along if a == 0 else 0.0) - off * x
    place[1] = corner[1] + j + 0.5 + (part + along if a == 1 else 0.0) - off * y
    place[2] = corner[2] + k + 0.5 + (part + along if a == 2 else 0.0) - off * z


@device
def gradient(nodes, at):
    """Twice the gradient at a node."""
    i, j, k = at
    return (
        np.float64(nodes[i + 1, j, k]) - nodes[i - 1, j, k],
        np.float64(nodes[i, j + 1, k]) - nodes[i, j - 1, k],
        np.float64(nodes[i, j, k + 1]) - nodes[i, j, k - 1],
    )


@device
def case_of(nodes, i, j, k):
    """Number of a cube: a bit for each corner that is inside."""
    case = 0
    for corner in range(8):
        if nodes[i + 1 + corner // 4, j + 1 + corner // 2 % 2, k + 1 + corner % 2] < 0.0:
            case |= 1 << corner
    return case


@parallel_kernel
def count_triangles(nodes, above, table_counts, table_edges, edge_starts, counts, strangers):
    """Count the triangles of each block, and corners of them on edges that no block here has.

    Args: above int32 [m, 8]: block that begins 4 x + 2 y + z up, or negative.
    """
    for m in prange(nodes.shape[0]):
        found, strange = 0, 0
        r = nodes.shape[1] - 3
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    case = case_of(nodes[m], i, j, k)
                    found += table_counts[case]
                    for c in range(3 * table_counts[case]):
                        e = table_edges[case, c]
                        block, _, _, _ = owner_of_edge(
                            above[m], r, i + edge_starts[e, 0], j + edge_starts[e, 1],
                            k + edge_starts[e, 2],
                        )  # fmt: skip
                        if block < 0:
                            strange += 1
        counts[m] = found
        strangers[m] = strange


@device
def owner_of_edge(above, r, i, j, k):
    """(block, node in it) from which an edge of a cube starts; the block is negative if unknown."""
    way = 0
    if i == r:
        way += 4
        i = 0
    if j == r:
        way += 2
        j = 0
    if k == r:
        way += 1
        k = 0
    return np.int64(above[way]), i, j, k


@parallel_kernel
def write_triangles(
    nodes, numbers, above, corners, smallest, slide, table_counts, table_edges, edge_starts, firsts,
    first_strangers, triangles, keys, places,
):  # fmt: skip
    """Write triangles [t, 3]; a corner on an edge that no block here has is -1 - its stranger.

    Args: firsts, first_strangers int64 [m]: what is before each block; keys int64 [s, 4]: node and
    axis of a stranger's edge; places float64 [s, 3]: its place in voxels.
    """
    for m in prange(nodes.shape[0]):
        t, s = firsts[m], first_strangers[m]
        r = nodes.shape[1] - 3
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    case = case_of(nodes[m], i, j, k)
                    for c in range(3 * table_counts[case]):
                        e = table_edges[case, c]
                        x, y = i + edge_starts[e, 0], j + edge_starts[e, 1]
                        z = k + edge_starts[e, 2]
                        block, ni, nj, nk = owner_of_edge(above[m], r, x, y, z)
                        if block >= 0:
                            number = np.int64(numbers[block, e // 4, ni, nj, nk])
                        else:
                            number = -1 - s
                            keys[s, 0], keys[s, 1] = corners[m, 0] + x, corners[m, 1] + y
                            keys[s, 2], keys[s, 3] = corners[m, 2] + z, e // 4
                            place_vertex(
                                nodes[m], corners[m], smallest, slide, e // 4, x, y, z, places[s]
                            )
                            s += 1
                        triangles[t + c // 3, c % 3] = number
                    t += table_counts[case]
