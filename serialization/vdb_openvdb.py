"""VDB files read through `openvdb`, for what Loki does not read alone: very old files, other trees.

It has no package on the Python index; conda-forge and Debian have one, and the `bpy` wheel carries
one, which works without Blender.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import FormatError, InputError, did_you_mean
from loki_vfx.serialization.vdb_grid import Grid, blocks_of
from loki_vfx.serialization.vdb_tree import LEAF

PIECE = 128  # voxels along each axis that are read at a time while looking for blocks
MAX_SCAN = 1 << 36  # voxels in the box of a grid; more than any machine can read
INSTALL = (
    "install openvdb (conda install -c conda-forge openvdb; Debian has python3-openvdb; "
    "pip install bpy brings one)"
)

_DTYPES = {"float": "float32", "double": "float64", "bool": "bool", "int32": "int32"}
_DTYPES |= {"int64": "int64", "vec3s": "float32", "vec3d": "float64", "vec3i": "int32"}


@functools.cache
def find_openvdb() -> Any | None:
    """Return the `openvdb` module: an installed one, or the one inside a `bpy` wheel, or None."""
    try:
        return importlib.import_module("openvdb")
    except ImportError:
        pass  # the usual case: there is no wheel of that name
    spec = importlib.util.find_spec("bpy")  # finds the package without importing Blender
    for root in (spec.submodule_search_locations or []) if spec else []:
        places = sorted(Path(root).glob("*/python/lib/python3.*/site-packages"))
        for place in [*places, *sorted(Path(root).glob("*/python/lib/site-packages"))]:
            sys.path.append(str(place))
            try:
                return importlib.import_module("openvdb")
            except ImportError:
                continue
            finally:
                sys.path.remove(str(place))  # the wheel's other packages are not ours to offer
    return None


def read_with_openvdb(openvdb: Any, path: Path, names: Sequence[str] | None) -> list[Grid]:
    """Return the grids of a file, or those in `names`."""
    try:
        found = {grid.name: grid for grid in openvdb.readAllGridMetadata(str(path))}
        chosen = _select(list(found), names, path)
        return [_from_openvdb(openvdb.read(str(path), name), path) for name in chosen]
    except (RuntimeError, OSError, LookupError, ValueError, TypeError, MemoryError) as error:
        raise FormatError(f"{path} cannot be read as VDB: {error}") from error


def _from_openvdb(source: Any, path: Path) -> Grid:
    if source.valueTypeName not in _DTYPES:
        raise FormatError(f'{path}: grid "{source.name}" is of {source.valueTypeName}')
    size = source.transform.voxelSize()
    transform = source.transform
    axes = [
        np.subtract(transform.indexToWorld(e), transform.indexToWorld((0, 0, 0)))
        for e in np.eye(3).tolist()
    ]
    if not np.allclose(axes, size[0] * np.eye(3), rtol=0.0, atol=1e-9 * abs(size[0])):
        raise FormatError(
            f'{path}: grid "{source.name}" has a rotated or stretched transform; resample it to '
            "cubic, axis-aligned voxels first"
        )
    vector = source.valueTypeName.startswith("vec3")
    background = source.background
    if vector and len(set(background)) != 1:
        raise FormatError(f'{path}: grid "{source.name}" has the background {background}')
    grid = Grid(
        source.name,
        float(size[0]),
        transform.indexToWorld((0, 0, 0)),
        float(background[0] if vector else background),
    )
    grid.location = "face" if source.gridClass == "staggered" else "cell"
    grid.coords, grid.values = _scan_blocks(source, vector, path)
    return grid


def _scan_blocks(
    source: Any, vector: bool, path: Path
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Copy the box of a grid in pieces and keep the blocks that differ from the background."""
    dtype = np.dtype(_DTYPES[source.valueTypeName])
    components = 3 if vector else 1
    coords: list[npt.NDArray[Any]] = [np.empty((0, 3), np.int32)]
    values: list[npt.NDArray[Any]] = [np.empty((0, components, LEAF, LEAF, LEAF), dtype)]
    if source.activeVoxelCount() == 0:
        return coords[0], values[0]
    lower, upper = (np.array(c, np.int64) for c in source.evalActiveVoxelBoundingBox())
    lower, extent = lower // LEAF * LEAF, upper - lower // LEAF * LEAF + 1
    if int(extent[0]) * int(extent[1]) * int(extent[2]) > MAX_SCAN:
        raise FormatError(f'{path}: grid "{source.name}" spans {extent.tolist()} voxels')
    background = np.array(source.background, dtype)
    starts = [range(0, int(n), PIECE) for n in extent]
    for corner in np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, 3):
        # whole blocks only: a rest of the box is rounded up to the next block
        shape = np.minimum(PIECE, -((corner - extent) // LEAF) * LEAF).tolist()
        shape = [max(LEAF, int(n)) for n in shape]
        piece = np.empty((*shape, 3) if vector else tuple(shape), dtype)
        source.copyToArray(piece, ijk=tuple((lower + corner).tolist()))
        piece = piece.reshape(*shape, components)
        found, held = blocks_of(piece, lower + corner, background.reshape(-1)[0])
        coords.append(found)
        values.append(held)
    return np.concatenate(coords), np.concatenate(values)


def _select(found: list[str], names: Sequence[str] | None, path: Path) -> list[str]:
    for name in names or []:
        if name not in found:
            raise InputError(f'{path} has no grid "{name}"{did_you_mean(name, found)}')
    return list(names) if names is not None else found
