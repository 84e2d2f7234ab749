"""Sort particles by Bucket and, inside a Bucket, along the space filling curve.

The order is canonical: by (Bucket key, cell position along the curve, id). It depends on where
the particles are and on nothing else: not on threads, history or the number of ranks.

    1. classify   blocks of particles find their Buckets in small hash tables of their own
    2. merge      the few Buckets of all blocks are made unique, keyed, and ranked along the curve
    3. rank       each particle gets the number  rank of Bucket * 512 + position of its cell
    4. radix      a stable radix sort on just the bits needed: top digit, then inside its bins
    5. finish     ids decide between particles of one cell; permutation and offsets are written

Steps 3 to 5 work on (number << 32 | particle) in two uint64 arrays: 16 bytes a particle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loki_core.errors import InputError
from loki_core.kernels.basics.hilbert_tables import cell_order
from loki_core.kernels.basics.space_filling_curve import CELL_BITS, bucket_keys
from loki_core.kernels.buckets.bucket_hash import (
    EMPTY,
    bucket_slot,
    first_slot,
    insert_buckets,
    table_size,
    unpack_buckets,
)
from loki_core.kernels.jit import device, kernel, parallel_kernel, prange, thread_count

__all__ = [
    "PositionRangeError",
    "SortedParticles",
    "bucket_codes_of",
    "cell_coords_of",
    "sort_particles",
]

CELLS_PER_BUCKET = 512
MAXIMUM_BUCKETS = 1 << 23  # rank and cell share 32 bits
TOP_BITS = 11  # bits of the radix sort's first digit: its counters fit in the first-level cache
MAXIMUM_TOP_BITS = 12  # one bit more when the top digit is then the Bucket, the rest its cells
SHORT_RUN = 24  # longest run of one cell that insertion sort takes
FIRST_TABLE = 4096  # Buckets that a block expects; its table grows when there are more
PARTICLES_PER_BLOCK = 16384
CHUNK = 512  # particles whose cells are computed together

HALF_CELLS = np.int32(1 << CELL_BITS - 1)
HALF_RANGE = float(HALF_CELLS)
LAST_CELL = np.uint64((1 << CELL_BITS) - 1)
NO_CELL = np.uint32(0xFFFF_FFFF)  # where a position has no cell
NO_COORD = np.int32(-(1 << 31))

Float = npt.NDArray[np.floating]
Codes = npt.NDArray[np.uint64]


class SortedParticles(NamedTuple):
    """Occupied Buckets in curve order, and where each particle goes."""

    codes: Codes  # packed Bucket coordinates (bucket_hash), shape [buckets]
    coords: npt.NDArray[np.int32]  # signed Bucket coordinates, shape [buckets, 3]
    keys: npt.NDArray[np.uint64]  # along the curve, ascending, shape [buckets]
    states: npt.NDArray[np.uint8]  # orientation of the curve in the Bucket, shape [buckets]
    offsets: npt.NDArray[np.int64]  # first particle of each Bucket, shape [buckets + 1]
    permutation: npt.NDArray[np.uint32]  # new place -> old place, shape [kept particles]
    is_identity: bool  # every particle stays where it is


class PositionRangeError(InputError):
    """A position that has no Bucket: not finite, or outside the key range.

    `index` is the first such particle in storage order; the caller knows its id and owner.
    """

    def __init__(self, index: int, position: Float, *, bucket_size: float) -> None:
        self.index = index
        self.position = tuple(float(x) for x in position)
        limit = HALF_RANGE / 8 * bucket_size
        self.reason = (
            f"is outside the key range of {limit:g} m on either side of the Grid Domain's origin; "
            f"use Buckets larger than {bucket_size:g} m, or keep the particle nearer"
            if np.isfinite(position).all()
            else "is not finite; look for a division by zero or a too large time step"
        )
        super().__init__(f"position {self.position} m of particle {index} {self.reason}")


def sort_particles(
    position: Float,
    ids: npt.NDArray[np.int64],
    bucket_size: float,
    *,
    curve: str,
    mask: npt.NDArray[np.bool_] | None = None,
) -> SortedParticles:
    """Find the occupied Buckets and the canonical order of the particles.

    Args:
        position: Positions relative to the Grid Domain's origin [m], shape [n, 3].
        ids: Unique ids, shape [n]; they order the particles of one sort cell.
        bucket_size: Edge of a Bucket [m].
        curve: "morton" or "hilbert".
        mask: Particles to keep, shape [n]; the others get no place. None keeps all.

    Raises:
        PositionRangeError: A kept position is not finite or outside the key range.
    """
    count = len(position)
    if count >= 1 << 32:
        raise InputError(f"{count} particles on one rank; at most {(1 << 32) - 1} can be sorted")
    keep = np.empty(0, np.uint8) if mask is None else np.ascontiguousarray(mask).view(np.uint8)
    packed = np.empty(count, np.uint64)
    other = np.empty(count, np.uint64)

    begin = block_borders(count)
    classes = _classify(position, keep, bucket_size, begin, packed)
    buckets = _merge(classes, curve)
    end = begin[:-1] + classes.written
    in_order = np.empty(len(end), np.uint8)
    digits = _digits(len(buckets.codes))
    places = np.zeros((len(end), 1 << digits.top_bits), np.int64)
    rank_particles(
        packed, begin, end, buckets.local_rank, buckets.states, cell_order(curve), ids,
        np.uint64(digits.low_bits), places, in_order,
    )  # fmt: skip
    kept = int(classes.written.sum())
    if kept < count or not in_order.all() or not _borders_in_order(packed, ids, begin):
        packed, other = _radix_sort(packed, other, begin[:-1], end, digits, places)

    offsets = np.empty(len(buckets.codes) + 1, np.int64)
    offsets[-1] = kept
    permutation, descents = other.view(np.uint32)[:kept], other.view(np.uint32)[count:]
    identity = np.empty(len(begin) - 1, np.uint8)
    borders = block_borders(kept, len(identity))
    chunk_ids = np.empty((len(identity), CHUNK), np.int64)
    finish_order(packed, borders, ids, chunk_ids, permutation, descents, offsets, identity)
    return SortedParticles(
        buckets.codes,
        buckets.coords,
        buckets.keys,
        buckets.states,
        offsets,
        permutation,
        kept == count and bool(identity.all()),
    )


def bucket_codes_of(position: Float, bucket_size: float) -> Codes:
    """Return the packed code of the Bucket of each position [m], shape [n]."""
    codes = np.empty(len(position), np.uint64)
    fill_bucket_codes(position, 8.0 / bucket_size, codes)
    _refuse_bad(position, bucket_size, np.flatnonzero(codes == EMPTY))
    return codes


def cell_coords_of(position: Float, bucket_size: float) -> npt.NDArray[np.int32]:
    """Return the signed sort cell coordinates of each position [m], shape [n, 3]."""
    coords = np.empty((len(position), 3), np.int32)
    fill_cell_coords(position, 8.0 / bucket_size, coords)
    _refuse_bad(position, bucket_size, np.flatnonzero((coords == NO_COORD).any(axis=1)))
    return coords


def block_borders(count: int, blocks: int = 0) -> npt.NDArray[np.int64]:
    """Cut `count` items into blocks for the threads; the result never depends on the cut."""
    blocks = blocks or max(1, min(4 * thread_count(), count // PARTICLES_PER_BLOCK))
    return np.arange(blocks + 1, dtype=np.int64) * count // blocks


class _Classes(NamedTuple):
    codes: Codes  # Buckets that each block met, in the order of meeting, [blocks, capacity]
    counts: npt.NDArray[np.int64]  # how many, [blocks]
    written: npt.NDArray[np.int64]  # particles kept, [blocks]


class _Buckets(NamedTuple):
    codes: Codes
    coords: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    states: npt.NDArray[np.uint8]
    local_rank: npt.NDArray[np.uint32]  # [blocks, capacity]: a block's number -> rank on the curve


def _classify(
    position: Float,
    keep: npt.NDArray[np.uint8],
    bucket_size: float,
    begin: npt.NDArray[np.int64],
    packed: npt.NDArray[np.uint64],
) -> _Classes:
    blocks = len(begin) - 1
    size = table_size(min(FIRST_TABLE, int(np.diff(begin).max())))
    codes = np.empty((blocks, size // 2), np.uint64)
    counts = np.zeros(blocks, np.int64)
    written = np.zeros(blocks, np.int64)
    progress = begin[:-1].copy()
    bad = np.full(blocks, -1, np.int64)
    cells = np.empty((blocks, 3 * CHUNK), np.uint32)
    while True:
        table_keys = np.full((blocks, size), EMPTY, np.uint64)
        table_rows = np.empty((blocks, size), np.int32)
        for block in range(blocks):
            known = codes[block, : counts[block]]
            insert_buckets(known, table_keys[block], table_rows[block])
        classify_particles(
            position.reshape(-1), keep, 8.0 / bucket_size, begin, progress, written,
            table_keys, table_rows, codes, counts, packed, cells, bad,
        )  # fmt: skip
        _refuse_bad(position, bucket_size, bad[bad >= 0])
        if (progress == begin[1:]).all():
            return _Classes(codes, counts, written)
        size *= 4
        more = np.empty((blocks, size // 2 - codes.shape[1]), np.uint64)
        codes = np.concatenate([codes, more], axis=1)


def _merge(classes: _Classes, curve: str) -> _Buckets:
    size = table_size(int(classes.counts.sum()))
    table_keys = np.full(size, EMPTY, np.uint64)
    table_rows = np.empty(size, np.int32)
    codes = np.empty(int(classes.counts.sum()), np.uint64)
    local_rank = np.empty(classes.codes.shape, np.uint32)
    unique = np.zeros(1, np.int64)
    merge_blocks(classes.codes, classes.counts, table_keys, table_rows, codes, local_rank, unique)
    codes = codes[: unique[0]]
    if len(codes) > MAXIMUM_BUCKETS:
        raise InputError(
            f"{len(codes)} occupied Buckets on one rank; at most {MAXIMUM_BUCKETS} can be sorted: "
            "use larger Buckets or more ranks"
        )
    coords = unpack_buckets(codes)
    keys, states = bucket_keys(coords, curve)
    order = np.argsort(keys)  # keys are unique
    rank = np.empty(len(codes), np.uint32)
    rank[order] = np.arange(len(codes), dtype=np.uint32)
    apply_ranks(local_rank, classes.counts, rank)
    return _Buckets(codes[order], coords[order], keys[order], states[order], local_rank)


class _Digits(NamedTuple):
    top_bits: int
    low_bits: int  # below the top digit, in one or two more digits


def _digits(bucket_count: int) -> _Digits:
    """Split the bits of rank * 512 + cell into the digits of the radix sort."""
    bits = (CELLS_PER_BUCKET * max(bucket_count, 1) - 1).bit_length()
    top_bits = bits - 9 if 9 < bits <= 9 + MAXIMUM_TOP_BITS else min(bits, TOP_BITS)
    return _Digits(top_bits, bits - top_bits)


def _radix_sort(
    source: npt.NDArray[np.uint64],
    target: npt.NDArray[np.uint64],
    begin: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    digits: _Digits,
    places: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Sort the kept entries, given as block ranges of `source`; return (sorted, other).

    The top digit, whose counts per block are in `places`, goes first: its bins then fit in the
    cache, and particles that are nearly in order move a short way only.
    """
    bins = np.zeros(places.shape[1] + 1, np.int64)
    np.cumsum(places.sum(axis=0), out=bins[1:])
    places[...] = bins[:-1] + np.cumsum(places, axis=0) - places
    shift = np.uint64(32 + digits.low_bits)
    scatter_digits(source, begin, end, shift, np.uint64(places.shape[1] - 1), places, target)
    source, target = target, source
    if digits.low_bits == 0:
        return source, target
    passes = 1 if digits.low_bits <= TOP_BITS else 2
    digit_bits = -(-digits.low_bits // passes)
    share = np.searchsorted(bins, block_borders(int(bins[-1]), len(begin))).astype(np.int64)
    share[0], share[-1] = 0, len(bins) - 1
    counts = np.empty((len(begin), 1 << digit_bits), np.int64)
    sort_bins(source, bins, share, 32, digit_bits, passes, counts, target)
    return (target, source) if passes == 1 else (source, target)


def _borders_in_order(
    packed: npt.NDArray[np.uint64], ids: npt.NDArray[np.int64], begin: npt.NDArray[np.int64]
) -> bool:
    """Whether the last particle of each block comes before the first of the next."""
    first = begin[1:-1]
    before, after = packed[first - 1] >> np.uint64(32), packed[first] >> np.uint64(32)
    return bool(((before < after) | ((before == after) & (ids[first - 1] < ids[first]))).all())


def _refuse_bad(position: Float, bucket_size: float, bad: npt.NDArray[np.int64]) -> None:
    if len(bad):
        index = int(bad.min())
        raise PositionRangeError(index, position[index], bucket_size=bucket_size)


@device
def shifted_cell(coordinate, cells_per_metre):
    """Sort cell along one axis plus 2^20, or NO_CELL; tested before the cast, without a branch."""
    # float64 whatever the storage is, so that both precisions agree on every border
    cell = np.floor(np.float64(coordinate) * cells_per_metre)
    inside = (cell >= -HALF_RANGE) & (cell < HALF_RANGE)  # false for NaN
    return np.uint32(np.int32(cell if inside else 0.0) + HALF_CELLS) if inside else NO_CELL


@device
def pack_cell(x, y, z):
    """Code of the Bucket of a shifted cell."""
    three = np.uint64(3)
    return (x >> three) << np.uint64(36) | (y >> three) << np.uint64(18) | (z >> three)


@device
def cell_in_bucket(x, y, z):
    """Linear cell inside the Bucket of a shifted cell."""
    seven = np.uint64(7)
    return (x & seven) << np.uint64(6) | (y & seven) << np.uint64(3) | (z & seven)


@parallel_kernel
def fill_bucket_codes(position, cells_per_metre, codes):
    """Fill the code of each position's Bucket; EMPTY marks a bad position."""
    for n in prange(position.shape[0]):
        x = np.uint64(shifted_cell(position[n, 0], cells_per_metre))
        y = np.uint64(shifted_cell(position[n, 1], cells_per_metre))
        z = np.uint64(shifted_cell(position[n, 2], cells_per_metre))
        codes[n] = pack_cell(x, y, z) if (x | y | z) <= np.uint64(LAST_CELL) else EMPTY


@parallel_kernel
def fill_cell_coords(position, cells_per_metre, coords):
    """Fill the coordinates of each position's sort cell; NO_COORD marks what has none."""
    for n in prange(position.shape[0]):
        for axis in range(3):
            cell = shifted_cell(position[n, axis], cells_per_metre)
            coords[n, axis] = np.int32(cell) - HALF_CELLS if cell != NO_CELL else NO_COORD


@parallel_kernel
def classify_particles(
    coordinates, keep, cells_per_metre, begin, progress, written,
    table_keys, table_rows, codes, counts, packed, cells, bad,
):  # fmt: skip
    """Write (Bucket's number in the block, cell, particle) of each kept particle.

    A block whose table is full stops; `progress` tells where to go on with a larger one. The body
    is a device function because LLVM optimises that far better than the same loop in `prange`.
    """
    for block in prange(begin.shape[0] - 1):
        progress[block], written[block], counts[block], bad[block] = classify_block(
            coordinates, keep, cells_per_metre, begin[block], begin[block + 1],
            progress[block], written[block],
            table_keys[block], table_rows[block], codes[block], counts[block],
            packed, cells[block],
        )  # fmt: skip


@device
def classify_block(
    coordinates, keep, cells_per_metre, begin, end, n, written,
    table_keys, table_rows, codes, count, packed, cells,
):  # fmt: skip
    """Classify particles from n on; return (next particle, written, Buckets, bad particle).

    The arithmetic of a whole chunk comes first, because it vectorises; then its look-ups.
    """
    mask = np.uint64(table_keys.shape[0] - 1)
    place = np.uint64(begin + written)
    chunk = cells.shape[0] // 3
    while n < end:
        size = min(chunk, end - n)
        for c in range(3 * size):
            cells[c] = shifted_cell(coordinates[np.uint64(3 * n + c)], cells_per_metre)
        for c in range(size):
            if keep.shape[0] > 0 and keep[np.uint64(n + c)] == 0:
                continue
            x = np.uint64(cells[np.uint64(3 * c)])
            y = np.uint64(cells[np.uint64(3 * c + 1)])
            z = np.uint64(cells[np.uint64(3 * c + 2)])
            if (x | y | z) > np.uint64(LAST_CELL):
                return n + c, np.int64(place) - begin, count, n + c
            code = pack_cell(x, y, z)
            slot = first_slot(code, mask)
            found = table_keys[slot]
            while found != code:  # `bucket_slot`, written out: LLVM keeps this one in registers
                if found == EMPTY:
                    if count == codes.shape[0]:
                        return n + c, np.int64(place) - begin, count, np.int64(-1)
                    table_keys[slot] = code
                    table_rows[slot] = count
                    codes[count] = code
                    count += 1
                    break
                slot = (slot + np.uint64(1)) & mask
                found = table_keys[slot]
            number = np.uint64(table_rows[slot]) << np.uint64(9) | cell_in_bucket(x, y, z)
            packed[place] = number << np.uint64(32) | np.uint64(n + c)
            place += np.uint64(1)
        n += size
    return n, np.int64(place) - begin, count, np.int64(-1)


@kernel
def merge_blocks(block_codes, counts, table_keys, table_rows, codes, local_row, unique):
    """Number the Buckets of all blocks; `local_row` maps a block's own number to it."""
    total = 0
    for block in range(block_codes.shape[0]):
        for local in range(counts[block]):
            code = block_codes[block, local]
            slot = bucket_slot(table_keys, code)
            if table_keys[slot] == EMPTY:
                table_keys[slot] = code
                table_rows[slot] = total
                codes[total] = code
                total += 1
            local_row[block, local] = table_rows[slot]
    unique[0] = total


@kernel
def apply_ranks(local_row, counts, rank):
    for block in range(local_row.shape[0]):
        for local in range(counts[block]):
            local_row[block, local] = rank[local_row[block, local]]


@parallel_kernel
def rank_particles(
    packed, begin, end, local_rank, states, order, ids, low_bits, places, in_order
):  # fmt: skip
    """Replace (number in block, cell) by rank * 512 + place on the curve; count top digits."""
    for block in prange(end.shape[0]):
        in_order[block] = rank_block(
            packed[begin[block] : end[block]], local_rank[block], states, order, ids,
            low_bits, places[block],
        )  # fmt: skip


@device
def rank_block(packed, ranks, states, order, ids, low_bits, places):
    """Rank the particles of a block; return whether they are in order already."""
    ascending = True
    previous = np.uint64(0)
    for p in range(packed.shape[0]):
        entry = packed[p]
        rank = np.uint64(ranks[entry >> np.uint64(41)])
        cell = (entry >> np.uint64(32)) & np.uint64(511)
        number = rank << np.uint64(9) | np.uint64(order[np.uint64(states[rank]), cell])
        particle = entry & np.uint64(0xFFFF_FFFF)
        packed[p] = number << np.uint64(32) | particle
        places[number >> low_bits] += 1
        if ascending and p > 0 and number <= previous:
            ascending = number == previous and ids[particle - np.uint64(1)] < ids[particle]
        previous = number
    return ascending


@parallel_kernel
def scatter_digits(source, begin, end, shift, mask, places, target):
    """Move entries to the places of their top digits; `places` is where each digit begins."""
    for block in prange(end.shape[0]):
        scatter_block(source[begin[block] : end[block]], shift, mask, places[block], target)


@parallel_kernel
def sort_bins(source, bins, share, shift, digit_bits, passes, counts, target):
    """Sort each bin by its lower digits, least significant first, inside the cache.

    `share` gives each thread's block a range of bins, and `counts` its counters.
    """
    mask = np.uint64((1 << digit_bits) - 1)
    for block in prange(share.shape[0] - 1):
        for b in range(share[block], share[block + 1]):
            if bins[b + 1] > bins[b]:
                read = source[bins[b] : bins[b + 1]]
                write = target[bins[b] : bins[b + 1]]
                for number in range(passes):
                    by = np.uint64(shift + number * digit_bits)
                    count_block(read, by, mask, counts[block])
                    start_places(counts[block], mask)
                    scatter_block(read, by, mask, counts[block], write)
                    read, write = write, read


@device
def count_block(source, shift, mask, counts):
    counts[: mask + np.uint64(1)] = 0
    for p in range(source.shape[0]):
        counts[(source[p] >> shift) & mask] += 1


@device
def start_places(counts, mask):
    """Turn counts into the first place of each digit."""
    place = np.int64(0)
    for digit in range(mask + np.uint64(1)):
        count = counts[digit]
        counts[digit] = place
        place += count


@device
def scatter_block(source, shift, mask, places, target):
    for p in range(source.shape[0]):
        entry = source[p]
        digit = (entry >> shift) & mask
        target[np.uint64(places[digit])] = entry
        places[digit] += 1


@parallel_kernel
def finish_order(entries, borders, ids, chunk_ids, permutation, descents, offsets, identity):
    """Order the particles of one cell by id; write the permutation and the Buckets' offsets.

    A run of one cell belongs to the block in which it begins.
    """
    high = np.uint64(32)
    one = np.uint64(1)
    for block in prange(borders.shape[0] - 1):
        total = np.uint64(permutation.shape[0])
        first = np.uint64(borders[block])
        stop = np.uint64(borders[block + 1])
        while 0 < first < stop and (entries[first] ^ entries[first - one]) >> high == 0:
            first += one
        while first < stop < total and (entries[stop] ^ entries[stop - one]) >> high == 0:
            stop += one
        if first < stop:
            found = bubble_once(entries, first, stop, ids, chunk_ids[block], descents, offsets)
            sort_runs(entries, first, stop, ids, descents[first:found])
        identity[block] = extract_particles(entries, first, stop, permutation)


@device
def bubble_once(entries, first, stop, ids, chunk_ids, descents, offsets):
    """Move the larger id behind its neighbour, once along each run; return the list's end.

    That puts runs of two in order, and they are most runs. Where an id is still below its
    predecessor's goes to the list `descents`. No branch depends on an id, because it would be
    mispredicted half of the time; and ids are fetched for a whole chunk, because a short loop
    keeps more of those scattered reads in flight. On the way, note where each Bucket begins.
    """
    one = np.uint64(1)
    found = first
    previous = entries[first - one] if first > 0 else EMPTY
    carried = entries[first]
    carried_id = ids[carried & np.uint64(0xFFFF_FFFF)]
    if (carried ^ previous) >> np.uint64(41) != 0:
        offsets[carried >> np.uint64(41)] = first
    previous = carried
    left_id = carried_id  # of what stands before the carried one
    left_in_cell = False
    chunk = first + one
    while chunk < stop:
        size = min(np.uint64(chunk_ids.shape[0]), stop - chunk)
        for c in range(size):
            chunk_ids[c] = ids[entries[chunk + c] & np.uint64(0xFFFF_FFFF)]
        for c in range(size):
            p = chunk + c
            entry = entries[p]
            entry_id = chunk_ids[c]
            change = entry ^ previous
            if change >> np.uint64(41) != 0:
                offsets[entry >> np.uint64(41)] = p
            in_cell = change >> np.uint64(32) == 0
            swap = in_cell & (entry_id < carried_id)
            settled = entry if swap else carried
            settled_id = entry_id if swap else carried_id
            carried = carried if swap else entry
            carried_id = carried_id if swap else entry_id
            entries[p - one] = settled
            descents[found] = p - one
            found += np.uint64(left_in_cell & (settled_id < left_id))
            previous = entry
            left_id = settled_id
            left_in_cell = in_cell
        chunk += size
    entries[stop - one] = carried  # the largest id of its run
    return found


@device
def sort_runs(entries, first, stop, ids, descents):
    """Sort, by id, each run of one cell that has a descent."""
    high = np.uint64(32)
    done = first
    for d in range(descents.shape[0]):
        p = np.uint64(descents[d])
        if p >= done:
            number = entries[p] >> high
            while p < stop and entries[p] >> high == number:
                if comes_before(entries[p], entries[p - np.uint64(1)], ids):
                    move_back(entries, first, p, stop, ids)
                p += np.uint64(1)
            done = p


@device
def extract_particles(entries, first, stop, permutation):
    """Write the permutation; return whether it is the identity."""
    moved = np.uint64(0)
    for p in range(first, stop):
        particle = entries[p] & np.uint64(0xFFFF_FFFF)
        permutation[p] = particle
        moved |= particle ^ p
    return moved == 0


@device
def comes_before(a, b, ids):
    """Whether entry `a` has the smaller id; the index decides between equal ids."""
    i = a & np.uint64(0xFFFF_FFFF)
    j = b & np.uint64(0xFFFF_FFFF)
    return ids[i] < ids[j] or (ids[i] == ids[j] and i < j)


@device
def move_back(entries, first, p, stop, ids):
    """Insert entry `p` into the sorted part of its run, which lies between `first` and `stop`.

    The usual run is a few particles. When the way back is long, the whole run is sorted by heap
    sort; the rest of it is then found in order.
    """
    high = np.uint64(32)
    one = np.uint64(1)
    entry = entries[p]
    q = p
    while q > first and (entries[q - one] ^ entry) >> high == 0:
        if not comes_before(entry, entries[q - one], ids):
            break
        if p - q == np.uint64(SHORT_RUN):
            entries[q] = entry
            while q > first and (entries[q - one] ^ entry) >> high == 0:
                q -= one
            while p < stop and (entries[p] ^ entry) >> high == 0:
                p += one
            heap_sort(entries, q, p - q, ids)
            return
        entries[q] = entries[q - one]
        q -= one
    entries[q] = entry


@device
def heap_sort(entries, begin, count, ids):
    """Sort `count` entries by id, in place."""
    one = np.uint64(1)
    root = count // np.uint64(2)
    while root > 0:
        root -= one
        sift_down(entries, begin, root, count, ids)
    last = count - one
    while last > 0:
        entries[begin], entries[begin + last] = entries[begin + last], entries[begin]
        sift_down(entries, begin, np.uint64(0), last, ids)
        last -= one


@device
def sift_down(entries, begin, root, count, ids):
    one = np.uint64(1)
    entry = entries[begin + root]
    while True:
        child = root + root + one
        if child >= count:
            break
        if child + one < count and comes_before(
            entries[begin + child], entries[begin + child + one], ids
        ):
            child += one
        if not comes_before(entry, entries[begin + child], ids):
            break
        entries[begin + root] = entries[begin + child]
        root = child
    entries[begin + root] = entry
