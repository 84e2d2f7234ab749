"""Process trees: what a job's processes use, and ending all of them.

An MPI launcher starts proxies, which start ranks. When one of them is killed, those below it may
live on under another parent; so the processes of a job are noted while it runs, and ended whoever
is their parent then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psutil import Process


class ProcessTree:
    """The processes that came from one child of ours, dead parents included."""

    def __init__(self, pid: int) -> None:
        import psutil

        self._known: set[Process] = set()
        try:
            self._known.add(psutil.Process(pid))
        except psutil.NoSuchProcess:
            return  # it has ended already
        self.refresh()

    def refresh(self) -> None:
        """Note the processes that are there now."""
        import psutil

        reached = {one.pid: one for one in self._running()}
        found = list(psutil.process_iter(["ppid"]))
        grown = True
        while grown:
            grown = False
            for one in found:
                if one.info["ppid"] in reached and one.pid not in reached:
                    reached[one.pid] = one
                    grown = True
        self._known = set(reached.values())

    def resident_bytes(self) -> int:
        """Return the memory that all of them have in use [bytes]."""
        import psutil

        total = 0
        for one in self._running():
            try:
                total += one.memory_info().rss
            except psutil.Error:
                continue  # it has just ended, or become another user's
        return total

    def alive(self) -> list[int]:
        """Return the numbers of those that still run."""
        return sorted(one.pid for one in self._running())

    def kill(self) -> None:
        """End all of them now."""
        import psutil

        self.refresh()
        for one in self._known:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue

    def wait_gone(self, seconds: float) -> bool:
        """Wait until none of them runs; return whether that came true."""
        import psutil

        psutil.wait_procs(self._running(), timeout=seconds)
        return not self._running()

    def _running(self) -> list[Process]:
        """Return those that run, and not processes that have got their numbers since."""
        import psutil

        running = []
        for one in self._known:
            try:
                if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                    running.append(one)
            except psutil.NoSuchProcess:
                continue
        return running
