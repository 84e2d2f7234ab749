"""Blosc chunks of LZ4, as they are in VDB files: many small ones, unpacked in one call.

A chunk (c-blosc 1) is a header of 16 bytes, the places of its blocks, and the blocks. A block is
one stream, or one for each byte of a value where the values are split; streams have their length
in front and are LZ4 or, where that gains nothing, plain. Last, bytes are shuffled back: a chunk has
the first bytes of all values, then the second ones, and so on. The LZ4 block format is a sequence
of literals and of matches, copies of what is up to 65,535 bytes back.

Nothing is trusted: every length is compared with what is there, and a chunk that does not fit gets
a status and is left as it is.
"""

from __future__ import annotations

from loki_core.kernels.jit import device, kernel

FINE, DAMAGED, OTHER_FORMAT = 0, 1, 2
HEADER = 16
SHUFFLED, PLAIN, BITS_SHUFFLED, NOT_SPLIT = 1, 2, 4, 16  # flags of a chunk
LZ4_FORMAT = 1
MAX_SPLITS, LEAST_SPLIT = 16, 128  # a value of more bytes, or fewer values, are not split
SHORTEST_MATCH, LONG = 4, 15


@device
def number_at(data, at):
    """Return four bytes as a number, or -1 where it has the highest bit."""
    if data[at + 3] > 127:
        return -1
    value = 0
    for k in range(4):
        value |= int(data[at + k]) << (8 * k)
    return value


@device
def unpack_lz4(data, at, end, out, first, last):
    """Unpack one stream to out[first:last]; return whether it has exactly so much."""
    to = first
    while at < end:
        token = int(data[at])
        at += 1
        count = token >> 4
        if count == LONG:
            more = 255
            while more == 255:
                if at >= end:
                    return False
                more = int(data[at])
                at += 1
                count += more
        if at + count > end or to + count > last:
            return False
        for k in range(count):
            out[to + k] = data[at + k]
        at += count
        to += count
        if at == end:
            return to == last  # the last sequence has no match
        if at + 2 > end:
            return False
        back = int(data[at]) | (int(data[at + 1]) << 8)
        at += 2
        count = token & LONG
        if count == LONG:
            more = 255
            while more == 255:
                if at >= end:
                    return False
                more = int(data[at])
                at += 1
                count += more
        count += SHORTEST_MATCH
        if back == 0 or back > to - first or to + count > last:
            return False
        for k in range(count):  # one by one: a match may overlap what it makes
            out[to + k] = out[to + k - back]
        to += count
    return False


@device
def unpack_chunk(data, begin, end, out, first, last, spare):
    """Unpack one chunk of data[begin:end] to out[first:last], with spare memory beside it."""
    if begin + HEADER > end:
        return DAMAGED
    flags, value_bytes = int(data[begin + 2]), int(data[begin + 3])
    size, block = number_at(data, begin + 4), number_at(data, begin + 8)
    if size != last - first or number_at(data, begin + 12) != end - begin or value_bytes == 0:
        return DAMAGED
    if flags & PLAIN:
        if begin + HEADER + size != end:
            return DAMAGED
        for k in range(size):
            out[first + k] = data[begin + HEADER + k]
        return FINE
    if flags >> 5 != LZ4_FORMAT or flags & BITS_SHUFFLED:
        return OTHER_FORMAT
    if block <= 0 or size <= 0:
        return DAMAGED
    blocks = (size + block - 1) // block
    if begin + HEADER + 4 * blocks > end:
        return DAMAGED
    for number in range(blocks):
        low = first + number * block
        high = min(low + block, last)
        whole = high - low == block
        splits = 1
        if (
            not flags & NOT_SPLIT
            and value_bytes <= MAX_SPLITS
            and block // value_bytes >= LEAST_SPLIT
            and whole
        ):
            splits = value_bytes
        at = number_at(data, begin + HEADER + 4 * number)
        if at < HEADER + 4 * blocks:
            return DAMAGED
        at += begin
        part = (high - low) // splits
        shuffled = flags & SHUFFLED and value_bytes > 1
        for split in range(splits):
            if at + 4 > end:
                return DAMAGED
            length = number_at(data, at)
            at += 4
            if length < 0 or at + length > end:
                return DAMAGED
            to = low + split * part
            if length == part:
                for k in range(part):
                    spare[to + k] = data[at + k]
            elif not unpack_lz4(data, at, at + length, spare, to, to + part):
                return DAMAGED
            at += length
        values = (high - low) // value_bytes if shuffled else 0
        for byte in range(value_bytes if shuffled else 0):
            for k in range(values):
                out[low + k * value_bytes + byte] = spare[low + byte * values + k]
        for k in range(low + values * value_bytes, high):  # a rest is not shuffled
            out[k] = spare[k]
    return FINE


@kernel
def unpack_chunks(data, begins, ends, out, firsts, lasts, spare, status):
    """Unpack chunks.

    Args:
        data: Bytes, with chunk i in data[begins[i]:ends[i]].
        out: Bytes, with what chunk i holds in out[firsts[i]:lasts[i]].
        spare: As many bytes as `out`.
        status: FINE, DAMAGED or OTHER_FORMAT of each chunk.
    """
    for i in range(begins.shape[0]):
        status[i] = unpack_chunk(data, begins[i], ends[i], out, firsts[i], lasts[i], spare)
