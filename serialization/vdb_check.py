"""Whether a VDB file is whole: openvdb says nothing when the disk does not take all of it.

A file is a header, the number of grids, and for each of them name, type, parent and three offsets,
of which the last says where the grid ends. openvdb fills the offsets in after the grid.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

from loki_core.errors import DiskFullError

_HEADER = struct.Struct("<qIIIb36s")  # magic, three versions, whether there are offsets, uuid


def check_whole(path: Path) -> None:
    """Raise DiskFullError where a file that was just written has less than its own offsets say."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            whole = _last_end(file) <= size
        except struct.error:
            whole = False
    if not whole:
        raise DiskFullError(f"no room on the disk for all of {path.name}; make room, and try again")


def _last_end(file: BinaryIO) -> int:
    """Return where the last grid ends."""
    _read(file, _HEADER)
    for _ in range(_number(file)):  # of the file's own metadata
        _skip_text(file)
        _skip_text(file)
        _skip_text(file)  # a value of any type has its length in front as well
    end = file.tell() + 4
    for _ in range(_number(file)):
        _skip_text(file)
        _skip_text(file)
        _skip_text(file)
        start, _, end = _read(file, struct.Struct("<3q"))
        if not 0 < start <= end:
            raise struct.error("the offsets were never filled in")
        file.seek(end)
    return end


def _read(file: BinaryIO, layout: struct.Struct) -> tuple[Any, ...]:
    return layout.unpack(file.read(layout.size))


def _number(file: BinaryIO) -> int:
    return int(_read(file, struct.Struct("<I"))[0])


def _skip_text(file: BinaryIO) -> None:
    file.seek(_number(file), os.SEEK_CUR)
