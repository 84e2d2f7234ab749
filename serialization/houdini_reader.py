"""Houdini reader: geometry of a document.

A document is a list of keys and values; so are most of its parts. Values of an attribute lie in
pages of 1,024 elements, and a page whose values are all the same may hold one of them. Forms that
are read: those of Houdini 17.5 to 18.5, of which there are public files; polygons and polylines in
runs and one by one, tetrahedra, volumes of tiles, packed geometry and fragments (which
`houdini_packed` unpacks). Others are left out, and `remarks` says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.errors import FormatError
from loki_vfx.serialization.houdini_geometry import (
    OTHER,
    OWNERS,
    PACKED,
    PAGE,
    POLYGON,
    POLYLINE,
    STORAGES,
    TETRAHEDRON,
    VDB,
    VOLUME,
    Array,
    Attribute,
    Geometry,
    PackedPrimitive,
)
from loki_vfx.serialization.houdini_json import numbers, pairs
from loki_vfx.serialization.houdini_volume import volume_of_document

LARGEST_COUNT = 1 << 31
DEEPEST_PACK = 8  # packed geometry within packed geometry


def geometry_of_document(document: Any) -> Geometry:
    """Return the geometry that a document describes.

    Raises:
        FormatError: It is not one, or something in it cannot be right.
    """
    try:
        return _geometry(document, 0)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        raise FormatError(f"no Houdini geometry, or damaged: {what}") from error


def _geometry(document: Any, depth: int) -> Geometry:
    """Read a document that is packed so many times within others."""
    if depth > DEEPEST_PACK:
        raise FormatError(f"geometry is packed more than {DEEPEST_PACK} times")
    if not isinstance(document, (list, dict)):
        raise FormatError("no Houdini geometry: it is no list of keys and values")
    root = pairs(document, "geometry")
    for name in ("pointcount", "vertexcount", "primitivecount"):
        count = root.get(name)
        if not isinstance(count, int) or not 0 <= count < LARGEST_COUNT:
            raise FormatError(f"no Houdini geometry: {name} is {str(count)[:40]}")
    geometry = Geometry(point_count=root["pointcount"])
    _read_topology(geometry, root)
    _PrimitiveReader(geometry, root, depth).read()
    for key, items in pairs(root.get("attributes", []), "attributes").items():
        owner = {"globalattributes": "detail"}.get(key, key.removesuffix("attributes"))
        if owner in OWNERS:
            for item in items:
                _read_attribute(geometry, owner, item)
    for owner in OWNERS[:3]:
        for item in root.get(f"{owner}groups", []):
            _read_group(geometry, owner, item)
    if root.get("edgegroups"):
        geometry.remarks.append("not carried: groups of edges")
    return geometry


def _read_topology(geometry: Geometry, root: dict[str, Any]) -> None:
    topology = pairs(root.get("topology", []), "topology")
    reference = pairs(topology.get("pointref", []), "topology.pointref")
    points = numbers(reference.get("indices", []), np.int64, "topology.pointref.indices")
    if len(points) != root["vertexcount"]:
        raise FormatError(f"{root['vertexcount']} vertices are announced and {len(points)} there")
    if len(points):
        lowest, highest = int(points.min()), int(points.max())
        if lowest < 0 or highest >= geometry.point_count:
            raise FormatError(
                f"vertices use the points {lowest} to {highest} of {geometry.point_count}"
            )
    geometry.vertex_points = points


class _PrimitiveReader:
    """Reads primitives of all forms into arrays."""

    def __init__(self, geometry: Geometry, root: dict[str, Any], depth: int) -> None:
        self.geometry, self.root, self.depth = geometry, root, depth
        self.shared = _shared_data(root.get("sharedprimitivedata", []))
        self.embedded: dict[str, Geometry] = {}
        self.kinds: list[Array] = []
        self.sizes: list[Array] = []
        self.corners: list[Array] = []
        self.left: dict[str, int] = {}
        self.count = 0

    def read(self) -> None:
        for item in self.root.get("primitives", []):
            if not isinstance(item, list) or len(item) != 2:
                raise FormatError("a primitive is a pair of definition and values")
            head = pairs(item[0], "a primitive's definition")
            self._read_one(str(head.get("type")), head, item[1])
        if self.count != self.root["primitivecount"]:
            raise FormatError(
                f"{self.root['primitivecount']} primitives are announced and {self.count} there"
            )
        geometry = self.geometry
        if self.kinds:
            geometry.kinds = np.concatenate(self.kinds)
            geometry.corners = np.concatenate(self.corners)
            sizes = np.concatenate(self.sizes)
            geometry.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        corners = geometry.corners
        if len(corners) and not 0 <= corners.min() <= corners.max() < len(geometry.vertex_points):
            raise FormatError("primitives use vertices that are not there")
        for name, count in self.left.items():
            geometry.remarks.append(f"not carried: {count} primitives of type {name}")

    def _add(self, kind: int, sizes: Any, corners: Any) -> None:
        sizes = np.asarray(sizes, np.int64)
        self.kinds.append(np.full(len(sizes), kind, np.uint8))
        self.sizes.append(sizes)
        self.corners.append(np.asarray(corners, np.int64))
        self.count += len(sizes)

    def _read_one(self, kind: str, head: dict[str, Any], body: Any) -> None:
        runs = {
            "p_r": POLYGON, "Polygon_run": POLYGON, "c_r": POLYLINE, "PolygonCurve_run": POLYLINE,
        }  # fmt: skip
        if kind in runs:
            self._add_run(runs[kind], pairs(body, kind))
        elif kind == "Tetrahedron_run":
            values = pairs(body, kind)
            count, first = _whole(values, "nprimitives"), _whole(values, "startvertex")
            if 4 * count > len(self.geometry.vertex_points):
                raise FormatError(f"{count} tetrahedra have more vertices than there are")
            self._add(TETRAHEDRON, np.full(count, 4), np.arange(first, first + 4 * count))
        elif kind == "run":
            names = list(head.get("varyingfields", []))
            same = pairs(head.get("uniformfields", {}), "uniformfields")
            for row in body:
                fields = row if isinstance(row, list) else [row]
                self._add_single(str(head.get("runtype")), same | dict(zip(names, fields)))
        else:
            self._add_single(kind, pairs(body, kind))

    def _add_run(self, kind: int, values: dict[str, Any]) -> None:
        first = _whole(values, "s_v" if "s_v" in values else "startvertex")
        pairs_of = values.get("r_v", values.get("nvertices_rle"))
        if pairs_of is not None:
            encoded = numbers(pairs_of, np.int64, "run").reshape(-1, 2)
            if encoded.size and (encoded.min() < 0 or encoded[:, 1].sum() >= LARGEST_COUNT):
                raise FormatError("a run of primitives has a negative or impossible length")
            sizes = np.repeat(encoded[:, 0], encoded[:, 1])
        else:
            sizes = numbers(values.get("n_v", values.get("nvertices", [])), np.int64, "run")
        total = int(sizes.sum())
        if total > len(self.geometry.vertex_points):
            raise FormatError(f"a run of primitives has {total} vertices, more than there are")
        self._add(kind, sizes, np.arange(first, first + total))

    def _add_single(self, kind: str, values: dict[str, Any]) -> None:
        vertices = numbers(values.get("vertex", []), np.int64, f"{kind}.vertex").reshape(-1)
        if kind in ("Poly", "Polygon", "PolygonCurve"):
            closed = bool(values.get("closed", kind != "PolygonCurve"))
            self._add(POLYGON if closed else POLYLINE, [len(vertices)], vertices)
        elif kind == "Tetrahedron" and len(vertices) == 4:
            self._add(TETRAHEDRON, [4], vertices)
        elif kind == "Volume":
            stored = self.shared.get(str(values.get("sharedvoxels")))
            self.geometry.volumes[self.count] = volume_of_document(values, stored)
            self._add(VOLUME, [len(vertices)], vertices)
        elif kind in ("PackedGeometry", "PackedFragment") and self._embedded(values) is not None:
            self.geometry.packed[self.count] = self._packed(kind, values)
            self._add(PACKED, [len(vertices)], vertices)
        elif kind == "VDB":
            self._add(VDB, [len(vertices)], vertices)
        else:
            self.left[kind] = self.left.get(kind, 0) + 1
            self._add(OTHER, [len(vertices)], vertices)

    def _embedded(self, values: dict[str, Any]) -> Geometry | None:
        key = str(pairs(values.get("parameters", {}), "packed parameters").get("embedded"))
        if key in self.shared and key not in self.embedded:
            self.embedded[key] = _geometry(self.shared[key], self.depth + 1)
        return self.embedded.get(key)

    def _packed(self, kind: str, values: dict[str, Any]) -> PackedPrimitive:
        source = self._embedded(values)
        assert source is not None
        told = pairs(values.get("parameters", {}), "packed parameters")
        transform = numbers(values.get("transform", np.eye(3)), np.float64, "a packed transform")
        pivot = numbers(values.get("pivot", np.zeros(3)), np.float64, "a packed pivot")
        if transform.size != 9 or pivot.size != 3:
            raise FormatError("a packed primitive has no transform of 3 x 3, or no pivot")
        fragment = None
        if kind == "PackedFragment":
            fragment = (str(told.get("attribute")), str(told.get("name")))
        return PackedPrimitive(source, transform.reshape(3, 3), pivot.reshape(3), fragment)


def _shared_data(stored: Any) -> dict[str, Any]:
    """What primitives share, by its key: voxels, and geometry that is packed."""
    found = {}
    for entry in stored[1::2] if isinstance(stored, list) else ():
        if isinstance(entry, list) and len(entry) == 3:
            found[str(entry[1])] = entry[2]
    return found


def _whole(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or not 0 <= value < LARGEST_COUNT:
        raise FormatError(f"{name} of a run of primitives is {str(value)[:40]}")
    return value


def _read_attribute(geometry: Geometry, owner: str, item: Any) -> None:
    if not isinstance(item, list) or len(item) != 2:
        raise FormatError(f"a {owner} attribute is a pair of definition and values")
    head, body = pairs(item[0], "definition"), pairs(item[1], "values of an attribute")
    name, kind = str(head.get("name")), head.get("type")
    label, count = f'{owner} attribute "{name}"', geometry.count(owner)
    hint = ""
    told = pairs(head.get("options", {}), f"options of {label}").get("type")
    if isinstance(told, dict):
        hint = str(told.get("value", ""))
    if head.get("scope", "public") != "public":
        return
    if kind == "numeric":
        values = _paged_values(pairs(body.get("values", []), label), count, label)
        geometry.attributes[owner][name] = Attribute(values, hint)
    elif kind == "string" and isinstance(body.get("indices"), list):
        values = _paged_values(pairs(body["indices"], label), count, label)
        texts = [str(text) for text in body.get("strings") or []]
        if values.ndim == 1:
            if values.size and not -1 <= values.min() <= values.max() < len(texts):
                raise FormatError(f"{label} names a text that is not there")
            geometry.attributes[owner][name] = Attribute(values.astype(np.int32), hint, texts)
            return
        geometry.remarks.append(f"not carried: {label}, of several texts")
    else:
        geometry.remarks.append(f"not carried: {label} of type {str(kind)[:40]}")


def _paged_values(values: dict[str, Any], count: int, label: str) -> Array:
    """Return the values of an attribute, [count] or [count, size].

    Raises:
        FormatError: There are not as many as there should be.
    """
    size, storage = values.get("size", 1), values.get("storage", "")
    if storage not in STORAGES or not isinstance(size, int) or not 1 <= size <= 4096:
        raise FormatError(f"{label} has {str(size)[:20]} values of type {str(storage)[:40]}")
    dtype = np.dtype(STORAGES[storage])
    if "rawpagedata" in values:
        result = _pages(values, count, size, dtype, label)
    elif "tuples" in values:
        result = numbers(values["tuples"], dtype, label)
    else:
        columns = [numbers(column, dtype, label) for column in values.get("arrays", [])]
        if not columns or len({len(column) for column in columns}) != 1:
            raise FormatError(f"{label} has no values, or columns of different length")
        result = np.stack(columns, axis=1)
    if result.size != count * size:
        raise FormatError(f"{label} has {result.size} numbers; expected {count * size}")
    return result.reshape(count) if size == 1 else result.reshape(count, size)


def _pages(values: dict[str, Any], count: int, size: int, dtype: Any, label: str) -> Array:
    data = numbers(values["rawpagedata"], dtype, label).reshape(-1)
    page = values.get("pagesize", PAGE)
    if not isinstance(page, int) or page < 1:
        raise FormatError(f"{label} has pages of {str(page)[:20]} elements")
    widths = [int(width) for width in values.get("packing", [size])]
    if sum(widths) != size or min(widths) < 1:
        raise FormatError(f"{label} is packed as {widths}, which is not {size}")
    pages = -(-count // page)
    flags = [
        np.asarray(part, bool) for part in values.get("constantpageflags") or [[]] * len(widths)
    ]
    if len(flags) != len(widths) or any(len(part) not in (0, pages) for part in flags):
        raise FormatError(f"{label} has flags for another number of pages than {pages}")
    if len(widths) == 1 and not flags[0].any():
        return data.copy()  # what is read is a view of the file
    result = np.empty((count, size), dtype)
    at = 0
    for number in range(pages):
        rows = slice(number * page, min((number + 1) * page, count))
        column = 0
        for part, width in zip(flags, widths, strict=True):
            stored = 1 if len(part) and part[number] else rows.stop - rows.start
            values_here = data[at : at + stored * width]
            if len(values_here) != stored * width:
                raise FormatError(f"{label} is cut off in page {number}")
            result[rows, column : column + width] = values_here.reshape(stored, width)
            at += stored * width
            column += width
    if at != len(data):
        raise FormatError(f"{label} has {len(data) - at} numbers too many")
    return result


def _read_group(geometry: Geometry, owner: str, item: Any) -> None:
    head, body = pairs(item[0], f"a group of {owner}s"), pairs(item[1], f"a group of {owner}s")
    name, count = str(head.get("name")), geometry.count(owner)
    label = f'{owner} group "{name}"'
    selection = pairs(body.get("selection", []), label)
    flags = np.zeros(count, bool)
    if "unordered" in selection:
        form = pairs(selection["unordered"], label)
        if "boolRLE" in form:
            encoded = form["boolRLE"]
            lengths = numbers(list(encoded[0::2]), np.int64, label)
            values = np.asarray(list(encoded[1::2]), bool)
            if lengths.sum() != count or (lengths < 0).any():
                raise FormatError(f"{label} is of {int(lengths.sum())} elements; expected {count}")
            flags = np.repeat(values, lengths)
        else:
            given: Any = next(iter(form.values()), [])
            flags = np.asarray(numbers(given, np.int64, label), bool).reshape(-1)
            if len(flags) != count:
                raise FormatError(f"{label} is of {len(flags)} elements; expected {count}")
    elif "ordered" in selection:
        chosen = numbers(selection["ordered"], np.int64, label).reshape(-1)
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < count:
            raise FormatError(f"{label} names elements that are not there")
        flags[chosen] = True
        geometry.remarks.append(f"{label} is ordered, and its order is not carried")
    geometry.groups[owner][name] = flags
