"""Strand growth: where strands are rooted on a surface, and the shape in which they grow.

Steps of an irrational length walk over the triangles, laid side by side by area, and inside each of
them; so places lie evenly, and any first part of them does.

A strand leaves the surface along its normal n and turns towards a direction d: its heading at s (0
at the root, 1 at the tip) is n turned by

    phi(s) = (lean + (1 - lean) bend s) angle(n, d)        in the plane of both
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loki_core.data.surface import Surface
from loki_core.errors import InputError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Steps that leave no gaps for any number of places: 1 / p with p^2 = p + 1 along a line, and in a
#: plane 1 / p and 1 / p^2 with p^3 = p + 1.
LINE_STEP = 0.6180339887498949
PLANE_STEPS = np.array((0.7548776662466927, 0.5698402909980532))
SKIN_PLACES = 20_000
SKIN_TRIES = 3  # a step that was turned away may still end too near


@dataclass(frozen=True)
class Roots:
    """Places on a surface.

    Attributes:
        triangle: Which of the surface's triangles a place lies in, shape [n].
        weights: How near it is to each corner, shape [n, 3]; they sum to one.
    """

    triangle: Indices
    weights: Floats

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Roots:
        """Return some of the places."""
        return Roots(self.triangle[rows], self.weights[rows])

    def mixed(self, corners: npt.NDArray[np.int32], values: npt.NDArray[np.generic]) -> Floats:
        """Return values at the places, mixed from those at the corners [triangles, 3]."""
        around = values[corners[self.triangle]].astype(np.float64)
        return np.asarray(np.einsum("nk,nk...->n...", self.weights, around))


def even_roots(surface: Surface, count: int, *, seed: int) -> Roots:
    """Return places that lie evenly on a surface; the first ones are the same for any count.

    Raises:
        InputError: The surface has no area.
    """
    corners = surface.positions.astype(np.float64)[surface.triangles()]
    areas = np.linalg.norm(
        np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
    )
    ends = np.cumsum(areas)
    if count and not (len(ends) and ends[-1] > 0.0):
        raise InputError("the surface has no area to grow from")
    random = np.random.default_rng(seed)
    along = (random.random() + LINE_STEP * np.arange(count)) % 1.0
    triangle = np.searchsorted(ends, along * ends[-1] if count else along, side="right")
    triangle = np.minimum(triangle, max(len(ends) - 1, 0))
    shift = random.random((len(ends), 2))
    place = (shift[triangle] + PLANE_STEPS * _rank_among_equals(triangle)[:, None]) % 1.0
    root = np.sqrt(place[:, 0])  # makes places even over a triangle
    weights = (1.0 - root, root * (1.0 - place[:, 1]), root * place[:, 1])
    return Roots(triangle, np.stack(weights, axis=1))


def _rank_among_equals(numbers: Indices) -> Indices:
    """Return for each number how many equal ones stand before it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered, side="left")
    return rank


def root_normals(surface: Surface, roots: Roots) -> Floats:
    """Return unit normals at places, smooth over the edges of the surface, shape [n, 3]."""
    positions, triangles = surface.positions.astype(np.float64), surface.triangles()
    corners = positions[triangles]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    at_points: Floats = np.stack(
        [
            np.bincount(triangles.reshape(-1), np.repeat(across[:, axis], 3), len(positions))
            for axis in range(3)
        ],
        axis=1,
    )
    smooth = roots.mixed(triangles, unit(at_points))
    return unit(smooth, otherwise=unit(across[roots.triangle]))


def triangle_frames(surface: Surface, roots: Roots) -> Floats:
    """Return axes that turn with the triangle of each place, as columns, shape [n, 3, 3]."""
    corners: Floats = surface.positions.astype(np.float64)[surface.triangles()[roots.triangle]]
    along = unit(corners[:, 1] - corners[:, 0], otherwise=np.array((1.0, 0.0, 0.0)))
    normal = unit(np.cross(along, corners[:, 2] - corners[:, 0]), otherwise=any_across(along))
    return np.stack((along, np.cross(normal, along), normal), axis=2)


class Skin:
    """A surface as strands meet it: tangent planes at many places.

    Args:
        surface: The surface; its faces look outwards.
        clearance: Distance that strands keep [m].
    """

    def __init__(self, surface: Surface, clearance: float) -> None:
        from scipy.spatial import cKDTree

        places = even_roots(surface, SKIN_PLACES, seed=0)
        self._clearance = clearance
        self._positions = places.mixed(surface.triangles(), surface.positions)
        self._normals = root_normals(surface, places)
        self._tree = cKDTree(self._positions)

    def push_out(self, points: Floats, *, depth: float) -> Floats:
        """Return points [n, 3] of which those too near, or inside by at most `depth`, moved out."""
        _, nearest = self._tree.query(points, distance_upper_bound=self._clearance + depth)
        met = nearest < len(self._positions)
        nearest = nearest[met]
        normals = self._normals[nearest]
        height = np.einsum("na,na->n", points[met] - self._positions[nearest], normals)
        moved = points.copy()
        moved[met] += np.maximum(self._clearance - height, 0.0)[:, None] * normals
        return moved


@dataclass(frozen=True)
class Comb:
    """The shape in which strands grow.

    Attributes:
        direction: Where strands lean and bend to.
        lean: How much of the way to the direction they start at, 0 to 1.
        bend: How much of the rest of that way they have gone at the tip, 0 to 1.
        curl_radius: Of the curl at the tip [m].
        curl_length: Length of a strand for one turn of its curl [m].
        clumping: How strongly tips are drawn to the middle of their clump, 0 to 1.
        clump_size: Strands of a clump.
        skin: What they go around.
    """

    direction: tuple[float, float, float]
    lean: float
    bend: float
    curl_radius: float
    curl_length: float
    clumping: float
    clump_size: int
    skin: Skin | None

    def grow(
        self, roots: Floats, normals: Floats, lengths: Floats, phase: Floats, *, vertices: int
    ) -> tuple[Floats, Floats]:
        """Return strands [n, vertices, 3] and the axis [n, 3] that each bends about.

        Args:
            roots: Where strands begin [m], shape [n, 3]; the first ones are middles of clumps.
            normals: Unit vectors along which they leave the surface, shape [n, 3].
            lengths: Of strands [m], shape [n].
            phase: Where in a turn their curls begin [rad], shape [n].
            vertices: Points of a strand, at equal distances.
        """
        towards = unit(np.asarray(self.direction, np.float64))
        straight = normals @ towards
        sideways = towards - straight[:, None] * normals
        sideways = unit(sideways, otherwise=any_across(normals), shortest=1.0e-9)
        axis = np.cross(normals, sideways)
        whole_turn = np.arccos(np.clip(straight, -1.0, 1.0))
        middle = self._middles(roots)
        step = (lengths / (vertices - 1))[:, None]
        strands = np.empty((len(roots), vertices, 3))
        strands[:, 0] = roots
        for k in range(vertices - 1):
            here, along = strands[:, k], (k + 0.5) / (vertices - 1)
            angle = whole_turn * (self.lean + (1.0 - self.lean) * self.bend * along)
            heading = _turned(normals, sideways, angle)
            if k > 0:  # the first edge says how a strand stands, whatever its neighbours do
                turn = phase + 2.0 * np.pi * along * lengths / self.curl_length
                slope = 2.0 * np.pi * along * self.curl_radius / self.curl_length
                heading = heading + slope * _turned(axis, np.cross(axis, heading), turn)
                apart = strands[middle, k] - here
                reach = np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), step)
                heading = unit(heading + self.clumping * along * apart / reach)
            heading = self._past_skin(here, heading, step)
            strands[:, k + 1] = here + step * heading
        return strands, axis

    def _middles(self, roots: Floats) -> Indices:
        """Return for each strand the one in the middle of its clump."""
        from scipy.spatial import cKDTree

        if self.clumping == 0.0 or len(roots) == 0:
            return np.arange(len(roots))
        _, nearest = cKDTree(roots[: -(-len(roots) // self.clump_size)]).query(roots)
        return np.asarray(nearest)

    def _past_skin(self, here: Floats, heading: Floats, step: Floats) -> Floats:
        """Return headings, as near as can be, whose steps keep their distance."""
        if self.skin is None or len(here) == 0:
            return heading
        for _ in range(SKIN_TRIES):
            there = self.skin.push_out(here + step * heading, depth=float(step.max()))
            heading = unit(there - here, otherwise=heading)
        return heading


def _turned(first: Floats, second: Floats, angle: Floats) -> Floats:
    """Return the first of two axes [n, 3], turned towards the second by angles [n]."""
    return np.asarray(np.cos(angle)[:, None] * first + np.sin(angle)[:, None] * second)


def any_across(vectors: Floats) -> Floats:
    """Return a unit vector across each of unit vectors [n, 3]."""
    least = np.argmin(np.abs(vectors), axis=1)
    return unit(np.cross(vectors, np.eye(3)[least]))


def unit(vectors: Floats, *, otherwise: Floats | None = None, shortest: float = 0.0) -> Floats:
    """Return vectors [..., 3] at length one; those of no length become zero, or another."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    found = lengths > shortest
    scaled = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=found)
    return scaled if otherwise is None else np.where(found, scaled, otherwise)
