"""SPlisHSPlasH, an SPH library: seconds of a step of its PBF and DFSPH solvers, in another process.

That process is the Python named by the environment variable LOKI_SPLISHSPLASH_PYTHON, else this one
where pysplishsplash can be imported. `pip install pysplishsplash==2.19.0 numpy` in a CPython 3.11
makes one, on Linux; it needs the system's libGL even without a window (Debian: libgl1).

    python -m loki_vfx.benchmarks.peers.splishsplash PBF 91125 --steps 20 --warm-up 40
    python -m loki_vfx.benchmarks.peers.splishsplash DFSPH 1000000 --map-resolution 75 50 25
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loki_vfx.benchmarks.peers.mantaflow import MARK, PeerError

VARIABLE = "LOKI_SPLISHSPLASH_PYTHON"
METHODS = ("PBF", "DFSPH")
MAP_RESOLUTION = (30, 20, 12)


@dataclass(frozen=True)
class PeerFigures:
    """What a dam break took; means over the measured steps.

    Args:
        seconds_per_step: Of the wall clock.
        cpu_seconds_per_step: Of all threads.
        particles: How many there were.
        iterations: Of the pressure solver, a step.
        divergence_iterations: Of DFSPH's divergence solver, a step; 0 for PBF.
        density_error_percent: By how much particles are too dense, those that are not counting 0.
            From the densities that the library has after a step: of PBF those of the positions it
            ends with, of DFSPH those of the positions it began with, where the step before ended.
        time_step: [s].
        bytes_per_particle: Peak memory of the process, less what it had after its imports.
    """

    seconds_per_step: float
    cpu_seconds_per_step: float
    particles: int
    iterations: float
    divergence_iterations: float
    density_error_percent: float
    time_step: float
    bytes_per_particle: float


def python_with_splishsplash() -> str | None:
    """Return the Python that has pysplishsplash, or None where it is not installed.

    Raises:
        PeerError: The one that is named is not there.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).exists():
            raise PeerError(f"{VARIABLE} = {named} is not there")
        return named
    return sys.executable if importlib.util.find_spec("pysplishsplash") else None


def dam_break(
    method: str,
    particles: int,
    *,
    steps: int,
    warm_up: int,
    threads: int = 2,
    time_step: float | None = None,
    map_resolution: tuple[int, int, int] = MAP_RESOLUTION,
    timeout: float = 3600.0,
) -> PeerFigures | None:
    """Return the figures of a dam break, or None where the library is not installed.

    A cube of water of 1 m is in a corner of a tank of 3 x 2 x 1 m. PBF takes 5 iterations a step;
    DFSPH iterates to the tolerances of the library's own dam breaks.

    Args:
        method: "PBF" or "DFSPH".
        particles: How many are wanted; the nearest cube of a whole number is taken.
        steps: How many are measured.
        warm_up: How many come before them, at least 1. At first the water falls freely, in which no
            solver has much to do: it meets the floor after 0.04 s (1e6 particles) to 0.07 s (1e5),
            and then shoots up the corners, at which the CFL condition takes small steps.
        threads: Of OpenMP.
        time_step: [s]; None is the library's CFL condition, at most 5 ms.
        map_resolution: Cells of the map of the walls' volume along the tank. Where they are much
            wider than the reach of a particle, two diameters, the water at the walls is too dense
            from the start: the default does for 1e5 particles, but with 1e6 PBF throws them at
            100 m/s; (75, 50, 25) cures that, for 15 s of set-up that are not measured.
        timeout: When to give up [s].

    Raises:
        PeerError: The method is unknown, or the run failed.
    """
    if method not in METHODS:
        raise PeerError(f'there is no method "{method}"; expected one of {", ".join(METHODS)}')
    if steps < 1 or warm_up < 1:
        raise PeerError(f"steps = {steps} and warm_up = {warm_up} have to be at least 1")
    python = python_with_splishsplash()
    if python is None:
        return None
    case = {
        "method": method,
        "side": round(particles ** (1 / 3)) + 1,  # the block has one less along its edge
        "steps": steps,
        "warm_up": warm_up,
        "time_step": time_step,
        "map_resolution": map_resolution,
    }
    return PeerFigures(**_run_script(python, case, threads, timeout))


def _run_script(python: str, case: dict[str, Any], threads: int, timeout: float) -> dict[str, Any]:
    script = Path(__file__).with_name("_splishsplash_dam_break.py")
    words = [python, str(script), json.dumps(case)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"SPlisHSPlasH did not finish {case} in {timeout:g} s") from error
    told = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not told:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise PeerError(f"SPlisHSPlasH failed with code {done.returncode} on {case}:\n{last}")
    figures = json.loads(told[-1].removeprefix(MARK))
    assert isinstance(figures, dict)
    return figures


def main() -> None:
    """Measure one case and print its figures."""
    parser = argparse.ArgumentParser(description="Measure a step of SPlisHSPlasH's dam break.")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("particles", type=int)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time-step", type=float, help="Seconds, instead of the CFL condition.")
    parser.add_argument("--map-resolution", type=int, nargs=3, default=MAP_RESOLUTION)
    given = vars(parser.parse_args())
    figures = dam_break(given.pop("method"), given.pop("particles"), **given)
    if figures is None:
        parser.exit(1, f"pysplishsplash is not installed; {VARIABLE} names a Python that has it\n")
    print(json.dumps(asdict(figures), indent=1))


if __name__ == "__main__":
    main()
