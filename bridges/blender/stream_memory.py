"""Stream memory: what a channel cannot say of its attribute, and an attribute not of its channel.

A quaternion and a colour are both four numbers: the types of attributes that a channel's shape
leaves open travel with the stream, in one detail text. A float attribute may have been a double,
and a vector may turn with the axes or not: that is kept with the datablock, in one custom property.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import bpy

from loki_core.data.mesh import Mesh
from loki_core.errors import InputError

TYPES = "blender_types"
"""The detail channel that holds attribute types by channel, as JSON."""

RECORD = "loki_stream"
"""The custom property that holds a Record, as JSON."""

Record = Sequence[dict[str, Any]]
"""The channels that a datablock was made of: location, name, dtype, shape and transform of each,
and the attributes (of a detail channel: the custom property) that carry it."""


def types_of(stream: Mesh) -> dict[str, str]:
    """Return the attribute types that a stream remembers, by channel.

    Raises:
        InputError: Something else wrote to the channel that they are in.
    """
    details = stream.channels["detail"]
    if TYPES not in details:
        return {}
    try:
        known = json.loads(str(details[TYPES][0]))
        return {str(name): str(kind) for name, kind in known.items()}
    except (ValueError, AttributeError) as error:
        raise InputError(
            f'detail channel "{TYPES}" is no map of attribute types, which is what this name is '
            "for: rename it"
        ) from error


def remember_types(stream: Mesh, types: Mapping[str, str]) -> None:
    """Let a stream remember attribute types, beside those that it knows."""
    known = types_of(stream) | dict(types)
    if known:
        stream.set_channel("detail", TYPES, json.dumps(known, ensure_ascii=False))


def record_of(data: bpy.types.ID) -> Record:
    """Return what is known of the channels that a datablock was made of."""
    try:
        return tuple(json.loads(data.get(RECORD, "[]")))
    except (ValueError, TypeError):
        return ()  # a user changed it; attributes are taken as they are then


def replace_record(data: bpy.types.ID, record: Record) -> None:
    """Keep what the channels were, and remove what an earlier stream left behind."""
    kept = {name for entry in record for name in entry["carriers"]}
    for entry in record_of(data):
        for name in set(entry["carriers"]) - kept:
            if entry["location"] == "detail":
                data.pop(name, None)
            elif name in data.attributes:
                data.attributes.remove(data.attributes[name])
    text = json.dumps(record, ensure_ascii=False)
    if data.get(RECORD) != text:
        data[RECORD] = text
