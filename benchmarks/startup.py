"""How long a user waits for the first frame: with no kernel on the disk, and with all of them.

Each scene of the gallery runs in a process of its own, from the start of Python to the end of the
first frame that is computed. Cold: the folder of kernels is empty. Warm: the same again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from loki_vfx.bridges.standalone.gallery import example_names

from ._measure import figure

COLD_GOAL, WARM_GOAL = 60.0, 5.0
QUICK = ("fountain", "smoke_plume")


def run(quick: bool) -> dict[str, Any]:
    """Measure every example, or two of them."""
    figures = {}
    for name in QUICK if quick else example_names():
        with tempfile.TemporaryDirectory() as folder:
            cold = first_frame_seconds(name, Path(folder))
            kernels = sum(1 for _ in Path(folder).rglob("*.nbi"))
            warm = first_frame_seconds(name, Path(folder))
        how = f"{name}: `wtloki example`, from the start of Python to its first computed frame"
        figures |= {
            f"cold_first_frame_seconds_{name}": figure(
                cold, "s", COLD_GOAL, "lower", f"{how}; no kernel on the disk"
            ),
            f"warm_first_frame_seconds_{name}": figure(
                warm, "s", WARM_GOAL, "lower", f"{how}; all kernels on the disk"
            ),
            f"kernels_compiled_{name}": figure(
                kernels, "", None, "lower", f"{name}: kernels on the disk after the cold run"
            ),
        }
    return figures


def first_frame_seconds(name: str, kernels: Path) -> float:
    """Return how long it takes to the first computed frame of an example [s]."""
    words = [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line", "example", name]
    with tempfile.TemporaryDirectory() as folder:
        start = perf_counter()
        process = subprocess.Popen(
            [*words, "--frames", "2", "--json", "--output", str(Path(folder) / "out")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LOKI_CACHE_DIR": str(kernels)},
        )
        assert process.stdout is not None
        seconds = None
        with process:
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "frame" and event["frame"] == event["last"]:
                    seconds = perf_counter() - start
        if seconds is None:
            raise RuntimeError(f"the example {name} ended with code {process.returncode}")
    return seconds
