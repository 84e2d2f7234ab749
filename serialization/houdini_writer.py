"""Houdini writer: the document of a geometry, in the forms of Houdini 18.5."""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.errors import FormatError
from loki_vfx.serialization.houdini_geometry import (
    OWNERS,
    PAGE,
    POLYGON,
    POLYLINE,
    STORAGES,
    TETRAHEDRON,
    VOLUME,
    Array,
    Attribute,
    Geometry,
)
from loki_vfx.serialization.houdini_packed import selected
from loki_vfx.serialization.houdini_volume import volume_document

FILE_VERSION = "18.5.408"  # whose files the forms that are written are known from
STORAGE_OF = {np.dtype(dtype): name for name, dtype in STORAGES.items()}


def document_of(geometry: Geometry) -> list[Any]:
    """Return the document of a geometry."""
    if not np.array_equal(geometry.corners, np.arange(len(geometry.vertex_points))):
        everything = np.ones(len(geometry.kinds), bool)
        geometry = selected(geometry, everything, points=np.ones(geometry.point_count, bool))
    attributes: list[Any] = []
    for owner in ("vertex", "point", "primitive", "detail"):
        items = [_attribute_document(n, a) for n, a in geometry.attributes[owner].items()]
        if items:
            attributes += ["globalattributes" if owner == "detail" else f"{owner}attributes", items]
    document = [
        "fileversion", FILE_VERSION,
        "hasindex", False,
        "pointcount", geometry.point_count,
        "vertexcount", len(geometry.vertex_points),
        "primitivecount", len(geometry.kinds),
        "info", {"software": "Loki"},
        "topology", ["pointref", ["indices", geometry.vertex_points.astype(np.int32)]],
        "attributes", attributes,
        "primitives", _primitive_documents(geometry),
    ]  # fmt: skip
    for owner in OWNERS[:3]:
        groups = geometry.groups[owner]
        if groups:
            document += [f"{owner}groups", [_group_document(n, f) for n, f in groups.items()]]
    return document


def _attribute_document(name: str, attribute: Attribute) -> list[Any]:
    options = {"type": {"type": "string", "value": attribute.hint}} if attribute.hint else {}
    kind = "numeric" if attribute.texts is None else "string"
    head = ["scope", "public", "type", kind, "name", name, "options", options]
    shape = attribute.values.shape
    flat = attribute.values.reshape(shape[0], int(np.prod(shape[1:])))
    size, storage = flat.shape[1], STORAGE_OF[flat.dtype]
    pages = ["size", size, "storage", storage, "pagesize", PAGE, "rawpagedata", flat.reshape(-1)]
    if attribute.texts is not None:
        return [head, ["size", 1, "storage", "int32", "strings", attribute.texts, "indices", pages]]
    last = 1.0 if attribute.hint == "quaternion" else 0.0
    whole = flat.dtype.kind in "iu"
    nothing = np.zeros(1, np.int64) if whole else np.zeros(4 if last else 1)
    if last:
        nothing[-1] = last
    default = ["size", len(nothing), "storage", "int64" if whole else "fpreal64", "values", nothing]
    return [head, ["size", size, "storage", storage, "defaults", default, "values", pages]]


def _primitive_documents(geometry: Geometry) -> list[Any]:
    kinds, found = geometry.kinds, []
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(kinds)) + 1, [len(kinds)]])
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        if begin == end:
            continue
        corners = geometry.corners[geometry.offsets[begin] : geometry.offsets[end]]
        first = int(corners[0]) if len(corners) else 0
        kind = int(kinds[begin])
        if kind in (POLYGON, POLYLINE):
            sizes = np.diff(geometry.offsets[begin : end + 1])
            same = np.concatenate([[0], np.flatnonzero(np.diff(sizes)) + 1, [len(sizes)]])
            encoded = np.stack([sizes[same[:-1]], np.diff(same)], axis=1).astype(np.int32)
            values = ["s_v", first, "n_p", end - begin, "r_v", encoded.reshape(-1)]
            found.append([["type", "p_r" if kind == POLYGON else "c_r"], values])
        elif kind == TETRAHEDRON:
            values = ["startvertex", first, "nprimitives", end - begin]
            found.append([["type", "Tetrahedron_run"], values])
        elif kind == VOLUME:
            for number in range(begin, end):
                vertex = int(geometry.corners[geometry.offsets[number]])
                values = volume_document(geometry.volumes[number], vertex)
                found.append([["type", "Volume"], values])
        else:
            raise FormatError("primitives of a type that could not be read cannot be written")
    return found


def _group_document(name: str, flags: Array) -> list[Any]:
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(flags)) + 1, [len(flags)]])
    encoded: list[Any] = []
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        if end > begin:
            encoded += [end - begin, bool(flags[begin])]
    return [["name", name], ["selection", ["unordered", ["boolRLE", encoded]]]]
