"""Particle surface: a Geometry Nodes modifier that draws the particles of a liquid as one surface.

Spheres around the particles are united on voxels; blurring the vertices takes their bumps away.
"""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import bpy

from loki_vfx.bridges.blender.scratch_scene import geometry_ends

NAME = "Surface"


def as_surface(
    shown: Any,
    spacing: float,
    *,
    size: float = 0.9,
    detail: float = 0.45,
    smoothing: int = 6,
) -> None:
    """Draw points, that are shown with their material, as a surface.

    Args:
        spacing: Of the particles [m].
        size: Radius of the spheres, over the spacing.
        detail: Edge of the voxels, over the spacing.
        smoothing: How often each vertex becomes the mean of its neighbours.
    """
    if shown.modifiers.get(NAME) is not None:
        return
    modifier = shown.modifiers.new(NAME, "NODES")
    tree = bpy.data.node_groups.new(NAME, "GeometryNodeTree")
    modifier.node_group = tree
    given, result = geometry_ends(tree)
    volume = tree.nodes.new("GeometryNodePointsToVolume")
    mesh = tree.nodes.new("GeometryNodeVolumeToMesh")
    for node in (volume, mesh):
        _set_mode(node)
        node.inputs["Voxel Size"].default_value = detail * spacing
    volume.inputs["Radius"].default_value = size * spacing
    mesh.inputs["Threshold"].default_value = 0.1
    place = tree.nodes.new("GeometryNodeInputPosition")
    blur = tree.nodes.new("GeometryNodeBlurAttribute")
    blur.data_type = "FLOAT_VECTOR"
    blur.inputs["Iterations"].default_value = smoothing
    moved = tree.nodes.new("GeometryNodeSetPosition")
    shade = tree.nodes.new("GeometryNodeSetShadeSmooth")
    material = tree.nodes.new("GeometryNodeSetMaterial")
    material.inputs["Material"].default_value = shown.active_material
    for start, end in (
        (given, volume.inputs["Points"]),
        (volume.outputs["Volume"], mesh.inputs["Volume"]),
        (mesh.outputs["Mesh"], moved.inputs["Geometry"]),
        (place.outputs["Position"], _of_type(blur.inputs, "Value")),
        (_of_type(blur.outputs, "Value"), moved.inputs["Position"]),
        (moved.outputs["Geometry"], _of_type(shade.inputs, "Geometry", "Mesh")),
        (shade.outputs[0], material.inputs["Geometry"]),
        (material.outputs["Geometry"], result),
    ):
        tree.links.new(start, end)


def _set_mode(node: Any) -> None:
    """Let a node take the size of voxels; a property until Blender 4.5, a menu since."""
    if hasattr(node, "resolution_mode"):
        node.resolution_mode = "VOXEL_SIZE"
    else:
        node.inputs["Resolution Mode"].default_value = "Size"


def _of_type(sockets: Any, *names: str) -> Any:
    """Return the socket in use that has one of the names."""
    return next(one for one in sockets if one.name in names and one.enabled)
