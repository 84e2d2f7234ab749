"""Volumes as VDB files: read through `openvdb` where it can be found, else through `tinyvdb`.

A block of 8 x 8 x 8 voxels is a VDB leaf. A VDB grid's index (i, j, k) is the centre of voxel
(i, j, k), and a face channel is a vector grid of class "staggered", whose component a lives on
the lower face along axis a, as ours does. Voxels equal to the background are not active.

`openvdb` has no package of its own; the `bpy` wheel carries one, which works without Blender.
tinyvdb reads scalar float32 grids and nothing else. Grids of float32, scalars and vectors, are
written here, straight from blocks (`vdb_tree`): ten times as fast as through either module, in
larger files. Others need openvdb.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.data.voxels import VoxelChannel, Voxels
from loki_core.errors import FormatError, InputError, did_you_mean
from loki_vfx.serialization.atomic_file import replacing
from loki_vfx.serialization.vdb_check import check_whole
from loki_vfx.serialization.vdb_grid import Grid, blocks_of, joined
from loki_vfx.serialization.vdb_tree import ACTIVE_ONLY, FLOAT, LEAF, tree_parts

PIECE = 128  # voxels along each axis that are read at a time while looking for blocks
MAX_SCAN = 1 << 36  # voxels in the box of a grid; more than any machine can read
CLASSES = ("unknown", "level set", "fog volume", "staggered")
INSTALL = 'install openvdb (pip install "loki-vfx[blender]" brings it; conda and Debian have it)'

_SCALAR = {"float32": "FloatGrid", "float64": "DoubleGrid", "bool": "BoolGrid"}
_SCALAR |= {"uint8": "Int32Grid", "int32": "Int32Grid", "int64": "Int64Grid"}
_VECTOR = {"float32": "Vec3SGrid", "float64": "Vec3DGrid", "int32": "Vec3IGrid"}
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


def write_vdb(
    path: str | Path, voxels: Voxels, *, classes: Mapping[str, str] | None = None
) -> None:
    """Write every channel of `voxels` as a grid of its name, all or nothing.

    `classes` names a VDB class for channels, such as {"distance": "level set"}; face channels are
    "staggered" by themselves. A uint8 channel is written as int32.
    """
    chosen = _chosen_classes(voxels, classes or {})
    for name, channel in voxels.channels.items():
        if channel.components not in (1, 3) or (
            channel.components == 3 and channel.values.dtype.name not in _VECTOR
        ):
            raise InputError(
                f'channel "{name}" is {channel.values.dtype} with {channel.components} components; '
                f"VDB has scalars, and vectors of 3 {', '.join(_VECTOR)}"
            )
    openvdb = find_openvdb()
    if openvdb is None:
        _refuse_other_numbers(voxels)
    with replacing(Path(path)) as temporary:
        if openvdb is None or all(one.values.dtype == FLOAT for one in voxels.channels.values()):
            with temporary.open("xb") as file:
                file.writelines(_float_file(voxels, chosen))
        else:
            grids = [_openvdb_grid(openvdb, voxels, n, chosen[n]) for n in voxels.channels]
            openvdb.write(str(temporary), grids=grids, metadata={"creator": "Loki"})
            check_whole(temporary)


def read_vdb(path: str | Path, *, names: Sequence[str] | None = None) -> Voxels:
    """Return the grids of a file, or those in `names`, as channels; they share one transform."""
    grids = read_grids(path, names=names)
    first = grids[0]
    for grid in grids:
        if not grid.is_on_lattice_of(first):
            raise FormatError(
                f'{path}: grids "{first.name}" and "{grid.name}" have different transforms; read '
                "them one by one, by names=[...]"
            )
    try:
        return joined(grids)
    except InputError as error:
        raise FormatError(f"{path}: {error}") from error


def read_grids(path: str | Path, *, names: Sequence[str] | None = None) -> list[Grid]:
    """Return the grids of a file, or those in `names`."""
    path = Path(path)
    if not path.is_file():
        raise FormatError(f"{path} is not there or is no file")
    if path.stat().st_size < 100:
        raise FormatError(f"{path} has {path.stat().st_size} bytes: it is no VDB file")
    with path.open("rb") as file:
        if file.read(4) != b" BDV":
            raise FormatError(f"{path} is no VDB file")
    openvdb = find_openvdb()
    grids = _read_tinyvdb(path, names) if openvdb is None else _read_openvdb(openvdb, path, names)
    if not grids:
        raise FormatError(f"{path} holds no grid")
    return grids


def _chosen_classes(voxels: Voxels, classes: Mapping[str, str]) -> dict[str, str]:
    for name, kind in classes.items():
        voxels.channel(name)
        if kind not in CLASSES:
            raise InputError(f'unknown VDB class "{kind}"{did_you_mean(kind, CLASSES)}')
    return {
        name: "staggered" if channel.location == "face" else classes.get(name, "unknown")
        for name, channel in voxels.channels.items()
    }


def _openvdb_grid(openvdb: Any, voxels: Voxels, name: str, kind: str) -> Any:
    channel = voxels.channel(name)
    scalar = channel.components == 1
    type_name = (_SCALAR if scalar else _VECTOR)[channel.values.dtype.name]
    background: Any = channel.values.dtype.type(channel.background).item()
    grid = getattr(openvdb, type_name)(background if scalar else (background,) * 3)
    grid.name, grid.gridClass = name, kind
    h, centre = voxels.voxel_size, voxels.origin + 0.5 * voxels.voxel_size
    grid.transform = openvdb.createLinearTransform(
        [[h, 0, 0, 0], [0, h, 0, 0], [0, 0, h, 0], [*centre.tolist(), 1]]
    )
    if channel.values.dtype == np.uint8:
        channel = VoxelChannel(channel.values.astype(np.int32))
    corners = voxels.coords.astype(np.int64) * voxels.block_resolution
    values = channel.values[:, 0] if scalar else np.moveaxis(channel.values, 1, -1)
    # openvdb refuses what it could not write to
    blocks = np.require(values, requirements=("C", "W"))
    for block, corner in zip(blocks, corners.tolist(), strict=True):
        grid.copyFromArray(block, ijk=tuple(corner))
    return grid


def _read_openvdb(openvdb: Any, path: Path, names: Sequence[str] | None) -> list[Grid]:
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


# -- float32 -----------------------------------------------------------------------------------

_TYPE, _VECTOR_TYPE = "Tree_float_5_4_3", "Tree_vec3s_5_4_3"


def _refuse_other_numbers(voxels: Voxels) -> None:
    """Raise InputError for what is not written here."""
    for name, channel in voxels.channels.items():
        if channel.values.dtype != FLOAT:
            raise InputError(
                f'channel "{name}" is {channel.values.dtype}; without openvdb grids of float32 are '
                f"written: convert it, or {INSTALL}"
            )


def _float_file(voxels: Voxels, classes: Mapping[str, str]) -> list[bytes]:
    """Return a file with grids of float32, scalars and vectors, in parts."""
    grids = []
    for name, channel in voxels.channels.items():
        kind = _TYPE if channel.components == 1 else _VECTOR_TYPE
        tree = tree_parts(voxels.coords, channel.values, channel.background)
        grids.append((name, kind, classes[name], tree))
    return _container(voxels, grids)


def _container(
    voxels: Voxels, grids: Sequence[tuple[str, str, str, Sequence[bytes]]]
) -> list[bytes]:
    """Return a VDB file around trees, each with its grid's name, type and class, in parts."""
    h, centre = voxels.voxel_size, (voxels.origin + 0.5 * voxels.voxel_size).tolist()
    derived = [h] * 6 + [1 / h] * 3 + [1 / h**2] * 3 + [0.5 / h] * 3
    transform = _text("UniformScaleTranslateMap") + struct.pack("<18d", *centre, *derived)
    start = struct.pack("<qIIIb", 0x56444220, 224, 12, 0, 1)  # magic, file and library versions
    start += b"00000000-0000-0000-0000-000000000000" + struct.pack("<Ii", 0, len(grids))
    parts, size = [start], len(start)
    for name, kind, grid_class, tree in grids:
        metadata = {"class": grid_class, "creator": "Loki", "name": name}
        head = struct.pack("<II", ACTIVE_ONLY, len(metadata))
        head += b"".join(_text(k) + _text("string") + _text(v) for k, v in metadata.items())
        head += transform
        entry = _text(name) + _text(kind) + _text("")
        first = size + len(entry) + 24
        size = first + len(head) + sum(map(len, tree))
        # the second offset, of the buffers, serves partial reading only
        entry += struct.pack("<3q", first, first, size)
        parts += [entry, head, *tree]
    return parts


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data


# -- tinyvdb -----------------------------------------------------------------------------------


def _read_tinyvdb(path: Path, names: Sequence[str] | None) -> list[Grid]:
    import tinyvdb

    try:
        file = tinyvdb.open(str(path))
        file.read_grids()
        found = {file.grid_name(i): i for i in range(file.grid_count)}
    except (tinyvdb.VDBError, RuntimeError, OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read as VDB: {error}") from error
    grids = []
    for name in _select(list(found), names, path):
        source = file.grid(found[name])
        if source.type_name != _TYPE:
            raise FormatError(
                f'{path}: grid "{name}" is of type {source.type_name}; the tinyvdb module reads '
                f"scalar float grids only: name those that you need, or {INSTALL}"
            )
        grids.append(_from_tinyvdb(source, name, path))
    return grids


def _from_tinyvdb(source: Any, name: str, path: Path) -> Grid:
    transform = source.transform
    scale = transform["scale"]
    known = transform["type"] in ("uniform_scale_translate", "uniform_scale")
    if not known or len(set(scale)) != 1:
        raise FormatError(
            f'{path}: grid "{name}" has a rotated or stretched transform; resample it first'
        )
    sparse = source.to_sparse()
    coords = np.frombuffer(sparse["coords"], np.int32).reshape(-1, 3)
    values = np.frombuffer(sparse["values"], np.float32)
    claimed = source.metadata.get("file_voxel_count", len(coords))
    if claimed != len(coords):
        raise FormatError(
            f'{path}: grid "{name}" has {claimed} active voxels, of which tinyvdb reads '
            f"{len(coords)}, since the others are in tiles: {INSTALL}"
        )
    grid = Grid(name, float(scale[0]), transform["translation"], float(source.float_background()))
    grid.location = "face" if source.metadata.get("class") == "staggered" else "cell"
    if len(coords):
        grid.coords, inverse = np.unique(coords >> 3, axis=0, return_inverse=True)
        grid.values = np.full((len(grid.coords), 1, LEAF, LEAF, LEAF), grid.background, np.float32)
        i, j, k = (coords & 7).T
        grid.values[inverse.reshape(-1), 0, i, j, k] = values
    return grid
