"""Neighbour tables of Buckets, over levels, periodic axes and the faces of the domain box.

Direction n of the 27 is the offset (n // 9 - 1, n // 3 % 3 - 1, n % 3 - 1); 13 is the Bucket
itself. An entry is the index of the neighbour, of the same level or one coarser, or a negative
code: -1 nothing stored there, -2 - f beyond face f of the domain box, -8 covered by Buckets one
level finer. `levelled_code` is the hash key of a Bucket on any level.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.bucket_hash import find_bucket, pack_bucket
from loki_core.kernels.jit import device, kernel, parallel_kernel, prange


@device
def levelled_code(level, i, j, k):
    """Hash key of Bucket (level, i, j, k)."""
    return pack_bucket(i, j, k) | (np.uint64(level) << np.uint64(54))


@device
def wrapped(coordinate, period):
    """Lattice coordinate brought back into a periodic axis; period 0 is no period."""
    return coordinate if period == 0 else coordinate % period


@device
def beyond_face(i, j, k, first, last, level):
    """Face code of a lattice place outside the box [first, last), or 0 inside."""
    if i < first[level, 0]:
        return -2
    if i >= last[level, 0]:
        return -3
    if j < first[level, 1]:
        return -4
    if j >= last[level, 1]:
        return -5
    if k < first[level, 2]:
        return -6
    if k >= last[level, 2]:
        return -7
    return 0


@device
def has_finer(table_keys, table_values, level, i, j, k):
    """Whether any of the eight Buckets one level finer is stored."""
    if level == 0:
        return False
    for child in range(8):
        code = levelled_code(
            level - 1, 2 * i + (child >> 2), 2 * j + ((child >> 1) & 1), 2 * k + (child & 1)
        )
        if find_bucket(table_keys, table_values, code) >= 0:
            return True
    return False


@parallel_kernel
def fill_neighbours(coords, levels, period, first, last, table_keys, table_values, neighbours):
    """Fill neighbours int32 [n, 27] with the values of the hash table, or negative codes.

    Args: coords int32 [n, 3]; levels uint8 [n]; period int32 [levels, 3]; first, last int32
        [levels, 3].
    """
    for row in prange(coords.shape[0]):
        level = np.int64(levels[row])
        for direction in range(27):
            i = wrapped(np.int64(coords[row, 0]) + direction // 9 - 1, np.int64(period[level, 0]))
            j = wrapped(
                np.int64(coords[row, 1]) + direction // 3 % 3 - 1, np.int64(period[level, 1])
            )
            k = wrapped(np.int64(coords[row, 2]) + direction % 3 - 1, np.int64(period[level, 2]))
            # Stored Buckets come first, also outside the box, so that neighbours always see each
            # other; codes beyond the key range would be those of other Buckets.
            half = 131072 >> level
            entry = np.int64(-1)
            if -half <= min(i, j, k) and max(i, j, k) < half:
                code = levelled_code(level, i, j, k)
                entry = np.int64(find_bucket(table_keys, table_values, code))
                if entry < 0:
                    code = levelled_code(level + 1, i >> 1, j >> 1, k >> 1)
                    entry = np.int64(find_bucket(table_keys, table_values, code))
            if entry < 0:
                entry = np.int64(beyond_face(i, j, k, first, last, level))
                if entry == 0:
                    finer = has_finer(table_keys, table_values, level, i, j, k)
                    entry = np.int64(-8) if finer else np.int64(-1)
            neighbours[row, direction] = entry


@kernel
def finer_pairs(coords, levels, period, neighbours, table_keys, table_values, rows, others):
    """List the finer Buckets that touch each Bucket, where neighbours says -8; returns how many.

    Fills rows and others int32 as far as they go, so that a first call with empty arrays counts.
    """
    count = 0
    for row in range(coords.shape[0]):
        level = np.int64(levels[row])
        for direction in range(27):
            if neighbours[row, direction] != -8:
                continue
            di = direction // 9 - 1
            dj = direction // 3 % 3 - 1
            dk = direction % 3 - 1
            i = wrapped(np.int64(coords[row, 0]) + di, np.int64(period[level, 0]))
            j = wrapped(np.int64(coords[row, 1]) + dj, np.int64(period[level, 1]))
            k = wrapped(np.int64(coords[row, 2]) + dk, np.int64(period[level, 2]))
            for child in range(8):
                ci = child >> 2
                cj = (child >> 1) & 1
                ck = child & 1
                # Of the children only those against this Bucket touch it.
                if (di == 1 and ci == 1) or (di == -1 and ci == 0):
                    continue
                if (dj == 1 and cj == 1) or (dj == -1 and cj == 0):
                    continue
                if (dk == 1 and ck == 1) or (dk == -1 and ck == 0):
                    continue
                code = levelled_code(level - 1, 2 * i + ci, 2 * j + cj, 2 * k + ck)
                found = find_bucket(table_keys, table_values, code)
                if found >= 0:
                    if count < rows.shape[0]:
                        rows[count] = row
                        others[count] = found
                    count += 1
    return count
