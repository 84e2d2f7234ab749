"""Iso-surface: the triangles where a voxel channel of a Discrete Volume is 0, this rank's part.

Each rank makes the triangles of the cubes that begin in its Buckets. Vertices are shared inside a
rank; where two ranks meet both have them, at the same places to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.kernels.buckets.bucket_hash import pack_buckets
from loki_core.kernels.buckets.marching_cubes import (
    EDGE_STARTS,
    SLIDE,
    SMALLEST_PART,
    bucket_extremes,
    count_triangles,
    count_vertices,
    load_nodes,
    number_vertices,
    place_vertices,
    triangle_table,
    write_triangles,
)

WAYS = np.array(list(product((0, 1), repeat=3)), np.int32)


@dataclass(frozen=True)
class IsoSurface:
    """Triangles, facing away from where the channel is below 0.

    Attributes:
        places: Of vertices, in voxels from the domain's origin, float64 [n, 3].
        triangles: int32 [t, 3].
        buckets: A local Bucket near each vertex, int32 [n].
    """

    places: NDArray[np.float64]
    triangles: NDArray[np.int32]
    buckets: NDArray[np.int32]


@dataclass(frozen=True)
class _Blocks:
    """The blocks of nodes with a surface: Buckets, and those below the lower sides of the box."""

    parents: NDArray[np.int32]
    shifts: NDArray[np.int64]
    coords: NDArray[np.int32]
    above: NDArray[np.int32]


def find_iso_surface(
    volume: DiscreteVolume,
    name: str,
    *,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    empty: float,
) -> IsoSurface:
    """Return the surface of a channel whose values are in voxels; it ends at the box. Collective.

    Args:
        lower, upper: Planes of the box, in voxels from the domain's origin; infinite for none.
        empty: Value where no Bucket is, above 0.
    """
    volume.refresh(name, halo=2, corners=True)
    values = volume.with_ghosts(name)
    r, coords, neighbours = values.shape[2], volume.buckets.coords, volume.buckets.neighbours
    blocks = _find_blocks(volume, values)
    nodes = np.empty((len(blocks.parents), r + 3, r + 3, r + 3), values.dtype)
    load_nodes(
        values, coords, neighbours, blocks.parents, blocks.shifts, lower, upper, float(empty), nodes
    )
    corners = blocks.coords.astype(np.int64) * r
    counts = np.empty(len(nodes), np.int64)
    count_vertices(nodes, counts)
    numbers = np.empty((len(nodes), 3, r, r, r), np.int32)
    number_vertices(nodes, _firsts(counts), numbers)
    places = np.empty((int(counts.sum()), 3))
    place_vertices(nodes, numbers, corners, SMALLEST_PART, SLIDE, places)
    buckets = np.repeat(blocks.parents, counts)

    table = (*triangle_table(), EDGE_STARTS)
    triangle_counts, stranger_counts = np.empty_like(counts), np.empty_like(counts)
    count_triangles(nodes, blocks.above, *table, triangle_counts, stranger_counts)
    triangles = np.empty((int(triangle_counts.sum()), 3), np.int64)
    keys = np.empty((int(stranger_counts.sum()), 4), np.int64)
    strange_places = np.empty((len(keys), 3))
    write_triangles(
        nodes, numbers, blocks.above, corners, SMALLEST_PART, SLIDE, *table,
        _firsts(triangle_counts), _firsts(stranger_counts), triangles, keys, strange_places,
    )  # fmt: skip
    if len(keys):  # vertices on edges of other ranks' Buckets: several triangles may have brought
        _, chosen, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        strange = triangles < 0
        triangles[strange] = len(places) + which.reshape(-1)[-1 - triangles[strange]]
        places = np.concatenate((places, strange_places[chosen]))
        buckets = np.concatenate((buckets, np.repeat(blocks.parents, stranger_counts)[chosen]))
    np.clip(places, lower, upper, out=places)
    return IsoSurface(places, triangles.astype(np.int32), buckets)


def _find_blocks(volume: DiscreteVolume, values: NDArray[Any]) -> _Blocks:
    """List the blocks that the surface may cross."""
    buckets = volume.buckets
    lowest, highest = np.empty(len(values)), np.empty(len(values))
    bucket_extremes(values, lowest, highest)
    # ghosts are current in their outer layers only: they may hold anything
    lowest[buckets.local_count :], highest[buckets.local_count :] = -1.0, 1.0
    upwards = buckets.neighbours[:, [13 + 9 * x + 3 * y + z for x, y, z in WAYS]]
    stored = upwards >= 0
    upwards = np.maximum(upwards, 0)
    least = np.where(stored, lowest[upwards], np.inf).min(axis=1)
    most = np.where(stored, highest[upwards], np.inf).max(axis=1)
    crossed = (least < 0.0) & (most >= 0.0)
    parents, shifts = [np.flatnonzero(crossed)], [np.zeros((int(crossed.sum()), 3), np.int64)]
    first, _ = volume.domain.bucket_range()
    at_side = (buckets.local_coords == first) & np.isfinite(volume.domain.lower)
    for way in WAYS[1:]:
        below = np.flatnonzero((least < 0.0) & np.all(at_side[:, way == 1], axis=1))
        parents.append(below)
        shifts.append(np.tile(-way.astype(np.int64), (len(below), 1)))
    parent, shift = np.concatenate(parents).astype(np.int32), np.concatenate(shifts)
    coords = (buckets.local_coords[parent] + shift).astype(np.int32)
    codes = pack_buckets(coords)
    order = np.argsort(codes)
    above = np.full((len(coords), 8), -1, np.int32)
    for number, way in enumerate(WAYS):
        wanted = pack_buckets(coords + way)
        place = np.minimum(np.searchsorted(codes, wanted, sorter=order), max(len(codes) - 1, 0))
        if len(codes):
            found = codes[order[place]] == wanted
            above[found, number] = order[place][found]
    return _Blocks(parent, shift, coords, above)


def _firsts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """What comes before each entry: sums of the ones before."""
    return np.cumsum(counts) - counts
