"""The Loki Graph as a node tree of Blender: its sockets, and a class for every registered node.

What a node keeps lies in its part of the tree, `node.part`: Blender animates properties only where
a path leads to them from their datablock, and none leads through custom nodes. A part has the
parameters, made from the declaration; that of a Host Input or Output also the object it stands for,
that of a Solver Setup the rows of its tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bpy

from loki_core.errors import GraphError, LokiError
from loki_core.solver_settings import SolverSettings
from loki_graph.node import Node
from loki_graph.sockets import Socket, may_connect

from . import setup_rows
from .animation import path_of
from .declared_properties import changed_values
from .host_to_loki import READABLE_TYPES
from .node_parts import VALUES, add_part, give_parts
from .parameter_layout import draw_values

TREE = "LokiGraphTree"
NODE = "LokiNode"  # begins the identifiers of node classes
SOCKET = "LokiSocket"
WIDTH = 190.0

COLORS = {
    "any": (0.63, 0.63, 0.63, 1.0),
    "mesh": (0.0, 0.84, 0.64, 1.0),
    "points": (0.93, 0.62, 0.84, 1.0),
    "curves": (0.95, 0.75, 0.30, 1.0),
    "wireframe": (0.39, 0.78, 0.39, 1.0),
    "surface": (0.0, 0.84, 0.64, 1.0),
    "body": (0.80, 0.44, 0.26, 1.0),
    "voxels": (0.39, 0.60, 0.95, 1.0),
}


#: Whether all classes are registered. Blender asks graphs of the open file before they are, and
#: crashes when somebody looks at their sockets then.
_is_complete = False


def set_complete(complete: bool) -> None:
    """Tell whether all classes of nodes and sockets are registered."""
    global _is_complete
    _is_complete = complete


def is_graph(tree: Any) -> bool:
    """Whether a node tree is a Loki Graph."""
    return tree is not None and tree.bl_idname == TREE


def graphs() -> list[Any]:
    """Return all Loki Graphs of the file."""
    return [tree for tree in bpy.data.node_groups if is_graph(tree)]


def is_loki(node: Any) -> bool:
    """Whether a node stands for one of a Loki Graph; frames and reroutes do not."""
    return hasattr(node, "declaration")


def loki_name(name: str) -> str:
    """Return the name of a node as a Loki Graph can have it: Blender's "Merge.001" has a dot."""
    return "".join(one if one.isalnum() or one in "_- " else "_" for one in name).strip() or "node"


def inputs_in(tree: Any) -> list[Any]:
    """Return the Host Inputs of a graph, those apart that are muted."""
    return _nodes_in(tree, HostInputNode)


def outputs_in(tree: Any) -> list[Any]:
    """Return the Outputs of a graph, those apart that are muted."""
    return _nodes_in(tree, OutputNode)


def _nodes_in(tree: Any, kind: type[Any]) -> list[Any]:
    return [node for node in tree.nodes if isinstance(node, kind) and not node.mute]


class LokiGraph(bpy.types.NodeTree):
    """What is simulated: data from the scene, a solver, and what becomes of the results."""

    bl_idname = TREE
    bl_label = "Loki Graph"
    bl_icon = "PHYSICS"

    def update(self) -> None:
        """Refuse links between sockets that never fit; called by Blender after every change."""
        if not _is_complete:
            return
        give_parts(self)
        for link in self.links:
            given = getattr(link.from_socket, "stream_type", "any")
            wanted = getattr(link.to_socket, "stream_type", "any")
            link.is_valid = may_connect(given, wanted)


def make_tree_class(settings: type[Any]) -> type[Any]:
    """Return the class of node trees, with the class of what a graph keeps."""
    annotations = {"loki": bpy.props.PointerProperty(type=settings)}
    return type(TREE, (LokiGraph,), {"__annotations__": annotations})


def make_socket_class(stream_type: str) -> type[Any]:
    """Return the class of sockets of one stream type."""
    color = COLORS[stream_type]

    def draw(self: Any, context: Any, layout: Any, node: Any, text: str) -> None:
        layout.label(text=text)

    content: dict[str, Any] = {
        "bl_idname": SOCKET + stream_type.title(),
        "bl_label": stream_type.title(),
        "stream_type": stream_type,
        "draw": draw,
        "draw_color": lambda self, context, node: color,  # before 4.0
        "draw_color_simple": classmethod(lambda cls: color),
    }
    return type(content["bl_idname"], (bpy.types.NodeSocket,), content)


class LokiNode(bpy.types.Node):
    """What all nodes share; `declaration` is the class of loki_graph that a node stands for."""

    declaration: type[Node]

    @classmethod
    def poll(cls, tree: Any) -> bool:
        """Say where the node belongs."""
        return bool(tree.bl_idname == TREE)

    def init(self, context: Any) -> None:
        """Make the sockets of a new node."""
        self.width = WIDTH
        add_part(self)
        self.sync_sockets()

    @property
    def part(self) -> Any:
        """What the tree keeps for this node."""
        found = next((one for one in self.id_data.loki.parts if one.number == self.number), None)
        if found is None:
            raise GraphError(f"{self.id_data.name}/{self.name} has lost its values; add it anew")
        return found

    @property
    def values(self) -> Any:
        """The parameters."""
        return getattr(self.part, VALUES + self.declaration.__name__)

    def draw_buttons(self, context: Any, layout: Any) -> None:
        """Show what was set, and the first few values."""
        draw_values(layout, self.values, self.declaration, limit=6)

    def draw_buttons_ext(self, context: Any, layout: Any) -> None:
        """Show all values in the sidebar."""
        draw_values(layout, self.values, self.declaration)

    def loki_node(self, animated: Mapping[str, Any]) -> Node:
        """Return the node of loki_graph with the values of this one."""
        values = changed_values(self.values, self.declaration)
        for name, parameter in self.declaration.parameters().items():
            keyframes = animated.get(path_of(self.values, parameter)) if animated else None
            if keyframes is not None:
                values[name] = keyframes
        return self.declaration.from_values(values, place=self.name)

    def sync_sockets(self) -> None:
        """Make the sockets those that the node has with its present values."""
        try:
            node = self.loki_node({})
        except LokiError:
            return  # half-way through an edit; the bake says what is wrong
        for ours, wanted, is_input in (
            (self.inputs, node.inputs(), True),
            (self.outputs, node.outputs(), False),
        ):
            _sync(ours, wanted, is_input=is_input)


def _sync(ours: Any, wanted: Mapping[str, Socket], *, is_input: bool) -> None:
    for socket in [one for one in ours if one.name not in wanted]:
        ours.remove(socket)
    for position, (name, socket) in enumerate(wanted.items()):
        identifier = SOCKET + socket.type.title()
        there = ours.get(name)
        if there is not None and there.bl_idname != identifier:
            ours.remove(there)
            there = None
        if there is None:
            options = {"use_multi_input": True} if is_input and socket.many else {}
            there = ours.new(identifier, name, **options)
        there.description = socket.doc
        ours.move(list(ours.keys()).index(name), position)


def sync_sockets_of(group: Any) -> None:
    """Bring the sockets of nodes up to date after a value of a graph was changed."""
    tree = group.id_data
    for node in tree.nodes if is_graph(tree) else ():
        if hasattr(node, "sync_sockets"):
            node.sync_sockets()


class SolverNode(LokiNode):
    """What the Solver Setup node has beside its parameters."""

    def draw_buttons(self, context: Any, layout: Any) -> None:
        """Show the tree in short."""
        rows = self.part.rows
        groups = sum(row.is_group for row in rows)
        layout.label(text=f"{len(rows) - groups} Behaviors in {groups} Groups")
        layout.operator("loki.edit_setup", text="Edit", icon="OUTLINER").node = self.name

    def loki_node(self, animated: Mapping[str, Any]) -> Node:
        """Return the node with the Solver Setup of its rows."""
        part = self.part
        settings = changed_values(part.settings, SolverSettings)
        name = _setup_name(part.setup_name or self.id_data.name)
        setup = setup_rows.setup_of(part.rows, settings, name, animated)
        values = changed_values(self.values, self.declaration)
        return self.declaration.from_values({"setup": setup, **values}, place=self.name)


def _setup_name(text: str) -> str:
    return "".join(one if one.isalnum() or one in "_-" else "_" for one in text) or "setup"


class HostInputNode(LokiNode):
    """What a Host Input has beside its parameters: the objects that it reads."""

    def draw_buttons(self, context: Any, layout: Any) -> None:
        """Show what is read, and when."""
        part = self.part
        column = layout.column(align=True)
        column.prop(part, "source", text="")
        column.prop(part, "collection", text="")
        layout.prop(part, "sampling", text="")
        if part.sampling == "SUBFRAMES":
            layout.prop(part, "samples")
        draw_values(layout, self.values, self.declaration)

    @property
    def stream_name(self) -> str:
        """What its stream is called in the Loki Graph."""
        made: Any = self.loki_node({})
        return str(made.stream_name(loki_name(self.name)))

    def sources(self) -> list[Any]:
        """Return the objects that are read, in the order of their names."""
        part = self.part
        found = [] if part.source is None else [part.source]
        if part.collection is not None:
            inside = [one for one in part.collection.all_objects if one.type in READABLE_TYPES]
            found += sorted(inside, key=lambda one: one.name)
        return found


class OutputNode(LokiNode):
    """What an Output has beside its parameters: the object that shows the result."""

    def draw_buttons(self, context: Any, layout: Any) -> None:
        """Show where the result goes."""
        layout.prop(self.part, "target", text="")
        draw_values(layout, self.values, self.declaration)

    @property
    def result_name(self) -> str:
        """What its result is called in the frames."""
        made: Any = self.loki_node({})
        return str(made.output_name(loki_name(self.name)))


SPECIAL = {"SolverSetupNode": SolverNode, "HostInput": HostInputNode, "Output": OutputNode}


def make_node_class(declaration: type[Node]) -> type[Any]:
    """Return the class of Blender nodes that stand for a node of loki_graph."""
    name = declaration.__name__
    content = {
        "__annotations__": {"number": bpy.props.IntProperty(options={"HIDDEN"})},
        "__doc__": declaration.documentation(),
        "bl_idname": NODE + name,
        "bl_label": title_of(declaration),
        "declaration": declaration,
    }
    return type(NODE + name, (SPECIAL.get(name, LokiNode),), content)


def title_of(declaration: type[Any]) -> str:
    """Return the name of a class in words: SolverSetupNode is "Solver Setup"."""
    name = declaration.__name__.removesuffix("Node") or declaration.__name__
    words = "".join(f" {one}" if one.isupper() else one for one in name)
    return words.strip()
