"""The other commands of `wtloki` in real processes: help, explain, check, inspect, preview, new."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loki_core.behavior import registry
from loki_core.setup_document import read_setup, write_setup
from loki_core.solver_setup import Group, SolverSetup
from loki_vfx.bridges.standalone.bench_command import judged
from tests.commands import COMMAND, wtloki

HEAVY = ("numba", "scipy", "mpi4py", "vtkmodules", "pyvista", "trimesh", "rich", "numpy")
NEW_FORCE = '''
"""Levity Force: a test's own Behavior."""
from loki_core.behavior import Behavior, parameter
from loki_core.forces.force import Force

class LevityForce(Behavior, kind="force"):
    """Push every Object in the Group upward."""

    strength: float = parameter(2.0, unit="m/s^2", varies="vertex", doc="Upward acceleration.")

class LevityAction(Force, behavior=LevityForce):
    reads = ("mass",)

    def evaluate(self, points, force, jacobian):
        values, step = points.resolve("strength")
        force[:, 1] += points["mass"] * (values if step else values[0])
'''


def document(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.stdout.strip(), done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def starter(tmp_path: Path) -> Path:
    """A folder with what `wtloki new start.loki.json` writes."""
    made = wtloki("new", "start.loki.json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    return tmp_path


@pytest.fixture
def cache(starter: Path) -> Path:
    words = ("run", "start.loki.json", "--input", "seeds=start_seeds.npz", "--frames", "3")
    done = wtloki(*words, "--output", "cache", "--checkpoint-every", "2", cwd=starter)
    assert done.returncode == 0, done.stderr
    return starter / "cache"


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    for arguments in (["--help"], ["run", "--help"], ["preview", "--help"], ["--version"]):
        words = [sys.executable, "-X", "importtime", *COMMAND[1:], *arguments]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = {
            line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()
        }
        assert "click" in found and not found & set(HEAVY)


def test_help_lists_every_command_and_each_has_help(tmp_path: Path) -> None:
    from loki_vfx.bridges.standalone.command_line import COMMANDS

    listed = wtloki("--help", cwd=tmp_path).stdout
    for name in COMMANDS:
        assert f"  {name}" in listed
        done = wtloki(name, "--help", cwd=tmp_path)
        assert done.returncode == 0 and "--json" in done.stdout


def test_unknown_command_names_the_nearest(tmp_path: Path) -> None:
    done = wtloki("explian", cwd=tmp_path)
    assert done.returncode == 2 and 'did you mean "explain"' in done.stderr


def test_new_refuses_to_overwrite(starter: Path) -> None:
    before = (starter / "start.loki.json").read_bytes()
    done = wtloki("new", "start.loki.json", "--template", "emitter", cwd=starter)
    assert done.returncode == 4 and "start.loki.json" in done.stderr
    assert (starter / "start.loki.json").read_bytes() == before
    other = wtloki("new", "other", "--template", "emitter", "--json", cwd=starter)
    told = document(other)
    assert read_setup(starter / told["setup"]).name == "other"
    checked = wtloki("check", told["setup"], "--input", "seeds=other_seeds.npz", cwd=starter)
    assert checked.returncode == 0, checked.stdout


def test_explain_shows_the_schedule_without_inputs(starter: Path) -> None:
    told = document(wtloki("explain", "start.loki.json", "--json", cwd=starter))
    stages = {stage["stage"]: stage for stage in told["schedule"]}
    assert list(stages) == sorted(stages, key=lambda name: list(stages).index(name))
    forces = stages["EVALUATE_FORCES"]
    assert forces["loop"] == "newton" and not forces["user_facing"]
    by_behavior = {task["behavior"]: task for task in forces["tasks"]}
    assert set(by_behavior) == {"GravityForce", "Particles/FluidDragForce"}
    assert by_behavior["GravityForce"]["accumulates"] == ["particles.force"]
    assert "particles.mass" in by_behavior["GravityForce"]["reads"]
    assert by_behavior["GravityForce"]["communicates"] is False
    (rebucket,) = stages["REBUCKET"]["tasks"]
    assert rebucket["layout"] == ["particles"] and rebucket["communicates"] is True
    assert told["inputs"][0]["given"] is False
    text = wtloki("explain", "start.loki.json", cwd=starter).stdout
    assert "each Newton iteration" in text and "GravityForce.accumulate" in text


def test_explain_shows_where_values_come_from(starter: Path) -> None:
    random = np.random.default_rng(5)
    radius = random.uniform(0.001, 0.002, 40)
    np.savez(starter / "in.npz", positions=random.random((40, 3)), radius=radius)
    keyframes = '{"keyframes": [[0.0, [0, 0, 0]], [1.0, [0, -9.81, 0]]]}'
    words = ("explain", "start.loki.json", "--input", "seeds=in.npz", "--json")
    told = document(wtloki(*words, "--set", f"GravityForce.acceleration={keyframes}", cwd=starter))
    found = {(one["behavior"], one["parameter"]): one for one in told["parameters"]}
    drag, own = "Particles/FluidDragForce", "Particles/ParticleObject"
    assert found[drag, "fluid_density"]["origin"] == "default"
    assert found[drag, "velocity"]["origin"] == "Behavior value"
    assert found["GravityForce", "acceleration"]["origin"] == "2 keyframes"
    (override,) = found[own, "radius"]["overrides"]
    assert override["count"] == 40 and 'channel "radius"' in override["origin"]
    assert override["minimum"] == pytest.approx(radius.min())
    assert found[own, "density"]["overrides"] == []


def test_explain_says_what_is_inactive_and_why(starter: Path) -> None:
    words = ("explain", "start.loki.json", "--set", "Particles.enabled=false", "--json")
    told = document(wtloki(*words, cwd=starter))
    reasons = {one["path"]: one["reason"] for one in told["inactive"]}
    assert "Particles is disabled" in reasons["Particles/ParticleObject"]
    assert "nothing" in reasons["GravityForce"]


def test_a_new_force_in_one_file_appears_everywhere(starter: Path) -> None:
    folder = starter / "extensions"
    folder.mkdir()
    (folder / "levity.py").write_text(NEW_FORCE)
    text = json.loads((starter / "start.loki.json").read_text())
    text["children"].append({"behavior": "LevityForce", "parameters": {"strength": 3.0}})
    (starter / "up.loki.json").write_text(json.dumps(text))
    unknown = wtloki("explain", "up.loki.json", cwd=starter)
    assert unknown.returncode == 3 and "LevityForce" in unknown.stderr
    use = ("--extensions", folder)
    explained = wtloki("explain", "up.loki.json", *use, cwd=starter)
    assert "LevityForce.accumulate" in explained.stdout
    reference = wtloki("reference", *use, "--output", "pages", cwd=starter)
    assert reference.returncode == 0
    page = (starter / "pages" / "behaviors.md").read_text()
    assert "LevityForce" in page and "`levity_strength`" in page
    words = ("run", "up.loki.json", "--input", "seeds=start_seeds.npz", "--frames", "2")
    assert wtloki(*words, "--output", "up", *use, cwd=starter).returncode == 0


def test_reference_has_every_behavior_setting_stage_and_function(tmp_path: Path) -> None:
    from loki_core.expressions import FUNCTIONS
    from loki_core.pipeline.stages import Stage
    from loki_core.solver_settings import SolverSettings

    assert wtloki("reference", "--output", "pages", cwd=tmp_path).returncode == 0
    text = {path.name: path.read_text() for path in (tmp_path / "pages").iterdir()}
    for name, behavior in registry().items():
        assert f"### {name}\n" in text["behaviors.md"]
        assert all(f"`{key}`" in text["behaviors.md"] for key in behavior.parameters())
    assert all(f"`{key}`" in text["settings.md"] for key in SolverSettings.parameters())
    assert all(stage.name in text["stages.md"] for stage in Stage)
    assert all(f"`{one.signature}`" in text["expressions.md"] for one in FUNCTIONS.values())
    assert "## SolverSetupNode" in text["nodes.md"]


def check(folder: Path, *more: object) -> tuple[int, list[dict]]:
    done = wtloki("check", "start.loki.json", *more, "--json", cwd=folder)
    return done.returncode, document(done)["findings"]


def test_check_passes_a_sound_scene(starter: Path) -> None:
    assert check(starter, "--input", "seeds=start_seeds.npz") == (0, [])


def test_check_reports_everything_that_would_go_wrong(starter: Path) -> None:
    positions = np.zeros((4, 3))
    positions[:, 0] = [0.0, 0.0, 5.0, 5.0e6]
    np.savez(starter / "odd.npz", positions=positions, radius=np.array([1.0, -1.0, 1.0, 1.0]))
    np.savez(starter / "nan.npz", positions=np.full((3, 3), np.nan))
    np.savez(starter / "heat.npz", positions=np.eye(3), heat=np.array([1.0, np.inf, 0.0]))

    code, found = check(starter)
    assert code == 4 and "--input seeds=PATH" in found[0]["message"]

    code, found = check(starter, "--input", "seeds=odd.npz")
    text = "\n".join(f"{one['severity']}: {one['message']}" for one in found)
    assert code == 4
    assert "warning" in text and "units metres" in text and "place of another" in text
    assert '"radius"[1] = -1' in text

    code, found = check(starter, "--input", "seeds=nan.npz")
    assert code == 4 and "positions[0]" in found[0]["message"]

    code, found = check(starter, "--input", "seeds=heat.npz")
    assert code == 4 and '"heat"[1]' in found[0]["message"]

    box = ("--set", "domain_lower=-1 -1 -1", "--set", "domain_upper=1 1.8 1")
    code, found = check(starter, "--input", "seeds=start_seeds.npz", *box)
    assert any("outside the domain box" in one["message"] for one in found)

    code, found = check(starter, "--input", "seds=start_seeds.npz")
    assert any('did you mean "seeds"' in one["message"] for one in found)

    code, found = check(starter, "--set", "Particles/FluidDragForce.field=wind")
    assert {one["place"] for one in found} >= {'input "wind"', 'input "seeds"'}


def test_check_reports_missing_channels_and_bad_expressions(starter: Path) -> None:
    from loki_core.data.voxels import Voxels
    from loki_core.operators.particle_expression import ParticleExpression
    from loki_vfx.serialization.volumes import write_vdb

    setup = read_setup(starter / "start.loki.json")
    worse = Group("Worse", *setup.children[0].children, ParticleExpression(expression="x = y + 1"))
    write_setup(SolverSetup("bad", worse), starter / "start.loki.json")
    seeds = ("--input", "seeds=start_seeds.npz")
    code, found = check(starter, *seeds)
    assert code == 4 and any("expression" in one["message"] for one in found)

    write_vdb(
        starter / "wind.vdb", Voxels.from_dense(np.ones((8, 8, 8), np.float32), (0, 0, 0), 0.1)
    )
    wind = ("--input", "wind=wind.vdb", "--set", "Worse/FluidDragForce.field=wind")
    code, found = check(starter, *seeds, *wind)
    assert code == 4 and any('no channel "velocity"' in one["message"] for one in found)


def test_check_compares_memory(starter: Path) -> None:
    huge = ("--set", "Particles/ParticleObject.source=seeds")
    huge += ("--set", "Particles/ParticleObject.rate=1e12")
    code, found = check(starter, "--input", "seeds=start_seeds.npz", *huge)
    assert code == 4 and any("GB are needed" in one["message"] for one in found)


def test_check_reports_open_meshes(starter: Path) -> None:
    from loki_core.data.surface import Surface
    from loki_vfx.serialization.meshes import write_mesh

    triangle = Surface.from_faces(np.eye(3), [[0, 1, 2]])
    write_mesh(starter / "open.ply", triangle)
    code, found = check(starter, "--input", "seeds=open.ply")
    assert code == 0 and any("open" in one["message"] for one in found)


def test_check_says_which_channel_was_meant(starter: Path) -> None:
    places = np.random.default_rng(5).random((40, 3))
    np.savez(starter / "painted.npz", positions=places, coefficient=np.ones(40))
    code, found = check(starter, "--input", "seeds=painted.npz")
    (message,) = [one["message"] for one in found if '"coefficient"' in one["message"]]
    assert code == 0 and message.endswith('overrides nothing; was "fluid_drag_coefficient" meant?')


def test_check_reports_a_bad_document_as_a_finding(starter: Path) -> None:
    (starter / "start.loki.json").write_text('{"loki": "solver_setup", "schema_version": 1}')
    code, found = check(starter)
    assert code == 4 and 'no "name"' in found[0]["message"]


def test_inspect_shows_and_verifies_a_cache(cache: Path) -> None:
    told = document(wtloki("inspect", cache, "--verify", "--json", cwd=cache.parent))
    assert told["kind"] == "frame cache" and told["frames"] == [1, 2, 3]
    assert told["checkpoints"] and told["problems"] == []
    stream = told["objects"]["Particles/ParticleObject"]
    assert stream["counts"]["point"] == 2000
    age = next(one for one in stream["channels"] if one["name"] == "age")
    assert age["minimum"] == pytest.approx(2 / 24) == age["maximum"]

    data = next((cache / "frames").rglob("000002.loki"))
    content = bytearray(data.read_bytes())
    content[-5] ^= 1
    data.write_bytes(content)
    damaged = wtloki("inspect", cache, "--verify", cwd=cache.parent)
    assert damaged.returncode == 5 and "frame 2" in damaged.stdout
    unread = wtloki("inspect", cache, "--frame", "2", cwd=cache.parent)
    assert unread.returncode == 5 and "damaged" in unread.stderr


def test_inspect_shows_checkpoints_setups_and_streams(cache: Path) -> None:
    folder = cache.parent
    newest = sorted((cache / "checkpoints").iterdir())[-1]
    told = document(wtloki("inspect", newest, "--json", cwd=folder))
    assert told["kind"] == "checkpoint" and told["ranks"] == 1
    told = document(wtloki("inspect", "start.loki.json", "--json", cwd=folder))
    assert told["kind"] == "Solver Setup" and told["streams"] == ["seeds"]
    told = document(wtloki("inspect", "start_seeds.npz", "--json", cwd=folder))
    assert told["type"] == "points" and told["counts"]["point"] == 2000
    nothing = wtloki("inspect", "nowhere", cwd=folder)
    assert nothing.returncode == 4 and "nowhere" in nothing.stderr


def test_preview_draws_a_picture(cache: Path) -> None:
    pyvista = pytest.importorskip("pyvista")
    words = ("preview", cache, "--size", "320x240", "--output", "picture.png", "--json")
    told = document(wtloki(*words, cwd=cache.parent))
    assert told["frame"] == 3 and told["objects"][0]["color"] == "speed"
    pixels = np.asarray(pyvista.read(cache.parent / "picture.png").active_scalars)
    assert len(pixels) == 320 * 240
    assert (pixels.max(axis=1) > 120).mean() > 0.01  # bright points before a dark background
    assert (pixels.max(axis=1) < 80).mean() > 0.3
    wrong = wtloki("preview", cache, "--color", "spede", cwd=cache.parent)
    assert wrong.returncode == 4 and 'did you mean "speed"' in wrong.stderr
    assert wtloki("preview", cache, "--frame", "99", cwd=cache.parent).returncode == 4
    assert wtloki("preview", cache, "--size", "huge", cwd=cache.parent).returncode == 2


def test_example_runs_and_a_second_run_compiles_nothing(tmp_path: Path) -> None:
    listed = document(wtloki("example", "--list", "--json", cwd=tmp_path))
    assert "fountain" in {one["name"] for one in listed["examples"]}
    words = ("example", "fountain", "--option", "rate=2000", "--frames", "3", "--json")
    for folder in ("one", "two"):
        done = wtloki(*words, "--output", folder, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["event"] == "finished" and last["compiled_kernels"] == 0
    wrong = wtloki("example", "fontain", cwd=tmp_path)
    assert wrong.returncode == 4 and 'did you mean "fountain"' in wrong.stderr


def test_bench_judges_figures_by_their_goal(tmp_path: Path) -> None:
    assert judged({"value": 5.0, "goal": 4.0, "better": "higher"})["met"] is True
    assert judged({"value": 5.0, "goal": 4.0, "better": "lower"})["met"] is False
    assert judged({"value": None, "goal": 4.0, "better": "lower", "how": "x"})["met"] is None
    for command in ("bench", "validate"):
        done = wtloki(command, "no_such_thing", cwd=tmp_path)
        assert done.returncode == 4 and "no_such_thing" in done.stderr
