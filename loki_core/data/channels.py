"""Channels of a mesh: named arrays on its points, vertices, primitives, or on the whole.

    mesh.channels["point"]["velocity"]      the array itself, shape [point_count, 3]
    mesh.channels["point"].transform_of("velocity")   "vector"

A channel is one value per element: shape (n,), (n, k) or (n, 3, 3). Detail channels hold one
element, n = 1. Each channel knows how it follows a change of coordinates (its transform kind).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import InputError, did_you_mean

LOCATIONS = ("point", "vertex", "primitive", "detail")

TRANSFORMS = ("none", "point", "vector", "normal")
"""How values follow a 4x4 matrix: not at all, as places, as differences, as normals."""

CHANNEL_DTYPES = ("bool", "uint8", "int32", "int64", "float32", "float64")

KNOWN_TRANSFORMS = {
    "velocity": "vector",
    "acceleration": "vector",
    "force": "vector",
    "normal": "normal",
}
"""Transform kinds that go without saying, by channel name; an explicit kind wins."""

_MOTION = re.compile(r"motion_([1-9]\d*)")

Array = npt.NDArray[Any]


class Channels(MutableMapping[str, Array]):
    """The channels of one location, by name; assigning checks dtype and shape."""

    __slots__ = ("_arrays", "_transforms", "location")

    def __init__(self, location: str) -> None:
        self.location = location
        self._arrays: dict[str, Array] = {}
        self._transforms: dict[str, str] = {}

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            hint = did_you_mean(name, self._arrays)
            raise KeyError(f'no {self.location} channel "{name}"{hint}') from None

    def __setitem__(self, name: str, values: npt.ArrayLike) -> None:
        self.set(name, values)

    def __delitem__(self, name: str) -> None:
        del self._arrays[name]
        del self._transforms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in self._arrays.items())
        return f"Channels({self.location}: {shown})"

    def set(self, name: str, values: npt.ArrayLike, *, transform: str | None = None) -> None:
        """Store `values` under `name`; contiguous arrays are kept, not copied.

        Without `transform` a channel keeps the kind it had, or takes the known one of its name.
        """
        array = self._checked(name, values)
        if transform is None:
            transform = self._transforms.get(name) or self._known_transform(name)
            if not _can_transform(array):
                transform = "none"
        if transform not in TRANSFORMS:
            raise InputError(
                f'{self.location} channel "{name}": unknown transform kind "{transform}"'
                f"{did_you_mean(transform, TRANSFORMS)}"
            )
        if transform != "none" and not _can_transform(array):
            raise InputError(
                f'{self.location} channel "{name}" is {array.dtype}{list(array.shape)}; a channel '
                f"that transforms as a {transform} is float32 or float64 of shape [n, 3]"
            )
        self._arrays[name] = array
        self._transforms[name] = transform

    def _known_transform(self, name: str) -> str:
        if self.location == "point" and _MOTION.fullmatch(name):
            return "point"
        return KNOWN_TRANSFORMS.get(name, "none")

    def transform_of(self, name: str) -> str:
        """Return how the channel follows a change of coordinates."""
        self[name]
        return self._transforms[name]

    def _checked(self, name: str, values: npt.ArrayLike) -> Array:
        if not isinstance(name, str) or not name or len(name) > 256:
            raise InputError(
                f"{self.location} channel {name!r}: a name is a text of 1 to 256 letters"
            )
        array = np.asarray(values)
        if self.location == "detail" and (array.ndim == 0 or array.shape[0] != 1):
            array = array[np.newaxis]
        text_allowed = self.location == "detail" and array.dtype.kind == "U" and array.ndim == 1
        if array.dtype.name not in CHANNEL_DTYPES and not text_allowed:
            extra = ", text" if self.location == "detail" else ""
            raise InputError(
                f'{self.location} channel "{name}" is of dtype {array.dtype}; allowed are '
                f"{', '.join(CHANNEL_DTYPES)}{extra}: convert it before"
            )
        shaped = array.ndim == 1 or (array.ndim == 2 and array.shape[1] > 0)
        if not shaped and array.shape[1:] != (3, 3):
            raise InputError(
                f'{self.location} channel "{name}" has shape {list(array.shape)}; expected [n], '
                "[n, k] or [n, 3, 3]"
            )
        return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


class ChannelTable(Mapping[str, Channels]):
    """The four locations of a mesh and their channels."""

    __slots__ = ("_locations",)

    def __init__(self) -> None:
        self._locations = {location: Channels(location) for location in LOCATIONS}

    def __getitem__(self, location: str) -> Channels:
        try:
            return self._locations[location]
        except KeyError:
            hint = did_you_mean(str(location), LOCATIONS)
            raise InputError(f'unknown channel location "{location}"{hint}') from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._locations)

    def __len__(self) -> int:
        return len(self._locations)

    def copy_from(self, other: ChannelTable) -> None:
        """Take over every channel of `other`; the arrays are shared."""
        for location, channels in other.items():
            for name, values in channels.items():
                self[location].set(name, values, transform=channels.transform_of(name))

    def to_document(self) -> dict[str, Any]:
        """Return plain dicts and arrays; text becomes a list of strings."""
        document: dict[str, Any] = {}
        for location, channels in self.items():
            entries = {
                name: {
                    "values": values.tolist() if values.dtype.kind == "U" else values,
                    "transform": channels.transform_of(name),
                }
                for name, values in channels.items()
            }
            if entries:
                document[location] = entries
        return document

    @classmethod
    def from_document(cls, document: object, *, label: str) -> ChannelTable:
        """Read what `to_document` wrote; raise InputError on anything else."""
        table = cls()
        if not isinstance(document, dict):
            raise InputError(f"{label}: channels are a {type(document).__name__}, expected a map")
        for location, entries in document.items():
            if not isinstance(entries, dict):
                raise InputError(f"{label}: channels of {location!r} are not a map")
            for name, entry in entries.items():
                if not isinstance(entry, dict) or set(entry) != {"values", "transform"}:
                    raise InputError(
                        f'{label}: {location} channel "{name}" is not a map of "values" and '
                        '"transform"'
                    )
                values, transform = entry["values"], entry["transform"]
                # one text only: numpy pads a list of texts to the longest one
                is_text = isinstance(values, list) and [type(v) for v in values] == [str]
                if not isinstance(values, np.ndarray) and not is_text:
                    raise InputError(f'{label}: {location} channel "{name}" is no array')
                if not isinstance(transform, str):
                    raise InputError(f'{label}: {location} channel "{name}": no transform kind')
                table[location].set(name, values, transform=transform)
        return table


def _can_transform(array: Array) -> bool:
    return array.dtype.kind == "f" and array.ndim == 2 and array.shape[1] == 3


def motion_channels(names: Iterable[str]) -> list[str]:
    """Return those names of point channels that are a motion's (`objects/basics/motion.py`)."""
    found = {int(match[1]): match[0] for match in map(_MOTION.fullmatch, names) if match}
    return [found[number] for number in sorted(found)]


def check_values(values: Array, shape: tuple[int, ...], *, label: str, unit: str = "") -> None:
    """Raise InputError that names a channel whose values have another shape or are not finite.

    Args:
        values: One value per element, shape [n, *shape].
        label: Stream, location and name of the channel.
    """
    if values.shape[1:] != shape:
        found, expected = (math.prod(size) for size in (values.shape[1:], shape))
        raise InputError(f"{label} has {found} numbers an element; expected {expected}")
    if values.dtype.kind != "f":
        return
    bad = ~np.isfinite(values).reshape(len(values), math.prod(shape)).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{label}[{row}] = {values[row].tolist()}{' ' if unit else ''}{unit} "
            f"({int(bad.sum())} of {len(values)} elements); expected finite numbers"
        )
