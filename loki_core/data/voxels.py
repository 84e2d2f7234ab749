"""Voxels: a sparse volume as it goes in and out of the solver.

Space is cut into blocks of r x r x r voxels (r = 8: a VDB leaf); only the blocks in `coords` are
stored, and elsewhere a channel has its background value. Voxel (i, j, k), counted over blocks,
spans origin + voxel_size * (i, j, k) to origin + voxel_size * (i + 1, j + 1, k + 1). A cell
channel lives at voxel centres; component a of a face channel on the lower face along axis a.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import CHANNEL_DTYPES, Array
from loki_core.data.mesh import LARGEST_EXTENT, SMALLEST_EXTENT, Finding
from loki_core.errors import FormatError, InputError, did_you_mean

VOXEL_LOCATIONS = ("cell", "face")
MAX_COORD = (1 << 20) - 1  # so that a block's three coordinates fit one 63-bit key
DENSE_LIMIT = 1 << 28  # voxels that `to_dense` agrees to make from a few far-apart blocks


@dataclass(slots=True)
class VoxelChannel:
    """The values of one channel, shape [blocks, c, r, r, r], last axis z."""

    values: Array
    location: str = "cell"
    background: float = 0.0

    @property
    def components(self) -> int:
        """Return the number of components c."""
        return int(self.values.shape[1])


class Voxels:
    """A sparse voxel volume: density, temperature, velocity, distance."""

    type_name: ClassVar[str] = "voxels"

    __slots__ = ("__weakref__", "block_resolution", "channels", "coords", "origin", "voxel_size")

    def __init__(
        self,
        coords: npt.ArrayLike,
        voxel_size: float,
        *,
        origin: npt.ArrayLike = (0.0, 0.0, 0.0),
        block_resolution: int = 8,
    ) -> None:
        """Take block coordinates [blocks, 3], the voxel's edge [m], and the world origin [m]."""
        array = np.asarray(coords)
        if array.size == 0:
            array = np.empty((0, 3), np.int32)
        if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
            raise InputError(
                f"voxels.coords is {array.dtype}{list(array.shape)}; expected int[blocks, 3]"
            )
        if array.size and (array.min() < -MAX_COORD or array.max() > MAX_COORD):
            raise InputError(
                f"voxels.coords reach from {array.min()} to {array.max()}; expected within "
                f"{MAX_COORD} blocks of the origin: move the origin to the data"
            )
        if not 1 <= int(block_resolution) <= 64:
            raise InputError(f"block_resolution = {block_resolution}; expected 1 to 64 voxels")
        if not np.isfinite(voxel_size) or voxel_size <= 0.0:
            raise InputError(f"voxel_size = {voxel_size} m; expected a positive length")
        place = np.array(origin, dtype=np.float64)
        if place.shape != (3,) or not np.isfinite(place).all():
            raise InputError(f"voxels.origin = {place.tolist()} m; expected three finite numbers")
        self.coords: npt.NDArray[np.int32] = np.ascontiguousarray(array, dtype=np.int32)
        self.voxel_size = float(voxel_size)
        self.origin: npt.NDArray[np.float64] = place
        self.block_resolution = int(block_resolution)
        self.channels: dict[str, VoxelChannel] = {}

    @property
    def block_count(self) -> int:
        """Return the number of stored blocks."""
        return int(self.coords.shape[0])

    @property
    def voxel_count(self) -> int:
        """Return the number of stored voxels."""
        return self.block_count * self.block_resolution**3

    def counts(self) -> dict[str, int]:
        """Return the number of blocks and voxels."""
        return {"block": self.block_count, "voxel": self.voxel_count}

    def channel_names(self) -> dict[str, list[str]]:
        """Return the names of the channels at each location that has any."""
        names = {
            location: sorted(n for n, c in self.channels.items() if c.location == location)
            for location in VOXEL_LOCATIONS
        }
        return {location: found for location, found in names.items() if found}

    def set_channel(
        self, name: str, values: npt.ArrayLike, *, location: str = "cell", background: float = 0.0
    ) -> None:
        """Store a channel of shape [blocks, c, r, r, r], or [blocks, r, r, r] for one component."""
        if not isinstance(name, str) or not name or len(name) > 256:
            raise InputError(f"voxels channel {name!r}: a name is a text of 1 to 256 letters")
        array = np.asarray(values)
        if array.ndim == 4:
            array = array[:, np.newaxis]
        r = self.block_resolution
        expected = (self.block_count, r, r, r)
        if array.ndim != 5 or (array.shape[0], *array.shape[2:]) != expected or not array.shape[1]:
            raise InputError(
                f'voxels channel "{name}" has shape {list(np.shape(values))}; expected '
                f"[{self.block_count}, c, {r}, {r}, {r}]"
            )
        if array.dtype.name not in CHANNEL_DTYPES:
            raise InputError(
                f'voxels channel "{name}" is of dtype {array.dtype}; allowed are '
                f"{', '.join(CHANNEL_DTYPES)}: convert it before"
            )
        if location not in VOXEL_LOCATIONS:
            hint = did_you_mean(str(location), VOXEL_LOCATIONS)
            raise InputError(f'voxels channel "{name}": unknown location "{location}"{hint}')
        if location == "face" and array.shape[1] != 3:
            raise InputError(
                f'voxels channel "{name}" is on faces and has {array.shape[1]} components; '
                "expected 3, one for each axis"
            )
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        self.channels[name] = VoxelChannel(native, location, float(background))

    def channel(self, name: str) -> VoxelChannel:
        """Return a channel by name."""
        if name not in self.channels:
            raise InputError(f'voxels have no channel "{name}"{did_you_mean(name, self.channels)}')
        return self.channels[name]

    @classmethod
    def from_dense(
        cls,
        array: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        origin: npt.ArrayLike,
        voxel_size: float,
        *,
        name: str = "density",
        location: str = "cell",
        background: float = 0.0,
        block_resolution: int = 8,
    ) -> Self:
        """Return the blocks of a dense array [nx, ny, nz] or [c, nx, ny, nz] that hold anything.

        Voxel (0, 0, 0) of the array has its lower corner at `origin` [m]. A block in which every
        voxel is background is left out. A mapping gives several channels of one size.
        """
        fields = dict(array) if isinstance(array, Mapping) else {name: array}
        r = block_resolution
        split = {n: _blocks_of(np.asarray(f), r, background, n) for n, f in fields.items()}
        grids = {blocks.shape[:3] for blocks in split.values()}
        if len(grids) != 1:
            raise InputError(f"dense channels {sorted(split)} differ in size, or there are none")
        occupied = np.zeros(next(iter(grids)), bool)
        for blocks in split.values():
            occupied |= (blocks != background).any(axis=(3, 4, 5, 6))
        voxels = cls(
            np.argwhere(occupied), voxel_size, origin=origin, block_resolution=block_resolution
        )
        for channel_name, blocks in split.items():
            voxels.set_channel(
                channel_name, blocks[occupied], location=location, background=background
            )
        return voxels

    def first_voxel(self) -> npt.NDArray[np.int64]:
        """Return the index of the lowest voxel of all stored blocks, shape [3]."""
        if self.block_count == 0:
            return np.zeros(3, np.int64)
        lowest = self.coords.min(axis=0).astype(np.int64)
        return np.asarray(lowest * self.block_resolution)

    def to_dense(self, channel: str) -> Array:
        """Return a channel over the box of all blocks, [c, nx, ny, nz], from `first_voxel`."""
        source = self.channel(channel)
        r = self.block_resolution
        if self.block_count == 0:
            return np.empty((source.components, 0, 0, 0), source.values.dtype)
        lower = self.coords.min(axis=0).astype(np.int64)
        size = self.coords.max(axis=0).astype(np.int64) - lower + 1
        if int(size[0]) * int(size[1]) * int(size[2]) * r**3 > DENSE_LIMIT:
            raise InputError(
                f'channel "{channel}" over {(size * r).tolist()} voxels is too large for a dense '
                f"array (more than {DENSE_LIMIT} voxels); work on its blocks instead"
            )
        shape = (*size.tolist(), source.components, r, r, r)
        split = np.full(shape, source.background, dtype=source.values.dtype)
        i, j, k = (self.coords - lower).T
        split[i, j, k] = source.values
        dense = split.transpose(3, 0, 4, 1, 5, 2, 6)
        return np.ascontiguousarray(dense).reshape(source.components, *(size * r).tolist())

    def bounds(self) -> npt.NDArray[np.float64]:
        """Return the corners of all blocks [m], shape [2, 3]; (inf, -inf) without blocks."""
        if self.block_count == 0:
            return np.array([[np.inf] * 3, [-np.inf] * 3])
        edge = self.block_resolution * self.voxel_size
        corners = np.stack([self.coords.min(axis=0), self.coords.max(axis=0) + 1])
        return np.asarray(self.origin + corners * edge)

    def to_document(self) -> dict[str, Any]:
        """Return plain dicts, numbers, texts and arrays; the arrays are shared."""
        return {
            "type": self.type_name,
            "coords": self.coords,
            "voxel_size": self.voxel_size,
            "origin": self.origin,
            "block_resolution": self.block_resolution,
            "channels": {
                name: {"values": c.values, "location": c.location, "background": c.background}
                for name, c in self.channels.items()
            },
        }

    @classmethod
    def from_document(cls, document: object, *, label: str = "stream") -> Self:
        """Read what `to_document` wrote; raise FormatError on anything else."""
        fields = {"type", "coords", "voxel_size", "origin", "block_resolution", "channels"}
        if not isinstance(document, dict) or set(document) != fields:
            raise FormatError(f"{label}: a voxels document has {sorted(fields)}")
        coords, origin = document["coords"], document["origin"]
        size, resolution = document["voxel_size"], document["block_resolution"]
        right = isinstance(coords, np.ndarray) and isinstance(origin, np.ndarray)
        right = right and origin.dtype == np.float64 and type(resolution) is int
        if not right or not isinstance(size, float) or not isinstance(document["channels"], dict):
            raise FormatError(f"{label}: a field of the voxels document is of the wrong type")
        try:
            voxels = cls(coords, size, origin=origin, block_resolution=resolution)
            for name, entry in document["channels"].items():
                expected = {"values", "location", "background"}
                if not isinstance(entry, dict) or set(entry) != expected:
                    raise FormatError(f'{label}: channel "{name}" is no map of {sorted(expected)}')
                if not isinstance(entry["values"], np.ndarray):
                    raise FormatError(f'{label}: channel "{name}" is no array')
                if not isinstance(entry["background"], float):
                    raise FormatError(f'{label}: channel "{name}" has no background number')
                voxels.set_channel(
                    name,
                    entry["values"],
                    location=entry["location"],
                    background=entry["background"],
                )
            voxels.check_structure(label)
        except InputError as error:
            raise FormatError(f"{label}: {error}") from error
        return voxels

    def check_structure(self, label: str) -> None:
        """Raise InputError where a block is given twice."""
        if self.block_count == 0:
            return
        keys = self.coords.astype(np.int64) + MAX_COORD  # not negative: 21 bits each
        unique = np.unique((keys[:, 0] << 42) | (keys[:, 1] << 21) | keys[:, 2]).size
        if unique != self.block_count:
            raise InputError(
                f"{label}.coords names {self.block_count - unique} blocks twice; expected each "
                "block once"
            )

    def validate(self, label: str) -> None:
        """Raise InputError that names stream, channel, voxel, what was found and expected."""
        self.check_structure(label)
        for name, channel in self.channels.items():
            if channel.values.dtype.kind != "f":
                continue
            bad = ~np.isfinite(channel.values)
            if bad.any():
                block, component, *local = np.unravel_index(int(np.argmax(bad)), bad.shape)
                place = self.coords[block] * self.block_resolution + np.array(local)
                value = channel.values[(block, component, *local)]
                raise InputError(
                    f'{label} channel "{name}" is {value} at voxel {place.tolist()}, component '
                    f"{int(component)} ({int(bad.sum())} such values); expected finite numbers"
                )

    def check(self, label: str) -> list[Finding]:
        """Return what would go wrong in a simulation, as (severity, message)."""
        try:
            self.validate(label)
        except InputError as error:
            return [("error", str(error))]
        if self.block_count == 0:
            return [("warning", f"{label} is empty: it has no blocks")]
        findings: list[Finding] = []
        if not self.channels:
            findings.append(("warning", f"{label} has no channels"))
        extent = float((self.bounds()[1] - self.bounds()[0]).max())
        if not SMALLEST_EXTENT <= extent <= LARGEST_EXTENT:
            findings.append(
                (
                    "warning",
                    f"{label} is {extent:.6g} m across; expected {SMALLEST_EXTENT:g} m to "
                    f"{LARGEST_EXTENT:g} m: are its units metres?",
                )
            )
        return findings

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Return one stream of the blocks of all parts, which share one lattice.

        Every channel of any part is carried; where a part lacks one it has its background.
        """
        if not parts:
            raise InputError("merge needs at least one part; found none")
        first = parts[0]
        for part in parts:
            same = np.array_equal(part.origin, first.origin)
            same = same and part.voxel_size == first.voxel_size
            if not same or part.block_resolution != first.block_resolution:
                raise InputError("cannot merge voxels of different origin, voxel or block size")
        merged = cls(
            np.concatenate([part.coords for part in parts]),
            first.voxel_size,
            origin=first.origin,
            block_resolution=first.block_resolution,
        )
        r = first.block_resolution
        for name in dict.fromkeys(name for part in parts for name in part.channels):
            holders = [part.channels[name] for part in parts if name in part.channels]
            model = holders[0]
            for other in holders:
                if (other.components, other.location) != (model.components, model.location):
                    raise InputError(f'cannot merge voxels channel "{name}": its parts differ')
            dtype = np.result_type(*[h.values for h in holders])
            arrays = [
                part.channels[name].values
                if name in part.channels
                else np.full((part.block_count, model.components, r, r, r), model.background)
                for part in parts
            ]
            merged.set_channel(
                name,
                np.concatenate(arrays).astype(dtype, copy=False),
                location=model.location,
                background=model.background,
            )
        merged.check_structure("merged voxels")
        return merged


def _blocks_of(array: Array, r: int, background: float, name: str) -> Array:
    """Return a dense array as blocks, shape [bx, by, bz, c, r, r, r], filled up at the end."""
    if array.ndim == 3:
        array = array[np.newaxis]
    if array.ndim != 4 or 0 in array.shape:
        raise InputError(
            f'dense channel "{name}" has shape {list(array.shape)}; expected [nx, ny, nz] or '
            "[c, nx, ny, nz] with at least one voxel"
        )
    fill = [(0, 0)] + [(0, -size % r) for size in array.shape[1:]]
    padded = np.pad(array, fill, constant_values=background)
    c, nx, ny, nz = padded.shape
    return padded.reshape(c, nx // r, r, ny // r, r, nz // r, r).transpose(1, 3, 5, 0, 2, 4, 6)
