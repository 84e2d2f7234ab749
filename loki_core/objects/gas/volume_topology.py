"""Which Buckets a volume needs: those with something in them, and padding around.

All of it is done on packed Bucket codes, rank by rank; whoever owns a wanted Bucket gets it when
the Discrete Volume takes the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import HALF_RANGE, GridDomain
from loki_core.errors import InputError
from loki_core.kernels.buckets.bucket_hash import pack_buckets, unpack_buckets

Coords = NDArray[np.int32]

#: Buckets of padding along an axis up to which copies are cheaper than looking for them.
FEW = 5
#: More Buckets than this in one box are a mistake in the voxel size rather than a wish.
BUCKET_LIMIT = 1 << 26


@dataclass(frozen=True)
class Regions:
    """Boxes of voxels, each in a Bucket of its own, that something is in.

    Attributes:
        coords: Buckets, int32 [n, 3].
        ranges: First and last voxel in them along each axis, [n, 2, 3].
    """

    coords: Coords
    ranges: NDArray[np.int64]

    @classmethod
    def whole(cls, coords: Coords, resolution: int) -> Regions:
        """Whole Buckets."""
        ranges = np.zeros((len(coords), 2, 3), np.int64)
        ranges[:, 1] = resolution - 1
        return cls(coords, ranges)

    @classmethod
    def joined(cls, parts: Sequence[Regions]) -> Regions:
        """All boxes of several lists."""
        coords = np.concatenate([part.coords for part in parts])
        return cls(coords, np.concatenate([part.ranges for part in parts]))

    def padded(self, domain: GridDomain, voxels: int, resolution: int) -> Coords:
        """Buckets within `voxels` of a box along every axis, inside the domain box."""
        coords = self.coords.astype(np.int64)
        first = coords + np.floor_divide(self.ranges[:, 0] - voxels, resolution)
        last = coords + np.floor_divide(self.ranges[:, 1] + voxels, resolution)
        box_first, box_last = domain.bucket_range()
        cut = ~np.array(domain.periodic)  # along periodic axes boxes are wrapped instead
        first = np.where(cut, np.maximum(first, box_first), first)
        last = np.where(cut, np.minimum(last, box_last.astype(np.int64) - 1), last)
        inside = np.all(first <= last, axis=1)
        coords, first, last = coords[inside], first[inside], last[inside]
        for axis in range(3):  # a box is a product of segments, so one axis after the other
            counts = last[:, axis] - first[:, axis] + 1
            ends = np.cumsum(counts)
            step = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
            coords, first, last = (np.repeat(a, counts, axis=0) for a in (coords, first, last))
            coords[:, axis] = first[:, axis] + step
            if axis < 2 and len(counts) and counts.max() > FEW:
                # Long segments overlap: what is the same from here on is kept once.
                rest = slice(axis + 1, None)
                same = (coords[:, : axis + 1], first[:, rest], last[:, rest])
                _, kept = np.unique(np.concatenate(same, axis=1), axis=0, return_index=True)
                coords, first, last = coords[kept], first[kept], last[kept]
        limit = HALF_RANGE - 1
        wrapped = domain.wrap(np.clip(coords, -limit, limit).astype(np.int32))
        return unpack_buckets(np.unique(pack_buckets(_inside(domain, wrapped))))


def whole_box(domain: GridDomain, label: str) -> Coords:
    """All Buckets of the domain box that this rank owns."""
    first, last = domain.bucket_range()
    if not (np.all(np.isfinite(domain.lower)) and np.all(np.isfinite(domain.upper))):
        raise InputError(
            f'{label}: region = "box" needs a domain box; set domain_lower and domain_upper'
        )
    return _own(domain, *lattice_of(first, last, label))


def around_box(
    domain: GridDomain, lower: NDArray[np.float64], upper: NDArray[np.float64], label: str
) -> Coords:
    """Buckets that a world box touches [m], as far as they are inside the domain box."""
    if not (np.all(np.isfinite(lower)) and np.all(np.isfinite(upper))):
        return np.empty((0, 3), np.int32)
    size = domain.bucket_size
    box_first, box_last = domain.bucket_range()
    relative = np.stack((lower, upper)) - domain.origin
    limit = HALF_RANGE - 1
    first = np.clip(np.floor(relative[0] / size), -limit, limit).astype(np.int64)
    last = np.clip(np.floor(relative[1] / size) + 1, -limit, limit).astype(np.int64)
    # Along periodic axes the box is wrapped instead of cut.
    cut = ~np.array(domain.periodic)
    first = np.where(cut, np.maximum(first, box_first), first)
    last = np.where(cut, np.minimum(last, box_last), last)
    if np.any(last <= first):
        return np.empty((0, 3), np.int32)
    coords, _ = lattice_of(first.astype(np.int32), last.astype(np.int32), label)
    return _own(domain, domain.wrap(coords), len(coords))


def lattice_of(first: Coords, last: Coords, label: str) -> tuple[Coords, int]:
    """All lattice points in [first, last), shape [n, 3], and their number."""
    counts = np.maximum(0, last.astype(np.int64) - first)
    total = int(counts[0]) * int(counts[1]) * int(counts[2])
    if total > BUCKET_LIMIT:
        raise InputError(
            f"{label}: {total:,} Buckets ({counts.tolist()}) are more than {BUCKET_LIMIT:,}; "
            "enlarge the voxels, or make the region smaller"
        )
    axes = [np.arange(a, b, dtype=np.int32) for a, b in zip(first, last, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return grid.reshape(-1, 3), total


def same_buckets(wanted: Coords, tracked: Coords) -> bool:
    """Whether two lists hold the same Buckets, in any order, each once."""
    if len(wanted) != len(tracked):
        return False
    return bool(np.array_equal(np.sort(pack_buckets(wanted)), np.sort(pack_buckets(tracked))))


def _inside(domain: GridDomain, coords: Coords) -> Coords:
    first, last = domain.bucket_range()
    inside: Coords = coords[np.all((coords >= first) & (coords < last), axis=1)]
    return inside


def _own(domain: GridDomain, coords: Coords, count: int) -> Coords:
    """Those of a list, the same on all ranks, that this rank owns."""
    if domain.comm.size == 1 or count == 0:
        return coords
    mine: Coords = coords[domain.owners(domain.keys(coords)) == domain.comm.rank]
    return mine
