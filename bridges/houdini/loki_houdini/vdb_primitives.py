"""VDB primitives: how VDBs leave a node's geometry, and how they get into it.

Houdini's Python neither gives nor takes the bytes of a VDB. Going out of Loki they are written to
a file, which `hou` loads. Coming in, they are asked for the values of boxes of voxels: a box has
its lower corner and not its upper one, and x is the fastest, as far as is known without Houdini
(the documentation of `hou.VDB`, and public code); a count that does not fit is an error.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import hou
import numpy as np
import numpy.typing as npt

from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_vfx.serialization.houdini_geometry import VDB, Geometry
from loki_vfx.serialization.houdini_streams import OUTPUT
from loki_vfx.serialization.houdini_voxels import NAME_OF, TOLERANCE
from loki_vfx.serialization.vdb_grid import Grid, blocks_of
from loki_vfx.serialization.vdb_sequence import grids_of
from loki_vfx.serialization.vdb_tree import LEAF
from loki_vfx.serialization.volumes import write_vdb

PIECE = 64  # voxels along each axis that are asked for at a time
MAX_VOXELS = 1 << 30  # in the box of a VDB; some minutes


# -- out of Loki ---------------------------------------------------------------------------------


def add_vdbs(
    geometry: hou.Geometry, fields: Mapping[str, Voxels], *, are_named: bool = False
) -> None:
    """Add fields to a node's geometry as VDBs, one for each channel.

    Args:
        are_named: Whether the attribute `loki_output` says of which output they are.
    """
    for name, voxels in fields.items():
        handle, path = tempfile.mkstemp(suffix=".vdb")
        os.close(handle)
        try:
            _write(path, voxels)
            read = hou.Geometry()
            read.loadFromFile(path)
            if are_named:
                read.addAttrib(hou.attribType.Prim, OUTPUT, name)
            geometry.merge(read)
        finally:
            os.unlink(path)


def _write(path: str, voxels: Voxels) -> None:
    """Write a field with the names that channels have in Houdini, in single precision."""
    grids = grids_of(voxels)
    for name in [one for one in grids.voxels.channels if one in NAME_OF]:
        grids.voxels.channels[NAME_OF[name]] = grids.voxels.channels.pop(name)
    for channel in grids.voxels.channels.values():
        channel.values = channel.values.astype(np.float32, copy=False)
    # Houdini reads it at once, and then it is gone
    write_vdb(path, grids.voxels, classes=grids.classes, compression="none")


# -- into Loki -----------------------------------------------------------------------------------


def read_vdbs(source: hou.Geometry, geometry: Geometry) -> None:
    """Give a geometry that was read of a node the VDBs that are in it.

    Those that are turned, of points, or of too many voxels are left out, with a remark.
    """
    for number in np.flatnonzero(geometry.kinds == VDB).tolist():
        primitive = source.prim(number)
        if not isinstance(primitive, hou.VDB):
            continue
        try:
            geometry.vdbs[number] = _grid(primitive, source)
        except InputError as error:
            geometry.vdbs[number] = None
            geometry.remarks.append(f"not carried: {error}")


def _grid(primitive: hou.VDB, source: hou.Geometry) -> Grid:
    name = f"volume{primitive.number()}"
    if source.findPrimAttrib("name") is not None:
        name = str(primitive.attribValue("name")) or name
    label = f'VDB "{name}"'
    edge = primitive.voxelSize()[0]
    first, *others = (_place(primitive, index) for index in ((0, 0, 0), *np.eye(3, dtype=int)))
    if not np.allclose(np.subtract(others, first), edge * np.eye(3), atol=TOLERANCE * edge):
        raise InputError(f"{label} has no cubes along the axes as voxels: resample it before")
    background = np.unique(primitive.intrinsicValue("background"))
    if background.size != 1:
        raise InputError(f"{label} is {background.tolist()} outside; expected one number")
    grid = Grid(name, edge, first.tolist(), float(background[0]))
    if primitive.intrinsicValue("vdb_class") == "staggered":
        grid.location = "face"
    parts = [*_parts(primitive, label, float(background[0]))]
    if parts:
        grid.coords = np.concatenate([coords for coords, _ in parts])
        grid.values = np.concatenate([values for _, values in parts])
    return grid


def _place(primitive: hou.VDB, index: Any) -> npt.NDArray[np.float64]:
    place = primitive.indexToPos([int(one) for one in index])
    return np.array([place[axis] for axis in range(3)])


def _parts(
    primitive: hou.VDB, label: str, background: float
) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[Any]]]:
    """Blocks of a VDB that hold anything, in pieces of its box."""
    if primitive.activeVoxelCount() == 0:
        return
    box = primitive.activeVoxelBoundingBox()
    low = np.array([round(box.minvec()[axis]) for axis in range(3)], np.int64)
    high = np.array([round(box.maxvec()[axis]) for axis in range(3)], np.int64)
    if np.prod((high - low).astype(float)) > MAX_VOXELS:
        raise InputError(
            f"{label} spans {(high - low).tolist()} voxels, which is too much to be asked one by "
            "one: write it to a file, and use a File Input in the graph"
        )
    starts = [range(int(a) // PIECE * PIECE, int(b), PIECE) for a, b in zip(low, high)]
    for start in product(*starts):
        corner = np.array(start, np.int64)
        begin, end = np.maximum(corner, low), np.minimum(corner + PIECE, high)
        values = _values(primitive, begin, end, label)
        rest = -(-(end - corner) // LEAF) * LEAF  # whole blocks
        piece = np.full((*rest.tolist(), values.shape[-1]), background, values.dtype)
        piece[tuple(slice(*ends) for ends in zip(begin - corner, end - corner))] = values
        yield blocks_of(piece, corner, background)


def _values(
    primitive: hou.VDB, begin: npt.NDArray[Any], end: npt.NDArray[Any], label: str
) -> npt.NDArray[Any]:
    """Values of a box of voxels, [nx, ny, nz, components]."""
    low, high = begin.astype(float).tolist(), end.astype(float).tolist()
    box = hou.BoundingBox(*low, *high)
    kind = primitive.dataType()
    if kind == hou.vdbData.Vector3:
        vectors = primitive.voxelRangeAsVector3(box)
        found = np.array([(one[0], one[1], one[2]) for one in vectors], np.float32)
    elif kind == hou.vdbData.Float:
        found = np.array(primitive.voxelRangeAsFloat(box), np.float32)
    elif kind == hou.vdbData.Int:
        found = np.array(primitive.voxelRangeAsInt(box), np.int32)
    elif kind == hou.vdbData.Boolean:
        found = np.array(primitive.voxelRangeAsBool(box), np.bool_)
    else:
        raise InputError(f"{label} holds {kind.name()}; expected numbers or vectors")
    shape: list[int] = (end - begin).tolist()
    components = 3 if kind == hou.vdbData.Vector3 else 1
    if found.size != components * math.prod(shape):
        raise InputError(f"{label} gave {len(found)} values for a box of {shape} voxels")
    return found.reshape(*shape[::-1], components).transpose(2, 1, 0, 3)
