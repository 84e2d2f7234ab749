"""Worker Process: the processes of one start of a run, and what they said."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loki_core.operating_system import on_its_own
from loki_vfx.bridges.live.process_tree import ProcessTree

LOG_TAIL = 20_000
SECONDS_TO_END = 5.0


class WorkerProcess:
    """A solver alone, or an MPI launcher with its ranks.

    Its input is a pipe that we hold: when it ends, rank 0 knows that its server is gone.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as file:
            self._log_start = file.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                **on_its_own(),
            )
        self._log = log
        self._tree = ProcessTree(self._process.pid)

    def has_exited(self) -> bool:
        """Whether the first of the processes has ended."""
        return self._process.poll() is not None

    def look(self) -> int:
        """Note the processes that are there, and return their memory [bytes]."""
        self._tree.refresh()
        return self._tree.resident_bytes()

    def kill(self) -> None:
        """End all processes, without waiting for it."""
        self._tree.kill()

    def finish(self) -> int:
        """End whatever is left, ranks whose launcher was killed too; return the exit code."""
        if not self.has_exited():
            self._tree.kill()
        code = self._process.wait()
        self._tree.kill()
        self._tree.wait_gone(SECONDS_TO_END)
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def log_tail(self) -> str:
        """Return the last of what the processes have printed."""
        try:
            with self._log.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, end - LOG_TAIL))
                return file.read(LOG_TAIL).decode("utf-8", "replace")
        except OSError:
            return ""

    def error_in_log(self) -> dict[str, Any] | None:
        """Find the error of a rank that had no link to tell it."""
        for line in reversed(self.log_tail().splitlines()):
            # mpiexec may put the name of the rank in front
            start = line.find('{"event": "error"')
            if start < 0:
                continue
            try:
                event = json.loads(line[start:])
                return {
                    "error": str(event["kind"]),
                    "message": str(event["message"]),
                    "exit_code": int(event["exit_code"]),
                }
            except (ValueError, KeyError, TypeError):
                continue
        return None
