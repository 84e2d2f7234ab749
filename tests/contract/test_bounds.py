"""Kernels never index outside: the sort and the stencil once more, compiled with bounds checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parent.parent / "unit"


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_kernels_particle_sort.py", "mask or lexsort or empty"),
        ("test_particle_system.py", "periodic or order"),
    ],
)
def test_nothing_is_read_or_written_outside(file, chosen):
    environment = {**os.environ, "LOKI_BOUNDS_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(UNIT / file), "-k", chosen],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout
