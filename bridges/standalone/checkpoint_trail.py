"""Checkpoint Trail: when the checkpoints of a run are written, and going on from one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.errors import InputError, LokiError
from loki_core.parallel.comm import Communicator
from loki_core.pipeline.repartition import state_for_rank
from loki_core.pipeline.solver import Solver
from loki_vfx.bridges.standalone.frame_sinks import disk_errors
from loki_vfx.serialization.checkpoint_file import (
    commit_checkpoint,
    latest_checkpoint,
    open_checkpoint,
    write_rank_state,
)

#: Where nobody says how often, checkpoints take at most this part of the time of a run,
CHECKPOINT_SHARE = 0.04
#: and runs that are shorter than this have none [s].
UNCHECKED_SECONDS = 20.0


class Resumed(NamedTuple):
    """Where a run continues: the checkpoint's frame, its hash, and those of its inputs."""

    frame: int
    setup_hash: str | None
    inputs: dict[str, str]


class CheckpointTrail:
    """The checkpoints of one run. All methods are collective.

    Args:
        folder: Of the run.
        every: Frames between checkpoints, 0 for none; None is as often as they take little time.
        keep: How many of the last ones stay.
        tell: Is told events, on rank 0.
    """

    def __init__(
        self,
        folder: Path,
        comm: Communicator,
        *,
        every: int | None,
        keep: int,
        tell: Callable[..., None],
    ) -> None:
        self.folder = folder
        self.comm = comm
        self.every = every
        self.keep = keep
        self._tell = tell
        self._first = self._last = perf_counter()
        self._seconds = 0.0
        #: What the last one takes on the disk [bytes].
        self.size = 0
        #: The frame of the last one that this run wrote.
        self.frame: int | None = None

    def is_due(self, done: int, *, is_last: bool) -> bool:
        """Whether to write one now, after so many frames."""
        if self.every is not None:
            return self.every > 0 and (is_last or done % self.every == 0)
        now = perf_counter()
        pays = now - self._last > max(UNCHECKED_SECONDS, self._seconds / CHECKPOINT_SHARE)
        pays |= is_last and now - self._first > UNCHECKED_SECONDS  # more frames may be wanted
        return bool(self.comm.broadcast(bytes([pays]), 0)[0])  # one clock decides: rank 0's

    def write(self, solver: Solver, notes: dict[str, Any]) -> None:
        """Write the whole state.

        Raises:
            DiskFullError: There is no room; the checkpoints before are whole.
        """
        start = perf_counter()
        self.comm.barrier()
        what = f"the checkpoint of frame {solver.frame}"
        with disk_errors(self.comm, what, self.folder):
            state = solver.state()
            write_rank_state(self.folder, solver.frame, state, rank=self.comm.rank)
        with disk_errors(self.comm, what, self.folder):
            if self.comm.rank == 0:
                done = commit_checkpoint(
                    self.folder, solver.frame, ranks=self.comm.size, notes=notes, keep=self.keep
                )
                files = done.folder.glob("rank_*.loki")
                self.size = sum(path.stat().st_size for path in files)
        self.frame = solver.frame
        self._last = perf_counter()
        self._seconds = self._last - start
        if self.comm.rank == 0:
            folder = str(done.folder)
            self._tell("checkpoint", frame=solver.frame, folder=folder, seconds=self._seconds)

    def find(self, *, before: int | None = None) -> Resumed | None:
        """Let rank 0 find the newest whole checkpoint, and all ranks know it.

        Args:
            before: A frame that is computed from its beginning, with what comes after it.
        """
        error: LokiError | None = None
        found: dict[str, Any] = {}
        if self.comm.rank == 0:
            try:
                newest = latest_checkpoint(self.folder, before=before, skip_damaged=True)
            except LokiError as problem:
                error = problem
            else:
                for reason in newest.skipped if newest is not None else ():
                    self._tell("warning", message=f"passed over a damaged {reason}")
                if newest is None:
                    which = "" if before is None else f" before frame {before}"
                    text = f"{self.folder} has no checkpoint{which}; starting from the beginning"
                    self._tell("warning", message=text)
                else:
                    found = {
                        "frame": newest.frame,
                        "hash": newest.notes.get("setup_hash"),
                        "inputs": newest.notes.get("inputs", {}),
                    }
        self.comm.raise_together(error)
        found = json.loads(self.comm.broadcast(json.dumps(found).encode(), 0))
        return Resumed(found["frame"], found["hash"], found["inputs"]) if found else None

    def restore(self, solver: Solver, resumed: Resumed) -> None:
        """Bring a Solver to the state of a checkpoint, written by however many ranks."""
        checkpoint = open_checkpoint(self.folder, resumed.frame)
        if checkpoint.ranks == self.comm.size:
            state = checkpoint.read(self.comm.rank)
        else:
            parts = [checkpoint.read(rank) for rank in range(checkpoint.ranks)]
            state = state_for_rank(parts, self.comm.rank, self.comm.size)
        restore(solver, state)


def restore(solver: Solver, state: dict[str, Any]) -> None:
    """Bring a Solver to a state of a setup with other parameters, but of the same structure.

    Raises:
        InputError: The structure is another, as far as can be told.
    """
    buckets = solver.domain.bucket_size, float(state["domain"]["bucket_size"])
    volumes = [
        path
        for path, item in solver.objects.items()
        if any(isinstance(one, DiscreteVolume) for one in item.data.values())
    ]
    if volumes and not math.isclose(*buckets, rel_tol=1e-9):
        raise InputError(
            f"{volumes[0]} has Buckets of {buckets[0]:g} m, and the state {buckets[1]:g} m; the "
            "voxel size of a state stays"
        )
    solver.restore(state)
