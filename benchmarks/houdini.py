"""Conversion between Houdini's geometry format and Loki: time over a memcpy of the same bytes.

A million points with velocity, id and pscale, as the nodes exchange them: a stream becomes bytes
that `hou.Geometry.load` takes, and bytes as `hou.Geometry.data` gives them become a stream, with
arrays of its own. What Houdini itself takes for its part is not measured. The memcpy is of the
bytes, into memory that is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.data.points import Points
from loki_vfx.serialization.houdini_files import read_bytes, write_bytes
from loki_vfx.serialization.houdini_streams import geometry_of, stream_of

from ._measure import best_seconds, figure

ENCODE_GOAL, DECODE_GOAL = 20.0, 10.0


def run(quick: bool) -> dict[str, Any]:
    """Measure both ways, and strands whose points are in another order."""
    count = 100_000 if quick else 1_000_000
    random = np.random.default_rng(1)
    points = Points(random.random((count, 3), dtype=np.float32))
    points.set_channel("point", "velocity", random.random((count, 3), dtype=np.float32))
    points.set_channel("point", "id", np.arange(count, dtype=np.int32))
    points.set_channel("point", "radius", random.random(count, dtype=np.float32))
    data = write_bytes(geometry_of(points))
    source, target = np.frombuffer(data, np.uint8), np.zeros(len(data), np.uint8)
    doubles = Points(points.positions.astype(np.float64))
    doubles.channels.copy_from(points.channels)
    best = best_seconds(
        {
            "encode": lambda: write_bytes(geometry_of(points)),
            "decode": lambda: stream_of(read_bytes(data)),
            "doubles": lambda: write_bytes(geometry_of(doubles, single=True)),
            "memcpy": lambda: np.copyto(target, source),
        },
        rounds=15,
    )
    size = f"{count:,} points with velocity, id and pscale, {len(data) / 1e6:.0f} MB"
    times = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in best.items())
    how = f"{size}: {times}"
    return {
        "encode_vs_memcpy": figure(best["encode"] / best["memcpy"], "x", ENCODE_GOAL, "lower", how),
        "decode_vs_memcpy": figure(best["decode"] / best["memcpy"], "x", DECODE_GOAL, "lower", how),
        "encode_doubles_vs_memcpy": figure(
            best["doubles"] / best["memcpy"],
            "x",
            None,
            "lower",
            "as above, with positions in double precision that become single ones",
        ),
    }
