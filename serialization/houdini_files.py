"""Files of Houdini geometry: `.geo`, `.bgeo`, both with `.gz`, and `.bgeo.sc`.

`.sc` is Houdini's seekable compression: "scf1", the length of metadata (8 bytes, big-endian) and
these, chunks of Blosc each with its own header, an index, its length (8 bytes), "1fcs". It needs
the package `blosc` (extra "houdini").
"""

from __future__ import annotations

import gzip
import struct
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError, InputError, require_file
from loki_vfx.serialization.atomic_file import write_atomic
from loki_vfx.serialization.houdini_geometry import Geometry
from loki_vfx.serialization.houdini_json import decode, encode_binary, encode_text
from loki_vfx.serialization.houdini_reader import geometry_of_document
from loki_vfx.serialization.houdini_writer import document_of

SUFFIXES = (".geo", ".bgeo", ".geo.gz", ".bgeo.gz", ".bgeo.sc")
MAX_BYTES = 1 << 36
SC_BEGIN, SC_END, GZIP = b"scf1", b"1fcs", b"\x1f\x8b"
SC_CHUNK = 1 << 20  # bytes of one chunk, uncompressed
BLOSC_HEADER = 16


def read_geometry(path: str | Path) -> Geometry:
    """Return the geometry of a file, whatever it is compressed with.

    Raises:
        FormatError: It is damaged, or something else.
    """
    path = Path(path)
    require_file(path)
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(f"{path} has {path.stat().st_size} bytes; at most {MAX_BYTES} are read")
    try:
        return read_bytes(path.read_bytes())
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def read_bytes(data: bytes) -> Geometry:
    """Return the geometry that a file's bytes, or those of `hou.Geometry.data`, describe."""
    if data[:2] == GZIP:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"damaged gzip: {error}") from error
    elif data[:4] == SC_BEGIN:
        data = _decompress_sc(data)
    return geometry_of_document(decode(data))


def write_geometry(path: str | Path, geometry: Geometry) -> None:
    """Write a file in the form that its name asks for, all or nothing."""
    path = Path(path)
    parts: list[Any]
    if path.name.endswith((".geo", ".geo.gz")):
        parts = [encode_text(document_of(geometry))]
    elif path.name.endswith(SUFFIXES):
        parts = list(encode_binary(document_of(geometry)))
    else:
        raise InputError(f"{path.name}: Houdini geometry ends in {', '.join(SUFFIXES)}")
    if path.suffix == ".gz":
        parts = [gzip.compress(b"".join(parts), 1)]
    elif path.suffix == ".sc":
        parts = _compressed_sc(b"".join(parts))
    write_atomic(path, parts)


def write_bytes(geometry: Geometry) -> bytes:
    """Return the binary form, as `hou.Geometry.load` takes it."""
    return b"".join(encode_binary(document_of(geometry)))


def _decompress_sc(data: bytes) -> bytes:
    blosc = _blosc()
    (metadata,) = struct.unpack(">q", data[4:12]) if len(data) >= 24 else (-1,)
    (index,) = struct.unpack(">q", data[-12:-4]) if len(data) >= 24 else (-1,)
    at, end = 12 + metadata, len(data) - 12 - index
    if data[-4:] != SC_END or metadata < 0 or index < 0 or not at <= end:
        raise FormatError("a .sc file that does not end as one does: it is cut off")
    parts = []
    while at < end:
        if at + BLOSC_HEADER > end:
            raise FormatError(f"damaged at byte {at}: a chunk is cut off")
        (size,) = struct.unpack("<I", data[at + 12 : at + BLOSC_HEADER])
        if size < BLOSC_HEADER or at + size > end:
            raise FormatError(f"damaged at byte {at}: no chunk has {size} bytes")
        try:
            parts.append(blosc.decompress(data[at : at + size]))
        except blosc.blosc_extension.error as error:
            raise FormatError(f"damaged at byte {at}: {error}") from error
        at += size
    return b"".join(parts)


def _compressed_sc(data: bytes) -> list[bytes]:
    blosc = _blosc()
    chunks = [
        blosc.compress(data[at : at + SC_CHUNK], typesize=4, clevel=5, cname="lz4")
        for at in range(0, max(len(data), 1), SC_CHUNK)
    ]
    begins = accumulate(len(chunk) for chunk in chunks[:-1])  # of all but the first
    last = len(data) - SC_CHUNK * (len(chunks) - 1)
    index = struct.pack(f">{1 + len(chunks)}q", *begins, SC_CHUNK, last)
    return [SC_BEGIN, struct.pack(">q", 0), *chunks, index, struct.pack(">q", len(index)), SC_END]


def _blosc() -> Any:
    try:
        import blosc
    except ImportError as error:
        raise FormatError('.sc files need the package "blosc": pip install blosc') from error
    return blosc
