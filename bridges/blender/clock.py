"""The clock that bakes run by: what has come is taken in, and new frames are shown."""

from __future__ import annotations

from functools import partial
from typing import Any

import bpy

from loki_core.errors import LokiError

from . import bakes, cache_files, messages, rendering, volumes
from .bake import Bake
from .graph_tree import outputs_in
from .playback import show_frame

BUSY, IDLE = 0.1, 0.5  # seconds between two looks
REDRAWN = ("VIEW_3D", "NODE_EDITOR", "PROPERTIES")


def tick_all() -> bool:
    """Take in what all bakes have to say; show new frames. Return whether more will come."""
    messages.take_in()
    volumes.take_in()
    active = volumes.is_writing()
    for tree, bake in bakes.all_bakes():
        if rendering.is_rendering() and bake.feeds and not bpy.app.background:
            continue  # inputs cannot be read while another thread renders the scene
        try:
            _tick(tree, bake)
        except Exception as error:  # the clock must go on, whatever one bake does
            bake.lose(error)
        active = active or not bake.is_over
    return active


def _tick(tree: Any, bake: Bake) -> None:
    bake.tick()
    if tree.loki.run != bake.run_name:
        tree.loki.run = bake.run_name  # undo took it back; the frames are there all the same
    if not bake.has_new_frame or bake.frame is None:
        return
    bake.has_new_frame = False
    frame = bake.frame
    try:
        reader = cache_files.reader_of(tree)
        types = cache_files.types_in(reader, frame)
        names = [node.result_name for node in outputs_in(tree)]
        volumes.prepare(
            reader, frame, [name for name in names if types.get(name) == volumes.VOXELS],
            then=partial(_show_new, bake, frame), failed=partial(_say, bake, frame),
        )  # fmt: skip
    except (LokiError, OSError) as error:
        _say(bake, frame, error)


def _say(bake: Bake, frame: int, error: Exception) -> None:
    bake.say("error", f"frame {frame} cannot be shown: {error}")


def _show_new(bake: Bake, frame: int) -> None:
    """Show a new frame, now that it is there with all its files; its graph may be gone by now."""
    tree = next((tree for tree, one in bakes.all_bakes() if one is bake), None)
    scene = bpy.data.scenes.get(bake.scene)
    if tree is None or scene is None or not tree.loki.show_results or rendering.is_rendering():
        return
    try:
        if tree.loki.live_preview and not _is_playing():
            scene.frame_set(frame)
        elif scene.frame_current >= frame:
            show_frame(tree, scene, scene.frame_current)
    except (LokiError, OSError) as error:
        _say(bake, frame, error)
    except Exception as error:  # the clock must go on, whatever one bake does
        bake.lose(error)


def _is_playing() -> bool:
    windows = bpy.context.window_manager.windows if bpy.context.window_manager else ()
    return any(window.screen.is_animation_playing for window in windows)


def _look() -> float:
    """Look after bakes; called by Blender's timer, in its own thread."""
    active = tick_all()
    if active:
        for window in bpy.context.window_manager.windows:
            for area in window.screen.areas:
                if area.type in REDRAWN:
                    area.tag_redraw()
    return BUSY if active else IDLE


def register() -> None:
    """Begin to look."""
    bpy.app.timers.register(_look, first_interval=IDLE, persistent=True)


def unregister() -> None:
    """Look no more."""
    if bpy.app.timers.is_registered(_look):
        bpy.app.timers.unregister(_look)
