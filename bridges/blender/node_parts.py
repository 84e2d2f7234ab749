"""Node parts: what a Loki Graph keeps for each of its nodes, beside the nodes themselves.

A part is found by the number of its node. Animation leads to parts by their place in the list, so
a part that is taken out lets the F-curves behind it follow.
"""

from __future__ import annotations

from typing import Any

import bpy

from loki_core.solver_settings import SolverSettings
from loki_graph.node import node_registry

from .animation import move_animation, remove_animation
from .declared_properties import values_class
from .result_objects import is_result
from .setup_rows import VALUES, new_number

__all__ = ["VALUES", "add_part", "give_parts", "make_part_class", "remove_unused_parts"]

SAMPLING = (
    ("AUTO", "Automatic", "Read every frame if the object can move or change, else once"),
    ("STATIC", "Once", "Read at the first frame of the bake"),
    ("FRAMES", "Every frame", "Read at every frame"),
    ("SUBFRAMES", "Between frames", "Read several times a frame, for fast turns"),
)


def make_part_class(row: type[Any]) -> type[Any]:
    """Return the class of parts: values of every node class, and what special nodes need."""
    properties = bpy.props
    annotations: dict[str, Any] = {
        "number": properties.IntProperty(options={"HIDDEN"}),
        # Solver Setup
        "setup_name": properties.StringProperty(name="Name"),
        "rows": properties.CollectionProperty(type=row),
        "active_row": properties.IntProperty(name="Row"),
        "settings": properties.PointerProperty(type=values_class(SolverSettings)),
        # Host Input
        "source": properties.PointerProperty(
            type=bpy.types.Object, name="Object", description="What the solver gets"
        ),
        "collection": properties.PointerProperty(
            type=bpy.types.Collection, name="Collection", description="All objects in it as one"
        ),
        "sampling": properties.EnumProperty(
            items=SAMPLING, name="Reading", description="How often the object is read"
        ),
        "samples": properties.IntProperty(
            name="Samples",
            description="Places between two frames at which the object is read",
            default=3,
            min=1,
            max=32,
        ),
        # Output
        "target": properties.PointerProperty(
            type=bpy.types.Object,
            name="Object",
            description="Shows the result; made by the first bake if there is none",
            poll=lambda part, one: is_result(one),
        ),
    }
    for name, node in node_registry().items():
        annotations[VALUES + name] = properties.PointerProperty(type=values_class(node))
    return type("LOKI_PG_part", (bpy.types.PropertyGroup,), {"__annotations__": annotations})


def add_part(node: Any) -> Any:
    """Make the part of a new node."""
    node.number = new_number()
    part = node.id_data.loki.parts.add()
    part.number = node.number
    return part


def give_parts(tree: Any) -> None:
    """Give nodes that were copied or pasted parts of their own, with the same content.

    A copy has the number of its original, which may be in another graph.
    """
    own = {part.number for part in tree.loki.parts}
    seen: set[int] = set()
    for node in tree.nodes:
        number = getattr(node, "number", 0)
        if not hasattr(node, "declaration") or (number in own and number not in seen):
            seen.add(number)
            continue
        theirs = _find_part(number)
        part = add_part(node)
        if theirs is not None:
            _copy(theirs, part)
            for row in part.rows:
                row.number = new_number()
        seen.add(node.number)


def _find_part(number: int) -> Any:
    for tree in bpy.data.node_groups:
        for part in tree.loki.parts if hasattr(tree, "loki") else ():
            if part.number == number:
                return part
    return None


def _copy(source: Any, target: Any) -> None:
    """Copy every property that is set but the number, groups and collections included."""
    for name, declared in source.bl_rna.properties.items():
        if name in ("rna_type", "name", "number"):
            continue
        value = getattr(source, name)
        if declared.type == "COLLECTION":
            for item in value:
                _copy(item, getattr(target, name).add())
        elif isinstance(value, bpy.types.PropertyGroup):
            _copy(value, getattr(target, name))
        elif source.is_property_set(name):
            setattr(target, name, value)


def remove_unused_parts(tree: Any) -> None:
    """Take out the parts of nodes that are gone; animation of the others follows."""
    used = {getattr(node, "number", 0) for node in tree.nodes}
    parts = tree.loki.parts
    for index in range(len(parts) - 1, -1, -1):
        if parts[index].number in used:
            continue
        remove_animation(tree, f"loki.parts[{index}]")
        moved = {f"loki.parts[{k}]": f"loki.parts[{k - 1}]" for k in range(index + 1, len(parts))}
        parts.remove(index)
        move_animation(tree, moved)
