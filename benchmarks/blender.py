"""Conversion between Blender and Loki: time a channel, each way, over a memcpy of the same bytes.

Everything goes through the functions that the add-on calls, on an object that is turned, so that
positions and velocities are multiplied by a matrix on their way in. A channel's time is what four
of a kind add to an object that has none, divided by four; the position's is that of an object
without channels.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.data.mesh import Mesh
from loki_core.data.points import Points
from loki_core.data.surface import Surface

from ._measure import best_seconds, figure

GOAL = 10.0
COPIES = 4
KINDS: dict[str, tuple[str, tuple[int, ...], str]] = {
    "float": ("float32", (), "none"),
    "int": ("int32", (), "none"),
    "vector": ("float32", (3,), "vector"),
    "colour": ("float32", (4,), "none"),
}
"""The dtype, shape and transform kind of typical channels."""

NEEDS = (
    "needs Blender as a Python module: run it in an environment with bpy (make numpy1 makes one)"
)


def run(quick: bool) -> dict[str, Any]:
    """Measure all figures; without Blender there are none."""
    count = 100_000 if quick else 1_000_000
    side = 317 if quick else 1000
    if importlib.util.find_spec("bpy") is None:
        return {"convert_vs_memcpy_per_channel": figure(None, "x", GOAL, "lower", NEEDS)}
    return {
        "convert_vs_memcpy_per_channel": channels(count, rounds=15),
        "convert_evaluated_anew_vs_memcpy": channels(count, rounds=15, anew=True),
        "surface_frame_vs_memcpy": surface_frame(side, rounds=10),
    }


def channels(count: int, *, rounds: int, anew: bool = False) -> dict[str, Any]:
    """Time each kind of channel both ways; the figure is the worst of them.

    Args:
        anew: Whether objects are evaluated before each reading, as in a new frame. Blender then
            copies what is read of them first, since it shares arrays with the original.
    """
    work: dict[str, Callable[[], Any]] = {}
    before: dict[str, Callable[[], Any]] = {}
    for kind in ("position", *KINDS):
        points = Points(np.random.default_rng(1).random((count, 3), dtype=np.float32))
        if kind != "position":
            add_channels(points, kind)
        work[f"{kind} in"], work[f"{kind} out"], evaluate = both_ways(points, kind)
        if anew:
            before[f"{kind} in"] = evaluate
        work[f"{kind} memcpy"] = memcpy(sample(points, kind))
    best = best_seconds(work, rounds=rounds, before=before)
    ratios = {}
    for kind in ("position", *KINDS):
        for way in ("in", "out"):
            spent = best[f"{kind} {way}"]
            if kind != "position":
                spent = (spent - best[f"position {way}"]) / COPIES
            ratios[f"{kind} {way}"] = spent / best[f"{kind} memcpy"]
    worst = max(ratios, key=lambda name: ratios[name])
    shown = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
    how = f"{count:,} vertices, worst is {worst}; into Loki and out to Blender: {shown}"
    return figure(ratios[worst], "x", None if anew else GOAL, "lower", how)


def surface_frame(side: int, *, rounds: int) -> dict[str, Any]:
    """Time a whole frame of a surface with position, velocity and a float, topology included."""
    corner = np.arange(side * side, dtype=np.int32).reshape(side, side)[:-1, :-1].reshape(-1, 1)
    positions = np.random.default_rng(1).random((side * side, 3), dtype=np.float32)
    surface = Surface.from_faces(positions, corner + np.array([0, 1, side + 1, side], np.int32))
    surface.set_channel("point", "velocity", positions)
    surface.set_channel("point", "heat", positions[:, 0])
    into, out, _ = both_ways(surface, "surface")
    arrays = [positions, positions, positions[:, 0].copy()]
    arrays += [surface.face_offsets, surface.face_vertices]
    copies = [memcpy(array) for array in arrays]
    work = {"in": into, "out": out, "memcpy": lambda: [copy() for copy in copies]}
    best = best_seconds(work, rounds=rounds)
    how = (
        f"{side * side:,} vertices, quads, same topology, 2 channels: {1e3 * best['in']:.0f} ms "
        f"in, {1e3 * best['out']:.0f} ms out, memcpy of all arrays {1e3 * best['memcpy']:.1f} ms"
    )
    return figure(max(best["in"], best["out"]) / best["memcpy"], "x", None, "lower", how)


def both_ways(stream: Mesh, name: str) -> tuple[Callable[[], Any], ...]:
    """Return what reads an object that shows a stream, what writes it, and what evaluates it."""
    import bpy

    from loki_vfx.bridges.blender.axes import Axes
    from loki_vfx.bridges.blender.host_to_loki import stream_of
    from loki_vfx.bridges.blender.loki_to_host import show

    axes = Axes()
    source = show(stream, f"{name} source", axes)
    source.modifiers.clear()
    source.rotation_euler, source.location = (0.3, 0.2, 0.1), (1.0, 2.0, 3.0)
    result = show(stream, f"{name} result", axes)
    depsgraph = bpy.context.evaluated_depsgraph_get()

    def evaluate() -> None:
        source.data.update_tag()
        depsgraph.update()

    return (
        lambda: stream_of(source, depsgraph, axes),
        lambda: show(stream, f"{name} result", axes, target=result),
        evaluate,
    )


def add_channels(points: Points, kind: str) -> None:
    """Give points four channels of a kind."""
    dtype, shape, transform = KINDS[kind]
    random = np.random.default_rng(2)
    for number in range(COPIES):
        values = (1000.0 * random.random((points.point_count, *shape))).astype(dtype)
        points.set_channel("point", f"{kind}{number}", values, transform=transform)


def sample(points: Points, kind: str) -> Any:
    """Return an array of the size of one channel."""
    return points.positions if kind == "position" else points.channels["point"][f"{kind}0"]


def memcpy(values: Any) -> Callable[[], Any]:
    """Return what copies an array to another one that is there already."""
    target = np.empty_like(values)
    return lambda: np.copyto(target, values)
