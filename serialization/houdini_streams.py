"""Houdini geometry and Loki's streams, each from the other.

Both are Y-up and in metres. What differs:

    v, N, Cd, pscale, accel          velocity, normal, color, radius, acceleration
    groups                           channels of bool
    texts of points and primitives   channels of whole numbers, and a table of the texts
    faces clockwise from outside     faces counter-clockwise
    any mixture in one geometry      a stream for each type of primitive

What a channel cannot say of its attribute (half precision, a quaternion, texts, a group) travels
with the stream as a detail text; what an attribute cannot say of its channel, with the geometry.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.data.body import Body
from loki_core.data.channels import CHANNEL_DTYPES, TRANSFORMS
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from serialization.houdini_geometry import (
    OWNERS,
    PACKED,
    POLYGON,
    POLYLINE,
    TETRAHEDRON,
    VDB,
    VOLUME,
    Attribute,
    Geometry,
)
from serialization.houdini_packed import unpacked
from serialization.houdini_voxels import geometry_of_voxels, voxels_of, voxels_of_vdbs

Array = npt.NDArray[Any]

CHANNEL_OF = {
    "v": "velocity", "N": "normal", "Cd": "color", "pscale": "radius", "accel": "acceleration",
}  # fmt: skip
ATTRIBUTE_OF = {channel: attribute for attribute, channel in CHANNEL_OF.items()}
HINTS = {"velocity": "vector", "normal": "normal", "color": "color", "orient": "quaternion"}
WIDER = {"int8": "int32", "int16": "int32", "float16": "float32"}
"""What holds the values of types that channels lack."""

TYPES = "houdini_types"
"""The detail channel of a stream that says of which attributes its channels are, as JSON."""

RECORD = "loki_stream"
"""The detail attribute of a geometry that says of which channels its attributes are, as JSON."""

KINDS = {POLYGON: "surface", POLYLINE: "curves", TETRAHEDRON: "body"}


# -- into Loki -----------------------------------------------------------------------------------


def streams_of(geometry: Geometry) -> dict[str, Any]:
    """Return a stream for each type of primitive that a geometry has, and for points without any.

    What could not be carried is added to the geometry's remarks.
    """
    if (geometry.kinds == PACKED).any():
        geometry = unpacked(geometry)
    record = _record_of(geometry)
    if record and not _is_as_written(geometry, record):
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
        return _points(geometry, None, _record_of(geometry))
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
    points = Points(_rows(_positions(geometry, record), rows))
    _Channels(geometry, points, record).take({"point": rows, "detail": None})
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
    sizes = _rows(np.diff(geometry.offsets), primitives)
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
    positions = _rows(_positions(geometry, record), rows)
    mesh: Mesh
    if type_name == "curves":
        closed = _rows(geometry.kinds, primitives) == POLYGON
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
    rows_of = {"point": rows, "vertex": corners, "primitive": primitives, "detail": None}
    _Channels(geometry, mesh, record).take(rows_of)
    return mesh


def _positions(geometry: Geometry, record: dict[str, Any]) -> Array:
    positions = geometry.positions()
    kind = record.get("positions", positions.dtype.name)
    wanted = kind if kind in ("float32", "float64") else "float32"
    return np.asarray(positions, wanted)


def _rows(values: Array, rows: Array | None) -> Array:
    return values if rows is None else values[rows]


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


class _Channels:
    """Gives a stream the attributes of a geometry."""

    def __init__(self, geometry: Geometry, stream: Mesh, record: dict[str, Any]) -> None:
        self.geometry, self.stream = geometry, stream
        self.types: dict[str, dict[str, Any]] = {}
        self.known = {
            (entry["location"], entry["attribute"], entry["group"]): entry
            for entry in record.get("channels", ())
        }

    def take(self, rows_of: dict[str, Array | None]) -> None:
        for owner, rows in rows_of.items():
            for name, attribute in self.geometry.attributes[owner].items():
                if (owner, name) == ("point", "P") or name == RECORD:
                    continue
                self._take_attribute(owner, name, attribute, rows)
            for name, flags in self.geometry.groups.get(owner, {}).items():
                self._take_group(owner, name, flags, rows)
        if self.types:
            self.stream.set_channel("detail", TYPES, json.dumps(self.types))

    def _take_attribute(self, owner: str, name: str, attribute: Attribute, rows: Any) -> None:
        values = _rows(attribute.values, rows)
        entry = self.known.get((owner, name, False))
        if entry is not None and self._take_known(owner, entry, attribute, values):
            return
        channel = CHANNEL_OF.get(name, name)
        if channel in self.stream.channels[owner]:
            channel = f"houdini.{name}"
        note: dict[str, Any] = {"name": name}
        if attribute.texts is not None:
            if owner == "detail":
                self.stream.set_channel(owner, channel, attribute.as_texts()[0])
                return
            note["texts"] = attribute.texts
        if values.dtype.name in WIDER:
            note["storage"] = values.dtype.name
            values = values.astype(WIDER[values.dtype.name])
        if attribute.hint:
            note["hint"] = attribute.hint
        if attribute.hint == "matrix" and values.ndim == 2 and values.shape[1] == 9:
            values = values.reshape(-1, 3, 3)
        self.stream.set_channel(owner, channel, values, transform=_transform(attribute, values))
        usual = {"name": ATTRIBUTE_OF.get(channel, channel)}
        if channel in HINTS:
            usual["hint"] = HINTS[channel]
        if note != usual:
            self.types[f"{owner}:{channel}"] = note

    def _take_known(self, owner: str, entry: Any, attribute: Attribute, values: Array) -> bool:
        """Take back a channel as it was; False if the attribute is another one now."""
        if entry["dtype"] == "text" and owner == "detail" and attribute.texts is not None:
            self.stream.set_channel(owner, entry["name"], attribute.as_texts()[0])
            return True
        count = self.stream.count(owner)
        shape = (count, *entry["shape"])
        is_other = attribute.texts is not None or entry["dtype"] == "text"
        kinds = {"b": "biu", "u": "iu", "i": "iu", "f": "f"}
        if not is_other:
            is_other = values.dtype.kind not in kinds[np.dtype(entry["dtype"]).kind]
        if is_other or values.size != int(np.prod(shape)):
            return False
        restored = values.reshape(shape).astype(entry["dtype"])
        self.stream.set_channel(owner, entry["name"], restored, transform=entry["transform"])
        if entry["note"]:
            self.types[f"{owner}:{entry['name']}"] = entry["note"]
        return True

    def _take_group(self, owner: str, name: str, flags: Array, rows: Array | None) -> None:
        flags = _rows(flags, rows)
        entry = self.known.get((owner, name, True))
        if entry is not None:
            self.stream.set_channel(owner, entry["name"], flags)
            if entry["note"]:
                self.types[f"{owner}:{entry['name']}"] = entry["note"]
            return
        channel = name
        if channel in self.stream.channels[owner]:
            channel = f"group.{name}"
            self.types[f"{owner}:{channel}"] = {"name": name}
        self.stream.set_channel(owner, channel, flags)


def _transform(attribute: Attribute, values: Array) -> str | None:
    if values.dtype.kind != "f" or values.ndim != 2 or values.shape[1] != 3:
        return None
    return attribute.hint if attribute.hint in ("vector", "normal", "point") else None


def _record_of(geometry: Geometry) -> dict[str, Any]:
    """What is known of the channels that a geometry was made of."""
    stored = geometry.attributes["detail"].get(RECORD)
    if stored is None or stored.texts is None:
        return {}
    try:
        record = json.loads(stored.as_texts()[0])
    except ValueError:
        return {}  # a user changed it; attributes are taken as they are then
    if not isinstance(record, dict) or not isinstance(record.get("channels"), list):
        return {}
    return record | {"channels": [one for one in record["channels"] if _is_sound(one)]}


def _is_as_written(geometry: Geometry, record: dict[str, Any]) -> bool:
    """Whether a geometry still has the points, vertices and primitives that a record is of."""
    return bool(record.get("counts") == [geometry.count(owner) for owner in OWNERS[:3]])


def _is_sound(entry: Any) -> bool:
    """Whether an entry of a record is as it was written."""
    kinds = {"name": str, "attribute": str, "group": bool, "shape": list, "note": dict}
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(key), kind) for key, kind in kinds.items())
        and entry.get("location") in OWNERS
        and entry.get("dtype") in (*CHANNEL_DTYPES, "text")
        and entry.get("transform") in TRANSFORMS
        and all(type(size) is int and size > 0 for size in entry["shape"])
        and 0 < len(entry["name"]) <= 256
    )


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
    _Attributes(geometry, stream, single=single).give(order)
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


class _Attributes:
    """Gives a geometry the channels of a stream."""

    def __init__(self, geometry: Geometry, stream: Mesh, *, single: bool) -> None:
        self.geometry, self.stream, self.single = geometry, stream, single
        self.types = _types_of(stream)
        self.channels: list[dict[str, Any]] = []

    def give(self, vertex_order: Array | None) -> None:
        for location, channels in self.stream.channels.items():
            for name, values in channels.items():
                if location == "vertex" and vertex_order is not None:
                    values = values[vertex_order]
                if (location, name) != ("detail", TYPES):
                    self._give(location, name, values, channels.transform_of(name))
        record = {
            "type": self.stream.type_name,
            "positions": self.stream.positions.dtype.name,
            "counts": [self.geometry.count(owner) for owner in OWNERS[:3]],
            "channels": self.channels,
        }
        text = Attribute(np.zeros(1, np.int32), "", [json.dumps(record)])
        self.geometry.attributes["detail"][RECORD] = text

    def _give(self, location: str, name: str, values: Array, transform: str) -> None:
        note = self.types.get(f"{location}:{name}", {})
        wanted = _houdini_name(str(note.get("name", ATTRIBUTE_OF.get(name, name))))
        is_group = values.dtype == np.bool_ and values.ndim == 1 and location != "detail"
        taken = self.geometry.groups[location] if is_group else self.geometry.attributes[location]
        others = (f"{wanted}_{number}" for number in itertools.count(2))
        attribute = next(one for one in itertools.chain([wanted], others) if one not in taken)
        entry = {
            "location": location,
            "name": name,
            "attribute": attribute,
            "group": is_group,
            "dtype": "text" if values.dtype.kind == "U" else values.dtype.name,
            "shape": list(values.shape[1:]),
            "transform": transform,
            "note": note,
        }
        if is_group:
            self.geometry.groups[location][attribute] = values
        elif values.dtype.kind == "U":
            text = Attribute(np.zeros(1, np.int32), "", [str(values[0])])
            self.geometry.attributes[location][attribute] = text
        else:
            self.geometry.attributes[location][attribute] = self._attribute(
                name, values, transform, note
            )
        if "texts" not in note and "storage" not in note:
            self.channels.append(entry)

    def _attribute(
        self, name: str, values: Array, transform: str, note: dict[str, Any]
    ) -> Attribute:
        texts = note.get("texts")
        if texts is not None and values.dtype.kind in "iu" and values.ndim == 1:
            inside = np.where((values >= 0) & (values < len(texts)), values, -1)
            return Attribute(inside.astype(np.int32), "", [str(text) for text in texts])
        hint = str(note.get("hint", HINTS.get(name, "" if transform == "none" else transform)))
        flat = values.reshape(len(values), int(np.prod(values.shape[1:])))
        flat = flat if values.ndim > 1 else values
        if values.ndim == 3:
            hint = hint or "matrix"
        if values.dtype == np.bool_:
            flat = flat.astype(np.int8)
        elif "storage" in note:
            flat = flat.astype(note["storage"])
        elif self.single and values.dtype == np.float64:
            flat = flat.astype(np.float32)
        return Attribute(np.ascontiguousarray(flat), hint)


def _houdini_name(name: str) -> str:
    """What Houdini can call an attribute or a group: letters, digits and underscores."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{plain}" if plain[:1].isdigit() else plain


def _types_of(stream: Mesh) -> dict[str, dict[str, Any]]:
    details = stream.channels["detail"]
    if TYPES not in details:
        return {}
    try:
        known = json.loads(str(details[TYPES][0]))
        return {str(key): dict(note) for key, note in known.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f'detail channel "{TYPES}" is no map of attributes, which is what this name is for: '
            "rename it"
        ) from error


OUTPUT = "loki_output"
"""The text attribute of points and primitives that says of which output they are."""


def merged(parts: Sequence[tuple[str, Geometry]]) -> Geometry:
    """Return one geometry of several; the attribute `loki_output` tells them apart.

    An attribute that one of them lacks is zero there. What each was made of is not recorded.
    """
    from serialization.houdini_packed import concatenated

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
