"""An open addressing hash table from packed Bucket codes to int32 values.

A Bucket's *code* packs its signed coordinates, each plus 2^17, into `i << 36 | j << 18 | k`. A
table is two arrays of the same power of two length, never more than half full; an unused place
holds `EMPTY`. A collision moves on to the next place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.kernels.basics.space_filling_curve import BUCKET_BITS
from loki_core.kernels.jit import device, kernel

EMPTY = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
BUCKET_OFFSET = 1 << BUCKET_BITS - 1
BUCKET_MASK = (1 << BUCKET_BITS) - 1

Codes = npt.NDArray[np.uint64]


def pack_buckets(coords: npt.NDArray[np.int32]) -> Codes:
    """Return the code of each Bucket, for signed coordinates of shape [n, 3]."""
    shifted = np.asarray(coords, np.int64) + BUCKET_OFFSET
    codes = shifted[:, 0] << 2 * BUCKET_BITS | shifted[:, 1] << BUCKET_BITS | shifted[:, 2]
    return codes.astype(np.uint64)


def unpack_buckets(codes: Codes) -> npt.NDArray[np.int32]:
    """Return the signed coordinates [n, 3] of Buckets, given their codes."""
    signed = np.asarray(codes, np.uint64).astype(np.int64)
    axes = (signed >> 2 * BUCKET_BITS, signed >> BUCKET_BITS, signed)
    return (np.stack(axes, axis=1) & BUCKET_MASK).astype(np.int32) - np.int32(BUCKET_OFFSET)


def build_table(codes: Codes) -> tuple[Codes, npt.NDArray[np.int32]]:
    """Return `(table_keys, table_values)`, which map each code to its row in `codes`."""
    size = table_size(len(codes))
    table_keys = np.full(size, EMPTY, np.uint64)
    table_values = np.full(size, -1, np.int32)
    insert_buckets(np.ascontiguousarray(codes, np.uint64), table_keys, table_values)
    return table_keys, table_values


def find_buckets(
    table_keys: Codes, table_values: npt.NDArray[np.int32], *, codes: Codes
) -> npt.NDArray[np.int32]:
    """Return the value of each code, or -1 where the table does not have it."""
    values = np.empty(len(codes), np.int32)
    look_up_buckets(table_keys, table_values, np.ascontiguousarray(codes, np.uint64), values)
    return values


def table_size(count: int) -> int:
    """Smallest allowed length of a table that holds `count` Buckets."""
    return max(16, 1 << (2 * count - 1).bit_length())


@device
def pack_bucket(i, j, k):
    """Code of the Bucket with signed coordinates i, j, k."""
    return np.uint64((i + BUCKET_OFFSET) << 36 | (j + BUCKET_OFFSET) << 18 | (k + BUCKET_OFFSET))


@device
def first_slot(code, mask):
    """Place where the search for a code begins, in a table of length mask + 1."""
    # Two 32-bit products, which vectorise and, being below 2^59, do not overflow anywhere.
    low = (code & np.uint64(0x7FF_FFFF)) * np.uint64(0x9E37_79B1)
    high = (code >> np.uint64(27)) * np.uint64(0x85EB_CA77)
    mixed = low ^ high
    return (mixed ^ (mixed >> np.uint64(23))) & mask


@device
def bucket_slot(table_keys, code):
    """Place of the code in the table, or the unused place where it belongs."""
    mask = np.uint64(table_keys.shape[0] - 1)
    slot = first_slot(code, mask)
    while table_keys[slot] != code and table_keys[slot] != EMPTY:
        slot = (slot + np.uint64(1)) & mask
    return slot


@device
def find_bucket(table_keys, table_values, code):
    """Value of the code, or -1 where the table does not have it."""
    slot = bucket_slot(table_keys, code)
    if table_keys[slot] == code:
        return np.int32(table_values[slot])
    return np.int32(-1)


@kernel
def insert_buckets(codes, table_keys, table_values):
    """Map each code to its row; of equal codes the first row stays."""
    for row in range(codes.shape[0]):
        slot = bucket_slot(table_keys, codes[row])
        if table_keys[slot] == EMPTY:
            table_keys[slot] = codes[row]
            table_values[slot] = row


@kernel
def look_up_buckets(table_keys, table_values, codes, values):
    """Fill `values` with `find_bucket` of each code."""
    for row in range(codes.shape[0]):
        values[row] = find_bucket(table_keys, table_values, codes[row])
