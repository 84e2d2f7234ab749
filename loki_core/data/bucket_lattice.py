"""Bucket Lattice: all Buckets of a box, those around others, and those of a rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import GridDomain
from loki_core.kernels.buckets.bucket_hash import pack_buckets, unpack_buckets

Int32 = NDArray[np.int32]


def lattice(first: Int32, last: Int32) -> Int32:
    """All whole places of [first, last), shape [n, 3]."""
    axes = np.meshgrid(*(np.arange(a, b) for a, b in zip(first, last, strict=True)), indexing="ij")
    return np.stack([axis.reshape(-1) for axis in axes], axis=1).astype(np.int32)


def buckets_around(domain: GridDomain, coords: Int32) -> Int32:
    """The Buckets and all that touch them, each once, inside the box."""
    if len(coords) == 0:
        return np.empty((0, 3), np.int32)
    offsets = lattice(np.full(3, -1, np.int32), np.full(3, 2, np.int32))
    around = (coords[:, None, :] + offsets[None]).reshape(-1, 3).astype(np.int32)
    around = unpack_buckets(np.unique(pack_buckets(domain.wrap(around))))
    first, last = domain.bucket_range()
    return around[np.all((around >= first) & (around < last), axis=1)]


def has_own_buckets(domain: GridDomain, coords: Int32, *, level: int) -> NDArray[np.bool_]:
    """Tell which blocks [n, 3], of 2^level Buckets along an edge, hold Buckets of this rank."""
    if len(coords) == 0:
        return np.zeros(0, bool)
    start = domain.keys(coords, np.full(len(coords), level, np.uint8))
    cuts, rank = domain.cuts, domain.comm.rank
    return np.asarray((start < cuts[rank + 1]) & (start + np.uint64(1 << (3 * level)) > cuts[rank]))
