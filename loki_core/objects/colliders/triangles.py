"""Triangles of a mesh: which they are, made consistent, and where they are at one time.

`Triangles` is the topology, which outlasts frames in which only points move; at some positions it
gives `PlacedTriangles`, which knows where it winds around space and which cubes it is near to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.body import FACES, Body
from loki_core.data.bucket_lattice import has_own_buckets, lattice
from loki_core.data.grid_domain import GridDomain
from loki_core.data.surface import Surface
from loki_core.errors import InputError
from loki_core.kernels.colliders.triangle_field import find_divided
from loki_core.kernels.colliders.triangle_topology import first_of_repeats, fuse_points, orient
from loki_core.kernels.colliders.triangle_tree import (
    TriangleTree,
    build_tree,
    fill_winding_numbers,
    find_near_cubes,
)

Floats = NDArray[np.float64]
Int32 = NDArray[np.int32]

#: A tree without triangles; kernels that are given it find nothing.
NO_TREE = TriangleTree(np.empty((0, 9)), np.empty(0, np.int32), np.empty((0, 6)), np.empty((0, 7)))


@dataclass(frozen=True)
class Triangles:
    """Triangles of a mesh, made consistent; which points, vertices and primitives they come from.

    Attributes:
        points: Points of the mesh, shape [t, 3].
        vertices: Vertices of the mesh, shape [t, 3].
        primitives: Primitives of the mesh, shape [t].
        border: Points at the ends of edges that bound holes, shape [e, 2].
        excess: How many more triangles pass such an edge one way than the other, shape [e].
    """

    points: Int32
    vertices: Int32
    primitives: Int32
    border: Int32
    excess: Floats

    @classmethod
    def of(cls, mesh: Any, *, label: str) -> Triangles:
        """Return the triangles of a Surface, or of the boundary of a Body.

        Raises:
            InputError: It is another type of stream, or a point is not finite.
        """
        if isinstance(mesh, Body):
            vertices = _boundary_vertices(mesh)
            points = mesh.tetrahedra.reshape(-1)[vertices]
            primitives = (vertices[:, 0] // 4).astype(np.int32)
        elif isinstance(mesh, Surface):
            vertices, primitives = mesh.triangle_corners(), mesh.triangle_faces()
            points = mesh.face_vertices[vertices]
        else:
            raise InputError(
                f"{label} is a {type(mesh).__name__}; a collider is a Surface or a Body"
            )
        mesh.validate(label)
        fused = fuse_points(np.asarray(mesh.positions, np.float64))[points].reshape(-1, 3)
        keep = first_of_repeats(fused)
        turned, edges, excess = orient(fused[keep])
        points = points[keep]
        ends = (points[edges // 3, edges % 3], points[edges // 3, (edges + 1) % 3])
        columns = np.where(turned[:, None], (0, 2, 1), (0, 1, 2))
        return cls(
            np.take_along_axis(points, columns, axis=1).astype(np.int32),
            np.take_along_axis(vertices[keep], columns, axis=1).astype(np.int32),
            primitives[keep],
            np.stack(ends, axis=1).astype(np.int32),
            excess.astype(np.float64),
        )

    def to_document(self) -> dict[str, NDArray[Any]]:
        """Return plain arrays by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Triangles:
        """Read what `to_document` wrote."""
        return cls(**{name: np.asarray(document[name]) for name in cls.__dataclass_fields__})

    @property
    def count(self) -> int:
        """Number of triangles."""
        return len(self.points)

    @property
    def is_closed(self) -> bool:
        """Whether they enclose space without holes."""
        return len(self.border) == 0

    def elements(self, location: str) -> Int32:
        """Points, vertices or primitives of the mesh at each corner, shape [t, 3]."""
        if location == "primitive":
            return np.repeat(self.primitives[:, None], 3, axis=1)
        return {"point": self.points, "vertex": self.vertices}[location]

    def at(self, position: Floats, *, label: str) -> PlacedTriangles:
        """Return them with the points of the mesh at positions [points, 3], in metres.

        Raises:
            InputError: A corner of a triangle is not finite.
        """
        corners = np.ascontiguousarray(position[self.points], np.float64).reshape(-1, 9)
        if not np.isfinite(corners).all():
            row = int(np.argmax(~np.isfinite(corners).all(axis=1)))
            raise InputError(
                f"{label}: primitive {int(self.primitives[row])} has a point that is "
                "not finite; repair the mesh before it reaches the solver"
            )
        return PlacedTriangles(
            self,
            build_tree(corners) if self.count else NO_TREE,
            self._border_edges(position),
        )

    def _border_edges(self, position: Floats) -> Floats:
        """Middle, half length and excess of each border edge, shape [e, 5]."""
        ends = np.asarray(position[self.border], np.float64).reshape(-1, 2, 3)
        half = 0.5 * np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
        return np.column_stack((ends.mean(axis=1), half, self.excess))


@dataclass(frozen=True)
class PlacedTriangles:
    """Triangles where they are at one time, and what of space they are near to or enclose.

    Attributes:
        triangles: The triangles.
        tree: In which the closest of them is found.
        border: Middle [m], half length [m] and excess of each edge of a hole, shape [e, 5].
    """

    triangles: Triangles
    tree: TriangleTree
    border: Floats

    @property
    def is_empty(self) -> bool:
        """Whether there is no triangle."""
        return self.triangles.count == 0

    def winding(self, position: Floats) -> Floats:
        """How often they wind around positions [n, 3], whichever way they face."""
        winding = np.zeros(len(position))
        if not self.is_empty:
            corners, _, box, dipole = self.tree
            fill_winding_numbers(corners, box, dipole, position, winding)
        return np.abs(winding)

    def are_near(self, coords: Int32, *, size: float, reach: float) -> NDArray[np.bool_]:
        """Tell which cubes [n, 3] of a lattice of edge `size` they come within reach of [m]."""
        near = np.zeros(len(coords), bool)
        if not self.is_empty:
            find_near_cubes(self.tree.corners, self.tree.box, coords, size, reach, near)
        return near

    def may_divide(self, coords: Int32, *, size: float) -> NDArray[np.bool_]:
        """Tell which cubes [n, 3] the level set that closes a hole may pass."""
        divided = np.zeros(len(coords), bool)
        if not self.is_empty:
            corners, _, box, dipole = self.tree
            find_divided(corners, box, dipole, self.border, coords, size, divided)
        return divided

    def bucket_range(self, domain: GridDomain, *, reach: float) -> tuple[Int32, Int32]:
        """Lattice range [first, last) of Buckets that may be within reach [m]; not if empty."""
        size = domain.bucket_size
        lower, upper = self.tree.box[1, :3] - reach, self.tree.box[1, 3:] + reach
        low, high = domain.bucket_range()
        first = np.clip(np.floor(lower / size), low, high)
        last = np.clip(np.floor(upper / size) + 1, low, high)
        return first.astype(np.int32), np.maximum(first, last).astype(np.int32)

    def near_buckets(self, domain: GridDomain, *, reach: float) -> Int32:
        """Buckets of this rank within reach [m], by halving blocks of Buckets that are."""
        if self.is_empty:
            return np.empty((0, 3), np.int32)
        first, last = self.bucket_range(domain, reach=reach)
        level = max(0, int((last - first).max()).bit_length() - 3)
        coords = lattice(first >> level, ((last - 1) >> level) + 1)
        while True:
            coords = coords[has_own_buckets(domain, coords, level=level)]
            size = domain.bucket_size * 2.0**level
            coords = coords[self.are_near(coords, size=size, reach=reach)]
            if level == 0:
                return coords
            level -= 1
            halves = lattice(np.zeros(3, np.int32), np.full(3, 2, np.int32))
            coords = (2 * coords[:, None, :] + halves[None]).reshape(-1, 3).astype(np.int32)
            inside = np.all((coords >= first >> level) & (coords <= (last - 1) >> level), axis=1)
            coords = coords[inside]


def _boundary_vertices(body: Body) -> Int32:
    """Vertices of the triangles that only one tetrahedron has, facing outward, shape [t, 3]."""
    vertices = (4 * np.arange(body.primitive_count)[:, None, None] + FACES[None]).reshape(-1, 3)
    if len(vertices) == 0:
        return np.empty((0, 3), np.int32)
    keys = np.sort(body.tetrahedra.reshape(-1)[vertices], axis=1)
    _, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(vertices[counts[inverse.reshape(-1)] == 1], np.int32)
