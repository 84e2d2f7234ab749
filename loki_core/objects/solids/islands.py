"""Islands: what a Geometry Object keeps of its input; parts of a mesh that hang together.

An island is a body. Points, edges and primitives are known by their numbers in the input; faces are
cut into triangles once, for edges and masses, and the host's own faces come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.mesh import unique_edges
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_core.objects.solids.layout import cumulative, members
from loki_core.wording import counted

Array = NDArray[Any]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Islands:
    """The islands of a Surface or a Wireframe, in the order of their first points.

    Attributes:
        stream_type: Of the input.
        faces: Where each primitive begins among its corners, and the end, [primitives + 1].
        corners: Points of the primitives' corners.
        body: Island of each point.
        edges: Ends of every edge once, island by island, [edges, 2].
        triangles: Points of the triangles that surfaces are cut into, island by island,
            [triangles, 3].
        channels: Channels of primitives and of corners, by place and name.
    """

    stream_type: type[Surface] | type[Wireframe]
    faces: Int64
    corners: Int64
    body: Int64
    edges: Int64
    triangles: Int64
    channels: dict[str, dict[str, Array]]

    @classmethod
    def of(cls, stream: Surface | Wireframe) -> Islands:
        """The islands of a stream; copies, for its arrays may be parts of one buffer."""
        if isinstance(stream, Surface):
            triangles = stream.triangles().astype(np.int64)
            sides = triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
        else:
            triangles, sides = np.empty((0, 3), np.int64), stream.edge_points.astype(np.int64)
        faces, corners = _primitives_of(stream)
        edges = unique_edges(sides.astype(np.int32), stream.point_count)[0].astype(np.int64)
        body = _parts(edges, stream.point_count)
        edges = edges[np.argsort(body[edges[:, 0]], kind="stable")]
        triangles = triangles[np.argsort(body[triangles[:, 0]], kind="stable")]
        channels = _channels_of(stream)
        return cls(type(stream), faces, corners, body, edges, triangles, channels)

    def followed(self, stream: Surface | Wireframe) -> Islands:
        """The same islands, with the channels of a later frame."""
        return replace(self, channels=_channels_of(stream))

    @property
    def point_count(self) -> int:
        return len(self.body)

    @property
    def primitive_count(self) -> int:
        """Faces of a Surface, edges of a Wireframe."""
        return len(self.faces) - 1

    @property
    def body_count(self) -> int:
        return int(self.body.max(initial=-1)) + 1

    @property
    def sizes(self) -> Int64:
        """Points of each island."""
        return np.bincount(self.body, minlength=self.body_count).astype(np.int64)

    @property
    def edge_counts(self) -> Int64:
        """Edges of each island."""
        count = np.bincount(self.body[self.edges[:, 0]], minlength=self.body_count)
        return count.astype(np.int64)

    @property
    def triangle_counts(self) -> Int64:
        """Triangles of each island."""
        count = np.bincount(self.body[self.triangles[:, 0]], minlength=self.body_count)
        return count.astype(np.int64)

    @property
    def words(self) -> str:
        """What messages say of it."""
        count = counted(self.primitive_count, _word(self.stream_type))
        return f"{count} of {counted(self.point_count, 'point')}"

    def points_of(self, bodies: Int64) -> tuple[Int64, Int64]:
        """Island and number of all points of these islands."""
        body, place = members(bodies, self.sizes)
        return body, np.argsort(self.body, kind="stable")[place].astype(np.int64)

    def corner_primitives(self) -> Int64:
        """Which primitive each corner is of."""
        return np.repeat(np.arange(self.primitive_count), np.diff(self.faces))

    def shown(self, ids: Int64, places: Array) -> Any:
        """A stream of the primitives of some points, whose places are given in this order.

        The host's own faces, with the channels of primitives and corners, and the channel
        "primitive_id" by which parts of several ranks come in the input's order.
        """
        row = np.full(self.point_count, -1)
        row[ids] = np.arange(len(ids))
        here = row[self.corners[np.minimum(self.faces[:-1], max(len(self.corners) - 1, 0))]] >= 0
        chosen = np.flatnonzero(here & (np.diff(self.faces) > 0))
        sizes = np.diff(self.faces)
        _, corner = members(chosen, sizes)
        points = row[self.corners[corner]]
        stream: Any
        if self.stream_type is Surface:
            stream = Surface(places, cumulative(sizes[chosen]), points)
        else:
            stream = Wireframe(places, points.reshape(-1, 2))
        for place, rows in (("primitive", chosen), ("vertex", corner)):
            for name, array in self.channels[place].items():
                stream.set_channel(place, name, array[rows])
        stream.set_channel("primitive", "primitive_id", chosen)
        return stream

    def refuse_other(self, stream: Any, *, label: str) -> None:
        """Refuse a stream that joins other points."""
        faces, corners = _primitives_of(stream)
        same = stream.point_count == self.point_count and np.array_equal(faces, self.faces)
        if not same or not np.array_equal(corners, self.corners):
            count = counted(stream.primitive_count, _word(type(stream)))
            raise InputError(
                f"{label} has {count} of {counted(stream.point_count, 'point')} now, and "
                f"{self.words} at the start, or joins them otherwise; points may move, but their "
                "number and what joins them may not change"
            )


class PrimitiveMeans(Mapping[str, Array]):
    """Channels of primitives, as means of those that points are corners of.

    Args:
        islands: With the channels.
        ids: Points that are asked for.
    """

    def __init__(self, islands: Islands, ids: Int64) -> None:
        self._islands, self._ids = islands, ids
        self._channels = islands.channels["primitive"]

    def __getitem__(self, name: str) -> Array:
        values, islands = np.asarray(self._channels[name], np.float64), self._islands
        of_corner = values[islands.corner_primitives()]
        count = np.bincount(islands.corners, minlength=islands.point_count)
        total = np.zeros((islands.point_count, *values.shape[1:]))
        np.add.at(total, islands.corners, of_corner)
        mean: Array = total / count.reshape(-1, *(1,) * (values.ndim - 1))
        return mean[self._ids]

    def __contains__(self, name: object) -> bool:
        return name in self._channels

    def __iter__(self) -> Iterator[str]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)


def _parts(edges: Int64, count: int) -> Int64:
    """Number of the part that each point hangs together with, in the order of first points."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(edges), np.uint8)
    graph = coo_matrix((ones, (edges[:, 0], edges[:, 1])), shape=(count, count))
    label = connected_components(graph, directed=False)[1]
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    order = np.empty(len(first), np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    found: Int64 = order[inverse]
    return found


def _word(kind: type) -> str:
    return "face" if kind is Surface else "edge"


def _primitives_of(stream: Surface | Wireframe) -> tuple[Int64, Int64]:
    """Where each primitive begins among its corners, and the corners' points."""
    if isinstance(stream, Surface):
        return stream.face_offsets.astype(np.int64), stream.face_vertices.astype(np.int64)
    faces = 2 * np.arange(stream.primitive_count + 1, dtype=np.int64)
    return faces, stream.edge_points.astype(np.int64).reshape(-1)


def _channels_of(stream: Surface | Wireframe) -> dict[str, dict[str, Array]]:
    """Channels of primitives and corners; copies, for arrays may be parts of one buffer."""
    return {
        place: {name: array.copy() for name, array in stream.channels[place].items()}
        for place in ("primitive", "vertex")
    }
