"""Volume files: streams of voxels as VDB sequences that Blender shows, and its volumes as streams.

A file is Loki's own: metres, Y up, faces as staggered grids. The volume object turns and scales it
(`volume_matrix`): grids stay aligned with their axes, Cycles turns the velocities of motion blur
with the object, and opacity does not depend on the scene's unit.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import bpy
import numpy as np

from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_vfx.serialization.frame_cache import safe_name
from loki_vfx.serialization.volumes import read_vdb, write_vdb

from .axes import Axes, Matrix
from .turned_voxels import turned

VELOCITY = "velocity"


def volume_path(folder: Path, name: str, frame: int) -> Path:
    """Return the file of a frame.

    Raises:
        InputError: The frame is before 0, which Blender cannot find in a sequence.
    """
    if frame < 0:
        raise InputError(f"volume {name}, frame {frame}: VDB sequences are numbered from 0")
    return folder / f"{safe_name(name)}_{frame:04d}.vdb"


def write_volume(folder: Path, name: str, frame: int, voxels: Voxels) -> Path:
    """Write a frame for Blender to show, whole or not at all; other threads may call it."""
    path = volume_path(folder, name, frame)
    folder.mkdir(parents=True, exist_ok=True)
    write_vdb(path, _as_grids(voxels))
    return path


def name_for_blender(path: Path) -> Path | None:
    """Return another name of a file that was written again since Blender read it, else None.

    Blender reads a path once and never looks whether the file has changed.
    """
    written = path.stat().st_mtime_ns
    if _read_files.setdefault(path, written) == written:
        return None
    other = path.with_name(f"{path.stem}_{written}.vdb")
    if not other.exists():
        for old in path.parent.glob(f"{path.stem}_*.vdb"):
            old.unlink()
        try:
            os.link(path, other)
        except OSError:  # not every disk has a second name for a file
            shutil.copyfile(path, other)
    return other


_read_files: dict[Path, int] = {}  # when the files were written that Blender may have read


def volume_matrix(axes: Axes) -> Matrix:
    """Return the matrix of an object that shows files of Loki."""
    return axes.to_blender().matrix


def read_volume(evaluated: bpy.types.Object, axes: Axes) -> Voxels:
    """Return the volume of an evaluated object, in world space.

    Raises:
        InputError: It has no file at this frame, or cannot be aligned with the world's axes.
        FormatError: Its file is damaged, or its grids have different transforms.
    """
    volume = evaluated.data
    volume.grids.load()
    path = volume.grids.frame_filepath
    if not path:
        raise InputError(
            "it has no VDB file at this frame; grids that nodes or modifiers make have to be "
            "written to a file first"
        )
    return turned(read_vdb(path), axes.to_loki(evaluated.matrix_world))


def _as_grids(voxels: Voxels) -> Voxels:
    """Return voxels with channels that Blender can show: scalars and vectors, not of doubles."""
    drawn = Voxels(
        voxels.coords,
        voxels.voxel_size,
        origin=voxels.origin,
        block_resolution=voxels.block_resolution,
    )
    for name, channel in voxels.channels.items():
        values, place = channel.values, {"location": channel.location}
        if values.dtype == np.float64 or (values.dtype != np.float32 and channel.components == 3):
            values = values.astype(np.float32)
        if channel.components in (1, 3):
            drawn.set_channel(name, values, background=channel.background, **place)
            continue
        for number in range(channel.components):
            part = values[:, number]
            drawn.set_channel(f"{name}.{number}", part, background=channel.background)
    return drawn
