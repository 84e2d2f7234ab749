"""Results do not depend on the number of threads, nor on how often a run is repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent

SCENE = """
import sys
import numpy as np
import loki_core as loki
from loki_core.kernels.jit import thread_count
from loki_core.parallel.comm import SERIAL
from loki_core.parallel.reduce import exact_sums

rng = np.random.default_rng(1)
points = loki.Points(rng.random((30_000, 3)))
points.set_channel("point", "velocity", rng.standard_normal((30_000, 3)))
grid = rng.standard_normal((3, 16, 16, 16)).astype(np.float32)
wind = loki.Voxels.from_dense({"velocity": grid}, (-0.5, -0.5, -0.5), 0.125)
setup = loki.SolverSetup(
    "scene",
    loki.ParticleObject(
        input="p", source="p", rate=20_000.0, lifetime=0.3, lifetime_variation=0.9, name="dust",
        velocity_spread=1.0,
    ),
    loki.GravityForce(),
    loki.FluidDragForce(field="wind"),
    loki.ForceDensityField(value=(1.0, 2.0, 3.0), mask_radius=0.8, mask_center=(0.5, 0.5, 0.5)),
    loki.ParticleExpression(
        expression="heat = heat + noise(position * 4.0) + rand(0)", new_channels=("heat",)
    ),
    substeps=2, bucket_size=0.1, precision=sys.argv[3], adaptive_substeps=True,
)
threads = int(sys.argv[2])
solver = loki.Solver(setup, {"p": points, "wind": wind}, threads=threads or None)
if threads:
    assert thread_count() == threads
solver.run(4)
names = ("id", "position", "velocity", "mass", "age", "heat")
found = {name: solver.read("dust", name) for name in names}
found["sums"] = exact_sums(SERIAL, found["velocity"])
found["order"] = solver.object("dust").particles.local("id")
np.savez(sys.argv[1], **found)
"""


def run(folder, name, threads, precision, environment=None):
    target = folder / f"{name}.npz"
    done = subprocess.run(
        [sys.executable, "-c", SCENE, str(target), str(threads), precision],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(target) as saved:
        return dict(saved)


@pytest.mark.parametrize("precision", ["single", pytest.param("double", marks=pytest.mark.slow)])
def test_one_and_two_threads_give_the_same_bits(tmp_path, precision):
    two_cores = {"NUMBA_NUM_THREADS": "2"}
    one = run(tmp_path, "one", 1, precision, two_cores)
    two = run(tmp_path, "two", 2, precision, two_cores)
    assert len(one["id"]) > 20_000 and one["id"].max() > 30_000
    for name, values in one.items():
        np.testing.assert_array_equal(two[name], values, err_msg=name)


def test_threads_set_from_outside_give_the_same_bits(tmp_path):
    runs = [
        run(tmp_path, f"run_{n}", 0, "single", {"NUMBA_NUM_THREADS": str(n)}) for n in (1, 2, 3)
    ]
    for other in runs[1:]:
        for name, values in runs[0].items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)
