"""Mesh channels: copies of a mesh that share arrays, and channels from one location to another."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError

AnyMesh = TypeVar("AnyMesh", bound=Mesh)
Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


def shallow_copy(mesh: AnyMesh) -> AnyMesh:
    """Return a mesh of the same arrays, whose channels can be changed on their own."""
    topology = {name: getattr(mesh, name) for name in mesh.topology_names}
    copy = type(mesh)(mesh.positions, **topology)
    copy.channels.copy_from(mesh.channels)
    return copy


def vertex_tables(mesh: Mesh) -> tuple[Indices, Indices]:
    """Return the point and the primitive of each vertex, shape [vertex_count] each."""
    if isinstance(mesh, Surface):
        points: Array = mesh.face_vertices
        sizes: Array = mesh.face_sizes()
    elif isinstance(mesh, Curves):
        points, sizes = np.arange(mesh.point_count), np.diff(mesh.offsets)
    elif isinstance(mesh, Wireframe):
        points, sizes = mesh.edge_points.reshape(-1), np.full(mesh.primitive_count, 2)
    elif isinstance(mesh, Body):
        points, sizes = mesh.tetrahedra.reshape(-1), np.full(mesh.primitive_count, 4)
    else:
        points, sizes = np.empty(0, np.int64), np.empty(0, np.int64)
    primitives = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    return points.astype(np.int64), primitives


def promote(mesh: Mesh, values: Array, *, source: str, target: str) -> Array:
    """Return a channel's values at another location.

    Going to fewer elements takes the mean of all that meet there (for whole numbers and switches
    the first of them); going to more repeats the value. Elements that nothing reaches get zero.

    Raises:
        InputError: The mesh has no elements at a location.
    """
    if source == target:
        return values
    if source == "detail":
        return np.repeat(values, mesh.count(target), axis=0)
    for location in (source, target):
        if location != "detail" and mesh.count(location) == 0 and mesh.point_count > 0:
            raise InputError(f"the {mesh.type_name} has no elements at {location} to promote")
    if target == "detail":
        return _gather(values, np.zeros(len(values), np.int64), 1)
    points, primitives = vertex_tables(mesh)
    tables = {"point": points, "primitive": primitives, "vertex": np.arange(len(points))}
    at_vertices = values[tables[source]]
    return _gather(at_vertices, tables[target], mesh.count(target))


def _gather(values: Array, table: Indices, count: int) -> Array:
    """Return the mean, or for whole numbers the first, of the values that go to each element."""
    result = np.zeros((count, *values.shape[1:]), values.dtype)
    if values.dtype.kind != "f":
        result[table[::-1]] = values[::-1]  # of several assignments the last one holds
        return result
    sums = np.zeros((count, *values.shape[1:]), np.float64)
    np.add.at(sums, table, values)
    reached = np.maximum(np.bincount(table, minlength=count), 1)
    return np.asarray(sums / reached.reshape(-1, *[1] * (values.ndim - 1))).astype(values.dtype)
