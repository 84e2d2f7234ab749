"""Houdini geometry and Loki's streams, each from the other.

Both are Y-up and in metres. What differs:

    faces clockwise from outside     faces counter-clockwise
    any mixture in one geometry      a stream for each type of primitive

and what attributes are called, which `houdini_channels` knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_vfx.serialization.houdini_channels import (
    RECORD,
    AttributeGiver,
    ChannelTaker,
    is_as_written,
    record_of,
    rows_of,
)
from loki_vfx.serialization.houdini_geometry import (
    PACKED,
    POLYGON,
    POLYLINE,
    TETRAHEDRON,
    VDB,
    VOLUME,
    Attribute,
    Geometry,
)
from loki_vfx.serialization.houdini_packed import unpacked
from loki_vfx.serialization.houdini_voxels import geometry_of_voxels, voxels_of, voxels_of_vdbs

Array = npt.NDArray[Any]

KINDS = {POLYGON: "surface", POLYLINE: "curves", TETRAHEDRON: "body"}


# -- into Loki -----------------------------------------------------------------------------------


def streams_of(geometry: Geometry) -> dict[str, Any]:
    """Return a stream for each type of primitive that a geometry has, and for points without any.

    What could not be carried is added to the geometry's remarks.
    """
    if (geometry.kinds == PACKED).any():
        geometry = unpacked(geometry)
    record = record_of(geometry)
    if record and not is_as_written(geometry, record):
        record = record | {"type": None}  # another node has changed the primitives since
    found: dict[str, Any] = {}
    present = [kind for kind in KINDS if (geometry.kinds == kind).any()]
    type_name = record.get("type")
    sizes = np.diff(geometry.offsets)
    fits = type_name == "curves" or (type_name == "wireframe" and bool((sizes == 2).all()))
    if fits and present and set(present) <= {POLYGON, POLYLINE}:
        assert type_name is not None
        found[type_name] = _mesh(geometry, type_name, geometry.kinds <= POLYLINE, record)
        return found
    loose = np.ones(geometry.point_count, bool)
    not_of_fields = loose.copy()
    for number, is_used in _used_points(geometry):
        loose &= ~is_used
        if number in (VOLUME, VDB):
            not_of_fields &= ~is_used
            field = voxels_of(geometry) if number == VOLUME else voxels_of_vdbs(geometry)
            if field is not None:
                found["voxels"] = field
    for kind in present:
        chosen = geometry.kinds == kind
        is_whole = len(present) == 1 and chosen.all() and kind != POLYLINE
        found[KINDS[kind]] = _mesh(geometry, KINDS[kind], chosen, record, keeps_points=is_whole)
        if is_whole:
            loose[:] = False
    if not found or loose.any():
        chosen = loose if found else not_of_fields
        found["points"] = _points(geometry, None if chosen.all() else chosen, record)
    return found


def stream_of(geometry: Geometry, kind: str = "any", *, label: str = "input") -> Any:
    """Return the stream of one type that a geometry has.

    Args:
        kind: Name of a type of stream; "any" takes the only one that is there, and "mesh" the only
            one that is no voxels. Every geometry can be "points", and polylines a "wireframe".

    Raises:
        InputError: There is none of that type, or more than one to choose from.
    """
    if kind == "points":
        if (geometry.kinds == PACKED).any():
            geometry = unpacked(geometry)
        return _points(geometry, None, record_of(geometry))
    found = streams_of(geometry)
    if kind == "wireframe" and "curves" in found:
        return _wireframe(found["curves"])
    if kind in ("any", "mesh"):
        left_out = ("points",) if kind == "any" else ("points", "voxels")
        shapes = [name for name in found if name not in left_out]
        if len(shapes) > 1:
            raise InputError(
                f"{label} holds {', '.join(shapes)}: split it, or say in the graph which type the "
                "input expects"
            )
        points = found.get("points")
        if not shapes and (points is None or (points.point_count == 0 and len(geometry.kinds))):
            remarks = "".join(f"; {remark}" for remark in geometry.remarks)
            holds = ", ".join(name for name in found if name != "points") or "nothing"
            raise InputError(f"{label} holds {holds} that is carried as {kind}{remarks}")
        return found[shapes[0]] if shapes else points
    if kind not in found:
        raise InputError(f"{label} holds {', '.join(found)}; expected {kind}")
    return found[kind]


def _used_points(geometry: Geometry) -> Iterator[tuple[int, Array]]:
    """Kinds of primitives that are there, and which points their vertices use."""
    kind_of_corner = np.repeat(geometry.kinds, np.diff(geometry.offsets))
    for kind in np.unique(geometry.kinds).tolist():
        used = np.zeros(geometry.point_count, bool)
        used[geometry.vertex_points[geometry.corners[kind_of_corner == kind]]] = True
        yield kind, used


def _points(geometry: Geometry, chosen: Array | None, record: dict[str, Any]) -> Points:
    rows = None if chosen is None else np.flatnonzero(chosen)
    points = Points(rows_of(_positions(geometry, record), rows))
    ChannelTaker(geometry, points, record).take({"point": rows, "detail": None})
    return points


def _mesh(
    geometry: Geometry,
    type_name: str,
    chosen: Array,
    record: dict[str, Any],
    *,
    keeps_points: bool = False,
) -> Mesh:
    every = bool(chosen.all())
    primitives = None if every else np.flatnonzero(chosen)
    sizes = rows_of(np.diff(geometry.offsets), primitives)
    in_chosen = np.repeat(chosen, np.diff(geometry.offsets))
    corners = geometry.corners if every else geometry.corners[in_chosen]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if type_name == "surface":
        corners = corners[_turned(offsets)]
    points = geometry.vertex_points[corners]
    if type_name in ("curves", "wireframe"):
        rows = points if type_name == "curves" else None
        if rows is not None and np.array_equal(rows, np.arange(geometry.point_count)):
            rows = None
    elif keeps_points:
        rows = None
    else:
        rows, points = np.unique(points, return_inverse=True)
    positions = rows_of(_positions(geometry, record), rows)
    mesh: Mesh
    if type_name == "curves":
        closed = rows_of(geometry.kinds, primitives) == POLYGON
        mesh = Curves(positions, offsets, closed)
    elif type_name == "wireframe":
        mesh = Wireframe(positions, points.reshape(-1, 2))
    elif type_name == "surface":
        mesh = Surface(positions, offsets, points)
    else:
        mesh = Body(positions, points.reshape(-1, 4))
        if record.get("type") != "body" and float(mesh.volumes().sum()) < 0.0:
            turn = np.arange(len(corners)).reshape(-1, 4)[:, [0, 1, 3, 2]].reshape(-1)
            corners, points = corners[turn], points[turn]
            mesh = Body(positions, points.reshape(-1, 4))
    if np.array_equal(corners, np.arange(len(geometry.vertex_points))):
        corners = None
    chosen_rows = {"point": rows, "vertex": corners, "primitive": primitives, "detail": None}
    ChannelTaker(geometry, mesh, record).take(chosen_rows)
    return mesh


def _positions(geometry: Geometry, record: dict[str, Any]) -> Array:
    positions = geometry.positions()
    kind = record.get("positions", positions.dtype.name)
    wanted = kind if kind in ("float32", "float64") else "float32"
    return np.asarray(positions, wanted)


def _turned(offsets: Array) -> Array:
    """The order of corners in which each face runs the other way round, from the same corner."""
    sizes = np.diff(offsets)
    first = np.repeat(offsets[:-1], sizes)
    size = np.repeat(sizes, sizes)
    place = np.arange(int(offsets[-1])) - first
    return np.asarray(first + np.where(place == 0, 0, size - place))


def _wireframe(curves: Curves) -> Wireframe:
    """Edges of polylines; points at the same place stay apart."""
    wireframe = Wireframe(curves.positions, curves.edges())
    for location in ("point", "detail"):
        channels = curves.channels[location]
        for name, values in channels.items():
            wireframe.channels[location].set(name, values, transform=channels.transform_of(name))
    return wireframe


# -- out of Loki ---------------------------------------------------------------------------------


def geometry_of(stream: Any, *, single: bool = False) -> Geometry:
    """Return a stream as geometry.

    Args:
        single: Whether doubles become single precision, which is what most of Houdini works in.
    """
    if isinstance(stream, Voxels):
        return geometry_of_voxels(stream)
    geometry = Geometry(point_count=stream.point_count)
    order = _add_primitives(geometry, stream)
    positions = stream.positions
    kind = np.float32 if single else positions.dtype
    geometry.attributes["point"]["P"] = Attribute(positions.astype(kind, copy=False), "point")
    AttributeGiver(geometry, stream, single=single).give(order)
    return geometry


def _add_primitives(geometry: Geometry, stream: Mesh) -> Array | None:
    """Add the primitives of a stream; returns which of its vertices each vertex is."""
    if isinstance(stream, Surface):
        order = _turned(stream.face_offsets.astype(np.int64))
        geometry.set_primitives(POLYGON, stream.face_sizes(), stream.face_vertices[order])
        return order
    if isinstance(stream, Curves):
        geometry.set_primitives(
            POLYLINE, np.diff(stream.offsets), np.arange(stream.point_count, dtype=np.int64)
        )
        geometry.kinds = np.where(stream.closed, POLYGON, POLYLINE).astype(np.uint8)
    elif isinstance(stream, Wireframe):
        edges = stream.edge_points
        geometry.set_primitives(POLYLINE, np.full(len(edges), 2), edges.reshape(-1))
    elif isinstance(stream, Body):
        tetrahedra = stream.tetrahedra
        geometry.set_primitives(TETRAHEDRON, np.full(len(tetrahedra), 4), tetrahedra.reshape(-1))
    return None


OUTPUT = "loki_output"
"""The text attribute of points and primitives that says of which output they are."""


def merged(parts: Sequence[tuple[str, Geometry]]) -> Geometry:
    """Return one geometry of several; the attribute `loki_output` tells them apart.

    An attribute that one of them lacks is zero there. What each was made of is not recorded.
    """
    from loki_vfx.serialization.houdini_packed import concatenated

    if len(parts) == 1:
        return parts[0][1]
    named = []
    for name, geometry in parts:
        for owner in ("point", "primitive"):
            index = np.zeros(geometry.count(owner), np.int32)
            geometry.attributes[owner][OUTPUT] = Attribute(index, "", [name])
        geometry.attributes["detail"].pop(RECORD, None)
        named.append(geometry)
    return concatenated(named)
