"""Keys along the Morton or Hilbert curve, of sort cells and of Buckets.

A sort cell has signed integer coordinates of 21 bits per axis; eight cells along each axis make a
Bucket, so a Bucket's coordinates are `cell >> 3`, 18 bits per axis. A key descends from the top
of the 21 levels with three bits per level, most significant first, so that

    key(Bucket) == key(cell) >> 9,        key(Bucket of level l) == key(Bucket) >> 3 l

for both curves: all cells of a Bucket, and all Buckets of a coarser one, are neighbours in key
order. A *state* is the orientation in which the curve passes through a Bucket
(`hilbert_tables.cell_order` orders the cells inside by it); it is 0 for Morton.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.errors import InputError
from loki_core.kernels.basics.hilbert_tables import cell_order, curve_tables
from loki_core.kernels.jit import kernel

__all__ = [
    "BUCKET_BITS",
    "CELL_BITS",
    "bucket_coords",
    "bucket_keys",
    "cell_coords",
    "cell_keys",
    "cell_order",
]

BUCKET_BITS = 18
CELL_BITS = 21

Coords = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]
States = npt.NDArray[np.uint8]


def bucket_keys(coords: Coords, curve: str) -> tuple[Keys, States]:
    """Return the key and the orientation of each Bucket.

    Args:
        coords: Signed Bucket coordinates, shape [n, 3].
        curve: "morton" or "hilbert".
    """
    return _keys(coords, curve, BUCKET_BITS, "Bucket")


def cell_keys(coords: Coords, curve: str) -> Keys:
    """Return the 63-bit key of each sort cell, for signed coordinates of shape [n, 3]."""
    return _keys(coords, curve, CELL_BITS, "sort cell")[0]


def bucket_coords(keys: Keys, curve: str) -> Coords:
    """Return the signed coordinates [n, 3] of Buckets, given their keys."""
    return _coords(keys, curve, BUCKET_BITS)


def cell_coords(keys: Keys, curve: str) -> Coords:
    """Return the signed coordinates [n, 3] of sort cells, given their keys."""
    return _coords(keys, curve, CELL_BITS)


def _keys(coords: Coords, curve: str, bits: int, what: str) -> tuple[Keys, States]:
    coords = np.asarray(coords)
    limit = 1 << bits - 1
    outside = (coords < -limit) | (coords >= limit)
    if outside.any():
        row = int(np.flatnonzero(outside.any(axis=1))[0])
        raise InputError(
            f"{what} {tuple(coords[row].tolist())} at row {row} is outside the key range "
            f"[{-limit}, {limit}) per axis; use larger Buckets, or an origin nearer to the data"
        )
    coords = np.ascontiguousarray(coords, np.int32)
    tables = curve_tables(curve)
    keys = np.empty(len(coords), np.uint64)
    states = np.empty(len(coords), np.uint8)
    fill_keys(coords, bits, tables.digits, tables.children, keys, states)
    return keys, states


def _coords(keys: Keys, curve: str, bits: int) -> Coords:
    keys = np.ascontiguousarray(keys, np.uint64)
    tables = curve_tables(curve)
    coords = np.empty((len(keys), 3), np.int32)
    fill_coords(keys, bits, tables.octants, tables.children, coords)
    return coords


@kernel
def fill_keys(coords, bits, digits, children, keys, states):
    """Descend from the cube of all coordinates to each cell, three key bits a level."""
    offset = 1 << (bits - 1)
    for n in range(coords.shape[0]):
        x = np.int64(coords[n, 0]) + offset
        y = np.int64(coords[n, 1]) + offset
        z = np.int64(coords[n, 2]) + offset
        key = np.int64(0)
        state = np.int64(0)
        for level in range(bits):
            bit = bits - 1 - level
            octant = ((x >> bit) & 1) << 2 | ((y >> bit) & 1) << 1 | ((z >> bit) & 1)
            key = key << 3 | np.int64(digits[state, octant])
            state = np.int64(children[state, octant])
        keys[n] = key
        states[n] = state


@kernel
def fill_coords(keys, bits, octants, children, coords):
    """Descend along the key's digits; the inverse of `fill_keys`."""
    offset = 1 << (bits - 1)
    for n in range(keys.shape[0]):
        key = np.int64(keys[n])
        x = np.int64(0)
        y = np.int64(0)
        z = np.int64(0)
        state = np.int64(0)
        for level in range(bits):
            digit = (key >> (3 * (bits - 1 - level))) & 7
            octant = np.int64(octants[state, digit])
            x = x << 1 | (octant >> 2)
            y = y << 1 | ((octant >> 1) & 1)
            z = z << 1 | (octant & 1)
            state = np.int64(children[state, octant])
        coords[n, 0] = x - offset
        coords[n, 1] = y - offset
        coords[n, 2] = z - offset
