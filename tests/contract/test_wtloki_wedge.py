"""`wtloki wedge`: real runs of small variants, one that fails, going on, refusing, the sheet."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.errors import InputError
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.setup_document import write_setup
from loki_core.solver_setup import Group, SolverSetup
from loki_vfx.bridges.houdini.pdg import loki_wedge
from loki_vfx.bridges.live.local_server import wtloki_command
from loki_vfx.bridges.standalone.command_line import run_command
from loki_vfx.bridges.standalone.contact_sheet import MAX_TILES, Tile, write_contact_sheet
from loki_vfx.serialization.frame_cache import FrameCacheReader, FrameCacheWriter, Manifest
from tests.unit.work_items import FakeHolder

SCENE = ("dust.loki.json", "--input", "seeds=seeds.npz", "--frames", "3")
PULL = "GravityForce.acceleration=0 -9.81 0,0 -1.6 0"
WIND = "Dust/ParticleObject.velocity=[0,0,0],[3,0,0]"


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """A folder with dust.loki.json, falling points, and seeds.npz."""
    setup = SolverSetup("dust", Group("Dust", ParticleObject(input="seeds")), GravityForce())
    write_setup(setup, tmp_path / "dust.loki.json")
    np.savez(tmp_path / "seeds.npz", positions=np.random.default_rng(3).random((50, 3)))
    return tmp_path


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str

    @property
    def told(self) -> dict:
        """The last JSON line."""
        return json.loads(self.stdout.splitlines()[-1])


@pytest.fixture
def wtloki(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The command, called in this process in the test's folder; variants are processes."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = run_command([str(one) for one in arguments])
        return Done(code, *capsys.readouterr())

    return call


def frame_files(folder: Path) -> dict[str, bytes]:
    frames = folder / "frames"
    return {str(p.relative_to(frames)): p.read_bytes() for p in frames.rglob("*") if p.is_file()}


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "wedge.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def states(told: dict) -> list[str]:
    return [one["state"] for one in told["variants"]]


# -- runs ------------------------------------------------------------------------------------------


def test_every_combination_runs_once_and_is_what_wtloki_run_gives(scene: Path, wtloki) -> None:
    words = ("wedge", *SCENE, "--vary", PULL, "--vary", WIND, "--output", "w", "--no-sheet")
    done = wtloki(*words, "--jobs", "2", "--json")
    assert done.returncode == 0, done.stdout
    root = scene / "w"
    assert states(done.told) == ["complete"] * 4
    assert json.loads((root / "wedge.json").read_text()) == done.told
    fourth = json.loads((root / "wedge_0004" / "variant.json").read_text())
    values = {"GravityForce.acceleration": "0 -1.6 0", "Dust/ParticleObject.velocity": "[3,0,0]"}
    assert fourth["values"] == values and fourth["frames"] == [1, 3]
    sets = [word for item in values.items() for word in ("--set", "=".join(item))]
    assert wtloki("run", *SCENE, *sets, "--output", "alone").returncode == 0
    assert frame_files(root / "wedge_0004") == frame_files(scene / "alone")
    table = rows(root)
    assert [row["index"] for row in table] == ["1", "2", "3", "4"]
    assert table[3]["Dust/ParticleObject.velocity"] == "[3,0,0]"
    for row in table:
        assert (row["state"], row["frames"], row["elements"]) == ("complete", "3", "50")
        assert float(row["seconds"]) > 0.0 and int(row["memory"]) > 1_000_000
        assert int(row["total_substeps"]) >= 2
    assert "finished: 3 frames" in (root / "wedge_0001" / "run.log").read_text()

    logs = {path: path.stat().st_size for path in root.glob("*/run.log")}
    again = wtloki(*words)
    assert again.returncode == 0 and again.stdout.count("complete already") == 4
    assert {path: path.stat().st_size for path in root.glob("*/run.log")} == logs
    assert "per frame" in again.stdout and "wedge_0004  0 -1.6 0" in again.stdout


def test_a_variant_that_fails_does_not_stop_the_others(scene: Path, wtloki) -> None:
    vary = "Dust/ParticleObject.input=nothing,seeds"
    words = ("wedge", *SCENE, "--vary", vary, "--output", "w", "--no-sheet")
    done = wtloki(*words)
    assert done.returncode == 1
    assert "1 of 2 failed" in done.stdout and 'dust has no input "seeds"' in done.stdout
    assert [row["state"] for row in rows(scene / "w")] == ["failed", "complete"]
    assert 'no input "seeds"' in rows(scene / "w")[0]["failure"]
    assert FrameCacheReader(scene / "w" / "wedge_0002").frames() == [1, 2, 3]
    # --collect runs nothing, and knows it from the folders
    (scene / "w" / "wedge.csv").unlink()
    log = scene / "w" / "wedge_0001" / "run.log"
    size = log.stat().st_size
    collected = wtloki(*words, "--collect", "--json")
    assert collected.returncode == 1 and states(collected.told) == ["failed", "complete"]
    assert collected.told["variants"][0]["failure"]["exit_code"] == 4
    assert len(rows(scene / "w")) == 2 and log.stat().st_size == size
    # other values may take the place of what never had a frame
    other = (*words[:6], "--vary", "Dust/ParticleObject.input=seeds", *words[8:])
    assert wtloki(*other).returncode == 0


def test_more_frames_go_on_and_changes_are_refused(scene: Path, wtloki) -> None:
    base = ("wedge", *SCENE[:3], "--output", "w", "--no-sheet", "--checkpoint-every", "1")
    assert wtloki(*base, "--vary", PULL, "--frames", "2").returncode == 0
    longer = wtloki(*base, "--vary", PULL, "--frames", "4", "--json")
    assert longer.returncode == 0 and states(longer.told) == ["complete"] * 2
    assert '"goes on"' in longer.stdout
    assert FrameCacheReader(scene / "w" / "wedge_0002").frames() == [1, 2, 3, 4]
    log = (scene / "w" / "wedge_0002" / "run.log").read_text()
    assert "resumed from the checkpoint of frame 2" in log
    kept = frame_files(scene / "w" / "wedge_0001")

    other = PULL.replace("-1.6", "-3.7")
    refused = wtloki(*base, "--vary", other, "--frames", "4")
    assert refused.returncode == 4
    for words in ("wedge_0002 holds another simulation", "0 -1.6 0, not", "--overwrite"):
        assert words in refused.stderr
    listed = wtloki(*base, "--vary", other, "--frames", "4", "--list", "--json")
    assert states(listed.told) == ["complete", "changed"]
    replaced = wtloki(*base, "--vary", other, "--frames", "4", "--overwrite")
    assert replaced.returncode == 0 and replaced.stdout.count("complete already") == 1
    assert frame_files(scene / "w" / "wedge_0001") == kept

    np.savez(scene / "seeds.npz", positions=np.random.default_rng(4).random((50, 3)))
    moved = wtloki(*base, "--vary", other, "--frames", "4")
    assert moved.returncode == 4 and "or with other inputs (and 1 others do)" in moved.stderr


def test_a_stop_leaves_variants_to_go_on_with(scene: Path, wtloki) -> None:
    words = ["wedge", *SCENE[:3], "--frames", "400", "--set", "substeps=50", "--output", "w"]
    words += ["--vary", PULL, "--no-sheet"]
    process = subprocess.Popen(
        [*wtloki_command(), *words, "--json"], cwd=scene, stdout=subprocess.PIPE, text=True
    )
    first = scene / "w" / "wedge_0001"
    while len(list(first.glob("frames/*.json"))) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert states(json.loads(said.splitlines()[-1])) == ["partial", "new"]
    assert not (scene / "w" / "wedge_0002").exists()
    last = max(FrameCacheReader(first).frames())
    words[words.index("400")] = str(last + 1)
    assert wtloki(*words).returncode == 0
    assert "resumed from the checkpoint" in (first / "run.log").read_text()


def test_graphs_are_varied_too(tmp_path: Path, wtloki) -> None:
    drops = ParticleObject(source="nozzle", rate=2400.0, radius=0.01)
    setup = SolverSetup("drops", Group("Drops", drops), GravityForce())
    graph = {
        "loki": "graph",
        "schema_version": 1,
        "name": "rain",
        "nodes": {
            "nozzle": {"type": "ShapeSource", "parameters": {"shape": "disc"}},
            "solver": {"type": "SolverSetupNode", "parameters": {"setup": setup.to_document()}},
            "rain": {"type": "Output"},
        },
        "connections": [
            ["nozzle.out", "solver.nozzle"],
            ["solver.Drops/ParticleObject", "rain.in"],
        ],
    }
    (tmp_path / "rain.loki.json").write_text(json.dumps(graph))
    words = ("wedge", "rain.loki.json", "--frames", "3", "--output", "w", "--no-sheet", "--json")
    vary = ("--vary", "nozzle.size=1 1 1,2 2 2", "--vary", "Drops/ParticleObject.rate=240,480")
    done = wtloki(*words, *vary, "--together")
    assert done.returncode == 0, done.stdout
    assert [one["cost"]["elements"] for one in done.told["variants"]] == [20, 40]
    reach = [
        np.abs(FrameCacheReader(tmp_path / "w" / name).read(3, "rain").positions[:, 0]).max()
        for name in ("wedge_0001", "wedge_0002")
    ]
    assert reach[0] < 0.51 < reach[1]
    again = wtloki(*words, *vary, "--together")
    assert again.stdout.count("complete already") == 2


# -- one at a time, for farms ----------------------------------------------------------------------


def test_commands_of_the_list_run_from_anywhere(scene: Path, wtloki) -> None:
    words = ("wedge", *SCENE, "--vary", PULL, "--output", "w", "--no-sheet")
    listed = wtloki(*words, "--list", "--json").told
    assert not (scene / "w").exists()
    assert [one["index"] for one in listed["variants"]] == [1, 2]
    assert states(listed) == ["new", "new"]
    elsewhere = scene / "elsewhere"
    elsewhere.mkdir()
    first, second = listed["variants"]
    subprocess.run(second["command"], cwd=elsewhere, check=True, capture_output=True)
    assert sorted(path.name for path in (scene / "w").iterdir()) == ["wedge_0002"]
    assert FrameCacheReader(second["folder"]).frames() == [1, 2, 3]
    subprocess.run(first["run"], cwd=elsewhere, check=True, capture_output=True)
    assert states(wtloki(*words, "--list", "--json").told) == ["complete", "complete"]
    subprocess.run([*listed["collect"], "--no-sheet"], check=True, capture_output=True)
    assert [row["state"] for row in rows(scene / "w")] == ["complete", "complete"]
    plain = wtloki(*words, "--dry-run")
    assert "wedge_0002  0 -1.6 0" in plain.stdout and "--only INDEX" in plain.stdout
    assert wtloki(*words, "--only", "3").returncode == 2
    assert wtloki(*words, "--only", "1", "--collect").returncode == 2


def test_tops_asks_the_command_for_its_items(scene: Path) -> None:
    command = wtloki_command()
    if len(command) > 1:
        pytest.skip("wtloki is not installed as a command here")
    arguments = {
        "scene": str(scene / "dust.loki.json"),
        "output": str(scene / "w"),
        "options": ["--input", f"seeds={scene / 'seeds.npz'}", "--frames", "2"],
        "wtloki": command[0],
    }
    holder = FakeHolder()
    _, second = loki_wedge.generate(holder, vary=[PULL], **arguments)
    assert second.attributes["acceleration"] == "0 -1.6 0"
    subprocess.run(second.command, shell=True, check=True, capture_output=True)
    assert FrameCacheReader(second.attributes["loki_cache"]).frames() == [1, 2]
    assert Path(second.outputs[0]).exists()
    assert loki_wedge.generate_summary(holder, vary=[PULL], **arguments).command.endswith(
        "--collect"
    )
    with pytest.raises(RuntimeError, match='did you mean "acceleration"'):
        loki_wedge.generate(holder, vary=["GravityForce.aceleration=1 0 0"], **arguments)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--vary", "Dust/ParticleObject.rte=1,2"], 3, 'did you mean "rate"'),
        (["--vary", "Dst/ParticleObject.rate=1,2"], 3, 'did you mean "Dust"'),
        (["--vary", "substep=1,2"], 3, 'did you mean "substeps"'),
        (["--vary", "substeps=1,-2"], 3, "wedge_0002: dust.substeps = -2 is below the minimum"),
        (["--vary", "substeps=1,soon"], 3, "wedge_0002: dust.substeps"),
        (["--vary", "Dust/ParticleObject.rate=1,1.0"], 3, "are the same simulation"),
        (["--vary", "substeps=1,1"], 2, "has the value 1 twice"),
        (["--vary", "substeps="], 2, "has no values"),
        (["--vary", "substeps=1..4"], 2, "--random N"),
        (["--vary", "substeps=1,2", "--set", "substeps=3"], 2, "in --set and in --vary"),
        (["--vary", "substeps=1,2", "--together", "--random", "2"], 2, "choose one"),
        (["--vary", "substeps=1,2", "--frames", "soon"], 2, "neither a number of frames"),
        (["--vary", "substeps=1,2", "--tile", "huge"], 2, "--tile"),
        (["--vary", "substeps=1,2", "--input", "seeds=no.npz"], 4, "no.npz"),
        (["--vary", "substeps=1..4", "--random", "99999"], 2, "at most 10,000"),
        ([], 2, "nothing to vary"),
    ],
)
def test_mistakes_are_told_before_anything_runs(scene, wtloki, arguments, code, message):
    done = wtloki("wedge", "dust.loki.json", *arguments, "--output", "w")
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert not (scene / "w").exists()


def test_other_folders_are_left_alone(scene: Path, wtloki) -> None:
    (scene / "mine").mkdir()
    (scene / "mine" / "notes.txt").write_text("mine")
    words = ("wedge", *SCENE, "--vary", PULL, "--output")
    refused = wtloki(*words, "mine")
    assert refused.returncode == 4 and "no wedge folder" in refused.stderr
    assert wtloki(*words, "seeds.npz").returncode == 4


def test_ranges_draw_whole_numbers_where_the_parameter_is_one(scene: Path, wtloki) -> None:
    vary = ("--vary", "substeps=1..6", "--vary", "Dust/ParticleObject.rate=0..1")
    words = ("wedge", "dust.loki.json", *vary, "--random", "8", "--list", "--json")
    drawn = [one["values"] for one in wtloki(*words, "--seed", "2").told["variants"]]
    assert all(one["substeps"].isdigit() for one in drawn)
    assert len({one["Dust/ParticleObject.rate"] for one in drawn}) == 8
    assert [one["values"] for one in wtloki(*words, "--seed", "2").told["variants"]] == drawn
    assert [one["values"] for one in wtloki(*words).told["variants"]] != drawn


# -- the contact sheet -----------------------------------------------------------------------------


def write_points(folder: Path, positions: np.ndarray) -> Path:
    points = Points(positions)
    points.set_channel("point", "radius", np.full(len(positions), 0.05))
    with FrameCacheWriter(folder, Manifest(setup_hash="0")) as writer:
        writer.write_frame(1, {"Dust": points})
    return folder


def pixels_of(picture: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(picture) as image:
        return np.asarray(image.convert("L"), dtype=float)


def test_all_tiles_are_seen_by_one_camera(tmp_path: Path) -> None:
    pytest.importorskip("pyvista")
    ball = 0.1 * np.random.default_rng(1).standard_normal((300, 3))
    one = write_points(tmp_path / "one", ball)
    both = write_points(tmp_path / "both", np.concatenate((ball, ball + np.array([3.0, 0.0, 0.0]))))
    tiles = [Tile(one, 1, "one"), Tile(both, 1, "both"), Tile(one, None, "none", ("a = 1",), "!")]
    assert write_contact_sheet(tiles, tmp_path / "sheet.png", size=(160, 120)) == []
    sheet = pixels_of(tmp_path / "sheet.png")
    assert sheet.shape[1] == 2 * (160 + 8) + 8
    left, right = sheet[8:128, 8:168], sheet[8:128, 176:336]
    # The ball that both have is at the same place, and the other one is not in the first tile.
    # Glows are added up in 8 bits, in an order that is not ours: a few steps of 255 may differ.
    assert left[:, :80].max() > 120 and np.abs(left - right)[:, :80].max() <= 8.0
    assert left[:, 80:].max() < 60 and right[:, 80:].max() > 120
    assert (sheet[128:140, 8:168] > 60).sum() > 10  # a title

    with pytest.raises(InputError, match="nothing to show"):
        write_contact_sheet([Tile(one, None, "none")], tmp_path / "none.png")
    wrong = write_contact_sheet([Tile(one, 1, "one")], tmp_path / "wrong.png", color="heat")
    assert len(wrong) == 1 and 'no Object of this frame has a channel "heat"' in wrong[0]


def test_the_sheet_shows_each_variant_and_what_failed(scene: Path, wtloki) -> None:
    pytest.importorskip("pyvista")
    vary = "Dust/ParticleObject.input=nothing,seeds"
    words = ("wedge", *SCENE, "--vary", vary, "--output", "w", "--tile", "120x90", "--json")
    done = wtloki(*words, "--frame", "2")
    assert done.returncode == 1 and done.told["problems"] == []
    picture = Path(done.told["contact_sheet"])
    assert picture == scene / "w" / "contact_sheet.png"
    sheet = pixels_of(picture)
    empty, shown = sheet[8:98, 8:128], sheet[8:98, 136:256]
    assert empty.max() - empty.min() < 3 and shown.max() - shown.min() > 40
    smaller = wtloki(*words[:7], "Dust/ParticleObject.input=seeds", *words[8:])
    assert smaller.returncode == 0
    (problem,) = smaller.told["problems"]
    assert "wedge_0002 is of an earlier wedge" in problem


def test_very_many_tiles_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyvista")
    assert MAX_TILES <= 1000
    monkeypatch.setattr("loki_vfx.bridges.standalone.contact_sheet.MAX_TILES", 2)
    one = write_points(tmp_path / "one", np.random.default_rng(1).random((30, 3)))
    tiles = [Tile(one, 1, str(number)) for number in range(3)]
    told = write_contact_sheet(tiles, tmp_path / "sheet.png", size=(32, 24))
    assert told == ["the contact sheet shows the first 2 of 3 variants"]
