"""First run checks of fields: volumes and VDBs, in both directions."""

from __future__ import annotations

from typing import Any

import hou
import numpy as np

from loki_core.data.voxels import Voxels
from loki_vfx.serialization.houdini_files import read_bytes
from loki_vfx.serialization.houdini_streams import stream_of

from .first_run_check import TOLERANCE, CheckFailed, Place, cooked, demand, made_sop, taken
from .geometry_streams import read_stream, write_streams
from .vdb_primitives import add_vdbs


def _volumes(geometry: hou.Geometry) -> list[hou.Volume]:
    return [prim for prim in geometry.prims() if isinstance(prim, hou.Volume)]


def volume_node(place: Place) -> str:
    """Ask where the voxels of a Volume SOP are."""
    node = made_sop(place, "volume")
    geometry = cooked(node)
    found = _volumes(geometry)
    if not found:
        raise CheckFailed("the Volume SOP made no volume")
    voxels = taken(geometry)
    if not isinstance(voxels, Voxels):
        raise CheckFailed(f"it became {type(voxels).__name__}, not Voxels")
    bounds, size = voxels.bounds(), voxels.voxel_size
    centre = np.array([found[0].indexToPos((0, 0, 0))[axis] for axis in range(3)])
    ours = centre - 0.5 * size  # its lower corner
    inside = bool(np.all(ours >= bounds[0] - TOLERANCE) and np.all(ours < bounds[1]))
    edge = [found[0].voxelSize()[axis] for axis in range(3)]
    if not np.allclose(edge, size, atol=TOLERANCE):
        raise CheckFailed(f"voxels of {edge} m became voxels of {size} m")
    offset = (ours - np.asarray(voxels.origin)) / size
    if not inside or not np.allclose(offset, np.round(offset), atol=1e-3):
        raise CheckFailed(f"its first voxel is at {centre.tolist()}, in {bounds.tolist()}")
    return f"{found[0].resolution()} voxels of {size} m"


def volume_values(place: Place) -> str:
    """Ask for values of a box that is no cube, each other than all others, both ways."""
    shape = (19, 5, 3)  # more than one tile along an axis, and no whole tile
    values = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)
    given = np.ascontiguousarray(values.T).tobytes()  # x is the fastest
    geometry = hou.Geometry()
    box = hou.BoundingBox(1.0, 2.0, 3.0, 1.0 + 1.9, 2.0 + 0.5, 3.0 + 0.3)
    geometry.createVolume(*shape, box).setAllVoxelsFromString(given)
    voxels = stream_of(read_bytes(geometry.data()))
    (channel,) = voxels.channels
    demand(_dense_problems(voxels, channel, values))
    back = hou.Geometry()
    ours = Voxels.from_dense({"density": values[np.newaxis]}, (1.0, 2.0, 3.0), 0.1)
    demand(write_streams(back, {"out": ours}))
    (volume,) = _volumes(back)
    size = volume.resolution()
    theirs = np.frombuffer(volume.allVoxelsAsString(), np.float32).reshape(tuple(size)[::-1]).T
    if not np.array_equal(theirs[: shape[0], : shape[1], : shape[2]], values):
        raise CheckFailed("values that Loki wrote are others in Houdini")
    return f"{values.size} values both ways"


def _dense_problems(voxels: Any, channel: str, values: Any) -> list[str]:
    dense = voxels.to_dense(channel)[0]
    part = dense[tuple(slice(0, count) for count in values.shape)]
    if part.shape != values.shape or not np.array_equal(part, values):
        return ["values that Houdini wrote are others in Loki"]
    lower = voxels.bounds()[0]
    if not np.allclose(lower, (1.0, 2.0, 3.0), atol=TOLERANCE):
        return [f"it begins at {lower.tolist()}; expected 1, 2, 3"]
    return []


def scalar_vdb(place: Place) -> str:
    """Ask for values of a box that is no cube, each other than all others, both ways."""
    shape = (70, 9, 5)  # more than is asked for at a time, and no whole blocks
    values = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)
    ours = Voxels.from_dense({"density": values[np.newaxis]}, (1.0, 2.0, 3.0), 0.25)
    (primitive, *others), geometry = _vdbs_of(ours)
    name = primitive.attribValue("name")
    if others or name != "density" or primitive.activeVoxelCount() != values.size:
        raise CheckFailed(f"it is called {name} and has {primitive.activeVoxelCount()} voxels")
    stream, remarks = read_stream(geometry, "voxels", "it")
    demand(remarks or _dense_problems(stream, "density", values))
    return f"{values.size} voxels both ways"


def vector_vdb(place: Place) -> str:
    """Ask for vectors in both directions, and at one place."""
    values = np.random.default_rng(1).random((3, 9, 5, 12), np.float32) + 1.0
    ours = Voxels.from_dense({"velocity": values}, (1.0, 2.0, 3.0), 0.25)
    (primitive, *others), geometry = _vdbs_of(ours)
    if others or primitive.attribValue("name") != "vel":
        raise CheckFailed(f"it is called {primitive.attribValue('name')}; expected vel")
    seen = primitive.samplev((1.0 + 0.25 * 2.5, 2.0 + 0.25 * 3.5, 3.0 + 0.25 * 4.5))
    if not np.allclose([seen[axis] for axis in range(3)], values[:, 2, 3, 4], atol=TOLERANCE):
        raise CheckFailed(f"it is {seen}; expected {values[:, 2, 3, 4].tolist()}")
    stream, remarks = read_stream(geometry, "voxels", "it")
    demand(remarks)
    for axis in range(3):
        dense = stream.to_dense("velocity")[axis, :9, :5, :12]
        if not np.array_equal(dense, values[axis]):
            raise CheckFailed("vectors that Houdini gives are others in Loki")
    return f"{values[0].size} vectors both ways"


def _vdbs_of(voxels: Voxels) -> tuple[list[hou.VDB], hou.Geometry]:
    geometry = hou.Geometry()
    add_vdbs(geometry, {"out": voxels})
    found = [prim for prim in geometry.prims() if isinstance(prim, hou.VDB)]
    if not found:
        raise CheckFailed("the file became no VDB")
    return found, geometry
