"""Body: a solid of tetrahedra over shared points.

A tetrahedron (a, b, c, d) has positive volume: (b - a) x (c - a) . (d - a) > 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import Array
from loki_core.data.mesh import Finding, Mesh, as_indices, check_edges, check_indices, unique_edges
from loki_core.data.surface import Surface
from loki_core.wording import counted

FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])  # counter-clockwise from outside
EDGES = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])


class Body(Mesh):
    """Tetrahedra: flesh, rubber, fruit. A primitive is a tetrahedron and has four vertices."""

    type_name: ClassVar[str] = "body"
    topology_names: ClassVar[tuple[str, ...]] = ("tetrahedra",)

    __slots__ = ("tetrahedra",)

    def __init__(self, positions: npt.ArrayLike, tetrahedra: npt.ArrayLike) -> None:
        """Take points [m], shape [n, 3], and the points of each tetrahedron, shape [t, 4]."""
        super().__init__(positions)
        self.tetrahedra = as_indices(tetrahedra, 4, "body.tetrahedra")

    @property
    def vertex_count(self) -> int:
        """Return four times the number of tetrahedra."""
        return 4 * self.primitive_count

    @property
    def primitive_count(self) -> int:
        """Return the number of tetrahedra."""
        return int(self.tetrahedra.shape[0])

    def edges(self) -> npt.NDArray[np.int32]:
        """Return every edge once, lower point first, shape [edges, 2]."""
        return unique_edges(self.tetrahedra[:, EDGES].reshape(-1, 2), self.point_count)[0]

    def volumes(self) -> npt.NDArray[np.float64]:
        """Return the signed volume [m^3] of each tetrahedron, shape [t]."""
        x = self.positions.astype(np.float64)[self.tetrahedra]
        a, b, c = x[:, 1] - x[:, 0], x[:, 2] - x[:, 0], x[:, 3] - x[:, 0]
        return np.asarray(np.einsum("ij,ij->i", np.cross(a, b), c) / 6.0)

    def boundary_faces(self) -> npt.NDArray[np.int32]:
        """Return the triangles that only one tetrahedron has, facing outward, shape [f, 3]."""
        faces = self.tetrahedra[:, FACES].reshape(-1, 3)
        if faces.shape[0] == 0:
            return faces
        _, inverse, counts = np.unique(
            np.sort(faces, axis=1), axis=0, return_inverse=True, return_counts=True
        )
        return np.ascontiguousarray(faces[counts[inverse.reshape(-1)] == 1])

    def boundary_surface(self) -> Surface:
        """Return the boundary as a Surface on the same points; point channels are carried."""
        surface = Surface.from_faces(self.positions, self.boundary_faces())
        for location in ("point", "detail"):
            for name, values in self.channels[location].items():
                kind = self.channels[location].transform_of(name)
                surface.set_channel(location, name, values, transform=kind)
        return surface

    def _check_topology(self, label: str) -> None:
        check_indices(self.tetrahedra, self.point_count, f"{label}.tetrahedra")

    def _check_shape(self, label: str) -> list[Finding]:
        findings = check_edges(self.positions, self.edges(), label)
        volumes = self.volumes()
        for found, words in ((volumes < 0.0, "inverted"), (volumes == 0.0, "flat")):
            if found.any():
                findings.append(
                    (
                        "error",
                        f"{label} has {counted(int(found.sum()), f'{words} tetrahedron')}, the "
                        "first is "
                        f"{int(np.argmax(found))} of volume {volumes[np.argmax(found)]:.6g} m^3; "
                        "expected positive volumes: swap two of its points or mesh again",
                    )
                )
        used = np.zeros(self.point_count, bool)
        used[self.tetrahedra] = True
        if not used.all():
            findings.append(
                (
                    "warning",
                    f"{label} has {counted(int((~used).sum()), 'point')} that no tetrahedron uses",
                )
            )
        pairs = self.boundary_faces()[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
        edges, counts = unique_edges(pairs, self.point_count)
        if (counts > 2).any():
            pair = edges[int(np.argmax(counts > 2))].tolist()
            findings.append(
                (
                    "warning",
                    f"{label} has {counted(int((counts > 2).sum()), 'non-manifold edge')} on "
                    "its boundary; "
                    f"the first joins points {pair[0]} and {pair[1]}",
                )
            )
        return findings

    def _mirrored_vertex_order(self) -> npt.NDArray[np.int64]:
        order = np.arange(self.vertex_count, dtype=np.int64).reshape(-1, 4)
        return order[:, [0, 1, 3, 2]].reshape(-1)

    def _reordered_topology(self, order: npt.NDArray[np.int64]) -> dict[str, Array]:
        return {"tetrahedra": self.tetrahedra.reshape(-1)[order].reshape(-1, 4)}

    @classmethod
    def _merged_topology(cls, meshes: Sequence[Self], starts: Sequence[int]) -> dict[str, Array]:
        parts = [mesh.tetrahedra + np.int32(s) for mesh, s in zip(meshes, starts, strict=False)]
        return {"tetrahedra": np.concatenate(parts)}
