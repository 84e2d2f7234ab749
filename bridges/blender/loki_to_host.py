"""Loki to host: streams as objects of a scene, in world space, frame after frame.

    Surface     mesh          its topology may change each frame
    Wireframe   mesh of edges
    Points      mesh of vertices, drawn as spheres
    Body        mesh of its boundary
    Curves      hair curves
    Voxels      volume on a sequence of VDB files (`show_volume`)

While the topology stays, attributes alone are written. Cycles blurs motion by the attribute
"velocity", in scene units per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import bpy
import numpy as np

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.errors import InputError

from .attributes import Remarks
from .axes import Axes
from .points_display import DEFAULT_RADIUS, draw_as_mesh, draw_as_points, follow_material
from .result_objects import result_object, stand
from .stream_datablocks import shown_type, write_curves, write_mesh
from .volume_files import VELOCITY, name_for_blender, volume_matrix, volume_path


def show(
    stream: Mesh,
    name: str,
    axes: Axes,
    *,
    target: bpy.types.Object | None = None,
    collection: bpy.types.Collection | None = None,
    remarks: Remarks | None = None,
) -> bpy.types.Object:
    """Let an object show a stream, and return it.

    An object of the wrong type is replaced by a new one of the same name, in the same places and
    with the same materials. Without a parent it stands at the origin, since results are in world
    space; with one it is left to its parent.

    Args:
        name: Of a new object.
        target: The object to be updated; None makes a new one.
        collection: Where a new object goes; None is the active one.
        remarks: Takes a sentence for everything that could not be carried.

    Raises:
        InputError: The stream is of voxels, or the object cannot be written to.
    """
    if not isinstance(stream, Mesh):
        raise InputError(f"{name}: a stream of {stream.type_name} is shown by show_volume")
    found: Remarks = []
    if isinstance(stream, Body):
        stream = _boundary(stream, found)
    kind = "CURVES" if isinstance(stream, Curves) else "MESH"
    holder = result_object(name, kind, target, collection)
    before = shown_type(holder.data)
    if isinstance(stream, Curves):
        write_curves(holder.data, stream, axes.to_blender(), found)
    else:
        write_mesh(holder.data, stream, axes.to_blender(), found)
    if stream.type_name != before:
        draw_as_mesh(holder)
        if stream.type_name == "points":
            draw_as_points(holder, radius=DEFAULT_RADIUS / axes.unit_scale)
    follow_material(holder)
    stand(holder, np.eye(4))
    if remarks is not None:
        remarks += [f'object "{holder.name}": {remark}' for remark in found]
    return holder


def show_volume(
    folder: Path,
    name: str,
    frames: Sequence[int],
    axes: Axes,
    *,
    label: str | None = None,
    frame: int | None = None,
    is_held: bool = False,
    target: bpy.types.Object | None = None,
    collection: bpy.types.Collection | None = None,
) -> bpy.types.Object:
    """Let an object show the VDB files that `write_volume` made, each at its frame.

    Args:
        frames: The frames that are there, in order; the ends are held.
        label: Of a new object; None takes `name`.
        frame: The frame that is shown next. If its file was written again since Blender has read
            it, Blender is given another name of the file: it never looks at a path twice.
        is_held: Show that frame alone, whatever the time is.
        target: The object to be updated; None makes a new one.
        collection: Where a new object goes; None is the active one.
    """
    holder = result_object(label or name, "VOLUME", target, collection)
    volume = holder.data
    path = volume_path(folder, name, frames[0])
    alone = None if frame is None else _file_alone(volume_path(folder, name, frame), is_held)
    settings = {
        "filepath": _relative(alone or path),
        "is_sequence": alone is None,
        "frame_start": frames[0],
        "frame_duration": frames[-1] - frames[0] + 1,
        "frame_offset": frames[0] - 1,
        "sequence_mode": "EXTEND",
        "velocity_grid": VELOCITY,
        "velocity_unit": "SECOND",
    }
    for key, value in settings.items():
        if getattr(volume, key) != value:
            setattr(volume, key, value)
    stand(holder, volume_matrix(axes))
    return holder


def _file_alone(path: Path, is_held: bool) -> Path | None:
    """Return the file that is shown in place of the sequence; None for the sequence."""
    again = name_for_blender(path)
    return path if again is None and is_held else again


def _boundary(body: Body, remarks: Remarks) -> Surface:
    for location in ("vertex", "primitive"):
        if body.channels[location]:
            names = ", ".join(body.channels[location])
            remarks.append(f"not carried: {names}; a body is shown by its boundary faces")
    return body.boundary_surface()


def _relative(path: Path) -> str:
    """Return a path as a file keeps it: relative to it, so that both can be moved together."""
    return str(bpy.path.relpath(str(path)) if bpy.data.filepath else path)
