"""`wtloki run --ranks N`: the command starts the MPI job itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.setup_document import write_setup
from loki_core.solver_setup import Group, SolverSetup
from loki_vfx.serialization.frame_cache import FrameCacheReader

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

OBJECT = "Sparks/ParticleObject"
COMMAND = [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line"]
RUN = ("run", "sparks.loki.json", "--input", "seeds=seeds.npz")
# Particles have no neighbours and nothing is reduced, so the number of ranks changes no digit.
TOLERANCE = 0.0


def wtloki(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [*COMMAND, *(str(one) for one in arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    setup = SolverSetup(
        "sparks",
        Group(
            "Sparks",
            ParticleObject(
                input="seeds",
                source="seeds",
                rate=3000.0,
                velocity_spread=2.0,
                lifetime=0.2,
                lifetime_variation=0.5,
            ),
            FluidDragForce(velocity=(2.0, 0.0, 0.0)),
        ),
        GravityForce(),
        substeps=3,
    )
    write_setup(setup, tmp_path / "sparks.loki.json")
    random = np.random.default_rng(4)
    np.savez(tmp_path / "seeds.npz", positions=random.random((400, 3)), heat=random.random(400))
    return tmp_path


def by_id(folder: Path, frame: int) -> dict[str, np.ndarray]:
    stream = FrameCacheReader(folder).read(frame, OBJECT)
    channels = {"position": stream.positions, **dict(stream.channels["point"].items())}
    order = np.argsort(channels["id"], kind="stable")
    return {name: values[order] for name, values in channels.items()}


def assert_same(one: Path, other: Path, frame: int) -> None:
    left, right = by_id(one, frame), by_id(other, frame)
    assert np.array_equal(left["id"], right["id"]) and len(np.unique(left["id"])) == len(left["id"])
    for name, values in left.items():
        np.testing.assert_allclose(values, right[name], rtol=0, atol=TOLERANCE, err_msg=name)


def test_two_ranks_give_what_one_rank_gives(scene: Path) -> None:
    options = (*RUN, "--frames", "8", "--checkpoint-every", "4")
    assert wtloki(*options, "--output", "one", cwd=scene).returncode == 0
    done = wtloki(*options, "--output", "two", "--ranks", "2", "--json", cwd=scene)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert next(e for e in told if e["event"] == "started")["ranks"] == 2
    assert [e["frame"] for e in told if e["event"] == "frame"] == list(range(1, 9))
    reader = FrameCacheReader(scene / "two")
    assert reader.verify() == [] and len(reader.index(8)["objects"][OBJECT]) == 2
    for frame in (1, 4, 8):
        assert_same(scene / "one", scene / "two", frame)


def test_resume_on_the_same_ranks_is_bitwise_and_on_others_the_same(scene: Path) -> None:
    whole = (*RUN, "--checkpoint-every", "3", "--ranks", "2")
    assert wtloki(*whole, "--frames", "7", "--output", "whole", cwd=scene).returncode == 0
    for folder in ("same", "other"):
        assert wtloki(*whole, "--frames", "4", "--output", folder, cwd=scene).returncode == 0
    resumed = wtloki(*whole, "--frames", "7", "--output", "same", "--resume", cwd=scene)
    assert resumed.returncode == 0, resumed.stderr
    for path in sorted((scene / "whole" / "frames").rglob("*.loki")):
        same = scene / "same" / path.relative_to(scene / "whole")
        assert same.read_bytes() == path.read_bytes(), path.name
    words = (*RUN, "--checkpoint-every", "3", "--frames", "7", "--output", "other", "--resume")
    for ranks in (1, 3):
        done = wtloki(*words, "--ranks", ranks, cwd=scene)
        assert done.returncode == 0, done.stderr
        assert_same(scene / "whole", scene / "other", 7)
        (newest,) = (scene / "other" / "checkpoints").glob("000007")
        for path in newest.iterdir():  # so that the next one resumes from frame 4 again
            path.unlink()
        newest.rmdir()


def test_interrupt_stops_all_ranks_with_a_checkpoint(scene: Path) -> None:
    words = [*COMMAND, *RUN, "--frames", "2000", "--ranks", "2", "--output", "cache", "--json"]
    process = subprocess.Popen(
        words, cwd=scene, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if json.loads(line).get("frame") == 3:
            break
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    rest, complaints = process.communicate(timeout=120)
    assert process.returncode == 130, complaints
    last = json.loads(rest.splitlines()[-1])
    assert last["event"] == "cancelled"
    reader = FrameCacheReader(scene / "cache")
    assert reader.verify() == [] and max(reader.frames()) == last["frame"]
    resumed = wtloki(
        *RUN,
        "--frames",
        last["frame"] + 1,
        "--ranks",
        2,
        "--output",
        "cache",
        "--resume",
        cwd=scene,
    )
    assert resumed.returncode == 0, resumed.stderr


def test_ranks_do_not_outlive_a_killed_launcher(scene: Path) -> None:
    words = [*COMMAND, *RUN, "--frames", "100000", "--ranks", "2", "--output", "cache", "--json"]
    process = subprocess.Popen(
        words, cwd=scene, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if json.loads(line).get("frame") == 2:
            break
    process.kill()
    process.communicate()
    for _ in range(60):  # the folder is free once the ranks have gone
        again = wtloki(*RUN, "--frames", "2", "--output", "cache", "--overwrite", cwd=scene)
        if again.returncode == 0:
            break
    assert again.returncode == 0, again.stderr
    assert FrameCacheReader(scene / "cache").verify() == []


def test_an_error_of_the_ranks_is_one_message_with_its_code(scene: Path) -> None:
    np.savez(scene / "seeds.npz", positions=np.full((6, 3), np.inf))
    done = wtloki(*RUN, "--ranks", "2", "--output", "cache", cwd=scene)
    assert done.returncode == 4
    assert done.stderr.count("error:") == 1 and "positions[0]" in done.stderr
    assert "Traceback" not in done.stderr
