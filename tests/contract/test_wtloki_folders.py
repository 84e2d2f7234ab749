"""Which folders `wtloki run` makes, takes over and leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loki_vfx.bridges.standalone.command_line import run_command
from loki_vfx.serialization.frame_cache import FrameCacheReader, read_manifest

RUN = ["run", "dust.loki.json", "--frames", "2", "--output", "cache"]
SEEDS = ["--input", "seeds=dust_seeds.npz"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with dust.loki.json and dust_seeds.npz."""
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "dust.loki.json", "--json"]) == 0
    return tmp_path


def test_a_run_without_its_input_leaves_no_folder_and_the_corrected_one_runs(here, capsys):
    assert run_command(RUN) == 4
    assert "--input" in capsys.readouterr().err
    assert not (here / "cache").exists()
    assert run_command([*RUN, *SEEDS]) == 0
    assert FrameCacheReader(here / "cache").frames() == [1, 2]
    log = (here / "cache" / "log.jsonl").read_text()
    told = [json.loads(line)["event"] for line in log.splitlines()]
    assert told.count("started") == 1 and told[-1] == "finished"


def test_nodes_after_the_solver_that_fail_leave_no_folder(here, capsys):
    document = json.loads((here / "dust.loki.json").read_text())
    graph = {
        "loki": "graph",
        "schema_version": 1,
        "name": "dust",
        "nodes": {
            "seeds": {"type": "HostInput"},
            "solver": {"type": "SolverSetupNode", "parameters": {"setup": document}},
            "lines": {
                "type": "Attribute",
                "parameters": {"operation": "rename", "channel": "nobody", "to": "somebody"},
            },
            "result": {"type": "Output"},
        },
        "connections": [
            ["seeds.out", "solver.seeds"],
            ["solver.Particles/ParticleObject", "lines.in"],
            ["lines.out", "result.in"],
        ],
    }
    (here / "dust.loki.json").write_text(json.dumps(graph))
    assert run_command([*RUN, *SEEDS]) == 4
    assert "nobody" in capsys.readouterr().err
    assert not (here / "cache").exists()


def _leave_no_frame(here: Path) -> None:
    """Turn the cache into what a run leaves that is killed before its first frame is whole."""
    for path in (here / "cache" / "frames").glob("*.json"):
        path.unlink()
    for path in (here / "cache" / "checkpoints").rglob("*.*"):
        path.unlink()
    for path in (here / "cache" / "checkpoints").iterdir():
        path.rmdir()


def test_a_folder_without_frames_is_taken_over_by_another_simulation(here):
    assert run_command([*RUN, *SEEDS]) == 0
    before = read_manifest(here / "cache").setup_hash
    other = [*RUN, *SEEDS, "--set", "substeps=3"]
    assert run_command(other) == 4
    _leave_no_frame(here)
    assert run_command(other) == 0
    manifest = read_manifest(here / "cache")
    assert manifest.setup_hash != before and manifest.earlier_setups == []
    assert FrameCacheReader(here / "cache").verify() == []


def test_a_checkpoint_without_frames_is_kept(here, capsys):
    assert run_command([*RUN, *SEEDS, "--checkpoint-every", "1"]) == 0
    for path in (here / "cache" / "frames").glob("*.json"):
        path.unlink()
    capsys.readouterr()
    assert run_command([*RUN, *SEEDS]) == 4
    assert "cache holds checkpoint 2 of this simulation; add --resume" in capsys.readouterr().err
    assert run_command([*RUN, *SEEDS, "--set", "substeps=3"]) == 4
    assert "another simulation" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [[], ["--overwrite"], ["--resume"]])
def test_a_folder_of_somebody_else_is_left_alone(here, capsys, extra):
    (here / "cache").mkdir()
    (here / "cache" / "thesis.txt").write_text("mine")
    assert run_command([*RUN, *SEEDS, *extra]) == 4
    assert "cache holds thesis.txt and no frames" in capsys.readouterr().err
    assert [path.name for path in (here / "cache").iterdir()] == ["thesis.txt"]
    (here / "cache" / "thesis.txt").unlink()
    (here / "cache" / "manifest.json").write_text('{"name": "a web page"}')
    assert run_command([*RUN, *SEEDS, *extra]) == 4
    assert "belongs to no frame cache" in capsys.readouterr().err
    assert (here / "cache" / "manifest.json").read_text() == '{"name": "a web page"}'


def test_an_empty_folder_is_used_and_a_file_is_not(here, capsys):
    (here / "cache").mkdir()
    (here / "cache" / ".DS_Store").write_text("")
    assert run_command([*RUN, *SEEDS]) == 0
    assert run_command([*RUN[:-1], "dust.loki.json", *SEEDS]) == 4
    assert "dust.loki.json is a file" in capsys.readouterr().err
