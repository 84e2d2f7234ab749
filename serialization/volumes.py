"""Volumes as VDB files, read (`vdb_reader`) and written (`vdb_tree`) by Loki alone.

A block of 8 x 8 x 8 voxels is a VDB leaf. A VDB grid's index (i, j, k) is the centre of voxel
(i, j, k), and a face channel is a vector grid of class "staggered", whose component a lives on
the lower face along axis a, as ours does. Voxels equal to the background are not active.

What Loki does not read alone, such as files of openvdb before its version 3, is read through
`openvdb` where that can be found.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from loki_core.data.voxels import VoxelChannel, Voxels
from loki_core.errors import FormatError, InputError, MissingFileError, did_you_mean
from loki_vfx.serialization.atomic_file import replacing
from loki_vfx.serialization.vdb_chunks import NeedsOpenvdb
from loki_vfx.serialization.vdb_grid import Grid, joined
from loki_vfx.serialization.vdb_openvdb import INSTALL, find_openvdb, read_with_openvdb
from loki_vfx.serialization.vdb_reader import HALF, MAGIC, read_file
from loki_vfx.serialization.vdb_tree import COMPRESSIONS, tree_parts

CLASSES = ("unknown", "level set", "fog volume", "staggered")
LARGEST_HALF = 65504.0

_SCALAR = {"float32": "float", "float64": "double", "bool": "bool"}
_SCALAR |= {"uint8": "int32", "int32": "int32", "int64": "int64"}
_VECTOR = {"float32": "vec3s", "float64": "vec3d", "int32": "vec3i"}


def write_vdb(
    path: str | Path,
    voxels: Voxels,
    *,
    classes: Mapping[str, str] | None = None,
    compression: str = "zip",
    half: bool = False,
) -> None:
    """Write every channel of `voxels` as a grid of its name, all or nothing.

    Args:
        classes: VDB classes of channels, such as {"distance": "level set"}; face channels are
            "staggered" by themselves.
        compression: "zip", or "none": larger files, written several times as fast.
        half: Whether real numbers are stored as half floats, of about three digits.

    A uint8 channel is written as int32.
    """
    chosen = _chosen_classes(voxels, classes or {})
    if compression not in COMPRESSIONS:
        raise InputError(
            f'unknown VDB compression "{compression}"{did_you_mean(compression, COMPRESSIONS)}'
        )
    for name, channel in voxels.channels.items():
        types = {1: _SCALAR, 3: _VECTOR}.get(channel.components, {})
        if channel.values.dtype.name not in types:
            raise InputError(
                f'channel "{name}" is {channel.values.dtype} with {channel.components} components; '
                f"VDB has scalars, and vectors of 3 {', '.join(_VECTOR)}"
            )
        if half:
            _check_halves(name, channel)
    grids = []
    for name, channel in voxels.channels.items():
        values = channel.values
        kind = (_SCALAR if channel.components == 1 else _VECTOR)[values.dtype.name]
        if values.dtype == np.uint8:
            values = values.astype(np.int32)
        halved = half and values.dtype.kind == "f"
        flags = COMPRESSIONS[compression]
        tree = tree_parts(voxels.coords, values, channel.background, compression=flags, half=halved)
        type_name = f"Tree_{kind}_5_4_3{HALF if halved else ''}"
        grids.append((name, type_name, chosen[name], tree))
    with replacing(Path(path)) as temporary, temporary.open("xb") as file:
        file.writelines(_container(voxels, grids, COMPRESSIONS[compression]))


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
        raise MissingFileError(f"{path} is not there or is no file")
    if path.stat().st_size < 100:
        raise FormatError(f"{path} has {path.stat().st_size} bytes: it is no VDB file")
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise FormatError(f"{path} is no VDB file")
    try:
        grids = read_file(path, names)
    except NeedsOpenvdb as error:
        openvdb = find_openvdb()
        if openvdb is None:
            raise FormatError(
                f"{path}: {error}. Name the grids that you need, or {INSTALL}"
            ) from error
        grids = read_with_openvdb(openvdb, path, names)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
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


def _check_halves(name: str, channel: VoxelChannel) -> None:
    """Raise InputError where a number is too large for a half float."""
    values = channel.values
    if values.dtype.kind != "f" or not values.size:
        return
    largest = float(np.max(np.abs(values[np.isfinite(values)]), initial=abs(channel.background)))
    if largest > LARGEST_HALF:
        raise InputError(
            f'channel "{name}" has numbers up to {largest:g}, and a half float holds at most '
            f"{LARGEST_HALF:g}: write it in single precision"
        )


def _container(
    voxels: Voxels, grids: Sequence[tuple[str, str, str, Sequence[bytes]]], compression: int
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
        halved = kind.endswith(HALF)
        head = struct.pack("<II", compression, len(metadata) + halved)
        head += b"".join(_text(k) + _text("string") + _text(v) for k, v in metadata.items())
        if halved:
            head += _text("is_saved_as_half_float") + _text("bool") + _text("\x01")
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
