"""Tables of runs: what a server says of them, as numbers for machines and as words for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loki_vfx.bridges.standalone.events import duration_words

#: States in which processes of a run work.
AT_WORK = ("starting", "running", "paused", "restarting")
SHOWN_STAGES = 3
SHOWN_RANKS = 4
NOTHING = "-"
COLUMNS = (
    "run",
    "state",
    "frame",
    "per frame",
    "left",
    "ranks",
    "memory",
    "of each rank",
    "balance",
    "restarts",
    "clients",
    "time in stages",
)


@dataclass(frozen=True)
class RunUsage:
    """What a run does and what it uses.

    Attributes:
        frame: The last whole frame; None before the first.
        seconds_per_frame: Of the last frame.
        memory: Of all its processes now [bytes].
        memory_of_ranks: At the end of the last frame [bytes], one for each rank.
        stages: Part of rank 0's time in each Stage since the start, largest first.
        balance: Time of the slowest rank over the mean, in the last frame; 1 is even.
        clients: Who follow the run.
    """

    run: str
    owner: str
    state: str
    message: str
    frame: int | None
    last: int | None
    seconds_per_frame: float | None
    seconds_left: float | None
    ranks: int
    memory: int
    memory_of_ranks: list[int]
    stages: dict[str, float]
    balance: float | None
    restarts: int
    clients: int

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> RunUsage:
        """Read what a server tells of a run."""
        progress, statistics = summary["progress"], summary["statistics"]
        is_at_work = summary["state"] in AT_WORK
        of_ranks = [int(rank["memory"]) for rank in statistics.get("ranks", ())]
        frames = progress.get("frames") or (None, None)
        # Ranks on other machines, or in another step of a batch job, are no children of the
        # server: it knows of their memory only from themselves.
        memory = max(int(summary["memory"]), sum(of_ranks)) if is_at_work else 0
        return cls(
            run=summary["run"],
            owner=summary["owner"],
            state=summary["state"],
            message=summary["message"],
            frame=progress.get("frame"),
            last=progress.get("last", frames[1]),
            seconds_per_frame=progress.get("seconds"),
            seconds_left=progress.get("seconds_left") if is_at_work else None,
            ranks=summary["ranks"],
            memory=memory,
            memory_of_ranks=of_ranks,
            stages=_shares(statistics.get("stages", {})),
            balance=statistics.get("balance"),
            restarts=summary["restarts"],
            clients=summary["clients"],
        )

    def row(self) -> tuple[str, ...]:
        """Return the words of each column."""
        frame = NOTHING if self.frame is None else str(self.frame)
        if self.last is not None:
            frame += f"/{self.last}"
        each = [byte_words(size) for size in self.memory_of_ranks]
        if len(each) > SHOWN_RANKS:
            low, high = min(self.memory_of_ranks), max(self.memory_of_ranks)
            each = [f"{byte_words(low)} to {byte_words(high)}"]
        stages = [f"{name} {100.0 * part:.0f} %" for name, part in self.stages.items()]
        return (
            self.run,
            self.state,
            frame,
            _duration(self.seconds_per_frame),
            _duration(self.seconds_left),
            str(self.ranks),
            byte_words(self.memory) if self.memory else NOTHING,
            ", ".join(each) or NOTHING,
            NOTHING if self.balance is None else f"{self.balance:.2f}",
            str(self.restarts),
            str(self.clients),
            ", ".join(stages[:SHOWN_STAGES]) or NOTHING,
        )


def plain_table(runs: Sequence[RunUsage]) -> str:
    """Return the table as lines of text, for logs and pipes."""
    rows = [COLUMNS, *(run.row() for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def rich_table(runs: Sequence[RunUsage], title: str) -> Any:
    """Return the table for terminals."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", expand=False)
    for column in COLUMNS:
        table.add_column(column, no_wrap=column in ("state", "frame"))
    for run in runs:
        table.add_row(*(Text(word) for word in run.row()))
    return table


def server_words(server: Mapping[str, Any]) -> str:
    """Return a line about the server itself."""
    memory = server.get("memory") or {}
    parts = [f"{server['root']}: {server['cores']} cores"]
    if memory.get("total"):
        free, total = byte_words(memory.get("available", 0)), byte_words(memory["total"])
        parts.append(f"{free} of {total} free")
    if server.get("memory_limit"):
        parts.append(f"runs may use {byte_words(server['memory_limit'])}")
    return ", ".join(parts)


def messages_of(runs: Sequence[RunUsage]) -> list[str]:
    """Return what runs have to say besides their numbers."""
    return [f"{one.run}: {one.message.splitlines()[0]}" for one in runs if one.message.strip()]


def byte_words(count: float) -> str:
    """Return a size for people: 640 B, 12.5 MB, 3.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000.0
    return f"{count:.3g} TB"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    return f"{1000.0 * seconds:.0f} ms" if seconds < 0.1 else duration_words(seconds)


def _shares(stages: Mapping[str, float]) -> dict[str, float]:
    total = sum(stages.values())
    ordered = sorted(stages.items(), key=lambda item: -item[1])
    return {name: seconds / total for name, seconds in ordered if total > 0.0}
