"""`wtloki new` in a real process: the templates that it lists, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loki_graph.graph_document import read_graph
from loki_graph.templates import templates
from tests.commands import wtloki


def test_it_lists_starters_and_templates(tmp_path: Path) -> None:
    told = json.loads(wtloki("new", "--list", "--json", cwd=tmp_path).stdout)
    names = [one["name"] for one in told["templates"]]
    assert names == ["particles", "emitter", *(one.name for one in templates())]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.compiles
def test_a_template_is_copied_with_inputs_and_runs(tmp_path: Path) -> None:
    made = wtloki("new", "jet", "--template", "fountain", "--json", cwd=tmp_path)
    told = json.loads(made.stdout)
    assert told == {
        "setup": "jet.loki.json",
        "inputs": {"nozzle": "jet_nozzle.loki"},
        "next": told["next"],
    }
    assert read_graph(tmp_path / "jet.loki.json").name == "fountain"
    checked, _, run, _ = (step.split()[1:] for step in told["next"])
    assert wtloki(*checked, cwd=tmp_path).returncode == 0
    short = ["2" if word == "48" else word for word in run]
    done = wtloki(*short, "--set", "rate=2400", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    inspected = json.loads(wtloki("inspect", "jet_cache", "--json", cwd=tmp_path).stdout)
    assert inspected["frames"] == [1, 2]


def test_nothing_is_overwritten_and_unknown_names_are_told(tmp_path: Path) -> None:
    (tmp_path / "grass_ground.loki").write_text("mine")
    done = wtloki("new", "--template", "grass", cwd=tmp_path)
    assert done.returncode == 4 and "grass_ground.loki is there already" in done.stderr
    assert (tmp_path / "grass_ground.loki").read_text() == "mine"
    assert not (tmp_path / "grass.loki.json").exists()
    unknown = wtloki("new", "--template", "gras", cwd=tmp_path)
    assert unknown.returncode == 4 and 'did you mean "grass"' in unknown.stderr
