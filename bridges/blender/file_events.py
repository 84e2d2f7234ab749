"""File events: what happens when a file is opened or saved."""

from __future__ import annotations

from typing import Any

import bpy

from loki_core.errors import LokiError

from . import (
    bakes,
    cache_files,
    clock,
    messages,
    out_of_date,
    playback,
    rendering,
    scene_time,
    volumes,
)
from .baked_graph import document_of
from .compat import LOADING_FAILED
from .graph_tree import graphs
from .node_parts import remove_unused_parts


@bpy.app.handlers.persistent
def on_load_before(*_: Any) -> None:
    """Let go of the bakes of the file that is closed; they go on by themselves."""
    rendering.on_render_end()
    scene_time.forget()
    bakes.forget_all()
    volumes.forget()
    messages.forget()
    out_of_date.forget()


@bpy.app.handlers.persistent
def on_load(*_: Any) -> None:
    """Find the frames of the open file, and follow bakes of it that still run."""
    for tree in graphs():
        missing = cache_files.what_is_missing(tree)
        if missing:
            messages.report(tree, missing)
        if bakes.has_more(tree):
            try:
                bakes.attach(tree, _scene_of(tree))
            except LokiError as error:
                messages.report(tree, str(error))


@bpy.app.handlers.persistent
def on_save(*_: Any) -> None:
    """Keep each graph as a text too, which can be read without the add-on."""
    for tree in graphs():
        if tree.library is not None:
            continue
        try:
            remove_unused_parts(tree)
            text = document_of(tree, _scene_of(tree)).to_json()
        except LokiError:
            continue  # not valid now; the last valid text stays
        name = f"{tree.name}.loki.json"
        block = bpy.data.texts.get(name) or bpy.data.texts.new(name)
        block.from_string(text)


@bpy.app.handlers.persistent
def on_saved(*_: Any) -> None:
    """Say what a file that was saved in another place does not find there."""
    for tree in graphs():
        missing = cache_files.what_is_missing(tree)
        if missing:
            messages.report(tree, missing)


def _scene_of(tree: Any) -> Any:
    """Return the scene that a graph was baked for, or that shows it in its panels."""
    shown_in = (one for one in bpy.data.scenes if one.loki.graph is tree)
    return tree.loki.scene or next(shown_in, bpy.context.scene)


def _handlers() -> tuple[tuple[list[Any], Any], ...]:
    known = bpy.app.handlers
    return (
        (known.frame_change_pre, playback.on_frame_change),
        (known.render_init, rendering.on_render_begin),
        (known.render_complete, rendering.on_render_end),
        (known.render_cancel, rendering.on_render_end),
        (known.load_pre, on_load_before),
        (known.load_post, on_load),
        (LOADING_FAILED, on_load),  # the file before is still open, and was let go
        (known.save_pre, on_save),
        (known.save_post, on_saved),
    )


def look_at_open_file() -> None:
    """Do for the file that is open what is done for one that is opened; a timer calls it once."""
    on_load()


def register() -> None:
    """Begin to listen, and look at the open file as soon as Blender lets add-ons see it."""
    for handlers, handler in _handlers():
        handlers.append(handler)
    bpy.app.timers.register(look_at_open_file)
    clock.register()


def unregister() -> None:
    """Listen no more, and let go of all servers."""
    for handlers, handler in _handlers():
        if handler in handlers:
            handlers.remove(handler)
    if bpy.app.timers.is_registered(look_at_open_file):
        bpy.app.timers.unregister(look_at_open_file)
    clock.unregister()
    bakes.forget_all()
    volumes.stop()
    messages.forget()
