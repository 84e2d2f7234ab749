"""Voxels as the grids that other programs expect in a VDB sequence.

vectors on faces   become vectors at voxel centres: renderers blur motion by those
real numbers       become float32
other components   become one scalar grid each
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import KNOWN_TRANSFORMS, Array
from loki_core.data.voxels import MAX_COORD, Voxels
from loki_vfx.serialization.volumes import write_vdb

_SEQUENCE = r"_(\d{4,8}|-\d{3,8})\.vdb"


@dataclass(slots=True)
class Grids:
    """What goes into a file: channels as VDB can hold them, and their classes."""

    voxels: Voxels
    classes: dict[str, str]

    def write(self, path: Path, *, compression: str = "zip", half: bool = False) -> None:
        """Write the file, all or nothing."""
        write_vdb(path, self.voxels, classes=self.classes, compression=compression, half=half)


def sequence_file(stem: str, frame: int) -> str:
    """Return the name of the file of a frame: `smoke_0012.vdb`."""
    return f"{stem}_{frame:04d}.vdb"


def sequence_files(folder: Path, stem: str) -> list[Path]:
    """Return the files of a sequence that are in a folder."""
    pattern = re.compile(re.escape(stem) + _SEQUENCE)
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))


def grids_of(voxels: Voxels) -> Grids:
    """Return the channels of `voxels` as grids that VDB files have."""
    ready = Voxels(
        voxels.coords,
        voxels.voxel_size,
        origin=voxels.origin,
        block_resolution=voxels.block_resolution,
    )
    for name, channel in voxels.channels.items():
        values = centred_values(voxels, name) if channel.location == "face" else channel.values
        values = np.require(_narrowed(values), requirements="W")
        components = values.shape[1]
        # one number cannot be what a vector is outside the blocks, unless it is 0
        background = channel.background if components == 1 else 0.0
        if components == 1 or (components == 3 and values.dtype != np.int64):
            ready.set_channel(name, values, background=background)
        else:
            endings = "xyz" if components == 3 else map(str, range(components))
            for k, ending in enumerate(endings):
                ready.set_channel(f"{name}.{ending}", values[:, k])
    return Grids(ready, _classes(ready))


def centred_values(voxels: Voxels, name: str) -> Array:
    """Return a face channel at voxel centres: the mean of the two faces along each axis.

    Where the block above is not stored, the upper face of its last voxel is not known, and the
    lower one stands for both.
    """
    channel = voxels.channel(name)
    centred = np.empty_like(channel.values)
    for axis in range(3):
        lower = np.moveaxis(channel.values[:, axis], axis + 1, 1)  # [blocks, r along axis, r, r]
        upper = np.empty_like(lower)
        upper[:, :-1] = lower[:, 1:]
        above = _rows_above(voxels.coords, axis)
        upper[:, -1] = np.where((above >= 0)[:, None, None], lower[above, 0], lower[:, -1])
        centred[:, axis] = np.moveaxis(0.5 * (lower + upper), 1, axis + 1)
    return centred


def turned_to_z_up(voxels: Voxels) -> Voxels:
    """Return a volume turned by 90 degrees about x: (x, y, z) becomes (x, -z, y).

    Vectors, on faces or by a known name such as `velocity`, turn with it; on faces they become
    vectors at voxel centres, whose voxels turn onto voxels.
    """
    x, y, z = voxels.coords.T
    turned = Voxels(
        np.stack([x, -z - 1, y], axis=1),
        voxels.voxel_size,
        origin=voxels.origin[[0, 2, 1]] * (1.0, -1.0, 1.0),
        block_resolution=voxels.block_resolution,
    )
    for name, channel in voxels.channels.items():
        values = centred_values(voxels, name) if channel.location == "face" else channel.values
        values = values.transpose(0, 1, 2, 4, 3)[:, :, :, ::-1]
        if values.shape[1] == 3 and (channel.location == "face" or name in KNOWN_TRANSFORMS):
            values = values[:, [0, 2, 1]] * np.array([1, -1, 1], values.dtype).reshape(3, 1, 1, 1)
        turned.set_channel(name, values, background=channel.background)
    return turned


def _rows_above(coords: npt.NDArray[np.int32], axis: int) -> npt.NDArray[np.int64]:
    """Return for each block the row of the next block along an axis, or -1."""
    keys = _keys(coords)
    order = np.argsort(keys)
    wanted = _keys(coords + np.eye(3, dtype=np.int32)[axis])
    place = np.minimum(np.searchsorted(keys, wanted, sorter=order), max(len(keys) - 1, 0))
    rows = order[place]
    return np.where(keys[rows] == wanted, rows, -1)


def _keys(coords: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return one number for each block, or for the one after it: 21 bits an axis hold both."""
    x, y, z = (coords.astype(np.int64) + MAX_COORD).T
    return np.asarray((x << 42) | (y << 21) | z)


def _narrowed(values: Array) -> Array:
    """Return values in a type that grids have."""
    if values.dtype == np.float64:
        return values.astype(np.float32, copy=False)
    if values.dtype == np.uint8 or (values.dtype == np.bool_ and values.shape[1] == 3):
        return values.astype(np.int32)
    return values


def _classes(voxels: Voxels) -> dict[str, str]:
    """Return the VDB class of channels by what their names mean everywhere in Loki."""
    classes = {}
    for name, channel in voxels.channels.items():
        if channel.components == 1 and name == "density":
            classes[name] = "fog volume"
        if channel.components == 1 and name == "distance" and channel.background > 0.0:
            classes[name] = "level set"
    return classes
