"""Cases in processes of their own: one alone, or ranks of one thread each.

A benchmark whose cases run apart has `run_case(case)`, which rank 0 leaves with what it found, and
ends with `if __name__ == "__main__": answer(run_case)`. Whoever measures calls `run_apart`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from loki_vfx.benchmarks._measure import figure
from loki_vfx.benchmarks.peers.mantaflow import MARK, PeerError

Case = dict[str, Any]


def run_apart(module: str, case: Case, *, ranks: int = 0) -> dict[str, Any]:
    """Run a case of a benchmark in a process of its own, or in ranks of one thread each.

    Args:
        module: The benchmark's name as a module.
        case: What its `run_case` gets.
        ranks: How many; 0 is a process with all threads, and no MPI.

    Raises:
        PeerError: It failed.
    """
    words = [sys.executable, "-m", module, json.dumps(case)]
    environment = dict(os.environ)
    if ranks:
        environment["NUMBA_NUM_THREADS"] = "1"
    if ranks > 1:
        from loki_vfx.bridges.standalone.launch import find_mpiexec

        words = [find_mpiexec(), "-n", str(ranks), *words]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode != 0 or not told:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise PeerError(f"the case {case} on {ranks or 1} ranks failed:\n{last}")
    found = json.loads(told[-1].removeprefix(MARK))
    assert isinstance(found, dict)
    return found


def answer(run_case: Callable[[Case], dict[str, Any] | None]) -> None:
    """Run the case that the command line names; tell what it found, where it found anything."""
    found = run_case(json.loads(sys.argv[1]))
    if found is not None:
        print("\n" + MARK + json.dumps(found), flush=True)


def ranks2_speedup(module: str, case: Case, key: str, how: str, *, rounds: int = 2) -> Case:
    """Compare two ranks of one thread with one, which take turns.

    Args:
        module: The benchmark's name as a module.
        case: What its `run_case` gets.
        key: What is compared of what it finds: seconds, or a list of them, each at its best.
        how: What was measured.
        rounds: Turns of each.
    """
    value = None
    try:
        best: dict[int, Any] = dict.fromkeys((1, 2), np.inf)
        for _ in range(rounds):
            for ranks in best:
                best[ranks] = np.minimum(best[ranks], run_apart(module, case, ranks=ranks)[key])
        one, two = (float(np.sum(best[ranks])) for ranks in (1, 2))
        value, how = one / two, f"{how}, one thread a rank: {one:.3g} s against {two:.3g} s"
    except PeerError as error:
        how = str(error)
    return figure(value, "x", 1.6, "higher", how)
