"""Events of a run, and how they are told: as JSON lines, as plain lines, or with a progress bar.

An event is a plain map with a key "event":

    started     setup, frames, ranks, threads, output, resumed_from, counts, inactive
    compiling   message (numba compiles kernels; the next run finds them on the disk)
    frame       frame, last, seconds, seconds_left, counts, substeps, retries
    warning     message
    statistics  frame, ranks (memory [bytes], seconds, bytes_sent of each), stages, balance,
                balances (looks at the load balance: imbalance before and after, moved, seconds)
    checkpoint  frame, folder, seconds
    changed     frame, changes (parameters that differ from the next frame on)
    unchanged   frame, changes (that cannot be made; a warning says why)
    finished    frames, seconds, output, compiled_kernels
    cancelled   frame, checkpoint
    error       error, message, exit_code
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TextIO

from loki_core.wording import counted

Event = dict[str, Any]
Listener = Callable[[Event], None]


class JsonReporter:
    """One JSON object on a line for each event."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def __call__(self, event: Event) -> None:
        """Tell an event."""
        self._stream.write(json.dumps(event, allow_nan=False) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is open."""


class PlainReporter:
    """A line of words for each event, for log files."""

    def __call__(self, event: Event) -> None:
        """Tell an event."""
        for line in describe_event(event):
            print(line, flush=True)

    def close(self) -> None:
        """Nothing is open."""


class ProgressReporter:
    """A progress bar with frame, counts and time left, for terminals."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            refresh_per_second=5,
        )
        self._task: Any = None

    def __call__(self, event: Event) -> None:
        """Tell an event."""
        if event["event"] == "frame":
            self._show_frame(event)
            return
        if event["event"] in ("finished", "cancelled"):
            self._progress.stop()
        for line in describe_event(event):
            self._progress.console.print(line, markup=False, highlight=False)
        if event["event"] == "started":
            total = event["frames"][1] - event["frames"][0] + 1
            done = event["done"]
            self._progress.start()
            self._task = self._progress.add_task(
                "frames", total=total, completed=done, detail="preparing"
            )

    def _show_frame(self, event: Event) -> None:
        detail = f"frame {event['frame']}   {_count_words(event['counts'])}"
        if event["seconds"] is not None:
            detail += f"   {event['seconds']:.2f} s/frame"
        if event["seconds_left"] is not None:
            detail += f"   {duration_words(event['seconds_left'])} left"
        if event["retries"]:
            detail += f"   {counted(event['retries'], 'retried substep')}"
        self._progress.update(self._task, completed=event["done"], detail=detail)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()


Reporter = JsonReporter | PlainReporter | ProgressReporter


def make_reporter(*, as_json: bool) -> Reporter:
    """Return the reporter that suits where the output goes."""
    if as_json:
        return JsonReporter()
    return ProgressReporter() if sys.stdout.isatty() else PlainReporter()


def describe_event(event: Event) -> list[str]:
    """Return the lines that people read about an event."""
    kind = event["event"]
    if kind == "started":
        lines = [
            f"{event['setup']}: frames {event['frames'][0]} to {event['frames'][1]}, "
            f"{counted(event['ranks'], 'rank')} of {counted(event['threads'], 'thread')}, "
            f"into {event['output']}"
        ]
        if event["resumed_from"] is not None:
            lines.append(f"resumed from the checkpoint of frame {event['resumed_from']}")
        return lines + [f"inactive: {i['path']} ({i['reason']})" for i in event["inactive"]]
    if kind == "frame":
        line = f"frame {event['frame']} of {event['last']}: {_count_words(event['counts'])}"
        if event["seconds"] is not None:
            line += f", {event['seconds']:.2f} s, {counted(event['substeps'], 'substep')}"
        if event["retries"]:
            line += f", {event['retries']} retried"
        if event["seconds_left"] is not None and event["frame"] < event["last"]:
            line += f", {duration_words(event['seconds_left'])} left"
        return [line]
    if kind in ("statistics", "unchanged"):
        return []
    if kind == "changed":
        return [f"from frame {event['frame'] + 1} on: {', '.join(event['changes'])}"]
    if kind == "checkpoint":
        return [f"checkpoint of frame {event['frame']}"]
    if kind == "finished":
        kernels = event["compiled_kernels"]
        new = f", {counted(kernels, 'kernel')} compiled" if kernels else ""
        return [
            f"finished: {counted(event['frames'], 'frame')} in {duration_words(event['seconds'])}"
            f"{new}; {event['output']}"
        ]
    if kind == "cancelled":
        return [
            f"stopped: frames up to {event['frame']} are whole, and a checkpoint is there; "
            "--resume continues"
        ]
    prefix = "" if kind == "compiling" else f"{kind}: "
    return [f"{prefix}{event.get('message', '')}"]


def duration_words(seconds: float) -> str:
    """Return a duration for people: 4.2 s, 3 min 10 s, 2 h 05 min."""
    if seconds < 60.0:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _count_words(counts: dict[str, int]) -> str:
    if len(counts) == 1:
        return counted(next(iter(counts.values())), "element")
    return ", ".join(f"{path} {count:,}" for path, count in counts.items())
