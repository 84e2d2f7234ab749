"""Frames of bytes compressed in blocks: zstd at its quickest level, after a shuffle where it helps.

    raw        as they are: compressing gains less than a tenth
    zstd       mostly zeros, repeated values, whole numbers
    shuffled   dense numbers: the first bytes of all of them, then the second ones, and so on, so
               that the exponents of neighbours stand side by side

A sample from all over the bytes decides between the three. Blocks are compressed each for itself,
on several threads, and those that do not get smaller are left as they are. Python has zstd from
3.14 on, before that in `backports.zstd`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import FormatError, LokiError

Bytes = npt.NDArray[np.uint8]

BLOCK = 1 << 20
LEVEL = 1
SMALL = 1024  # bytes that are never compressed
GAIN = 0.9  # of the size at most, or it is not worth it
PIECE, PIECES = 1 << 12, 16  # of a sample
THREADS = min(4, os.cpu_count() or 1)
WIDTHS = (1, 2, 4, 8)  # bytes of a number


@dataclass(frozen=True, slots=True)
class Compressed:
    """Bytes in blocks.

    Attributes:
        size: Bytes before.
        width: 0 where they are as they were, else the bytes of a number that were shuffled.
        blocks: What is stored.
    """

    size: int
    width: int
    blocks: list[Any]


def compress(data: Any, width: int) -> Compressed:
    """Return bytes in blocks, compressed where it is worth it; `width` bytes are a number."""
    flat = np.frombuffer(data, np.uint8)
    chosen = _width_for(flat, width)
    if chosen == 0:
        return Compressed(len(flat), 0, [data] if len(flat) else [])
    pieces = [flat[at : at + BLOCK] for at in range(0, len(flat), BLOCK)]
    return Compressed(len(flat), chosen, _on_threads(lambda one: _pack(one, chosen), pieces))


def decompress(blocks: Sequence[memoryview], size: int, width: int) -> memoryview:
    """Return the `size` bytes of blocks; raise FormatError where they are something else."""
    if block_count(size) != len(blocks) or width not in WIDTHS:
        raise FormatError(f"{len(blocks)} blocks of width {width} are no {size} bytes")
    out = np.empty(size, np.uint8)

    def fill(number: int) -> None:
        part = out[number * BLOCK : (number + 1) * BLOCK]
        _unpack(blocks[number], part, width)

    _on_threads(fill, range(len(blocks)))
    return out.data.toreadonly()


def block_count(size: int) -> int:
    """Return how many blocks so many bytes have."""
    return -(-size // BLOCK)


def _width_for(flat: Bytes, width: int) -> int:
    """Return the width that makes a sample smallest, or 0 where none is worth it."""
    if len(flat) < SMALL:
        return 0
    step = max(PIECE, len(flat) // PIECES // 8 * 8)
    sample = np.concatenate([flat[at : at + PIECE] for at in range(0, len(flat), step)])
    found = {1: len(_pack(sample, 1))}
    if width > 1:
        found[width] = len(_pack(sample, width))
    best = min(found, key=lambda one: found[one])
    return best if found[best] <= GAIN * len(sample) else 0


def _pack(block: Bytes, width: int) -> Any:
    data = block.data if width == 1 else _shuffled(block, width).data
    packed = _zstd().compress(data, LEVEL)
    return packed if len(packed) < len(block) else data


def _unpack(stored: memoryview, out: Bytes, width: int) -> None:
    data: Any = stored
    if stored.nbytes != len(out):
        zstd = _zstd()
        try:
            # what the frame itself says, before memory is taken for it
            claimed = zstd.get_frame_info(stored).decompressed_size
            if claimed != len(out):
                raise FormatError(f"a block claims {claimed} bytes where {len(out)} are expected")
            data = zstd.ZstdDecompressor().decompress(stored, len(out))
        except zstd.ZstdError as error:
            raise FormatError(f"a block is damaged: {error}") from error
        if len(data) != len(out):
            raise FormatError(f"a block has {len(data)} bytes where {len(out)} are expected")
    found = np.frombuffer(data, np.uint8)
    if width == 1:
        out[:] = found
        return
    whole = len(out) // width * width
    numbers, bytes_of = out[:whole].reshape(-1, width), found[:whole].reshape(width, -1)
    for k in range(width):  # four times as fast as all at once
        numbers[:, k] = bytes_of[k]
    out[whole:] = found[whole:]


def _shuffled(block: Bytes, width: int) -> Bytes:
    whole = len(block) // width * width
    out = np.empty_like(block)
    out[:whole].reshape(width, -1)[:] = block[:whole].reshape(-1, width).T
    out[whole:] = block[whole:]
    return out


def _on_threads(work: Any, items: Sequence[Any]) -> list[Any]:
    if len(items) < 4:
        return [work(one) for one in items]
    with ThreadPoolExecutor(THREADS) as threads:  # zstd and numpy let other threads run
        return list(threads.map(work, items))


def _zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise LokiError("compressed frames need zstd: pip install backports.zstd")
