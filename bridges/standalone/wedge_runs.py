"""Runs of a wedge: each variant in a process of its own, some at a time.

A variant that fails, or is killed, does not stop the others.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TextIO

from loki_core.errors import Cancelled
from loki_core.operating_system import ask_to_stop, on_its_own, signal_that_ended
from loki_vfx.bridges.live.local_server import wtloki_command
from loki_vfx.bridges.standalone.events import Event, describe_event
from loki_vfx.bridges.standalone.failures import Failure, describe_failure
from loki_vfx.bridges.standalone.run_request import RunRequest
from loki_vfx.bridges.standalone.wedge_folder import (
    LOG,
    Plan,
    request_words,
    variant_request,
    write_variant,
)


@dataclass(frozen=True)
class Outcome:
    """How the run of a variant ended; without a failure it is complete."""

    plan: Plan
    failure: Failure | None = None

    @property
    def was_stopped(self) -> bool:
        """Whether it was stopped on request, on the way or before it began."""
        return self.failure is not None and self.failure.exit_code == Cancelled.exit_code


def run_command_words(request: RunRequest, plan: Plan, *, ranks: int = 1) -> list[str]:
    """Return the command line that runs a variant."""
    run = variant_request(request, plan)
    words = [*wtloki_command(), "run", *request_words(run), "--output", run.output]
    words += ["--ranks", str(ranks)] if ranks > 1 else []
    words += ["--resume"] if run.resume else []
    return words + (["--overwrite"] if run.overwrite else [])


class WedgeRuns:
    """Runs the variants of a wedge.

    Args:
        request: What all variants have in common.
        ranks: Of each run.
        jobs: How many runs go on at a time.
        begin: Is told when a run begins.
        end: Is told how a run ended.
    """

    def __init__(
        self,
        request: RunRequest,
        *,
        ranks: int = 1,
        jobs: int = 1,
        begin: Callable[[Plan], None] = lambda plan: None,
        end: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self._request = request
        self._ranks = ranks
        self._jobs = jobs
        self._begin, self._end = begin, end
        self._stopped = False
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()

    def run(self, plans: Sequence[Plan]) -> list[Outcome]:
        """Run all of them to their ends and return these, in the order of the plans."""
        with ThreadPoolExecutor(max_workers=self._jobs) as pool:
            return list(pool.map(self._run, plans))

    def stop(self) -> None:
        """Stop all runs with a checkpoint and begin no other; safe from signal handlers."""
        self._stopped = True
        for process in list(self._processes):
            ask_to_stop(process)

    def _run(self, plan: Plan) -> Outcome:
        if self._stopped:
            return Outcome(plan, Failure("Cancelled", "was not begun", Cancelled.exit_code))
        self._begin(plan)
        try:
            plan.folder.mkdir(parents=True, exist_ok=True)
            write_variant(self._request, plan)
            outcome = Outcome(plan, self._follow(plan))
            if outcome.failure is not None and not outcome.was_stopped:
                write_variant(self._request, plan, outcome.failure)
        except Exception as error:  # whatever it is, the others go on
            outcome = Outcome(plan, describe_failure(error))
        self._end(outcome)
        return outcome

    def _follow(self, plan: Plan) -> Failure | None:
        """Run a variant, write what it says into its log, and return why it failed."""
        words = [*run_command_words(self._request, plan, ranks=self._ranks), "--json"]
        told: Failure | None = None
        with (plan.folder / LOG).open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, text=True, **on_its_own()
            )
            with self._lock:
                self._processes.add(process)
            if self._stopped:  # between the question and the start
                ask_to_stop(process)
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    event = _log_line(line, log)
                    if event.get("event") == "error":
                        told = Failure(
                            str(event.get("error")),
                            str(event.get("message")),
                            int(event.get("exit_code", 1)),
                        )
            code = process.wait()
            with self._lock:
                self._processes.discard(process)
        return None if code == 0 else told or unexplained_failure(code)


def _log_line(line: str, log: TextIO) -> Event:
    """Write a line of a run for people, and return the event that it tells."""
    try:
        event = json.loads(line)
        words = describe_event(event)
    except (ValueError, KeyError, TypeError, AttributeError):
        log.write(line)
        return {}
    log.writelines(f"{one}\n" for one in words)
    log.flush()
    return dict(event)


def unexplained_failure(code: int) -> Failure:
    """Return what an exit code says where the run said nothing."""
    if code == Cancelled.exit_code:
        return Failure("Cancelled", "was stopped", code)
    if code >= 0:
        return Failure("Failure", f"ended with exit code {code}; {LOG} says more", code)
    return Failure("Killed", f"was killed by {signal_that_ended(code)}", 1)
