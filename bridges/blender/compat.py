"""What differs between versions of Blender: 4.5 LTS to 5.2, and 3.4 for pictures of the window."""

from __future__ import annotations

from typing import Any

import bpy

#: Options of a property that holds a path which may begin with //, the folder of the file.
BLEND_RELATIVE = {"PATH_SUPPORTS_BLEND_RELATIVE"} if bpy.app.version >= (4, 5, 0) else set()

#: Handlers that are called when a file could not be opened.
LOADING_FAILED: list[Any] = getattr(bpy.app.handlers, "load_post_fail", [])  # from 3.6 on


def curve_collections(animated: bpy.types.ID) -> list[Any]:
    """Return the collections that hold the F-curves of a datablock."""
    data = animated.animation_data
    action = None if data is None else data.action
    if action is None:
        return []
    if not hasattr(action, "layers"):  # before 4.4
        return [action.fcurves]
    strips = [strip for layer in action.layers for strip in layer.strips]
    bags = [strip.channelbag(data.action_slot) for strip in strips if data.action_slot is not None]
    return [bag.fcurves for bag in bags if bag is not None]


def draw_progress(layout: Any, *, factor: float, text: str) -> None:
    """Show a bar."""
    if hasattr(layout, "progress"):
        layout.progress(factor=factor, text=text)
    else:
        layout.label(text=text)


def resample_as_drawn(node: Any) -> None:
    """Let a Resample Curve node give the points that are drawn."""
    if hasattr(node, "mode"):  # before 5.0
        node.mode = "EVALUATED"
    else:
        node.inputs["Mode"].default_value = "Evaluated"


def set_modifier_input(modifier: Any, key: str, value: Any) -> None:
    """Set an input of a nodes modifier, if it has another value."""
    if hasattr(modifier, "properties"):  # from 5.2 on
        socket = getattr(modifier.properties.inputs, key)
        if socket.value != value:
            socket.value = value
    elif modifier.get(key) != value:
        modifier[key] = value
        modifier.id_data.update_tag()


def session_number(block: bpy.types.ID) -> int:
    """Return a number that tells datablocks apart until the file is closed, through undo too."""
    return int(getattr(block, "session_uid", 0)) or hash(block.name)


def use_nodes(block: Any) -> None:
    """Let a material or a world have nodes; since 5.0 it always has."""
    if bpy.app.version < (5, 0, 0):
        block.use_nodes = True
