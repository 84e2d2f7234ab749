"""Mantaflow, Blender's solver of smoke and liquids: seconds of a step, in a process that has bpy.

That process is the Python named by the environment variable LOKI_BPY_PYTHON, else this one where
bpy can be imported. `pip install "bpy==5.0.1" "numpy<2"` in a CPython 3.11 makes one.

    python -m loki_vfx.benchmarks.peers.mantaflow box 64
    python -m loki_vfx.benchmarks.peers.mantaflow plume 128 --adaptive
    python -m loki_vfx.benchmarks.peers.mantaflow dam_break 64
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

VARIABLE = "LOKI_BPY_PYTHON"
SHAPES = ("box", "plume")
MARK = "FIGURES "


class PeerError(Exception):
    """A peer is not installed, or failed."""


def python_with_bpy() -> str:
    """Return the Python that has bpy.

    Raises:
        PeerError: There is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).exists():
            raise PeerError(f"{VARIABLE} = {named} is not there")
        return named
    if importlib.util.find_spec("bpy") is None:
        raise PeerError(f"bpy is not installed; {VARIABLE} names a Python that has it")
    return sys.executable


def smoke_step(
    shape: str, resolution: int, *, adaptive: bool = False, steps: int = 6, timeout: float = 900.0
) -> dict[str, Any]:
    """Return the figures of a smoke case: `step_seconds` is the best solver step's time.

    Args:
        shape: "box", full of smoke, or "plume", which fills 5 % of the box.
        resolution: Cells along the box.
        adaptive: Whether Blender fits the domain to the smoke.
        steps: How many steps are measured; two more come before them.
        timeout: When to give up [s].

    Raises:
        PeerError: bpy is not there, or the run failed.
    """
    if shape not in SHAPES:
        raise PeerError(f'there is no shape "{shape}"; expected one of {", ".join(SHAPES)}')
    case = {"shape": shape, "resolution": resolution, "steps": steps, "adaptive": adaptive}
    return _run_script("_mantaflow_smoke.py", case, timeout)


def dam_break_step(
    resolution: int, *, frames: int = 6, steps: int = 4, band: float = 0.0, timeout: float = 1800.0
) -> dict[str, Any]:
    """Return the figures of a dam break: `step_seconds_mean` is that of the last frame's steps.

    Args:
        resolution: Cells along the box, of which the column fills a quarter.
        frames: How many, at 24 a second.
        steps: Of each frame.
        band: Cells below the surface that have particles; 0 is all.
        timeout: When to give up [s].

    Raises:
        PeerError: bpy is not there, or the run failed.
    """
    case = {"resolution": resolution, "frames": frames, "steps": steps, "band": band}
    return _run_script("_mantaflow_liquid.py", case, timeout)


def _run_script(name: str, case: dict[str, Any], timeout: float) -> dict[str, Any]:
    script = Path(__file__).with_name(name)
    words = [python_with_bpy(), str(script), json.dumps(case)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"Mantaflow did not finish {case} in {timeout:g} s") from error
    told = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not told:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise PeerError(f"Mantaflow failed with code {done.returncode} on {case}:\n{last}")
    figures = json.loads(told[-1].removeprefix(MARK))
    assert isinstance(figures, dict)
    return figures


def main() -> None:
    """Measure one case and print its figures."""
    parser = argparse.ArgumentParser(description="Measure a step of Blender's Mantaflow.")
    parser.add_argument("shape", choices=(*SHAPES, "dam_break"))
    parser.add_argument("resolution", type=int)
    parser.add_argument("--adaptive", action="store_true", help="Fit the domain to the smoke.")
    parser.add_argument("--steps", type=int, help="To measure, of smoke; of a frame, of a liquid.")
    given = vars(parser.parse_args())
    shape, resolution, adaptive = (given.pop(key) for key in ("shape", "resolution", "adaptive"))
    options = {name: value for name, value in given.items() if value is not None}
    if shape == "dam_break":
        found = dam_break_step(resolution, **options)
    else:
        found = smoke_step(shape, resolution, adaptive=adaptive, **options)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
