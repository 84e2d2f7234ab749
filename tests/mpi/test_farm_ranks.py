"""A submitted job on two ranks: the very script that a batch system would run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.setup_document import write_setup
from loki_core.solver_setup import SolverSetup
from loki_vfx.bridges.live.run_folder import RunFolder

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

COMMAND = [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line"]
SCENE = ("dust.loki.json", "--input", "seeds=seeds.npz", "--frames", "3", "--ranks", "2")


def call(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(one) for one in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def frame_files(cache: Path) -> dict[str, bytes]:
    frames = cache / "frames"
    return {str(p.relative_to(frames)): p.read_bytes() for p in frames.rglob("*") if p.is_file()}


def test_a_job_of_two_ranks_writes_what_a_local_run_writes(tmp_path: Path) -> None:
    setup = SolverSetup("dust", ParticleObject(input="seeds"), GravityForce())
    write_setup(setup, tmp_path / "dust.loki.json")
    np.savez(tmp_path / "seeds.npz", positions=np.random.default_rng(3).random((200, 3)))
    local = call(*COMMAND, "run", *SCENE, "--threads", 1, "--output", "local", cwd=tmp_path)
    assert local.returncode == 0, local.stderr
    made = call(*COMMAND, "submit", *SCENE, "--output", "job", "--print", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    job = call("bash", tmp_path / "job" / "job.sh", cwd=Path("/"))
    assert job.returncode == 0, job.stderr
    folder = RunFolder(tmp_path / "job", "dust")
    assert folder.read_record().state == "finished" and folder.read_record().ranks == 2
    assert frame_files(folder.cache) == frame_files(tmp_path / "local")
