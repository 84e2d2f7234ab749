"""The tree of a VDB grid, straight from blocks of voxels: a leaf is 8 x 8 x 8 of them.

    root    any number of nodes of 32^3 nodes of 16^3 leaves, each with masks of its children
    leaf    a mask of its active voxels, and their values

What is inactive has the background's value and is not stored, and no node but a leaf has values. A
Bucket of eight voxels along an edge is a leaf, so without compression a file is written nearly as
fast as memory is copied. Zip compresses the values of each leaf, on several threads, and leaves
those as they are that do not get smaller. The layout is that of file version 224 of openvdb. Hosts
write volumes too, so this is numpy alone.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_vfx.serialization.vdb_chunks import ACTIVE_ONLY, ZIP

Array = npt.NDArray[Any]

LEAF = 8  # voxels along an edge of a block
MIDDLE, UPPER = 16, 32  # children along the edges of inner nodes
HALF = np.dtype("<f2")
COMPRESSIONS = {"none": ACTIVE_ONLY, "zip": ZIP | ACTIVE_ONLY}
LEVEL = 1  # of zlib: 6, its own, takes three times as long for some hundredths
AT_ONCE = 512  # leaves that a thread compresses before the next one may
_ONLY_BACKGROUND = b"\0"  # what inactive values of a node are
_NO_VALUES = bytes(8)  # of an inner node with zip: their length


def tree_parts(
    coords: Array, values: Array, background: float, *, compression: int, half: bool = False
) -> list[bytes]:
    """Return the tree of a grid, in parts.

    Args:
        coords: Of blocks, [b, 3].
        values: Numbers of a type that grids have, [b, c, r, r, r], c = 1 for a scalar and 3 for a
            vector.
        background: What voxels have that are not active, in every component.
        compression: One of `COMPRESSIONS`.
        half: Whether values are stored as half floats.
    """
    ground = np.asarray(background, HALF if half else values.dtype).astype(values.dtype)
    coords, values = _whole_leaves(np.asarray(coords, np.int64), values, ground)
    blocks, components, r = values.shape[:3]
    n = r // LEAF
    leaves = values.reshape(blocks, components, n, LEAF, n, LEAF, n, LEAF)
    leaves = leaves.transpose(0, 2, 4, 6, 1, 3, 5, 7).reshape(-1, components, LEAF**3)
    active = leaves[:, 0] != ground
    for component in range(1, components):
        active |= leaves[:, component] != ground

    inside = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    leaf = (coords[:, None] * n + inside).reshape(-1, 3)
    used = np.flatnonzero(active.any(axis=1))
    leaf = leaf[used]
    # Every node has its children in the order of their places in it, and the root by origins.
    upper, middle = np.floor_divide(leaf, MIDDLE * UPPER), np.floor_divide(leaf, MIDDLE)
    in_upper, in_middle = _slots(middle - upper * UPPER, UPPER), _slots(leaf % MIDDLE, MIDDLE)
    order = np.lexsort((in_middle, in_upper, *upper.T[::-1]))
    chosen, upper = used[order], upper[order]
    in_upper, in_middle = in_upper[order], in_middle[order]

    nodes, starts = np.unique(upper, axis=0, return_index=True)
    no_values = _NO_VALUES if compression & ZIP and not half else b""  # halves have no length of 0
    parts = [struct.pack("<I", 1), np.full(components, ground).tobytes()]
    parts.append(struct.pack("<II", 0, len(nodes)))
    ends = np.append(starts[1:], len(upper))[: len(nodes)]
    masks = np.packbits(active[chosen], axis=1, bitorder="little")
    for node, start, end in zip(nodes, starts, ends, strict=True):
        rows, origin = np.arange(start, end), node * (LEAF * MIDDLE * UPPER)
        parts += [struct.pack("<3i", *origin.tolist()), _inner(in_upper[rows], UPPER), no_values]
        _, firsts = np.unique(in_upper[rows], return_index=True)
        for below in np.split(rows, firsts[1:]):
            parts += [_inner(in_middle[below], MIDDLE), no_values, masks[below].tobytes()]

    if values.dtype == np.bool_:
        return [*parts, _bool_buffers(leaf[order] * LEAF, leaves[chosen, 0], masks)]
    stored = leaves.astype(HALF) if half else leaves
    return [*parts, *_buffers(stored, active, chosen, masks, compression)]


def _buffers(
    leaves: Array, active: Array, chosen: Array, masks: Array, compression: int
) -> list[bytes]:
    """Return the mask and the active values of each chosen leaf, in turn."""
    components, voxels = leaves.shape[1:]
    chosen_active = active[chosen]
    counts = np.count_nonzero(chosen_active, axis=1)
    shift = (chosen * components - np.arange(len(chosen))) * voxels
    first = np.flatnonzero(chosen_active) + np.repeat(shift, counts)
    packed = np.empty((len(first), components), leaves.dtype)
    flat = leaves.reshape(-1)
    for component in range(components):
        packed[:, component] = flat[first + component * voxels]
    data = packed.tobytes()
    ends = [0, *(leaves.itemsize * components * np.cumsum(counts)).tolist()]
    heads = np.pad(masks, ((0, 0), (0, len(_ONLY_BACKGROUND)))).tobytes()
    size = masks.shape[1] + len(_ONLY_BACKGROUND)

    def joined(rows: Sequence[int]) -> bytes:
        parts = []
        for row in rows:
            values = data[ends[row] : ends[row + 1]]
            if compression & ZIP:
                values = _zipped(values)
            parts += [heads[size * row : size * (row + 1)], values]
        return b"".join(parts)

    slices = [range(k, min(k + AT_ONCE, len(chosen))) for k in range(0, len(chosen), AT_ONCE)]
    if not compression & ZIP or len(slices) < 2:
        return [joined(rows) for rows in slices]
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # zlib lets other threads run
        return list(threads.map(joined, slices))


def _zipped(values: bytes) -> bytes:
    """Return values with their length in front, which is negative where they are as they were."""
    zipped = zlib.compress(values, LEVEL)
    if len(zipped) < len(values):
        return struct.pack("<q", len(zipped)) + zipped
    return struct.pack("<q", -len(values)) + values


def _bool_buffers(origins: Array, values: Array, masks: Array) -> bytes:
    """Return the leaves of a tree of bools: two masks, and where they are."""
    bits = np.packbits(values, axis=1, bitorder="little")
    places = np.ascontiguousarray(origins, "<i4").view(np.uint8).reshape(len(bits), 12)
    return np.concatenate([masks, places, bits], axis=1).tobytes()


def _slots(place: Array, edge: int) -> Array:
    """Return the numbers of places [n, 3] in a node."""
    slots: Array = (place[:, 0] * edge + place[:, 1]) * edge + place[:, 2]
    return slots


def _inner(children: Array, edge: int) -> bytes:
    """Return an inner node: which children it has, that no value is active, and no values."""
    mask = np.zeros(edge**3, np.uint8)
    mask[children] = 1
    packed = np.packbits(mask, bitorder="little").tobytes()
    return packed + bytes(len(packed)) + _ONLY_BACKGROUND


def _whole_leaves(coords: Array, values: Array, background: Any) -> tuple[Array, Array]:
    """Return blocks of leaves; those that are smaller are put together."""
    r = values.shape[2]
    if r >= LEAF:
        return coords, np.ascontiguousarray(values)
    first = coords * r
    keys, rows = np.unique(first // LEAF, axis=0, return_inverse=True)
    joined = np.full((len(keys), values.shape[1], *(LEAF,) * 3), background, values.dtype)
    for block, row, (i, j, k) in zip(values, rows.reshape(-1), first % LEAF, strict=True):
        joined[row, :, i : i + r, j : j + r, k : k + r] = block
    return keys, joined
