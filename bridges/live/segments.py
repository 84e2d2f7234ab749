"""Segments: bulk data between the server and rank 0 of a run, through memory that both can see.

A segment is a file that both map. The writer fills it, the reader uses the parts in place and says
when it is free; then it is filled again, so its pages are made once. Files of kept inputs have the
same layout, with a table in front, and stay on the disk.

    parts, one after the other, each at a multiple of 64 bytes; their sizes travel in the message
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loki_core.errors import FormatError
from loki_core.operating_system import (
    belongs_to_another,
    is_running,
    replace_file,
    reserve_space,
    shared_memory_folder,
)
from loki_vfx.serialization.codec import ALIGNMENT

MAX_SEGMENT_BYTES = 1 << 40
MAX_PARTS = 65_536
_NAME = re.compile(r"segment_\d{1,6}")


def part_views(parts: Sequence[Any]) -> list[memoryview]:
    """Return the bytes of message parts, whatever holds them."""
    return [memoryview(getattr(part, "buffer", part)).cast("B") for part in parts]


def padded(size: int) -> int:
    """Return a size with what fills up its last 64 bytes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class SegmentWriter:
    """Fills segments of a folder, at most `count` of them at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self._count = count
        self._free = [f"segment_{number}" for number in range(count)]
        self._mapped: dict[str, mmap.mmap] = {}

    @property
    def has_free(self) -> bool:
        """Whether `write` can be called now."""
        return bool(self._free)

    def write(self, parts: Sequence[Any]) -> tuple[str, list[int]]:
        """Copy parts into a free segment; return its name and the sizes of the parts.

        Raises:
            OSError: There is not enough shared memory; nothing was taken.
        """
        views = part_views(parts)
        sizes = [view.nbytes for view in views]
        name, area = self._area(self._free[-1], sum(padded(size) for size in sizes))
        self._free.pop()
        start = 0
        for view, size in zip(views, sizes, strict=True):
            if size:
                target = np.frombuffer(area, np.uint8, size, start)
                np.copyto(target, np.frombuffer(view, np.uint8))
            start += padded(size)
        return name, sizes

    def free(self, name: str) -> None:
        """Take a segment back that its reader has done with."""
        if name in self._mapped and name not in self._free:
            self._free.append(name)

    def _area(self, name: str, size: int) -> tuple[str, mmap.mmap]:
        """Return a segment of at least that size: the free one of this name, or one for it."""
        area = self._mapped.get(name)
        if area is not None and len(area) >= size:
            return name, area
        wanted = max(size + size // 8, mmap.PAGESIZE)  # so that slow growth maps anew seldom
        if area is not None:
            area.close()
            del self._mapped[name]
        try:
            (self.folder / name).unlink(missing_ok=True)
        except PermissionError:  # Windows, while its reader maps it: it goes with the folder
            self._count += 1
            name = f"segment_{self._count - 1}"
        path = self.folder / name
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            reserve_space(handle, wanted)
            area = mmap.mmap(handle, wanted)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        self._mapped[name] = area
        return name, area


class SegmentReader:
    """Maps the segments that somebody else fills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mapped: dict[str, tuple[int, mmap.mmap]] = {}

    def parts(self, name: str, sizes: Sequence[int]) -> list[memoryview]:
        """Return the parts of a segment in place; they change when the writer has it back.

        Raises:
            FormatError: There is no such segment, or it is smaller than the sizes say.
        """
        if not _NAME.fullmatch(name):
            raise FormatError(f"{name[:40]!r} is no segment")
        return split_parts(self._area(name), sizes)

    def release(self) -> None:
        """Let go what was mapped; parts that somebody holds stay."""
        self._mapped.clear()

    def _area(self, name: str) -> mmap.mmap:
        path = self.folder / name
        try:
            inode = path.stat().st_ino
            known = self._mapped.get(name)
            if known is None or known[0] != inode:
                known = inode, map_file(path)
                self._mapped[name] = known
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error.strerror}") from error
        return known[1]


def map_file(path: Path) -> mmap.mmap:
    """Map a whole file for reading."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def split_parts(area: Any, sizes: Sequence[int]) -> list[memoryview]:
    """Return the parts of an area by their sizes.

    Raises:
        FormatError: The sizes are not those of parts that fit.
    """
    view = memoryview(area).toreadonly()
    if any(type(size) is not int or not 0 <= size <= MAX_SEGMENT_BYTES for size in sizes):
        raise FormatError("sizes of parts are not counts")
    if sum(padded(size) for size in sizes) > padded(view.nbytes):
        raise FormatError(f"parts of {sum(sizes)} bytes are not in {view.nbytes} bytes")
    parts, start = [], 0
    for size in sizes:
        parts.append(view[start : start + size])
        start += padded(size)
    return parts


def write_parts(path: Path, parts: Sequence[Any]) -> None:
    """Write parts to a file that stays, all or nothing, with a table of their sizes in front."""
    views = part_views(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    table = struct.pack(f"<{len(views) + 1}Q", len(views), *(view.nbytes for view in views))
    try:
        with temporary.open("wb") as file:
            for view in (memoryview(table), *views):
                file.write(view)
                file.write(bytes(padded(view.nbytes) - view.nbytes))
        replace_file(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_parts(path: Path) -> list[memoryview]:
    """Return the parts of such a file, in place.

    Raises:
        FormatError: It is not there, or no such file.
    """
    try:
        area = map_file(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error
    count = struct.unpack_from("<Q", area)[0] if len(area) >= 8 else 0
    if not 0 < count <= MAX_PARTS or 8 * (count + 1) > len(area):
        raise FormatError(f"{path} has no table of parts")
    sizes = list(struct.unpack_from(f"<{count}Q", area, 8))
    return split_parts(memoryview(area)[padded(8 * (count + 1)) :], sizes)


def remove_stale(prefix: str) -> None:
    """Remove shared memory that processes which are no more have left."""
    for folder in shared_memory_folder().glob(f"{prefix}-*"):
        owner = folder.name.rpartition("-")[2]
        alive = owner.isdigit() and is_running(int(owner))
        if not alive and folder.is_dir() and not belongs_to_another(folder.stat()):
            shutil.rmtree(folder, ignore_errors=True)
