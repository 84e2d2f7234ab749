"""The timeline: frames, substeps, Newton iterations, and the retry of a bad substep.

    frame      FRAME_BEGIN, substeps until the frame is full, MAKE_SURFACES, FRAME_END
    substep    Stages before Newton, the Newton loop, Stages after it
    retry      a substep that ends in a bad state is undone and tried with half the dt

A substep's length is the rest of the frame over a whole number of substeps, so that frames are hit
exactly. Every decision is taken by all ranks together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from loki_core.errors import Cancelled, DivergenceError, LokiError
from loki_core.parallel.comm import Communicator
from loki_core.pipeline.stages import (
    NEWTON_FLUIDS,
    NEWTON_SOLIDS,
    SUBSTEP_AFTER_NEWTON,
    SUBSTEP_BEFORE_NEWTON,
    Stage,
)
from loki_core.pipeline.task import Step
from loki_core.solver_settings import SolverSettings

MORE_ITERATIONS = 7  # of Newton, at most, for a step that turns solids too far for a linear one


class StageRunner(Protocol):
    """What the timeline drives: the Solver."""

    settings: SolverSettings
    comm: Communicator

    def run_stage(self, stage: Stage, step: Step) -> None: ...
    def snapshot(self) -> Any: ...
    def roll_back(self, snapshot: Any) -> None: ...
    def accept_substep(self, step: Step) -> None: ...
    def time_step_limit(self) -> float: ...
    def newton_change(self) -> float: ...
    def overshoots(self) -> bool: ...
    def warn(self, message: str) -> None: ...


@dataclass
class Timeline:
    """Position in time. All of it but what was told is part of a checkpoint.

    Attributes:
        frame: Last frame that is complete.
        elapsed: Part of the next frame that is done [s].
        substep: Substeps since the start of the run.
        retried: Substeps that had to be halved since the start of the run.
        halvings: How often dt was halved in the frame under way.
        substeps_of_frame: Substeps done in the frame under way.
        frame_begun: Whether FRAME_BEGIN of the frame under way has run.
        told_of_limit: Whether it was said that substeps should be shorter.
    """

    settings: SolverSettings
    frame: int
    elapsed: float = 0.0
    substep: int = 0
    retried: int = 0
    halvings: int = 0
    substeps_of_frame: int = 0
    frame_begun: bool = False
    told_of_limit: bool = False

    @property
    def time(self) -> float:
        """Time that the state is at [s]."""
        return self.settings.time_of_frame(self.frame) + self.elapsed

    def step(self, dt: float) -> Step:
        """The step that starts now."""
        return Step(self.frame + 1, self.time, dt, self.substep, 0, self.settings.random_seed)

    def advance_frame(self, runner: StageRunner) -> None:
        """Compute the next frame, or the rest of it. Collective."""
        duration = self.settings.frame_duration
        if not self.frame_begun:
            runner.run_stage(Stage.FRAME_BEGIN, self.step(duration))
            self.frame_begun = True
        while self.elapsed < duration:
            count = self._remaining_substeps(runner, duration)
            dt = (duration - self.elapsed) / count
            snapshot = None  # the former is freed first: it may be as large as all the rest
            snapshot = runner.snapshot()
            try:
                self._run_substep(runner, self.step(dt))
            except DivergenceError as error:
                runner.roll_back(snapshot)
                self._halve(runner, dt, error)
                continue
            except Cancelled:
                runner.roll_back(snapshot)
                raise
            runner.accept_substep(self.step(dt))
            self.substep += 1
            self.substeps_of_frame += 1
            # The last substep ends on the frame itself, not near it.
            self.elapsed = duration if count == 1 else self.elapsed + dt
        self.frame += 1
        self.elapsed = 0.0
        self.halvings = self.substeps_of_frame = 0
        self.frame_begun = False
        for stage in (Stage.MAKE_SURFACES, Stage.FRAME_END):
            runner.run_stage(stage, self._frame_end())

    def _frame_end(self) -> Step:
        settings = self.settings
        return Step(
            self.frame, self.time, settings.frame_duration, self.substep, 0, settings.random_seed
        )

    def _halve(self, runner: StageRunner, dt: float, error: LokiError) -> None:
        self.halvings += 1
        self.retried += 1
        where = f"frame {self.frame + 1}, substep {self.substep}"
        if self.halvings > self.settings.retries:
            raise DivergenceError(
                f"{where}: the step stays bad after {self.settings.retries} halvings, down to "
                f"dt = {dt:.3g} s: {error}"
            ) from error
        runner.warn(f"{where}: {error}; trying again with dt = {0.5 * dt:.3g} s")

    def _remaining_substeps(self, runner: StageRunner, duration: float) -> int:
        """How many equal substeps should fill the rest of the frame."""
        longest = duration / self.settings.substeps
        if self.settings.adaptive_substeps:
            allowed = max(1, self.settings.max_substeps - self.substeps_of_frame)
            shortest = (duration - self.elapsed) / allowed
            wanted = runner.time_step_limit()
            if wanted < 0.999 * shortest and not self.told_of_limit:
                self.told_of_limit = True
                runner.warn(
                    f"frame {self.frame + 1}: max_substeps = {self.settings.max_substeps} does not "
                    f"suffice; substeps should be {wanted:.3g} s long and are {shortest:.3g} s"
                )
            longest = min(longest, max(wanted, shortest))
        longest /= 1 << self.halvings
        # Round-off must not add a substep of no length.
        return max(1, math.ceil((duration - self.elapsed) / longest - 1e-9))

    def _run_substep(self, runner: StageRunner, step: Step) -> None:
        for stage in SUBSTEP_BEFORE_NEWTON:
            runner.run_stage(stage, step)
        for iteration in range(self.settings.newton_iterations):
            now = step.at_newton(iteration)
            for stage in NEWTON_SOLIDS:
                runner.run_stage(stage, now)
            # Fluids take one step from one state, so what is repeated are the solids alone.
            for more in range(1, MORE_ITERATIONS + 1):
                if not runner.overshoots():
                    break
                now = step.at_newton(iteration + more)
                for stage in NEWTON_SOLIDS:
                    runner.run_stage(stage, now)
            for stage in NEWTON_FLUIDS:
                runner.run_stage(stage, now)
            if runner.newton_change() <= self.settings.newton_tolerance:
                break
        for stage in SUBSTEP_AFTER_NEWTON:
            runner.run_stage(stage, step)

    def state(self) -> dict[str, Any]:
        """Position as a plain document."""
        return {
            "frame": self.frame,
            "elapsed": self.elapsed,
            "substep": self.substep,
            "retried": self.retried,
            "halvings": self.halvings,
            "substeps_of_frame": self.substeps_of_frame,
            "frame_begun": self.frame_begun,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take such a position back."""
        self.frame = int(state["frame"])
        self.elapsed = float(state["elapsed"])
        self.substep = int(state["substep"])
        self.retried = int(state["retried"])
        self.halvings = int(state["halvings"])
        self.substeps_of_frame = int(state["substeps_of_frame"])
        self.frame_begun = bool(state["frame_begun"])
