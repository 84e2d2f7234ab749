"""Streams of every type with channels of every type at every location, for tests of hosts."""

from __future__ import annotations

from typing import Any

import numpy as np

import loki_core as lk

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
