"""Parts: what ranks have of one Object, joined in an order that no rank shows in.

    Curves    by the primitive channel "strand": curve i is curve i of the input
    Points    by the point channel "id": those of the input first, in their order
    Surface, Wireframe    by "id", and the primitive channel "primitive_id"

Strands and particles live where they are simulated, and change ranks; whoever looks at a result
finds them in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.curves import Curves
from loki_core.data.mesh import merge_streams
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe

Int64 = NDArray[np.int64]


def join_parts(parts: Sequence[Any]) -> Any:
    """Return one stream of all ranks' parts of an Object, in the order of its input."""
    return parts[0] if len(parts) == 1 else in_input_order(merge_streams(parts))


def in_input_order(stream: Any) -> Any:
    """Return a stream, or one with its curves or points in the order of the input."""
    if isinstance(stream, Curves):
        order = _order(stream.channels["primitive"].get("strand"))
        return stream if order is None else _reordered_curves(stream, order)
    if isinstance(stream, Points):
        order = _order(stream.channels["point"].get("id"))
        return (
            stream
            if order is None
            else _reordered(
                stream,
                Points(stream.positions[order]),
                {
                    "point": order,
                },
            )
        )
    if isinstance(stream, Surface | Wireframe):
        return _reordered_mesh(stream)
    return stream


def _order(numbers: NDArray[Any] | None) -> Int64 | None:
    """How rows come to be in the order of their numbers; None where they are, or have none."""
    if numbers is None or numbers.ndim != 1 or bool(np.all(numbers[1:] >= numbers[:-1])):
        return None
    return np.argsort(numbers, kind="stable").astype(np.int64)


def _reordered_curves(curves: Curves, order: Int64) -> Any:
    sizes = np.diff(curves.offsets).astype(np.int64)[order]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    first = curves.offsets[:-1].astype(np.int64)[order]
    points = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], sizes)
    result = Curves(curves.positions[points], offsets, curves.closed[order])
    return _reordered(curves, result, {"point": points, "vertex": points, "primitive": order})


def _reordered_mesh(mesh: Any) -> Any:
    points = _order(mesh.channels["point"].get("id"))
    faces = _order(mesh.channels["primitive"].get("primitive_id"))
    if points is None and faces is None:
        return mesh
    points = np.arange(mesh.point_count) if points is None else points
    faces = np.arange(mesh.primitive_count) if faces is None else faces
    place = np.empty(mesh.point_count, np.int64)
    place[points] = np.arange(mesh.point_count)
    if isinstance(mesh, Wireframe):
        corners = (2 * faces[:, None] + np.arange(2)).reshape(-1)
        result: Any = Wireframe(mesh.positions[points], place[mesh.edge_points[faces]])
    else:
        sizes = mesh.face_sizes().astype(np.int64)[faces]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        first = mesh.face_offsets[:-1].astype(np.int64)[faces]
        corners = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], sizes)
        result = Surface(mesh.positions[points], offsets, place[mesh.face_vertices[corners]])
    return _reordered(mesh, result, {"point": points, "vertex": corners, "primitive": faces})


def _reordered(stream: Any, result: Any, rows: dict[str, Int64]) -> Any:
    """Bring the channels of a stream to its reordered form."""
    for location, channels in stream.channels.items():
        for name, values in channels.items():
            moved = values[rows[location]] if location in rows else values
            result.channels[location].set(name, moved, transform=channels.transform_of(name))
    return result
