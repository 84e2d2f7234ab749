"""Override Channels: what of an animated input overrides parameters, followed frame by frame.

Channels of the whole and of primitives are read where they are used. Those of points are kept with
the particles, which have places and ranks of their own; they are taken from the input again, by id,
in every frame whose bytes are not those of the frame before. So what an Expression writes into such
a channel lasts until the input says something else, and what stays the same costs nothing.

What bytes were taken last is part of the state: a run that goes on after a restart takes the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.data.particle_system import ParticleSystem
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.sparse_parameters import channel_names

Array = NDArray[Any]
Int64 = NDArray[np.int64]

PLACES = ("detail", "primitive", "point", "voxel")


def override_names(behavior_class: type[Behavior], *parameters: str) -> tuple[str, ...]:
    """Channels that replace or scale these parameters; all that vary if none is named."""
    chosen = parameters or tuple(
        name for name, one in behavior_class.parameters().items() if one.varies != "no"
    )
    names = (own for name in chosen for own in channel_names(behavior_class, name))
    return tuple(dict.fromkeys(one for name in names for one in (name, f"{name}_scale")))


def give_defaults(particles: ParticleSystem, behavior: Behavior, names: Iterable[str]) -> None:
    """Let particles that come later have a Behavior's values in channels that override these.

    Args:
        particles: With the channels.
        behavior: With the values of the current time.
        names: Of channels that override its parameters.
    """
    for parameter in behavior.parameters():
        value = getattr(behavior, parameter)
        for own in channel_names(type(behavior), parameter):
            if own in names and value is not None:
                particles.channels[own].default = value
            if f"{own}_scale" in names:
                particles.channels[f"{own}_scale"].default = 1.0


class OverrideChannels:
    """Which channels of one Object's input are overrides, and what they held last."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._taken: dict[tuple[str, str], bytes] = {}
        self._arrays: dict[tuple[str, str], weakref.ref[Array]] = {}

    def add(self, names: tuple[str, ...], stream: Any) -> None:
        """Follow channels of these names from now on; the stream is what was taken so far."""
        self._names |= dict.fromkeys(names)
        self.changes(stream)

    def changes(self, stream: Any) -> dict[str, list[str]]:
        """Names of overrides whose bytes are not those of the last stream, by place."""
        changed: dict[str, list[str]] = {place: [] for place in PLACES}
        for place in PLACES:
            for name in self._names:
                array = _present(stream, place, name)
                if self._differs((place, name), array):
                    changed[place].append(name)
        return changed

    def painted(
        self, stream: Any, changed: Mapping[str, list[str]], *, without: Iterable[str]
    ) -> list[str]:
        """Point channels to take again: all of them where points have changed their numbers."""
        present = stream.channels["point"]
        names = changed["point"]
        if "id" in names:
            names = [name for name in self._names if name in present or name in names]
        return [name for name in names if name not in without]

    def _differs(self, key: tuple[str, str], array: Array | None) -> bool:
        """Whether an array, or none, is not what was there before; it is from now on."""
        if array is None:
            self._arrays.pop(key, None)
            return self._taken.pop(key, None) is not None
        known = self._arrays.get(key)
        if known is not None and known() is array:
            return False
        self._arrays[key] = weakref.ref(array)
        digest = _digest(array)
        before, self._taken[key] = self._taken.get(key), digest
        return before != digest

    def state(self) -> dict[str, str]:
        """Digests of what was taken last."""
        return {f"{place}.{name}": one.hex() for (place, name), one in self._taken.items()}

    def restore(self, state: dict[str, str]) -> None:
        """Take such a state back."""
        self._arrays.clear()
        self._taken = {}
        for key, digest in state.items():
            place, _, name = key.partition(".")
            self._taken[place, name] = bytes.fromhex(digest)


def take_painted(
    particles: ParticleSystem,
    mine: Int64,
    stream: Any,
    rows: Int64,
    names: Iterable[str],
    *,
    label: str,
) -> None:
    """Write point channels of a stream to particles: its `rows` to those in the rows `mine`.

    Raises:
        InputError: A channel was not there at the start, is not there any more, or is another.
    """
    for name in names:
        array, channel = stream.channels["point"].get(name), particles.channels.get(name)
        if array is None or channel is None:
            when = "no more" if array is None else "now, but not at the start"
            raise InputError(
                f'{label} has the point channel "{name}" {when}; it overrides a parameter, so its '
                "values may change, but it may not come or go"
            )
        if array.shape[1:] != channel.shape:
            raise InputError(
                f'{label}: point channel "{name}" has {list(array.shape[1:])} values a point now, '
                f"and {list(channel.shape)} at the start"
            )
        particles.local(name)[mine] = array[rows]
        particles.mark_written(name)


class InputPoints:
    """Which particles came from which points of an input, and where those are in a later frame.

    Args:
        stream: The input at the start, whose points were given ids in their order.
        first: The first of these ids.
        rows: Points that became particles, in the order of ids; None for all.
        label: What messages call the input.
    """

    def __init__(self, stream: Any, *, first: int, rows: Int64 | None, label: str) -> None:
        self._first, self._rows, self._label = first, rows, label
        self._points = stream.point_count
        self._count = self._points if rows is None else len(rows)
        self._ids = _own_ids(stream)
        if self._ids is not None and np.array_equal(self._ids, np.arange(self._points)):
            self._ids = None

    def find(self, ids: Int64, stream: Any) -> tuple[Int64, Int64]:
        """Rows of particles of these ids that came from the input, and of their points in a stream.

        Points are known by the channel `id` where the input has one, else by their order.

        Raises:
            InputError: There are more or fewer points now, and no ids.
        """
        number = ids - self._first
        mine = np.flatnonzero((number >= 0) & (number < self._count))
        row = number[mine] if self._rows is None else self._rows[number[mine]]
        now = _own_ids(stream)
        if now is None:
            if stream.point_count != self._points:
                raise InputError(
                    f"{self._label} has {stream.point_count} points now, and {self._points} at "
                    'the start; to follow what is painted on them they need a point channel "id"'
                )
            return mine, row
        wanted = row if self._ids is None else self._ids[row]
        order = np.argsort(now, kind="stable")
        place = np.searchsorted(now, wanted, sorter=order)
        there = place < len(now)
        found = order[np.where(there, place, 0)] if len(now) else np.zeros(len(wanted), np.int64)
        there &= now[found] == wanted if len(now) else False
        return mine[there], found[there]


def _own_ids(stream: Any) -> Int64 | None:
    """Numbers by which the input itself knows its points."""
    ids = stream.channels["point"].get("id")
    usable = ids is not None and ids.ndim == 1 and ids.dtype.kind in "iu"
    return ids.astype(np.int64) if usable else None


def _present(stream: Any, place: str, name: str) -> Array | None:
    """A channel at a place of a mesh; of voxels its bytes, with where they are."""
    if not isinstance(stream, Voxels):
        found: Array | None = stream.channels[place].get(name) if place != "voxel" else None
        return found
    channel = stream.channels.get(name) if place == "voxel" else None
    if channel is None:
        return None
    place_and_size = [*stream.origin.tolist(), stream.voxel_size, channel.background]
    parts = (channel.values, stream.coords, np.array(place_and_size))
    return np.concatenate([np.ascontiguousarray(one).view(np.uint8).reshape(-1) for one in parts])


def _digest(array: Array) -> bytes:
    head = f"{array.dtype.str}{array.shape}".encode()
    held = blake2b(head, digest_size=16)
    held.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return held.digest()
