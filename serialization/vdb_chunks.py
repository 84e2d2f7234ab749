"""Compressed values in VDB files: zip, Blosc or plain, each with its length in front.

    length > 0     so many bytes of zip or Blosc
    length <= 0    as many bytes as they are: compressing gained nothing

openvdb writes Blosc with LZ4, which is unpacked by our own kernel. Where numba is missing, as in
hosts, or a chunk has another format, the package `blosc` does it, if it is there.
"""

from __future__ import annotations

import importlib.util
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import FormatError
from loki_core.kernels.basics.lz4_chunks import DAMAGED, FINE, OTHER_FORMAT, unpack_chunks

ZIP, ACTIVE_ONLY, BLOSC = 1, 2, 4  # flags of a tree
MAX_BYTES = 1 << 36


class NeedsOpenvdb(FormatError):
    """A file that is right as far as is seen, and that Loki alone does not read."""


class Cursor:
    """A place in the bytes of a file; no step leads over their end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        begin, end = self.at, self.at + count
        if count < 0 or begin < 0 or end > len(self.data):
            raise FormatError(
                f"cut off or damaged: {count} bytes are expected from byte {begin} on, and the "
                f"file has {len(self.data)}"
            )
        self.at = end
        return self.data[begin:end]

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """Return numbers in a layout of `struct`, which begins with `<`."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def text(self) -> str:
        """Return a text, or what else has its length in front."""
        return self.sized().decode("utf-8", "replace")

    def sized(self) -> bytes:
        (count,) = self.numbers("<I")
        return self.take(count)


class Payloads:
    """Values of many nodes, in the order in which they stand in the file."""

    def __init__(self, compression: int) -> None:
        """Take the flags of the tree."""
        self.compression = compression
        self._plain: list[bytes] = []
        self._chunks: list[tuple[int, int, int, int]] = []  # begin, end, first byte, last byte
        self._size = 0
        self._data = b""

    def take(self, cursor: Cursor, size: int) -> None:
        """Read what unpacks to `size` bytes."""
        if not self.compression & (ZIP | BLOSC):
            self._keep(cursor.take(size))
            return
        (length,) = cursor.numbers("<q")
        begin = cursor.at
        if length <= 0:
            if -length != size:
                raise FormatError(
                    f"damaged at byte {begin}: {-length} bytes of values where {size} are expected"
                )
            self._keep(cursor.take(size))
        elif self.compression & BLOSC:
            if size > 255 * length:  # more than LZ4 can hold in so much
                raise FormatError(f"damaged at byte {begin}: {length} bytes hold no {size}")
            cursor.take(length)
            self._data = cursor.data
            self._chunks.append((begin, begin + length, self._size, self._size + size))
            self._plain.append(bytes(size))
            self._size += size
        else:
            self._keep(_unzipped(cursor.take(length), size, begin))

    def _keep(self, data: bytes) -> None:
        self._plain.append(data)
        self._size += len(data)

    def values(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return all values, one after the other."""
        data = bytearray().join(self._plain)
        if self._chunks:
            _unpack_blosc(
                self._data, np.array(self._chunks, np.int64), np.frombuffer(data, np.uint8)
            )
        return np.frombuffer(data, dtype)


def _unzipped(data: bytes, size: int, begin: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, max(size, 1))
    except zlib.error as error:
        raise FormatError(f"damaged at byte {begin}: {error}") from error
    if len(found) != size or (not stream.eof and stream.decompress(stream.unconsumed_tail, 1)):
        raise FormatError(f"damaged at byte {begin}: values do not unpack to {size} bytes")
    return found


def _unpack_blosc(data: bytes, chunks: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
    """Unpack chunks [n, 4] of begin and end in `data`, first and last byte in `out`."""
    status = np.full(len(chunks), OTHER_FORMAT, np.uint8)
    if importlib.util.find_spec("numba") is not None:
        begins, ends, firsts, lasts = np.ascontiguousarray(chunks.T)
        source = np.frombuffer(data, np.uint8)
        unpack_chunks(source, begins, ends, out, firsts, lasts, np.empty_like(out), status)
    if (status == DAMAGED).any():
        begin = chunks[int(np.argmax(status == DAMAGED)), 0]
        raise FormatError(f"damaged at byte {begin}: no whole Blosc chunk")
    for begin, end, first, last in chunks[status != FINE].tolist():
        out[first:last] = np.frombuffer(
            _unpack_by_package(data[begin:end], last - first, begin), np.uint8
        )


def _unpack_by_package(chunk: bytes, size: int, begin: int) -> bytes:
    try:
        import blosc
    except ImportError as error:
        raise NeedsOpenvdb(
            "it is compressed with a kind of Blosc that needs a package: pip install blosc"
        ) from error
    claimed = struct.unpack("<I", chunk[4:8])[0] if len(chunk) >= 16 else -1
    if claimed != size:
        raise FormatError(f"damaged at byte {begin}: a chunk of {claimed} bytes, expected {size}")
    try:
        return bytes(blosc.decompress(chunk))
    except blosc.blosc_extension.error as error:
        raise FormatError(f"damaged at byte {begin}: {error}") from error
