"""Attributes of USD over time, from arrays: every value is written once.

What never changes has no time samples. What changes now and then has samples only where it does:
USD holds whole numbers, texts and arrays of another length until the next sample. Real numbers it
interpolates, so they also have a sample at the end of a stretch in which they stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.data.channels import Array
from loki_vfx.serialization.usd_geometry import Value

_BASES = {"bool": "Bool", "int32": "Int", "int64": "Int64", "float32": "Float"}
_ROLES = {"point": "Point3f", "vector": "Vector3f", "normal": "Normal3f", "color": "Color3f"}
_ROLES |= {"uv": "TexCoord2f"}


def usd_type(value: Value) -> tuple[str, int]:
    """Return the name of a value's array type among Sdf.ValueTypeNames, and its element size.

    Vectors and matrices that USD has no type for are flat arrays with an element size.
    """
    array = value.array
    if array.dtype.kind == "U":
        return "StringArray", 1
    if value.role in _ROLES:
        return f"{_ROLES[value.role]}Array", 1
    base, components = _BASES[array.dtype.name], math.prod(array.shape[1:])
    if array.ndim == 2 and 2 <= components <= 4 and base in ("Int", "Float"):
        return f"{base}{components}Array", 1
    return f"{base}Array", components


def usd_array(array: Array, type_name: str) -> Any:
    """Return an array as USD's own of the type that `usd_type` says, by one copy."""
    from pxr import Sdf

    kind = getattr(Sdf.ValueTypeNames, type_name).type.pythonClass
    if array.dtype.kind == "U":
        return kind(array.tolist())
    flat = type_name.removesuffix("Array") in _BASES.values()
    return kind.FromNumpy(np.ascontiguousarray(array.reshape(-1) if flat else array))


class SampledAttribute:
    """Writes one attribute, frame by frame in order."""

    def __init__(
        self,
        attribute: Any,
        to_usd: Callable[[Any], Any] = lambda value: value,
        *,
        every_frame: bool = False,
    ) -> None:
        """Take an attribute and what turns values, arrays or texts, into its own.

        `every_frame` writes samples that are equal, too: velocities count in USD only where they
        have a sample at the time of the points.
        """
        self.value: Any = None
        self._attribute, self._to_usd, self._every_frame = attribute, to_usd, every_frame
        self._since = self._written = self._until = 0
        self._varies = every_frame

    def set(self, value: Any, frame: int) -> None:
        """Give the value at a frame, after those of earlier frames."""
        if self.value is None:
            self.value, self._since = value, frame
            if self._every_frame:
                self._write(value, frame)
        elif self._every_frame or not _same(value, self.value):
            self._change(value, frame)
        self._until = frame

    def close(self) -> None:
        """Write what never changed, which is there at all times."""
        if not self._varies and self.value is not None:
            self._attribute.Set(self._to_usd(self.value))

    def _change(self, value: Any, frame: int) -> None:
        if not self._varies:
            self._varies = True
            self._write(self.value, self._since)
        if self._written < self._until and _interpolated(self.value, value):
            self._write(self.value, self._until)
        self._write(value, frame)
        self.value = value

    def _write(self, value: Any, frame: int) -> None:
        self._attribute.Set(self._to_usd(value), frame)
        self._written = frame


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def _interpolated(before: Any, after: Any) -> bool:
    """Return whether USD gives values between these two."""
    return (
        isinstance(before, np.ndarray) and before.dtype.kind == "f" and before.shape == after.shape
    )
