"""Points from mesh: the points of a mesh, or points scattered evenly over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.body import Body
from loki_core.data.mesh import Mesh
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import InputError
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
MAX_POINTS = 1 << 25


class PointsFromMesh(Node):
    """Make points of a mesh's own points, or scatter them by area, length or number.

    Scattered points have the mesh's point channels, mixed between the corners around them
    (whole numbers are those of the nearest corner), and the normal of the surface they lie on.
    """

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in", "mesh"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", "points"),)

    mode: str = parameter("points", choices=("points", "scatter"), doc="Which points.")
    count: int = parameter(1000, minimum=0, maximum=MAX_POINTS, doc="Points that are scattered.")
    seed: int = parameter(0, minimum=0, doc="Another seed gives other places.")

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the points with the mesh's point and detail channels."""
        mesh: Mesh = inputs["in"]
        if self.mode == "scatter":
            points = scatter(mesh, self.count, seed=self.seed)
        else:
            points = Points(mesh.positions)
            channels = mesh.channels["point"]
            for name, values in channels.items():
                points.set_channel("point", name, values, transform=channels.transform_of(name))
        details = mesh.channels["detail"]
        for name, values in details.items():
            points.set_channel("detail", name, values, transform=details.transform_of(name))
        return {"out": points}


def scatter(mesh: Mesh, count: int, *, seed: int) -> Points:
    """Return points scattered by area over triangles, by length over edges, or over points.

    Raises:
        InputError: The mesh has no point, or no area or length.
    """
    if count == 0:
        return Points(np.empty((0, 3)))
    if mesh.point_count == 0:
        raise InputError(f"the {mesh.type_name} has no points to scatter over")
    from loki_core.kernels.basics.emission import fill_uniforms
    from loki_core.kernels.basics.random import random_key

    uniforms = np.empty((count, 3))
    fill_uniforms(random_key(seed), np.arange(count, dtype=np.int64), uniforms)
    positions = mesh.positions.astype(np.float64)
    corners = _simplices(mesh)
    chosen, weights = _choose(positions, corners, uniforms, mesh.type_name)
    points = Points(np.einsum("nk,nkc->nc", weights, positions[chosen]))
    if corners.shape[1] == 3:
        points.set_channel("point", "normal", _normals(positions, chosen))
    channels = mesh.channels["point"]
    nearest = chosen[np.arange(count), np.argmax(weights, axis=1)]
    for name, values in channels.items():
        mixed = values[nearest]
        if values.dtype.kind == "f":
            mixed = np.einsum("nk,nk...->n...", weights, values[chosen]).astype(values.dtype)
        points.set_channel("point", name, mixed, transform=channels.transform_of(name))
    return points


def _simplices(mesh: Mesh) -> Indices:
    """Return triangles, edges or points of a mesh as point indices, shape [n, 3, 2 or 1]."""
    if isinstance(mesh, Surface):
        return mesh.triangles().astype(np.int64)
    if isinstance(mesh, Body):
        return mesh.boundary_faces().astype(np.int64)
    edges = mesh.edges().astype(np.int64)
    return edges if len(edges) else np.arange(mesh.point_count, dtype=np.int64)[:, None]


def _choose(
    positions: Floats, corners: Indices, uniforms: Floats, what: str
) -> tuple[Indices, Floats]:
    """Return the corners [n, k] and weights [n, k] of the place that each row of uniforms means."""
    edge = positions[corners[:, 1]] - positions[corners[:, 0]] if corners.shape[1] > 1 else None
    if edge is None:
        measure = np.ones(len(corners))
    elif corners.shape[1] == 2:
        measure = np.linalg.norm(edge, axis=1)
    else:
        other = positions[corners[:, 2]] - positions[corners[:, 0]]
        measure = 0.5 * np.linalg.norm(np.cross(edge, other), axis=1)
    ends = np.cumsum(measure)
    if len(ends) == 0 or not ends[-1] > 0.0:
        raise InputError(f"the {what} has no area or length to scatter over")
    rows = np.searchsorted(ends, uniforms[:, 0] * ends[-1], side="right")
    rows = np.minimum(rows, len(corners) - 1)
    if corners.shape[1] == 1:
        weights = np.ones((len(uniforms), 1))
    elif corners.shape[1] == 2:
        weights = np.stack([1.0 - uniforms[:, 1], uniforms[:, 1]], axis=1)
    else:  # the square root makes places even over the triangle
        root = np.sqrt(uniforms[:, 1])
        weights = np.stack(
            [1.0 - root, root * (1.0 - uniforms[:, 2]), root * uniforms[:, 2]], axis=1
        )
    return corners[rows], weights


def _normals(positions: Floats, corners: Indices) -> Floats:
    a, b, c = (positions[corners[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.asarray(normals / np.where(length > 0.0, length, 1.0))
