"""Stream datablocks: streams as meshes and hair curves, whatever they were before.

Topology is written only where it has changed; positions and channels are written always.
"""

from __future__ import annotations

import zlib
from typing import Any

import bpy
import numpy as np
import numpy.typing as npt

from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError

from .attributes import EDGE, Remarks, read_attribute, write_attribute, write_channels
from .axes import Placement
from .datablock_streams import curve_offsets
from .stream_memory import types_of

Array = npt.NDArray[Any]

SHOWN = "loki_shown"
"""The custom property that tells the type of stream that is shown, and where its faces begin."""

CATMULL_ROM, POLY = 0, 1  # as Blender numbers the types of curves


def shown_type(data: bpy.types.ID) -> str:
    """Return the type of stream that a datablock was made of; empty if of none."""
    return str(data.get(SHOWN, "")).partition(" ")[0]


def write_mesh(mesh: bpy.types.Mesh, stream: Mesh, placement: Placement, remarks: Remarks) -> None:
    """Make a mesh show a surface, a wireframe or points; materials stay."""
    corner_edges = None
    if isinstance(stream, Surface):
        _set_faces(mesh, stream)
        if any(kind.startswith(EDGE) for kind in types_of(stream).values()):
            corner_edges = read_attribute(mesh, ".corner_edge")
    elif isinstance(stream, Wireframe):
        _set_edges(mesh, stream)
    elif len(mesh.vertices) != stream.point_count or len(mesh.edges):
        _set_counts(mesh, stream.point_count)
    write_attribute(mesh, "position", "FLOAT_VECTOR", "POINT", placement.points(stream.positions))
    write_channels(mesh, stream, remarks, placement=placement, corner_edges=corner_edges)
    if shown_type(mesh) != stream.type_name:
        mesh[SHOWN] = stream.type_name
    if stream.point_count:  # tells Blender that points have moved: bounds are found anew
        mesh.vertices[0].co = mesh.vertices[0].co
    mesh.update()


def _set_counts(
    mesh: bpy.types.Mesh, points: int, *, edges: int = 0, corners: int = 0, faces: int = 0
) -> None:
    mesh.clear_geometry()
    mesh.vertices.add(points)
    mesh.edges.add(edges)
    mesh.loops.add(corners)
    mesh.polygons.add(faces)


def _set_edges(mesh: bpy.types.Mesh, stream: Wireframe) -> None:
    counts = (len(mesh.vertices), len(mesh.edges), len(mesh.polygons))
    same = counts == (stream.point_count, stream.primitive_count, 0) and shown_type(mesh)
    if not same or not np.array_equal(read_attribute(mesh, ".edge_verts"), stream.edge_points):
        _set_counts(mesh, stream.point_count, edges=stream.primitive_count)
        write_attribute(mesh, ".edge_verts", "INT32_2D", "EDGE", stream.edge_points)


def _set_faces(mesh: bpy.types.Mesh, stream: Surface) -> None:
    """Give a mesh the faces of a stream, if it has not got them."""
    # Where faces begin is slow to read back: a checksum says whether they are the same.
    topology = f"surface {zlib.crc32(stream.face_offsets.tobytes()):08x}"
    points, corners, faces = stream.point_count, stream.vertex_count, stream.primitive_count
    same = (len(mesh.vertices), len(mesh.loops), len(mesh.polygons)) == (points, corners, faces)
    same = same and mesh.get(SHOWN) == topology
    if same and np.array_equal(read_attribute(mesh, ".corner_vert"), stream.face_vertices):
        return
    _set_counts(mesh, points, corners=corners, faces=faces)
    mesh.polygons.foreach_set("loop_start", stream.face_offsets[:-1])
    write_attribute(mesh, ".corner_vert", "INT", "CORNER", stream.face_vertices)
    mesh.update(calc_edges=True)
    mesh[SHOWN] = topology


def write_curves(
    curves: bpy.types.Curves, stream: Curves, placement: Placement, remarks: Remarks
) -> None:
    """Make hair curves show a stream; materials stay.

    Raises:
        InputError: A curve has no points.
    """
    sizes = np.diff(stream.offsets)
    if (sizes < 1).any():
        raise InputError(
            f"curve {int(np.argmin(sizes))} has no point, which Blender cannot show: remove it"
        )
    types = stream.channels["primitive"].get("curve_type", np.full(sizes.size, POLY))
    if not np.array_equal(curve_offsets(curves), stream.offsets):
        curves.remove_curves()
        if sizes.size:  # Blender crashes on an empty list
            curves.add_curves(sizes.tolist())
    write_attribute(curves, "position", "FLOAT_VECTOR", "POINT", placement.points(stream.positions))
    _set_curve_types(curves, types)  # after the positions: bounds are found anew by this call only
    if stream.closed.any() or "cyclic" in curves.attributes:
        write_attribute(curves, "cyclic", "BOOLEAN", "CURVE", stream.closed)
    write_channels(curves, stream, remarks, placement=placement)
    curves.update_tag()


def _set_curve_types(curves: bpy.types.Curves, types: Array) -> None:
    """Set the types of curves; Bezier and NURBS came as the points that were drawn of them."""
    smooth = np.flatnonzero(types == CATMULL_ROM)
    curves.set_types(type="POLY")
    if smooth.size:
        curves.set_types(type="CATMULL_ROM", indices=smooth.tolist())
