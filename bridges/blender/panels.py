"""Panels: the Loki tab of the 3D view's and of the node editor's sidebar."""

from __future__ import annotations

from typing import Any

import bpy

from loki_core.solver_settings import SolverSettings
from loki_core.sparse_parameters import channel_names

from . import bakes, cache_files, exposed
from .bake_operators import status_line
from .baked_graph import frame_range
from .compat import draw_progress
from .graph_exchange import CLOCK
from .graph_tree import TREE, inputs_in, title_of
from .messages import message_of
from .object_overrides import overridden_by
from .operator_tools import active_graph, solver_node
from .out_of_date import is_out_of_date
from .parameter_layout import draw_value, draw_values
from .setup_rows import behavior_of, name_of, rows_below, values_of

ICONS = {
    "object": "OBJECT_DATA",
    "force": "FORCE_FORCE",
    "constraint": "CONSTRAINT",
    "operator": "MODIFIER",
    "expression": "SCRIPT",
}
LEVEL_ICONS = {"info": "INFO", "warning": "ERROR", "error": "CANCEL"}
SHOWN_LINES = 6


class LOKI_UL_setup(bpy.types.UIList):
    """The tree of a Solver Setup."""

    bl_idname = "LOKI_UL_setup"

    def draw_item(
        self, context: Any, layout: Any, data: Any, item: Any, icon: Any, active: Any, name: Any
    ) -> None:
        """Draw one row: fold, kind, name, switch."""
        row = layout.row(align=True)
        for _ in range(item.depth):
            row.label(text="", icon="BLANK1")
        if item.is_group:
            fold = "DOWNARROW_HLT" if item.is_open else "RIGHTARROW"
            row.prop(item, "is_open", text="", icon=fold, emboss=False)
            row.prop(item, "title", text="", emboss=False)
        else:
            behavior = behavior_of(item)
            kind = "QUESTION" if behavior is None else ICONS[behavior.kind]
            row.label(text="", icon=kind)
            label = row.row(align=True)
            label.active = item.enabled
            label.label(text=item.title or (title_of(behavior) if behavior else item.behavior))
        switch = "CHECKBOX_HLT" if item.enabled else "CHECKBOX_DEHLT"
        row.prop(item, "enabled", text="", icon=switch, emboss=False)

    def filter_items(self, context: Any, data: Any, name: str) -> tuple[list[int], list[int]]:
        """Hide what is in closed Groups, and what a search does not find."""
        rows = getattr(data, name)
        shown = [self.bitflag_filter_item] * len(rows)
        for index, row in enumerate(rows):
            if row.is_group and not row.is_open:
                for below in rows_below(rows, index):
                    shown[below] = 0
            text = f"{name_of(row)} {row.behavior}".lower()
            if self.filter_name and self.filter_name.lower() not in text:
                shown[index] = 0
        return shown, []


class _Sidebar:
    """A panel of the Loki tab."""

    bl_space_type = "VIEW_3D"
    bl_region_type = "UI"
    bl_category = "Loki"

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Show it when there is a graph."""
        return active_graph(context) is not None


class LOKI_PT_simulation(_Sidebar, bpy.types.Panel):
    """Which simulation, its inputs, and the values that are meant to be changed."""

    bl_idname = "LOKI_PT_simulation"
    bl_label = "Simulation"

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Show it always: here one begins."""
        return True

    def draw(self, context: Any) -> None:
        """Draw the choice of the graph, its inputs and its exposed parameters."""
        layout = self.layout
        row = layout.row(align=True)
        row.prop(context.scene.loki, "graph", text="")
        row.menu("LOKI_MT_add", text="", icon="ADD")
        tree = active_graph(context)
        if tree is None:
            layout.label(text="Add a simulation with +, or Add > Loki", icon="INFO")
            return
        _draw_inputs(layout, tree)
        column = layout.column(align=True)
        for entry, target in exposed.targets(tree):
            row = column.row(align=True)
            if target is None:
                row.label(text=f"{entry.label or entry.title}: gone", icon="ERROR")
                continue
            if target.parameter is None:
                row.prop(target.owner, target.property, text=entry.label)
            else:
                text = entry.label or entry.title
                unit = target.parameter.unit
                draw_value(
                    row, target.owner, target.parameter, f"{text} [{unit}]" if unit else text
                )
            operator = row.operator("loki.reset_exposed", text="", icon="LOOP_BACK", emboss=False)
            operator.title = entry.title


def _draw_inputs(layout: Any, tree: Any) -> None:
    box = layout.column(align=True)
    box.use_property_split = True
    box.use_property_decorate = False
    for node in inputs_in(tree):
        row = box.row()
        row.alert = not node.sources()
        row.prop(node.part, "source", text=node.label or node.name)


class LOKI_PT_bake(_Sidebar, bpy.types.Panel):
    """Run the simulation, and see how far it is."""

    bl_idname = "LOKI_PT_bake"
    bl_label = "Bake"

    def draw(self, context: Any) -> None:
        """Draw the buttons, progress, counts and the log."""
        layout, tree = self.layout, active_graph(context)
        bake = bakes.bake_of(tree)
        if bake is None or bake.is_over:
            _draw_start(layout, tree, context, bake)
        else:
            draw_progress(layout, factor=bake.factor, text=status_line(bake))
            row = layout.row(align=True)
            if bake.state == "paused":
                row.operator("loki.resume", icon="PLAY")
            else:
                row.operator("loki.pause", icon="PAUSE")
            row.operator("loki.cancel", icon="X")
            row.operator("loki.checkpoint", text="", icon="FILE_TICK")
        if bake is not None:
            _draw_figures(layout, bake)
            _draw_log(layout, bake)
        message = message_of(tree)
        if message:
            _draw_text(layout, message, "INFO")


def _draw_start(layout: Any, tree: Any, context: Any, bake: Any) -> None:
    frames = cache_files.baked_frames(tree)
    row = layout.row(align=True)
    row.scale_y = 1.4
    row.operator("loki.bake", icon="PHYSICS", text="Bake" if not frames else "Bake Again")
    first, last = frame_range(tree, context.scene)
    row = layout.row(align=True)
    if frames and frames[-1] < last:
        row.operator("loki.resume", icon="PLAY")
    if frames:
        text = f"Bake from Frame {context.scene.frame_current}"
        row.operator("loki.rebake", text=text, icon="FILE_REFRESH")
        there = f"{len(frames)} of {last - first + 1} frames: {frames[0]} to {frames[-1]}"
        row = layout.row(align=True)
        size = cache_files.size_words(cache_files.baked_bytes(tree))
        row.label(text=f"{there}, {size}", icon="CHECKMARK")
        if is_out_of_date(tree, context.scene):
            layout.label(text="Values have changed since", icon="FILE_REFRESH")
        row.operator("loki.export", text="", icon="EXPORT")
        row.operator("loki.free", text="", icon="TRASH")
    told = {line.text for line in bake.log} if bake is not None else set()
    if bake is not None and bake.state in ("failed", "stopped") and bake.message not in told:
        _draw_text(layout, f"{bake.state.capitalize()}: {bake.message}", "CANCEL")


def _draw_figures(layout: Any, bake: Any) -> None:
    column = layout.column(align=True)
    column.scale_y = 0.8
    if bake.message and not bake.is_over:
        column.label(text=bake.message)
    for name, count in bake.counts.items():
        column.label(text=f"{name}: {count:,}")
    if bake.memory:
        column.label(text=f"Memory: {bake.memory / 1e9:.2f} GB")


def _draw_log(layout: Any, bake: Any) -> None:
    for line in list(bake.log)[-SHOWN_LINES:]:
        _draw_text(layout, line.text, LEVEL_ICONS[line.level])


def _draw_text(layout: Any, text: str, icon: str) -> None:
    import textwrap

    column = layout.column(align=True)
    column.scale_y = 0.8
    for number, line in enumerate(textwrap.wrap(text, 48) or [""]):
        column.label(text=line, icon=icon if number == 0 else "BLANK1")


class LOKI_PT_bake_options(_Sidebar, bpy.types.Panel):
    """How it is baked."""

    bl_idname = "LOKI_PT_bake_options"
    bl_parent_id = "LOKI_PT_bake"
    bl_label = "Options"
    bl_options = {"DEFAULT_CLOSED"}

    def draw(self, context: Any) -> None:
        """Draw the options."""
        layout, settings = self.layout, active_graph(context).loki
        layout.use_property_split = True
        layout.use_property_decorate = False
        layout.prop(settings, "folder")
        layout.prop(settings, "use_scene_range")
        if not settings.use_scene_range:
            layout.prop(settings, "frame_start")
            layout.prop(settings, "frame_end")
        layout.prop(settings, "live_preview")
        layout.prop(settings, "show_results")
        layout.prop(settings, "ranks")
        layout.prop(settings, "threads")
        layout.prop(settings, "checkpoint_every")


class _SetupPanel:
    """The tree of Groups and Behaviors, and the values of the active one."""

    bl_label = "Solver Setup"
    layout: Any

    def draw(self, context: Any) -> None:
        """Draw the tree and the parameters of its active row."""
        layout, tree = self.layout, active_graph(context)
        node = solver_node(tree)
        part = node.part
        row = layout.row()
        row.template_list("LOKI_UL_setup", node.name, part, "rows", part, "active_row", rows=7)
        column = row.column(align=True)
        column.operator("loki.setup_add", text="", icon="ADD")
        column.operator("loki.setup_remove", text="", icon="REMOVE")
        column.separator()
        for direction, icon in (
            ("UP", "TRIA_UP"), ("DOWN", "TRIA_DOWN"), ("IN", "TRIA_RIGHT"), ("OUT", "TRIA_LEFT")
        ):  # fmt: skip
            column.operator("loki.setup_move", text="", icon=icon).direction = direction
        if not 0 <= part.active_row < len(part.rows):
            return
        active = part.rows[part.active_row]
        layout.prop(active, "title")
        behavior = behavior_of(active)
        if behavior is None:
            if not active.is_group:
                layout.label(text=f"This Loki has no {active.behavior}", icon="ERROR")
            return
        _draw_text(layout, (behavior.__doc__ or "").partition("\n")[0], "INFO")
        row = layout.row(align=True)
        row.prop(context.scene.loki, "search", text="", icon="VIEWZOOM")
        row.prop(context.scene.loki, "only_set", text="", icon="FILTER")
        painted = {
            name: overridden_by(tree, channel_names(behavior, name))
            for name, parameter in behavior.parameters().items()
            if parameter.varies != "no"
        }
        draw_values(
            layout,
            values_of(active),
            behavior,
            search=context.scene.loki.search,
            only_set=context.scene.loki.only_set,
            painted=painted,
            expose=(node.number, active.number),
        )
        for name, who in painted.items():
            if who:
                layout.label(text=f"{name.replace('_', ' ')}: also on {who}", icon="BRUSH_DATA")


class LOKI_PT_setup(_SetupPanel, _Sidebar, bpy.types.Panel):
    """The tree of the Solver Setup, in the 3D view."""

    bl_idname = "LOKI_PT_setup"
    bl_options = {"DEFAULT_CLOSED"}

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Show it when the graph has a solver."""
        return solver_node(active_graph(context)) is not None


class LOKI_PT_settings(_Sidebar, bpy.types.Panel):
    """Settings of the solver as a whole."""

    bl_idname = "LOKI_PT_settings"
    bl_parent_id = "LOKI_PT_setup"
    bl_label = "Solver Settings"
    bl_options = {"DEFAULT_CLOSED"}

    def draw(self, context: Any) -> None:
        """Draw them; the scene gives frames per second and the first frame."""
        node = solver_node(active_graph(context))
        draw_values(
            self.layout,
            node.part.settings,
            SolverSettings,
            left_out=CLOCK,
            expose=(node.number, 0),
        )


class LOKI_PT_node_exposed(bpy.types.Panel):
    """The exposed parameters, in the node editor."""

    bl_idname = "LOKI_PT_node_exposed"
    bl_label = "Exposed Parameters"
    bl_space_type = "NODE_EDITOR"
    bl_region_type = "UI"
    bl_category = "Loki"

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Show it in editors of Loki Graphs."""
        return active_graph(context) is not None and context.space_data.tree_type == TREE

    def draw(self, context: Any) -> None:
        """Draw names and labels, to be edited."""
        for entry, target in exposed.targets(active_graph(context)):
            row = self.layout.row(align=True)
            row.prop(entry, "title", text="")
            row.prop(entry, "label", text="")
            operator = row.operator("loki.expose", text="", icon="X")
            operator.node, operator.row, operator.parameter = entry.node, entry.row, entry.parameter
            if target is None:
                row.label(text="gone", icon="ERROR")


class LOKI_PT_node_setup(_SetupPanel, bpy.types.Panel):
    """The tree of the Solver Setup, in the node editor."""

    bl_idname = "LOKI_PT_node_setup"
    bl_space_type = "NODE_EDITOR"
    bl_region_type = "UI"
    bl_category = "Loki"

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Show it in editors of Loki Graphs."""
        if context.space_data.tree_type != TREE:
            return False
        return solver_node(active_graph(context)) is not None


CLASSES = (
    LOKI_UL_setup,
    LOKI_PT_simulation,
    LOKI_PT_bake,
    LOKI_PT_bake_options,
    LOKI_PT_setup,
    LOKI_PT_settings,
    LOKI_PT_node_exposed,
    LOKI_PT_node_setup,
)
