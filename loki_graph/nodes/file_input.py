"""File input: meshes and volumes from files, one file or one for each frame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loki_core.behavior import parameter
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_vfx.serialization.houdini_files import SUFFIXES as HOUDINI_SUFFIXES

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

MESH_SUFFIXES = (".ply", ".obj", ".stl")
SUFFIXES = (*MESH_SUFFIXES, ".vdb", *HOUDINI_SUFFIXES)
_FRAME = re.compile(r"#+|%0?(\d{0,2})d")


class FileInput(Node):
    """Read a mesh (ply, obj, stl), a volume (vdb) or Houdini geometry (geo, bgeo, bgeo.sc).

    `####` or `%04d` in the path stands for the frame.
    """

    path: str = parameter("", doc="The file, relative to the graph's folder.")
    points_only: bool = parameter(False, doc="Leave out the faces of a mesh.")
    grids: tuple[str, ...] = parameter((), doc="Grids of a volume to read; none reads all.")
    frame_offset: int = parameter(0, doc="Added to the frame to get the number in the file's name.")

    def validate(self, place: str) -> None:
        """Check that the suffix is one that can be read."""
        suffix = Path(self.path).suffix.lower()
        if self.path and not self.path.lower().endswith(SUFFIXES):
            raise SetupError(
                f'{place}.path = "{self.path[:200]}" has the unknown suffix "{suffix}"'
                f"{did_you_mean(suffix, SUFFIXES)}"
            )
        if "\0" in self.path:
            raise SetupError(f"{place}.path holds characters that are not text")

    def outputs(self) -> Mapping[str, Socket]:
        """Return one output of the type that the file holds."""
        suffix = Path(self.path).suffix.lower()
        if suffix == ".vdb":
            return {"out": Socket("out", "voxels")}
        if self.path.lower().endswith(HOUDINI_SUFFIXES) and not self.points_only:
            return {"out": Socket("out", "any")}  # the file says what it holds
        mesh = "points" if self.points_only else "surface"
        return {"out": Socket("out", mesh if suffix else "any")}

    def file_at(self, frame: int) -> str:
        """Return the path with the frame's number in place of its pattern."""
        number = frame + self.frame_offset

        def digits(match: re.Match[str]) -> str:
            width = len(match[0]) if match[0][0] == "#" else int(match[1] or 0)
            return f"{number:0{width}d}" if width else str(number)

        return _FRAME.sub(digits, self.path)

    def varies_with_frame(self, context: Context) -> bool:
        """Return whether the path has a pattern for the frame."""
        return _FRAME.search(self.path) is not None

    def stamp(self, context: Context) -> Any:
        """Return the state of the file, so that a changed one is read again."""
        if context.frame is None and self.varies_with_frame(context):
            return str(context.find(self.path, "path"))
        file = self._file(context, context.frame or 0)
        found = file.stat()
        return [str(file), found.st_mtime_ns, found.st_size]

    def _file(self, context: Context, frame: int) -> Path:
        file = context.find(self.file_at(frame), "path")
        if not file.is_file():
            pattern = f" (frame {frame})" if self.varies_with_frame(context) else ""
            raise InputError(f'{context.place}.path: there is no file "{file}"{pattern}')
        return file

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return what the file of the frame holds."""
        file = self._file(context, context.whole_frame)
        if file.suffix.lower() == ".vdb":
            from loki_vfx.serialization.volumes import read_vdb

            return {"out": read_vdb(file, names=self.grids or None)}
        if file.name.lower().endswith(HOUDINI_SUFFIXES):
            from loki_vfx.serialization.houdini_files import read_geometry
            from loki_vfx.serialization.houdini_streams import stream_of

            kind = "points" if self.points_only else "any"
            return {"out": stream_of(read_geometry(file), kind, label=str(file))}
        from loki_vfx.serialization.meshes import read_mesh, read_points

        return {"out": read_points(file) if self.points_only else read_mesh(file)}
