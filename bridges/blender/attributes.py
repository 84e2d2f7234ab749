"""Attributes: all channels of a stream, and all attributes of a datablock, each from the other.

Domains and locations that mean the same:

    mesh with faces    POINT point, CORNER vertex, FACE primitive
    mesh of edges      POINT point, EDGE primitive
    hair curves        POINT point, CURVE primitive
    points             POINT point

Edges of a mesh with faces have no location. Their attributes become vertex channels, with the value
of the edge that begins at each corner, and go back to the edges from there.

Attributes whose names begin with a dot are Blender's own (topology, selection, what is hidden) and
are not carried.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import bpy
import numpy as np
import numpy.typing as npt

from loki_core.data.mesh import Mesh

from .attribute_types import ATTRIBUTE_TYPES, attribute_parts, channel_values, usual_type
from .axes import Placement
from .details import write_details
from .stream_memory import Record, remember_types, replace_record, types_of

Array = npt.NDArray[Any]
Remarks = list[str]
"""Sentences on what could not be carried, or not as it was."""

TOPOLOGY = frozenset({"position", "cyclic"})  # part of the streams themselves
SET_BY_CALL = frozenset({"curve_type"})  # Blender keeps counts of it, so it is never written raw
EDGE = "EDGE "  # begins the remembered type of what belongs to the edges of a surface

LOCATIONS = {
    "points": {"POINT": "point"},
    "wireframe": {"POINT": "point", "EDGE": "primitive"},
    "surface": {"POINT": "point", "CORNER": "vertex", "FACE": "primitive"},
    "curves": {"POINT": "point", "CURVE": "primitive"},
}
"""Where the attributes of a domain go, for each type of stream."""

DOMAINS = {
    kind: {location: domain for domain, location in table.items()}
    for kind, table in LOCATIONS.items()
}
DOMAINS["curves"]["vertex"] = "POINT"  # a curve's vertices are its points


def read_attribute(data: bpy.types.ID, name: str) -> Array:
    """Return the values of an attribute, one row for each element."""
    attribute = data.attributes[name]
    kind = ATTRIBUTE_TYPES[attribute.data_type]
    values = np.empty((len(attribute.data), *kind.shape), kind.dtype)
    attribute.data.foreach_get(kind.field, values.reshape(-1))
    return values


def write_attribute(data: bpy.types.ID, name: str, kind: str, domain: str, values: Array) -> bool:
    """Set an attribute from values of its type's dtype; return False if the name is refused."""
    attribute = data.attributes.get(name)
    if attribute is not None and (attribute.data_type, attribute.domain) != (kind, domain):
        data.attributes.remove(attribute)
        attribute = None
    if attribute is None:
        attribute = data.attributes.new(name, kind, domain)
    if attribute is None:
        return False
    if attribute.name != name:
        data.attributes.remove(attribute)
        return False
    attribute.data.foreach_set(ATTRIBUTE_TYPES[kind].field, values.reshape(-1))
    return True


def read_channels(
    data: bpy.types.ID,
    stream: Mesh,
    remarks: Remarks,
    *,
    placement: Placement | None = None,
    record: Record = (),
    corner_order: Array | None = None,
    corner_edges: Array | None = None,
) -> None:
    """Give a stream every attribute of a datablock.

    Args:
        placement: What places and vectors go through; None leaves them as they are.
        record: The channels that the datablock was made of.
        corner_order: The corner of the datablock that each vertex of the stream is.
        corner_edges: The edge that begins at each vertex of the stream.
    """
    # One channel after the other: memory that one is done with serves the next.
    readers = _readers(data, stream, remarks, corner_order, corner_edges)

    def take(location: str, name: str, values: Array, transform: str | None = None) -> None:
        stream.set_channel(location, name, values, transform=transform)
        if placement is not None:
            kind = stream.channels[location].transform_of(name)
            placed = placement.values(values, name=name, kind=kind)
            stream.set_channel(location, name, placed, transform=kind)

    for entry in record:
        location, names = entry["location"], entry["carriers"]
        if location == "detail" or not all(name in readers for name in names):
            continue
        parts = [readers[name][1]() for name in names]
        values = channel_values(parts, entry["dtype"], entry["shape"])
        if values is not None and len(values) == stream.count(location):
            take(location, entry["name"], values, entry["transform"])
            for name in names:
                del readers[name]
    for name, (location, reader) in readers.items():
        values = reader()
        if values.dtype.name in ("int8", "int16"):
            values = values.astype(np.int32)
        take(location, name, values)


def _readers(
    data: bpy.types.ID,
    stream: Mesh,
    remarks: Remarks,
    corner_order: Array | None,
    corner_edges: Array | None,
) -> dict[str, tuple[str, Callable[[], Array]]]:
    """Return where each attribute goes and what reads it; let the stream remember its type."""
    locations = LOCATIONS[stream.type_name]
    found: dict[str, tuple[str, Callable[[], Array]]] = {}
    types: dict[str, str] = {}
    left: dict[str, list[str]] = {}
    for name in [attribute.name for attribute in data.attributes]:
        if name.startswith(".") or name in TOPOLOGY:
            continue
        attribute = data.attributes[name]
        kind, domain = attribute.data_type, attribute.domain
        if kind not in ATTRIBUTE_TYPES:
            left.setdefault(f"channels cannot hold values of type {kind}", []).append(name)
        elif domain in locations:
            order = corner_order if domain == "CORNER" else None
            found[name] = (locations[domain], partial(_read_ordered, data, name, order))
            if usual_type(kind) != kind:
                types[name] = kind
        elif domain == "EDGE" and corner_edges is not None:
            found[name] = ("vertex", partial(_read_ordered, data, name, corner_edges))
            types[name] = EDGE + kind
        else:
            words = f"{stream.type_name} streams have no place for the domain {domain}"
            left.setdefault(words, []).append(name)
    remarks += [f"not carried: {', '.join(names)}; {words}" for words, names in left.items()]
    remember_types(stream, types)
    return found


def _read_ordered(data: bpy.types.ID, name: str, order: Array | None) -> Array:
    values = read_attribute(data, name)
    return values if order is None else values[order]


def write_channels(
    data: bpy.types.ID,
    stream: Mesh,
    remarks: Remarks,
    *,
    placement: Placement,
    corner_edges: Array | None = None,
) -> None:
    """Give a datablock every channel of a stream.

    Attributes that an earlier stream brought and this one does not are removed; those that came
    from elsewhere stay. Detail channels become custom properties.

    Args:
        placement: What places and vectors go through.
        corner_edges: The edge that begins at each vertex of the stream.
    """
    types = types_of(stream)
    record: list[dict[str, Any]] = []
    used: set[str] = set()
    for location, channels in stream.channels.items():
        domain = DOMAINS[stream.type_name].get(location)
        if location == "detail" or not channels:
            continue
        if domain is None:
            remarks.append(
                f"not carried: {location} channels {', '.join(channels)}; what shows a "
                f"{stream.type_name} stream in Blender has no place for them"
            )
            continue
        for name, values in channels.items():
            if stream.type_name == "curves" and name in SET_BY_CALL:
                continue
            kind, here = types.get(name, ""), domain
            if kind.startswith(EDGE) and location == "vertex" and corner_edges is not None:
                values, here = _at_edges(values, corner_edges, len(data.edges)), "EDGE"
            transform = channels.transform_of(name)
            placed = placement.values(values, name=name, kind=transform)
            parts = attribute_parts(placed, kind.removeprefix(EDGE) or _present_type(data, name))
            label = f'{location} channel "{name}"'
            names: list[str] = []
            for attribute in (name, f"{location}.{name}"):  # the second where the first is taken
                names = [attribute + part.suffix for part in parts]
                taken = used.intersection((attribute, *names))
                if taken or attribute in TOPOLOGY or attribute.startswith("."):
                    continue
                if all(
                    write_attribute(data, full, part.type, here, part.values)
                    for full, part in zip(names, parts, strict=True)
                ):
                    break
            else:
                remarks.append(f"not carried: {label}; Blender refuses its name")
                continue
            if attribute != name:
                remarks.append(f'{label} is the attribute "{attribute}": its own name is taken')
            used.update(names)
            record.append(
                {
                    "location": location,
                    "name": name,
                    "dtype": values.dtype.name,
                    "shape": values.shape[1:],
                    "transform": transform,
                    "carriers": names,
                }
            )
    record += write_details(data, stream.channels["detail"], remarks)
    replace_record(data, record)


def _present_type(data: bpy.types.ID, name: str) -> str:
    attribute = data.attributes.get(name)
    return "" if attribute is None else str(attribute.data_type)


def _at_edges(values: Array, corner_edges: Array, edge_count: int) -> Array:
    result = np.zeros((edge_count, *values.shape[1:]), values.dtype)
    result[corner_edges] = values
    return result
