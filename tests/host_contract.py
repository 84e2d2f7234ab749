"""The contract of hosts: what goes in is the same stream everywhere, and comes back as it was.

Streams of every type, with channels of every type at every location. A host brings two functions:
one that makes its own data of a stream, and one that makes a stream of its data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import loki_core as lk
from serialization.digest import digest

PLACES = np.random.default_rng(3).random((12, 3))
EMPTY = np.empty((0, 3))
TYPES = {
    "points": lambda: lk.Points(PLACES),
    "curves": lambda: lk.Curves(PLACES, [0, 3, 7, 12], [False, True, False]),
    "wireframe": lambda: lk.Wireframe(PLACES, [[0, 1], [1, 2], [1, 5], [7, 8]]),
    "surface": lambda: lk.Surface(PLACES, [0, 3, 7, 12], np.arange(12)),
    "single": lambda: lk.Surface(PLACES.astype(np.float32), [0, 4], [0, 5, 2, 3]),
    "body": lambda: lk.Body(PLACES, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "no points": lambda: lk.Points(EMPTY),
}
SINGLE = ("points", "curves", "wireframe", "surface")
"""Types that every host has data for; positions of most hosts are in single precision."""


def dressed(name: str) -> Any:
    """A stream with a channel of every dtype and shape at every location that it has."""
    stream = TYPES[name]()
    random = np.random.default_rng(5)
    for location in ("point", "vertex", "primitive", "detail"):
        n = stream.count(location)
        if n == 0 and location != "point":
            continue
        single = random.random((n, 3)).astype(np.float32)
        for channel, values in {
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
        }.items():
            stream.set_channel(location, channel, values)
        stream.set_channel(location, "place", single + 1.0, transform="point")
    stream.set_channel("detail", "label", "hé ✓")
    return stream


def single(name: str) -> Any:
    """A stream as `dressed`, of numbers that single precision has, at locations of every host."""
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
    """A stream with those of its channels that another has, in the order of their names."""
    made = type(stream)(stream.positions, **{n: getattr(stream, n) for n in stream.topology_names})
    for location, channels in stream.channels.items():
        for name in sorted(set(channels) & set(other.channels[location])):
            kind = channels.transform_of(name)
            made.channels[location].set(name, channels[name], transform=kind)
    return made


def check_there_and_back(name: str, give: Any, take: Any) -> None:
    """What a host makes of a stream becomes the same stream again, with the same digest.

    A host may add channels of its own, to remember what Loki has no place for.
    """
    expected = single(name)
    again = common(take(give(single(name))), expected)
    assert_same(expected, again)
    assert digest(again) == digest(common(expected, expected))


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit: type, positions, topology, channels and how they transform."""
    assert type(a) is type(b)
    assert a.positions.dtype == b.positions.dtype
    np.testing.assert_array_equal(a.positions, b.positions)
    for name in a.topology_names:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for location, channels in a.channels.items():
        others = b.channels[location]
        assert sorted(channels) == sorted(others), location
        for name, values in channels.items():
            label = f"{location} {name}"
            assert values.dtype == others[name].dtype, label
            np.testing.assert_array_equal(values, others[name], err_msg=label)
            assert channels.transform_of(name) == others.transform_of(name), label
