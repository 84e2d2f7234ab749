"""Houdini geometry: points, vertices, primitives, attributes and groups.

`houdini_reader` makes it of a document, `houdini_writer` a document of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_vfx.serialization.houdini_volume import VolumePrimitive
from loki_vfx.serialization.vdb_grid import Grid

OWNERS = ("point", "vertex", "primitive", "detail")
STORAGES = {
    "fpreal16": "f2", "fpreal32": "f4", "fpreal64": "f8", "int8": "i1", "uint8": "u1",
    "int16": "i2", "int32": "i4", "int64": "i8",
}  # fmt: skip
PAGE = 1024  # elements of an attribute whose values are stored together

#: What a primitive can be.
POLYGON, POLYLINE, TETRAHEDRON, VOLUME, PACKED, VDB, OTHER = range(7)

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Attribute:
    """Values of one attribute, [n] or [n, size]; those of texts are numbers of `texts`, or -1."""

    values: Array
    hint: str = ""  # Houdini's type information: "point", "vector", "quaternion" ...
    texts: list[str] | None = None

    def as_texts(self) -> list[str]:
        """Return the text of each element."""
        texts = [*(self.texts or ()), ""]
        return [texts[index] for index in self.values.reshape(-1).tolist()]


@dataclass(slots=True)
class PackedPrimitive:
    """Geometry, or a fragment of it, that is moved as a whole: (p - pivot) transform + point."""

    source: Geometry
    transform: npt.NDArray[np.float64]  # [3, 3], for row vectors
    pivot: npt.NDArray[np.float64]  # [3]
    fragment: tuple[str, str] | None = None  # primitive attribute, and its text in the fragment


@dataclass(slots=True)
class Geometry:
    """What a file, or a node, holds.

    Attributes:
        vertex_points: Point of each vertex.
        kinds: What each primitive is.
        offsets: Where the vertices of each primitive begin in `corners`, and their end.
        corners: Vertices of the primitives.
        volumes: By primitive; so are `packed` and `vdbs`. Files do not give VDBs, hosts do: None is
            one that cannot be used.
        remarks: What could not be carried.
    """

    point_count: int = 0
    vertex_points: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    kinds: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    offsets: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    corners: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    attributes: dict[str, dict[str, Attribute]] = field(
        default_factory=lambda: {owner: {} for owner in OWNERS}
    )
    groups: dict[str, dict[str, Array]] = field(
        default_factory=lambda: {owner: {} for owner in OWNERS[:3]}
    )
    volumes: dict[int, VolumePrimitive] = field(default_factory=dict)
    packed: dict[int, PackedPrimitive] = field(default_factory=dict)
    vdbs: dict[int, Grid | None] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def count(self, owner: str) -> int:
        """Return how many elements an attribute of this owner has."""
        counts = (self.point_count, len(self.vertex_points), len(self.kinds), 1)
        return counts[OWNERS.index(owner)]

    def positions(self) -> Array:
        """Return P, [points, 3]."""
        found = self.attributes["point"].get("P")
        if found is None:
            return np.zeros((self.point_count, 3), np.float32)
        return found.values[:, :3]

    def set_primitives(self, kind: int, sizes: Array, points: Array) -> None:
        """Add primitives of one kind, whose vertices are new, with these points."""
        first = len(self.vertex_points)
        self.vertex_points = np.concatenate([self.vertex_points, points]).astype(np.int64)
        self.kinds = np.concatenate([self.kinds, np.full(len(sizes), kind, np.uint8)])
        ends = self.offsets[-1] + np.cumsum(np.asarray(sizes, np.int64))
        self.offsets = np.concatenate([self.offsets, ends])
        new = np.arange(first, len(self.vertex_points), dtype=np.int64)
        self.corners = np.concatenate([self.corners, new])
