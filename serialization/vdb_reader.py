"""VDB files read by Loki alone: the file, its grids, and their trees as blocks of voxels.

    file    magic, versions, metadata, and for each grid its name, type and where it is
    grid    compression, metadata, transform, the tree's masks and tiles, then the leaves' values
    tree    a root with any number of nodes of 32^3 nodes of 16^3 leaves of 8^3 voxels

File versions 222 to 224, that is openvdb 3 to 12; scalars and vectors of the usual numbers, and
half floats; zip, Blosc and none. A tile, one value for all of a node's voxels, becomes blocks
where it differs from the background, active or not: the inside of a level set is such tiles. What
a node stores of its values is told by one byte (`_inactive`).

A file is not trusted: whatever it claims is compared with what is there before memory is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import FormatError, InputError, did_you_mean
from loki_vfx.serialization.vdb_chunks import ACTIVE_ONLY, Cursor, NeedsOpenvdb, Payloads
from loki_vfx.serialization.vdb_grid import Grid
from loki_vfx.serialization.vdb_tree import LEAF, MIDDLE, UPPER

Array = npt.NDArray[Any]

MAGIC = b" BDV"
VERSIONS = (222, 223, 224)
HALF = "_HalfFloat"
MAX_TILE_VOXELS = 1 << 30  # that tiles become: some bytes of a file can claim any number
TYPES: dict[str, tuple[str, int]] = {
    "float": ("<f4", 1),
    "double": ("<f8", 1),
    "half": ("<f2", 1),
    "int32": ("<i4", 1),
    "int64": ("<i8", 1),
    "bool": ("|b1", 1),
    "vec3s": ("<f4", 3),
    "vec3d": ("<f8", 3),
    "vec3i": ("<i4", 3),
}
# What a node says of its inactive values: which of them follow, and whether a mask chooses.
_MINUS, _ONE, _MASK, _MASK_ONE, _MASK_TWO, _ALL = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A grid in the table of a file."""

    name: str  # unique in the file
    kind: str
    parent: str  # of a grid that shares the tree of another one
    begin: int


def read_file(path: Path, names: Sequence[str] | None) -> list[Grid]:
    """Return the grids of a file, or those in `names`.

    Raises:
        FormatError: It is damaged, or holds what `Voxels` cannot hold.
        NeedsOpenvdb: It holds what only openvdb reads.
    """
    data = path.read_bytes()
    cursor = Cursor(data)
    if cursor.take(8)[:4] != MAGIC:
        raise FormatError("it is no VDB file")
    version, _, _, has_offsets = cursor.numbers("<IIIb")
    if version not in VERSIONS:
        raise NeedsOpenvdb(f"it has file version {version}; Loki reads {VERSIONS[0]} to 224")
    if not has_offsets:
        raise NeedsOpenvdb("it is a stream without a table of its grids")
    cursor.take(36)  # a uuid
    _metadata(cursor)
    entries = _table(cursor)
    found: dict[str, list[tuple[Entry, Cursor, int, dict[str, bytes]]]] = {}
    for entry in entries.values():
        at = Cursor(data, entry.begin)
        (compression,) = at.numbers("<I")
        facts = _metadata(at)
        name = facts.get("name", entry.name.partition("\x1e")[0].encode()).decode(
            "utf-8", "replace"
        )
        found.setdefault(name, []).append((entry, at, compression, facts))
    for name in names or []:
        if name not in found:
            raise InputError(f'{path} has no grid "{name}"{did_you_mean(name, found)}')
    grids = []
    for name in found if names is None else names:
        if len(found[name]) > 1:
            raise FormatError(f'it has {len(found[name])} grids of the name "{name}"')
        try:
            grids.append(_grid(name, *found[name][0], entries))
        except FormatError as error:
            raise type(error)(f'grid "{name}": {error}') from error
    return grids


def _metadata(cursor: Cursor) -> dict[str, bytes]:
    (count,) = cursor.numbers("<I")
    found = {}
    for _ in range(count):  # each takes bytes: a wrong count ends at the end of the file
        name = cursor.text()
        cursor.text()  # its type
        found[name] = cursor.sized()
    return found


def _table(cursor: Cursor) -> dict[str, Entry]:
    (count,) = cursor.numbers("<i")
    entries = {}
    for _ in range(count):
        name, kind, parent = cursor.text(), cursor.text(), cursor.text()
        begin, _, end = cursor.numbers("<3q")
        if not cursor.at <= begin <= end <= len(cursor.data):
            raise FormatError(
                f'grid "{name}" is said to be from byte {begin} to {end}, and the file has '
                f"{len(cursor.data)}: it is cut off"
            )
        entries[name] = Entry(name, kind, parent, begin)
        cursor.at = end
    return entries


def _grid(
    name: str,
    entry: Entry,
    cursor: Cursor,
    compression: int,
    facts: dict[str, bytes],
    entries: dict[str, Entry],
) -> Grid:
    voxel_size, centre = _transform(cursor)
    if entry.parent:
        if entry.parent not in entries or entries[entry.parent].parent:
            raise FormatError(f'it shares the tree of "{entry.parent}", which is not there')
        entry = entries[entry.parent]
        cursor = Cursor(cursor.data, entry.begin)
        (compression,) = cursor.numbers("<I")
        _metadata(cursor)
        _transform(cursor)
    tree = _Tree(cursor, compression, entry.kind)
    coords, values = tree.read()
    background = np.unique(tree.background)
    if len(background) != 1:
        raise FormatError(f"it has the background {tree.background.tolist()}; expected one number")
    grid = Grid(name, voxel_size, centre, float(background[0]))
    grid.location = "face" if facts.get("class") == b"staggered" else "cell"
    filled = (values != background[0]).any(axis=(1, 2, 3, 4))
    grid.coords, grid.values = coords[filled].astype(np.int32), values[filled]
    return grid


def _transform(cursor: Cursor) -> tuple[float, list[float]]:
    """Return the edge of a voxel, and where the centre of voxel (0, 0, 0) is."""
    kind = cursor.text()
    centre = [0.0, 0.0, 0.0]
    if kind in ("UniformScaleMap", "ScaleMap"):
        axes = np.diag(cursor.numbers("<15d")[:3])
    elif kind in ("UniformScaleTranslateMap", "ScaleTranslateMap"):
        numbers = cursor.numbers("<18d")
        centre, axes = list(numbers[:3]), np.diag(numbers[3:6])
    elif kind == "TranslationMap":
        centre, axes = list(cursor.numbers("<3d")), np.eye(3)
    elif kind in ("AffineMap", "UnitaryMap"):
        matrix = np.array(cursor.numbers("<16d")).reshape(4, 4)
        centre, axes = matrix[3, :3].tolist(), matrix[:3, :3]
    else:
        raise FormatError(f'it has a transform of the kind "{kind[:40]}"; resample it first')
    edge = float(axes[0, 0])
    if not np.all(np.isfinite([*axes.reshape(-1), *centre])):
        raise FormatError("its transform is not finite")
    if edge <= 0.0 or not np.allclose(axes, edge * np.eye(3), rtol=0.0, atol=1e-9 * edge):
        raise FormatError(
            "it has a rotated or stretched transform; resample it to cubic, axis-aligned voxels "
            "first"
        )
    return edge, centre


class _Tree:
    """One tree while it is read."""

    def __init__(self, cursor: Cursor, compression: int, kind: str) -> None:
        self.cursor, self.compression = cursor, compression
        plain = kind.removesuffix(HALF)
        value = plain.removeprefix("Tree_").removesuffix("_5_4_3")
        if plain != f"Tree_{value}_5_4_3" or value not in TYPES:
            known = ", ".join(TYPES)
            raise NeedsOpenvdb(f"it is of type {kind[:60]}; Loki reads trees 5_4_3 of {known}")
        dtype, self.components = TYPES[value]
        self.dtype = np.dtype(dtype)
        # Only the values of nodes are halves; the background and single values are whole.
        is_half = kind.endswith(HALF) and self.dtype.kind == "f"
        self.stored = np.dtype("<f2") if is_half else self.dtype
        self.background: Array = np.zeros(self.components, self.dtype)
        self.leaves: list[tuple[int, int, int]] = []
        self.tiles: list[
            tuple[Array, int, Array]
        ] = []  # first blocks, blocks along an edge, values
        self.tile_voxels = 0

    def read(self) -> tuple[Array, Array]:
        """Return coordinates [b, 3] and values [b, c, 8, 8, 8] of all blocks."""
        (buffers,) = self.cursor.numbers("<I")
        if buffers != 1:
            raise NeedsOpenvdb(f"it has {buffers} buffers; expected one")
        self.background = self._value()
        tiles, nodes = self.cursor.numbers("<II")
        for _ in range(tiles):
            origin, value = np.array([self.cursor.numbers("<3i")]), self._value()
            self.cursor.take(1)  # whether it is active
            self._add_tiles(origin // LEAF, MIDDLE * UPPER, value[None])
        for _ in range(nodes):
            self._read_upper(np.array(self.cursor.numbers("<3i")) // LEAF)
        values = self._read_bools() if self.dtype.kind == "b" else self._read_leaves()
        coords = [np.array(self.leaves, np.int64).reshape(-1, 3)]
        blocks = [values.reshape(-1, LEAF, LEAF, LEAF, self.components).transpose(0, 4, 1, 2, 3)]
        for first, edge, value in self.tiles:
            inside = np.stack(np.meshgrid(*[np.arange(edge)] * 3, indexing="ij"), -1).reshape(-1, 3)
            coords.append((first[:, None] + inside).reshape(-1, 3))
            held = np.repeat(value, edge**3, axis=0)[:, :, None, None, None]
            shape = (len(held), self.components, LEAF, LEAF, LEAF)
            blocks.append(np.broadcast_to(held, shape))
        joined = np.ascontiguousarray(np.concatenate(blocks))
        if joined.dtype == np.float16:
            joined = joined.astype(np.float32)
        return np.concatenate(coords), joined

    def _value(self) -> Array:
        data = self.cursor.take(self.dtype.itemsize * self.components)
        if self.dtype.kind == "b":
            return np.array([data != b"\0"])
        return np.frombuffer(data, self.dtype)

    def _add_tiles(self, first: Array, edge: int, values: Array) -> None:
        """Note tiles that differ from the background: first blocks [t, 3], values [t, c]."""
        differs = (values != self.background).any(axis=1)
        self.tile_voxels += int(np.count_nonzero(differs)) * (LEAF * edge) ** 3
        if self.tile_voxels > MAX_TILE_VOXELS:
            raise FormatError(
                f"its tiles fill {self.tile_voxels:,} voxels or more; at most {MAX_TILE_VOXELS:,} "
                "are read: clip it, or resample it to larger voxels"
            )
        if differs.any():
            self.tiles.append((first[differs], edge, values[differs]))

    def _read_upper(self, origin: Array) -> None:
        for child in self._read_inner(origin, UPPER, MIDDLE):
            for leaf in self._read_inner(child, MIDDLE, 1).tolist():
                self.cursor.take(LEAF**3 // 8)  # its mask comes again with its values
                self.leaves.append(tuple(leaf))

    def _read_inner(self, origin: Array, edge: int, below: int) -> Array:
        """Read a node without its children; return the first blocks of these, [k, 3]."""
        count = edge**3
        children, active = self._mask(count), self._mask(count)
        values = self._values(active)
        slots = np.arange(count)
        places = np.stack([slots // edge**2, slots // edge % edge, slots % edge], axis=1)
        first = origin + below * places
        if values is not None:
            self._add_tiles(first[~children], below, values[~children])
        return np.asarray(first[children])

    def _mask(self, count: int) -> Array:
        packed = np.frombuffer(self.cursor.take(count // 8), np.uint8)
        return np.unpackbits(packed, bitorder="little").astype(bool)

    def _values(self, active: Array) -> Array | None:
        """Return the values of an inner node, or None where all are the background."""
        kind, low, high, chosen = self._inactive(len(active))
        stored = np.ones_like(active) if self._is_whole(kind) else active
        payload = Payloads(self.compression)
        size = int(np.count_nonzero(stored))
        self._take(payload, size)
        if size == 0 and kind == 0:
            return None
        values = np.empty((len(active), self.components), self.dtype)
        values[:] = low
        if chosen is not None:
            values[np.unpackbits(np.frombuffer(chosen, np.uint8), bitorder="little") == 1] = high
        values[stored] = payload.values(self.stored).reshape(size, self.components)
        return values

    def _take(self, payload: Payloads, count: int) -> None:
        """Read so many values; where there are no halves, there is not even their length."""
        if count or self.stored == self.dtype:
            payload.take(self.cursor, count * self.stored.itemsize * self.components)

    def _is_whole(self, kind: int) -> bool:
        """Return whether a node stores all its values, active or not."""
        return not self.compression & ACTIVE_ONLY or kind == _ALL

    def _inactive(self, count: int) -> tuple[int, Array, Array, bytes | None]:
        """Return the kind of a node's inactive values, these, and the mask that chooses."""
        kind = self.cursor.take(1)[0]
        if kind > _ALL:
            raise FormatError(f"damaged at byte {self.cursor.at - 1}: a node of the kind {kind}")
        high = self.background
        low = high if kind == 0 or self.dtype.kind == "b" else -high
        if kind in (_ONE, _MASK_ONE, _MASK_TWO):
            low = self._value()
        if kind == _MASK_TWO:
            high = self._value()
        chosen = self.cursor.take(count // 8) if kind in (_MASK, _MASK_ONE, _MASK_TWO) else None
        return kind, low, high, chosen

    def _read_leaves(self) -> Array:
        """Return the values of all leaves, [leaves, 512, c]."""
        count, voxels = len(self.leaves), LEAF**3
        masks, payload = [], Payloads(self.compression)
        lows = np.empty((count, self.components), self.dtype)
        others: list[tuple[int, Array, bytes]] = []
        whole = b"\xff" * (voxels // 8)
        for row in range(count):
            mask = self.cursor.take(voxels // 8)
            kind, lows[row], high, chosen = self._inactive(voxels)
            if chosen is not None:
                others.append((row, high, chosen))
            stored = whole if self._is_whole(kind) else mask
            masks.append(stored)
            self._take(payload, int.from_bytes(stored, "little").bit_count())
        held = np.frombuffer(b"".join(masks), np.uint8).reshape(count, voxels // 8)
        held = np.unpackbits(held, axis=1, bitorder="little").astype(bool)
        values = np.repeat(lows[:, None], voxels, axis=1)
        for row, high, chosen in others:
            bits = np.unpackbits(np.frombuffer(chosen, np.uint8), bitorder="little")
            values[row, bits == 1] = high
        values[held] = payload.values(self.stored).reshape(-1, self.components)
        return values

    def _read_bools(self) -> Array:
        """Return the same of a tree of bools, whose leaves are two masks and their origin."""
        voxels = LEAF**3
        values = np.empty((len(self.leaves), voxels, 1), np.bool_)
        for row in range(len(self.leaves)):
            self.cursor.take(voxels // 8 + 12)
            values[row, :, 0] = self._mask(voxels)
        return values
