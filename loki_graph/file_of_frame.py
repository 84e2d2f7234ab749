"""Files that nodes read: one, or one for each frame, by `####` or `%04d` in the path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loki_core.errors import InputError

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

_FRAME = re.compile(r"#+|%0?(\d{0,2})d")


class FileOfFrame:
    """A node with the parameters `path` and `frame_offset`."""

    path: Any
    frame_offset: Any

    def file_at(self, frame: int) -> str:
        """Return the path with the frame's number in place of its pattern."""
        number = frame + int(self.frame_offset)

        def digits(match: re.Match[str]) -> str:
            width = len(match[0]) if match[0][0] == "#" else int(match[1] or 0)
            return f"{number:0{width}d}" if width else str(number)

        return _FRAME.sub(digits, str(self.path))

    def varies_with_frame(self, context: Context) -> bool:
        """Return whether the path has a pattern for the frame."""
        return _FRAME.search(self.path) is not None

    def stamp(self, context: Context) -> Any:
        """Return the state of the file, so that a changed one is read again."""
        if context.frame is None and self.varies_with_frame(context):
            return str(context.find(self.path, "path"))
        file = self.file_in(context, context.frame or 0)
        found = file.stat()
        return [str(file), found.st_mtime_ns, found.st_size]

    def file_in(self, context: Context, frame: int) -> Path:
        """Return the file of a frame.

        Raises:
            InputError: It is not there.
        """
        file = context.find(self.file_at(frame), "path")
        if not file.is_file():
            pattern = f" (frame {frame})" if self.varies_with_frame(context) else ""
            raise InputError(f'{context.place}.path: there is no file "{file}"{pattern}')
        return file
