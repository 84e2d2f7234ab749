"""The Add menu of the Loki Graph editor, made from the registry of nodes."""

from __future__ import annotations

from typing import Any

import bpy

from loki_graph.node import Node, node_registry

from .graph_tree import NODE, TREE, title_of

CATEGORIES = {
    "Host": ("HostInput", "Output"),
    "Solver": ("SolverSetupNode",),
    "Source": ("ShapeSource", "FieldSource", "FileInput", "CacheReader"),
}
OTHERS = "Data"


def by_category() -> dict[str, list[type[Node]]]:
    """Return the node classes by what they are for; what extensions add is in the last one."""
    known = dict(node_registry())
    found = {
        category: [known.pop(name) for name in names if name in known]
        for category, names in CATEGORIES.items()
    }
    return found | {OTHERS: list(known.values())}


def draw_in_add_menu(self: Any, context: Any) -> None:
    """Draw the nodes, each category under its name."""
    if getattr(context.space_data, "tree_type", "") != TREE:
        return
    for category, nodes in by_category().items():
        self.layout.label(text=category)
        for node in nodes:
            operator = self.layout.operator("node.add_node", text=title_of(node))
            operator.type = NODE + node.__name__
            operator.use_transform = True


def register() -> None:
    """Show the nodes."""
    bpy.types.NODE_MT_add.append(draw_in_add_menu)


def unregister() -> None:
    """Take them back."""
    bpy.types.NODE_MT_add.remove(draw_in_add_menu)
