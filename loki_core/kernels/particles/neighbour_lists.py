"""Neighbours of particles, as lists that eight particles share.

Particles are sorted along the space filling curve in cells of half their support
(`particle_sort`, 64-bit keys). Eight that follow each other are a *cluster*; a cluster has one list
of all particles that come within reach of the box around it. A sum over neighbours then works on
eight particles at once (`lanes`): what is farther away than the support adds nothing. No pair needs
a branch, nothing is gathered, and a particle's share of a list is some fifteen numbers.

The cells lie in *blocks* of 8^3, found by a hash table, so space is unbounded and only what is
occupied is stored. Where supports differ, particles of about the same support form a *class* with
cells of their own size, and a cluster looks into the cells of every class.

The order of a list, and so of every sum, follows from the places of the particles alone.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.basics.lanes import LANES, append_lanes, at_least, bits_below, lanes_at
from loki_core.kernels.buckets.bucket_hash import find_bucket, pack_bucket
from loki_core.kernels.jit import device, parallel_kernel, prange

CELLS = 4  # search cells along the edge of a block, each of 2^3 sort cells


@parallel_kernel
def find_cell_starts(offsets, coords, states, order, xs, ys, zs, first, cells_per_metre, starts):
    """Fill starts [blocks, 65]: where the search cells of each block begin, along the curve.

    Args: offsets [blocks + 1]; coords [blocks, 3]; states [blocks]; order [states, 512] from
    `cell_order`; xs, ys, zs sorted coordinates, of which those of this class begin at `first`;
    cells_per_metre of sort cells.
    """
    for block in prange(coords.shape[0]):
        find_starts_of_block(
            offsets[block], offsets[block + 1], coords[block, 0] * 8, coords[block, 1] * 8,
            coords[block, 2] * 8, order[states[block]], xs, ys, zs, first, cells_per_metre,
            starts[block],
        )  # fmt: skip


@device
def find_starts_of_block(
    begin, end, x0, y0, z0, order, xs, ys, zs, first, cells_per_metre, starts
):  # fmt: skip
    reached = 0
    for p in range(begin, end):
        # as `shifted_cell` of particle_sort rounds
        x = np.int64(math.floor(np.float64(xs[first + p]) * cells_per_metre)) - x0
        y = np.int64(math.floor(np.float64(ys[first + p]) * cells_per_metre)) - y0
        z = np.int64(math.floor(np.float64(zs[first + p]) * cells_per_metre)) - z0
        cell = np.int64(order[x << 6 | y << 3 | z]) >> 3
        while reached <= cell:
            starts[reached] = first + p
            reached += 1
    while reached <= 64:
        starts[reached] = first + end
        reached += 1


@parallel_kernel
def list_neighbours(
    clusters, xs, ys, zs, support, skin, largest, cell_size, table_keys, table_values, states,
    order, starts, table_first, block_first, table_last, width, capacity, first, last, entries,
    used,
):  # fmt: skip
    """List, for every cluster, the places within reach of its box.

    Args:
        clusters: Numbers of the clusters that sums are wanted for, int32 [m].
        support: Of each place [m], [places].
        skin: How much farther than the mean of two supports is in reach [m].
        largest: Largest support of each class [m], [classes].
        cell_size: Edge of a search cell of each class [m], [classes].
        table_keys, table_values: Hash tables of all classes one after the other; those of class c
            are table_first[c] : table_last[c].
        states, starts: Of the blocks of all classes; those of class c begin at block_first[c].
        order: Position along the curve of each sort cell, [states, 512].
        width: Clusters of a chunk, which one thread lists.
        capacity: Entries that a chunk has room for.
        first, last: Filled: where the list of each cluster lies in `entries`, int64 [m].
        used: Filled: how many entries each chunk needs, [chunks]; if it is more than there is room
            for, the lists are void.
    """
    for chunk in prange(used.shape[0]):
        used[chunk] = list_chunk(
            chunk * width,
            min((chunk + 1) * width, clusters.shape[0]),
            clusters, xs, ys, zs, support, skin, largest, cell_size, table_keys, table_values,
            states, order, starts, table_first, block_first, table_last,
            chunk * capacity, capacity, first, last, entries,
        )  # fmt: skip


@device
def list_chunk(
    begin, end, clusters, xs, ys, zs, support, skin, largest, cell_size, table_keys, table_values,
    states, order, starts, table_first, block_first, table_last, place, capacity, first, last,
    entries,
):  # fmt: skip
    """List the neighbours of some clusters from `place` on; returns the room that they need."""
    limit = place + capacity
    start = place
    for c in range(begin, end):
        i = np.int64(clusters[c]) * LANES
        x0, x1 = bounds_of_lanes(xs, i)
        y0, y1 = bounds_of_lanes(ys, i)
        z0, z1 = bounds_of_lanes(zs, i)
        own = np.float64(support[i])
        for lane in range(1, LANES):
            own = max(own, np.float64(support[i + lane]))
        first[c] = place
        for k in range(largest.shape[0]):
            reach = 0.5 * (own + largest[k]) + skin
            place = list_class(
                x0, y0, z0, x1, y1, z1, reach, 1.0 / cell_size[k],
                table_keys[table_first[k] : table_last[k]],
                table_values[table_first[k] : table_last[k]],
                states, order, starts, block_first[k], xs, ys, zs, place, limit, entries,
            )  # fmt: skip
        last[c] = place
    return place + LANES - start


@device
def bounds_of_lanes(xs, i):
    low = np.float64(xs[i])
    high = low
    for lane in range(1, LANES):
        low = min(low, np.float64(xs[i + lane]))
        high = max(high, np.float64(xs[i + lane]))
    return low, high


@device
def list_class(
    x0, y0, z0, x1, y1, z1, reach, per_metre, table_keys, table_values, states, order, starts,
    block_first, xs, ys, zs, place, limit, entries,
):  # fmt: skip
    """Append the places of one class that are within reach of a box; returns the list's end.

    What comes beyond `limit` is counted and not stored.
    """
    i0 = np.int64(math.floor((x0 - reach) * per_metre))
    j0 = np.int64(math.floor((y0 - reach) * per_metre))
    k0 = np.int64(math.floor((z0 - reach) * per_metre))
    i1 = np.int64(math.floor((x1 + reach) * per_metre))
    j1 = np.int64(math.floor((y1 + reach) * per_metre))
    k1 = np.int64(math.floor((z1 + reach) * per_metre))
    square = reach * reach
    for bi in range(i0 >> 2, (i1 >> 2) + 1):
        for bj in range(j0 >> 2, (j1 >> 2) + 1):
            for bk in range(k0 >> 2, (k1 >> 2) + 1):
                found = find_bucket(table_keys, table_values, pack_bucket(bi, bj, bk))
                if found < 0:
                    continue
                block = np.int64(found) + block_first
                along = order[states[block]]
                for i in range(max(i0, bi * 4), min(i1, bi * 4 + 3) + 1):
                    gap_x = outside(i, x0 * per_metre, x1 * per_metre)
                    for j in range(max(j0, bj * 4), min(j1, bj * 4 + 3) + 1):
                        gap_y = outside(j, y0 * per_metre, y1 * per_metre)
                        for k in range(max(k0, bk * 4), min(k1, bk * 4 + 3) + 1):
                            gap_z = outside(k, z0 * per_metre, z1 * per_metre)
                            gap = gap_x * gap_x + gap_y * gap_y + gap_z * gap_z
                            if gap > square * per_metre * per_metre:
                                continue
                            cell = (i & 3) << 7 | (j & 3) << 4 | (k & 3) << 1
                            at = np.int64(along[cell]) >> 3
                            place = list_cell(
                                starts[block, at], starts[block, at + 1], x0, y0, z0, x1, y1, z1,
                                square, xs, ys, zs, place, limit, entries,
                            )  # fmt: skip
    return place


@device
def outside(cell, low, high):
    """How far a unit cell is from an interval, in cells."""
    return max(0.0, cell - high, low - (cell + 1.0))


@device
def list_cell(begin, end, x0, y0, z0, x1, y1, z1, square, xs, ys, zs, place, limit, entries):
    """Append those of the places begin : end whose distance from a box is in reach."""
    for p in range(begin, end, LANES):
        x, y, z = lanes_at(xs, p), lanes_at(ys, p), lanes_at(zs, p)
        dx = at_least(at_least(x0 - x, x - x1), 0.0)
        dy = at_least(at_least(y0 - y, y - y1), 0.0)
        dz = at_least(at_least(z0 - z, z - z1), 0.0)
        bits = bits_below(dx * dx + dy * dy + dz * dz, square)
        if end - p < LANES:
            bits &= (np.uint64(1) << np.uint64(end - p)) - np.uint64(1)
        # beyond the limit it is counted only: the chunk is listed again with more room
        place += append_lanes(entries, min(place, limit - LANES), p, bits)
    return place


@parallel_kernel
def pack_places(rows, position, volume, packed):
    """Bring particles into search order: packed [places, 4] is x, y, z [m] and volume [m^3]."""
    for p in prange(rows.shape[0]):
        row = np.int64(rows[p])
        packed[p, 0] = position[row, 0]
        packed[p, 1] = position[row, 1]
        packed[p, 2] = position[row, 2]
        packed[p, 3] = volume[row]


@parallel_kernel
def split_places(rows, position, xs, ys, zs):
    """Coordinates in search order, one array for each axis."""
    for p in prange(rows.shape[0]):
        row = np.int64(rows[p])
        xs[p] = position[row, 0]
        ys[p] = position[row, 1]
        zs[p] = position[row, 2]


@parallel_kernel
def gather_places(rows, values, found):
    """Fill found [places, c] with the values of rows [n, c]; rows that are not there are left out.

    Args: rows [places].
    """
    for p in prange(rows.shape[0]):
        row = np.int64(rows[p])
        if row < values.shape[0]:
            for c in range(found.shape[1]):
                found[p, c] = values[row, c]


@parallel_kernel
def scatter_places(own, rows, found, values):
    """Write found [places, c] of own places [m] to values [n, c]."""
    for m in prange(own.shape[0]):
        p = np.int64(own[m])
        row = np.int64(rows[p])
        for c in range(values.shape[1]):
            values[row, c] = found[p, c]
