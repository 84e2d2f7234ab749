"""Datablock streams: a mesh, hair curves or a point cloud as a stream."""

from __future__ import annotations

from typing import Any

import bpy
import numpy as np
import numpy.typing as npt

from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe

from .attributes import Remarks, read_attribute, read_channels
from .axes import Placement
from .compat import resample_as_drawn
from .scratch_scene import nodes_applied
from .stream_memory import Record

Indices = npt.NDArray[np.int32]

BEZIER = 2  # curve types from here on (NURBS is 3) have points that are not on the curve


def datablock_stream(
    data: bpy.types.ID,
    kind: str,
    remarks: Remarks,
    *,
    placement: Placement | None = None,
    record: Record = (),
    mirrored: bool = False,
) -> Mesh:
    """Return a datablock as a stream of type `kind`, with all attributes.

    Args:
        placement: What places and vectors go through; None leaves them as they are.
        record: The channels that the datablock was made of, if it was.
        mirrored: Whether faces are to be turned round.
    """
    if kind == "surface":
        return _surface(data, remarks, placement, record, mirrored=mirrored)
    if kind == "curves":
        return _curves(data, remarks, placement, record)
    positions = positions_of(data, placement)
    edges = read_attribute(data, ".edge_verts") if kind == "wireframe" else None
    stream = Points(positions) if edges is None else Wireframe(positions, edges)
    read_channels(data, stream, remarks, placement=placement, record=record)
    return stream


def positions_of(data: bpy.types.ID, placement: Placement | None) -> npt.NDArray[np.float32]:
    """Return the points of a datablock, shape [n, 3]; empty ones may lack the attribute."""
    if "position" not in data.attributes:
        return np.empty((0, 3), np.float32)
    values = read_attribute(data, "position")
    return values if placement is None else placement.points(values)


def face_offsets(mesh: bpy.types.Mesh) -> Indices:
    """Return where each face of a mesh begins among its corners, and where the last one ends."""
    faces, corners = len(mesh.polygons), len(mesh.loops)
    offsets = np.arange(0, 3 * faces + 1, 3, dtype=np.int32)
    if corners != 3 * faces:  # else all are triangles; the faces are the one slow call here
        mesh.polygons.foreach_get("loop_start", offsets[:-1])
        offsets[-1] = corners
    return offsets


def curve_offsets(curves: bpy.types.Curves) -> Indices:
    """Return where each curve begins among the points, and where the last one ends."""
    offsets = np.zeros(len(curves.curves) + 1, np.int32)
    if offsets.size > 1:  # there is nothing to read from a datablock without curves
        curves.curve_offset_data.foreach_get("value", offsets)
    return offsets


def _surface(
    mesh: bpy.types.Mesh,
    remarks: Remarks,
    placement: Placement | None,
    record: Record,
    *,
    mirrored: bool,
) -> Surface:
    offsets = face_offsets(mesh)
    corners = read_attribute(mesh, ".corner_vert")
    edges = read_attribute(mesh, ".corner_edge")
    order = None
    if mirrored:
        order, edge_order = reversed_corners(offsets)
        corners, edges = corners[order], edges[edge_order]
    used = np.zeros(len(mesh.edges), bool)
    used[edges] = True
    loose = int(used.size - np.count_nonzero(used))
    if loose:
        remarks.append(f"not carried: {loose} edges without faces; a surface has faces only")
    stream = Surface(positions_of(mesh, placement), offsets, corners)
    read_channels(
        mesh,
        stream,
        remarks,
        placement=placement,
        record=record,
        corner_order=order,
        corner_edges=edges,
    )
    return stream


def reversed_corners(offsets: Indices) -> tuple[Indices, Indices]:
    """Return the corners of faces that are turned round, and those at which their edges begin.

    The first corner stays: (a, b, c) becomes (a, c, b), whose edges were those of c, b and a.
    """
    sizes = np.diff(offsets)
    first, end = np.repeat(offsets[:-1], sizes), np.repeat(offsets[1:], sizes)
    backward = first + end - np.arange(offsets[-1], dtype=np.int32)
    return np.where(backward == end, first, backward), backward - 1


def _curves(
    curves: bpy.types.Curves, remarks: Remarks, placement: Placement | None, record: Record
) -> Curves:
    if _has_handles(curves):
        with nodes_applied(curves, _add_resampling) as geometry:
            return _curves(geometry.curves, remarks, placement, record)
    closed = read_attribute(curves, "cyclic") if "cyclic" in curves.attributes else None
    stream = Curves(positions_of(curves, placement), curve_offsets(curves), closed)
    read_channels(curves, stream, remarks, placement=placement, record=record)
    return stream


def _has_handles(curves: bpy.types.Curves) -> bool:
    if "curve_type" not in curves.attributes:
        return False
    return bool((read_attribute(curves, "curve_type") >= BEZIER).any())


def _add_resampling(holder: Any, tree: Any, geometry: Any) -> Any:
    """Let the points of curves be those that are drawn."""
    resample = tree.nodes.new("GeometryNodeResampleCurve")
    resample_as_drawn(resample)
    tree.links.new(geometry, resample.inputs["Curve"])
    return resample.outputs["Curve"]
