"""`wtloki run` in real processes: frames, resuming, stopping, refusing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.setup_document import write_setup
from loki_core.solver_setup import Group, SolverSetup
from loki_vfx.serialization.frame_cache import FrameCacheReader
from tests.commands import COMMAND, wtloki

OBJECT = "Sparks/ParticleObject"


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    words = [*COMMAND, *(str(one) for one in arguments), "--json"]
    return subprocess.Popen(
        words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def events(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def wait_for(process: subprocess.Popen[str], kind: str, count: int = 1) -> dict:
    for line in process.stdout:
        event = json.loads(line)
        count -= event["event"] == kind
        if count == 0:
            return event
    raise AssertionError(f"the run ended before {kind}: {process.stderr.read()}")


def frame_files(folder: Path) -> dict[str, bytes]:
    """Everything that a frame is made of: data and indices, byte for byte."""
    frames = folder / "frames"
    return {str(p.relative_to(frames)): p.read_bytes() for p in frames.rglob("*") if p.is_file()}


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """A folder with sparks.loki.json, emitting and falling, and seeds.npz."""
    setup = SolverSetup(
        "sparks",
        Group(
            "Sparks",
            ParticleObject(
                input="seeds",
                source="seeds",
                rate=4000.0,
                velocity=(0.0, 3.0, 0.0),
                velocity_spread=1.0,
                lifetime=0.15,
                lifetime_variation=0.5,
            ),
            FluidDragForce(velocity=(2.0, 0.0, 0.0)),
        ),
        GravityForce(),
        substeps=4,
    )
    write_setup(setup, tmp_path / "sparks.loki.json")
    random = np.random.default_rng(3)
    np.savez(tmp_path / "seeds.npz", positions=random.random((500, 3)), heat=random.random(500))
    return tmp_path


RUN = ("run", "sparks.loki.json", "--input", "seeds=seeds.npz")


def test_frames_are_those_asked_for_and_begin_with_the_start_state(scene: Path) -> None:
    done = wtloki(*RUN, "--frames", "4", "--output", "cache", "--json", cwd=scene)
    assert done.returncode == 0, done.stderr
    told = events(done.stdout)
    assert [e["frame"] for e in told if e["event"] == "frame"] == [1, 2, 3, 4]
    assert told[-1]["event"] == "finished" and told[-1]["frames"] == 4
    reader = FrameCacheReader(scene / "cache")
    assert reader.frames() == [1, 2, 3, 4] and reader.verify() == []
    seeds = np.load(scene / "seeds.npz")
    first = reader.read(1, OBJECT)
    order = np.argsort(first.channels["point"]["id"])
    np.testing.assert_allclose(first.positions[order], seeds["positions"], rtol=0, atol=1e-6)
    heat = seeds["heat"].astype(np.float32)  # stored in the setup's precision
    assert np.array_equal(first.channels["point"]["heat"][order], heat)
    counts = [e["counts"][OBJECT] for e in told if e["event"] == "frame"]
    assert counts[-1] > counts[0]  # it emits

    part = wtloki(*RUN, "--frames", "3-4", "--output", "part", cwd=scene)
    assert part.returncode == 0, part.stderr
    assert FrameCacheReader(scene / "part").frames() == [3, 4]
    whole = frame_files(scene / "cache")
    assert all(whole[name] == data for name, data in frame_files(scene / "part").items())


def test_one_and_two_threads_write_the_same_bytes(scene: Path) -> None:
    for threads in (1, 2):
        words = ("--frames", "6", "--output", f"t{threads}", "--threads", threads)
        assert wtloki(*RUN, *words, cwd=scene).returncode == 0
    assert frame_files(scene / "t1") == frame_files(scene / "t2")


def test_killed_and_resumed_is_bitwise_the_run_that_was_not_killed(scene: Path) -> None:
    options = ("--frames", "16", "--checkpoint-every", "3", "--set", "substeps=30")
    whole = wtloki(*RUN, *options, "--output", "whole", cwd=scene)
    assert whole.returncode == 0, whole.stderr
    process = start(*RUN, *options, "--output", "killed", cwd=scene)
    wait_for(process, "checkpoint", 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = FrameCacheReader(scene / "killed")
    assert left.verify() == [] and 7 <= max(left.frames()) < 16
    resumed = wtloki(*RUN, *options, "--output", "killed", "--resume", "--json", cwd=scene)
    assert resumed.returncode == 0, resumed.stderr
    begun = next(e for e in events(resumed.stdout) if e["event"] == "started")
    assert begun["resumed_from"] >= 7
    assert frame_files(scene / "killed") == frame_files(scene / "whole")


def test_interrupt_leaves_whole_frames_and_a_checkpoint_to_continue_from(scene: Path) -> None:
    options = ("--frames", "12", "--set", "substeps=60")
    assert wtloki(*RUN, *options, "--output", "whole", cwd=scene).returncode == 0
    process = start(*RUN, *options, "--output", "stopped", cwd=scene)
    wait_for(process, "frame", 3)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # a second one must do no harm
    rest, complaints = process.communicate(timeout=120)
    assert process.returncode == 130, complaints
    assert "Traceback" not in complaints
    last = events(rest)[-1]
    assert last["event"] == "cancelled" and 3 <= last["frame"] < 12
    reader = FrameCacheReader(scene / "stopped")
    assert reader.verify() == [] and max(reader.frames()) == last["frame"]
    resumed = wtloki(*RUN, *options, "--output", "stopped", "--resume", cwd=scene)
    assert resumed.returncode == 0, resumed.stderr
    assert frame_files(scene / "stopped") == frame_files(scene / "whole")


def test_terminate_stops_in_the_same_way(scene: Path) -> None:
    process = start(*RUN, "--frames", "500", "--output", "cache", cwd=scene)
    wait_for(process, "frame", 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert list((scene / "cache" / "checkpoints").iterdir())


def test_resume_passes_over_a_damaged_checkpoint_and_says_so(scene: Path) -> None:
    options = (*RUN, "--output", "cache", "--checkpoint-every", "2")
    assert wtloki(*options, "--frames", "7", cwd=scene).returncode == 0
    newest = scene / "cache" / "checkpoints" / "000007" / "rank_0000.loki"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest.write_bytes(data)
    again = wtloki(*options, "--frames", "8", "--resume", "--json", cwd=scene)
    assert again.returncode == 0, again.stderr
    told = events(again.stdout)
    assert next(e for e in told if e["event"] == "started")["resumed_from"] == 5
    assert any("damaged" in e["message"] for e in told if e["event"] == "warning")
    inspected = wtloki("inspect", "cache", "--verify", cwd=scene)
    assert inspected.returncode == 0  # the damaged one was written anew


def test_resume_without_a_checkpoint_starts_from_the_beginning(scene: Path) -> None:
    done = wtloki(*RUN, "--frames", "2", "--output", "new", "--resume", "--json", cwd=scene)
    assert done.returncode == 0
    assert any("no checkpoint" in e.get("message", "") for e in events(done.stdout))


def test_divergence_leaves_the_last_good_frame_and_a_checkpoint(scene: Path) -> None:
    changes = ("--set", "maximum_speed=4.2", "--set", "Sparks/ParticleObject.lifetime=none")
    done = wtloki(*RUN, *changes, "--frames", "20", "--output", "bad", "--json", cwd=scene)
    assert done.returncode == 7
    told = events(done.stdout)
    assert told[-1]["event"] == "error" and "4.2 m/s" in told[-1]["message"]
    assert any("trying again" in e["message"] for e in told if e["event"] == "warning")
    assert "Traceback" not in done.stderr
    frames = FrameCacheReader(scene / "bad").frames()
    assert FrameCacheReader(scene / "bad").verify() == [] and 5 in frames and 20 not in frames
    assert max(int(p.name) for p in (scene / "bad" / "checkpoints").iterdir()) == max(frames)


def test_another_simulation_in_the_folder_is_not_overwritten_unless_asked(scene: Path) -> None:
    assert wtloki(*RUN, "--frames", "2", "--output", "cache", cwd=scene).returncode == 0
    before = frame_files(scene / "cache")
    changed = (*RUN, "--frames", "3", "--output", "cache", "--set", "substeps=5")
    refused = wtloki(*changed, cwd=scene)
    assert refused.returncode == 4 and "substeps" in refused.stderr
    assert frame_files(scene / "cache") == before
    assert wtloki(*changed, "--overwrite", cwd=scene).returncode == 0
    assert FrameCacheReader(scene / "cache").frames() == [1, 2, 3]


def test_two_runs_cannot_write_one_folder(scene: Path) -> None:
    process = start(*RUN, "--frames", "5000", "--output", "cache", cwd=scene)
    wait_for(process, "frame")
    second = wtloki(*RUN, "--frames", "2", "--output", "cache", cwd=scene)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert second.returncode == 4 and "another run" in second.stderr


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("--set", "Sparks/ParticleObject.rat=3"), 3, 'did you mean "rate"'),
        (("--set", "Sparks/ParticleObject.rate=-3"), 3, "below the minimum"),
        (("--set", "Sparks/ParticleObject.rate=3 kg"), 3, "rate"),
        (("--set", "nonsense"), 2, "--set"),
        (("--frames", "abc"), 2, "--frames"),
        (("--frames", "9-3"), 2, "ends before"),
        (("--frames", "-4-3"), 4, "start_frame"),
        (("--input", "seeds=seeds.npz"), 2, "twice"),
        (("--input", "wind"), 2, "NAME=PATH"),
        (("--input", "wind=wind.vdb"), 4, "wind.vdb is not there"),
        (("--input", "wind=wind.xyz"), 4, ".xyz"),
        (("--extensions", "nowhere"), 3, "nowhere"),
        (("--no-such-option",), 2, "no-such-option"),
        (("--ranks", "0"), 2, "ranks"),
    ],
)
def test_bad_options_have_an_exit_code_and_one_message(
    scene: Path, change: tuple[str, ...], code: int, words: str
) -> None:
    done = wtloki(*RUN, *change, "--output", "cache", cwd=scene)
    assert done.returncode == code, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr
    assert not (scene / "cache" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ('{"loki": "solver_setup"', 5, "not valid JSON"),
        ('{"loki": "solver_setup", "schema_version": 99, "name": "x"}', 3, "newer"),
        ('{"loki": "something"}', 5, "loki"),
        (
            '{"loki": "solver_setup", "schema_version": 1, "name": "x", '
            '"children": [{"behavior": "GravitiForce"}]}',
            3,
            'did you mean "GravityForce"',
        ),
        ('{"loki": "solver_setup", "schema_version": 1, "name": "x"}', 4, "nothing to simulate"),
        (
            '{"loki": "graph", "schema_version": 1, "name": "g", "nodes": '
            '{"a": {"type": "Merge"}, "b": {"type": "Merge"}}, '
            '"connections": [["a.out", "b.in"], ["b.out", "a.in"]]}',
            3,
            "cycle",
        ),
    ],
)
def test_bad_documents_have_an_exit_code_and_one_message(
    tmp_path: Path, text: str, code: int, words: str
) -> None:
    (tmp_path / "bad.loki.json").write_text(text)
    done = wtloki("run", "bad.loki.json", "--output", "cache", "--json", cwd=tmp_path)
    assert done.returncode == code, done.stdout
    last = events(done.stdout)[-1]
    assert last["event"] == "error" and last["exit_code"] == code
    assert words in last["message"] and "Traceback" not in done.stderr


def test_bad_positions_are_refused_with_their_place(scene: Path) -> None:
    positions = np.zeros((5, 3))
    positions[3, 1] = np.nan
    np.savez(scene / "seeds.npz", positions=positions)
    done = wtloki(*RUN, "--output", "cache", cwd=scene)
    assert done.returncode == 4
    assert "positions[3]" in done.stderr and 'input "seeds"' in done.stderr


def test_truncated_inputs_are_refused(scene: Path) -> None:
    data = (scene / "seeds.npz").read_bytes()
    (scene / "seeds.npz").write_bytes(data[: len(data) // 2])
    done = wtloki(*RUN, "--output", "cache", cwd=scene)
    assert done.returncode == 5 and "seeds.npz" in done.stderr


def test_debug_shows_the_traceback(scene: Path) -> None:
    words = [*COMMAND, *RUN, "--set", "nothing=3"]
    for extra, environment in ((["--debug"], {}), ([], {"LOKI_DEBUG": "1"})):
        done = subprocess.run(
            [*words, *extra],
            cwd=scene,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 3 and "Traceback" in done.stderr


def test_a_cache_is_an_animated_input_of_another_run(scene: Path) -> None:
    assert wtloki(*RUN, "--frames", "3", "--output", "cache", cwd=scene).returncode == 0
    words = ("run", "sparks.loki.json", "--input", f"seeds=cache#{OBJECT}", "--frames", "2")
    done = wtloki(*words, "--output", "second", "--json", cwd=scene)
    assert done.returncode == 0, done.stderr
    assert FrameCacheReader(scene / "second").frames() == [1, 2]
    wrong = wtloki(*words[:3], "seeds=cache#Sparks/Nothing", "--output", "third", cwd=scene)
    assert wrong.returncode == 4 and "Sparks/Nothing" in wrong.stderr


def test_a_graph_runs_and_writes_its_outputs(tmp_path: Path) -> None:
    setup = SolverSetup(
        "drops",
        Group("Drops", ParticleObject(source="nozzle", rate=2400.0, radius=0.01)),
        GravityForce(),
    )
    graph = {
        "loki": "graph",
        "schema_version": 1,
        "name": "rain",
        "nodes": {
            "nozzle": {"type": "ShapeSource", "parameters": {"shape": "disc"}},
            "solver": {"type": "SolverSetupNode", "parameters": {"setup": setup.to_document()}},
            "moved": {"type": "Transform", "parameters": {"translate": [0.0, 5.0, 0.0]}},
            "rain": {"type": "Output"},
        },
        "connections": [
            ["nozzle.out", "solver.nozzle"],
            ["solver.Drops/ParticleObject", "moved.in"],
            ["moved.out", "rain.in"],
        ],
    }
    (tmp_path / "rain.loki.json").write_text(json.dumps(graph))
    words = ("run", "rain.loki.json", "--frames", "4", "--output", "cache")
    done = wtloki(*words, "--set", "nozzle.size=2 2 2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    rain = FrameCacheReader(tmp_path / "cache").read(4, "rain")
    assert rain.point_count == 300
    assert rain.positions[:, 1].max() <= 5.0 + 1e-5 and rain.positions[:, 1].min() > 4.5
    assert np.abs(rain.positions[:, 0]).max() > 0.55  # the disc is twice as large
    explained = wtloki("explain", "rain.loki.json", cwd=tmp_path)
    assert "solver.nozzle" in explained.stdout or "nozzle <- nozzle.out" in explained.stdout
    assert wtloki("check", "rain.loki.json", cwd=tmp_path).returncode == 0


def test_finished_frames_are_kept_unless_asked(scene: Path) -> None:
    assert wtloki(*RUN, "--frames", "2", "--output", "cache", cwd=scene).returncode == 0
    again = wtloki(*RUN, "--frames", "3", "--output", "cache", cwd=scene)
    assert again.returncode == 4
    assert "holds frames 1 to 2 of this simulation; add --resume" in again.stderr
    assert (
        wtloki(*RUN, "--frames", "3", "--output", "cache", "--overwrite", cwd=scene).returncode == 0
    )


def test_other_inputs_are_another_simulation(scene: Path) -> None:
    options = ("--frames", "3", "--output", "cache", "--checkpoint-every", "1")
    assert wtloki(*RUN, *options, cwd=scene).returncode == 0
    with np.load(scene / "seeds.npz") as seeds:
        moved = {**seeds, "positions": seeds["positions"] + 5.0}
    np.savez(scene / "seeds.npz", **moved)
    refused = wtloki(*RUN, *options, cwd=scene)
    assert refused.returncode == 4
    assert "another simulation, of another setup or other inputs" in refused.stderr
    # A resumed run goes on from its checkpoint, where its particles are, and says what changed.
    before = FrameCacheReader(scene / "cache").read(3, OBJECT)
    options = ("--frames", "4", "--output", "cache", "--checkpoint-every", "1", "--resume")
    resumed = wtloki(*RUN, *options, cwd=scene)
    assert resumed.returncode == 0
    assert "changed since the checkpoint: inputs seeds" in resumed.stdout + resumed.stderr
    after = FrameCacheReader(scene / "cache").read(4, OBJECT)
    order = np.argsort(before.channels["point"]["id"])
    kept = np.isin(after.channels["point"]["id"], before.channels["point"]["id"])
    later = after.positions[kept][np.argsort(after.channels["point"]["id"][kept])]
    still = np.isin(np.sort(before.channels["point"]["id"]), after.channels["point"]["id"])
    # Nothing moves metres in a frame, as it would if the origin had followed the new inputs.
    assert np.max(np.abs(later - before.positions[order][still])) < 1.0


KILLER = '''
import os, signal
from loki_core import Behavior, Operator, Stage, task


class KillSwitch(Behavior):
    """End the process without a word in the middle of a frame, when the environment says so."""


class KillSwitchAction(Operator, behavior=KillSwitch):
    @task(Stage.EVALUATE_CONSTRAINTS)
    def kill(self, access, step):
        """Kill this process half way through frame 9."""
        if os.environ.get("KILL_IN_FRAME") == str(step.frame) and step.substep % 10 == 5:
            os.kill(os.getpid(), signal.SIGKILL)
'''


def test_killed_between_the_substeps_of_a_frame(scene: Path, monkeypatch) -> None:
    (scene / "extensions").mkdir()
    (scene / "extensions" / "kill_switch.py").write_text(KILLER)
    document = json.loads((scene / "sparks.loki.json").read_text())
    document["children"].append({"behavior": "KillSwitch"})
    (scene / "sparks.loki.json").write_text(json.dumps(document))
    options = ("--frames", "12", "--checkpoint-every", "3", "--set", "substeps=10")
    options = (*options, "--extensions", "extensions")
    assert wtloki(*RUN, *options, "--output", "whole", cwd=scene).returncode == 0
    monkeypatch.setenv("KILL_IN_FRAME", "9")
    killed = wtloki(*RUN, *options, "--output", "killed", cwd=scene)
    assert killed.returncode == -signal.SIGKILL
    left = FrameCacheReader(scene / "killed")
    assert left.verify() == [] and left.frames() == list(range(1, 9))  # frame 9 was under way
    monkeypatch.delenv("KILL_IN_FRAME")
    resumed = wtloki(*RUN, *options, "--output", "killed", "--resume", cwd=scene)
    assert resumed.returncode == 0, resumed.stderr
    assert frame_files(scene / "killed") == frame_files(scene / "whole")
