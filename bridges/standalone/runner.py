"""Runner: drives a Solver and keeps what it computes: frames, checkpoints, a log.

    runner = Runner(setup, inputs, output=Path("cache"), frames=(1, 48), listener=print)
    runner.run()

The Solver knows no file; the Runner writes its frames at FRAME_END, its state every few frames and
when it is stopped, and tells a listener what happens (see `events`). All ranks make a Runner and
call `run` together; only rank 0 tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from bridges.standalone.events import Event, Listener
from bridges.standalone.folder_lock import FolderLock
from bridges.standalone.frame_sinks import NO_ROOM, CacheSink, FrameSink, disk_errors
from bridges.standalone.scene import After, Scene
from bridges.standalone.versions import code_versions, resident_bytes
from loki_core.errors import (
    Cancelled,
    DiskFullError,
    DivergenceError,
    InputError,
    LokiError,
)
from loki_core.kernels.jit import cache_directory, compiled_kernels, thread_count
from loki_core.parallel.comm import Communicator, world
from loki_core.pipeline.repartition import state_for_rank
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.solver_setup import SolverSetup
from serialization.checkpoint_file import (
    commit_checkpoint,
    latest_checkpoint,
    open_checkpoint,
    write_rank_state,
)
from serialization.codec import pack_parts
from serialization.frame_cache import Manifest

UNITS = {"length": "m", "mass": "kg", "time": "s", "temperature": "K", "up": "+y"}
LOG_NAME = "log.jsonl"
_RECENT_FRAMES = 8  # that the time left is estimated from
#: Where nobody says how often, checkpoints take at most this part of the time of a run,
CHECKPOINT_SHARE = 0.04
#: and runs that are shorter than this have none [s].
UNCHECKED_SECONDS = 20.0


def document_digest(document: dict[str, Any]) -> str:
    """Return a hash of a plain document, the same for the same content."""
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def input_digests(inputs: Mapping[str, Any], start_frame: int) -> dict[str, str]:
    """Return a hash of the content of each input, as it is at the start frame."""
    digests = {}
    for name, given in sorted(inputs.items()):
        stream = given(start_frame) if callable(given) else given
        digests[name] = pack_parts(stream).digest if hasattr(stream, "to_document") else ""
    return digests


class Resumed(NamedTuple):
    """Where a run continues: the checkpoint's frame, its hash, and those of its inputs."""

    frame: int
    setup_hash: str | None
    inputs: dict[str, str]


class Conductor(Protocol):
    """Somebody who may change a run between two frames. All methods are collective."""

    def orders(self, frame: int) -> list[dict[str, Any]]:
        """Return what to do now, the same on all ranks: "checkpoint", or "change" with `changes`.

        Returns late when the run is to pause.

        Raises:
            Cancelled: The run is to stop.
        """
        ...

    def changed_scene(self, changes: list[str]) -> Scene:
        """Return the scene with all changes so far and these."""
        ...

    def changes_until(self, frame: int) -> list[str]:
        """Return what an earlier attempt at this run had changed up to a frame."""
        ...


class Runner:
    """One run of a Solver Setup into a folder. All methods but `cancel` are collective.

    Args:
        setup: What is simulated.
        inputs: Streams by name, or functions of the frame.
        output: Folder of the frame cache and the checkpoints.
        frames: First and last frame to write.
        checkpoint_every: Frames between checkpoints, 0 writes none; None takes the setup's, or
            where that is 0 writes them as often as they take little of the time.
        keep_checkpoints: How many of the last checkpoints stay.
        resume: Continue from the newest whole checkpoint in the folder.
        overwrite: Replace what another simulation left in the folder.
        threads: Threads of this rank; all cores if None.
        listener: Is told every event, on rank 0.
        document: What the cache says it is of; the setup's document if None.
        after: Turns a frame's Objects into what is written; None writes the Objects.
        sink: Where frames go; a cache in the folder if None.
        conductor: Is asked between frames what to do.
    """

    def __init__(
        self,
        setup: SolverSetup,
        inputs: Mapping[str, Any],
        *,
        output: Path,
        frames: tuple[int, int],
        checkpoint_every: int | None = None,
        keep_checkpoints: int = 3,
        resume: bool = False,
        overwrite: bool = False,
        threads: int | None = None,
        comm: Communicator | None = None,
        listener: Listener | None = None,
        document: dict[str, Any] | None = None,
        after: After | None = None,
        sink: FrameSink | None = None,
        conductor: Conductor | None = None,
    ) -> None:
        self.output = output
        self.first_frame, self.last_frame = frames
        #: Frames between checkpoints; None is as often as they take little of the time.
        self.checkpoint_every: int | None = checkpoint_every
        if checkpoint_every is None and setup.settings.checkpoint_every:
            self.checkpoint_every = int(setup.settings.checkpoint_every)
        self.keep_checkpoints = keep_checkpoints
        self.resume = resume
        self.threads = threads
        self.comm = world() if comm is None else comm
        self.solver: Solver | None = None
        self._sink: FrameSink = sink or CacheSink(
            output, self.comm, overwrite=overwrite, resume=resume
        )
        self._conductor = conductor
        self._take_scene(setup, inputs, document, after)
        self._listener = listener
        self._cancelled = False
        self._last_checkpoint = perf_counter()
        self._checkpoint_seconds = 0.0
        self._checkpoint_bytes = 0
        self._told_seconds = 0.0
        self._told_bytes = 0
        #: Tasks that were begun so far, and the last of them: signs of life.
        self.task_count = 0
        self.task_label = ""
        self._warnings_told = 0
        self._compiling_told = False
        self._recent: list[float] = []
        self._timed_frames = 0
        self._frame_start = 0.0
        self._substeps_before = 0
        self._log: Any = None

    def _take_scene(
        self,
        setup: SolverSetup,
        inputs: Mapping[str, Any],
        document: dict[str, Any] | None,
        after: After | None,
    ) -> None:
        self.setup = setup
        self.inputs = inputs
        self.document = setup.to_document() if document is None else document
        described = setup.digest() if document is None else document_digest(document)
        self.input_digests = input_digests(inputs, setup.settings.start_frame)
        #: Of setup and inputs: what makes two runs the same simulation.
        self.digest = document_digest({"setup": described, "inputs": self.input_digests})
        self._after = after

    def cancel(self) -> None:
        """Stop at the end of the running Task; safe from signal handlers and other threads."""
        self._cancelled = True
        if self.solver is not None:
            self.solver.cancel()

    def run(self) -> None:
        """Compute and write all frames.

        Raises:
            Cancelled: After `cancel`; whole frames and a checkpoint are on the disk.
            DivergenceError: A substep stayed bad; the last good frame and a checkpoint are there.
            LokiError: The setup, the inputs or the folder cannot be used.
        """
        with FolderLock(self.output, enabled=self.comm.rank == 0):
            try:
                self._run()
            finally:
                self._sink.close()
                if self._log is not None:
                    self._log.close()

    def _run(self) -> None:
        start = perf_counter()
        resumed = self._find_checkpoint() if self.resume else None
        if self._conductor is not None and resumed is not None:
            self._take_changes(self._conductor.changes_until(resumed.frame))
        self._open_output(resumed)
        self._tell_first_compilation()
        solver = self.solver = self._make_solver()
        if not solver.objects:
            reasons = "; ".join(f"{one.path}: {one.reason}" for one in solver.inactive)
            raise InputError(
                f"{self.setup.name} has nothing to simulate: no Object is active ({reasons}); "
                "give the streams with --input NAME=PATH"
            )
        if resumed is not None:
            self._restore(solver, resumed)
        self._watch_task("ingestion")
        self._tell_start(solver, resumed)
        if self._cancelled:
            solver.cancel()
        first_done = solver.frame
        solver = self._advance(solver, wrote_start=resumed is not None)
        self._tell(
            "finished",
            frames=max(0, solver.frame - first_done + (resumed is None)),
            seconds=perf_counter() - start,
            output=str(self.output),
            compiled_kernels=sum(compiled_kernels().values()),
        )

    def _make_solver(self) -> Solver:
        solver = Solver(self.setup, self.inputs, comm=self.comm, threads=self.threads)
        solver.observe(Stage.FRAME_END, lambda *_: self._end_frame())
        solver.observe_tasks(self._watch_task)
        return solver

    def _advance(self, solver: Solver, *, wrote_start: bool) -> Solver:
        """Compute all frames; return the Solver, which changes on the way may have replaced."""
        checkpointed = None
        try:
            if not wrote_start:
                self._write_frame(solver)
            while solver.frame < self.last_frame:
                solver = self._follow_orders(solver)
                self._frame_start = perf_counter()
                self._substeps_before = solver.timeline.substep - solver.timeline.substeps_of_frame
                solver.advance_frame()
                if self._checkpoint_is_due(solver.frame):
                    self._write_checkpoint(solver)
                    checkpointed = solver.frame
        except (Cancelled, DivergenceError) as error:
            solver = self.solver or solver
            self._tell_warnings(solver)
            if checkpointed != solver.frame or solver.timeline.elapsed > 0.0:
                self._write_checkpoint(solver)
            if isinstance(error, Cancelled):
                self._tell("cancelled", frame=solver.frame, checkpoint=solver.frame)
            raise
        except DiskFullError as error:
            raise DiskFullError(f"{error}; {self._room_needed(solver)}") from error
        return solver

    def _follow_orders(self, solver: Solver) -> Solver:
        for order in self._conductor.orders(solver.frame) if self._conductor else ():
            if order["order"] == "checkpoint":
                self._write_checkpoint(solver)
            elif order["order"] == "change":
                solver = self._change(solver, order["changes"])
        return solver

    def _change(self, solver: Solver, changes: list[str]) -> Solver:
        """Continue with changed parameters: the state goes over into a new Solver."""
        state = solver.state()
        self._take_changes(changes)
        self._sink.change(self._manifest())
        self._warnings_told = 0
        self.solver = changed = self._make_solver()
        changed.restore(state)
        if self._cancelled:
            changed.cancel()
        self._tell("changed", frame=changed.frame, changes=changes)
        return changed

    def _take_changes(self, changes: list[str]) -> None:
        if changes:
            assert self._conductor is not None
            scene = self._conductor.changed_scene(changes)
            self._take_scene(scene.setup, scene.inputs, scene.document, scene.after)

    def _checkpoint_is_due(self, frame: int) -> bool:
        is_last = frame == self.last_frame
        if self.checkpoint_every is not None:
            done = frame - self.setup.settings.start_frame
            return self.checkpoint_every > 0 and (is_last or done % self.checkpoint_every == 0)
        waited = perf_counter() - self._last_checkpoint
        pays = waited > max(UNCHECKED_SECONDS, self._checkpoint_seconds / CHECKPOINT_SHARE)
        # one clock decides: rank 0's
        return bool(self.comm.broadcast(bytes([pays]), 0)[0])

    def _room_needed(self, solver: Solver) -> str:
        """Say what the rest of the run needs on the disk, from what the last frames took."""
        frame_bytes = getattr(self._sink, "frame_bytes", 0)
        left = self.last_frame - solver.frame + 1
        needed = left * frame_bytes + self._checkpoint_bytes
        if not needed:
            return "make room, and resume"
        return (
            f"the {left} frames left need about {needed / 1e9:.3g} GB ({frame_bytes / 1e6:.3g} MB "
            f"a frame, {self._checkpoint_bytes / 1e6:.3g} MB a checkpoint); make room, and resume"
        )

    # -- the folder ------------------------------------------------------------------------

    def _manifest(self) -> Manifest:
        settings = self.setup.settings
        return Manifest(
            setup_hash=self.digest,
            setup=self.document,
            units=dict(UNITS),
            fps=float(settings.frames_per_second),
            start_frame=int(settings.start_frame),
            code_versions=code_versions(),
        )

    def _open_output(self, resumed: Resumed | None) -> None:
        self._sink.open(self._manifest())
        if self.comm.rank == 0:
            self._log = (self.output / LOG_NAME).open("a", encoding="utf-8")
        if resumed is not None and resumed.setup_hash != self.digest:
            other = sorted(
                name
                for name in {*self.input_digests, *resumed.inputs}
                if self.input_digests.get(name) != resumed.inputs.get(name)
            )
            what = f"inputs {', '.join(other)}" if other else "the Solver Setup"
            self._tell("warning", message=f"changed since the checkpoint: {what}")

    def _end_frame(self) -> None:
        assert self.solver is not None
        self._write_frame(self.solver)

    def _write_frame(self, solver: Solver) -> None:
        """Write the present state as a frame, if it is one of those asked for, and tell it."""
        frame, counts, timeline = solver.frame, solver.counts(), solver.timeline
        substeps = timeline.substep - self._substeps_before
        if self.first_frame <= frame <= self.last_frame:
            # What depends on the machine stays out: equal runs write equal files.
            statistics = {
                "counts": counts,
                "time": timeline.time,
                "substeps": substeps,
                "retries": timeline.retried,
            }
            exchanges = solver.exchanges()
            if exchanges:
                statistics["exchanges"] = exchanges
            self._sink.write(frame, self._streams(solver), statistics)
        self._tell_warnings(solver)
        self._tell_frame(solver, counts, substeps)
        self._tell_statistics(solver)

    def _streams(self, solver: Solver) -> dict[str, Any]:
        streams = solver.outputs()
        if self._after is None:
            return streams
        if self.comm.size > 1 and not getattr(self._after, "only_passes_on", False):
            raise InputError(
                "nodes after the Solver Setup work on whole Objects, and each rank has a part; "
                "run without --ranks, or connect outputs to the solver itself"
            )
        return self._after(solver.frame, streams)

    # -- checkpoints -----------------------------------------------------------------------

    def _write_checkpoint(self, solver: Solver) -> None:
        start = perf_counter()
        self.comm.barrier()
        what = f"the checkpoint of frame {solver.frame}"
        with disk_errors(self.comm, what, self.output):
            state = solver.state()
            write_rank_state(self.output, solver.frame, state, rank=self.comm.rank)
        with disk_errors(self.comm, what, self.output):
            if self.comm.rank == 0:
                notes = {
                    "setup_hash": self.digest,
                    "inputs": self.input_digests,
                    "code_versions": code_versions(),
                }
                done = commit_checkpoint(
                    self.output,
                    solver.frame,
                    ranks=self.comm.size,
                    notes=notes,
                    keep=self.keep_checkpoints,
                )
                files = done.folder.glob("rank_*.loki")
                self._checkpoint_bytes = sum(path.stat().st_size for path in files)
        self._last_checkpoint = perf_counter()
        self._checkpoint_seconds = self._last_checkpoint - start
        if self.comm.rank == 0:
            seconds = self._checkpoint_seconds
            self._tell("checkpoint", frame=solver.frame, folder=str(done.folder), seconds=seconds)

    def _find_checkpoint(self) -> Resumed | None:
        """Let rank 0 find the newest whole checkpoint, and all ranks know it."""
        error: LokiError | None = None
        found: dict[str, Any] = {}
        if self.comm.rank == 0:
            try:
                newest = latest_checkpoint(self.output, skip_damaged=True)
            except LokiError as problem:
                error = problem
            else:
                for reason in newest.skipped if newest is not None else ():
                    self._tell("warning", message=f"passed over a damaged {reason}")
                if newest is None:
                    text = f"{self.output} has no checkpoint; starting from the beginning"
                    self._tell("warning", message=text)
                else:
                    found = {
                        "frame": newest.frame,
                        "hash": newest.notes.get("setup_hash"),
                        "inputs": newest.notes.get("inputs", {}),
                    }
        self.comm.raise_together(error)
        text_of_all = self.comm.broadcast(json.dumps(found).encode(), 0)
        found = json.loads(text_of_all)
        return Resumed(found["frame"], found["hash"], found["inputs"]) if found else None

    def _restore(self, solver: Solver, resumed: Resumed) -> None:
        checkpoint = open_checkpoint(self.output, resumed.frame)
        if checkpoint.ranks == self.comm.size:
            state = checkpoint.read(self.comm.rank)
        else:
            parts = [checkpoint.read(rank) for rank in range(checkpoint.ranks)]
            state = state_for_rank(parts, self.comm.rank, self.comm.size)
        solver.restore(state)

    # -- telling ---------------------------------------------------------------------------

    def _tell(self, event: str, **values: Any) -> None:
        if self.comm.rank != 0:
            return
        message: Event = {"event": event, **values}
        if self._log is not None:
            self._write_log(json.dumps(message, allow_nan=False) + "\n")
        if self._listener is not None:
            self._listener(message)

    def _write_log(self, line: str) -> None:
        try:
            self._log.write(line)
            self._log.flush()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # the log is the least of it: the next frame finds the disk full and says so

    def _tell_start(self, solver: Solver, resumed: Resumed | None) -> None:
        self._tell(
            "started",
            setup=self.setup.name,
            setup_hash=self.digest,
            frames=[self.first_frame, self.last_frame],
            done=max(0, solver.frame - self.first_frame + 1) if resumed else 0,
            ranks=self.comm.size,
            threads=thread_count(),
            output=str(self.output),
            resumed_from=None if resumed is None else resumed.frame,
            counts=solver.counts() if self.comm.size == 1 else {},
            inactive=[{"path": one.path, "reason": one.reason} for one in solver.inactive],
        )
        self._tell_warnings(solver)

    def _tell_warnings(self, solver: Solver) -> None:
        for message in solver.warnings[self._warnings_told :]:
            self._tell("warning", message=message)
        self._warnings_told = len(solver.warnings)

    def _tell_frame(self, solver: Solver, counts: dict[str, int], substeps: int) -> None:
        seconds = left = None
        if self._frame_start:
            seconds = perf_counter() - self._frame_start
            if self._timed_frames == 1:
                self._recent.clear()  # the first frame compiles kernels, and says little of others
            self._timed_frames += 1
            self._recent = [*self._recent[1 - _RECENT_FRAMES :], seconds]
            mean = sum(self._recent) / len(self._recent)
            left = mean * (self.last_frame - solver.frame)
        self._tell(
            "frame",
            frame=solver.frame,
            last=self.last_frame,
            done=max(0, solver.frame - self.first_frame + 1),
            seconds=seconds,
            seconds_left=left,
            counts=counts,
            substeps=substeps,
            retries=solver.timeline.retried,
        )

    def _tell_statistics(self, solver: Solver) -> None:
        """Tell what the frame cost: on each rank, and on each Stage of rank 0."""
        stages: dict[str, float] = {}
        sent = 0
        for task in solver.statistics():
            stages[task["stage"]] = stages.get(task["stage"], 0.0) + task["seconds"]
            sent += task["bytes_sent"]
        spent = sum(stages.values())
        own = np.array([resident_bytes(), spent - self._told_seconds, sent - self._told_bytes])
        self._told_seconds, self._told_bytes = spent, sent
        ranks = self.comm.all_gather(own)
        seconds = [float(one[1]) for one in ranks]
        mean = sum(seconds) / len(seconds)
        self._tell(
            "statistics",
            frame=solver.frame,
            ranks=[
                {"memory": int(one[0]), "seconds": float(one[1]), "bytes_sent": int(one[2])}
                for one in ranks
            ],
            stages={name: value for name, value in stages.items() if value > 0.0},
            balance=max(seconds) / mean if mean > 0.0 else 1.0,
        )

    def _tell_first_compilation(self) -> None:
        folder = cache_directory()
        if not folder.is_dir() or not any(folder.iterdir()):
            self._tell_compiling()

    def _watch_task(self, label: str) -> None:
        self.task_count += 1
        self.task_label = label
        if not self._compiling_told and compiled_kernels():
            self._tell_compiling()

    def _tell_compiling(self) -> None:
        self._compiling_told = True
        self._tell(
            "compiling",
            message="compiling kernels: this is done once on a machine and takes up to a minute; "
            f"they are kept in {cache_directory()}",
        )
