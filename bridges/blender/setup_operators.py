"""Operators on the tree of a Solver Setup: add, remove, move, expose and reset."""

from __future__ import annotations

from typing import Any

import bpy

from loki_core.behavior import KINDS, registry

from . import exposed
from .animation import move_animation, remove_animation, reset
from .baked_graph import rate_of
from .graph_tree import title_of
from .operator_tools import GraphOperator, graph_for, node_by_number, solver_for, told
from .setup_rows import (
    make_name_unique,
    new_number,
    parent_of,
    rows_below,
)

GROUP = "GROUP"
_items: list[tuple[str, str, str]] = []


def behavior_items(self: Any, context: Any) -> list[tuple[str, str, str]]:
    """Return what can be added; kept, since Blender holds no reference to the texts."""
    if not _items:
        _items.append((GROUP, "Group", "A scope: what is in it acts on the Objects in it"))
        for kind in KINDS:
            for name, behavior in registry().items():
                if behavior.kind == kind:
                    doc = (behavior.__doc__ or "").partition("\n")[0]
                    _items.append((name, f"{title_of(behavior)}", f"{kind.title()}: {doc}"))
    return _items


def _reindexed(part: Any, order: list[int], tree: Any) -> None:
    """Bring rows into another order; animation and the active row follow."""
    where = f"loki.parts[{list(tree.loki.parts).index(part)}].rows"
    active = part.rows[part.active_row].number if part.rows else 0
    numbers = [part.rows[index].number for index in order]
    moved = {f"{where}[{old}].": f"{where}[{new}]." for new, old in enumerate(order) if old != new}
    for place, number in enumerate(numbers):
        now = next(index for index, row in enumerate(part.rows) if row.number == number)
        part.rows.move(now, place)
    move_animation(tree, moved)
    part.active_row = next((k for k, row in enumerate(part.rows) if row.number == active), 0)


class LOKI_OT_setup_add(GraphOperator):
    """Add a Behavior or a Group to the Solver Setup"""

    bl_idname = "loki.setup_add"
    bl_label = "Add to Solver Setup"
    bl_options = {"REGISTER", "UNDO"}
    bl_property = "what"

    what: bpy.props.EnumProperty(items=behavior_items, name="What")  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Put the new row into the active Group, or beside the active Behavior."""
        node = solver_for(context)
        part, rows = node.part, node.part.rows
        depth, place = 0, len(rows)
        if 0 <= part.active_row < len(rows):
            active = rows[part.active_row]
            depth = active.depth + active.is_group
            place = rows_below(rows, part.active_row).stop
        row = rows.add()
        row.number, row.depth = new_number(), depth
        if self.what == GROUP:
            row.is_group, row.title = True, "Group"
        else:
            row.behavior = self.what
        number = row.number
        last = len(rows) - 1
        _reindexed(part, [*range(place), last, *range(place, last)], node.id_data)
        part.active_row = next(k for k, one in enumerate(rows) if one.number == number)
        make_name_unique(rows, part.active_row)
        node.sync_sockets()
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Search by typing."""
        context.window_manager.invoke_search_popup(self)
        return {"RUNNING_MODAL"}


class LOKI_OT_setup_remove(GraphOperator):
    """Remove the active row, with all that is in it"""

    bl_idname = "loki.setup_remove"
    bl_label = "Remove from Solver Setup"
    bl_options = {"REGISTER", "UNDO"}

    @told
    def execute(self, context: Any) -> set[str]:
        """Remove the row, what is below it, and their animation."""
        node = solver_for(context)
        part, tree = node.part, node.id_data
        if not 0 <= part.active_row < len(part.rows):
            return {"CANCELLED"}
        gone = [part.active_row, *rows_below(part.rows, part.active_row)]
        where = f"loki.parts[{list(tree.loki.parts).index(part)}].rows"
        for index in reversed(gone):
            remove_animation(tree, f"{where}[{index}].")
            later = range(index + 1, len(part.rows))
            part.rows.remove(index)
            move_animation(tree, {f"{where}[{k}].": f"{where}[{k - 1}]." for k in later})
        part.active_row = max(0, min(gone[0], len(part.rows) - 1))
        node.sync_sockets()
        return {"FINISHED"}


class LOKI_OT_setup_move(GraphOperator):
    """Move the active row, with all that is in it"""

    bl_idname = "loki.setup_move"
    bl_label = "Move in Solver Setup"
    bl_options = {"REGISTER", "UNDO"}

    direction: bpy.props.EnumProperty(  # type: ignore[valid-type]
        items=(
            ("UP", "Up", "Before the row above"),
            ("DOWN", "Down", "After the row below"),
            ("IN", "Into Group", "Into the Group above"),
            ("OUT", "Out of Group", "Behind the Group around it"),
        ),
        name="Direction",
    )

    @told
    def execute(self, context: Any) -> set[str]:
        """Move the rows; their depths follow."""
        node = solver_for(context)
        part, rows = node.part, node.part.rows
        index = part.active_row
        if not 0 <= index < len(rows):
            return {"CANCELLED"}
        block = [index, *rows_below(rows, index)]
        rest = [k for k in range(len(rows)) if k not in block]
        found = self._place(rows, index, block)
        if found is None:
            return {"CANCELLED"}
        before, change = found  # put the block in front of this row; None is the end
        place = len(rest) if before is None else rest.index(before)
        for k in block:
            rows[k].depth += change
        _reindexed(part, [*rest[:place], *block, *rest[place:]], node.id_data)
        make_name_unique(rows, part.active_row)
        node.sync_sockets()
        return {"FINISHED"}

    def _place(self, rows: Any, index: int, block: list[int]) -> tuple[int | None, int] | None:
        depth = rows[index].depth
        end = block[-1] + 1
        siblings_before = [k for k in range(index) if rows[k].depth == depth]
        parent = parent_of(rows, index)
        siblings_before = [k for k in siblings_before if parent is None or k > parent]
        if self.direction == "UP":
            return (siblings_before[-1], 0) if siblings_before else None
        if self.direction == "DOWN":
            if end >= len(rows) or rows[end].depth != depth:
                return None
            after = rows_below(rows, end).stop
            return (after if after < len(rows) else None, 0)
        if self.direction == "IN":
            if not siblings_before or not rows[siblings_before[-1]].is_group:
                return None
            return (end if end < len(rows) else None, 1)
        if parent is None:
            return None
        after = rows_below(rows, parent).stop
        return (after if after < len(rows) else None, -1)


class LOKI_OT_reset_value(bpy.types.Operator):
    """Go back to the default value, without keyframes and drivers"""

    bl_idname = "loki.reset_value"
    bl_label = "Reset to Default"
    bl_options = {"REGISTER", "UNDO"}

    owner: bpy.props.StringProperty(options={"HIDDEN"})  # type: ignore[valid-type]
    path: bpy.props.StringProperty(options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Unset the property, and remove its keyframes and driver."""
        group, _, name = self.path.rpartition(".")
        reset(graph_for(context, self.owner).path_resolve(group), name)
        return {"FINISHED"}


class LOKI_OT_expose(GraphOperator):
    """Show this value under "Parameters", for whoever uses the simulation"""

    bl_idname = "loki.expose"
    bl_label = "Expose"
    bl_options = {"REGISTER", "UNDO"}

    node: bpy.props.IntProperty(options={"HIDDEN"})  # type: ignore[valid-type]
    row: bpy.props.IntProperty(options={"HIDDEN"})  # type: ignore[valid-type]
    parameter: bpy.props.StringProperty(options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Add the entry; a value that is exposed already is hidden again."""
        tree = graph_for(context)
        key = (self.node, self.row, self.parameter)
        for index, entry in enumerate(tree.loki.exposed):
            if (entry.node, entry.row, entry.parameter) == key:
                tree.loki.exposed.remove(index)
                return {"FINISHED"}
        node = node_by_number(tree, self.node)
        if node is None:
            return {"CANCELLED"}
        rows = [one for one in node.part.rows if one.number == self.row]
        exposed.expose(tree, node, rows[0] if rows else None, self.parameter)
        return {"FINISHED"}


class LOKI_OT_reset_exposed(GraphOperator):
    """Go back to the value that the simulation came with, without keyframes and drivers"""

    bl_idname = "loki.reset_exposed"
    bl_label = "Reset"
    bl_options = {"REGISTER", "UNDO"}

    title: bpy.props.StringProperty(options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Reset one exposed parameter, or all of them."""
        rate, start = rate_of(context.scene), context.scene.frame_start
        for entry, target in exposed.targets(graph_for(context)):
            if target is not None and self.title in ("", entry.title):
                exposed.reset(entry, target, frames_per_second=rate, start=start)
        return {"FINISHED"}


class LOKI_OT_edit_setup(GraphOperator):
    """Show the tree of this Solver Setup in the sidebar (N), tab Loki"""

    bl_idname = "loki.edit_setup"
    bl_label = "Edit Solver Setup"

    node: bpy.props.StringProperty(options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Make it the one that panels show."""
        tree = graph_for(context)
        tree.nodes.active = tree.nodes.get(self.node)
        context.scene.loki.graph = tree
        for area in context.screen.areas if context.screen is not None else ():
            if area.type in ("VIEW_3D", "NODE_EDITOR"):
                area.spaces.active.show_region_ui = True
        return {"FINISHED"}


CLASSES = (
    LOKI_OT_setup_add,
    LOKI_OT_setup_remove,
    LOKI_OT_setup_move,
    LOKI_OT_reset_value,
    LOKI_OT_expose,
    LOKI_OT_reset_exposed,
    LOKI_OT_edit_setup,
)


def forget() -> None:
    """Forget what was listed, since extensions may be others next time."""
    _items.clear()
