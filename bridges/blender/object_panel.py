"""The panel of an object: what simulations do with it, and the values that are its own."""

from __future__ import annotations

from typing import Any

import bpy

from .graph_tree import graphs, inputs_in
from .object_overrides import overridables, painted_on, shown_by, uses_of


class LOKI_UL_overrides(bpy.types.UIList):
    """Values that hold for one object."""

    bl_idname = "LOKI_UL_overrides"

    def draw_item(
        self, context: Any, layout: Any, data: Any, item: Any, icon: Any, active: Any, name: Any
    ) -> None:
        """Draw channel and value."""
        row = layout.row(align=True)
        row.prop(item, "channel", text="", emboss=False)
        row.prop(item, "value" if item.size == 1 else "vector", text="")


class LOKI_PT_object(bpy.types.Panel):
    """Role and overrides of the active object."""

    bl_idname = "LOKI_PT_object"
    bl_label = "Loki"
    bl_space_type = "PROPERTIES"
    bl_region_type = "WINDOW"
    bl_context = "physics"
    bl_options = {"DEFAULT_CLOSED"}

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Show it when there is a simulation."""
        return context.object is not None and bool(graphs())

    def draw(self, context: Any) -> None:
        """Draw roles, overrides and what is painted."""
        layout, source = self.layout, context.object
        uses, shown = uses_of(source), shown_by(source)
        for tree, node in uses:
            layout.label(text=f"{node.label or node.name} of {tree.name}", icon="IMPORT")
        for tree, node in shown:
            layout.label(text=f"Shows {node.label or node.name} of {tree.name}", icon="EXPORT")
        self._draw_free_inputs(layout)
        if not uses:
            return
        layout.label(text="Values of this object")
        row = layout.row()
        row.template_list(
            "LOKI_UL_overrides", "", source.loki, "overrides", source.loki, "active", rows=3
        )
        column = row.column(align=True)
        column.operator("loki.override_add", text="", icon="ADD")
        column.operator("loki.override_remove", text="", icon="REMOVE")
        layout.operator("loki.paint_override", icon="BRUSH_DATA")
        names = painted_on(source)
        for tree, _ in uses:
            for one in overridables(tree):
                for name in (one.channel, f"{one.channel}_scale"):
                    if name in names:
                        layout.label(text=f"{name} is painted: {one.label}", icon="BRUSH_DATA")

    def _draw_free_inputs(self, layout: Any) -> None:
        for tree in graphs():
            for node in inputs_in(tree):
                if node.part.source is None:
                    text = f"Use as {node.label or node.name} of {tree.name}"
                    operator = layout.operator("loki.use_object", text=text)
                    operator.graph, operator.node = tree.name, node.name


CLASSES = (LOKI_UL_overrides, LOKI_PT_object)
