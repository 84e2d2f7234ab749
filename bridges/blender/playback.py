"""Playback: baked frames in the objects of the scene, whenever the time changes.

Frames come from the cache on the disk. While an animation is rendered and its bake still runs, a
frame that is not there yet is waited for. Before the first and after the last baked frame, objects
stay as they are.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import bpy

from loki_core.data.voxels import Voxels
from loki_core.errors import LokiError

from . import bakes, cache_files
from .compat import session_number
from .graph_tree import graphs, outputs_in
from .loki_to_host import show, show_volume
from .scene_inputs import axes_of
from .scene_time import is_away
from .volume_files import volume_path, write_volume

COLLECTION = "Loki"
LONGEST_WAIT = 60.0  # s for a server that is gone
_is_rendering = False
_is_showing = False
_writer: ThreadPoolExecutor | None = None
_written: dict[Path, Future[None]] = {}


def outputs_of(tree: Any) -> list[tuple[Any, str]]:
    """Return the Output nodes of a graph with the names of their results."""
    return [(node, node.result_name) for node in outputs_in(tree)]


def show_frame(tree: Any, scene: Any, frame: int) -> bool:
    """Let objects show a frame of a graph, or the last one before it; return whether they do."""
    frames = cache_files.baked_frames(tree)
    place = bisect_right(frames, frame) - 1
    if place < 0:
        return False
    axes = axes_of(scene)
    for node, name in outputs_of(tree):
        stream = cache_files.read_stream(tree, frames[place], name)
        if stream is None:
            continue
        part = node.part
        label = f"{tree.name} {name}"
        if isinstance(stream, Voxels):
            _volume_file(tree, name, frames[place], stream)
            folder = volume_folder(tree)
            shown = show_volume(
                folder, name, frames, axes,
                label=label, frame=frames[place], target=part.target, collection=_collection(scene),
            )  # fmt: skip
        else:
            shown = show(stream, label, axes, target=part.target, collection=_collection(scene))
        if part.target is not shown:
            part.target = shown
    return True


def _collection(scene: Any) -> Any:
    found = scene.collection.children.get(COLLECTION)
    if found is None:
        found = bpy.data.collections.new(COLLECTION)
        scene.collection.children.link(found)
    return found


# -- volumes --------------------------------------------------------------------------------------


def volume_folder(tree: Any) -> Path:
    """Return where the volumes of a graph lie as VDB files."""
    folder = cache_files.run_folder(tree)
    assert folder is not None
    return folder / "vdb"


def _volume_file(tree: Any, name: str, frame: int, stream: Any) -> None:
    """Write the VDB file of a frame if it is not there, or older than its frame."""
    path = volume_path(volume_folder(tree), name, frame)
    waiting = _written.pop(path, None)
    if waiting is not None:
        waiting.result()
    source = cache_files.cache_folder(tree)
    assert source is not None
    made = (source / "frames" / f"{frame:06d}.json").stat().st_mtime
    if not path.exists() or path.stat().st_mtime < made:
        write_volume(volume_folder(tree), name, frame, stream)


def prepare_volumes(tree: Any, frame: int) -> None:
    """Write the VDB files of a new frame in another thread, so that showing it does not wait."""
    global _writer
    from serialization.frame_cache import FrameCacheReader

    folder, target = cache_files.cache_folder(tree), volume_folder(tree)
    assert folder is not None
    reader = FrameCacheReader(folder)
    known = reader.index(frame)["objects"]
    for _, name in outputs_of(tree):
        if name not in known or known[name][0]["type"] != "voxels":
            continue

        def work(name: str = name) -> None:
            write_volume(target, name, frame, reader.read(frame, name))

        _writer = _writer or ThreadPoolExecutor(1, thread_name_prefix="loki volumes")
        _written[volume_path(target, name, frame)] = _writer.submit(work)


# -- the clock ------------------------------------------------------------------------------------


def tick_all() -> bool:
    """Take in what all bakes have to say; show new frames. Return whether any still runs."""
    active = False
    while not _told.empty():
        name, text = _told.get()
        for tree in graphs():
            if tree.name == name:
                report(tree, text)
    for tree, bake in bakes.all_bakes():
        if _is_rendering and bake.feeds and not bpy.app.background:
            continue  # inputs cannot be read while another thread renders the scene
        try:
            _tick(tree, bake)
        except Exception as error:  # the clock must go on, whatever one bake does
            bake.lose(error)
        active = active or not bake.is_over
    return active


def _tick(tree: Any, bake: bakes.Bake) -> None:
    bake.tick()
    if tree.loki.run != bake.run_name:
        tree.loki.run = bake.run_name  # undo took it back; the frames are there all the same
    scene = bpy.data.scenes.get(bake.scene)
    if not bake.has_new_frame or scene is None or bake.frame is None:
        return
    bake.has_new_frame = False
    try:
        _show_new(tree, scene, bake)
    except (LokiError, OSError) as error:
        bake.say("error", f"frame {bake.frame} cannot be shown: {error}")


_told: SimpleQueue[tuple[str, str]] = SimpleQueue()


def tell_later(name: str, text: str) -> None:
    """Report something of a graph from another thread."""
    _told.put((name, text))


def _show_new(tree: Any, scene: Any, bake: bakes.Bake) -> None:
    assert bake.frame is not None
    prepare_volumes(tree, bake.frame)
    if not tree.loki.show_results or _is_rendering:
        return
    if tree.loki.live_preview and not _is_playing():
        scene.frame_set(bake.frame)
    elif scene.frame_current == bake.frame:
        show_frame(tree, scene, bake.frame)


def _is_playing() -> bool:
    windows = bpy.context.window_manager.windows if bpy.context.window_manager else ()
    return any(window.screen.is_animation_playing for window in windows)


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
        if _is_rendering and bake is not None:
            _wait_for(tree, bake, scene.frame_current)
        if show_frame(tree, scene, scene.frame_current):
            _messages.pop(session_number(tree), None)
    except (LokiError, OSError) as error:
        report(tree, str(error))


def _wait_for(tree: Any, bake: bakes.Bake, frame: int) -> None:
    """Wait for a frame of a bake that runs; in a window its clock goes on beside the render."""
    if not bake.first <= frame <= bake.last:
        return
    lost_since = None
    while frame not in cache_files.baked_frames(tree) and not bake.is_over:
        if bpy.app.background:
            bake.tick()
        elif bake.feeds:
            report(tree, f"frame {frame} is not baked; its inputs move, so bake before rendering")
            return
        lost_since = None if bake.is_connected else lost_since or time.monotonic()
        lost_long = lost_since is not None and time.monotonic() - lost_since > LONGEST_WAIT
        if bake.state == "paused" or lost_long:
            report(tree, f"frame {frame} is not there, and its bake does not go on")
            return
        time.sleep(0.05)


_messages: dict[int, str] = {}


def report(tree: Any, text: str) -> None:
    """Keep what a user should know of a graph, for its panel; once on the console too."""
    number = session_number(tree)
    if _messages.get(number) != text:
        _messages[number] = text
        print(f"Loki: {text}")


def message_of(tree: Any) -> str:
    """Return what a user should know of a graph."""
    return _messages.get(session_number(tree), "")


@bpy.app.handlers.persistent
def on_render_begin(scene: Any, depsgraph: Any = None) -> None:
    """Wait for frames from now on."""
    global _is_rendering
    _is_rendering = True


@bpy.app.handlers.persistent
def on_render_end(scene: Any, depsgraph: Any = None) -> None:
    """Wait for frames no more."""
    global _is_rendering
    _is_rendering = False


def forget_messages() -> None:
    """Forget what was said of the graphs of another file."""
    _messages.clear()


def close() -> None:
    """End what runs beside Blender."""
    global _writer
    if _writer is not None:
        _writer.shutdown(wait=True)
        _writer = None
    _written.clear()
    _messages.clear()
