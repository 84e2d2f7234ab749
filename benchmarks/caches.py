"""Frame caches: bytes and speed of compressed frames against frames as they are.

Frames are those of examples after some time. Both forms are written to the disk, flushed, and read
again, in turn; the best of several rounds counts. What is read lies in the system's memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loki_core.pipeline.solver import Solver
from loki_vfx.benchmarks._measure import best_seconds, figure
from loki_vfx.examples.dam_break import example as dam_break
from loki_vfx.examples.hair_in_wind import example as hair_in_wind
from loki_vfx.examples.smoke_plume import example as smoke_plume
from loki_vfx.serialization.atomic_file import read_packed, write_packed


def run(quick: bool) -> dict[str, dict[str, Any]]:
    """Measure smoke, particles and hair; `quick` uses fewer frames."""
    cases: dict[str, tuple[Callable[[], Any], int, str]] = {
        "smoke": (smoke_plume.build, 10 if quick else 24, "Smoke/Plume"),
        "particles": (dam_break.build, 2 if quick else 12, "Water"),
        "hair": (hair_in_wind.build, 1 if quick else 6, "Hair"),
    }
    figures: dict[str, dict[str, Any]] = {}
    for name, (build, frames, wanted) in cases.items():
        solver = Solver(*build())
        first = solver.outputs()
        solver.run(frames)
        streams = solver.outputs()
        path = next(one for one in streams if wanted in one)
        how = f"{path} of {build.__module__.split('.')[-2]}, frame {frames + 1}"
        figures |= cache_figures(name, streams[path], how)
        if name == "smoke":
            figures["smoke_first_frame_kilobytes"] = first_frame(first[path])
    return figures


def first_frame(stream: Any) -> dict[str, Any]:
    """Return what a frame before any smoke takes."""
    with tempfile.TemporaryDirectory() as folder:
        packed = write_packed(Path(folder) / "first.loki", stream, compressed=True)
    how = f"of {packed.plain_size / 1e3:,.0f} kB"
    return figure(packed.size / 1e3, "kB", 20.0, "lower", how)


def cache_figures(name: str, stream: Any, how: str) -> dict[str, dict[str, Any]]:
    """Return ratio and speeds of one stream."""
    with tempfile.TemporaryDirectory() as folder:
        plain, compressed = Path(folder) / "plain.loki", Path(folder) / "compressed.loki"
        before = write_packed(plain, stream)
        after = write_packed(compressed, stream, compressed=True)
        seconds = best_seconds(
            {
                "write plain": lambda: write_packed(plain, stream),
                "write": lambda: write_packed(compressed, stream, compressed=True),
                "read plain": lambda: read_packed(plain),
                "read": lambda: read_packed(compressed),
            },
            rounds=7,
        )
    size = before.plain_size / 1e6
    ratio = before.size / after.size
    speeds = {key: size / one for key, one in seconds.items()}
    return {
        f"{name}_ratio": figure(ratio, "", None, "higher", f"{how}: {size:.1f} MB"),
        f"{name}_write_mb_per_second": figure(
            speeds["write"], "MB/s", None, "higher", f"plain: {speeds['write plain']:.0f} MB/s"
        ),
        f"{name}_read_mb_per_second": figure(
            speeds["read"], "MB/s", None, "higher", f"plain: {speeds['read plain']:.0f} MB/s"
        ),
    }
