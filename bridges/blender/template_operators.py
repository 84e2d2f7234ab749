"""Templates: simulations that are ready to bake, on the selected object or one of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bpy

from loki_core.errors import InputError
from loki_graph.graph import Graph
from loki_graph.graph_document import read_graph
from loki_graph.templates import find_template, templates

from .baked_graph import rate_of
from .graph_exchange import new_tree
from .graph_tree import inputs_in
from .loki_to_host import show
from .operator_tools import told
from .result_objects import RESULT
from .scene_inputs import axes_of

TAKEN_AS_INPUT = ("MESH", "CURVES", "POINTCLOUD", "CURVE", "SURFACE", "META", "FONT")
_items: list[tuple[str, str, str]] = []


def template_items(self: Any, context: Any) -> list[tuple[str, str, str]]:
    """Return what can be added; kept, since Blender holds no reference to the texts."""
    _items[:] = [(one.name, one.label, one.doc) for one in templates()]
    return _items


class LOKI_OT_add_template(bpy.types.Operator):
    """Add a simulation; it works on the active object, or brings one of its own"""

    bl_idname = "loki.add_template"
    bl_label = "Add Simulation"
    bl_options = {"REGISTER", "UNDO"}

    template: bpy.props.EnumProperty(items=template_items, name="Template")  # type: ignore[valid-type]
    use_active: bpy.props.BoolProperty(  # type: ignore[valid-type]
        name="On Active Object",
        description="Let the simulation work on the selected object",
        default=True,
    )

    @told
    def execute(self, context: Any) -> set[str]:
        """Make the graph and, where nothing is selected, an object for it."""
        template = find_template(self.template)
        source = context.view_layer.objects.active if self.use_active else None
        is_used = source is not None and source.select_get() and source.type in TAKEN_AS_INPUT
        tree = add_graph(context.scene, template.graph())
        tree.name = template.label
        suggested = template.suggested_inputs()
        for number, node in enumerate(inputs_in(tree)):
            name = node.stream_name
            if is_used and number == 0:
                node.part.source = source
            elif name in suggested:
                label = name.replace("_", " ").capitalize()
                node.part.source = _new_object(context, suggested[name], label)
        return {"FINISHED"}


def _new_object(context: Any, stream: Any, label: str) -> Any:
    """Make an ordinary object of a stream, as if the user had modelled it."""
    made = show(stream, label, axes_of(context.scene), target=None, collection=context.collection)
    del made[RESULT]  # it is the user's own from here on
    for one in context.selected_objects:
        one.select_set(False)
    made.select_set(True)
    context.view_layer.objects.active = made
    return made


def add_graph(scene: Any, graph: Graph) -> Any:
    """Make the node tree of a graph and let the scene's panels show it."""
    tree = new_tree(graph, frames_per_second=rate_of(scene), start=scene.frame_start)
    scene.loki.graph = tree
    return tree


class LOKI_OT_open_graph(bpy.types.Operator):
    """Read a simulation from a *.loki.json file"""

    bl_idname = "loki.open_graph"
    bl_label = "Open Loki Graph"
    bl_options = {"REGISTER", "UNDO"}

    filepath: bpy.props.StringProperty(subtype="FILE_PATH")  # type: ignore[valid-type]
    filter_glob: bpy.props.StringProperty(default="*.json", options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Read the file; Solver Setups in files beside it become part of the graph."""
        path = Path(bpy.path.abspath(self.filepath))
        if not path.is_file():
            raise InputError(f"there is no file {path}")
        add_graph(context.scene, read_graph(path).resolved(path.parent))
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Ask for the file."""
        context.window_manager.fileselect_add(self)
        return {"RUNNING_MODAL"}


class LOKI_OT_new_graph(bpy.types.Operator):
    """Add an empty Loki Graph"""

    bl_idname = "loki.new_graph"
    bl_label = "New Loki Graph"
    bl_options = {"REGISTER", "UNDO"}

    def execute(self, context: Any) -> set[str]:
        """Make it and show it."""
        tree = add_graph(context.scene, Graph("Loki Graph"))
        space = context.space_data
        if space is not None and space.type == "NODE_EDITOR":
            space.node_tree = tree
        return {"FINISHED"}


class LOKI_MT_add(bpy.types.Menu):
    """Simulations that are ready to bake."""

    bl_idname = "LOKI_MT_add"
    bl_label = "Loki"

    def draw(self, context: Any) -> None:
        """List the templates."""
        for one in templates():
            operator = self.layout.operator("loki.add_template", text=one.label, icon="PHYSICS")
            operator.template = one.name
        self.layout.separator()
        self.layout.operator("loki.open_graph", icon="FILE_FOLDER")
        self.layout.operator("loki.new_graph", icon="NODETREE")


def draw_in_add_menu(self: Any, context: Any) -> None:
    """Show the menu in Add."""
    self.layout.separator()
    self.layout.menu("LOKI_MT_add", icon="PHYSICS")


CLASSES = (LOKI_OT_add_template, LOKI_OT_open_graph, LOKI_OT_new_graph, LOKI_MT_add)


def register() -> None:
    """Show the menu."""
    bpy.types.VIEW3D_MT_add.append(draw_in_add_menu)


def unregister() -> None:
    """Take the menu back."""
    bpy.types.VIEW3D_MT_add.remove(draw_in_add_menu)
