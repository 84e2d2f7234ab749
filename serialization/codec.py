"""Turn documents into frames of bytes and back; a decoder that trusts nothing.

A document is made of None, bool, int (64 bit), float, str, bytes, list, dict with text keys,
numpy arrays, and Loki streams (mesh types, Voxels). Tuples come back as lists and numpy scalars
as Python numbers. Two forms:

    frames = encode(document)     frame 0 is msgpack: ["loki", version, document]; every array is
                                  a further frame, the memory itself, never copied
    data = pack(document)         the same frames as one checksummed block, for files

    packed: magic "LOKIPACK" | version u32 | frame count u32 | total bytes u64 | blake2b-256 |
            8 zero bytes | size of each frame u64 | frames; table and frames padded to 64 bytes

Version 2 of the packed form has compressed frames (`block_compression`). Its table says of each
frame its size u64 and its width u32, 0 where it is as it was, and then the stored size u32 of every
block of every other frame. A block of 1 MiB, the last one of a frame less, is zstd, or is not where
both sizes are the same.

Inside msgpack an array is ext type 1, [dtype, shape, frame], and a stream is ext type 2, its
document. Decoding allocates only what is really there, never what a length field claims, and
raises FormatError for everything that is not right.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from loki_core.data.mesh import STREAM_TYPES, stream_from_document
from loki_core.errors import FormatError
from loki_vfx.serialization.block_compression import BLOCK, block_count, compress, decompress

Buffer = bytes | bytearray | memoryview

CODEC_VERSION = 1
PACK_VERSION, COMPRESSED_VERSION = 1, 2
PACK_MAGIC = b"LOKIPACK"
PACK_HEADER = struct.Struct("<8sIIQ32s8x")
DIGEST_AT = slice(24, 56)  # where the header holds the checksum, taken as zeros when hashing
ALIGNMENT = 64

SIZE_AND_WIDTH = struct.Struct("<QI")

ARRAY_EXT, STREAM_EXT = 1, 2
# ["loki", version, ... as msgpack writes it; the version is one byte so that it can be read first
HEADER_PREFIX = b"\x93\xa4loki"

WIRE_DTYPES = ("|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a decoder accepts at most; the defaults fit a large frame of a simulation."""

    frames: int = 65_536
    total_bytes: int = 1 << 36
    header_bytes: int = 1 << 26  # frame 0: everything but arrays
    items: int = 2_000_000  # numbers, texts, lists and maps together
    list_length: int = 1_000_000
    map_length: int = 100_000
    text_bytes: int = 1 << 24
    depth: int = 64
    dimensions: int = 5


DEFAULT_LIMITS = Limits()


def encode(document: Any) -> list[Buffer]:
    """Return the frames of `document`; arrays are shared, not copied, when contiguous."""
    return list(_encode(document))


def _encode(document: Any) -> _Frames:
    frames = _Frames([b""])
    plain = _plain(document, "document", frames, 0)
    try:
        frames[0] = msgpack.packb(["loki", CODEC_VERSION, plain], use_bin_type=True)
    except (ValueError, OverflowError, TypeError) as error:
        raise FormatError(f"the document cannot be written: {error}") from error
    return frames


def decode(frames: Sequence[Any], *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return the document of `frames`; arrays are read-only views of the frames' own memory."""
    if not 1 <= len(frames) <= limits.frames:
        raise FormatError(f"a message has {len(frames)} frames; expected 1 to {limits.frames}")
    views = [_as_view(frame, i) for i, frame in enumerate(frames)]
    total = sum(view.nbytes for view in views)
    if total > limits.total_bytes:
        raise FormatError(f"a message has {total} bytes; accepted are {limits.total_bytes}")
    return _Decoder(views, limits).document()


@dataclass(frozen=True, slots=True)
class Packed:
    """The one-block form of a document, as parts to be written after one another."""

    parts: list[Buffer]
    digest: str
    size: int
    plain_size: int  # bytes of its frames before compression


def pack_parts(document: Any, *, compressed: bool = False) -> Packed:
    """Return the packed form without joining it, so that large arrays are not copied."""
    frames = _encode(document)
    sizes = [memoryview(frame).nbytes for frame in frames]
    version = COMPRESSED_VERSION if compressed else PACK_VERSION
    table = struct.pack(f"<{len(sizes)}Q", *sizes)
    stored: list[list[Buffer]] = [[frame] for frame in frames]
    if compressed:
        found = [compress(frame, width) for frame, width in zip(frames, frames.widths, strict=True)]
        stored = [one.blocks for one in found]
        table = b"".join(SIZE_AND_WIDTH.pack(one.size, one.width) for one in found)
        lengths = [memoryview(block).nbytes for one in found if one.width for block in one.blocks]
        table += struct.pack(f"<{len(lengths)}I", *lengths)
    body: list[Buffer] = [table, bytes(-len(table) % ALIGNMENT)]
    for blocks in stored:
        body += [*blocks, bytes(-sum(memoryview(one).nbytes for one in blocks) % ALIGNMENT)]
    total = PACK_HEADER.size + sum(memoryview(part).nbytes for part in body)
    blank = PACK_HEADER.pack(PACK_MAGIC, version, len(frames), total, bytes(32))
    digest = _digest([blank, *body])
    header = PACK_HEADER.pack(PACK_MAGIC, version, len(frames), total, digest)
    return Packed([header, *body], digest.hex(), total, sum(sizes))


def pack(document: Any) -> bytes:
    """Return `document` as one checksummed block of bytes."""
    return b"".join(pack_parts(document).parts)


def unpack(data: Any, *, limits: Limits = DEFAULT_LIMITS, label: str = "packed data") -> Any:
    """Return the document of a block that `pack` made; raise FormatError when it is damaged."""
    view = _as_view(data, 0)
    count, digest = read_pack_header(view, view.nbytes, limits=limits, label=label)
    blank = bytearray(view[: PACK_HEADER.size])
    blank[DIGEST_AT] = bytes(32)
    if _digest([blank, view[PACK_HEADER.size :]]) != digest:
        raise FormatError(f"{label} is damaged: its checksum does not match its content")
    try:
        return decode(_split_frames(view, count, label, limits), limits=limits)
    except FormatError as error:
        raise FormatError(f"{label}: {error}") from error


def read_pack_header(
    data: Buffer, size: int, *, limits: Limits = DEFAULT_LIMITS, label: str = "packed data"
) -> tuple[int, bytes]:
    """Return frame count and checksum from the head of a block that has `size` bytes in all."""
    if len(data) < PACK_HEADER.size:
        raise FormatError(f"{label} has {len(data)} bytes: too short, it was cut off")
    magic, version, count, total, digest = PACK_HEADER.unpack_from(data)
    if magic != PACK_MAGIC:
        raise FormatError(f"{label} is no Loki file: it begins with {bytes(magic)!r}")
    if version not in (PACK_VERSION, COMPRESSED_VERSION):
        raise FormatError(
            _version_words(label, "file format", version, PACK_VERSION, COMPRESSED_VERSION)
        )
    if total != size:
        raise FormatError(f"{label} has {size} bytes and should have {total}: it was cut off")
    if total > limits.total_bytes:
        raise FormatError(f"{label} has {total} bytes; accepted are {limits.total_bytes}")
    if not 1 <= count <= limits.frames or PACK_HEADER.size + 8 * count > size:
        raise FormatError(f"{label} claims {count} frames, more than fit in it or are accepted")
    return count, digest


def packed_frames(
    view: memoryview, *, limits: Limits = DEFAULT_LIMITS, label: str = "packed data"
) -> list[memoryview]:
    """Return the frames inside a block without comparing its checksum.

    They are in place, where they are not compressed.
    """
    count, _ = read_pack_header(view, view.nbytes, limits=limits, label=label)
    return _split_frames(view, count, label, limits)


def _split_frames(view: memoryview, count: int, label: str, limits: Limits) -> list[memoryview]:
    (version,) = struct.unpack_from("<I", view, len(PACK_MAGIC))
    if version == COMPRESSED_VERSION:
        return _decompressed_frames(view, count, label, limits)
    sizes = struct.unpack_from(f"<{count}Q", view, PACK_HEADER.size)
    position = _padded(PACK_HEADER.size + 8 * count)
    frames = []
    for i, size in enumerate(sizes):
        end = position + size
        if end > view.nbytes:
            raise FormatError(f"{label}: frame {i} claims {size} bytes, more than are there")
        frames.append(view[position:end])
        position = _padded(end)
    if position != view.nbytes:
        raise FormatError(f"{label} has {view.nbytes - position} bytes after its last frame")
    return frames


def _decompressed_frames(
    view: memoryview, count: int, label: str, limits: Limits
) -> list[memoryview]:
    """Return the frames of version 2; all sizes are compared before any memory is taken."""
    position = PACK_HEADER.size + SIZE_AND_WIDTH.size * count
    if position > view.nbytes:
        raise FormatError(f"{label} claims {count} frames, more than fit in it")
    table = list(SIZE_AND_WIDTH.iter_unpack(view[PACK_HEADER.size : position]))
    total = sum(size for size, _ in table)
    if total > limits.total_bytes:
        raise FormatError(f"{label} has {total} bytes; accepted are {limits.total_bytes}")
    blocks = sum(block_count(size) for size, width in table if width)
    if position + 4 * blocks > view.nbytes:
        raise FormatError(f"{label} claims {blocks} blocks, more than fit in it")
    lengths = iter(struct.unpack_from(f"<{blocks}I", view, position))
    position = _padded(position + 4 * blocks)
    places: list[list[memoryview]] = []
    for i, (size, width) in enumerate(table):
        stored = [next(lengths) for _ in range(block_count(size))] if width else [size]
        end = position + sum(stored)
        if end > view.nbytes or (width and max(stored, default=0) > BLOCK):
            raise FormatError(f"{label}: frame {i} claims more bytes than are there")
        ends = [position, *(position + n for n in accumulate(stored))]
        places.append([view[a:b] for a, b in pairwise(ends)])
        position = _padded(end)
    if position != view.nbytes:
        raise FormatError(f"{label} has {view.nbytes - position} bytes after its last frame")
    try:
        return [
            decompress(parts, size, width) if width else parts[0]
            for parts, (size, width) in zip(places, table, strict=True)
        ]
    except FormatError as error:
        raise FormatError(f"{label}: {error}") from error


class _Frames(list[Buffer]):
    """Frames while they are collected, and how many bytes a number has in each of them."""

    def __init__(self, frames: Iterable[Buffer]) -> None:
        super().__init__(frames)
        self.widths = [1] * len(self)


def _plain(value: Any, place: str, frames: _Frames, depth: int) -> Any:
    """Return `value` in msgpack's own types; arrays are appended to `frames`."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if depth >= DEFAULT_LIMITS.depth:
        raise FormatError(f"{place} is nested deeper than {DEFAULT_LIMITS.depth} levels")
    if isinstance(value, np.ndarray):
        return _array_ext(value, place, frames)
    if isinstance(value, np.generic):
        return _plain(value.item(), place, frames, depth)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise FormatError(f"{place} has the key {key!r}; expected texts as keys")
        return {k: _plain(v, f"{place}.{k}", frames, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{place}[{i}]", frames, depth + 1) for i, v in enumerate(value)]
    if getattr(type(value), "type_name", None) in STREAM_TYPES:
        content = _plain(value.to_document(), place, frames, depth + 1)
        return msgpack.ExtType(STREAM_EXT, msgpack.packb(content, use_bin_type=True))
    if isinstance(value, enum.Enum):
        return _plain(value.value, place, frames, depth)
    raise FormatError(
        f"{place} is of type {type(value).__name__}, which cannot be written; expected numbers, "
        "texts, lists, maps, arrays or streams"
    )


def _array_ext(array: npt.NDArray[Any], place: str, frames: _Frames) -> Any:
    wire = array.dtype.newbyteorder("<")
    if wire.str not in WIRE_DTYPES:
        raise FormatError(f"{place} is an array of {array.dtype}; allowed are {WIRE_DTYPES}")
    if array.ndim > DEFAULT_LIMITS.dimensions:
        raise FormatError(f"{place} has {array.ndim} axes; at most {DEFAULT_LIMITS.dimensions}")
    flat = np.ascontiguousarray(array, dtype=wire).reshape(-1)
    frames.append(flat.view(np.uint8).data if flat.size else b"")
    frames.widths.append(wire.itemsize)
    return msgpack.ExtType(ARRAY_EXT, msgpack.packb([wire.str, list(array.shape), len(frames) - 1]))


class _Decoder:
    """One message while it is being read: what is left of its budget and of its frames."""

    def __init__(self, views: list[memoryview], limits: Limits) -> None:
        self.views = views
        self.limits = limits
        self.items_left = limits.items
        self.unread = set(range(1, len(views)))
        self.inside_stream = False

    def document(self) -> Any:
        head = self.views[0]
        if head.nbytes > self.limits.header_bytes:
            raise FormatError(
                f"frame 0 has {head.nbytes} bytes; accepted are {self.limits.header_bytes}"
            )
        start = len(HEADER_PREFIX)
        if bytes(head[:start]) != HEADER_PREFIX or head.nbytes <= start:
            raise FormatError(f"no Loki message: it begins with {bytes(head[:start])!r}")
        if head[start] != CODEC_VERSION:
            raise FormatError(
                _version_words("the message", "codec", int(head[start]), CODEC_VERSION)
            )
        content = self._unpack(head)[2]
        if self.unread:
            raise FormatError(f"frame {min(self.unread)} belongs to no array of the message")
        return content

    def _unpack(self, data: memoryview) -> Any:
        self.items_left -= scan(data, limits=self.limits, items_left=self.items_left)
        size = data.nbytes
        try:
            return msgpack.unpackb(
                data,
                ext_hook=self._ext,
                object_pairs_hook=_map_of,
                raw=False,
                strict_map_key=True,
                max_str_len=min(size, self.limits.text_bytes),
                max_bin_len=min(size, self.limits.text_bytes),
                max_array_len=min(size, self.limits.list_length),
                max_map_len=min(size, self.limits.map_length),
                max_ext_len=size,
            )
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
            raise FormatError(f"not valid msgpack: {error}") from error

    def _ext(self, code: int, data: bytes) -> Any:
        if code == ARRAY_EXT:
            return self._array(self._unpack(memoryview(data)))
        if self.inside_stream:
            raise FormatError("a stream inside a stream is not allowed")
        self.inside_stream = True
        content = self._unpack(memoryview(data))
        self.inside_stream = False
        return stream_from_document(content)

    def _array(self, description: Any) -> npt.NDArray[Any]:
        if not isinstance(description, list) or len(description) != 3:
            raise FormatError("an array is described by dtype, shape and frame")
        dtype_name, shape, index = description
        if not isinstance(dtype_name, str) or dtype_name not in WIRE_DTYPES:
            raise FormatError(f"array of dtype {str(dtype_name)[:40]!r}; allowed: {WIRE_DTYPES}")
        if not isinstance(shape, list) or len(shape) > self.limits.dimensions:
            raise FormatError(f"an array has at most {self.limits.dimensions} axes")
        if any(type(n) is not int or n < 0 for n in shape):
            raise FormatError(f"array shape {shape} is no list of counts")
        if type(index) is not int or index not in self.unread:
            raise FormatError(f"array frame {index!r} is not there or is used twice")
        self.unread.discard(index)
        view, dtype = self.views[index], np.dtype(dtype_name)
        claimed, extent = dtype.itemsize, dtype.itemsize
        for n in shape:
            claimed, extent = claimed * n, extent * max(n, 1)
        if claimed != view.nbytes or extent > self.limits.total_bytes:
            raise FormatError(
                f"array {dtype_name}{shape} needs {claimed} bytes; frame {index} has {view.nbytes}"
            )
        if claimed == 0:
            array = np.empty(shape, dtype)
            array.flags.writeable = False
            return array
        if dtype.kind == "b" and np.frombuffer(view, np.uint8).max() > 1:
            raise FormatError(f"bool array in frame {index} holds bytes other than 0 and 1")
        array = np.frombuffer(view, dtype).reshape(shape)
        array.flags.writeable = False
        return array


# What follows a msgpack code: a value of so many bytes, or a length field and what it counts.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8}
_FIXED |= {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED_EXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_SIZED = {0xC4: (1, "text"), 0xC5: (2, "text"), 0xC6: (4, "text")}
_SIZED |= {0xC7: (1, "ext"), 0xC8: (2, "ext"), 0xC9: (4, "ext")}
_SIZED |= {0xD9: (1, "text"), 0xDA: (2, "text"), 0xDB: (4, "text")}
_SIZED |= {0xDC: (2, "list"), 0xDD: (4, "list"), 0xDE: (2, "map"), 0xDF: (4, "map")}


def scan(data: memoryview, *, limits: Limits, items_left: int) -> int:
    """Walk one msgpack value without building it; return how many items it has.

    msgpack's own decoder makes a list as long as its length field says before it reads the items,
    and nested fields can claim much more than is there. This walk refuses such fields first.
    """
    size, position, items, remaining = data.nbytes, 0, 0, 1
    open_containers: list[int] = []
    while True:
        while remaining == 0:
            if not open_containers:
                if position != size:
                    raise FormatError(f"{size - position} bytes follow the end of a value")
                return items
            remaining = open_containers.pop()
        remaining -= 1
        items += 1
        if items > items_left:
            raise FormatError(f"more than {limits.items} items; that many are not accepted")
        if position >= size:
            raise FormatError("a value ends too early: it was cut off")
        code = data[position]
        position += 1
        if code < 0x80 or code >= 0xE0:
            continue
        kind, length = "", 0
        if code < 0x90:
            kind, length = "map", code & 0x0F
        elif code < 0xA0:
            kind, length = "list", code & 0x0F
        elif code < 0xC0:
            kind, length = "text", code & 0x1F
        elif code in _FIXED:
            length = _FIXED[code]
        elif code in _FIXED_EXT:
            kind, length = "ext", _FIXED_EXT[code]
        elif code in _SIZED:
            width, kind = _SIZED[code]
            length = int.from_bytes(data[position : position + width], "big")
            position += width
        else:
            raise FormatError(f"byte {position - 1} is {code:#x}, which begins no value")
        if kind in ("list", "map"):
            _check_length(kind, length, limits)
            count = 2 * length if kind == "map" else length
            if count > size - position:
                raise FormatError(f"a {kind} claims {length} items, more than are there")
            if len(open_containers) >= limits.depth:
                raise FormatError(f"nested deeper than {limits.depth} levels")
            open_containers.append(remaining)
            remaining = count
            continue
        if kind == "ext":
            if position >= size or data[position] not in (ARRAY_EXT, STREAM_EXT):
                raise FormatError("an extension type that this codec does not have")
            position += 1
        elif kind == "text":
            _check_length(kind, length, limits)
        position += length
        if position > size:
            raise FormatError(f"a {kind or 'number'} of {length} bytes is cut off")


def _check_length(kind: str, length: int, limits: Limits) -> None:
    accepted = {"list": limits.list_length, "map": limits.map_length, "text": limits.text_bytes}
    if length > accepted[kind]:
        raise FormatError(f"a {kind} of length {length}; accepted are {accepted[kind]}")


def _map_of(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str) or key in result:
            raise FormatError(f"map key {str(key)[:80]!r} is no text, or is there twice")
        result[key] = value
    return result


def _as_view(data: Any, index: int) -> memoryview:
    try:
        return memoryview(data).cast("B").toreadonly()
    except TypeError as error:
        raise FormatError(f"frame {index} is no contiguous block of bytes: {error}") from error


def _padded(size: int) -> int:
    return size + -size % ALIGNMENT


def _digest(parts: Iterable[Buffer]) -> bytes:
    checksum = hashlib.blake2b(digest_size=32)
    for part in parts:
        checksum.update(part)
    return checksum.digest()


def _version_words(label: str, what: str, found: int, *known: int) -> str:
    way_out = "update Loki to read it" if found > known[-1] else "write it again with this Loki"
    read = " and ".join(str(one) for one in known)
    return f"{label} has {what} version {found}; this Loki reads version {read}: {way_out}"
