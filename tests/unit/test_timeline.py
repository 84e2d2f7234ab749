"""The timeline: frames hit exactly, adaptive substeps, Newton stops, rollback and retry."""

from __future__ import annotations

import pytest

from loki_core.errors import Cancelled, DivergenceError, InputError
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.timeline import MORE_ITERATIONS, Timeline
from loki_core.solver_setup import SolverSettings


class Runner:
    """Counts time like a Solver, and fails where it is told to."""

    comm = SERIAL

    def __init__(self, settings, *, limit=float("inf"), longest=float("inf"), changes=()):
        self.settings = settings
        self.limit, self.longest = limit, longest
        self.changes = list(changes)
        self.time = 0.0
        self.dts, self.stages, self.warnings, self.accepted = [], [], [], []
        self.overshot = []
        self.cancel_at = None
        self.begun = 0

    def run_stage(self, stage, step):
        self.stages.append(stage)
        if stage is Stage.SUBSTEP_BEGIN:
            self.begun += 1
            assert self.begun < 500, "the substeps of a frame never end"
            assert step.time == pytest.approx(self.time, abs=1e-12)
            if self.begun == self.cancel_at:
                raise Cancelled("stop")
        if stage is Stage.MOVE_PARTICLES:
            self.time += step.dt
        if stage is Stage.CHECK_STATE:
            if step.dt > self.longest * (1 + 1e-12):
                raise DivergenceError(f"dt = {step.dt} is too long")
            self.dts.append(step.dt)

    def snapshot(self):
        return self.time

    def roll_back(self, snapshot):
        self.time = snapshot

    def accept_substep(self, step):
        self.accepted.append(step.dt)

    def time_step_limit(self):
        return self.limit

    def newton_change(self):
        return self.changes.pop(0) if self.changes else 0.0

    def overshoots(self):
        return self.overshot.pop(0) if self.overshot else False

    def warn(self, message):
        self.warnings.append(message)


def make(*, start_frame=1, frames_per_second=24.0, **options):
    runner_options = {k: options.pop(k) for k in ("limit", "longest", "changes") if k in options}
    settings = SolverSettings(
        start_frame=start_frame, frames_per_second=frames_per_second, **options
    )
    return Timeline(settings, start_frame), Runner(settings, **runner_options)


@pytest.mark.parametrize("rate", [24.0, 23.976, 30.0, 7.0])
@pytest.mark.parametrize("substeps", [1, 3, 7, 10])
def test_frames_are_hit_exactly_with_the_given_substeps(rate, substeps):
    timeline, runner = make(frames_per_second=rate, substeps=substeps, start_frame=1001)
    for frame in range(1, 40):
        timeline.advance_frame(runner)
        assert timeline.frame == 1001 + frame
        assert timeline.time == frame / rate  # bit for bit, however many substeps there were
        assert len(runner.dts) == timeline.substep == frame * substeps
    assert max(runner.dts) - min(runner.dts) < 1e-14


def test_stages_run_in_their_order():
    timeline, runner = make(substeps=2)
    timeline.advance_frame(runner)
    substep = [stage for stage in Stage if stage.loop in ("substep", "newton")]
    ends = (Stage.MAKE_SURFACES, Stage.FRAME_END)
    assert runner.stages == [Stage.FRAME_BEGIN, *substep, *substep, *ends]


def test_adaptive_substeps_keep_to_the_limit_and_hit_the_frame():
    timeline, runner = make(adaptive_substeps=True, limit=0.0099, max_substeps=50)
    timeline.advance_frame(runner)
    # 1/24 s / 0.0099 s = 4.2: five equal substeps.
    assert len(runner.dts) == 5
    assert max(runner.dts) <= 0.0099
    assert timeline.time == 1 / 24


def test_a_limit_that_divides_the_frame_takes_no_substep_more():
    timeline, runner = make(adaptive_substeps=True, limit=1 / 24 / 4)
    timeline.advance_frame(runner)
    assert len(runner.dts) == 4


def test_adaptive_substeps_stay_between_their_bounds():
    timeline, runner = make(adaptive_substeps=True, substeps=3)
    timeline.advance_frame(runner)
    assert len(runner.dts) == 3
    for limit in (1e-9, 0.0):
        timeline, runner = make(adaptive_substeps=True, limit=limit, max_substeps=10)
        timeline.advance_frame(runner)
        assert len(runner.dts) == 10


def test_newton_goes_on_while_a_step_overshoots():
    timeline, runner = make()
    runner.overshot = [True, True, False]
    timeline.advance_frame(runner)
    assert runner.stages.count(Stage.SOLVE_SOLIDS) == 3
    assert runner.stages.count(Stage.SOLVE_PRESSURE) == 1  # fluids step once
    timeline, runner = make()
    runner.overshot = [True] * 50
    timeline.advance_frame(runner)
    assert runner.stages.count(Stage.SOLVE_SOLIDS) == 1 + MORE_ITERATIONS


def test_newton_ends_at_its_tolerance_or_its_count():
    timeline, runner = make(
        newton_iterations=8, newton_tolerance=0.1, changes=[1.0, 0.5, 0.05, 9.0]
    )
    timeline.advance_frame(runner)
    assert runner.stages.count(Stage.SOLVE_SOLIDS) == 3
    timeline, runner = make(newton_iterations=4, newton_tolerance=0.1, changes=[1.0] * 20)
    timeline.advance_frame(runner)
    assert runner.stages.count(Stage.SOLVE_SOLIDS) == 4


# -- retry ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("substeps", "longest", "expected"),
    [
        (1, 1 / 48, 2),  # halved once
        (1, 1 / 96, 4),  # halved twice
        (3, 1 / 144, 6),
        (2, 1 / 50, 4),
    ],
)
def test_a_bad_substep_is_halved_and_the_frame_filled_with_the_shorter_ones(
    substeps, longest, expected
):
    timeline, runner = make(substeps=substeps, longest=longest)
    timeline.advance_frame(runner)
    assert timeline.time == 1 / 24
    assert runner.time == pytest.approx(1 / 24, rel=1e-12)
    assert max(runner.dts) <= longest * (1 + 1e-12)
    assert len(runner.dts) == expected
    assert min(runner.dts) == pytest.approx(max(runner.dts), rel=1e-9)
    assert runner.accepted == runner.dts  # those that were rolled back are not announced
    assert timeline.retried == len(runner.warnings) > 0
    assert "trying again with dt" in runner.warnings[0]
    assert timeline.halvings == 0  # the next frame starts with the full dt again


def test_adaptive_substeps_are_halved_too():
    timeline, runner = make(adaptive_substeps=True, limit=1 / 48, longest=1 / 96)
    timeline.advance_frame(runner)
    assert len(runner.dts) == 4
    assert timeline.time == 1 / 24


def test_a_step_that_stays_bad_ends_the_run_with_the_last_good_state():
    timeline, runner = make(longest=0.0, retries=3)
    with pytest.raises(DivergenceError, match=r"frame 2, substep 0: .*after 3 halvings.*too long"):
        timeline.advance_frame(runner)
    assert runner.time == 0.0 and timeline.elapsed == 0.0 and timeline.frame == 1
    assert len(runner.warnings) == 3


def test_bad_input_is_not_retried():
    timeline, runner = make()
    original = runner.run_stage

    def fail(stage, step):
        if stage is Stage.EMIT:
            raise InputError("the source has no points")
        original(stage, step)

    runner.run_stage = fail
    with pytest.raises(InputError, match="the source has no points"):
        timeline.advance_frame(runner)
    assert not runner.warnings


# -- cancel and state ----------------------------------------------------------------------


@pytest.mark.parametrize("cancel_at", [1, 2, 5])
def test_a_cancelled_frame_is_continued_where_it_was(cancel_at):
    timeline, runner = make(substeps=5)
    runner.cancel_at = cancel_at
    with pytest.raises(Cancelled):
        timeline.advance_frame(runner)
    assert timeline.frame == 1
    assert runner.time == pytest.approx(timeline.elapsed, abs=1e-15)
    resumed = Timeline(timeline.settings, 1)
    resumed.restore(timeline.state())
    runner.cancel_at = None
    resumed.advance_frame(runner)
    assert resumed.time == 1 / 24 and len(runner.dts) == 5
    assert runner.stages.count(Stage.FRAME_BEGIN) == 1  # the frame began once
    uninterrupted, other = make(substeps=5)
    uninterrupted.advance_frame(other)
    assert other.dts == runner.dts


def test_the_position_is_a_plain_document():
    timeline, runner = make(substeps=3)
    timeline.advance_frame(runner)
    state = timeline.state()
    assert all(type(value) in (int, float, bool) for value in state.values())
    other = Timeline(timeline.settings, 1)
    other.restore(state)
    assert other == timeline
