"""Run Folder: everything about one run on the disk, so that any server can take it up.

ROOT/NAME/run.json                 owner, options, state; replaced whole at each change
ROOT/NAME/document.json            the Loki Graph or Solver Setup
ROOT/NAME/changes.json             parameters changed on the way, with their frames
ROOT/NAME/inputs/body.parts        an input that stays the same
ROOT/NAME/inputs/body/000012.parts   of a frame, until no checkpoint needs it
ROOT/NAME/cache/                   frame cache, checkpoints, log: as `wtloki run` writes them
ROOT/NAME/worker.log               what the ranks printed
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError, InputError, did_you_mean
from loki_vfx.bridges.live.segments import write_parts
from loki_vfx.serialization.atomic_file import read_json, write_json
from loki_vfx.serialization.checkpoint_file import checkpoint_frames
from loki_vfx.serialization.frame_cache import safe_name, whole_frames

RECORD_FORMAT, RECORD_VERSION = "loki run", 1
MAX_INPUTS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

#: States that a run does not leave by itself.
ENDED = ("finished", "cancelled", "failed", "stopped")
STATES = ("collecting", "queued", "starting", "running", "paused", "restarting", *ENDED)
RESULTS = ("frames", "manifest")
ALONE = ("continue", "stop")


@dataclass(frozen=True)
class RunOptions:
    """How a run is computed and what is sent back.

    Attributes:
        frames: `N` frames or `A-B`; None takes what the scene suggests.
        ranks: Processes of the MPI job, 1 is a process without MPI; None leaves it to the server.
        threads: Threads of each rank; None shares the cores out.
        keep_frames: Whether frames are kept in a cache on the disk; without, they are only sent,
            a run waits until they are taken, and nothing can be resumed.
        results: "frames" sends the data of each frame, "manifest" only what was written where.
        when_alone: What happens when the last client is gone: "continue" or "stop".
        memory_gb: What the run is expected to need; it starts when so much is free.
    """

    frames: str | None = None
    ranks: int | None = None
    threads: int | None = None
    checkpoint_every: int | None = None
    keep_checkpoints: int = 3
    keep_frames: bool = True
    results: str = "frames"
    when_alone: str = "continue"
    memory_gb: float = 0.0

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunOptions:
        """Read options that came from outside.

        Raises:
            InputError: One is unknown or out of range.
        """
        known = {one.name for one in fields(cls)}
        for name in document:
            if name not in known:
                raise InputError(f'run option "{name[:80]}" is unknown{did_you_mean(name, known)}')
        values = {**asdict(cls()), **document}
        if type(values["frames"]) is int:
            values["frames"] = str(values["frames"])
        _expect_count(values, "ranks", 1, 65_536, optional=True)
        _expect_count(values, "threads", 1, 4096, optional=True)
        _expect_count(values, "checkpoint_every", 0, 1_000_000, optional=True)
        _expect_count(values, "keep_checkpoints", 1, 10_000)
        if type(values["keep_frames"]) is not bool:
            raise InputError(f"run option keep_frames = {values['keep_frames']!r} is no switch")
        for name, allowed in (("results", RESULTS), ("when_alone", ALONE)):
            if values[name] not in allowed:
                raise InputError(f"run option {name} = {values[name]!r}; allowed: {allowed}")
        memory = values["memory_gb"]
        if type(memory) not in (int, float) or not 0.0 <= memory < 1e6:
            raise InputError(f"run option memory_gb = {memory!r}; expected gigabytes")
        frames = values["frames"]
        if frames is not None and not (isinstance(frames, str) and len(frames) < 40):
            raise InputError(f"run option frames = {str(frames)[:40]!r}; expected N or A-B")
        if not values["keep_frames"] and values["results"] == "manifest":
            raise InputError('results = "manifest" needs keep_frames: there is nothing to point to')
        return cls(**values)


@dataclass
class RunRecord:
    """What `run.json` holds."""

    name: str
    owner: str
    options: RunOptions
    inputs: list[str] = field(default_factory=list)
    animated: list[str] = field(default_factory=list)
    state: str = "collecting"
    message: str = ""
    created: float = field(default_factory=time.time)
    ranks: int = 0  # of the last start; fewer than asked for after repeated crashes
    restarts: int = 0
    begins: int = 0  # how often it was taken up again, or anew, on request
    #: Frames from which on the run was asked to compute anew, in the order of the requests.
    rewinds: list[int] = field(default_factory=list)
    #: Whether the last of these is still to be done: its frames are void, and on the disk.
    is_rewinding: bool = False
    #: What `wtloki submit` was asked to run, by its files; never set by a message.
    request: dict[str, Any] | None = None

    @property
    def rewound_to(self) -> int | None:
        """The first frame that the next start may write; those before it are there."""
        return self.rewinds[-1] if self.rewinds else None

    @property
    def void_from(self) -> int | None:
        """The first of the frames on the disk that no client is sent any more."""
        return self.rewound_to if self.is_rewinding else None


class RunFolder:
    """The folder of one run."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / checked_name(name)
        self.name = name

    @property
    def cache(self) -> Path:
        """The frame cache and the checkpoints."""
        return self.path / "cache"

    @property
    def log(self) -> Path:
        """What the ranks printed."""
        return self.path / "worker.log"

    def exists(self) -> bool:
        """Whether a run of this name is on the disk."""
        return (self.path / "run.json").exists()

    def write_record(self, record: RunRecord) -> None:
        """Replace the record."""
        document = {"format": RECORD_FORMAT, "version": RECORD_VERSION, **asdict(record)}
        write_json(self.path / "run.json", document)

    def read_record(self) -> RunRecord:
        """Return the record.

        Raises:
            FormatError: It is damaged, or of another version.
        """
        path = self.path / "run.json"
        document = read_json(path)[0]
        if not isinstance(document, dict) or document.pop("format", None) != RECORD_FORMAT:
            raise FormatError(f"{path} is no record of a run")
        if document.pop("version", None) != RECORD_VERSION:
            raise FormatError(f"{path} is of another version; this Loki reads {RECORD_VERSION}")
        try:
            document["options"] = RunOptions.from_document(document["options"])
            return RunRecord(**document)
        except (TypeError, KeyError, InputError) as error:
            raise FormatError(f"{path}: {error}") from error

    def write_document(self, document: Any) -> None:
        """Keep the graph or setup."""
        write_json(self.path / "document.json", document)

    def read_document(self) -> Any:
        """Return the graph or setup."""
        return read_json(self.path / "document.json")[0]

    # -- changes on the way ----------------------------------------------------------------------

    def write_changes(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Keep what was changed: a list of `frame` and `changes`."""
        write_json(self.path / "changes.json", list(changes))

    def read_changes(self) -> list[dict[str, Any]]:
        """Return what was changed so far, in order."""
        path = self.path / "changes.json"
        return list(read_json(path)[0]) if path.exists() else []

    # -- inputs ----------------------------------------------------------------------------------

    def input_file(self, name: str, frame: int | None) -> Path:
        """Return where an input lies: one for all frames, or that of a frame."""
        folder = self.path / "inputs"
        safe = safe_name(name)
        return folder / f"{safe}.parts" if frame is None else folder / safe / f"{frame:06d}.parts"

    def write_input(self, name: str, frame: int | None, parts: Sequence[Any]) -> None:
        """Keep an input."""
        write_parts(self.input_file(name, frame), parts)

    def frames_of_input(self, name: str) -> list[int]:
        """Return the frames that an animated input is there for."""
        folder = self.path / "inputs" / safe_name(name)
        return sorted(int(path.stem) for path in folder.glob("*.parts"))

    def drop_inputs(self, names: Sequence[str]) -> None:
        """Remove inputs of frames that no checkpoint can need any more."""
        kept = checkpoint_frames(self.cache)
        if not kept:
            return
        for name in names:
            # a solver is always made with its inputs at the start frame, wherever it goes on
            for frame in self.frames_of_input(name)[1:]:
                if frame < kept[0]:
                    self.input_file(name, frame).unlink(missing_ok=True)

    def last_frame(self) -> int | None:
        """Return the last whole frame in the cache."""
        frames = whole_frames(self.cache)
        return frames[-1] if frames else None

    def rewind(self, frame: int, *, document: Any | None, inputs: Sequence[str]) -> None:
        """Forget what the run was given for a frame and those after it.

        Frames and checkpoints stay until the next start has a state to go on from.

        Args:
            document: The graph or setup from now on, which has all changes in it; None keeps the
                present one, and the changes before the frame.
            inputs: Those that come anew: for all frames, or for these.
        """
        if document is not None:
            self.write_document(document)
        earlier = self.read_changes() if document is None else []
        self.write_changes([one for one in earlier if one["frame"] < frame])
        for name in inputs:
            self.input_file(name, None).unlink(missing_ok=True)
            for number in self.frames_of_input(name):
                if number >= frame:
                    self.input_file(name, number).unlink()

    def remove(self) -> None:
        """Remove the whole run; somebody may have done that before."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)


def checked_name(name: str) -> str:
    """Return the name of a run if it can be that of a folder in the root, and nothing else.

    Raises:
        InputError: It cannot.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"run name {str(name)[:80]!r}: expected up to 64 letters, digits, _ or -, the first "
            "a letter or digit"
        )
    return name


def checked_input_names(names: Sequence[Any]) -> list[str]:
    """Return the names of inputs if they are texts, and each is there once.

    Raises:
        InputError: They are not.
    """
    if len(names) > MAX_INPUTS:
        raise InputError(f"{len(names)} inputs; at most {MAX_INPUTS} are accepted")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= 200:
            raise InputError(f"input name {str(name)[:80]!r}: expected 1 to 200 letters")
    if len(set(names)) != len(names):
        raise InputError("an input is named twice")
    return list(names)


def runs_in(root: Path) -> list[RunFolder]:
    """Return the runs of a root, the oldest first."""
    found = [
        RunFolder(root, path.parent.name)
        for path in root.glob("*/run.json")
        if _NAME.fullmatch(path.parent.name)
    ]
    return sorted(found, key=lambda one: (one.path / "run.json").stat().st_mtime)


def _expect_count(
    values: Mapping[str, Any], name: str, least: int, most: int, *, optional: bool = False
) -> None:
    value = values[name]
    if value is None and optional:
        return
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"run option {name} = {value!r}; expected {least} to {most}")
