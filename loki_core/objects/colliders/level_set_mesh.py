"""Level sets as Colliders: the surface where a voxel stream's distance is 0, as a mesh.

A level set comes from a VDB file, from a host, or from another run. Its zero surface, found by
marching cubes, is exact for planes; around a radius R its points are within h^2 / (8 R), its
triangles within h^2 / (4 R). From there on it is a mesh like any other, so that gas, liquids,
particle fluids and solids all meet it, in every mode, on any number of ranks. A vector channel
"velocity" becomes that of the mesh's points. Without one the solid is at rest, since nobody knows
which point of a level set has become which.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import RESOLUTIONS, DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.surface import Surface
from loki_core.data.voxel_field import VoxelField
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.objects.buckets.iso_surface import WAYS, find_iso_surface

#: What the distance is called here, and in other programs.
DISTANCES = ("distance", "surface", "sdf")
VELOCITIES = ("velocity", "vel", "v")

_meshes: weakref.WeakKeyDictionary[Voxels, Surface] = weakref.WeakKeyDictionary()


def collider_mesh(stream: Any, *, label: str) -> Any:
    """Return the mesh of a Collider's stream: itself, or the surface of a level set.

    The same stream gives the same mesh.

    Raises:
        InputError: Voxels without a distance, or whose distance is no level set.
    """
    if not isinstance(stream, Voxels):
        return stream
    if stream not in _meshes:
        _meshes[stream] = _surface_of(stream, label)
    return _meshes[stream]


def _surface_of(voxels: Voxels, label: str) -> Surface:
    name = _distance_of(voxels, label)
    channel = voxels.channel(name)
    if channel.background <= 0.0:
        raise InputError(
            f'{label}: channel "{name}" is {channel.background:g} outside of its blocks; a level '
            "set is positive there, and negative inside of the solid"
        )
    if not np.isfinite(channel.values).all():
        raise InputError(f'{label}: channel "{name}" holds numbers that are not finite')
    if voxels.block_resolution not in RESOLUTIONS:
        dense = voxels.to_dense(name)[0]
        lower = voxels.origin + voxels.voxel_size * voxels.first_voxel()
        again = Voxels.from_dense(
            {name: dense}, lower, voxels.voxel_size, background=channel.background
        )
    else:
        again = voxels
    places, triangles = _zero_surface(again, name)
    surface = Surface.from_faces(places, triangles)
    velocity = next((one for one in VELOCITIES if one in voxels.channels), None)
    if velocity is not None and len(places):
        field = VoxelField(voxels, velocity, components=3, label=label)
        domain = GridDomain(voxels.voxel_size * voxels.block_resolution)
        values = field.sample(domain.to_relative(places), domain)
        surface.set_channel("point", "velocity", values.astype(np.float64))
    return surface


def _distance_of(voxels: Voxels, label: str) -> str:
    """Return the channel that is the distance: by its name, or the only scalar one."""
    scalars = [
        name
        for name, one in voxels.channels.items()
        if one.components == 1 and one.location == "cell"
    ]
    for name in DISTANCES:
        if name in scalars:
            return name
    if len(scalars) != 1:
        known = ", ".join(voxels.channels) or "none"
        raise InputError(
            f'{label} is voxels without a channel "distance"; there are: {known}. A Collider takes '
            "a mesh, or a level set"
        )
    return scalars[0]


def _zero_surface(voxels: Voxels, name: str) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return places [n, 3] in world space and triangles [t, 3]."""
    channel, h = voxels.channel(name), voxels.voxel_size
    first = voxels.coords.min(axis=0) if voxels.block_count else np.zeros(3, np.int32)
    coords = voxels.coords - first
    # A cube begins at its lowest node: where that is in a block that is not stored, add it.
    deep = coords[channel.values.min(axis=(1, 2, 3, 4), initial=np.inf) < 0.0]
    around = (deep[:, None] - WAYS).reshape(-1, 3)
    every = np.unique(np.concatenate([coords, around]), axis=0).astype(np.int32)
    domain = GridDomain(h * voxels.block_resolution)
    volume = DiscreteVolume(domain, name="level set", dtype=np.float32)
    volume.add_channel(
        "distance", resolution=voxels.block_resolution, background=channel.background / h
    )
    volume.set_buckets(every)
    rows = {tuple(coord): row for row, coord in enumerate(volume.buckets.local_coords.tolist())}
    order = [rows[tuple(coord)] for coord in coords.tolist()]
    if order:
        volume.local("distance")[order] = channel.values / h
    volume.mark_written("distance")
    everywhere = np.full(3, np.inf)
    found = find_iso_surface(
        volume, "distance", lower=-everywhere, upper=everywhere, empty=channel.background / h
    )
    corner = voxels.origin + h * voxels.block_resolution * first
    return corner + h * found.places, found.triangles
