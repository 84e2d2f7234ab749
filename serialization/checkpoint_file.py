"""Checkpoints on disk: the full state of a run, one file per rank, and a trail of the last few.

    checkpoints/000012/rank_0000.loki   state of one rank, packed and checksummed
    checkpoints/000012/index.json       written last, by rank 0: ranks, checksums, notes

A checkpoint counts only when its index is there. Arrays come back read-only: whoever restores
them copies them into its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError, InputError
from loki_core.operating_system import flush_folder
from loki_vfx.serialization.atomic_file import (
    packed_digest,
    read_json,
    read_packed,
    remove_leftovers,
    write_json,
    write_packed,
)
from loki_vfx.serialization.codec import DEFAULT_LIMITS, Limits

CHECKPOINT_FORMAT, CHECKPOINT_VERSION = "loki checkpoint", 1
MAX_RANKS = 65_536
_FOLDER_NAME = re.compile(r"-?\d{5,8}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint on disk, and why newer ones were passed over."""

    folder: Path
    frame: int
    digests: tuple[str, ...]  # one for each rank
    notes: dict[str, Any]
    skipped: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> int:
        """Return how many ranks wrote it."""
        return len(self.digests)

    def read(self, rank: int, *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
        """Return the state of one rank; raise FormatError when it is damaged."""
        if not 0 <= rank < self.ranks:
            raise InputError(f"{self.folder} has ranks 0 to {self.ranks - 1}; asked for {rank}")
        path = self.folder / _rank_file(rank)
        return _as_state(read_packed(path, limits=limits, digest=self.digests[rank]), path)


def write_checkpoint(path: str | Path, state: Mapping[str, Any]) -> str:
    """Write a state, nested maps of arrays and numbers, to one file; return its checksum."""
    return write_packed(Path(path), dict(state)).digest


def read_checkpoint(path: str | Path, *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return the state of one file; raise FormatError when it is damaged."""
    return _as_state(read_packed(Path(path), limits=limits), Path(path))


def write_rank_state(
    run_folder: str | Path, frame: int, state: Mapping[str, Any], *, rank: int = 0
) -> None:
    """Write the state of one rank; it counts after `commit_checkpoint`."""
    folder = _checkpoint_folder(run_folder, frame)
    # the rank's file changes: until all are whole the checkpoint must not count
    (folder / "index.json").unlink(missing_ok=True)
    write_checkpoint(folder / _rank_file(rank), state)


def commit_checkpoint(
    run_folder: str | Path,
    frame: int,
    *,
    ranks: int = 1,
    notes: Mapping[str, Any] | None = None,
    keep: int = 3,
) -> Checkpoint:
    """Make a checkpoint count and remove all but the last `keep`.

    Rank 0 calls this when every rank has returned from `write_rank_state` (a barrier between).
    `notes` is small and plain: setup hash, versions, frame rate.
    """
    if not 1 <= ranks <= MAX_RANKS or keep < 1:
        raise InputError(f"ranks = {ranks}, keep = {keep}; expected at least 1 of each")
    folder = _checkpoint_folder(run_folder, frame)
    digests = []
    for rank in range(ranks):
        path = folder / _rank_file(rank)
        if not path.exists():
            raise InputError(f"{path} was not written; every rank writes before rank 0 commits")
        digests.append(packed_digest(path))
    for path in folder.glob("rank_*.loki"):  # of an earlier run on more ranks
        if path.name not in {_rank_file(rank) for rank in range(ranks)}:
            path.unlink()
    index = {
        "format": CHECKPOINT_FORMAT,
        "version": CHECKPOINT_VERSION,
        "frame": frame,
        "checksums": digests,
        "notes": dict(notes or {}),
    }
    write_json(folder / "index.json", index)
    flush_folder(folder.parent)
    for old in checkpoint_frames(run_folder)[:-keep]:
        remove_checkpoint(run_folder, old)
    return Checkpoint(folder, frame, tuple(digests), dict(notes or {}))


def checkpoint_frames(run_folder: str | Path) -> list[int]:
    """Return the frames that have a whole checkpoint, in order."""
    folder = Path(run_folder) / "checkpoints"
    if not folder.is_dir():
        return []
    named = [path for path in folder.iterdir() if _FOLDER_NAME.fullmatch(path.name)]
    whole = [path for path in named if (path / "index.json").exists()]
    return sorted(int(p.name) for p in whole if p.name == f"{int(p.name):06d}")


def open_checkpoint(
    run_folder: str | Path, frame: int, *, limits: Limits = DEFAULT_LIMITS
) -> Checkpoint:
    """Return the checkpoint of a frame after checking every file of it."""
    folder = _checkpoint_folder(run_folder, frame)
    if not (folder / "index.json").exists():
        known = checkpoint_frames(run_folder)
        raise InputError(f"{run_folder} has no checkpoint of frame {frame}; there are {known}")
    index = read_json(folder / "index.json")[0]
    place = folder / "index.json"
    if not isinstance(index, dict) or index.get("format") != CHECKPOINT_FORMAT:
        raise FormatError(f"{place} belongs to no checkpoint")
    if index.get("version") != CHECKPOINT_VERSION:
        raise FormatError(
            f"{place} has checkpoint version {str(index.get('version'))[:20]}; this Loki reads "
            f"version {CHECKPOINT_VERSION}"
        )
    digests, notes = index.get("checksums"), index.get("notes")
    if index.get("frame") != frame or not isinstance(notes, dict):
        raise FormatError(f"{place} is not the index of frame {frame}")
    if not isinstance(digests, list) or not 0 < len(digests) <= MAX_RANKS:
        raise FormatError(f"{place} has no list of checksums")
    for rank, digest in enumerate(digests):
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise FormatError(f"{place}: rank {rank} has no checksum")
        path = folder / _rank_file(rank)
        if packed_digest(path, limits=limits) != digest:
            raise FormatError(f"{path} is not the file that the index was written for")
    return Checkpoint(folder, frame, tuple(digests), notes)


def checkpoints_before(run_folder: str | Path, frame: int) -> list[int]:
    """Return the frames of checkpoints from which a frame can be computed from its beginning.

    That of the frame before is not one if its note `frame_begun` says that it was written on the
    way, with substeps of the frame in it.
    """
    found = [one for one in checkpoint_frames(run_folder) if one < frame]
    if found and found[-1] == frame - 1:
        index = read_json(_checkpoint_folder(run_folder, found[-1]) / "index.json")[0]
        notes = index.get("notes") if isinstance(index, dict) else None
        if isinstance(notes, dict) and notes.get("frame_begun"):
            found.pop()
    return found


def latest_checkpoint(
    run_folder: str | Path,
    *,
    before: int | None = None,
    skip_damaged: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Checkpoint | None:
    """Return the newest checkpoint, or the newest of `checkpoints_before`; None if there is none.

    A damaged one is an error; with `skip_damaged` the one before it is taken, and the reasons are
    in `skipped`.
    """
    frames = (
        checkpoint_frames(run_folder) if before is None else checkpoints_before(run_folder, before)
    )
    skipped: list[str] = []
    for frame in reversed(frames):
        try:
            found = open_checkpoint(run_folder, frame, limits=limits)
        except FormatError as error:
            if not skip_damaged:
                raise FormatError(
                    f"the newest checkpoint, of frame {frame}, is damaged: {error}; resume from "
                    "an earlier one, or skip damaged ones"
                ) from error
            skipped.append(f"checkpoint of frame {frame}: {error}")
            continue
        return Checkpoint(found.folder, frame, found.digests, found.notes, tuple(skipped))
    if skipped:
        raise FormatError(f"{run_folder} has no whole checkpoint: {'; '.join(skipped)}")
    return None


def remove_checkpoint(run_folder: str | Path, frame: int) -> None:
    """Remove the checkpoint of a frame, its index first."""
    folder = _checkpoint_folder(run_folder, frame)
    (folder / "index.json").unlink(missing_ok=True)
    for path in folder.glob("rank_*.loki"):
        path.unlink()
    remove_leftovers(folder)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _checkpoint_folder(run_folder: str | Path, frame: int) -> Path:
    if type(frame) is not int or abs(frame) > 10_000_000:
        raise InputError(f"frame {frame!r}: expected a whole number up to 10000000")
    return Path(run_folder) / "checkpoints" / f"{frame:06d}"


def _rank_file(rank: int) -> str:
    return f"rank_{rank:04d}.loki"


def _as_state(document: Any, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise FormatError(f"{path} holds a {type(document).__name__}; expected a map of state")
    return document
