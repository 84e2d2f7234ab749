"""Volume primitives and VDBs of Houdini, and Loki's voxels, each from the other.

Voxels have a channel for each volume by its attribute `name`; three volumes `vel.x`, `vel.y` and
`vel.z` are one channel, "velocity". All must lie on one lattice of cubes along the axes. Dense
boxes serve small fields; large ones go through VDBs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.data.voxels import Voxels
from loki_vfx.serialization.houdini_geometry import VDB, VOLUME, Attribute, Geometry
from loki_vfx.serialization.houdini_volume import VolumePrimitive
from loki_vfx.serialization.vdb_grid import Grid, joined
from loki_vfx.serialization.vdb_sequence import centred_values

Array = npt.NDArray[Any]

AXES = ("x", "y", "z")
CHANNEL_OF = {"vel": "velocity"}
NAME_OF = {channel: name for name, channel in CHANNEL_OF.items()}
TOLERANCE = 1e-4  # of a voxel's edges, which are in single precision


def voxels_of(geometry: Geometry) -> Voxels | None:
    """Return the volumes of a geometry that lie on the lattice of the first; None without any."""
    names = geometry.attributes["primitive"].get("name")
    positions = geometry.positions().astype(np.float64)
    scalars: dict[str, VolumePrimitive] = {}
    lattice = None
    for number, volume in sorted(geometry.volumes.items()):
        name = f"volume{number}"
        if names is not None and names.texts is not None:
            name = names.as_texts()[number] or name
        corner = int(geometry.corners[geometry.offsets[number]])
        here = _lattice(volume, positions[int(geometry.vertex_points[corner])])
        if here is None:
            geometry.remarks.append(
                f'not carried: volume "{name}", whose voxels are no cubes along the axes'
            )
        elif name in scalars or not _is_same(here, volume, lattice, scalars):
            geometry.remarks.append(
                f'not carried: volume "{name}", which is there twice or lies on another lattice'
            )
        else:
            lattice = here if lattice is None else lattice
            scalars[name] = volume
    if lattice is None:
        return None
    fields = {name: volume.values[np.newaxis] for name, volume in scalars.items()}
    return _as_channels(Voxels.from_dense(fields, lattice[:3], float(lattice[3])))


def voxels_of_vdbs(geometry: Geometry) -> Voxels | None:
    """Return the VDBs of a geometry that lie on the lattice of the first; None without any."""
    grids: list[Grid] = []
    for _, grid in sorted(geometry.vdbs.items()):
        if grid is None:
            continue
        if geometry.volumes:
            geometry.remarks.append(f'not carried: VDB "{grid.name}", beside volumes: split them')
        elif grid.name in [one.name for one in grids] or not (
            not grids or grid.is_on_lattice_of(grids[0], tolerance=TOLERANCE)
        ):
            geometry.remarks.append(
                f'not carried: VDB "{grid.name}", which is there twice or lies on another lattice'
            )
        else:
            grids.append(grid)
    unread = int((geometry.kinds == VDB).sum()) - len(geometry.vdbs)
    if unread:
        geometry.remarks.append(
            f"not carried: {unread} VDBs, whose voxels are not read here: use .vdb files"
        )
    return _as_channels(joined(grids)) if grids else None


def _as_channels(voxels: Voxels) -> Voxels:
    """Return voxels with Loki's names of channels, and vectors where there were x, y and z."""
    found = voxels.channels
    voxels.channels = {}
    for name, channel in found.items():
        stem, dot, axis = name.rpartition(".")
        parts = [found[f"{stem}.{one}"] for one in AXES if f"{stem}.{one}" in found]
        alike = len({(one.components, one.background) for one in parts}) == 1
        if not (dot and axis in AXES and len(parts) == 3 and alike and channel.components == 1):
            voxels.channels[CHANNEL_OF.get(name, name)] = channel
        elif axis == "x":
            values = np.concatenate([one.values for one in parts], axis=1)
            together = CHANNEL_OF.get(stem, stem)
            voxels.set_channel(together, values, background=channel.background)
    return voxels


def _is_same(
    here: Array, volume: VolumePrimitive, lattice: Array | None, others: dict[str, VolumePrimitive]
) -> bool:
    """Whether a volume has the voxels of those before it."""
    if lattice is None:
        return True
    first = next(iter(others.values()))
    return bool(np.allclose(here, lattice)) and first.values.shape == volume.values.shape


def _lattice(volume: VolumePrimitive, place: Array) -> Array | None:
    """Lower corner and edge of a voxel [m], or None if it is no cube along the axes."""
    half = np.diag(volume.transform)
    edges = 2.0 * half / np.array(volume.values.shape)
    off_axis = np.abs(volume.transform - np.diag(half)).max()
    is_cube = np.ptp(edges) <= TOLERANCE * abs(edges[0]) and edges.min() > 0.0
    if not is_cube or off_axis > TOLERANCE * edges[0]:
        return None
    return np.array([*(place - half), float(edges.mean())])


def geometry_of_voxels(voxels: Voxels) -> Geometry:
    """Return a volume primitive for each component of each channel.

    Values on faces are taken to the centres of voxels, as the mean of the two faces.
    """
    geometry = Geometry()
    names, places = [], []
    lower, upper = voxels.bounds()
    half = 0.5 * (upper - lower)
    for channel, stored in voxels.channels.items():
        if voxels.block_count == 0:
            geometry.remarks.append(f'channel "{channel}" is empty')
            continue
        if stored.location == "face":
            centred = Voxels(
                voxels.coords,
                voxels.voxel_size,
                origin=voxels.origin,
                block_resolution=voxels.block_resolution,
            )
            centred.set_channel(channel, centred_values(voxels, channel))
            dense = centred.to_dense(channel).astype(np.float32)
            geometry.remarks.append(f'channel "{channel}" was on faces, and is at centres')
        else:
            dense = voxels.to_dense(channel).astype(np.float32)
        stem = NAME_OF.get(channel, channel)
        for component, values in enumerate(dense):
            suffix = AXES[component] if len(dense) == 3 else str(component)
            names.append(stem if len(dense) == 1 else f"{stem}.{suffix}")
            places.append(0.5 * (lower + upper))
            geometry.volumes[len(places) - 1] = VolumePrimitive(
                np.ascontiguousarray(values), np.diag(half), stored.background
            )
    count = len(places)
    geometry.point_count = count
    geometry.set_primitives(VOLUME, np.ones(count, np.int64), np.arange(count))
    positions = np.array(places, np.float32).reshape(count, 3)
    geometry.attributes["point"]["P"] = Attribute(positions, "point")
    index = np.arange(count, dtype=np.int32)
    geometry.attributes["primitive"]["name"] = Attribute(index, "", names)
    return geometry
