"""Points display: a Geometry Nodes modifier that draws the vertices of a mesh as spheres.

All results share one node group. The radius is that of the attribute "radius" where there is one;
other attributes, such as the velocity of motion blur, go through.
"""

from __future__ import annotations

from typing import Any

import bpy

from .compat import set_modifier_input
from .scratch_scene import geometry_ends

NAME = "Loki Points"
DEFAULT_RADIUS = 0.01  # m


def draw_as_points(holder: bpy.types.Object, *, radius: float) -> None:
    """Let an object's vertices be drawn as spheres; `radius` is for points that have none."""
    modifier = holder.modifiers.new(NAME, "NODES")
    holder.modifiers.move(len(holder.modifiers) - 1, 0)
    modifier.node_group = _node_group()
    _set_input(modifier, "Radius", radius)


def follow_material(holder: bpy.types.Object) -> None:
    """Give the spheres the object's material; points do not take it over from a mesh."""
    modifier = holder.modifiers.get(NAME)
    if modifier is not None and modifier.node_group is not None:
        _set_input(modifier, "Material", holder.active_material)


def draw_as_mesh(holder: bpy.types.Object) -> None:
    """Take back what `draw_as_points` did."""
    modifier = holder.modifiers.get(NAME)
    if modifier is not None:
        holder.modifiers.remove(modifier)


def _node_group() -> Any:
    found = bpy.data.node_groups.get(NAME)
    if found is not None and _identifier(found, "Material"):
        return found
    tree = bpy.data.node_groups.new(NAME, "GeometryNodeTree")
    given, result = geometry_ends(tree)
    tree.interface.new_socket("Radius", in_out="INPUT", socket_type="NodeSocketFloat")
    tree.interface.new_socket("Material", in_out="INPUT", socket_type="NodeSocketMaterial")
    begin = given.node
    attribute = tree.nodes.new("GeometryNodeInputNamedAttribute")
    attribute.data_type = "FLOAT"
    attribute.inputs["Name"].default_value = "radius"
    switch = tree.nodes.new("GeometryNodeSwitch")
    switch.input_type = "FLOAT"
    points = tree.nodes.new("GeometryNodeMeshToPoints")
    material = tree.nodes.new("GeometryNodeSetMaterial")
    tree.links.new(attribute.outputs["Exists"], switch.inputs["Switch"])
    tree.links.new(begin.outputs["Radius"], switch.inputs["False"])
    tree.links.new(attribute.outputs["Attribute"], switch.inputs["True"])
    tree.links.new(given, points.inputs["Mesh"])
    tree.links.new(switch.outputs["Output"], points.inputs["Radius"])
    tree.links.new(points.outputs["Points"], material.inputs["Geometry"])
    tree.links.new(begin.outputs["Material"], material.inputs["Material"])
    tree.links.new(material.outputs["Geometry"], result)
    for column, node in enumerate((begin, attribute, switch, points, material, result.node)):
        node.location = (200.0 * column, 0.0)
    return tree


def _identifier(tree: Any, name: str) -> str:
    sockets = (one for one in tree.interface.items_tree if one.item_type == "SOCKET")
    return next((str(s.identifier) for s in sockets if s.name == name and s.in_out == "INPUT"), "")


def _set_input(modifier: Any, name: str, value: Any) -> None:
    """Set an input of a nodes modifier, if there is one."""
    key = _identifier(modifier.node_group, name)
    if key:
        set_modifier_input(modifier, key, value)
