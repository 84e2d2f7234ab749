"""Run a script on N ranks and hand back what rank 0 saved."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
WARM_START = Path(__file__).with_name("warm_start.py")


def run_on_ranks(
    script: Path, ranks: int, *arguments: object, timeout: float = 800.0, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run `script arguments...` with the interpreter of the tests; one rank runs without MPI."""
    command = [*interpreter(), str(script), *map(str, arguments)]
    if ranks > 1:
        mpiexec = Path(sys.executable).parent / "mpiexec"
        command = [str(mpiexec), "-n", str(ranks), *command]
    environment = {**os.environ, "LOKI_CHECK_ACCESS": "1", "PYTHONPATH": str(ROOT)}
    # Ranks share few cores here; one thread each keeps them from getting in each other's way.
    environment.setdefault("NUMBA_NUM_THREADS", "2" if ranks == 1 else "1")
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\nfailed:\n{done.stdout}\n{done.stderr}")
    return done


def interpreter() -> list[str]:
    """What runs a script: Python, or a client of the server that has imported everything."""
    if not hasattr(os, "fork"):
        return [sys.executable]
    return [sys.executable, "-S", "-E", str(WARM_START), _server()]


@functools.cache
def _server() -> str:
    """Start the server of warm starts for this process; returns its socket."""
    place = str(Path(tempfile.mkdtemp(prefix="loki-ranks-")) / "socket")
    server = subprocess.Popen(
        [sys.executable, str(WARM_START), place],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    atexit.register(server.communicate)  # which ends its input, and so the server
    return place


def results_on_ranks(
    script: Path, ranks: int, folder: Path, *arguments: object
) -> dict[str, np.ndarray]:
    """Run a script whose first argument is where to save an npz file, and load that file."""
    target = folder / f"{script.stem}_{'_'.join(map(str, arguments))}_{ranks}.npz"
    run_on_ranks(script, ranks, target, *arguments)
    with np.load(target) as saved:
        return dict(saved)


def balance_at_every_look() -> None:
    """Let data move at every look at the load balance, as if that always paid.

    For scripts that are about data on their way between ranks, and too short for a real gain.
    """
    from loki_core.data.load_balance import Prospect

    Prospect.pays = lambda *_, **__: True  # type: ignore[method-assign]
