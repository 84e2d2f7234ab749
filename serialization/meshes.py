"""Meshes as PLY, OBJ and STL files, through trimesh.

Faces of a PLY or OBJ file arrive as triangles, which is what trimesh keeps. Point channels of
one number each travel through PLY; a vector becomes three of them, `velocity_0` to `velocity_2`,
and is put together again. Of an OBJ file positions and faces are read, and its texture coordinates
as the vertex channel `uv`, seams included (`obj_lines.py`); positions and faces are what is written
to OBJ and STL. PLY and STL store positions in single precision; for exact data use the frame cache.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import FormatError, InputError, did_you_mean, require_file
from loki_vfx.serialization.atomic_file import write_atomic
from loki_vfx.serialization.obj_lines import plain_obj, says_more

SUFFIXES = (".ply", ".obj", ".stl")
MAX_BYTES = 1 << 33
PLY_DTYPES = {"bool": "uint8", "int64": "int32"}  # what PLY lacks, and what holds it
_COMPONENT = re.compile(r"(.+)_(\d)")


def read_mesh(path: str | Path) -> Surface:
    """Return the Surface of a file, every vertex kept as it is; raise FormatError if broken."""
    mesh, uv = _load(path)
    faces = np.asarray(getattr(mesh, "faces", np.empty((0, 3), np.int32)))
    surface = Surface.from_faces(_positions(mesh, path), faces)
    _read_channels(mesh, surface)
    _check_sound(surface, path)
    if uv is not None:
        surface.set_channel("vertex", "uv", uv)
    return surface


def read_points(path: str | Path) -> Points:
    """Return the points of a file and their channels; faces are left out."""
    mesh, _ = _load(path)
    points = Points(_positions(mesh, path))
    _read_channels(mesh, points)
    return points


def write_mesh(path: str | Path, mesh: Surface | Points) -> list[str]:
    """Write positions, faces as triangles, and point channels, all or nothing.

    Returns the names of the channels that the format cannot hold and that were left out.
    """
    path = Path(path)
    suffix = _checked_suffix(path)
    trimesh = _trimesh()
    mesh.validate(path.name)
    if not isinstance(mesh, Surface) and suffix != ".ply":
        raise InputError(f"{path.name}: points alone are written as .ply, not as {suffix}")
    faces = mesh.triangles() if isinstance(mesh, Surface) else np.empty((0, 3), np.int32)
    if suffix == ".stl" and len(faces) == 0:
        raise InputError(f"{path.name}: an STL file holds faces, and there are none")
    left_out = [
        f"{location}:{name}"
        for location, names in mesh.channel_names().items()
        if location != "point"
        for name in names
    ]
    attributes: dict[str, Any] = {}
    for name, values in mesh.channels["point"].items():
        if suffix != ".ply" or values.ndim > 2 or not re.fullmatch(r"[A-Za-z0-9_.]+", name):
            left_out.append(f"point:{name}")
            continue
        columns = values.reshape(len(values), -1)
        dtype = PLY_DTYPES.get(values.dtype.name, values.dtype.name)
        if values.dtype == np.int64 and values.size and np.abs(values).max() >= 1 << 31:
            left_out.append(f"point:{name}")  # ids beyond 32 bits would come back wrong
            continue
        for k in range(columns.shape[1]):
            full = name if values.ndim == 1 else f"{name}_{k}"
            attributes[full] = np.ascontiguousarray(columns[:, k], dtype)
    scene = trimesh.Trimesh(
        mesh.positions, faces, process=False, validate=False, vertex_attributes=attributes
    )
    options = {"include_attributes": True, "vertex_normal": False} if suffix == ".ply" else {}
    data = scene.export(file_type=suffix[1:], **options)
    write_atomic(path, [data.encode() if isinstance(data, str) else data])
    return sorted(left_out)


def _load(path: str | Path) -> tuple[Any, Any]:
    """Return what trimesh reads of a file, and the uv of corners where the file has them."""
    path = Path(path)
    suffix = _checked_suffix(path)
    require_file(path)
    size = path.stat().st_size
    if size == 0:
        raise FormatError(f"{path} is empty")
    if size > MAX_BYTES:
        raise FormatError(f"{path} has {size} bytes; at most {MAX_BYTES} are read")
    trimesh, data, uv = _trimesh(), path.read_bytes(), None
    if suffix == ".obj" and says_more(data):
        data, uv = plain_obj(data, str(path))
    try:
        file = io.BytesIO(data)
        mesh = trimesh.load(file, file_type=suffix[1:], process=False, maintain_order=True)
        if isinstance(mesh, trimesh.Scene):
            mesh = mesh.to_mesh()
    # trimesh's readers meet damaged files with any of Python's own errors
    except Exception as error:
        kind = suffix[1:].upper()
        reason = "it is cut off, or a face names a vertex that is not there"
        if isinstance(error, ValueError):
            reason = str(error)
        raise FormatError(f"{path} is damaged, or is no {kind} file: {reason[:200]}") from error
    return mesh, uv


def _positions(mesh: Any, path: str | Path) -> Any:
    positions = np.asarray(getattr(mesh, "vertices", ()))
    if positions.ndim != 2 or positions.shape[1] != 3 or len(positions) == 0:
        raise FormatError(f"{path} holds no points that can be read: it is damaged or empty")
    return positions.astype(np.float64)


def _read_channels(mesh: Any, target: Surface | Points) -> None:
    """Take over what the file says of its points; `name_0`, `name_1` ... become one channel."""
    found: dict[str, Any] = dict(getattr(mesh, "vertex_attributes", None) or {})
    raw = getattr(mesh, "metadata", {}).get("_ply_raw", {}).get("vertex", {}).get("data")
    names = raw.dtype.names if isinstance(raw, np.ndarray) else raw
    if not found and names and raw is not None:  # where trimesh leaves what a PLY file has more
        found = {name: raw[name] for name in names if name not in ("x", "y", "z")}
    columns: dict[str, dict[int, Any]] = {}
    for name, values in found.items():
        array = np.asarray(values)
        array = array.reshape(len(array), -1) if array.ndim > 1 else array
        if array.dtype.name in ("int8", "int16", "uint16"):
            array = array.astype(np.int32)
        if array.dtype.name == "uint32":
            array = array.astype(np.int64)
        if len(array) != target.point_count:
            continue
        match = _COMPONENT.fullmatch(name)
        stem, k = (match[1], int(match[2])) if match and array.ndim == 1 else (name, -1)
        columns.setdefault(stem, {})[k] = array
    for stem, parts in columns.items():
        if sorted(parts) == list(range(len(parts))):
            target.set_channel("point", stem, np.stack([parts[k] for k in sorted(parts)], axis=1))
            continue
        for k, array in parts.items():
            target.set_channel("point", stem if k < 0 else f"{stem}_{k}", array)


def _check_sound(surface: Surface, path: str | Path) -> None:
    try:
        surface.check_structure(str(path))
    except InputError as error:
        raise FormatError(str(error)) from error


def _checked_suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        hint = did_you_mean(suffix, SUFFIXES)
        raise InputError(f'{path.name}: unknown mesh format "{path.suffix}"{hint}')
    return suffix


def _trimesh() -> Any:
    try:
        import trimesh
    except ImportError as error:
        raise InputError("mesh files need trimesh: pip install trimesh") from error
    return trimesh
