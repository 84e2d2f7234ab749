"""Scratch scene: let Geometry Nodes work on a copy of a datablock, in a scene that nobody sees.

The user's objects, scene and undo history are not touched, and nothing is left in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import bpy

AddNodes = Callable[[Any, Any, Any], Any]
"""Given object, node tree and the socket of its geometry: adds nodes, returns their socket."""

NAME = "Loki Scratch"


@contextmanager
def nodes_applied(data: bpy.types.ID, add_nodes: AddNodes) -> Iterator[Any]:
    """Yield the geometry set that nodes make of a datablock, which may be an evaluated one."""
    removed = [copy := data.copy()]
    try:
        removed.append(holder := bpy.data.objects.new(NAME, copy))
        removed.append(tree := bpy.data.node_groups.new(NAME, "GeometryNodeTree"))
        given, result = geometry_ends(tree)
        tree.links.new(add_nodes(holder, tree, given), result)
        holder.modifiers.new(NAME, "NODES").node_group = tree
        removed.append(scene := bpy.data.scenes.new(NAME))
        scene.collection.objects.link(holder)
        layer = scene.view_layers[0]
        layer.update()
        yield holder.evaluated_get(layer.depsgraph).evaluated_geometry()
    finally:
        bpy.data.batch_remove(removed)


def geometry_ends(tree: Any) -> tuple[Any, Any]:
    """Give a new node tree one geometry in and one out; return the two sockets to link between."""
    for direction in ("INPUT", "OUTPUT"):
        tree.interface.new_socket("Geometry", in_out=direction, socket_type="NodeSocketGeometry")
    begin, end = tree.nodes.new("NodeGroupInput"), tree.nodes.new("NodeGroupOutput")
    return begin.outputs[0], end.inputs[0]
