"""Sums over all pairs of particles within a radius, Bucket by Bucket.

Particles are sorted by Bucket (`particle_sort`). Each Bucket is cut into m^3 *search cells*, none
smaller than the radius, and its particles are listed cell by cell. To sum, a Bucket and one layer
of search cells of its neighbours are copied into scratch arrays, relative to the Bucket's corner.
Then each column of cells along z is laid out together with the eight columns around it, z by z:
all neighbours of a particle lie in one contiguous run, and the inner loop vectorises.

A neighbour's place follows from its Bucket's entry in the neighbour table, not from the difference
of positions, so periodic axes need no special case. The order of every sum follows from the order
of the particles and of the table: it does not depend on threads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loki_core.errors import InputError
from loki_core.kernels.jit import device, parallel_kernel, prange, strict_kernel, thread_count

__all__ = [
    "SearchCells",
    "build_search_cells",
    "count_neighbours",
    "density_sum",
    "neighbour_pairs",
]

MAXIMUM_CELLS_PER_AXIS = 8  # more would cost more per Bucket than they save
PADDING = 32  # a run is read in steps of so many particles, which is four vectors of eight
FAR_AWAY = 1.0e18  # [m] where what fills the last step is; its square is finite in float32

Float = npt.NDArray[np.floating[Any]]
Table = npt.NDArray[np.int32]


class SearchCells(NamedTuple):
    """Particles listed by search cell inside each Bucket, and what locates them."""

    position: Float  # sorted by Bucket, relative to the Grid Domain's origin [m], shape [n, 3]
    offsets: npt.NDArray[np.int64]  # first particle of each Bucket, shape [buckets + 1]
    coords: Table  # Bucket coordinates, shape [buckets, 3]
    neighbours: Table  # Bucket at (dx+1)*9 + (dy+1)*3 + dz+1, or negative, shape [buckets, 27]
    bucket_size: float  # [m]
    radius: float  # [m]
    cells_per_axis: int  # m
    order: Table  # particles of a Bucket by search cell, counted from its first, shape [n]
    starts: Table  # first place of each cell in its Bucket, shape [buckets, m^3 + 1]
    local_count: int  # Buckets that are summed for; ghosts follow them
    scratch_size: int  # the most particles that one Bucket and its halo bring together


def build_search_cells(
    position: Float,
    offsets: npt.NDArray[np.int64],
    *,
    coords: Table,
    neighbours: Table,
    bucket_size: float,
    radius: float,
    local_count: int | None = None,
) -> SearchCells:
    """List the particles of every Bucket by search cell.

    Args:
        position: Sorted by Bucket, relative to the Grid Domain's origin [m], shape [n, 3].
        offsets: First particle of each Bucket, shape [buckets + 1].
        coords: Signed Bucket coordinates, shape [buckets, 3].
        neighbours: Neighbour table, shape [buckets, 27]; a negative entry is no Bucket.
        bucket_size: Edge of a Bucket [m].
        radius: Reach of a neighbour [m], at most a Bucket.
        local_count: Buckets to sum for; the rest are ghosts. All when left out.
    """
    if not 0.0 < radius <= bucket_size:
        raise InputError(
            f"radius {radius:g} m is not in (0, {bucket_size:g} m], the size of a Bucket; "
            "use larger Buckets"
        )
    buckets = len(offsets) - 1
    local_count = buckets if local_count is None else local_count
    per_axis = max(1, min(MAXIMUM_CELLS_PER_AXIS, math.floor(bucket_size / radius)))
    order = np.empty(len(position), np.int32)
    starts = np.empty((buckets, per_axis**3 + 1), np.int32)
    list_search_cells(position, offsets, coords, bucket_size, per_axis, order, starts)
    sizes = np.zeros(local_count, np.int64)
    count_halo(neighbours, starts, per_axis, sizes)
    return SearchCells(
        position, offsets, coords, neighbours, bucket_size, radius, per_axis, order, starts,
        local_count, int(sizes.max(initial=0)),
    )  # fmt: skip


def density_sum(cells: SearchCells, mass: Float, density: Float) -> None:
    """Fill the density [kg/m^3] of each local particle, itself included.

    The kernel is W(r) = 315 / (64 pi h^9) (h^2 - r^2)^3 for r < h, with h the radius.

    Args:
        cells: From `build_search_cells`.
        mass: Of every particle [kg], shape [n].
        density: Filled for the particles of local Buckets, shape [n] or shorter.
    """
    factor = 315.0 / (64.0 * math.pi * cells.radius**9)
    sum_density(*_topology(cells), *_scratch(cells), mass, factor, density)


def count_neighbours(cells: SearchCells) -> npt.NDArray[np.int32]:
    """Return how many other particles are within the radius of each local particle."""
    counts = np.zeros(int(cells.offsets[cells.local_count]), np.int32)
    no_mass = np.empty(0, cells.position.dtype)
    count_in_radius(*_topology(cells), *_scratch(cells), no_mass, counts)
    return counts


def neighbour_pairs(cells: SearchCells) -> tuple[npt.NDArray[np.int64], Table]:
    """Return (first, neighbours): those of local particle i are neighbours[first[i]:first[i + 1]].

    Each pair of local particles is listed from both sides; a particle is not its own neighbour.
    Entries are places in `cells.position`, ghosts included, in an order that is always the same.
    """
    counts = count_neighbours(cells)
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    neighbours = np.empty(int(first[-1]), np.int32)
    no_mass = np.empty(0, cells.position.dtype)
    scratch = _scratch(cells)
    hits = np.empty(scratch[-1].shape[:1] + scratch[-1].shape[2:], np.int32)
    list_in_radius(*_topology(cells), *scratch, no_mass, first, hits, neighbours)
    return first, neighbours


def _topology(cells: SearchCells) -> tuple[Any, ...]:
    # the scratch arrays' precision is the positions', and so is the radius that they meet
    return (
        cells.position, cells.offsets, cells.coords, cells.neighbours, cells.order, cells.starts,
        cells.bucket_size, cells.cells_per_axis, cells.position.dtype.type(cells.radius**2),
    )  # fmt: skip


def _scratch(cells: SearchCells) -> tuple[Any, ...]:
    """Blocks of Buckets of about as many particles each, and scratch for each block.

    Particles are kept twice, as the halo and as one column with its neighbours.
    """
    count = max(1, min(4 * thread_count(), cells.local_count))
    particles = cells.offsets[: cells.local_count + 1]
    cuts = np.arange(count + 1) * int(particles[-1]) // count
    blocks = np.searchsorted(particles, cuts).astype(np.int64)
    blocks[0], blocks[-1] = 0, cells.local_count
    side = cells.cells_per_axis + 2
    size = cells.scratch_size + 2 * PADDING
    return (
        blocks,
        np.empty((count, side**3 + 1), np.int32),
        np.empty((count, 2, side + 1), np.int32),
        np.empty((count, 2, 4, size), cells.position.dtype),
        np.empty((count, 2, size), np.int32),
    )


@parallel_kernel
def list_search_cells(position, offsets, coords, bucket_size, per_axis, order, starts):
    """Sort the particles of each Bucket by search cell: a stable counting sort."""
    for bucket in prange(offsets.shape[0] - 1):
        list_bucket(
            position, offsets[bucket], offsets[bucket + 1],
            coords[bucket, 0] * bucket_size,
            coords[bucket, 1] * bucket_size,
            coords[bucket, 2] * bucket_size,
            per_axis / bucket_size, per_axis, order, starts[bucket],
        )  # fmt: skip


@device
def list_bucket(position, begin, end, x0, y0, z0, per_metre, per_axis, order, starts):
    starts[:] = 0
    for j in range(np.uint64(begin), np.uint64(end)):
        cell = search_cell(position, j, x0, y0, z0, per_metre, per_axis)
        starts[cell + np.uint64(1)] += 1
    for cell in range(np.uint64(1), np.uint64(starts.shape[0])):
        starts[cell] += starts[cell - np.uint64(1)]
    # From the last particle back, each cell's end becomes its start: no second array of places.
    for back in range(np.uint64(end - begin)):
        j = np.uint64(end) - np.uint64(1) - back
        cell = search_cell(position, j, x0, y0, z0, per_metre, per_axis) + np.uint64(1)
        starts[cell] -= 1
        order[np.uint64(begin) + np.uint64(starts[cell])] = j - np.uint64(begin)
    total = np.int32(end - begin)
    for cell in range(np.uint64(1), np.uint64(starts.shape[0])):
        starts[cell - np.uint64(1)] = starts[cell]
    starts[starts.shape[0] - 1] = total


@device
def search_cell(position, j, x0, y0, z0, per_metre, per_axis):
    """Linear search cell of a particle; a rounding error at the Bucket's face stays inside."""
    x = min(max(np.int64((position[j, 0] - x0) * per_metre), 0), per_axis - 1)
    y = min(max(np.int64((position[j, 1] - y0) * per_metre), 0), per_axis - 1)
    z = min(max(np.int64((position[j, 2] - z0) * per_metre), 0), per_axis - 1)
    return np.uint64((x * per_axis + y) * per_axis + z)


@parallel_kernel
def count_halo(neighbours, starts, per_axis, sizes):
    """Count the particles that each Bucket and its layer of search cells bring together."""
    for home in prange(sizes.shape[0]):
        total = 0
        for x in range(-1, per_axis + 1):
            for y in range(-1, per_axis + 1):
                for z in range(-1, per_axis + 1):
                    bucket, cell = locate(neighbours, home, x, y, z, per_axis)
                    if bucket >= 0:
                        total += starts[bucket, cell + 1] - starts[bucket, cell]
        sizes[home] = total


@device
def locate(neighbours, home, x, y, z, per_axis):
    """Bucket and linear cell of search cell (x, y, z), which may be one outside the home."""
    i = (x >= 0) + (x >= per_axis)
    j = (y >= 0) + (y >= per_axis)
    k = (z >= 0) + (z >= per_axis)
    bucket = neighbours[home, i * 9 + j * 3 + k]
    x -= (i - 1) * per_axis
    y -= (j - 1) * per_axis
    z -= (k - 1) * per_axis
    return np.int64(bucket), (x * per_axis + y) * per_axis + z


@device
def gather_halo(
    home, position, offsets, coords, neighbours, order, starts, bucket_size, per_axis,
    mass, halo_starts, halo, index,
):  # fmt: skip
    """Copy the particles of a Bucket and its halo, relative to its corner, cell by cell."""
    place = np.uint64(0)
    number = 0
    for x in range(-1, per_axis + 1):
        for y in range(-1, per_axis + 1):
            for z in range(-1, per_axis + 1):
                halo_starts[number] = place
                number += 1
                bucket, cell = locate(neighbours, home, x, y, z, per_axis)
                if bucket >= 0:
                    x0 = (coords[bucket, 0] - ((x >= per_axis) - (x < 0))) * bucket_size
                    y0 = (coords[bucket, 1] - ((y >= per_axis) - (y < 0))) * bucket_size
                    z0 = (coords[bucket, 2] - ((z >= per_axis) - (z < 0))) * bucket_size
                    first = np.uint64(offsets[bucket])
                    begin = np.uint64(starts[bucket, cell])
                    for p in range(begin, np.uint64(starts[bucket, cell + 1])):
                        j = first + np.uint64(order[first + p])
                        halo[0, place] = position[j, 0] - x0
                        halo[1, place] = position[j, 1] - y0
                        halo[2, place] = position[j, 2] - z0
                        if mass.shape[0] > 0:
                            halo[3, place] = mass[j]
                        index[place] = j
                        place += np.uint64(1)
    halo_starts[number] = place


@device
def lay_out_column(x, y, side, halo_starts, halo, halo_index, column_starts, column, index):
    """Copy column (x, y) of cells and the eight around it, z by z.

    `column_starts[0]` is where each z begins, `column_starts[1]` where the column's own cell does.
    """
    place = np.uint64(0)
    for z in range(side):
        column_starts[0, z] = place
        for row_x in range(x - 1, x + 2):
            for row_y in range(y - 1, y + 2):
                if row_x == x and row_y == y:
                    column_starts[1, z] = place
                cell = (row_x * side + row_y) * side + z
                for p in range(np.uint64(halo_starts[cell]), np.uint64(halo_starts[cell + 1])):
                    column[0, place] = halo[0, p]
                    column[1, place] = halo[1, p]
                    column[2, place] = halo[2, p]
                    column[3, place] = halo[3, p]
                    index[place] = halo_index[p]
                    place += np.uint64(1)
    column_starts[0, side] = place
    for _ in range(PADDING):  # the last run of the column may be read past its end
        column[0, place] = FAR_AWAY
        column[1, place] = FAR_AWAY
        column[2, place] = FAR_AWAY
        column[3, place] = 0.0
        index[place] = -1
        place += np.uint64(1)


@device
def run_end(begin, end):
    """End of a run in whole steps. What follows in the column is out of reach, or counts once."""
    step = np.uint64(PADDING)
    return begin + (end - begin + step - np.uint64(1)) // step * step


@parallel_kernel
def sum_density(
    position, offsets, coords, neighbours, order, starts, bucket_size, per_axis, radius2,
    blocks, halo_starts, column_starts, scratch, index, mass, factor, density,
):  # fmt: skip
    side = per_axis + 2
    for block in prange(blocks.shape[0] - 1):
        for home in range(blocks[block], blocks[block + 1]):
            gather_halo(
                home, position, offsets, coords, neighbours, order, starts, bucket_size, per_axis,
                mass, halo_starts[block], scratch[block, 0], index[block, 0],
            )  # fmt: skip
            for x in range(1, side - 1):
                for y in range(1, side - 1):
                    lay_out_column(
                        x, y, side, halo_starts[block], scratch[block, 0], index[block, 0],
                        column_starts[block], scratch[block, 1], index[block, 1],
                    )  # fmt: skip
                    density_in_column(
                        x, y, side, halo_starts[block], column_starts[block],
                        scratch[block, 1, 0], scratch[block, 1, 1],
                        scratch[block, 1, 2], scratch[block, 1, 3],
                        index[block, 1], radius2, factor, density,
                    )  # fmt: skip


@device
def density_in_column(
    x, y, side, halo_starts, column_starts, xs, ys, zs, ms, index, radius2, factor, density
):  # fmt: skip
    for z in range(1, side - 1):
        begin = np.uint64(column_starts[0, z - 1])
        end = run_end(begin, np.uint64(column_starts[0, z + 2]))
        own = np.uint64(column_starts[1, z])
        cell = (x * side + y) * side + z
        for t in range(own, own + np.uint64(halo_starts[cell + 1] - halo_starts[cell])):
            total = density_of_run(xs, ys, zs, ms, begin, end, xs[t], ys[t], zs[t], radius2)
            density[np.uint64(index[t])] = factor * total


@device
def density_of_run(xs, ys, zs, ms, begin, end, x, y, z, radius2):
    """Sum of m (h^2 - r^2)^3 over one run."""
    zero = radius2 - radius2  # of the same precision
    total = zero
    for p in range(begin, end):
        dx = xs[p] - x
        dy = ys[p] - y
        dz = zs[p] - z
        inside = max(radius2 - (dx * dx + dy * dy + dz * dz), zero)
        total += inside * inside * inside * ms[p]
    return total


@parallel_kernel
def count_in_radius(
    position, offsets, coords, neighbours, order, starts, bucket_size, per_axis, radius2,
    blocks, halo_starts, column_starts, scratch, index, mass, counts,
):  # fmt: skip
    side = per_axis + 2
    for block in prange(blocks.shape[0] - 1):
        for home in range(blocks[block], blocks[block + 1]):
            gather_halo(
                home, position, offsets, coords, neighbours, order, starts, bucket_size, per_axis,
                mass, halo_starts[block], scratch[block, 0], index[block, 0],
            )  # fmt: skip
            for x in range(1, side - 1):
                for y in range(1, side - 1):
                    lay_out_column(
                        x, y, side, halo_starts[block], scratch[block, 0], index[block, 0],
                        column_starts[block], scratch[block, 1], index[block, 1],
                    )  # fmt: skip
                    count_in_column(
                        x, y, side, halo_starts[block], column_starts[block],
                        scratch[block, 1, 0], scratch[block, 1, 1], scratch[block, 1, 2],
                        index[block, 1], radius2, counts,
                    )  # fmt: skip


@device
def count_in_column(
    x, y, side, halo_starts, column_starts, xs, ys, zs, index, radius2, counts
):  # fmt: skip
    for z in range(1, side - 1):
        begin = np.uint64(column_starts[0, z - 1])
        end = run_end(begin, np.uint64(column_starts[0, z + 2]))
        own = np.uint64(column_starts[1, z])
        cell = (x * side + y) * side + z
        for t in range(own, own + np.uint64(halo_starts[cell + 1] - halo_starts[cell])):
            found = np.int32(-1)  # itself
            for p in range(begin, end):
                square = squared_distance(xs, ys, zs, p, xs[t], ys[t], zs[t])
                found += np.int32(square <= radius2)
            counts[np.uint64(index[t])] = found


@parallel_kernel
def list_in_radius(
    position, offsets, coords, neighbours, order, starts, bucket_size, per_axis, radius2,
    blocks, halo_starts, column_starts, scratch, index, mass, first, hits, found,
):  # fmt: skip
    side = per_axis + 2
    for block in prange(blocks.shape[0] - 1):
        for home in range(blocks[block], blocks[block + 1]):
            gather_halo(
                home, position, offsets, coords, neighbours, order, starts, bucket_size, per_axis,
                mass, halo_starts[block], scratch[block, 0], index[block, 0],
            )  # fmt: skip
            for x in range(1, side - 1):
                for y in range(1, side - 1):
                    lay_out_column(
                        x, y, side, halo_starts[block], scratch[block, 0], index[block, 0],
                        column_starts[block], scratch[block, 1], index[block, 1],
                    )  # fmt: skip
                    list_in_column(
                        x, y, side, halo_starts[block], column_starts[block],
                        scratch[block, 1, 0], scratch[block, 1, 1],
                        scratch[block, 1, 2], scratch[block, 1, 3],
                        index[block, 1], radius2, first, hits[block], found,
                    )  # fmt: skip


@device
def list_in_column(
    x, y, side, halo_starts, column_starts, xs, ys, zs, squares, index, radius2,
    first, hits, found,
):  # fmt: skip
    """List hits in scratch and copy them: exactly as many as were counted.

    Squared distances come first, because that vectorises (`squares` is the masses' place, which
    is free here); then the hits are listed without branches.
    """
    for z in range(1, side - 1):
        begin = np.uint64(column_starts[0, z - 1])
        end = run_end(begin, np.uint64(column_starts[0, z + 2]))
        own = np.uint64(column_starts[1, z])
        cell = (x * side + y) * side + z
        for t in range(own, own + np.uint64(halo_starts[cell + 1] - halo_starts[cell])):
            for p in range(begin, end):
                squares[p] = squared_distance(xs, ys, zs, p, xs[t], ys[t], zs[t])
            squares[t] = radius2 + radius2  # not its own neighbour
            count = np.uint64(0)
            for p in range(begin, end):
                hits[count] = index[p]
                count += np.uint64(squares[p] <= radius2)
            start = np.uint64(first[np.uint64(index[t])])
            for h in range(count):
                found[start + h] = hits[h]


@strict_kernel
def squared_distance(xs, ys, zs, p, x, y, z):
    """Strict, so that counting and listing round alike, whatever is fused around them."""
    dx = xs[p] - x
    dy = ys[p] - y
    dz = zs[p] - z
    return dx * dx + dy * dy + dz * dz
