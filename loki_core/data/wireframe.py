"""Wireframe: points joined by edges in any pattern, as trusses and branching plants have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import Array
from loki_core.data.mesh import Finding, Mesh, as_indices, check_edges, check_indices, unique_edges
from loki_core.wording import counted


class Wireframe(Mesh):
    """Points and edges; a primitive is an edge and has two vertices."""

    type_name: ClassVar[str] = "wireframe"
    topology_names: ClassVar[tuple[str, ...]] = ("edge_points",)

    __slots__ = ("edge_points",)

    def __init__(self, positions: npt.ArrayLike, edge_points: npt.ArrayLike) -> None:
        """Take points [m], shape [n, 3], and the points of each edge, shape [edges, 2]."""
        super().__init__(positions)
        self.edge_points = as_indices(edge_points, 2, "wireframe.edge_points")

    @property
    def vertex_count(self) -> int:
        """Return twice the number of edges."""
        return 2 * self.primitive_count

    @property
    def primitive_count(self) -> int:
        """Return the number of edges."""
        return int(self.edge_points.shape[0])

    def edges(self) -> npt.NDArray[np.int32]:
        """Return the edges as they were given, shape [edges, 2]."""
        return self.edge_points

    def _check_topology(self, label: str) -> None:
        check_indices(self.edge_points, self.point_count, f"{label}.edge_points")

    def _check_shape(self, label: str) -> list[Finding]:
        findings = check_edges(self.positions, self.edge_points, label)
        edges, counts = unique_edges(self.edge_points, self.point_count)
        if (counts > 1).any():
            pair = edges[int(np.argmax(counts > 1))].tolist()
            findings.append(
                (
                    "warning",
                    f"{label} has {counted(int((counts - 1).sum()), 'edge')} more than once, "
                    "the first joins "
                    f"points {pair[0]} and {pair[1]}: it would act twice",
                )
            )
        return findings

    @classmethod
    def _merged_topology(cls, meshes: Sequence[Self], starts: Sequence[int]) -> dict[str, Array]:
        parts = [mesh.edge_points + np.int32(s) for mesh, s in zip(meshes, starts, strict=False)]
        return {"edge_points": np.concatenate(parts)}
