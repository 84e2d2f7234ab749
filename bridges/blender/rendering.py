"""Rendering: while it goes on, a frame that its bake has not reached yet is waited for."""

from __future__ import annotations

import time
from typing import Any

import bpy

from . import cache_files
from .bake import Bake
from .messages import report

LONGEST_WAIT = 60.0  # s for a server that is gone
_is_rendering = False


def is_rendering() -> bool:
    """Whether a picture or an animation is being rendered."""
    return _is_rendering


def must_wait() -> bool:
    """Whether what is shown now has to be complete: no clock would complete it later."""
    return _is_rendering or bool(bpy.app.background)


@bpy.app.handlers.persistent
def on_render_begin(*_: Any) -> None:
    """Wait for frames from now on."""
    global _is_rendering
    _is_rendering = True


@bpy.app.handlers.persistent
def on_render_end(*_: Any) -> None:
    """Wait for frames no more."""
    global _is_rendering
    _is_rendering = False


def wait_for(tree: Any, bake: Bake, frame: int) -> None:
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
