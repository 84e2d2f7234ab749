"""Host to Loki: objects of a scene as streams, in world space.

    mesh with faces         Surface       vertex groups are float point channels
    mesh of edges only      Wireframe
    mesh of vertices only   Points
    hair curves, curves     Curves        Bezier and NURBS as the points that are drawn
    point cloud             Points
    volume                  Voxels        from its VDB file of the frame
    empty                   Points        one, with its axes, and its force field as details

Geometry is read as it is evaluated, with modifiers, shape keys and instances.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import bpy
import numpy as np

from loki_core.data.mesh import Mesh, merge, merge_streams, stream_type
from loki_core.errors import InputError, LokiError
from loki_graph.sockets import SOCKET_TYPES, fits

from .attributes import Remarks
from .axes import Axes, Placement
from .datablock_streams import datablock_stream
from .details import Detail, read_details, set_details
from .empties import empty_stream
from .geometry_parts import GEOMETRY_TYPES, Matrices, Part, parts_of
from .stream_memory import Record, record_of, remember_types, types_of
from .vertex_groups import vertex_weights
from .volume_files import read_volume

OBJECT_INDEX, OBJECT_NAMES = "object_index", "object_names"

_NO_DETAILS = "volumes have no detail channels"
_WIDEST = ("surface", "curves", "wireframe", "points")  # of several kinds the first is taken
_REMEDIES = {
    "surface": "give it faces",
    "wireframe": "give it edges",
    "curves": "convert it to hair curves, or add a Curves From Mesh node",
    "points": "choose an object with points",
    "body": "Blender has no tetrahedra: make them from a surface in the graph",
    "voxels": "choose a volume, or add a Volume From Mesh node",
}


def stream_of(
    source: bpy.types.Object,
    depsgraph: bpy.types.Depsgraph,
    axes: Axes,
    *,
    wanted: str = "any",
    details: Mapping[str, Detail] | None = None,
    remarks: Remarks | None = None,
) -> Any:
    """Return an object as a stream.

    Args:
        wanted: The socket type that it is for; a surface also gives its points, for example.
        details: Values for the whole object, which become detail channels.
        remarks: Takes a sentence for everything that could not be carried.

    Raises:
        InputError: The object cannot be given as what is wanted.
    """
    found: Remarks = []
    label = f'object "{source.name}"'
    try:
        stream = _stream(source, depsgraph, axes, wanted, found, label)
    except LokiError as error:
        raise InputError(str(error) if label in str(error) else f"{label}: {error}") from error
    if isinstance(stream, Mesh):
        set_details(stream, details or {}, label=label)
    elif details:
        found.append(f"not carried: {', '.join(details)}; {_NO_DETAILS}")
    if remarks is not None:
        remarks += [f"{label}: {remark}" for remark in found]
    return stream


def streams_of(
    sources: Iterable[bpy.types.Object | bpy.types.Collection],
    depsgraph: bpy.types.Depsgraph,
    axes: Axes,
    *,
    wanted: str = "any",
    details: Mapping[str, Detail] | None = None,
    own_details: Callable[[bpy.types.Object], Mapping[str, Detail]] | None = None,
    remarks: Remarks | None = None,
) -> Any:
    """Return several objects, and those in collections, as one stream.

    The detail channel "object_names" lists them (as JSON). Where there are several, the primitive
    channel "object_index" (on points, where there are no primitives) tells which one it is from.

    Args:
        wanted: The socket type that it is for.
        details: Values for the whole stream, which become detail channels.
        own_details: Returns values for one object. Where objects differ, these become channels of
            their primitives (points).
        remarks: Takes a sentence for everything that could not be carried.

    Raises:
        InputError: There is no object, or one cannot be given as what is wanted.
    """
    objects = _members(sources)
    if not objects:
        raise InputError("there is no object to read: choose one, or fill the collection")
    streams = [stream_of(o, depsgraph, axes, wanted=wanted, remarks=remarks) for o in objects]
    types = {stream.type_name for stream in streams}
    if len(types) > 1:
        shown = ", ".join(f'"{o.name}" {s.type_name}' for o, s in zip(objects, streams))
        raise InputError(f"objects of several kinds cannot be one stream: {shown}")
    if types == {"voxels"}:
        if remarks is not None and details:
            remarks.append(f"not carried: {', '.join(details)}; {_NO_DETAILS}")
        return merge_streams(streams)
    if own_details is not None:
        _set_own_details(objects, streams, [own_details(one) for one in objects])
    merged = streams[0]
    if len(streams) > 1:
        place = _narrow_place(streams[0])
        for index, stream in enumerate(streams):
            values = np.full(stream.count(place), index, np.int32)
            stream.set_channel(place, OBJECT_INDEX, values)
        merged = merge(streams)
        for stream in streams[1:]:
            remember_types(merged, types_of(stream) | types_of(merged))
    names = json.dumps([one.name for one in objects], ensure_ascii=False)
    set_details(merged, {OBJECT_NAMES: names, **(details or {})}, label="details")
    return merged


def _members(sources: Iterable[Any]) -> list[Any]:
    """Return the objects, and those in collections that can be read, each once."""
    found: dict[str, Any] = {}
    for source in sources:
        if isinstance(source, bpy.types.Collection):
            readable = (one for one in source.all_objects if one.type in READABLE_TYPES)
            found |= {one.name_full: one for one in readable}
        else:
            found[source.name_full] = source
    return list(found.values())


READABLE_TYPES = GEOMETRY_TYPES | {"VOLUME", "EMPTY"}


def _set_own_details(
    objects: Sequence[Any], streams: Sequence[Mesh], own: Sequence[Mapping[str, Detail]]
) -> None:
    for name in dict.fromkeys(name for one in own for name in one):
        lacking = [o.name for o, one in zip(objects, own, strict=True) if name not in one]
        if lacking:
            raise InputError(
                f'"{name}" is given for some of the objects and not for "{lacking[0]}": give it '
                "for all that go into one stream"
            )
        values = [np.asarray(one[name]) for one in own]
        place = _narrow_place(streams[0])
        if all(np.array_equal(value, values[0]) for value in values):
            place = "detail"
        for stream, value in zip(streams, values, strict=True):
            count = stream.count(place)
            stream.set_channel(place, name, np.broadcast_to(value, (count, *value.shape)))


def _narrow_place(stream: Mesh) -> str:
    return "point" if stream.type_name == "points" else "primitive"


def _stream(
    source: Any, depsgraph: Any, axes: Axes, wanted: str, remarks: Remarks, label: str
) -> Any:
    if wanted not in SOCKET_TYPES:
        raise InputError(f'there is no stream type "{wanted}"; known: {", ".join(SOCKET_TYPES)}')
    if source.type not in READABLE_TYPES:
        raise InputError(f"{label} is a {source.type}, which has no geometry to simulate")
    evaluated = source.evaluated_get(depsgraph)
    is_there = source.name in depsgraph.view_layer.objects and not source.hide_viewport
    if not is_there or not evaluated.is_evaluated:
        raise InputError(
            f"{label} is not part of the view layer, or disabled in viewports (the screen icon): "
            "enable it; hiding it with the eye icon is fine"
        )
    if source.type == "VOLUME":
        _check_kind(fits("voxels", wanted), "voxels", wanted, label)
        return read_volume(evaluated, axes)
    if source.type == "EMPTY":
        _check_kind(fits("points", wanted), "points", wanted, label)
        return empty_stream(evaluated, axes)
    if source.type == "MESH" and source.mode == "EDIT":
        return _edited_mesh(evaluated, depsgraph, axes, wanted, remarks, label)
    record = record_of(source.data)
    stream = _geometry(parts_of(evaluated), axes, wanted, remarks, label, record)
    read_details(source.data, record, stream)
    return stream


def _edited_mesh(
    evaluated: Any, depsgraph: Any, axes: Axes, wanted: str, remarks: Remarks, label: str
) -> Mesh:
    """Read a mesh while it is edited, when its evaluated geometry has no attributes."""
    mesh = evaluated.to_mesh(preserve_all_data_layers=True, depsgraph=depsgraph)
    world = np.array(evaluated.matrix_world, np.float64)[np.newaxis]
    parts = [Part(mesh, world, bool(evaluated.vertex_groups), None)] if len(mesh.vertices) else []
    try:
        return _geometry(parts, axes, wanted, remarks, label, ())
    finally:
        evaluated.to_mesh_clear()


def _geometry(
    parts: Sequence[Part], axes: Axes, wanted: str, remarks: Remarks, label: str, record: Record
) -> Mesh:
    """Return the parts that fit what is wanted as one stream."""
    present = {part.stream_type for part in parts}
    kind = wanted
    if wanted in ("any", "mesh"):
        kind = next((one for one in _WIDEST if one in present), "points")
    chosen = [part for part in parts if _gives(part.stream_type, kind)]
    if not chosen:
        _check_kind(not parts and kind not in ("body", "voxels"), "/".join(present), kind, label)
        return _nothing(kind)
    others = sorted(present - {part.stream_type for part in chosen})
    if others:
        remarks.append(f"not carried: its {' and '.join(others)}, beside a {kind} stream")
    streams = [
        _placed(part, matrices, kind, axes, remarks, record, mirrored=mirrored)
        for part in chosen
        for mirrored in (False, True)
        if len(matrices := part.mirrored(mirrored))
    ]
    merged = streams[0] if len(streams) == 1 else merge(streams)
    for stream in streams[1:]:
        remember_types(merged, types_of(stream) | types_of(merged))
    return merged


def _gives(native: str, kind: str) -> bool:
    return kind in ("points", native) or (native == "surface" and kind == "wireframe")


def _check_kind(possible: bool, found: str, wanted: str, label: str) -> None:
    if not possible:
        found = found or "nothing"
        raise InputError(f"{label} gives {found}, and {wanted} is wanted: {_REMEDIES[wanted]}")


def _nothing(kind: str) -> Mesh:
    none = np.empty((0, 3), np.float32)
    topology = {"surface": ([0], []), "curves": ([0],), "wireframe": (np.empty((0, 2), int),)}
    return stream_type(kind)(none, *topology.get(kind, ()))


def _placed(
    part: Part,
    matrices: Matrices,
    kind: str,
    axes: Axes,
    remarks: Remarks,
    record: Record,
    *,
    mirrored: bool,
) -> Mesh:
    """Return a part as a stream, once for each of its places."""
    places = [axes.to_loki(matrix) for matrix in matrices]
    only = places[0] if len(places) == 1 else None
    stream = datablock_stream(
        part.data, kind, remarks, placement=only, record=record, mirrored=mirrored
    )
    if part.painted and isinstance(part.data, bpy.types.Mesh):
        for name, weights in vertex_weights(part.data).items():
            stream.set_channel("point", name, weights)
    if only is not None:
        return stream
    copies = merge([stream] * len(places))
    copies.positions = np.concatenate([place.points(stream.positions) for place in places])
    for location, channels in stream.channels.items():
        for name, values in channels.items():
            if location != "detail":
                _repeat(copies, location, name, values, channels.transform_of(name), places)
    return copies


def _repeat(
    copies: Mesh, location: str, name: str, values: Any, kind: str, places: Sequence[Placement]
) -> None:
    moved = [place.values(values, name=name, kind=kind) for place in places]
    copies.set_channel(location, name, np.concatenate(moved), transform=kind)
