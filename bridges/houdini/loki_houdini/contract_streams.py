"""Contract streams: what a host is given to see whether it comes back as it was.

Streams of every type, with channels of every type at every location. Tests of all hosts use them,
and so does the first run in Houdini itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_vfx.serialization.digest import digest

PLACES = np.random.default_rng(3).random((12, 3))
EMPTY = np.empty((0, 3))
TYPES: dict[str, Callable[[], Any]] = {
    "points": lambda: Points(PLACES),
    "curves": lambda: Curves(PLACES, [0, 3, 7, 12], [False, True, False]),
    "wireframe": lambda: Wireframe(PLACES, [[0, 1], [1, 2], [1, 5], [7, 8]]),
    "surface": lambda: Surface(PLACES, [0, 3, 7, 12], np.arange(12)),
    "single": lambda: Surface(PLACES.astype(np.float32), [0, 4], [0, 5, 2, 3]),
    "body": lambda: Body(PLACES, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "no points": lambda: Points(EMPTY),
}
SINGLE = ("points", "curves", "wireframe", "surface")
"""Types that every host has data for; positions of most hosts are in single precision."""


def dressed(name: str) -> Any:
    """Return a stream with a channel of every dtype and shape at every location that it has."""
    stream = TYPES[name]()
    random = np.random.default_rng(5)
    for location in ("point", "vertex", "primitive", "detail"):
        n = stream.count(location)
        if n == 0 and location != "point":
            continue
        single = random.random((n, 3)).astype(np.float32)
        channels: dict[str, Any] = {
            "velocity": single,
            "id": np.arange(n, dtype=np.int64) + (1 << 40),
            "radius": random.random(n),
            "chosen": random.random(n) > 0.5,
            "byte": np.arange(n).astype(np.uint8),
            "material": random.random((n, 3, 3)),
            "color": random.random((n, 4)).astype(np.float32),
            "v": random.random((n, 2)),
            "three": random.random((n, 3)) > 0.5,
            "count": np.arange(n, dtype=np.int32),
        }
        for channel, values in channels.items():
            stream.set_channel(location, channel, values)
        stream.set_channel(location, "place", single + 1.0, transform="point")
    stream.set_channel("detail", "label", "hé ✓")
    return stream


def single(name: str) -> Any:
    """Return one as `dressed`, of numbers that single precision has, at locations of every host."""
    stream = dressed(name)
    stream.positions = stream.positions.astype(np.float32)
    for location, channels in stream.channels.items():
        if name == "wireframe" and location == "vertex":
            for channel in list(channels):
                del channels[channel]
        for channel, values in channels.items():
            if values.dtype == np.float64:
                channels[channel] = values.astype(np.float32).astype(np.float64)
    return stream


def common(stream: Any, other: Any) -> Any:
    """Return a stream with those of its channels that another has, in the order of their names."""
    made = type(stream)(stream.positions, **{n: getattr(stream, n) for n in stream.topology_names})
    for location, channels in stream.channels.items():
        for name in sorted(set(channels) & set(other.channels[location])):
            kind = channels.transform_of(name)
            made.channels[location].set(name, channels[name], transform=kind)
    return made


def differences(a: Any, b: Any) -> list[str]:
    """Return in words what is not the same bit for bit; nothing if all is."""
    if type(a) is not type(b):
        return [f"{type(a).__name__} became {type(b).__name__}"]
    found: list[str] = []
    _compare(found, "positions", a.positions, b.positions)
    for name in a.topology_names:
        _compare(found, name, np.asarray(getattr(a, name)), np.asarray(getattr(b, name)))
    for location, channels in a.channels.items():
        others = b.channels[location]
        for name in sorted(set(channels) ^ set(others)):
            found.append(f"{location} {name} is {'lost' if name in channels else 'new'}")
        for name in sorted(set(channels) & set(others)):
            label = f"{location} {name}"
            _compare(found, label, channels[name], others[name])
            before, after = channels.transform_of(name), others.transform_of(name)
            if before != after:
                found.append(f"{label} transforms as {after}; before as {before}")
    return found


def changed_there_and_back(
    name: str, give: Callable[[Any], Any], take: Callable[[Any], Any]
) -> list[str]:
    """Return in words what a host changes in a stream of `single`; nothing if it keeps all.

    A host may add channels of its own, to remember what Loki has no place for.

    Args:
        give: Makes data of the host of a stream.
        take: Makes a stream of data of the host.
    """
    expected = single(name)
    again = common(take(give(single(name))), expected)
    found = differences(expected, again)
    if not found and digest(again) != digest(common(expected, expected)):
        found.append("all is the same, and the digest is another")
    return found


def _compare(found: list[str], label: str, a: Any, b: Any) -> None:
    if a.dtype != b.dtype:
        found.append(f"{label} of {a.dtype} became {b.dtype}")
    elif a.shape != b.shape:
        found.append(f"{label} of shape {list(a.shape)} became {list(b.shape)}")
    else:
        differ = ((a != b) & ~((a != a) & (b != b))).reshape(-1)  # nan is nan
        if differ.any():
            first = int(np.flatnonzero(differ)[0])
            values = f"{a.reshape(-1)[first]!r}, now {b.reshape(-1)[first]!r}"
            count = int(differ.sum())
            found.append(f"{label}: {count} of {a.size} values differ, the first was {values}")
