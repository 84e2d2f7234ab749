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
from typing import Any, NamedTuple

from bridges.standalone.events import Event, Listener
from bridges.standalone.folder_lock import FolderLock
from bridges.standalone.scene import After
from bridges.standalone.versions import code_versions
from loki_core.errors import Cancelled, DivergenceError, InputError, LokiError
from loki_core.kernels.jit import cache_directory, compiled_kernels, thread_count
from loki_core.parallel.comm import Communicator, world
from loki_core.pipeline.repartition import state_for_rank
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.solver_setup import SolverSetup
from serialization.checkpoint_file import (
    checkpoint_frames,
    commit_checkpoint,
    latest_checkpoint,
    open_checkpoint,
    remove_checkpoint,
    write_rank_state,
)
from serialization.codec import pack_parts
from serialization.frame_cache import (
    FrameCacheReader,
    FrameCacheWriter,
    Manifest,
    read_manifest,
)

UNITS = {"length": "m", "mass": "kg", "time": "s", "temperature": "K", "up": "+y"}
LOG_NAME = "log.jsonl"
_RECENT_FRAMES = 8  # that the time left is estimated from


def _digest(document: dict[str, Any]) -> str:
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


class Runner:
    """One run of a Solver Setup into a folder. All methods but `cancel` are collective.

    Args:
        setup: What is simulated.
        inputs: Streams by name, or functions of the frame.
        output: Folder of the frame cache and the checkpoints.
        frames: First and last frame to write.
        checkpoint_every: Frames between checkpoints; None takes the setup's, 0 writes none.
        keep_checkpoints: How many of the last checkpoints stay.
        resume: Continue from the newest whole checkpoint in the folder.
        overwrite: Replace what another simulation left in the folder.
        threads: Threads of this rank; all cores if None.
        listener: Is told every event, on rank 0.
        document: What the cache says it is of; the setup's document if None.
        after: Turns a frame's Objects into what is written; None writes the Objects.
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
    ) -> None:
        self.setup = setup
        self.inputs = inputs
        self.output = output
        self.first_frame, self.last_frame = frames
        given = setup.settings.checkpoint_every if checkpoint_every is None else checkpoint_every
        self.checkpoint_every = int(given)
        self.keep_checkpoints = keep_checkpoints
        self.resume = resume
        self.overwrite = overwrite
        self.threads = threads
        self.comm = world() if comm is None else comm
        self.solver: Solver | None = None
        self.document = setup.to_document() if document is None else document
        described = setup.digest() if document is None else _digest(document)
        self.input_digests = input_digests(inputs, setup.settings.start_frame)
        #: Of setup and inputs: what makes two runs the same simulation.
        self.digest = _digest({"setup": described, "inputs": self.input_digests})
        self._after = after
        self._listener = listener
        self._cancelled = False
        self._writer: FrameCacheWriter | None = None
        self._warnings_told = 0
        self._compiling_told = False
        self._recent: list[float] = []
        self._timed_frames = 0
        self._frame_start = 0.0
        self._substeps_before = 0
        self._log: Any = None

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
                if self._writer is not None:
                    self._writer.close()
                if self._log is not None:
                    self._log.close()

    def _run(self) -> None:
        start = perf_counter()
        resumed = self._find_checkpoint() if self.resume else None
        self._open_output(resumed)
        self._tell_first_compilation()
        solver = self.solver = Solver(self.setup, self.inputs, comm=self.comm, threads=self.threads)
        if not solver.objects:
            reasons = "; ".join(f"{one.path}: {one.reason}" for one in solver.inactive)
            raise InputError(
                f"{self.setup.name} has nothing to simulate: no Object is active ({reasons}); "
                "give the streams with --input NAME=PATH"
            )
        if resumed is not None:
            self._restore(solver, resumed)
        solver.observe(Stage.FRAME_END, lambda *_: self._end_frame())
        solver.observe_tasks(self._watch_task)
        self._watch_task("ingestion")
        self._tell_start(solver, resumed)
        if self._cancelled:
            solver.cancel()
        first_done = solver.frame
        self._advance(solver, wrote_start=resumed is not None)
        self._tell(
            "finished",
            frames=max(0, solver.frame - first_done + (resumed is None)),
            seconds=perf_counter() - start,
            output=str(self.output),
            compiled_kernels=sum(compiled_kernels().values()),
        )

    def _advance(self, solver: Solver, *, wrote_start: bool) -> None:
        if not wrote_start:
            self._write_frame(solver)
        checkpointed = None
        try:
            while solver.frame < self.last_frame:
                self._frame_start = perf_counter()
                self._substeps_before = solver.timeline.substep - solver.timeline.substeps_of_frame
                solver.advance_frame()
                is_last = solver.frame == self.last_frame
                every = self.checkpoint_every
                done = solver.frame - self.setup.settings.start_frame
                if every and (is_last or done % every == 0):
                    self._write_checkpoint(solver)
                    checkpointed = solver.frame
        except (Cancelled, DivergenceError) as error:
            self._tell_warnings(solver)
            if checkpointed != solver.frame or solver.timeline.elapsed > 0.0:
                self._write_checkpoint(solver)
            if isinstance(error, Cancelled):
                self._tell("cancelled", frame=solver.frame, checkpoint=solver.frame)
            raise

    # -- the folder ------------------------------------------------------------------------

    def _open_output(self, resumed: Resumed | None) -> None:
        settings = self.setup.settings
        manifest = Manifest(
            setup_hash=self.digest,
            setup=self.document,
            units=dict(UNITS),
            fps=float(settings.frames_per_second),
            start_frame=int(settings.start_frame),
            code_versions=code_versions(),
        )
        error: LokiError | None = None
        try:
            if self.comm.rank == 0:
                self._open_writer(manifest)
        except LokiError as found:
            error = found
        self.comm.raise_together(error)
        if self.comm.rank != 0:
            self._open_writer(manifest)
        else:
            self._log = (self.output / LOG_NAME).open("a", encoding="utf-8")
        if resumed is not None and resumed.setup_hash != manifest.setup_hash:
            other = sorted(
                name
                for name in {*self.input_digests, *resumed.inputs}
                if self.input_digests.get(name) != resumed.inputs.get(name)
            )
            what = f"inputs {', '.join(other)}" if other else "the Solver Setup"
            self._tell("warning", message=f"changed since the checkpoint: {what}")

    def _open_writer(self, manifest: Manifest) -> None:
        if self.overwrite and not self.resume and self.comm.rank == 0:
            for frame in checkpoint_frames(self.output):  # of whatever was there
                remove_checkpoint(self.output, frame)
        if self.comm.rank == 0 and not self.overwrite and not self.resume:
            self._refuse_used_folder()
        self._writer = FrameCacheWriter(
            self.output,
            manifest,
            overwrite=self.overwrite and not self.resume,
            resume=self.resume,
            rank=self.comm.rank,
        )

    def _refuse_used_folder(self) -> None:
        """Keep finished frames: a new run never writes over them unless it is told to."""
        if not (self.output / "manifest.json").exists():
            return
        frames = FrameCacheReader(self.output).frames()
        if frames and read_manifest(self.output).setup_hash == self.digest:
            raise InputError(
                f"{self.output} holds frames {min(frames)} to {max(frames)} of this simulation; "
                "add --resume to continue it, --overwrite to start again, or choose another folder"
            )

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
            self._write_streams(frame, self._streams(solver), statistics)
        self._tell_warnings(solver)
        self._tell_frame(solver, counts, substeps)

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

    def _write_streams(
        self, frame: int, streams: dict[str, Any], statistics: dict[str, Any]
    ) -> None:
        assert self._writer is not None
        if self.comm.size == 1:
            self._writer.write_frame(frame, streams, statistics=statistics)
            return
        self.comm.barrier()  # nobody writes over a frame that another rank still commits
        self._writer.write_frame(frame, streams, part=(self.comm.rank, self.comm.size))
        self.comm.barrier()
        if self.comm.rank == 0:
            self._writer.commit_frame(frame, parts=self.comm.size, statistics=statistics)

    # -- checkpoints -----------------------------------------------------------------------

    def _write_checkpoint(self, solver: Solver) -> None:
        self.comm.barrier()
        write_rank_state(self.output, solver.frame, solver.state(), rank=self.comm.rank)
        self.comm.barrier()
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
            self._tell("checkpoint", frame=solver.frame, folder=str(done.folder))
        self.comm.barrier()

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
            self._log.write(json.dumps(message, allow_nan=False) + "\n")
            self._log.flush()
        if self._listener is not None:
            self._listener(message)

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

    def _tell_first_compilation(self) -> None:
        folder = cache_directory()
        if not folder.is_dir() or not any(folder.iterdir()):
            self._tell_compiling()

    def _watch_task(self, label: str) -> None:
        if not self._compiling_told and compiled_kernels():
            self._tell_compiling()

    def _tell_compiling(self) -> None:
        self._compiling_told = True
        self._tell(
            "compiling",
            message="compiling kernels: this is done once on a machine and takes up to a minute; "
            f"they are kept in {cache_directory()}",
        )
