"""Surface: polygons of any size over shared points.

Face i has the corners face_vertices[face_offsets[i] : face_offsets[i + 1]], counter-clockwise
seen from outside. A vertex is a corner of one face, so vertex channels hold seams (uv).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import Array
from loki_core.data.mesh import (
    Finding,
    Mesh,
    as_indices,
    check_edges,
    check_indices,
    check_offsets,
    concatenated_offsets,
    unique_edges,
)
from loki_core.errors import InputError
from loki_core.wording import counted

FLAT = 1.0e-10  # a face is degenerate when its area is below this part of its longest edge squared


class Surface(Mesh):
    """Polygons: cloth, skin, colliders, liquid surfaces."""

    type_name: ClassVar[str] = "surface"
    topology_names: ClassVar[tuple[str, ...]] = ("face_offsets", "face_vertices")

    __slots__ = ("face_offsets", "face_vertices")

    def __init__(
        self, positions: npt.ArrayLike, face_offsets: npt.ArrayLike, face_vertices: npt.ArrayLike
    ) -> None:
        """Take points [m], where each face begins [faces + 1], and the point of each corner."""
        super().__init__(positions)
        self.face_offsets = as_indices(face_offsets, None, "surface.face_offsets")
        if self.face_offsets.size == 0:
            self.face_offsets = np.zeros(1, np.int32)
        self.face_vertices = as_indices(face_vertices, None, "surface.face_vertices")

    @classmethod
    def from_faces(cls, positions: npt.ArrayLike, faces: npt.ArrayLike) -> Self:
        """Return a Surface of faces of one size: triangles [f, 3], quads [f, 4] or larger."""
        array = np.asarray(faces)
        if array.size == 0:
            array = np.empty((0, 3), np.int32)
        if array.ndim != 2 or array.shape[1] < 3:
            raise InputError(f"faces have shape {list(array.shape)}; expected [faces, 3 or more]")
        offsets = np.arange(array.shape[0] + 1, dtype=np.int64) * array.shape[1]
        return cls(positions, offsets, array.reshape(-1))

    @classmethod
    def from_polygons(cls, positions: npt.ArrayLike, polygons: Sequence[Sequence[int]]) -> Self:
        """Return a Surface of faces of mixed size, each a sequence of point indices."""
        sizes = np.array([len(polygon) for polygon in polygons], np.int64)
        corners = np.array([i for polygon in polygons for i in polygon], np.int64)
        return cls(positions, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), corners)

    @property
    def vertex_count(self) -> int:
        """Return the number of face corners."""
        return int(self.face_vertices.size)

    @property
    def primitive_count(self) -> int:
        """Return the number of faces."""
        return int(self.face_offsets.size) - 1

    def face_sizes(self) -> npt.NDArray[np.int32]:
        """Return the number of corners of each face, shape [faces]."""
        return np.diff(self.face_offsets)

    def triangle_corners(self) -> npt.NDArray[np.int32]:
        """Return a fan of triangles for each face as vertex indices, shape [triangles, 3]."""
        fans = np.maximum(self.face_sizes() - 2, 0)
        first = np.repeat(self.face_offsets[:-1], fans)
        ends = np.cumsum(fans)
        step = np.arange(int(fans.sum())) - np.repeat(ends - fans, fans)
        return np.stack([first, first + step + 1, first + step + 2], axis=1).astype(np.int32)

    def triangles(self) -> npt.NDArray[np.int32]:
        """Return a fan of triangles for each face as point indices, shape [triangles, 3]."""
        return np.asarray(self.face_vertices[self.triangle_corners()])

    def triangle_faces(self) -> npt.NDArray[np.int32]:
        """Return the face that each triangle of `triangles` is part of, shape [triangles]."""
        faces = np.arange(self.primitive_count, dtype=np.int32)
        return np.repeat(faces, np.maximum(self.face_sizes() - 2, 0))

    def area_vectors(self) -> npt.NDArray[np.float64]:
        """Return normal times area [m^2] of each face, shape [faces, 3]."""
        x = self.positions.astype(np.float64)[self.triangles()]
        halves = 0.5 * np.cross(x[:, 1] - x[:, 0], x[:, 2] - x[:, 0])
        total = np.zeros((self.primitive_count, 3))
        np.add.at(total, self.triangle_faces(), halves)
        return total

    def half_edges(self) -> npt.NDArray[np.int32]:
        """Return corner and next corner of every face as points, shape [vertex_count, 2]."""
        following = np.arange(1, self.vertex_count + 1)
        filled = self.face_sizes() > 0
        following[self.face_offsets[1:][filled] - 1] = self.face_offsets[:-1][filled]
        return np.stack([self.face_vertices, self.face_vertices[following]], axis=1)

    def edges(self) -> npt.NDArray[np.int32]:
        """Return every edge once, lower point first, shape [edges, 2]."""
        return unique_edges(self.half_edges(), self.point_count)[0]

    def _check_topology(self, label: str) -> None:
        check_offsets(self.face_offsets, self.vertex_count, f"{label}.face_offsets")
        check_indices(self.face_vertices, self.point_count, f"{label}.face_vertices")

    def _check_primitives(self, label: str) -> None:
        short = self.face_sizes() < 3
        if short.any():
            i = int(np.argmax(short))
            raise InputError(
                f"{label}: face {i} has {int(self.face_sizes()[i])} corners "
                f"({int(short.sum())} such faces); expected at least 3: remove it"
            )

    def _check_shape(self, label: str) -> list[Finding]:
        pairs = self.half_edges()
        edges, counts = unique_edges(pairs, self.point_count)
        findings = check_edges(self.positions, edges, label)
        lengths = np.linalg.norm(self.positions[pairs[:, 1]] - self.positions[pairs[:, 0]], axis=1)
        longest = np.zeros(self.primitive_count)
        np.maximum.at(
            longest, np.repeat(np.arange(self.primitive_count), self.face_sizes()), lengths
        )
        flat = np.linalg.norm(self.area_vectors(), axis=1) <= FLAT * longest**2
        if flat.any():
            findings.append(
                (
                    "warning",
                    f"{label} has {counted(int(flat.sum()), 'face')} without area, the first is "
                    "face "
                    f"{int(np.argmax(flat))}: remove or repair them",
                )
            )
        for found, word, meaning in (
            (counts == 1, "boundary edge", ": it is open, so it has no inside"),
            (counts > 2, "edge", " with more than two faces (non-manifold)"),
        ):
            if found.any():
                pair = edges[int(np.argmax(found))].tolist()
                findings.append(
                    (
                        "warning",
                        f"{label} has {counted(int(found.sum()), word)}{meaning}; the first "
                        "joins points "
                        f"{pair[0]} and {pair[1]}",
                    )
                )
        return findings

    def _mirrored_vertex_order(self) -> npt.NDArray[np.int64]:
        # First corner stays, the others run backwards: start + (size - k) mod size.
        sizes = np.repeat(self.face_sizes(), self.face_sizes())
        starts = np.repeat(self.face_offsets[:-1], self.face_sizes())
        k = np.arange(self.vertex_count) - starts
        return np.asarray(starts + (sizes - k) % np.maximum(sizes, 1), dtype=np.int64)

    def _reordered_topology(self, order: npt.NDArray[np.int64]) -> dict[str, Array]:
        return {"face_offsets": self.face_offsets, "face_vertices": self.face_vertices[order]}

    @classmethod
    def _merged_topology(cls, meshes: Sequence[Self], starts: Sequence[int]) -> dict[str, Array]:
        parts = [mesh.face_vertices + np.int32(s) for mesh, s in zip(meshes, starts, strict=False)]
        return {
            "face_offsets": concatenated_offsets([mesh.face_offsets for mesh in meshes]),
            "face_vertices": np.concatenate(parts),
        }
