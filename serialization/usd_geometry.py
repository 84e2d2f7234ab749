"""What a mesh stream is in USD: schema, attributes and primvars, as arrays; USD is not touched.

    Surface, Body   Mesh          a Body by its boundary, on all its points
    Curves          BasisCurves   linear; closed curves in a prim of their own, which is periodic
    Wireframe       BasisCurves   a curve of two points for each edge
    Points          Points

Channels that USD has an attribute for become that attribute, all others primvars.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from loki_core.data.body import Body
from loki_core.data.channels import LOCATIONS, Array
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe

CLOSED = "closed"
"""The part of a Curves stream that has closed curves: USD's wrap is one for each prim."""

COLOR_CHANNELS = ("Cd", "color")
INTERPOLATION = {
    "Mesh": ("vertex", "faceVarying", "uniform", "constant"),
    "BasisCurves": ("vertex", "vertex", "uniform", "constant"),
    "Points": ("vertex", "vertex", "uniform", "constant"),
}
"""USD's word for each of our locations, in the order of LOCATIONS."""

NOTHING = np.array([[1.0] * 3, [-1.0] * 3], np.float32) * np.finfo(np.float32).max
"""The extent of a prim without points, as USD computes it."""

Rows = dict[str, Array]


@dataclass(slots=True)
class Value:
    """An attribute's value at one frame.

    Attributes:
        array: [n], [n, k] or [n, 3, 3]; a detail text is [1].
        role: What the numbers are: "none", "point", "vector", "normal", "color" or "uv".
        interpolation: USD's word for where they live; "" where the schema says it.
    """

    array: Array
    role: str = "none"
    interpolation: str = ""


@dataclass(slots=True)
class Geometry:
    """One prim at one frame.

    Attributes:
        schema: "Mesh", "BasisCurves" or "Points".
        tokens: Attributes that never change, such as {"wrap": "periodic"}.
        attributes: Those of the schema, by USD's names.
        primvars: By channel name; a second channel of a name has its location appended.
    """

    schema: str
    tokens: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    primvars: dict[str, Value] = field(default_factory=dict)

    def byte_count(self) -> int:
        """Return the size of all values [bytes]."""
        values = (*self.attributes.values(), *self.primvars.values())
        return sum(value.array.nbytes for value in values)


def geometry_of(mesh: Mesh) -> dict[str, Geometry]:
    """Return the prims of a stream by part; the part of nearly all of them is ""."""
    if isinstance(mesh, Body):
        mesh = mesh.boundary_surface()
    if isinstance(mesh, Surface):
        topology = {
            "faceVertexCounts": Value(mesh.face_sizes()),
            "faceVertexIndices": Value(mesh.face_vertices),
        }
        return {"": _geometry(mesh, Geometry("Mesh", {"subdivisionScheme": "none"}, topology))}
    if isinstance(mesh, Curves):
        return _curves(mesh)
    if isinstance(mesh, Wireframe):
        sizes = np.full(mesh.primitive_count, 2, np.int32)
        return {"": _geometry(mesh, _linear(sizes, "nonperiodic"), _edge_rows(mesh))}
    return {"": _geometry(mesh, Geometry("Points"))}


def left_out_channels(mesh: Mesh) -> list[str]:
    """Return the channels that the geometry of a stream has no place for."""
    if not isinstance(mesh, Body):
        return []
    names = mesh.channel_names()
    return [f"{where} {name}" for where in ("vertex", "primitive") for name in names.get(where, ())]


def _curves(curves: Curves) -> dict[str, Geometry]:
    sizes = np.diff(curves.offsets)
    closed = curves.closed & (sizes > 2)  # two points that close are one segment
    if not closed.any():
        return {"": _geometry(curves, _linear(sizes, "nonperiodic"))}
    if closed.all():
        return {CLOSED: _geometry(curves, _linear(sizes, "periodic"))}
    parts = {}
    for part, chosen, wrap in (("", ~closed, "nonperiodic"), (CLOSED, closed, "periodic")):
        points = np.flatnonzero(np.repeat(chosen, sizes))
        rows = {"point": points, "vertex": points, "primitive": np.flatnonzero(chosen)}
        parts[part] = _geometry(curves, _linear(sizes[chosen], wrap), rows)
    return parts


def _linear(sizes: Array, wrap: str) -> Geometry:
    tokens = {"type": "linear", "wrap": wrap}
    return Geometry("BasisCurves", tokens, {"curveVertexCounts": Value(sizes)})


def _edge_rows(wireframe: Wireframe) -> Rows:
    return {"point": wireframe.edge_points.reshape(-1)}


def _geometry(mesh: Mesh, geometry: Geometry, rows: Rows | None = None) -> Geometry:
    """Fill in positions and channels; `rows` chooses the elements of a location."""
    chosen = rows or {}

    def taken(location: str, values: Array) -> Array:
        return _narrowed(values[chosen[location]] if location in chosen else values)

    geometry.attributes["points"] = Value(taken("point", mesh.positions), "point")
    for location, interpolation in zip(LOCATIONS, INTERPOLATION[geometry.schema], strict=True):
        channels = mesh.channels[location]
        for name in sorted(channels):
            values = taken(location, channels[name])
            attribute = _schema_attribute(geometry.schema, location, name, values)
            if attribute and attribute not in geometry.attributes:
                geometry.attributes[attribute] = _attribute_value(attribute, values, interpolation)
                continue
            primvar, role = _primvar(location, name, values, channels.transform_of(name))
            if primvar in geometry.primvars:
                primvar = f"{name}_{location}"
            geometry.primvars[primvar] = Value(values, role, interpolation)
    _add_extent(geometry)
    return geometry


def _schema_attribute(schema: str, location: str, name: str, values: Array) -> str | None:
    """Return the attribute of the schema that a channel is, if any."""
    vector = values.dtype.kind == "f" and values.shape[1:] == (3,)
    if vector and location == "point" and name in ("velocity", "acceleration"):
        return "velocities" if name == "velocity" else "accelerations"
    if vector and schema == "Mesh" and location != "detail" and name == "normal":
        return "normals"  # on curves and points they would make ribbons and discs
    scalar = values.dtype.kind == "f" and values.ndim == 1
    if scalar and schema != "Mesh" and name == "radius":
        return "widths"
    whole = values.dtype.kind == "i" and values.ndim == 1
    if whole and schema == "Points" and location == "point" and name == "id":
        return "ids"
    return None


def _attribute_value(attribute: str, values: Array, interpolation: str) -> Value:
    if attribute == "widths":
        return Value(2.0 * values, interpolation=interpolation)
    if attribute == "normals":
        return Value(values, "normal", interpolation)
    if attribute == "ids":
        return Value(values.astype(np.int64))
    return Value(values, "vector")


def _primvar(location: str, name: str, values: Array, transform: str) -> tuple[str, str]:
    """Return name and role of the primvar that a channel becomes."""
    real = values.dtype.kind == "f"
    if real and name in COLOR_CHANNELS and values.shape[1:] == (3,):
        return "displayColor", "color"
    if real and name == "uv" and values.shape[1:] == (2,) and location in ("point", "vertex"):
        return "st", "uv"
    return name, transform


def _add_extent(geometry: Geometry) -> None:
    points = geometry.attributes["points"].array
    widths = geometry.attributes.get("widths")
    corners = NOTHING
    if len(points):
        reach = 0.0 if widths is None else 0.5 * float(widths.array.max(initial=0.0))
        corners = np.stack([points.min(axis=0) - reach, points.max(axis=0) + reach])
    geometry.attributes["extent"] = Value(corners.astype(np.float32, copy=False))


def _narrowed(values: Array) -> Array:
    """Return values in the types that readers of USD know best: float32, int32, bool, text.

    Whole numbers that need 64 bits keep them, though Blender leaves such a primvar out.
    """
    if values.dtype == np.float64:
        return values.astype(np.float32)
    if values.dtype == np.uint8:
        return values.astype(np.int32)
    if values.dtype == np.int64:
        limits = np.iinfo(np.int32)
        if values.min(initial=0) >= limits.min and values.max(initial=0) <= limits.max:
            return values.astype(np.int32)
    return values
