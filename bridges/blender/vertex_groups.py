"""Vertex groups: painted weights as arrays.

Python can read weights vertex by vertex only. Geometry Nodes see a vertex group as a float
attribute, so nodes copy all groups of a mesh into plain attributes, which are read in bulk.
"""

from __future__ import annotations

from typing import Any

import bpy
import numpy as np
import numpy.typing as npt

from .attributes import read_attribute
from .scratch_scene import nodes_applied

COPY = "loki_weight_{}"


def vertex_weights(mesh: bpy.types.Mesh) -> dict[str, npt.NDArray[np.float32]]:
    """Return the weights of every vertex group of a mesh, evaluated or not; 0 outside a group."""
    names: list[str] = []

    def copy_weights(holder: Any, tree: Any, geometry: Any) -> Any:
        names.extend(holder.vertex_groups.keys())
        for number, name in enumerate(names):
            weights = tree.nodes.new("GeometryNodeInputNamedAttribute")
            weights.inputs["Name"].default_value = name
            store = tree.nodes.new("GeometryNodeStoreNamedAttribute")
            store.inputs["Name"].default_value = COPY.format(number)
            tree.links.new(geometry, store.inputs["Geometry"])
            tree.links.new(weights.outputs["Attribute"], store.inputs["Value"])
            geometry = store.outputs["Geometry"]
        return geometry

    with nodes_applied(mesh, copy_weights) as geometry:
        copied = geometry.mesh
        return {n: read_attribute(copied, COPY.format(i)) for i, n in enumerate(names)}
