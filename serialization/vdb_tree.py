"""The tree of a VDB grid of float32, straight from blocks of voxels: a leaf is 8 x 8 x 8 of them.

    root    any number of nodes of 32^3 nodes of 16^3 leaves, each with masks of its children
    leaf    a mask of its active voxels, and their values

What is inactive has the background's value and is not stored, nothing is compressed further, and no
node but a leaf has values. So a file is written nearly as fast as memory is copied: a Bucket of
eight voxels along an edge is a leaf. The layout is that of file version 224 of openvdb. Hosts write
volumes too, so this is numpy alone.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LEAF = 8  # voxels along an edge of a block
MIDDLE, UPPER = 16, 32  # children along the edges of inner nodes
ACTIVE_ONLY = 2  # the flag of trees without what is inactive
FLOAT = np.dtype("<f4")
_ONLY_BACKGROUND = b"\0"  # what inactive values of a node are


def tree_parts(coords: Array, values: Array, background: float) -> list[bytes]:
    """Return the tree of a grid, in parts.

    Args:
        coords: Of blocks, [b, 3].
        values: Numbers of float32, [b, c, r, r, r], c = 1 for a scalar and 3 for a vector.
        background: What voxels have that are not active, in every component.
    """
    coords, values = _whole_leaves(np.asarray(coords, np.int64), values, background)
    blocks, components, r = values.shape[:3]
    n = r // LEAF
    leaves = values.reshape(blocks, components, n, LEAF, n, LEAF, n, LEAF)
    leaves = leaves.transpose(0, 2, 4, 6, 1, 3, 5, 7).reshape(-1, components, LEAF**3)
    active = leaves[:, 0] != FLOAT.type(background)
    for component in range(1, components):
        active |= leaves[:, component] != FLOAT.type(background)

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
    ground = np.full(components, background, FLOAT).tobytes()
    parts = [struct.pack("<I", 1), ground, struct.pack("<II", 0, len(nodes))]
    ends = np.append(starts[1:], len(upper))[: len(nodes)]
    masks = np.packbits(active[chosen], axis=1, bitorder="little")
    for node, start, end in zip(nodes, starts, ends, strict=True):
        rows, origin = np.arange(start, end), node * (LEAF * MIDDLE * UPPER)
        parts += [struct.pack("<3i", *origin.tolist()), _inner(in_upper[rows], UPPER)]
        _, firsts = np.unique(in_upper[rows], return_index=True)
        for below in np.split(rows, firsts[1:]):
            parts += [_inner(in_middle[below], MIDDLE), masks[below].tobytes()]

    return [*parts, _buffers(leaves, active, chosen, masks)]


def _buffers(leaves: Array, active: Array, chosen: Array, masks: Array) -> bytes:
    """Return the mask and the active values of each chosen leaf, in turn."""
    components, voxels = leaves.shape[1:]
    chosen_active = active[chosen]
    counts = np.count_nonzero(chosen_active, axis=1)
    shift = (chosen * components - np.arange(len(chosen))) * voxels
    first = np.flatnonzero(chosen_active) + np.repeat(shift, counts)
    packed = np.empty((len(first), components), FLOAT)
    flat = leaves.reshape(-1)
    for component in range(components):
        packed[:, component] = flat[first + component * voxels]
    data = packed.tobytes()
    ends = (FLOAT.itemsize * components * np.cumsum(counts)).tolist()
    heads = np.pad(masks, ((0, 0), (0, len(_ONLY_BACKGROUND)))).tobytes()
    size = masks.shape[1] + len(_ONLY_BACKGROUND)
    parts, start = [], 0
    for number, end in enumerate(ends):
        parts += [heads[size * number : size * (number + 1)], data[start:end]]
        start = end
    return b"".join(parts)


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


def _whole_leaves(coords: Array, values: Array, background: float) -> tuple[Array, Array]:
    """Return blocks of leaves; those that are smaller are put together."""
    r = values.shape[2]
    if r >= LEAF:
        return coords, np.ascontiguousarray(values, FLOAT)
    first = coords * r
    keys, rows = np.unique(first // LEAF, axis=0, return_inverse=True)
    joined = np.full((len(keys), values.shape[1], *(LEAF,) * 3), background, FLOAT)
    for block, row, (i, j, k) in zip(values, rows.reshape(-1), first % LEAF, strict=True):
        joined[row, :, i : i + r, j : j + r, k : k + r] = block
    return keys, joined
