"""Bake record: which graph of which .blend a bake was made for, over which frames, and where.

It lies beside the frames, so that a copied graph or file does not replace the bake of its original,
and a file that is opened again knows what it still has to get.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import bpy

from loki_core.errors import FormatError
from loki_vfx.serialization.atomic_file import read_json, write_json

from . import cache_files

FILE = "blender.json"


@dataclass(frozen=True)
class BakeRecord:
    """What is known of a bake.

    Attributes:
        graph: The name of its graph.
        file: The name of the .blend file; empty if it was never saved.
        frames: The first and the last frame that were asked for.
        server: The endpoint of the server that computes it; empty for one on this machine.
    """

    graph: str
    file: str
    frames: tuple[int, int] | None = None
    server: str = ""

    @classmethod
    def of(cls, tree: Any, frames: tuple[int, int], server: str) -> Self:
        """Return the record of a bake that begins now."""
        return cls(tree.name, Path(bpy.data.filepath).name, frames, server)

    def write(self, folder: Path) -> None:
        """Keep it in the folder of the bake."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, asdict(self))


def read_record(tree: Any) -> BakeRecord | None:
    """Return the record of the bake that a graph names; None if there is none."""
    folder = cache_files.run_folder(tree)
    if folder is None:
        return None
    try:
        found = read_json(folder / FILE)[0]
        frames = found.get("frames")
        if frames is not None:
            frames = (int(frames[0]), int(frames[1]))
        return BakeRecord(
            str(found["graph"]), str(found["file"]), frames, str(found.get("server", ""))
        )
    except (FormatError, OSError, LookupError, AttributeError, TypeError, ValueError):
        return None


def is_own(tree: Any) -> bool:
    """Whether a graph may replace the bake that it names: a copied graph or file may not."""
    folder = cache_files.run_folder(tree)
    if folder is None or not folder.is_dir():
        return folder is not None
    record = read_record(tree)
    return record is not None and (record.graph, record.file) == (
        tree.name,
        Path(bpy.data.filepath).name,
    )
