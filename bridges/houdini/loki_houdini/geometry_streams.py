"""Geometry of nodes and Loki's streams, each from the other.

Everything but VDBs moves in one call, in Houdini's binary geometry format, which `serialization`
reads and writes without Houdini. Where a result has the points of the node's first input, they can
be moved instead, by a call for each attribute: all else that Houdini knows of them stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hou
import numpy as np
import numpy.typing as npt

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_vfx.serialization.houdini_files import read_bytes, write_bytes
from loki_vfx.serialization.houdini_geometry import Attribute, Geometry
from loki_vfx.serialization.houdini_streams import OUTPUT, geometry_of, merged, stream_of

from .node_outputs import chosen, keep_attributes
from .vdb_primitives import read_vdbs

MARK = "loki_input"
"""The detail attribute by which Host to Loki says for which input its geometry is."""

FLOATS = {"float16": "Float16", "float32": "Float32", "float64": "Float64"}
INTS = {"int8": "Int8", "uint8": "UInt8", "int16": "Int16", "int32": "Int32", "int64": "Int64"}


def read_stream(
    geometry: hou.Geometry, kind: str, label: str, *, group: str = "", attributes: str = "*"
) -> tuple[Any, list[str]]:
    """Return the stream of a node's geometry, and what could not be carried.

    Args:
        kind: Type of stream that is expected, or "any".
        label: What errors call it.
        group: Pattern of the groups that are taken; empty is all.
        attributes: Pattern of the attributes and groups that are carried.

    Raises:
        InputError: It has no primitives of that type, or of several types.
    """
    found = read_bytes(geometry.data())
    read_vdbs(geometry, found)
    found = chosen(found, group)
    keep_attributes(found, attributes)
    for mark in (MARK, OUTPUT):  # which are of the nodes, not of the stream
        found.attributes["detail"].pop(mark, None)
    stream = stream_of(found, kind, label=label)
    return stream, [f"{label}: {remark}" for remark in found.remarks]


def write_streams(
    geometry: hou.Geometry, streams: Mapping[str, Any], *, single: bool = True
) -> list[str]:
    """Show streams in a node's geometry; returns what could not be carried.

    Args:
        streams: By the name that the attribute `loki_output` says: of points and primitives if
            there are several, else of the detail.
        single: Whether doubles become single precision.
    """
    parts = [(name, geometry_of(stream, single=single)) for name, stream in streams.items()]
    remarks = [f"{name}: {remark}" for name, part in parts for remark in part.remarks]
    if len(parts) == 1:
        name, part = parts[0]
        part.attributes["detail"][OUTPUT] = Attribute(np.zeros(1, np.int32), "", [name])
    geometry.load(write_bytes(merged(parts) if parts else Geometry()))
    return remarks


def move_points(geometry: hou.Geometry, stream: Any, *, single: bool = True) -> None:
    """Give the points of a node's geometry the positions and point attributes of a stream.

    Raises:
        InputError: It has another number of points.
    """
    if isinstance(stream, Voxels):
        raise InputError("points are moved by points and meshes; the result is a field")
    wanted = geometry_of(stream, single=single)
    if geometry.pointCount() != wanted.point_count:
        raise InputError(
            f"the first input has {geometry.pointCount()} points and the result "
            f"{wanted.point_count}; turn Move Points of First Input off"
        )
    order = _order_of_input(geometry, wanted) if isinstance(stream, Points) else None
    for name, attribute in wanted.attributes["point"].items():
        if name == "id" and geometry.findPointAttrib("id") is not None:
            continue  # the points keep their own
        values = attribute.values if order is None else attribute.values[order]
        _set_points(geometry, name, Attribute(values, attribute.hint, attribute.texts))


def _order_of_input(geometry: hou.Geometry, wanted: Geometry) -> npt.NDArray[np.intp] | None:
    """Particles are sorted by place; their ids are the numbers of the points they began as.

    Raises:
        InputError: Some of them began as something else.
    """
    ids = wanted.attributes["point"].get("id")
    if ids is None or ids.values.dtype.kind not in "iu" or ids.values.ndim != 1:
        return None
    own = geometry.findPointAttrib("id")
    if own is not None and own.size() == 1 and own.dataType() == hou.attribData.Int:
        stored = geometry.pointIntAttribValuesAsString("id", hou.numericData.Int64)
        if np.array_equal(np.frombuffer(stored, np.int64), ids.values):
            return None  # they were carried through as they are
    order = np.argsort(ids.values, kind="stable")
    if not np.array_equal(ids.values[order], np.arange(len(order))):
        raise InputError(
            "the result has particles that came later, in the place of others: turn Move Points "
            "of First Input off"
        )
    return order


def _set_points(geometry: hou.Geometry, name: str, attribute: Attribute) -> None:
    values = np.ascontiguousarray(attribute.values)
    flat = values.reshape(len(values), int(np.prod(values.shape[1:])))
    size, kind = flat.shape[1], values.dtype.name
    if attribute.texts is not None:
        _add(geometry, name, "", 1)
        geometry.setPointStringAttribValues(name, tuple(attribute.as_texts()))
    elif kind in FLOATS:
        _add(geometry, name, 0.0, size)
        as_type = getattr(hou.numericData, FLOATS[kind])
        geometry.setPointFloatAttribValuesFromString(name, flat.tobytes(), as_type)
    else:
        _add(geometry, name, 0, size)
        as_type = getattr(hou.numericData, INTS[kind])
        geometry.setPointIntAttribValuesFromString(name, flat.tobytes(), as_type)


def _add(geometry: hou.Geometry, name: str, default: Any, size: int) -> None:
    """Add a point attribute where there is none."""
    found = geometry.findPointAttrib(name)
    if found is not None and found.size() != size:
        raise InputError(f'the point attribute "{name}" has size {found.size()}; expected {size}')
    if found is None:
        value = default if size == 1 else (default,) * size
        geometry.addAttrib(hou.attribType.Point, name, value)
