"""Volumes: baked frames of voxels as objects on VDB files, which are written beside the frames.

The file of a new frame is written in another thread. Until it is there, what was shown stays; a
render waits for it. The file of an older frame that has none is written when it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from loki_vfx.serialization.frame_cache import FrameCacheReader

from .axes import Axes
from .background import Background
from .loki_to_host import show_volume
from .volume_files import volume_path, write_volume

VOXELS = "voxels"
_writer: Background | None = None
_being_written: dict[Path, Future[None]] = {}
_last_shown: dict[tuple[Path, str], int] = {}  # frames, by folder and name of the result


def folder_beside(reader: FrameCacheReader) -> Path:
    """Return where the volumes of baked frames lie as VDB files."""
    return reader.folder.parent / "vdb"


def prepare(
    reader: FrameCacheReader,
    frame: int,
    names: Sequence[str],
    *,
    then: Callable[[], None],
    failed: Callable[[Exception], None],
) -> None:
    """Write the VDB files of a new frame in another thread, and go on when they are there.

    Args:
        names: Of the results that are volumes.
        then: Is called in Blender's own thread.
        failed: Is called there with what went wrong.
    """
    global _writer
    folder = folder_beside(reader)
    paths = [volume_path(folder, name, frame) for name in names]
    if not paths:
        then()
        return

    def write() -> None:
        for name in names:
            write_volume(folder, name, frame, reader.read(frame, name))

    _writer = _writer or Background("loki volumes")
    for path in [path for path, one in _being_written.items() if one.done()]:
        del _being_written[path]
    written = _writer.do(write, then=lambda _: then(), failed=failed)
    _being_written.update(dict.fromkeys(paths, written))


def is_writing() -> bool:
    """Whether files of new frames are still to come."""
    return any(not one.done() for one in _being_written.values())


def take_in() -> None:
    """Go on with files that were written since the last time. Never waits."""
    if _writer is not None:
        _writer.take_in()


def show(
    reader: FrameCacheReader,
    name: str,
    frame: int,
    axes: Axes,
    *,
    frames: Sequence[int],
    wait: bool,
    label: str,
    target: Any,
    collection: Any,
) -> Any:
    """Let an object show a frame, or what it showed if the file is not written yet.

    Args:
        frames: All that are baked.
        wait: Wait for the file instead.
        label: Of a new object.

    Returns:
        The object; the target as it is if there is nothing to show yet.
    """
    folder = folder_beside(reader)
    path = volume_path(folder, name, frame)
    written = _being_written.get(path)
    is_late = written is not None and not written.done() and not wait
    if is_late:
        held = _last_shown.get((folder, name))
        if held is None or not volume_path(folder, name, held).exists():
            return target
        frame = held
    else:
        if written is not None:
            written.result()
        _write_if_missing(path, reader, name, frame)
        _last_shown[folder, name] = frame
    return show_volume(
        folder, name, frames, axes,
        label=label, frame=frame, is_held=is_late, target=target, collection=collection,
    )  # fmt: skip


def _write_if_missing(path: Path, reader: FrameCacheReader, name: str, frame: int) -> None:
    """Write the VDB file of a frame if it is not there, or older than its frame."""
    made = (reader.folder / "frames" / f"{frame:06d}.json").stat().st_mtime
    if not path.exists() or path.stat().st_mtime < made:
        write_volume(path.parent, name, frame, reader.read(frame, name))


def forget() -> None:
    """Forget what objects of another file showed; files that are being written become whole."""
    _last_shown.clear()


def stop() -> None:
    """End the thread when it has written the file that it is at."""
    global _writer
    if _writer is not None:
        _writer.stop()
        _writer = None
    _being_written.clear()
    forget()
