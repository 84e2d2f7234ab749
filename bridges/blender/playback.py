"""Playback: baked frames in the objects of the scene, whenever the time changes.

Frames come from the cache on the disk. Before the first and after the last baked frame, objects
stay as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import bpy

from loki_core.errors import LokiError

from . import bakes, cache_files, messages, rendering, volumes
from .graph_tree import graphs, outputs_in
from .loki_to_host import show
from .scene_inputs import axes_of
from .scene_time import is_away

COLLECTION = "Loki"
_is_showing = False


def show_frame(tree: Any, scene: Any, frame: int) -> bool:
    """Let objects show a frame of a graph, or the last one before it; return whether they do."""
    frames = cache_files.baked_frames(tree)
    place = bisect_right(frames, frame) - 1
    if place < 0:
        return False
    frame = frames[place]
    axes, reader = axes_of(scene), cache_files.reader_of(tree)
    types = cache_files.types_in(reader, frame)
    for node in outputs_in(tree):
        name, part = node.result_name, node.part
        if name not in types:
            continue
        label = f"{tree.name} {name}"
        there: dict[str, Any] = {"target": part.target, "collection": _collection(scene)}
        if types[name] == volumes.VOXELS:
            shown = volumes.show(
                reader, name, frame, axes,
                frames=frames, wait=rendering.must_wait(), label=label, **there,
            )  # fmt: skip
        else:
            shown = show(reader.read(frame, name), label, axes, **there)
        if part.target is not shown:
            part.target = shown
    return True


def _collection(scene: Any) -> Any:
    found = scene.collection.children.get(COLLECTION)
    if found is None:
        found = bpy.data.collections.new(COLLECTION)
        scene.collection.children.link(found)
    return found


@bpy.app.handlers.persistent
def on_frame_change(scene: Any, depsgraph: Any = None) -> None:
    """Show the frame that a scene goes to."""
    global _is_showing
    if is_away(scene) or _is_showing:
        return  # inputs are read at another time; what was shown stays
    _is_showing = True
    try:
        for tree in graphs():
            shown_in = tree.loki.scene
            if tree.loki.show_results and tree.loki.run and shown_in in (None, scene):
                _show_in(tree, scene)
    finally:
        _is_showing = False


def _show_in(tree: Any, scene: Any) -> None:
    bake = bakes.bake_of(tree)
    try:
        if rendering.is_rendering() and bake is not None:
            rendering.wait_for(tree, bake, scene.frame_current)
        if show_frame(tree, scene, scene.frame_current):
            messages.take_back(tree)
    except (LokiError, OSError) as error:
        messages.report(tree, str(error))
