"""Geometry parts: the meshes, hair curves and point clouds of an object, with all its instances.

An object's evaluated geometry may be several things at once, and instances of others; a part is one
datablock and the places where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import bpy
import numpy as np
import numpy.typing as npt

from loki_core.errors import InputError

from .attributes import read_attribute

Matrices = npt.NDArray[np.float64]

GEOMETRY_TYPES = frozenset({"MESH", "CURVES", "POINTCLOUD", "CURVE", "SURFACE", "FONT", "META"})
"""Types of objects that have geometry which streams can carry."""


@dataclass(frozen=True)
class Part:
    """A datablock and where it stands.

    Attributes:
        data: A mesh, hair curves or a point cloud.
        matrices: From its own space to the world's, shape [n, 4, 4].
        painted: Whether vertex groups are to be looked for.
        keeper: The geometry set that the datablock is part of, which lives as long as this does;
            None if an object has the datablock.
    """

    data: Any
    matrices: Matrices
    painted: bool
    keeper: Any

    @property
    def stream_type(self) -> str:
        """Return the type of stream that the datablock is by nature."""
        if isinstance(self.data, bpy.types.Curves):
            return "curves"
        if isinstance(self.data, bpy.types.Mesh) and len(self.data.edges):
            return "surface" if len(self.data.polygons) else "wireframe"
        return "points"

    def mirrored(self, yes: bool) -> Matrices:
        """Return the places in which it is seen as in a mirror, or those in which it is not."""
        return self.matrices[(np.linalg.det(self.matrices[:, :3, :3]) < 0.0) == yes]


def parts_of(evaluated: bpy.types.Object) -> list[Part]:
    """Return the parts of an evaluated object that have any points."""
    try:
        geometry = evaluated.evaluated_geometry()
    except TypeError as error:  # how Blender says that something keeps it from being evaluated
        raise InputError(f'object "{evaluated.name}": {error}; is it switched off?') from error
    world = np.array(evaluated.matrix_world, np.float64)[np.newaxis]
    return list(_parts(geometry, world, bool(evaluated.vertex_groups), evaluated.data))


def _parts(geometry: Any, matrices: Matrices, painted: bool, own: Any = None) -> Iterator[Part]:
    """Yield the parts of a geometry set; `own` is the datablock of the object that it is of."""
    for data in (geometry.mesh, geometry.curves, geometry.pointcloud):
        if data is not None and data.attributes.domain_size("POINT"):
            if type(own) is type(data) and _is_same(own, data):
                yield Part(own, matrices, painted, None)
            else:
                yield Part(data, matrices, painted, geometry)
    instances = geometry.instances_pointcloud()
    if instances is None:
        return
    places = read_attribute(instances, "instance_transform").reshape(-1, 4, 4).transpose(0, 2, 1)
    number = read_attribute(instances, ".reference_index")
    for index, reference in enumerate(geometry.instance_references()):
        here = (matrices[:, np.newaxis] @ places[number == index]).reshape(-1, 4, 4)
        if len(here):
            yield from _instance_parts(reference, here, painted)


def _instance_parts(reference: Any, matrices: Matrices, painted: bool) -> Iterator[Part]:
    if isinstance(reference, bpy.types.Collection):
        shift = np.eye(4)
        shift[:3, 3] = -np.array(reference.instance_offset)
        for member in reference.all_objects:
            own = matrices @ shift @ np.array(member.matrix_world, np.float64)
            yield from _instance_parts(member, own, painted)
    elif not isinstance(reference, bpy.types.Object):
        yield from _parts(reference, matrices, painted)
    elif reference.type in GEOMETRY_TYPES:
        yield from _parts(
            reference.evaluated_geometry(), matrices, bool(reference.vertex_groups), reference.data
        )


def _is_same(own: Any, data: Any) -> bool:
    """Whether an object's datablock is what its geometry set has; not if Blender defers some work.

    What is read of a datablock that shares its arrays with another one is copied by Blender: an
    object's own is, once, when it was evaluated; that of a geometry set is each time.
    """
    counts = [one.attributes.domain_size("POINT") for one in (own, data)]
    return counts[0] == counts[1] and own.attributes.keys() == data.attributes.keys()
