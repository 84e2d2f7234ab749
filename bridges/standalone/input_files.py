"""Input streams from files: meshes, points, volumes, numpy arrays, frame caches and sequences.

seeds=points.ply           a mesh, or points where the file has no faces
wind=wind.vdb              voxels
tree=tree.bgeo.sc          Houdini geometry of one kind: .geo, .bgeo, .gz or .sc
seeds=points.npz           "positions" [n, 3] in metres and any channels of n elements
liquid=../pool             the one Object of a frame cache, frame by frame
liquid=../pool#Water/ParticleObject
wind=wind.####.vdb         a sequence: one file for each frame
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from loki_core.data.mesh import STREAM_TYPES
from loki_core.data.points import Points
from loki_core.errors import FormatError, InputError, MissingFileError, did_you_mean, require_file
from loki_vfx.bridges.standalone.failures import UsageError
from loki_vfx.serialization.houdini_files import SUFFIXES as HOUDINI_SUFFIXES

MESH_SUFFIXES = (".ply", ".obj", ".stl")
NUMPY_SUFFIXES = (".npy", ".npz")
SUFFIXES = (*MESH_SUFFIXES, ".vdb", *NUMPY_SUFFIXES, ".loki", *HOUDINI_SUFFIXES)
MAX_NUMPY_BYTES = 1 << 34
_NUMPY_MAGIC, _ZIP_MAGIC = b"\x93NUMPY", b"PK"
_FRAME_PATTERN = re.compile(r"#+")

Stream = Any
#: A stream, or a function of the frame that returns one.
Input = Any


def read_inputs(given: Iterable[str]) -> dict[str, Input]:
    """Return the streams that `NAME=PATH` texts name.

    Raises:
        InputError: A text has no name or no path, or a name is there twice.
        FormatError: A file is missing or damaged.
    """
    inputs: dict[str, Input] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not name.strip() or not path.strip():
            raise UsageError(f'--input "{text}" is not of the form NAME=PATH')
        if name.strip() in inputs:
            raise UsageError(f'--input "{name.strip()}" is given twice; name each stream once')
        inputs[name.strip()] = read_input(path.strip())
    return inputs


def read_input(path: str) -> Input:
    """Return the stream of a file, or a function of the frame for caches and sequences."""
    folder, separator, object_path = path.rpartition("#")
    if separator and folder and Path(folder).is_dir():
        return _cache_input(Path(folder), object_path)
    if separator and object_path and not object_path.lower().endswith(SUFFIXES):
        raise MissingFileError(f"{path}: there is no frame cache {folder}")
    if Path(path).is_dir():
        return _cache_input(Path(path), "")
    if _FRAME_PATTERN.search(Path(path).name):
        return _sequence_input(path)
    return read_stream(Path(path))


def read_stream(path: Path) -> Stream:
    """Return the stream that one file holds."""
    require_file(path)
    suffix = path.suffix.lower()
    if path.name.lower().endswith(HOUDINI_SUFFIXES):
        from loki_vfx.serialization.houdini_files import read_geometry
        from loki_vfx.serialization.houdini_streams import stream_of

        return stream_of(read_geometry(path), label=str(path))
    if suffix not in SUFFIXES:
        hint = did_you_mean(suffix, SUFFIXES)
        kind = f'"{path.suffix}" files' if suffix else "files without an ending"
        raise InputError(f"{path}: streams are not read from {kind}{hint}")
    if suffix in MESH_SUFFIXES:
        from loki_vfx.serialization.meshes import read_mesh, read_points

        surface = read_mesh(path)
        return surface if surface.primitive_count else read_points(path)
    if suffix == ".vdb":
        from loki_vfx.serialization.volumes import read_vdb

        return read_vdb(path)
    if suffix in NUMPY_SUFFIXES:
        return _read_numpy(path)
    from loki_vfx.serialization.atomic_file import read_packed

    stream = read_packed(path)
    if getattr(type(stream), "type_name", None) not in STREAM_TYPES:
        raise FormatError(f"{path} holds no stream; it may be a part of a checkpoint")
    return stream


def _read_numpy(path: Path) -> Points:
    if path.stat().st_size > MAX_NUMPY_BYTES:
        raise FormatError(
            f"{path} has {path.stat().st_size} bytes; up to {MAX_NUMPY_BYTES} are read"
        )
    with path.open("rb") as file:
        begins = file.read(len(_NUMPY_MAGIC))
    # numpy takes anything else for a pickle, and its advice is to trust it
    if not begins.startswith((_NUMPY_MAGIC, _ZIP_MAGIC)):
        found = "is empty" if not begins else "does not begin as one"
        raise FormatError(f"{path} is no {path.suffix} file of numpy: it {found}")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return _points({"positions": _numbers(loaded, path)}, path)
        with loaded:
            unpacked = sum(item.file_size for item in loaded.zip.infolist())
            if unpacked > MAX_NUMPY_BYTES:
                raise FormatError(
                    f"{path} claims {unpacked} bytes; up to {MAX_NUMPY_BYTES} are read"
                )
            arrays = {name: _numbers(loaded[name], path, name) for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if "allow_pickle" in str(error):
            raise InputError(f"{path} holds Python objects; arrays of numbers are read") from error
        raise FormatError(f"{path} cannot be read: {str(error)[:200]}") from error
    if "positions" not in arrays:
        hint = did_you_mean("positions", arrays)
        raise InputError(f'{path} has no array "positions"{hint}')
    return _points(arrays, path)


def _points(arrays: dict[str, Any], path: Path) -> Points:
    try:
        points = Points(arrays.pop("positions"))
        for name, array in arrays.items():
            points.set_channel("detail" if array.ndim == 0 else "point", name, array)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return points


def _numbers(array: Any, path: Path, name: str = "") -> Any:
    if array.dtype.kind not in "biuf":
        of_name = f' of "{name}"' if name else ""
        raise InputError(f"{path}: the values{of_name} are of dtype {array.dtype}, not numbers")
    return array


def _cache_input(folder: Path, object_path: str) -> Callable[[int], Stream]:
    from loki_vfx.serialization.frame_cache import FrameCacheReader

    reader = FrameCacheReader(folder)
    frames = reader.frames()
    if not frames:
        raise InputError(f"{folder} has no whole frame to read")
    known = reader.objects(frames[0])
    if not object_path and len(known) != 1:
        raise InputError(f"{folder} holds several Objects; name one: {folder}#{known[0]}")
    chosen = object_path or known[0]
    if chosen not in known:
        raise InputError(f'{folder} has no Object "{chosen}"{did_you_mean(chosen, known)}')
    kept: dict[int, Stream] = {}

    def read(frame: int) -> Stream:
        # outside its range a cache stands still, as hosts do
        frame = min(max(frame, frames[0]), frames[-1])
        if frame not in kept:
            kept.clear()
            kept[frame] = reader.read(frame, chosen)
        return kept[frame]

    return read


def _sequence_input(pattern: str) -> Callable[[int], Stream]:
    found = _FRAME_PATTERN.search(Path(pattern).name)
    assert found is not None
    width = len(found.group())
    kept: dict[int, Stream] = {}

    def read(frame: int) -> Stream:
        if frame not in kept:
            name = _FRAME_PATTERN.sub(f"{frame:0{width}d}", Path(pattern).name, count=1)
            kept.clear()
            kept[frame] = read_stream(Path(pattern).with_name(name))
        return kept[frame]

    return read
