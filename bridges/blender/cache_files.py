"""Cache files: where the frames of a graph lie, and what is there.

A bake lies in FOLDER/RUN of its graph, with FOLDER relative to the .blend as a rule: a project that
is moved as a whole finds its frames, and a file that was moved alone is told what it misses.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import bpy

from loki_core.errors import LokiError
from loki_vfx.bridges.live.local_server import default_root
from loki_vfx.serialization.frame_cache import FrameCacheReader, whole_frames

DEFAULT_FOLDER = "//loki_cache"
_readers: dict[Path, tuple[float, list[int]]] = {}
_sizes: dict[Path, tuple[float, int]] = {}


def root_of(tree: Any) -> Path:
    """Return the folder of a graph's bakes.

    A file that was never saved has no folder of its own; its bakes go to that of the user.
    """
    folder = tree.loki.folder or DEFAULT_FOLDER
    if folder.startswith("//") and not bpy.data.filepath:
        return default_root()
    return Path(bpy.path.abspath(folder, library=tree.library)).expanduser()


def run_folder(tree: Any) -> Path | None:
    """Return the folder of a graph's bake; None if it was never baked."""
    return root_of(tree) / tree.loki.run if tree.loki.run else None


def cache_folder(tree: Any) -> Path | None:
    """Return the folder of a graph's frames; None if it was never baked."""
    folder = run_folder(tree)
    return None if folder is None else folder / "cache"


def run_name(tree: Any, taken: set[str]) -> str:
    """Return a name for a new bake that no other graph uses."""
    base = re.sub(r"[^A-Za-z0-9_-]", "_", tree.name).lstrip("_-")[:48] or "bake"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def baked_frames(tree: Any) -> list[int]:
    """Return the frames that are there, in order; the folder is read when it has changed."""
    folder = cache_folder(tree)
    if folder is None:
        return []
    try:
        changed = (folder / "frames").stat().st_mtime
    except OSError:
        return []
    known = _readers.get(folder)
    if known is None or known[0] != changed:
        known = _readers[folder] = (changed, whole_frames(folder))
    return known[1]


def baked_bytes(tree: Any) -> int:
    """Return what the frames take on the disk; they are counted when the folder has changed."""
    folder = cache_folder(tree)
    if folder is None:
        return 0
    try:
        changed = (folder / "frames").stat().st_mtime
        known = _sizes.get(folder)
        if known is None or known[0] != changed:
            size = sum(path.stat().st_size for path in (folder / "frames").rglob("*.loki"))
            known = _sizes[folder] = (changed, size)
    except OSError:
        return 0
    return known[1]


def size_words(size: int) -> str:
    """Return bytes as a person reads them."""
    for unit, step in (("GB", 1e9), ("MB", 1e6)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"


def reader_of(tree: Any) -> FrameCacheReader:
    """Return what reads the frames of a graph that was baked."""
    folder = cache_folder(tree)
    assert folder is not None
    return FrameCacheReader(folder)


def types_in(reader: FrameCacheReader, frame: int) -> dict[str, str]:
    """Return the types of the streams in a frame by the names of the results."""
    return {name: parts[0]["type"] for name, parts in reader.index(frame)["objects"].items()}


def what_is_missing(tree: Any) -> str:
    """Return in words what a graph that was baked does not find; empty if nothing is missing."""
    folder = cache_folder(tree)
    if folder is None:
        return ""
    if not folder.exists():
        return f"{tree.name}: its frames are not in {folder}; move them there, or bake again"
    try:
        frames = whole_frames(folder)
    except LokiError as error:
        return f"{tree.name}: {error}"
    if frames and frames != list(range(frames[0], frames[-1] + 1)):
        there = set(frames)
        first = next(one for one in range(frames[0], frames[-1]) if one not in there)
        return f"{tree.name}: frame {first} is missing in {folder}"
    return ""
