"""Costs of a wedge: what each variant took, from the logs of its runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loki_vfx.bridges.standalone.events import Event, duration_words
from loki_vfx.bridges.standalone.failures import Failure
from loki_vfx.bridges.standalone.run_report import LOG_NAME
from loki_vfx.bridges.standalone.run_table import NOTHING, byte_words
from loki_vfx.bridges.standalone.wedge import short_names
from loki_vfx.bridges.standalone.wedge_folder import Plan
from loki_vfx.serialization.atomic_file import replacing


@dataclass(frozen=True)
class Cost:
    """What a variant took so far.

    Attributes:
        frames: That were computed or written; the start frame is one.
        seconds: From start to end of all its runs, or to the last frame of those without an end.
        seconds_per_frame: The mean, without the first frame, which compiles kernels.
        memory: The most that its ranks had together at the end of a frame [bytes].
        elements: Of all Objects in the last frame: particles, voxels, points.
        total_substeps: Of all frames.
        retries: Substeps that were tried again.
    """

    frames: int = 0
    seconds: float | None = None
    seconds_per_frame: float | None = None
    memory: int | None = None
    elements: int | None = None
    total_substeps: int | None = None
    retries: int | None = None


@dataclass(frozen=True)
class Result:
    """A variant with what became of it."""

    plan: Plan
    cost: Cost
    failure: Failure | None = None

    @property
    def state(self) -> str:
        """Of the variant, in one word."""
        return "failed" if self.failure is not None else self.plan.state

    def to_document(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            **asdict(self.plan.variant),
            "name": self.plan.variant.name,
            "folder": str(self.plan.folder),
            "state": self.state,
            "cost": asdict(self.cost),
            "failure": None if self.failure is None else self.failure._asdict(),
        }


def read_cost(folder: Path) -> Cost:
    """Return what the log of a variant says; a run that started again counts from there."""
    frames: dict[int, Event] = {}
    spent, since, memory = 0.0, 0.0, 0
    for event in _events(folder / LOG_NAME):
        kind = event["event"]
        if kind == "started":
            if event.get("resumed_from") is None:
                frames.clear()
                spent, memory = 0.0, 0
            else:
                spent += since
            since = 0.0
        elif kind == "frame":
            frames[event["frame"]] = event
            since += event["seconds"] or 0.0
        elif kind == "statistics":
            memory = max(memory, sum(int(rank["memory"]) for rank in event["ranks"]))
        elif kind == "finished":
            spent, since = spent + event["seconds"], 0.0
    if not frames:
        return Cost()
    timed = [one["seconds"] for one in frames.values() if one["seconds"] is not None]
    steady = timed[1:] or timed
    return Cost(
        frames=len(frames),
        seconds=spent + since,
        seconds_per_frame=sum(steady) / len(steady) if steady else None,
        memory=memory or None,
        elements=sum(frames[max(frames)]["counts"].values()),
        total_substeps=sum(
            one["substeps"] for one in frames.values() if one["seconds"] is not None
        ),
        retries=sum(one["retries"] for one in frames.values() if one["seconds"] is not None),
    )


def _events(path: Path) -> Iterator[Event]:
    """Yield what can be read of a log; a killed run may have left half a line."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                yield event


def columns(results: Sequence[Result]) -> list[str]:
    """Return the heads of the table for people."""
    costs = ["per frame", "total", "memory", "elements", "all substeps", "retries"]
    return ["variant", *short_names(results[0].plan.variant.values).values(), "state", *costs]


def row(result: Result) -> list[str]:
    """Return the words of each column."""
    cost = result.cost
    return [
        result.plan.variant.name,
        *result.plan.variant.values.values(),
        result.state,
        _short_duration(cost.seconds_per_frame),
        _short_duration(cost.seconds),
        NOTHING if cost.memory is None else byte_words(cost.memory),
        _count(cost.elements),
        _count(cost.total_substeps),
        _count(cost.retries),
    ]


def _short_duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    return f"{1000.0 * seconds:.0f} ms" if seconds < 0.1 else duration_words(seconds)


def _count(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as lines of text, for logs and pipes."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    padded = ("  ".join(word.ljust(width) for word, width in zip(line, widths)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def rich_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """Return a table for terminals."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=False, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(Text(head), no_wrap=head in ("variant", "state"), overflow="fold")
    for words in rows:
        failed = "failed" in words
        table.add_row(*(Text(word, style="red" if failed else "") for word in words))
    return table


def write_table(path: Path, results: Sequence[Result]) -> None:
    """Write all variants as CSV: values under their full names, costs in SI units."""
    with replacing(path) as temporary, temporary.open("x", encoding="utf-8", newline="") as file:
        heads = list(_flat(results[0].to_document()))
        writer = csv.DictWriter(file, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_flat(result.to_document()) for result in results)


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    where = {"index": document["index"], "folder": document["name"]}
    failure = (document["failure"] or {}).get("message", "")
    result = {"state": document["state"], **document["cost"], "failure": failure}
    taken = {*where, *result}
    values = {
        f"value of {target}" if target in taken else target: value
        for target, value in document["values"].items()
    }
    return {**where, **values, **result}
