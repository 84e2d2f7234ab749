"""Particle sources: where new particles appear on a stream, and with what velocity.

Points are chosen evenly; places on a Surface by area, on Curves and Wireframes by length. A place
is a pure function of the particle's random numbers, so it depends on neither threads nor ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.errors import InputError

#: Random numbers that a place takes.
UNIFORMS_PER_PLACE = 3


class Places(NamedTuple):
    """Where new particles appear.

    World positions [m], unit normals (zero without a surface) and velocities [m/s] are [n, 3];
    corners and weights [n, k] say which points of the source a place lies between, primitive [n]
    in which of its primitives it is, if it has any.
    """

    position: NDArray[np.float64]
    normal: NDArray[np.float64]
    velocity: NDArray[np.float64]
    corners: NDArray[np.int64]
    weights: NDArray[np.float64]
    primitive: NDArray[np.int64]

    def carry(self, location: str, array: NDArray[Any]) -> NDArray[Any]:
        """A channel of the source's points or primitives at the places, [n, ...]."""
        if location == "primitive":
            carried: NDArray[Any] = array[self.primitive]
            return carried
        flat = np.asarray(array, np.float64).reshape(len(array), -1)
        mixed = _mix(flat, self.corners, self.weights)
        return mixed.reshape(-1, *array.shape[1:])


def places_on(source: Any, uniforms: NDArray[np.float64], *, label: str) -> Places:
    """Choose a place for each row of uniforms [n, 3].

    Args:
        source: Points, Curves, Wireframe or Surface.
        label: Who emits, for messages.
    """
    if not isinstance(source, Mesh):
        raise InputError(
            f"{label}: cannot emit from a {type(source).__name__}; give points or a mesh"
        )
    if source.point_count == 0:
        raise InputError(f"{label}: the source stream has no points to emit from")
    corners = _simplices(source)
    rows, weights = _choose(source, corners, uniforms, label)
    chosen = corners[rows]
    position = _mix(np.asarray(source.positions, dtype=np.float64), chosen, weights)
    velocity = np.zeros_like(position)
    if "velocity" in source.channels["point"]:
        given = np.asarray(source.channels["point"]["velocity"], dtype=np.float64)
        velocity = _mix(given, chosen, weights)
    normal = np.zeros_like(position)
    if corners.shape[1] == 3:
        normal = _normals(np.asarray(source.positions, dtype=np.float64), chosen)
    return Places(position, normal, velocity, chosen, weights, _primitives(source, chosen, rows))


def inherited_channels(
    source: Mesh, places: Places, known: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Values of the source's own point channels that the particles have too, at the places."""
    inherited = {}
    for name, array in source.channels["point"].items():
        if name in known and array.shape[1:] == known[name].shape[1:]:
            if array.dtype.kind == "f":
                flat = array.reshape(len(array), -1).astype(np.float64)
                mixed = _mix(flat, places.corners, places.weights)
                inherited[name] = mixed.reshape(-1, *array.shape[1:])
            else:  # whole numbers do not mix: the nearest point's
                nearest = np.argmax(places.weights, axis=1)
                inherited[name] = array[places.corners[np.arange(len(nearest)), nearest]]
    return inherited


def _simplices(source: Mesh) -> NDArray[np.int64]:
    """Points, edges or triangles of the source, shape [count, 1, 2 or 3]."""
    if isinstance(source, Surface):
        return np.asarray(source.triangles(), dtype=np.int64)
    edges = np.asarray(source.edges(), dtype=np.int64)
    if len(edges):
        return edges
    return np.arange(source.point_count, dtype=np.int64)[:, None]


def _primitives(
    source: Mesh, corners: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Primitive of each place, given its corners [n, k] and the row of its simplex [n]."""
    if isinstance(source, Surface):
        return np.asarray(source.triangle_faces(), np.int64)[rows]
    if isinstance(source, Curves):
        return np.asarray(source.curve_of_point(), np.int64)[corners[:, 0]]
    return rows  # of a Wireframe, whose primitives are its edges; Points have none


def _choose(
    source: Mesh, corners: NDArray[np.int64], uniforms: NDArray[np.float64], label: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Row of the simplex [n] and barycentric weights [n, k] of each place."""
    position = np.asarray(source.positions, dtype=np.float64)
    size = corners.shape[1]
    if size == 1:
        rows = np.minimum((uniforms[:, 0] * len(corners)).astype(np.int64), len(corners) - 1)
        return rows, np.ones((len(uniforms), 1))
    edge = position[corners[:, 1]] - position[corners[:, 0]]
    if size == 2:
        measure = np.linalg.norm(edge, axis=1)
    else:
        other = position[corners[:, 2]] - position[corners[:, 0]]
        measure = 0.5 * np.linalg.norm(np.cross(edge, other), axis=1)
    ends = np.cumsum(measure)
    if not ends[-1] > 0.0:
        raise InputError(f"{label}: the source stream has no length or area to emit from")
    rows = np.searchsorted(ends, uniforms[:, 0] * ends[-1], side="right")
    rows = np.minimum(rows, len(corners) - 1)
    if size == 2:
        weights = np.stack((1.0 - uniforms[:, 1], uniforms[:, 1]), axis=1)
    else:  # the square root makes the places even over the triangle
        root = np.sqrt(uniforms[:, 1])
        weights = np.stack(
            (1.0 - root, root * (1.0 - uniforms[:, 2]), root * uniforms[:, 2]), axis=1
        )
    return rows, weights


def _mix(
    values: NDArray[np.float64], corners: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    mixed: NDArray[np.float64] = np.einsum("nk,nkc->nc", weights, values[corners])
    return mixed


def _normals(position: NDArray[np.float64], corners: NDArray[np.int64]) -> NDArray[np.float64]:
    first = position[corners[:, 1]] - position[corners[:, 0]]
    second = position[corners[:, 2]] - position[corners[:, 0]]
    normal = np.cross(first, second)
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    unit: NDArray[np.float64] = np.zeros_like(normal)
    np.divide(normal, length, out=unit, where=length > 0.0)
    return unit
