"""Local servers: finding the one that serves a folder, and starting one where there is none."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loki_core.errors import LokiError
from loki_core.operating_system import (
    is_same_start,
    on_its_own,
    program_beside_python,
    started_at,
)

DISCOVERY = ".server.json"
SECONDS_TO_START = 60.0
IDLE_SECONDS = 600
_started: list[subprocess.Popen[bytes]] = []


def default_root() -> Path:
    """Return where runs are kept by default: LOKI_RUNS, or a folder of the user."""
    given = os.environ.get("LOKI_RUNS")
    return Path(given) if given else Path.home() / "loki_runs"


def discovered(root: Path) -> dict[str, Any] | None:
    """Return what a server of a root has published of itself; None where there is none."""
    try:
        document = json.loads((root / DISCOVERY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("endpoint"), str):
        return None
    if document.get("host") != platform.node():  # its sockets cannot be reached from here
        return None
    pid = document.get("pid")
    is_there = type(pid) is int and is_same_start(started_at(pid), document.get("started"))
    return document if is_there else None  # a number is given to other processes later


def ensure_server(
    root: Path, command: Sequence[str] | None = None, options: Sequence[str] = ()
) -> str:
    """Return the endpoint of the server of a root; start one if need be.

    Args:
        root: Folder of the runs.
        command: How `wtloki` is called; that of this Python, or on the path, if None. It lives
            on when this process ends, and ends by itself some minutes after its last work.
        options: Of `wtloki serve`, for a server that is started.

    Raises:
        LokiError: It does not start.
    """
    found = discovered(root)
    if found is not None:
        return str(found["endpoint"])
    _started[:] = [one for one in _started if one.poll() is None]
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = [*(command or wtloki_command()), "serve", "--root", str(root)]
    words += ["--end-when-idle", str(IDLE_SECONDS), *options]
    with (root / "server.out").open("wb") as out:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            **on_its_own(),  # the host's Ctrl-C and its end are not the server's
            env=environment_for(words[0]),
        )
    _started.append(process)  # so that it is not forgotten while it runs
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end:
        found = discovered(root)  # ours, or one that somebody else started at the same time
        if found is not None:
            return str(found["endpoint"])
        if process.poll() not in (None, 0) and discovered(root) is None:
            time.sleep(0.2)  # the other one may just be opening its sockets
            if discovered(root) is None:
                break
        time.sleep(0.02)
    process.poll()
    text = (root / "server.out").read_text(encoding="utf-8", errors="replace")[-2000:]
    raise LokiError(f"a server for {root} did not start ({' '.join(words)}):\n{text}")


def environment_for(program: str) -> dict[str, str]:
    """Return the environment of this process, without what a host tells its own Python."""
    kept = dict(os.environ)
    if Path(program).parent != Path(sys.executable).parent:
        for name in ("PYTHONHOME", "PYTHONPATH"):
            kept.pop(name, None)
    return kept


def wtloki_command() -> list[str]:
    """Return how `wtloki` is called from here: LOKI_WTLOKI, or beside this Python, or on the path.

    Raises:
        LokiError: There is none.
    """
    given = os.environ.get("LOKI_WTLOKI")
    if given:
        return [given]
    beside = program_beside_python("wtloki")
    if beside.exists():
        return [str(beside)]
    found = shutil.which("wtloki")
    if found:
        return [found]
    if importlib.util.find_spec("click") is None:  # a host that has the client alone
        raise LokiError(
            "wtloki was not found; install the solver as docs/install.md says, and let the "
            "environment variable LOKI_WTLOKI name its wtloki, or give command=[PATH]"
        )
    return [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line"]
