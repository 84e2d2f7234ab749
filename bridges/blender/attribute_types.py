"""Attribute types: how the values of a Loki channel are laid out in attributes of Blender.

Most channels are one attribute. Where Blender has no type for a channel, it is carried by several
attributes, or by one that is wider, and comes back as it was:

    int64 that does not fit 32 bits    INT32_2D, the low and the high half
    float [n, 3, 3]                    FLOAT4X4, in the upper left corner
    any other shape                    an attribute for each column, "name.0", "name.1", ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class AttributeType:
    """A type of attribute.

    Attributes:
        field: The property of its elements that holds the value.
        dtype: Of the values in memory: bulk calls are quick with this one only.
        shape: Of one value.
    """

    field: str
    dtype: str
    shape: tuple[int, ...] = ()

    def holds(self, values: Array) -> bool:
        """Whether an attribute of this type can carry the values; float64 is rounded."""
        dtype = np.dtype(self.dtype)
        if values.shape[1:] != self.shape or _family(values.dtype) != _family(dtype):
            return False
        if dtype.kind != "i" or np.can_cast(values.dtype, dtype) or not values.size:
            return True
        limits = np.iinfo(dtype)
        return bool(values.min() >= limits.min and values.max() <= limits.max)


# BYTE_COLOR is read and written in the linear colours that nodes see, which is exact, but its
# bytes cannot be had in bulk: Blender converts one by one, about 50 times slower than the others.
ATTRIBUTE_TYPES = {
    "FLOAT": AttributeType("value", "float32"),
    "INT": AttributeType("value", "int32"),
    "BOOLEAN": AttributeType("value", "bool"),
    "FLOAT_VECTOR": AttributeType("vector", "float32", (3,)),
    "FLOAT2": AttributeType("vector", "float32", (2,)),
    "FLOAT_COLOR": AttributeType("color", "float32", (4,)),
    "BYTE_COLOR": AttributeType("color", "float32", (4,)),
    "QUATERNION": AttributeType("value", "float32", (4,)),
    "FLOAT4X4": AttributeType("value", "float32", (16,)),
    "INT8": AttributeType("value", "int8"),
    "INT16_2D": AttributeType("value", "int16", (2,)),
    "INT32_2D": AttributeType("value", "int32", (2,)),
}
"""Every type that can be carried; STRING cannot, since channels have no text for each element."""

USUAL_TYPES = (
    "FLOAT",
    "INT",
    "BOOLEAN",
    "FLOAT2",
    "FLOAT_VECTOR",
    "FLOAT_COLOR",
    "FLOAT4X4",
    "INT32_2D",
)
"""The types that are chosen for a channel by its shape and dtype alone."""


@dataclass(frozen=True, slots=True)
class AttributePart:
    """One attribute of a channel: what its name ends with, its type, and its values."""

    suffix: str
    type: str
    values: Array


def attribute_parts(values: Array, preferred: str | None = None) -> list[AttributePart]:
    """Return the attributes that carry a channel, in `preferred` type where that can hold it."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    for name in (preferred, *USUAL_TYPES):
        if name in ATTRIBUTE_TYPES and ATTRIBUTE_TYPES[name].holds(values):
            return [AttributePart("", name, _cast(values, ATTRIBUTE_TYPES[name].dtype))]
    if values.shape[1:] == (3, 3) and values.dtype.kind == "f":
        matrices = np.zeros((len(values), 4, 4), np.float32)
        matrices[:, :3, :3] = _cast(values, "float32").transpose(0, 2, 1)  # column by column
        matrices[:, 3, 3] = 1.0
        return [AttributePart("", "FLOAT4X4", matrices.reshape(-1, 16))]
    if values.ndim == 1:  # whole numbers of 64 bits
        return [AttributePart("", "INT32_2D", _halves(values))]
    columns = values.reshape(len(values), int(np.prod(values.shape[1:])))
    return [
        AttributePart(f".{column}", part.type, part.values)
        for column in range(columns.shape[1])
        for part in attribute_parts(np.ascontiguousarray(columns[:, column]))
    ]


def usual_type(name: str) -> str:
    """Return the type that the values of a type are taken for, if nothing else is known."""
    known = ATTRIBUTE_TYPES[name]
    return attribute_parts(np.empty((0, *known.shape), known.dtype))[0].type


def channel_values(parts: Sequence[Array], dtype: str, shape: Sequence[int]) -> Array | None:
    """Return the channel that was carried by attributes with these values.

    None is returned where they are not what a channel of this dtype and shape becomes: somebody
    changed them since.
    """
    size = int(np.prod(shape))
    if size == 1 or len(parts) > 1:
        parts = [_whole(part) if part.shape[1:] == (2,) else part for part in parts]
    elif tuple(shape) == (3, 3) and parts[0].shape[1:] == (16,):
        parts = [parts[0].reshape(-1, 4, 4)[:, :3, :3].transpose(0, 2, 1)]
    joined = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
    if joined.size != len(joined) * size or _family(joined.dtype) != _family(np.dtype(dtype)):
        return None
    return np.ascontiguousarray(joined.reshape(len(joined), *shape), dtype=dtype)


def _halves(values: Array) -> Array:
    return values.astype("<i8").view("<i4").reshape(-1, 2)


def _whole(halves: Array) -> Array:
    return np.ascontiguousarray(halves, "<i4").view("<i8")[:, 0]


def _family(dtype: np.dtype[Any]) -> str:
    return "i" if dtype.kind == "u" else dtype.kind


def _cast(values: Array, dtype: str) -> Array:
    with np.errstate(over="ignore"):  # beyond float32 is infinite there
        return np.ascontiguousarray(values, dtype=dtype)
