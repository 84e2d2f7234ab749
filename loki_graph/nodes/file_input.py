"""File input: meshes and volumes from files, one file or one for each frame."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from loki_core.behavior import parameter
from loki_core.errors import SetupError, did_you_mean
from loki_graph.file_of_frame import FileOfFrame
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_vfx.serialization.houdini_files import SUFFIXES as HOUDINI_SUFFIXES

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

MESH_SUFFIXES = (".ply", ".obj", ".stl")
SUFFIXES = (*MESH_SUFFIXES, ".vdb", *HOUDINI_SUFFIXES)


class FileInput(FileOfFrame, Node):
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

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return what the file of the frame holds."""
        file = self.file_in(context, context.whole_frame)
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
