"""The tree of a VDB grid of float32, straight from blocks of voxels: a leaf is 8 x 8 x 8 of them.

    root    any number of nodes of 32^3 nodes of 16^3 leaves, each with masks of its children
    leaf    a mask of its active voxels, and their values

What is inactive has the background's value and is not stored, nothing is compressed further, and no
node but a leaf has values. So a file is written nearly as fast as memory is copied: a Bucket of
eight voxels along an edge is a leaf. The layout is that of file version 224 of openvdb.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LEAF = 8
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
    from loki_core.kernels.vdb_leaves import MASK_BYTES, mark_active, pack_active

    coords, values = _whole_leaves(np.asarray(coords, np.int64), values, background)
    blocks, components, r = values.shape[:3]
    n = r // LEAF
    masks = np.empty((blocks, n**3, MASK_BYTES), np.uint8)
    counts = np.empty((blocks, n**3), np.int32)
    mark_active(values, FLOAT.type(background), masks, counts)

    inside = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    leaf = (coords[:, None] * n + inside).reshape(-1, 3)
    used = np.flatnonzero(counts)
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
    flat = masks.reshape(-1, MASK_BYTES)
    for node, start, end in zip(nodes, starts, ends, strict=True):
        rows, origin = np.arange(start, end), node * (LEAF * MIDDLE * UPPER)
        parts += [struct.pack("<3i", *origin.tolist()), _inner(in_upper[rows], UPPER)]
        _, firsts = np.unique(in_upper[rows], return_index=True)
        for below in np.split(rows, firsts[1:]):
            parts += [_inner(in_middle[below], MIDDLE), flat[chosen[below]].tobytes()]

    sizes = MASK_BYTES + len(_ONLY_BACKGROUND) + FLOAT.itemsize * components * counts.flat[chosen]
    ends = np.cumsum(sizes, dtype=np.int64)
    buffers = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    as_bytes = values.view(np.uint8).reshape(*values.shape, FLOAT.itemsize)
    pack_active(as_bytes, masks, chosen.astype(np.int64), ends - sizes, buffers)
    return [*parts, buffers.tobytes()]


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
