"""A tree over triangles: nearest triangle, winding number, and which boxes are near.

Triangles are sorted along a Hilbert curve and cut into 2^k leaves of equal size; node n has the
children 2 n and 2 n + 1, the root is 1, and leaf l is node 2^k + l. Every node has a box, and the
dipole that its triangles look like from afar: centre, area vector and radius. The winding number
is the sum of solid angles, with nodes farther than FAR radii taken as dipoles (Barill et al., "Fast
Winding Numbers for Soups and Clouds", 2018). It is 1 inside a closed surface, 0 outside, and
harmonic in between for one with holes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loki_core.kernels.basics.space_filling_curve import bucket_keys
from loki_core.kernels.colliders.triangle_geometry import closest_on_triangle, solid_angle
from loki_core.kernels.jit import device, kernel, parallel_kernel, prange

LEAF_SIZE = 4
FAR = 2.5  # radii; the winding number of a sphere of 20,000 triangles then errs by 0.021 at most
STACK = 96  # nodes on the way down: two for each of at most 48 levels
CURVE_CELLS = (1 << 17) - 2


class TriangleTree(NamedTuple):
    """Arrays of the tree, in the order in which kernels take them.

    corners [t, 9] m, in curve order; triangle [t], the number that each was given as; box
    [nodes, 6], lower and upper corner; dipole [nodes, 7], centre, area vector, radius.
    """

    corners: npt.NDArray[np.float64]
    triangle: npt.NDArray[np.int32]
    box: npt.NDArray[np.float64]
    dipole: npt.NDArray[np.float64]


def build_tree(corners: npt.NDArray[np.float64]) -> TriangleTree:
    """Return the tree over triangles with these corners [t, 9]; t must not be 0."""
    centre = corners.reshape(-1, 3, 3).mean(axis=1)
    lower = centre.min(axis=0)
    extent = float((centre.max(axis=0) - lower).max())
    cells = (centre - lower) * (CURVE_CELLS / extent if extent > 0.0 else 0.0)
    keys = bucket_keys(cells.astype(np.int32), "hilbert")[0]
    order = np.argsort(keys, kind="stable").astype(np.int32)
    leaves = 1 << max(0, (-(-len(corners) // LEAF_SIZE) - 1).bit_length())
    tree = TriangleTree(
        np.ascontiguousarray(corners[order], np.float64),
        order,
        np.empty((2 * leaves, 6)),
        np.empty((2 * leaves, 7)),
    )
    fit_nodes(tree.corners, tree.box, tree.dipole)
    return tree


@device
def leaf_start(leaf, leaves, count):
    """First triangle of a leaf."""
    return leaf * count // leaves


@kernel
def fit_nodes(corners, box, dipole):
    """Fill boxes and dipoles from the leaves up."""
    leaves = box.shape[0] // 2
    count = corners.shape[0]
    area = np.zeros(2 * leaves)
    box[0] = 0.0
    dipole[0] = 0.0
    for node in range(2 * leaves - 1, 0, -1):
        for k in range(3):
            box[node, k] = math.inf
            box[node, 3 + k] = -math.inf
            dipole[node, k] = 0.0
            dipole[node, 3 + k] = 0.0
        if node >= leaves:
            first = leaf_start(node - leaves, leaves, count)
            last = leaf_start(node - leaves + 1, leaves, count)
            for t in range(first, last):
                add_triangle(corners, t, box, dipole, area, node)
        else:
            for child in range(2 * node, 2 * node + 2):
                area[node] += area[child]
                for k in range(3):
                    box[node, k] = min(box[node, k], box[child, k])
                    box[node, 3 + k] = max(box[node, 3 + k], box[child, 3 + k])
                    dipole[node, k] += area[child] * dipole[child, k]
                    dipole[node, 3 + k] += dipole[child, 3 + k]
        radius2 = 0.0
        for k in range(3):
            if area[node] > 0.0:
                dipole[node, k] /= area[node]
            else:
                dipole[node, k] = 0.5 * (box[node, k] + box[node, 3 + k])
            reach = max(dipole[node, k] - box[node, k], box[node, 3 + k] - dipole[node, k])
            radius2 += reach * reach
        dipole[node, 6] = math.sqrt(radius2)


@device
def add_triangle(corners, t, box, dipole, area, node):
    """Add a triangle to the sums of its leaf."""
    ux, uy, uz = (
        corners[t, 3] - corners[t, 0],
        corners[t, 4] - corners[t, 1],
        corners[t, 5] - corners[t, 2],
    )
    wx, wy, wz = (
        corners[t, 6] - corners[t, 0],
        corners[t, 7] - corners[t, 1],
        corners[t, 8] - corners[t, 2],
    )
    nx, ny, nz = 0.5 * (uy * wz - uz * wy), 0.5 * (uz * wx - ux * wz), 0.5 * (ux * wy - uy * wx)
    size = math.sqrt(nx * nx + ny * ny + nz * nz)
    area[node] += size
    dipole[node, 3] += nx
    dipole[node, 4] += ny
    dipole[node, 5] += nz
    for k in range(3):
        for corner in range(3):
            x = corners[t, 3 * corner + k]
            box[node, k] = min(box[node, k], x)
            box[node, 3 + k] = max(box[node, 3 + k], x)
            dipole[node, k] += size * x / 3.0


@device
def box_distance2(box, node, x, y, z):
    """Squared distance of a place to the box of a node."""
    dx = max(0.0, max(box[node, 0] - x, x - box[node, 3]))
    dy = max(0.0, max(box[node, 1] - y, y - box[node, 4]))
    dz = max(0.0, max(box[node, 2] - z, z - box[node, 5]))
    return dx * dx + dy * dy + dz * dz


@device
def nearest_triangle(corners, box, x, y, z, bound2, guess, nodes, distances):
    """(row of the nearest triangle or -1, squared distance, v, w) within a squared bound.

    `guess` is a row that is probably near, or -1; nodes and distances are stacks of STACK places.
    """
    count = corners.shape[0]
    leaves = box.shape[0] // 2
    best, best2, best_v, best_w = -1, bound2, 0.0, 0.0
    if guess >= 0:
        d2, v, w = closest_on_triangle(corners, guess, x, y, z)
        if d2 < best2:
            best, best2, best_v, best_w = guess, d2, v, w
    nodes[0] = 1
    distances[0] = box_distance2(box, 1, x, y, z)
    top = 1
    while top > 0:
        top -= 1
        if distances[top] >= best2:
            continue
        node = nodes[top]
        if node >= leaves:
            first = leaf_start(node - leaves, leaves, count)
            last = leaf_start(node - leaves + 1, leaves, count)
            for t in range(first, last):
                d2, v, w = closest_on_triangle(corners, t, x, y, z)
                if d2 < best2:
                    best, best2, best_v, best_w = t, d2, v, w
            continue
        near, far = 2 * node, 2 * node + 1
        near2 = box_distance2(box, near, x, y, z)
        far2 = box_distance2(box, far, x, y, z)
        if far2 < near2:
            near, far, near2, far2 = far, near, far2, near2
        if far2 < best2:
            nodes[top] = far
            distances[top] = far2
            top += 1
        if near2 < best2:
            nodes[top] = near
            distances[top] = near2
            top += 1
    return best, best2, best_v, best_w


@device
def winding_number(corners, box, dipole, x, y, z, nodes):
    """Turns of the surface around a place; 0 outside the box of all triangles."""
    if box_distance2(box, 1, x, y, z) > 0.0:
        return 0.0
    count = corners.shape[0]
    leaves = box.shape[0] // 2
    total = 0.0
    nodes[0] = 1
    top = 1
    while top > 0:
        top -= 1
        node = nodes[top]
        dx, dy, dz = dipole[node, 0] - x, dipole[node, 1] - y, dipole[node, 2] - z
        d2 = dx * dx + dy * dy + dz * dz
        reach = FAR * dipole[node, 6]
        if d2 > reach * reach:
            flux = dipole[node, 3] * dx + dipole[node, 4] * dy + dipole[node, 5] * dz
            total += flux / (d2 * math.sqrt(d2)) * (0.25 / math.pi)
        elif node >= leaves:
            first = leaf_start(node - leaves, leaves, count)
            last = leaf_start(node - leaves + 1, leaves, count)
            for t in range(first, last):
                total += solid_angle(corners, t, x, y, z)
        else:
            nodes[top] = 2 * node + 1
            nodes[top + 1] = 2 * node
            top += 2
    return total


@device
def gap(lower, upper, place, half):
    """Distance along an axis of the range [lower, upper] from that of +-half around a place."""
    return max(0.0, max(lower - place, place - upper) - half)


@device
def triangle_is_near(corners, t, x, y, z, half, margin):
    """Whether a triangle may lie within a margin of the cube of half edge `half` around a place.

    Its box and its plane are tried, not its edges: a few cubes too many pass.
    """
    ax, ay, az = corners[t, 0], corners[t, 1], corners[t, 2]
    bx, by, bz = corners[t, 3], corners[t, 4], corners[t, 5]
    cx, cy, cz = corners[t, 6], corners[t, 7], corners[t, 8]
    dx = gap(min(ax, min(bx, cx)), max(ax, max(bx, cx)), x, half)
    dy = gap(min(ay, min(by, cy)), max(ay, max(by, cy)), y, half)
    dz = gap(min(az, min(bz, cz)), max(az, max(bz, cz)), z, half)
    if dx * dx + dy * dy + dz * dz > margin * margin:
        return False
    ux, uy, uz = bx - ax, by - ay, bz - az
    wx, wy, wz = cx - ax, cy - ay, cz - az
    nx, ny, nz = uy * wz - uz * wy, uz * wx - ux * wz, ux * wy - uy * wx
    away = abs(nx * (x - ax) + ny * (y - ay) + nz * (z - az))
    reach = half * (abs(nx) + abs(ny) + abs(nz)) + margin * math.sqrt(nx * nx + ny * ny + nz * nz)
    return away <= reach * (1.0 + 1e-12)


@device
def cube_is_near(corners, box, x, y, z, half, margin, nodes):
    """Whether a triangle may lie within a margin of the cube of half edge `half` around a place."""
    count = corners.shape[0]
    leaves = box.shape[0] // 2
    nodes[0] = 1
    top = 1
    while top > 0:
        top -= 1
        node = nodes[top]
        dx = gap(box[node, 0], box[node, 3], x, half)
        dy = gap(box[node, 1], box[node, 4], y, half)
        dz = gap(box[node, 2], box[node, 5], z, half)
        if dx * dx + dy * dy + dz * dz > margin * margin:
            continue
        if node < leaves:
            nodes[top] = 2 * node + 1
            nodes[top + 1] = 2 * node
            top += 2
            continue
        first = leaf_start(node - leaves, leaves, count)
        last = leaf_start(node - leaves + 1, leaves, count)
        for t in range(first, last):
            if triangle_is_near(corners, t, x, y, z, half, margin):
                return True
    return False


@parallel_kernel
def find_near_cubes(corners, box, coords, size, margin, near):
    """Fill near [n]: whether a triangle lies within `margin` of cube coords [n, 3] * size."""
    for n in prange(coords.shape[0]):
        nodes = np.empty(STACK, np.int64)
        near[n] = cube_is_near(
            corners, box, (coords[n, 0] + 0.5) * size, (coords[n, 1] + 0.5) * size,
            (coords[n, 2] + 0.5) * size, 0.5 * size, margin, nodes,
        )  # fmt: skip


@parallel_kernel
def fill_winding_numbers(corners, box, dipole, position, winding):
    """Fill the winding number [n] at positions [n, 3]."""
    for n in prange(position.shape[0]):
        nodes = np.empty(STACK, np.int64)
        winding[n] = winding_number(
            corners, box, dipole, position[n, 0], position[n, 1], position[n, 2], nodes
        )
