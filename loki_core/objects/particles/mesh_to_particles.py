"""A mesh's channels for particles in and near it: those of the nearest place on its faces.

Numbers of points, vertices and primitives are interpolated across the nearest triangle; whole
numbers do not mix and are those of its nearest corner. Detail channels are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.channels import check_values, motion_channels
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import InputError, did_you_mean
from loki_core.objects.colliders.triangles import PlacedTriangles

Array = NDArray[Any]

LOCATIONS = ("vertex", "point", "primitive", "detail")  # the narrowest wins
SKIPPED = ("id", "position", "affine", "alive")  # which particles have for themselves


def channels_of(mesh: Any) -> dict[str, tuple[str, Array]]:
    """Where each channel of numbers of a mesh is, and its values."""
    found: dict[str, tuple[str, Array]] = {}
    for location in reversed(LOCATIONS):
        moved = motion_channels(mesh.channels[location])
        for name, array in mesh.channels[location].items():
            if name not in SKIPPED and name not in moved and array.dtype.kind in "biuf":
                found[name] = (location, array)
    return found


def make_room(particles: ParticleSystem, mesh: Any, names: Sequence[str], *, label: str) -> None:
    """Let particles have channels of a mesh; a name that ends with "?" may be missing there.

    Raises:
        InputError: The mesh has no such channel.
    """
    known = channels_of(mesh)
    for wanted in names:
        name = wanted.removesuffix("?")
        if name not in known:
            if wanted.endswith("?"):
                continue
            raise InputError(f'{label} has no channel "{name}"{did_you_mean(name, known)}')
        array = known[name][1]
        dtype = particles.dtype if array.dtype.kind == "f" else array.dtype
        particles.add_channel(name, dtype, array.shape[1:])


class Nearest:
    """The place on a mesh that is nearest to each of some places [n, 3], relative to the origin."""

    def __init__(self, placed: PlacedTriangles, place: Array) -> None:
        from loki_core.kernels.solids.attachments import nearest_triangles

        tree, n = placed.tree, len(place)
        found, distance2 = np.empty(n, np.int64), np.empty(n)
        v, w = np.empty(n), np.empty(n)
        place = np.ascontiguousarray(place, np.float64)
        bound2 = np.full(n, np.inf)
        nearest_triangles(tree.corners, tree.box, place, bound2, found, distance2, v, w)
        self.placed = placed
        self.distance: Array = np.sqrt(distance2)
        self.row = found
        self.triangle = tree.triangle[found]
        self.weights = np.stack((1.0 - v - w, v, w), axis=1)

    def normals(self) -> Array:
        """Unit normals of the faces [n, 3], outward where the mesh encloses space."""
        corners = self.placed.tree.corners.reshape(-1, 3, 3)
        normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        if self.placed.triangles.is_closed:
            middle = corners.mean(axis=(0, 1))
            enclosed = np.einsum("ij,ij->", corners.mean(axis=1) - middle, normal)
            normal *= np.sign(enclosed)
        normal = normal[self.row]
        length = np.linalg.norm(normal, axis=1, keepdims=True)
        unit: Array = normal / np.where(length > 0.0, length, 1.0)
        return unit

    def channels(self, mesh: Any, particles: ParticleSystem, *, label: str) -> dict[str, Array]:
        """Values [n, ...] of the mesh's channels that particles have.

        Raises:
            InputError: Values have another shape than those of the particles, or are not finite.
        """
        values = {}
        for name, (location, array) in channels_of(mesh).items():
            if name not in particles.channels:
                continue
            shape = particles.channel(name).shape
            check_values(array, shape, label=f'{label}: {location} channel "{name}"')
            values[name] = self.carried(location, array)
        return values

    def carried(self, location: str, array: Array) -> Array:
        """One channel at the places."""
        if location == "detail":
            return np.repeat(array[:1], len(self.triangle), axis=0)
        elements = self.placed.triangles.elements(location)[self.triangle]
        if array.dtype.kind != "f":
            corner = np.argmax(self.weights, axis=1)
            chosen: Array = array[elements[np.arange(len(corner)), corner]]
            return chosen
        carried: Array = np.einsum(
            "nk,nk...->n...", self.weights, np.asarray(array, np.float64)[elements]
        )
        return carried
