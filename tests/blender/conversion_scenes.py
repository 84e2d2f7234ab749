"""Objects for the tests of conversion, made in the file that is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bpy
import numpy as np

from loki_vfx.bridges.blender.axes import Axes
from loki_vfx.bridges.blender.host_to_loki import stream_of


def link(name: str, data: Any) -> Any:
    made = bpy.data.objects.new(name, data)
    bpy.context.scene.collection.objects.link(made)
    return made


def mesh_object(
    name: str,
    points: Sequence[Sequence[float]],
    faces: Sequence[Sequence[int]] = (),
    edges: Sequence[Sequence[int]] = (),
) -> Any:
    mesh = bpy.data.meshes.new(name)
    mesh.from_pydata(points, edges, faces)
    return link(name, mesh)


def prism(name: str = "prism") -> Any:
    """Two triangles and three quads, counter-clockwise seen from outside."""
    points = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 2), (1, 0, 2), (0, 1, 2)]
    faces = [(0, 2, 1), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)]
    return mesh_object(name, points, faces)


def hair_object(name: str = "hair", sizes: Sequence[int] = (3, 4, 2)) -> Any:
    curves = bpy.data.hair_curves.new(name)
    curves.add_curves(list(sizes))
    positions = np.random.default_rng(1).random((sum(sizes), 3), dtype=np.float32)
    curves.attributes["position"].data.foreach_set("vector", positions.reshape(-1))
    return link(name, curves)


def depsgraph() -> Any:
    bpy.context.view_layer.update()
    return bpy.context.evaluated_depsgraph_get()


def read(source: Any, axes: Axes | None = None, **options: Any) -> Any:
    return stream_of(source, depsgraph(), axes or Axes(), **options)


def expected_positions(source: Any, axes: Axes) -> Any:
    """World positions of an object's own vertices in Loki, by the definition, one by one."""
    places = [source.matrix_world @ vertex.co for vertex in source.data.vertices]
    return axes.unit_scale * np.array([(p.x, p.z, -p.y) for p in places])


def set_values(data: Any, name: str, kind: str, domain: str, field: str, values: Any) -> Any:
    data.attributes.new(name, kind, domain)
    data.attributes[name].data.foreach_set(field, np.ascontiguousarray(values).reshape(-1))


def get_values(data: Any, name: str, field: str, values: Any) -> Any:
    found = np.empty_like(values)
    data.attributes[name].data.foreach_get(field, found.reshape(-1))
    return found


def everything_in_the_file() -> dict[str, list[str]]:
    """Names of all datablocks, to see that nothing is left behind."""
    kinds = ("scenes", "objects", "meshes", "hair_curves", "node_groups", "collections", "volumes")
    return {kind: [block.name_full for block in getattr(bpy.data, kind)] for kind in kinds}
