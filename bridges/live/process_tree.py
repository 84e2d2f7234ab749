"""Process trees: what a job's processes use, and ending all of them.

An MPI launcher starts proxies, which start ranks. When one of them is killed, those below it may
live on under another parent; so the processes of a job are noted while it runs, with the time that
each was started, and ended by name and time.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Process(NamedTuple):
    """A process, told apart from a later one of the same number."""

    pid: int
    started: int


class ProcessTree:
    """The processes that came from one child of ours, dead parents included."""

    def __init__(self, pid: int) -> None:
        table = _process_table()
        self._known = {Process(pid, table[pid][1])} if pid in table else set()
        self.refresh()

    def refresh(self) -> None:
        """Note the processes that are there now."""
        table = _process_table()
        reached = {one.pid for one in self._known if _is(one, table)}
        grown = True
        while grown:
            grown = False
            for pid, (parent, _, _) in table.items():
                if parent in reached and pid not in reached:
                    reached.add(pid)
                    grown = True
        self._known = {Process(pid, table[pid][1]) for pid in reached if pid in table}

    def resident_bytes(self) -> int:
        """Return the memory that all of them have in use [bytes]."""
        table = _process_table()
        return sum(table[one.pid][2] for one in self._known if _is(one, table))

    def alive(self) -> list[int]:
        """Return the numbers of those that still run."""
        table = _process_table()
        return sorted(one.pid for one in self._known if _is(one, table))

    def kill(self) -> None:
        """End all of them now."""
        self.refresh()
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def wait_gone(self, seconds: float) -> bool:
        """Wait until none of them runs; return whether that came true."""
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True


def started_at(pid: int) -> int | None:
    """Return when a process was started, in the system's own count; None if it is not there."""
    entry = _process_table(pid).get(pid)
    return None if entry is None else entry[1]


def _is(one: Process, table: dict[int, tuple[int, int, int]]) -> bool:
    return one.pid in table and table[one.pid][1] == one.started


def _process_table(only: int | None = None) -> dict[int, tuple[int, int, int]]:
    """Return parent, start time and resident bytes of every process that is no zombie."""
    table = {}
    for folder in Path("/proc").glob("[0-9]*" if only is None else str(only)):
        try:
            text = (folder / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it ended between the listing and the reading
        values = text.rpartition(")")[2].split()
        if len(values) > 21 and values[0] not in "ZX":
            table[int(folder.name)] = (int(values[1]), int(values[19]), int(values[21]) * PAGE)
    return table
