"""Details: channels of a whole stream, and custom properties of objects and datablocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bpy
import numpy as np
import numpy.typing as npt

from loki_core.data.channels import Channels
from loki_core.data.mesh import Mesh
from loki_core.errors import InputError

from .stream_memory import TYPES, Record

Detail = npt.ArrayLike | str
"""A number, several numbers, a switch or a text."""

LONGEST_NAME = 63  # bytes of a custom property's name
LARGEST_INT = 2**31 - 1


def set_details(stream: Mesh, details: Mapping[str, Detail], *, label: str) -> None:
    """Give a stream values as detail channels.

    Raises:
        InputError: A value is no number, switch or text.
    """
    for name, value in details.items():
        try:
            stream.set_channel("detail", name, np.asarray(value))
        except InputError as error:
            raise InputError(f"{label}: {error}") from error


def properties_of(owner: bpy.types.ID) -> dict[str, Detail]:
    """Return the custom properties of an object or datablock that can be details."""
    found: dict[str, Detail] = {}
    for name, value in owner.items():
        plain = value.to_list() if hasattr(value, "to_list") else value
        if isinstance(plain, bool | int | float | str | list):
            array = np.asarray(plain)
            if array.ndim < 2 and array.size and array.dtype.kind in "bifU":
                found[name] = array
    return found


def write_details(
    owner: bpy.types.ID, details: Channels, remarks: list[str]
) -> list[dict[str, Any]]:
    """Set a custom property for each detail channel; return their entries of the record."""
    record = []
    for name, values in details.items():
        if name == TYPES:
            continue
        if len(name.encode()) > LONGEST_NAME:
            remarks.append(
                f'not carried: detail channel "{name}"; names of custom properties have up to '
                f"{LONGEST_NAME} bytes"
            )
            continue
        plain = values.reshape(-1).tolist()
        if values.dtype.kind in "iu" and max(map(abs, plain)) > LARGEST_INT:
            plain = list(map(float, plain))
        owner[name] = plain[0] if len(plain) == 1 else plain
        record.append(
            {
                "location": "detail",
                "name": name,
                "dtype": "str" if values.dtype.kind == "U" else values.dtype.name,
                "shape": values.shape[1:],
                "transform": details.transform_of(name),
                "carriers": [name],
            }
        )
    return record


def read_details(owner: bpy.types.ID, record: Record, stream: Mesh) -> None:
    """Give a stream the detail channels that `write_details` made properties of."""
    known = properties_of(owner)
    for entry in record:
        name, shape = entry["name"], entry["shape"]
        if entry["location"] != "detail" or name not in known:
            continue
        values = np.asarray(known[name])
        if values.size == int(np.prod(shape)) and (values.dtype.kind == "U") == (
            entry["dtype"] == "str"
        ):
            values = values.astype(entry["dtype"]).reshape(1, *shape)
            stream.set_channel("detail", name, values, transform=entry["transform"])
