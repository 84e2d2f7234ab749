"""Launch: start the ranks of an MPI job, relay what rank 0 tells, and stop them on request.

The launcher is no rank itself. It keeps a pipe open to rank 0, which takes its end as the wish to
stop: so Ctrl-C works, and ranks do not outlive a launcher that was killed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from loki_core.errors import Cancelled, InputError, LokiError
from loki_core.operating_system import core_count, on_its_own, program_beside_python
from loki_vfx.bridges.standalone.events import Event, Reporter
from loki_vfx.bridges.standalone.failures import Failure, RanksFailed
from loki_vfx.bridges.standalone.run_command import stop_on_signals
from loki_vfx.bridges.standalone.run_request import RunRequest

#: What MPI launchers and numba read; a job inside a job must not inherit the outer one's place.
_INHERITED = ("PMI_", "PMIX_", "OMPI_", "HYDI_", "MPI_LOCAL")
KEPT_LINES = 200


def find_mpiexec() -> str:
    """Return the MPI launcher beside this Python, or on the path.

    Raises:
        LokiError: There is none, or mpi4py is missing.
    """
    beside = program_beside_python("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        missing = "mpiexec" if found is None else "mpi4py"
        raise LokiError(
            f"--ranks needs MPI, and {missing} is not installed: pip install mpi4py mpich"
        )
    return found


def job_command(ranks: int, words: Sequence[str]) -> list[str]:
    """Return the command that runs `python words...` alone, or on several ranks."""
    alone = [sys.executable, *words]
    return alone if ranks == 1 else [find_mpiexec(), "-n", str(ranks), *alone]


def job_environment(threads: int) -> dict[str, str]:
    """Return the environment of such a job: nothing of a job around it, and so many threads."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_INHERITED)}
    environment["NUMBA_NUM_THREADS"] = str(threads)
    return environment


def threads_of_rank(asked: int | None, ranks: int) -> int:
    """Return the threads of each rank: as asked, or a fair share of the cores."""
    return asked or max(1, core_count() // ranks)


def launch_ranks(request: RunRequest, ranks: int, reporter: Reporter) -> None:
    """Run a request on several ranks of this machine, or of the machines that mpiexec knows.

    Raises:
        Cancelled: The run was stopped on request.
        RanksFailed: A rank ended with an error.
    """
    if request.file is not None and not Path(request.file).exists():
        raise InputError(f"{request.file} is not there")
    threads = threads_of_rank(request.threads, ranks)
    request = replace(request, threads=threads)
    process = subprocess.Popen(
        job_command(ranks, ["-m", "loki_vfx.bridges.standalone.worker", request.to_json()]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=job_environment(threads),
        **on_its_own(),  # Ctrl-C of the terminal reaches the launcher alone
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    stdin, noise = process.stdin, _Tail(process.stderr)
    last: Event = {}
    try:
        with stop_on_signals(stdin.close):
            for line in process.stdout:
                event = _as_event(line)
                if event is None:
                    noise.lines.append(line)
                    continue
                if last.get("event") == "error":
                    continue  # the first rank to fail has said it
                last = event
                if event["event"] != "error":
                    reporter(event)
            code = process.wait()
    finally:
        stdin.close()
        if process.poll() is None:
            process.terminate()
        process.wait()
        noise.join()
    _judge(last, code, noise.text())


def _judge(last: Event, code: int, noise: str) -> None:
    """Turn the last event and the exit code of a job into how it ended."""
    kind = last.get("event")
    if kind == "cancelled":
        raise Cancelled(f"stopped on request after frame {last['frame']}")
    if kind == "error":
        if os.environ.get("LOKI_DEBUG") == "1" or "--debug" in sys.argv:
            sys.stderr.write(noise)
        raise RanksFailed(Failure(last["error"], last["message"], int(last["exit_code"])))
    if kind != "finished" or code != 0:
        text = f"the MPI job ended with code {code} before its work was done"
        raise LokiError(f"{text}:\n{noise}" if noise.strip() else text)


def _as_event(line: str) -> Event | None:
    if not line.startswith('{"event":'):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


class _Tail(threading.Thread):
    """Reads a stream to its end and keeps its last lines."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self._stream = stream
        self.start()

    def run(self) -> None:
        for line in self._stream:
            self.lines.append(line)
            del self.lines[:-KEPT_LINES]

    def text(self) -> str:
        return "".join(self.lines)
