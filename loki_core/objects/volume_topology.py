"""Which Buckets a volume needs: those with something in them, and layers of padding around.

All of it is done on packed Bucket codes, rank by rank; whoever owns a wanted Bucket gets it when
the Discrete Volume takes the list.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import HALF_RANGE, GridDomain
from loki_core.errors import InputError
from loki_core.kernels.bucket_hash import pack_buckets, unpack_buckets

Coords = NDArray[np.int32]

#: More Buckets than this in one box are a mistake in the voxel size rather than a wish.
BUCKET_LIMIT = 1 << 26


def padded(domain: GridDomain, coords: Coords, layers: int) -> Coords:
    """Buckets and `layers` layers around them, corners included, inside the domain box."""
    codes = np.unique(pack_buckets(_inside(domain, domain.wrap(coords))))
    for axis in range(3):  # a cube is a product of segments, so one axis after the other
        here = unpack_buckets(codes)
        around = [here]
        for distance in range(1, layers + 1):
            for sign in (-distance, distance):
                moved = here.copy()
                moved[:, axis] += sign
                around.append(moved)
        all_coords = domain.wrap(np.concatenate(around))
        codes = np.unique(pack_buckets(_inside(domain, all_coords)))
    return unpack_buckets(codes)


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
