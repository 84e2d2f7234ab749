"""Files that are there whole or not at all, and reading them back with bounds.

A file is written beside its final place, flushed to the disk, and renamed; then its folder is
flushed. A process killed at any moment leaves the old file, the new file, or a hidden `.tmp`.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError
from loki_core.operating_system import flush_folder, replace_file
from loki_vfx.serialization.codec import (
    DEFAULT_LIMITS,
    DIGEST_AT,
    PACK_HEADER,
    Buffer,
    Limits,
    Packed,
    pack_parts,
    read_pack_header,
    unpack,
)

JSON_BYTES = 1 << 26  # no manifest or index of ours comes near
PIECE = 1 << 22


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a place to write to; it becomes `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        replace_file(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def write_atomic(path: Path, parts: Iterable[Buffer]) -> None:
    """Write `parts` after one another to `path`, all or nothing, and make the folder if needed."""
    with replacing(path) as temporary, temporary.open("xb") as file:
        for part in parts:
            file.write(part)


def remove_leftovers(folder: Path) -> int:
    """Remove the `.tmp` files that a killed process left in `folder`; return how many."""
    leftovers = list(folder.glob(".*.tmp"))
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def write_json(path: Path, document: Any) -> str:
    """Write `document` as JSON, all or nothing; return its checksum."""
    try:
        text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{path.name} cannot be written as JSON: {error}") from error
    data = text.encode("utf-8", errors="strict")
    write_atomic(path, [data])
    return blake2b(data, digest_size=32).hexdigest()


def read_json(path: Path) -> tuple[Any, str]:
    """Return the content of a JSON file and its checksum; raise FormatError when it is broken."""
    data = _read_bounded(path, JSON_BYTES)
    try:
        return json.loads(data.decode("utf-8")), blake2b(data, digest_size=32).hexdigest()
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is no valid JSON: {error}") from error


def write_packed(path: Path, document: Any, *, compressed: bool = False) -> Packed:
    """Write `document` in packed form, all or nothing; return what was written."""
    packed = pack_parts(document, compressed=compressed)
    write_atomic(path, packed.parts)
    return packed


def read_packed(path: Path, *, limits: Limits = DEFAULT_LIMITS, digest: str | None = None) -> Any:
    """Return the document of a packed file; `digest`, where given, must be its checksum."""
    data = _read_bounded(path, limits.total_bytes)
    document = unpack(data, limits=limits, label=str(path))
    found = data[DIGEST_AT].hex()
    if digest is not None and digest != found:
        raise FormatError(f"{path} is another file than the index says: checksum {found[:12]}...")
    return document


def packed_digest(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return the checksum of a packed file after comparing it with the content, in pieces."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = bytearray(file.read(PACK_HEADER.size))
            _, digest = read_pack_header(head, size, limits=limits, label=str(path))
            head[DIGEST_AT] = bytes(32)
            checksum = blake2b(head, digest_size=32)
            while piece := file.read(PIECE):
                checksum.update(piece)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error
    if checksum.digest() != digest:
        raise FormatError(f"{path} is damaged: its checksum does not match its content")
    return digest.hex()


def _read_bounded(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise FormatError(f"{path} has {size} bytes; accepted are {limit}")
            return file.read(size)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error
