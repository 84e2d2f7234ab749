"""Frame sinks: where the frames of a run go. The Runner fills one; all ranks have one each.

The cache is the sink of every run that is kept; a live preview has one of its own, which sends.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from loki_core.errors import DiskFullError, InputError, LokiError
from loki_core.parallel.comm import Communicator
from loki_vfx.serialization.checkpoint_file import (
    checkpoint_frames,
    checkpoints_before,
    remove_checkpoint,
)
from loki_vfx.serialization.frame_cache import (
    FrameCacheWriter,
    Manifest,
    has_manifest,
    refuse_other_simulation,
    whole_frames,
)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: What a run or a wedge leaves in a folder before its first frame.
_OWN_FILES = {"frames", "checkpoints", "log.jsonl", "variant.json", "run.log"}


class FrameSink(Protocol):
    """What the Runner needs of a place for frames. All methods are collective.

    Attributes:
        is_kept: Whether frames stay, so that a run can go on from a checkpoint.
    """

    is_kept: bool

    def check(self, manifest: Manifest) -> None: ...
    def open(self, manifest: Manifest) -> None: ...
    def write(self, frame: int, streams: Mapping[str, Any], statistics: dict[str, Any]) -> None: ...
    def change(self, manifest: Manifest) -> None: ...
    def close(self) -> None: ...


class CacheSink:
    """Writes frames into a frame cache, each rank its own part.

    Args:
        folder: Of the cache.
        overwrite: Replace what another simulation left there.
        resume: Keep the frames that are there.
        rewind: Of these, remove this one and all after it, and what could only lead there.
    """

    is_kept = True

    def __init__(
        self,
        folder: Path,
        comm: Communicator,
        *,
        overwrite: bool = False,
        resume: bool = False,
        rewind: int | None = None,
    ) -> None:
        self.folder = folder
        self.comm = comm
        self.overwrite = overwrite and not resume
        self.resume = resume
        self.rewind = rewind
        #: What a whole frame takes on the disk [bytes], as the last one did.
        self.frame_bytes = 0
        self._writer: FrameCacheWriter | None = None

    def check(self, manifest: Manifest) -> None:
        """Refuse a folder that `open` would refuse; nothing is written.

        Raises:
            InputError: The folder is of somebody else, or has results that would be lost.
            FormatError: Its manifest is damaged.
        """
        self._on_rank_0(self._refuse_used_folder, manifest)

    def open(self, manifest: Manifest) -> None:
        """Open the folder, on rank 0 first; a used one is refused unless told otherwise."""
        self._on_rank_0(self._open_writer, manifest)
        if self.comm.rank != 0:
            self._open_writer(manifest)

    def _on_rank_0(self, act: Callable[[Manifest], None], manifest: Manifest) -> None:
        error: LokiError | None = None
        if self.comm.rank == 0:
            try:
                act(manifest)
            except LokiError as found:
                error = found
        self.comm.raise_together(error)

    def _open_writer(self, manifest: Manifest) -> None:
        if self.comm.rank == 0:
            self._refuse_used_folder(manifest)
            for frame in self._void_checkpoints():
                remove_checkpoint(self.folder, frame)
        self._writer = FrameCacheWriter(
            self.folder,
            manifest,
            overwrite=self.overwrite,
            resume=self.resume,
            rewind=self.rewind,
            rank=self.comm.rank,
        )

    def _void_checkpoints(self) -> list[int]:
        """Frames of checkpoints that the run which begins here must not go on from."""
        found = checkpoint_frames(self.folder)
        if self.overwrite:
            return found  # of whatever was there
        if self.rewind is None:
            return []
        kept = checkpoints_before(self.folder, self.rewind)
        return [frame for frame in found if frame not in kept]

    def _refuse_used_folder(self, manifest: Manifest) -> None:
        """Keep what is there: a run takes over only a folder of Loki without frames."""
        _refuse_foreign_folder(self.folder)
        frames, checkpoints = whole_frames(self.folder), checkpoint_frames(self.folder)
        if self.overwrite or self.resume or not (frames or checkpoints):
            return
        if not has_manifest(self.folder):
            return  # the writer refuses frames whose simulation nobody knows
        refuse_other_simulation(self.folder, manifest)
        held = f"frames {frames[0]} to {frames[-1]}" if frames else f"checkpoint {checkpoints[-1]}"
        raise InputError(
            f"{self.folder} holds {held} of this simulation; add --resume to continue it, "
            "--overwrite to start again, or choose another folder"
        )

    def write(self, frame: int, streams: Mapping[str, Any], statistics: dict[str, Any]) -> None:
        """Write this rank's part of a frame; it counts when all ranks have written theirs.

        Raises:
            DiskFullError: There is no room; the frames before are whole.
        """
        assert self._writer is not None
        self.comm.barrier()  # nobody writes over a frame that another rank still commits
        part = (self.comm.rank, self.comm.size) if self.comm.size > 1 else None
        with disk_errors(self.comm, f"frame {frame}", self.folder):
            self._writer.write_frame(frame, streams, part=part, statistics=statistics)
        if part is None:
            self.frame_bytes = self._writer.last_frame_bytes
            return
        with disk_errors(self.comm, f"frame {frame}", self.folder):
            if self.comm.rank == 0:
                self._writer.commit_frame(frame, parts=self.comm.size, statistics=statistics)
                self.frame_bytes = self._writer.last_frame_bytes

    def change(self, manifest: Manifest) -> None:
        """Take a changed setup from the next frame on."""
        assert self._writer is not None
        if self.comm.rank == 0:
            self._writer.change_setup(manifest)

    def close(self) -> None:
        """Leave a whole manifest."""
        if self._writer is None:
            return
        try:
            self._writer.close()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise  # else the manifest of the last frame stays, which is whole


def _refuse_foreign_folder(folder: Path) -> None:
    """Leave a folder alone that no run has made, unless it is empty; hidden files do not count."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; choose a folder for the output")
    if has_manifest(folder) or whole_frames(folder):
        return
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    foreign = sorted(names - _OWN_FILES)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise InputError(
            f"{folder} holds {foreign[0]}{more} and no frames; choose a new or an empty folder "
            "with --output"
        )


@contextmanager
def disk_errors(comm: Communicator, what: str, folder: Path) -> Iterator[None]:
    """Turn "no room on the disk" into an error that all ranks raise together. Collective."""
    full: DiskFullError | None = None
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        full = DiskFullError(f"no room on the disk of {folder} for {what}")
    comm.raise_together(full)
