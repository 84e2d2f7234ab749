"""Object overrides: values that hold for one object, or that are painted on it.

A Behavior's parameter that may vary is overridden by a channel called after both, such as
`bending_stiffness`; a float attribute or vertex group of that name is painted, an entry of the
object's own list holds for all of it. `<channel>_scale` multiplies instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import bpy
import numpy as np

from loki_core.errors import InputError
from loki_core.parameter import Parameter
from loki_core.sparse_parameters import channel_names

from .graph_tree import graphs, inputs_in, outputs_in
from .operator_tools import solver_node, told
from .setup_rows import behavior_of, name_of, values_of

PAINTABLE = ("MESH", "CURVES", "POINTCLOUD")


class Overridable(NamedTuple):
    """A parameter of a Behavior that an object may override."""

    channel: str
    label: str
    parameter: Parameter
    group: Any


def uses_of(source: Any) -> list[tuple[Any, Any]]:
    """Return the graphs and Host Inputs that read an object."""
    return [
        (tree, node) for tree in graphs() for node in inputs_in(tree) if source in node.sources()
    ]


def shown_by(source: Any) -> list[tuple[Any, Any]]:
    """Return the graphs and Outputs whose result an object shows."""
    return [
        (tree, node) for tree in graphs() for node in outputs_in(tree) if node.part.target is source
    ]


def overridables(tree: Any) -> Iterator[Overridable]:
    """Yield what objects may override in a graph's Solver Setup."""
    node = solver_node(tree)
    for row in node.part.rows if node is not None else ():
        behavior = behavior_of(row)
        if behavior is None:
            continue
        for name, parameter in behavior.parameters().items():
            if parameter.varies == "no":
                continue
            channel = channel_names(behavior, name)[0]
            label = f"{name_of(row)}: {name.replace('_', ' ')}"
            yield Overridable(channel, label, parameter, values_of(row))


def painted_on(source: Any) -> set[str]:
    """Return the names of the attributes and vertex groups of an object."""
    names = {one.name for one in source.vertex_groups} if source.type == "MESH" else set()
    attributes = getattr(source.data, "attributes", ())
    return names | {one.name for one in attributes}


def overridden_by(tree: Any, channels: tuple[str, ...]) -> str:
    """Return in words which objects of a graph bring channels of some names."""
    found = []
    for node in inputs_in(tree):
        for source in node.sources():
            own = painted_on(source) | {one.channel for one in source.loki.overrides}
            names = [c for c in channels if c in own or f"{c}_scale" in own]
            if names:
                found.append(f"{source.name} ({', '.join(names)})")
    return ", ".join(found)


_items: list[tuple[str, str, str]] = []


def override_items(self: Any, context: Any) -> list[tuple[str, str, str]]:
    """Return what the active object may override; kept for Blender, which holds no reference."""
    _items.clear()
    source = (context or bpy.context).object  # Blender asks without a context, for scripts
    seen = set()
    for tree, _ in uses_of(source) if source is not None else ():
        for one in overridables(tree):
            if one.channel not in seen:
                seen.add(one.channel)
                _items.append((one.channel, one.label, one.parameter.doc))
    return _items or [("NONE", "Nothing", "No Solver Setup uses this object")]


def _find(source: Any, channel: str) -> Overridable:
    for tree, _ in uses_of(source):
        for one in overridables(tree):
            if one.channel == channel:
                return one
    raise InputError(f"no Behavior that reaches {source.name} has {channel}")


class _OnObject(bpy.types.Operator):
    """Works on the active object."""

    bl_options = {"REGISTER", "UNDO"}

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Whether an object is active."""
        return context.object is not None


class LOKI_OT_override_add(_OnObject):
    """Let this object have a value of its own"""

    bl_idname = "loki.override_add"
    bl_label = "Add Override"
    bl_property = "channel"

    channel: bpy.props.EnumProperty(items=override_items, name="Parameter")  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Add an entry that begins with the Behavior's value."""
        one = _find(context.object, self.channel)
        settings = context.object.loki
        there = [entry.channel for entry in settings.overrides]
        if one.channel in there:
            settings.active = there.index(one.channel)
            raise InputError(
                f"{context.object.name} has a value of its own for {one.label} already: change it "
                "in the list"
            )
        entry = settings.overrides.add()
        entry.channel = one.channel
        entry.size = one.parameter.type.components
        value = _start_value(one)
        if entry.size == 1:
            entry.value = value
        else:
            entry.vector = value
        settings.active = len(settings.overrides) - 1
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Search by typing."""
        context.window_manager.invoke_search_popup(self)
        return {"RUNNING_MODAL"}


def _start_value(one: Overridable) -> Any:
    from .declared_properties import get_value

    value = get_value(one.group, one.parameter)
    if value is None:
        value = one.parameter.minimum or 0.0
    return value


class LOKI_OT_override_remove(_OnObject):
    """Let the Behavior's value hold again"""

    bl_idname = "loki.override_remove"
    bl_label = "Remove Override"

    @told
    def execute(self, context: Any) -> set[str]:
        """Remove the active entry."""
        settings = context.object.loki
        if not 0 <= settings.active < len(settings.overrides):
            return {"CANCELLED"}
        settings.overrides.remove(settings.active)
        settings.active = max(0, settings.active - 1)
        return {"FINISHED"}


class LOKI_OT_paint_override(_OnObject):
    """Add a vertex group to paint a factor on, or an attribute with the present value"""

    bl_idname = "loki.paint_override"
    bl_label = "Paint Override"
    bl_property = "channel"

    channel: bpy.props.EnumProperty(items=override_items, name="Parameter")  # type: ignore[valid-type]
    is_scale: bpy.props.BoolProperty(  # type: ignore[valid-type]
        name="As Factor",
        description="Paint a factor between 0 and 1 instead of the value itself",
        default=True,
    )

    @told
    def execute(self, context: Any) -> set[str]:
        """Make the vertex group or attribute, and make it the active one."""
        source = context.object
        if source.type not in PAINTABLE:
            raise InputError(f"{source.name} is a {source.type.lower()}, which has no attributes")
        one = _find(source, self.channel)
        if one.parameter.type.components != 1 and not self.is_scale:
            raise InputError(f"{one.label} is a vector; paint a factor, or add an override")
        name = f"{one.channel}_scale" if self.is_scale else one.channel
        if source.type == "MESH" and self.is_scale:
            _add_vertex_group(source, name)
        else:
            _add_attribute(source, name, 1.0 if self.is_scale else float(_start_value(one)))
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Search by typing."""
        context.window_manager.invoke_search_popup(self)
        return {"RUNNING_MODAL"}


def _add_vertex_group(source: Any, name: str) -> None:
    """Make a vertex group full of 1 for weight paint; what is there stays as it is."""
    group = source.vertex_groups.get(name)
    if group is None:
        group = source.vertex_groups.new(name=name)
        group.add(range(len(source.data.vertices)), 1.0, "REPLACE")
    source.vertex_groups.active = group


def _add_attribute(source: Any, name: str, start: float) -> None:
    """Make an attribute full of a value; what is there stays as it is."""
    attributes = source.data.attributes
    made = attributes.get(name)
    if made is None:
        made = attributes.new(name, "FLOAT", "POINT")
        made.data.foreach_set("value", np.full(len(made.data), start, np.float32))
    attributes.active = made


class LOKI_OT_use_object(_OnObject):
    """Let a simulation read the active object"""

    bl_idname = "loki.use_object"
    bl_label = "Use in Simulation"

    graph: bpy.props.StringProperty(options={"HIDDEN"})  # type: ignore[valid-type]
    node: bpy.props.StringProperty(options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Make it the object of a Host Input."""
        tree = next((one for one in graphs() if one.name == self.graph), None)
        node = None if tree is None else tree.nodes.get(self.node)
        if node is None:
            raise InputError(f"{self.graph} has no input {self.node}")
        node.part.source = context.object
        return {"FINISHED"}


CLASSES = (
    LOKI_OT_override_add,
    LOKI_OT_override_remove,
    LOKI_OT_paint_override,
    LOKI_OT_use_object,
)
