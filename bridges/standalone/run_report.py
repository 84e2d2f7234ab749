"""Run Report: what is told of a run while it goes: to its log, and to whoever listens."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from loki_core.errors import LokiError
from loki_core.kernels.compile_ahead import compile_ahead
from loki_core.kernels.jit import compiled_kernels
from loki_core.kernels.kernel_book import entries_for, missing
from loki_core.kernels.kernel_cache import cache_directory
from loki_core.operating_system import core_count, resident_bytes
from loki_core.parallel.comm import Communicator
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from loki_core.wording import counted
from loki_vfx.bridges.standalone.events import Event, Listener
from loki_vfx.bridges.standalone.frame_sinks import NO_ROOM

LOG_NAME = "log.jsonl"
FEWEST_AHEAD = 8  # kernels that pay for starting processes
_RECENT_FRAMES = 8  # that the time left is estimated from


class RunReport:
    """Tells the events of a run (see `events`), on rank 0.

    Attributes:
        task_count: Tasks that were begun so far: a sign of life.
        task_label: The last of them.
    """

    def __init__(self, comm: Communicator, listener: Listener | None) -> None:
        self.task_count = 0
        self.task_label = ""
        self._comm = comm
        self._listener = listener
        self._log: Any = None
        self._unlogged: list[str] = []  # what was told before there was a log
        self._warnings_told = 0
        self._compiling_told = False
        self._recent: list[float] = []
        self._timed_frames = 0
        self._frame_start = 0.0
        self._substeps_before = 0
        self._told_seconds = 0.0
        self._told_bytes = 0
        self._balanced_until = 0

    def open_log(self, folder: Path) -> None:
        """Write events into the folder's log from now on."""
        if self._comm.rank == 0:
            self._log = (folder / LOG_NAME).open("a", encoding="utf-8")
            self._write_log("".join(self._unlogged))
            self._unlogged.clear()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def tell(self, event: str, **values: Any) -> None:
        """Tell an event."""
        if self._comm.rank != 0:
            return
        message: Event = {"event": event, **values}
        line = json.dumps(message, allow_nan=False) + "\n"
        if self._log is None:
            self._unlogged.append(line)
        else:
            self._write_log(line)
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

    def take_solver(self, solver: Solver) -> None:
        """Watch a Solver, the first or one that takes its place."""
        self._warnings_told = 0
        self._told_seconds, self._told_bytes = 0.0, 0
        solver.observe_tasks(self.watch_task)

    def watch_task(self, label: str) -> None:
        """Notice that a Task begins, and that kernels were compiled."""
        self.task_count += 1
        self.task_label = label
        if not self._compiling_told and compiled_kernels():
            self._tell_compiling()

    def begin_frame(self, solver: Solver) -> None:
        """Start the clock of a frame."""
        self._frame_start = perf_counter()
        self._substeps_before = solver.timeline.substep - solver.timeline.substeps_of_frame

    def substeps(self, solver: Solver) -> int:
        """Return how many substeps the frame had."""
        return solver.timeline.substep - self._substeps_before

    def tell_warnings(self, solver: Solver) -> None:
        """Tell the warnings that are new."""
        for message in solver.warnings[self._warnings_told :]:
            self.tell("warning", message=message)
        self._warnings_told = len(solver.warnings)

    def tell_frame(self, solver: Solver, counts: dict[str, int], frames: tuple[int, int]) -> None:
        """Tell that a frame is done, and how long the others will take."""
        first, last = frames
        seconds = left = None
        if self._frame_start:
            seconds = perf_counter() - self._frame_start
            if self._timed_frames == 1:
                self._recent.clear()  # the first frame compiles kernels, and says little of others
            self._timed_frames += 1
            self._recent = [*self._recent[1 - _RECENT_FRAMES :], seconds]
            left = sum(self._recent) / len(self._recent) * (last - solver.frame)
        self.tell(
            "frame",
            frame=solver.frame,
            last=last,
            done=max(0, solver.frame - first + 1),
            seconds=seconds,
            seconds_left=left,
            counts=counts,
            substeps=self.substeps(solver),
            retries=solver.timeline.retried,
        )

    def tell_statistics(self, solver: Solver) -> None:
        """Tell what the frame cost on each rank, and the run so far on each Stage. Collective."""
        stages: dict[str, float] = {}
        sent = 0
        for task in solver.statistics():
            stages[task["stage"]] = stages.get(task["stage"], 0.0) + task["seconds"]
            sent += task["bytes_sent"]
        spent = sum(stages.values())
        own = np.array([resident_bytes(), spent - self._told_seconds, sent - self._told_bytes])
        self._told_seconds, self._told_bytes = spent, sent
        ranks = self._comm.all_gather(own)
        seconds = [float(one[1]) for one in ranks]
        mean = sum(seconds) / len(seconds)
        self.tell(
            "statistics",
            frame=solver.frame,
            ranks=[
                {"memory": int(one[0]), "seconds": float(one[1]), "bytes_sent": int(one[2])}
                for one in ranks
            ],
            stages={name: value for name, value in stages.items() if value > 0.0},
            balance=max(seconds) / mean if mean > 0.0 else 1.0,
            balances=self._new_balances(solver),
        )

    def _new_balances(self, solver: Solver) -> list[dict[str, Any]]:
        """Return the looks at the load balance since the last frame: before, after, and cost."""
        looks = solver.balances()
        new = [one for one in looks if one["substep"] >= self._balanced_until]
        self._balanced_until = solver.timeline.substep
        return new

    def _tell_compiling(self) -> None:
        self._compiling_told = True
        self.tell(
            "compiling",
            message="compiling kernels: this is done once on a machine and takes up to a minute; "
            f"they are kept in {cache_directory()}",
        )

    def compile_ahead(self, setup: SolverSetup) -> None:
        """Compile the kernels that a setup needs and this machine lacks, by all cores. Collective.

        Rank 0 does it, and the others find them on the disk; on machines that do not share one,
        they compile what they miss when they call it.
        """
        if self._comm.rank == 0:
            modules = {type(one).__module__ for _, one in setup.behaviors()}
            lacking = missing(entries_for(modules))
            if len(lacking) >= FEWEST_AHEAD and core_count() > 1:
                self._tell_compiling()
                try:
                    compile_ahead(lacking, core_count(), self._tell_compiled)
                except LokiError as error:  # what is missing compiles at its first call
                    self.tell("warning", message=str(error))
        self._comm.barrier()

    def _tell_compiled(self, done: int, total: int) -> None:
        """Tell each tenth."""
        if 10 * done // total > 10 * (done - 1) // total:
            self.tell("compiling", message=f"compiled {done} of {counted(total, 'kernel')}")
