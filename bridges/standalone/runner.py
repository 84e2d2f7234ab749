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
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from loki_core.errors import Cancelled, DiskFullError, DivergenceError, InputError, LokiError
from loki_core.kernels.jit import compiled_kernels, thread_count
from loki_core.parallel.comm import Communicator, world
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.solver_setup import SolverSetup
from loki_vfx.bridges.standalone.checkpoint_trail import CheckpointTrail, Resumed, restore
from loki_vfx.bridges.standalone.events import Listener
from loki_vfx.bridges.standalone.folder_lock import FolderLock
from loki_vfx.bridges.standalone.frame_sinks import CacheSink, FrameSink
from loki_vfx.bridges.standalone.run_report import RunReport
from loki_vfx.bridges.standalone.scene import AfterSolver, Scene
from loki_vfx.bridges.standalone.versions import code_versions
from loki_vfx.serialization.codec import pack_parts
from loki_vfx.serialization.frame_cache import Manifest
from loki_vfx.serialization.rank_parts import gather_streams

UNITS = {"length": "m", "mass": "kg", "time": "s", "temperature": "K", "up": "+y"}


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

    def undo_changes(self) -> None:
        """Take the last changes back: they cannot be made."""
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
        rewind: With `resume`: continue from before this frame. The frames and checkpoints of the
            folder from it on are removed, once a checkpoint before it has been restored.
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
        rewind: int | None = None,
        threads: int | None = None,
        comm: Communicator | None = None,
        listener: Listener | None = None,
        document: dict[str, Any] | None = None,
        after: AfterSolver | None = None,
        sink: FrameSink | None = None,
        conductor: Conductor | None = None,
    ) -> None:
        self.output = output
        self.first_frame, self.last_frame = frames
        every = checkpoint_every
        if every is None and setup.settings.checkpoint_every:
            every = int(setup.settings.checkpoint_every)
        self.resume = resume
        self.rewind = rewind
        self.threads = threads
        self.comm = world() if comm is None else comm
        self.solver: Solver | None = None
        self.report = RunReport(self.comm, listener)
        self._trail = CheckpointTrail(
            output, self.comm, every=every, keep=keep_checkpoints, tell=self.report.tell
        )
        self._sink: FrameSink = sink or CacheSink(
            output, self.comm, overwrite=overwrite, resume=resume, rewind=rewind
        )
        self._conductor = conductor
        self._take_scene(setup, inputs, document, after)
        self._cancelled = False
        self._held = ExitStack()
        self._is_held = False

    def _take_scene(
        self,
        setup: SolverSetup,
        inputs: Mapping[str, Any],
        document: dict[str, Any] | None,
        after: AfterSolver | None,
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
        with ExitStack() as self._held:
            if (self.output / "manifest.json").exists():
                self._hold_folder()
            try:
                self._run()
            finally:
                self._sink.close()
                self.report.close()

    def _hold_folder(self) -> None:
        """Make the folder where there is none, and let no other run write into it."""
        if self.comm.rank == 0 and not self._is_held:
            self._held.enter_context(FolderLock(self.output))
            self._is_held = True

    def _run(self) -> None:
        start = perf_counter()
        resumed = self._trail.find(before=self.rewind) if self.resume else None
        if self._conductor is not None and resumed is not None:
            self._take_changes(self._conductor.changes_until(resumed.frame))
        self._sink.check(self._manifest())
        self.report.compile_ahead(self.setup)
        solver = self.solver = self._make_solver()
        if not solver.objects:
            idle = {one.path: one.reason for one in solver.inactive}
            own = [path for path in self.setup.objects_below("") if path in idle]
            reasons = "; ".join(f"{path}: {idle[path]}" for path in own or idle)
            raise InputError(
                f"{self.setup.name} has nothing to simulate: no Object is active ({reasons}); "
                "give the streams with --input NAME=PATH"
            )
        if resumed is not None:
            self._restore(solver, resumed)
        # The nodes after the solver are asked too: only then is it sure that frames will follow.
        begin = self._streams(solver) if resumed is None else None
        self._open_output(resumed)
        self.report.watch_task("ingestion")
        self._tell_start(solver, resumed)
        if self._cancelled:
            solver.cancel()
        first_done = solver.frame
        solver = self._advance(solver, begin)
        self.report.tell(
            "finished",
            frames=max(0, solver.frame - first_done + (resumed is None)),
            seconds=perf_counter() - start,
            output=str(self.output),
            compiled_kernels=sum(compiled_kernels().values()),
        )

    def _restore(self, solver: Solver, resumed: Resumed) -> None:
        try:
            self._trail.restore(solver, resumed)
        except LokiError as error:
            if self.rewind is None:
                raise
            raise InputError(
                f"the setup's structure has changed, so the state of frame {resumed.frame} does "
                f"not fit it ({error}); no frame was removed: change it back, or rewind to the "
                "start"
            ) from error

    def _make_solver(self) -> Solver:
        solver = Solver(self.setup, self.inputs, comm=self.comm, threads=self.threads)
        solver.observe(Stage.FRAME_END, lambda *_: self._end_frame())
        self.report.take_solver(solver)
        return solver

    def _advance(self, solver: Solver, begin: dict[str, Any] | None) -> Solver:
        """Compute all frames; return the Solver, which changes on the way may have replaced.

        `begin` are the streams of the start frame, none where a checkpoint was resumed.
        """
        try:
            if begin is not None:
                self._write_frame(solver, begin)
            while solver.frame < self.last_frame:
                solver = self._follow_orders(solver)
                self.report.begin_frame(solver)
                solver.advance_frame()
                done = solver.frame - self.setup.settings.start_frame
                if self._trail.is_due(done, is_last=solver.frame == self.last_frame):
                    self._write_checkpoint(solver)
        except (Cancelled, DivergenceError) as error:
            solver = self.solver or solver
            self.report.tell_warnings(solver)
            is_new = self._trail.frame != solver.frame or solver.timeline.elapsed > 0.0
            if is_new and self._sink.is_kept:
                self._write_checkpoint(solver)
            if isinstance(error, Cancelled):
                self.report.tell("cancelled", frame=solver.frame, checkpoint=solver.frame)
            raise
        except DiskFullError as error:
            raise DiskFullError(f"{error}; {self._room_needed(solver)}") from error
        return solver

    def _write_checkpoint(self, solver: Solver) -> None:
        notes = {
            "setup_hash": self.digest,
            "inputs": self.input_digests,
            "code_versions": code_versions(),
            "frame_begun": solver.timeline.frame_begun,
        }
        self._trail.write(solver, notes)

    def _follow_orders(self, solver: Solver) -> Solver:
        for order in self._conductor.orders(solver.frame) if self._conductor else ():
            if order["order"] == "checkpoint":
                self._write_checkpoint(solver)
            elif order["order"] == "change":
                solver = self._change(solver, order["changes"], is_new=order.get("is_new", True))
        return solver

    def _change(self, solver: Solver, changes: list[str], *, is_new: bool) -> Solver:
        """Continue with changed parameters: the state goes over into a new Solver.

        Changes that cannot be made leave everything as it is, with a warning.
        """
        assert self._conductor is not None
        before = (self.setup, self.inputs, self.document, self._after)
        state, problem = solver.state(), None
        try:
            self._take_changes(changes)
            changed = self._make_solver()
            restore(changed, state)
        except LokiError as error:
            problem = error
        if self.comm.any(problem is not None):
            self._conductor.undo_changes()
            self._take_scene(*before)
            text = f"{', '.join(changes)}: cannot be changed in a run: {problem}"
            self.report.tell("warning", message=text)
            self.report.tell("unchanged", frame=solver.frame, changes=changes)
            return solver
        self._sink.change(self._manifest())
        self.solver = changed
        if self._cancelled:
            changed.cancel()
        if is_new:
            self.report.tell("changed", frame=changed.frame, changes=changes)
        return changed

    def _take_changes(self, changes: list[str]) -> None:
        if changes:
            assert self._conductor is not None
            scene = self._conductor.changed_scene(changes)
            self._take_scene(scene.setup, scene.inputs, scene.document, scene.after)

    def _room_needed(self, solver: Solver) -> str:
        """Say what the rest of the run needs on the disk, from what the last frames took."""
        frame_bytes = getattr(self._sink, "frame_bytes", 0)
        left = self.last_frame - solver.frame + 1
        needed = left * frame_bytes + self._trail.size
        if not needed:
            return "make room, and resume"
        return (
            f"the {left} frames left need about {needed / 1e9:.3g} GB ({frame_bytes / 1e6:.3g} MB "
            f"a frame, {self._trail.size / 1e6:.3g} MB a checkpoint); make room, and resume"
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
        self._hold_folder()
        self._sink.open(self._manifest())
        self.report.open_log(self.output)
        if resumed is None or resumed.setup_hash == self.digest or self.rewind is not None:
            return
        other = sorted(
            name
            for name in {*self.input_digests, *resumed.inputs}
            if self.input_digests.get(name) != resumed.inputs.get(name)
        )
        what = f"inputs {', '.join(other)}" if other else "the Solver Setup"
        self.report.tell("warning", message=f"changed since the checkpoint: {what}")

    def _end_frame(self) -> None:
        assert self.solver is not None
        wanted = self.first_frame <= self.solver.frame <= self.last_frame
        self._write_frame(self.solver, self._streams(self.solver) if wanted else {})

    def _write_frame(self, solver: Solver, streams: dict[str, Any]) -> None:
        """Write the present state as a frame, if it is one of those asked for, and tell it."""
        frame, counts, timeline = solver.frame, solver.counts(), solver.timeline
        if self.first_frame <= frame <= self.last_frame:
            # What depends on the machine stays out: equal runs write equal files.
            statistics = {
                "counts": counts,
                "time": timeline.time,
                "substeps": self.report.substeps(solver),
                "retries": timeline.retried,
            }
            exchanges = solver.exchanges()
            if exchanges:
                statistics["exchanges"] = exchanges
            accounts = solver.accounts()
            if accounts:
                statistics["liquids"] = accounts
            self._sink.write(frame, streams, statistics)
        self.report.tell_warnings(solver)
        self.report.tell_frame(solver, counts, (self.first_frame, self.last_frame))
        self.report.tell_statistics(solver)

    def _streams(self, solver: Solver) -> dict[str, Any]:
        streams = solver.outputs()
        if self._after is None:
            return streams
        if self.comm.size == 1 or self._after.only_passes_on:
            return self._after(solver.frame, streams)
        return self._after_all_ranks(solver.frame, streams, self._after)

    def _after_all_ranks(
        self, frame: int, streams: dict[str, Any], after: AfterSolver
    ) -> dict[str, Any]:
        """Let nodes work on whole Objects, which rank 0 gets; it has all outputs. Collective."""
        whole = gather_streams(
            self.comm, {path: streams[path] for path in after.paths if path in streams}
        )
        outputs: dict[str, Any] = {}
        error: LokiError | None = None
        if self.comm.rank == 0:
            try:
                outputs = after(frame, whole)
            except LokiError as found:
                error = found
        self.comm.raise_together(error)
        return outputs

    def _tell_start(self, solver: Solver, resumed: Resumed | None) -> None:
        self.report.tell(
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
        self.report.tell_warnings(solver)
