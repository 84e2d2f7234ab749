"""Grading: split coarse Buckets until neighbours, corners included, differ by at most one level.

Every sweep splits all Buckets that touch one at least two levels finer. That makes Buckets of the
next finer level, which the next sweep looks at; levels are few, so sweeps are too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import MAXIMUM_LEVEL
from loki_core.errors import InputError
from loki_core.kernels.buckets.bucket_hash import pack_buckets, unpack_buckets

Int32 = NDArray[np.int32]
Codes = NDArray[np.uint64]

_OFFSETS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
_CHILDREN = np.stack(np.meshgrid(*[[0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)


def graded(
    coords: Int32, levels: NDArray[np.uint8], *, period: Int32 | None = None
) -> tuple[Int32, NDArray[np.uint8]]:
    """Return Buckets that cover the same space and are graded.

    Args:
        coords: Lattice coordinates of all Buckets on their levels, shape [n, 3].
        levels: Their levels, shape [n].
        period: Level-0 Buckets along periodic axes, 0 elsewhere; none if None.

    Raises:
        InputError: Two Buckets overlap.
    """
    period = np.zeros(3, np.int32) if period is None else period
    by_level = [np.unique(pack_buckets(coords[levels == one])) for one in range(MAXIMUM_LEVEL + 1)]
    _refuse_overlaps(by_level)
    while True:
        splits = [_too_coarse(by_level, level, period) for level in range(MAXIMUM_LEVEL + 1)]
        if not any(len(chosen) for chosen in splits):
            break
        for level, chosen in enumerate(splits):
            if len(chosen):
                by_level[level] = np.setdiff1d(by_level[level], chosen)
                by_level[level - 1] = np.union1d(by_level[level - 1], _children(chosen))
    found = [(unpack_buckets(codes), level) for level, codes in enumerate(by_level)]
    return (
        np.concatenate([part for part, _ in found]).astype(np.int32),
        np.concatenate([np.full(len(part), level, np.uint8) for part, level in found]),
    )


def _too_coarse(by_level: list[Codes], level: int, period: Int32) -> Codes:
    """Buckets of a level that touch one at least two levels finer."""
    if level < 2 or len(by_level[level]) == 0:
        return np.empty(0, np.uint64)
    found = [np.empty(0, np.uint64)]
    for finer in range(level - 1):
        around = unpack_buckets(by_level[finer])[:, None, :] + _OFFSETS[None]
        around = around.reshape(-1, 3)
        for axis in np.flatnonzero(period):
            around[:, axis] %= max(1, int(period[axis]) >> finer)
        covering = pack_buckets(around >> (level - finer))
        found.append(np.intersect1d(covering, by_level[level]))
    return np.unique(np.concatenate(found))


def _children(codes: Codes) -> Codes:
    children = 2 * unpack_buckets(codes)[:, None, :] + _CHILDREN[None]
    return pack_buckets(children.reshape(-1, 3).astype(np.int32))


def _refuse_overlaps(by_level: list[Codes]) -> None:
    for fine in range(len(by_level)):
        coords = unpack_buckets(by_level[fine])
        for coarse in range(fine + 1, len(by_level)):
            inside = np.isin(pack_buckets(coords >> (coarse - fine)), by_level[coarse])
            if np.any(inside):
                place = tuple(coords[np.argmax(inside)].tolist())
                raise InputError(
                    f"Bucket {place} of level {fine} lies inside a Bucket of level {coarse}; "
                    "a place belongs to one Bucket only"
                )
