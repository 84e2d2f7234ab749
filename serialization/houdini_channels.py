"""Channels of streams and attributes of Houdini geometry, each from the other.

    v, N, Cd, pscale, accel          velocity, normal, color, radius, acceleration
    groups                           channels of bool
    texts of points and primitives   channels of whole numbers, and a table of the texts

What a channel cannot say of its attribute (half precision, a quaternion, texts, a group) travels
with the stream as a detail text; what an attribute cannot say of its channel, with the geometry.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import CHANNEL_DTYPES, TRANSFORMS
from loki_core.data.mesh import Mesh
from loki_core.errors import InputError
from loki_vfx.serialization.houdini_geometry import OWNERS, Attribute, Geometry

Array = npt.NDArray[Any]

CHANNEL_OF = {
    "v": "velocity", "N": "normal", "Cd": "color", "pscale": "radius", "accel": "acceleration",
}  # fmt: skip
ATTRIBUTE_OF = {channel: attribute for attribute, channel in CHANNEL_OF.items()}
HINTS = {"velocity": "vector", "normal": "normal", "color": "color", "orient": "quaternion"}
WIDER = {"int8": "int32", "int16": "int32", "float16": "float32"}
"""What holds the values of types that channels lack."""

TYPES = "houdini_types"
"""The detail channel of a stream that says of which attributes its channels are, as JSON."""

RECORD = "loki_stream"
"""The detail attribute of a geometry that says of which channels its attributes are, as JSON."""


# -- into Loki -----------------------------------------------------------------------------------


class ChannelTaker:
    """Gives a stream the attributes of a geometry."""

    def __init__(self, geometry: Geometry, stream: Mesh, record: dict[str, Any]) -> None:
        self.geometry, self.stream = geometry, stream
        self.types: dict[str, dict[str, Any]] = {}
        self.known = {
            (entry["location"], entry["attribute"], entry["group"]): entry
            for entry in record.get("channels", ())
        }

    def take(self, chosen: dict[str, Array | None]) -> None:
        for owner, rows in chosen.items():
            for name, attribute in self.geometry.attributes[owner].items():
                if (owner, name) == ("point", "P") or name == RECORD:
                    continue
                self._take_attribute(owner, name, attribute, rows)
            for name, flags in self.geometry.groups.get(owner, {}).items():
                self._take_group(owner, name, flags, rows)
        if self.types:
            self.stream.set_channel("detail", TYPES, json.dumps(self.types))

    def _take_attribute(self, owner: str, name: str, attribute: Attribute, rows: Any) -> None:
        values = rows_of(attribute.values, rows)
        entry = self.known.get((owner, name, False))
        if entry is not None and self._take_known(owner, entry, attribute, values):
            return
        channel = CHANNEL_OF.get(name, name)
        if channel in self.stream.channels[owner]:
            channel = f"houdini.{name}"
        note: dict[str, Any] = {"name": name}
        if attribute.texts is not None:
            if owner == "detail":
                self.stream.set_channel(owner, channel, attribute.as_texts()[0])
                return
            note["texts"] = attribute.texts
        if values.dtype.name in WIDER:
            note["storage"] = values.dtype.name
            values = values.astype(WIDER[values.dtype.name])
        if attribute.hint:
            note["hint"] = attribute.hint
        if attribute.hint == "matrix" and values.ndim == 2 and values.shape[1] == 9:
            values = values.reshape(-1, 3, 3)
        self.stream.set_channel(owner, channel, values, transform=_transform(attribute, values))
        usual = {"name": ATTRIBUTE_OF.get(channel, channel)}
        if channel in HINTS:
            usual["hint"] = HINTS[channel]
        if note != usual:
            self.types[f"{owner}:{channel}"] = note

    def _take_known(self, owner: str, entry: Any, attribute: Attribute, values: Array) -> bool:
        """Take back a channel as it was; False if the attribute is another one now."""
        if entry["dtype"] == "text" and owner == "detail" and attribute.texts is not None:
            self.stream.set_channel(owner, entry["name"], attribute.as_texts()[0])
            return True
        count = self.stream.count(owner)
        shape = (count, *entry["shape"])
        is_other = attribute.texts is not None or entry["dtype"] == "text"
        kinds = {"b": "biu", "u": "iu", "i": "iu", "f": "f"}
        if not is_other:
            is_other = values.dtype.kind not in kinds[np.dtype(entry["dtype"]).kind]
        if is_other or values.size != int(np.prod(shape)):
            return False
        restored = values.reshape(shape).astype(entry["dtype"])
        self.stream.set_channel(owner, entry["name"], restored, transform=entry["transform"])
        if entry["note"]:
            self.types[f"{owner}:{entry['name']}"] = entry["note"]
        return True

    def _take_group(self, owner: str, name: str, flags: Array, rows: Array | None) -> None:
        flags = rows_of(flags, rows)
        entry = self.known.get((owner, name, True))
        if entry is not None:
            self.stream.set_channel(owner, entry["name"], flags)
            if entry["note"]:
                self.types[f"{owner}:{entry['name']}"] = entry["note"]
            return
        channel = name
        if channel in self.stream.channels[owner]:
            channel = f"group.{name}"
            self.types[f"{owner}:{channel}"] = {"name": name}
        self.stream.set_channel(owner, channel, flags)


def _transform(attribute: Attribute, values: Array) -> str | None:
    if values.dtype.kind != "f" or values.ndim != 2 or values.shape[1] != 3:
        return None
    return attribute.hint if attribute.hint in ("vector", "normal", "point") else None


def record_of(geometry: Geometry) -> dict[str, Any]:
    """What is known of the channels that a geometry was made of."""
    stored = geometry.attributes["detail"].get(RECORD)
    if stored is None or stored.texts is None:
        return {}
    try:
        record = json.loads(stored.as_texts()[0])
    except ValueError:
        return {}  # a user changed it; attributes are taken as they are then
    if not isinstance(record, dict) or not isinstance(record.get("channels"), list):
        return {}
    return record | {"channels": [one for one in record["channels"] if _is_sound(one)]}


def is_as_written(geometry: Geometry, record: dict[str, Any]) -> bool:
    """Whether a geometry still has the points, vertices and primitives that a record is of."""
    return bool(record.get("counts") == [geometry.count(owner) for owner in OWNERS[:3]])


def _is_sound(entry: Any) -> bool:
    """Whether an entry of a record is as it was written."""
    kinds = {"name": str, "attribute": str, "group": bool, "shape": list, "note": dict}
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(key), kind) for key, kind in kinds.items())
        and entry.get("location") in OWNERS
        and entry.get("dtype") in (*CHANNEL_DTYPES, "text")
        and entry.get("transform") in TRANSFORMS
        and all(type(size) is int and size > 0 for size in entry["shape"])
        and 0 < len(entry["name"]) <= 256
    )


def rows_of(values: Array, rows: Array | None) -> Array:
    return values if rows is None else values[rows]


# -- out of Loki ---------------------------------------------------------------------------------


class AttributeGiver:
    """Gives a geometry the channels of a stream."""

    def __init__(self, geometry: Geometry, stream: Mesh, *, single: bool) -> None:
        self.geometry, self.stream, self.single = geometry, stream, single
        self.types = _types_of(stream)
        self.channels: list[dict[str, Any]] = []

    def give(self, vertex_order: Array | None) -> None:
        for location, channels in self.stream.channels.items():
            for name, values in channels.items():
                if location == "vertex" and vertex_order is not None:
                    values = values[vertex_order]
                if (location, name) != ("detail", TYPES):
                    self._give(location, name, values, channels.transform_of(name))
        record = {
            "type": self.stream.type_name,
            "positions": self.stream.positions.dtype.name,
            "counts": [self.geometry.count(owner) for owner in OWNERS[:3]],
            "channels": self.channels,
        }
        text = Attribute(np.zeros(1, np.int32), "", [json.dumps(record)])
        self.geometry.attributes["detail"][RECORD] = text

    def _give(self, location: str, name: str, values: Array, transform: str) -> None:
        note = self.types.get(f"{location}:{name}", {})
        wanted = _houdini_name(str(note.get("name", ATTRIBUTE_OF.get(name, name))))
        is_group = values.dtype == np.bool_ and values.ndim == 1 and location != "detail"
        taken = self.geometry.groups[location] if is_group else self.geometry.attributes[location]
        others = (f"{wanted}_{number}" for number in itertools.count(2))
        attribute = next(one for one in itertools.chain([wanted], others) if one not in taken)
        entry = {
            "location": location,
            "name": name,
            "attribute": attribute,
            "group": is_group,
            "dtype": "text" if values.dtype.kind == "U" else values.dtype.name,
            "shape": list(values.shape[1:]),
            "transform": transform,
            "note": note,
        }
        if is_group:
            self.geometry.groups[location][attribute] = values
        elif values.dtype.kind == "U":
            text = Attribute(np.zeros(1, np.int32), "", [str(values[0])])
            self.geometry.attributes[location][attribute] = text
        else:
            self.geometry.attributes[location][attribute] = self._attribute(
                name, values, transform, note
            )
        if "texts" not in note and "storage" not in note:
            self.channels.append(entry)

    def _attribute(
        self, name: str, values: Array, transform: str, note: dict[str, Any]
    ) -> Attribute:
        texts = note.get("texts")
        if texts is not None and values.dtype.kind in "iu" and values.ndim == 1:
            inside = np.where((values >= 0) & (values < len(texts)), values, -1)
            return Attribute(inside.astype(np.int32), "", [str(text) for text in texts])
        hint = str(note.get("hint", HINTS.get(name, "" if transform == "none" else transform)))
        flat = values.reshape(len(values), int(np.prod(values.shape[1:])))
        flat = flat if values.ndim > 1 else values
        if values.ndim == 3:
            hint = hint or "matrix"
        if values.dtype == np.bool_:
            flat = flat.astype(np.int8)
        elif "storage" in note:
            flat = flat.astype(note["storage"])
        elif self.single and values.dtype == np.float64:
            flat = flat.astype(np.float32)
        return Attribute(np.ascontiguousarray(flat), hint)


def _houdini_name(name: str) -> str:
    """What Houdini can call an attribute or a group: letters, digits and underscores."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{plain}" if plain[:1].isdigit() else plain


def _types_of(stream: Mesh) -> dict[str, dict[str, Any]]:
    details = stream.channels["detail"]
    if TYPES not in details:
        return {}
    try:
        known = json.loads(str(details[TYPES][0]))
        return {str(key): dict(note) for key, note in known.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f'detail channel "{TYPES}" is no map of attributes, which is what this name is for: '
            "rename it"
        ) from error
