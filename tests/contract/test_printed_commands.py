"""Every command that the program or a page prints is run, or is listed here with why it is not."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.kernels.kernel_cache import cache_directory
from loki_graph.templates import templates
from loki_vfx.bridges.standalone.command_line import COMMANDS, run_command, wtloki
from tests import printed_commands
from tests.printed_commands import PAGES, PROGRAMS, ROOT, SHELLS, Command

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
WITH_COMMANDS = [page for page in PAGES if printed_commands.commands(page)]

#: Sub-commands whose command lines are only parsed.
ONLY_PARSED = {
    "serve": "runs until it is stopped; tests/live starts it",
    "top": "asks a running server; tests/contract/test_wtloki_farm.py has one",
    "validate": "takes minutes; `make validate` runs it",
    "bench": "measures the machine for minutes; `make bench` runs it",
}
#: Programs that are not at hand in a test, or that would change the machine.
NOT_HERE = {
    "apt-get": "installs Slurm as root",
    "blender": "needs Blender's window system; tests/blender runs the same operator",
    "check_slurm.sh": "needs a Slurm",
    "git": "would fetch over the network",
    "hython": "needs a licence of Houdini",
    "make": "the targets are compared with the Makefile",
    "Activate.ps1": "is PowerShell's",
    "pip": "the wheel and its extras are compared with pyproject.toml; test_wheel.py builds it",
    "py": "is the launcher of Windows",
    "python": "makes an environment, or reads a benchmark of hours",
    "sbatch": "needs a Slurm",
    "srun": "needs a Slurm",
    "python3": "makes an environment",
    ".": "belongs to a shell",
    "export": "belongs to a shell",
}


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_stand_in_blocks_of_a_shell(page):
    for line, language, block in printed_commands.blocks(page):
        if language in ("", "text"):
            first = {text.split()[0] for text in block.splitlines() if text.split()}
            assert not first & PROGRAMS, f"{page}:{line}: call the block sh"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_options_in_pages_are_declared(page):
    for command in (*printed_commands.commands(page), *printed_commands.inline_commands(page)):
        for words in printed_commands.nested_commands(command):
            printed_commands.check_options(words, place=command.place)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_make_and_pip_lines_name_what_is_there(page):
    makefile = (ROOT / "Makefile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheel = f"dist/loki_vfx-{project['version']}-py3-none-any.whl"
    extras = project["optional-dependencies"]
    for command in (*printed_commands.commands(page), *printed_commands.inline_commands(page)):
        words = " ".join(command.words)
        if command.program == "make":
            for target in command.words[1:]:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), (
                    f"{command.place}: {words}"
                )
        if "pip install" not in words:
            continue
        assert "loki-vfx" not in words, f"{command.place}: no index has loki-vfx"
        for what in command.words:
            name, bracket, listed = what.partition("[")
            if not bracket:
                continue
            assert name in (".", wheel, wheel.replace("/", "\\")), f"{command.place}: {what}"
            assert set(listed.rstrip("]").split(",")) <= set(extras), f"{command.place}: {what}"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with what the pages presuppose; kernels are all that a command leaves elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOKI_CACHE_DIR", str(cache_directory().parent))  # not compiled once more
    for name in ("HOME", "XDG_CONFIG_HOME", "LOKI_RUNS"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def _make_cache(folder: Path, frames: range) -> None:
    """Write a cache with the Objects "Hair" and "Smoke"."""
    from loki_core.data.voxels import Voxels
    from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest

    facts = Manifest(setup_hash="a" * 64, setup={"name": "shot"})
    smoke = Voxels.from_dense(np.ones((8, 8, 8), np.float32), (0, 0, 0), 0.1, name="density")
    with FrameCacheWriter(folder, facts) as writer:
        for frame in frames:
            line = np.linspace((0.0, 0.0, 0.0), (0.1, 0.1 * frame, 0.0), 4)
            writer.write_frame(frame, {"Hair": Curves(line, [0, 4]), "Smoke": smoke})


def _prepare(page: str, here: Path) -> dict[str, str]:
    """Put there what a page presupposes; return what its placeholders stand for."""
    if page == "export_to_usd_and_vdb.md":
        _make_cache(here / "hair_cache", range(10, 12))
        _make_cache(here / "smoke_cache", range(1, 2))
    if page == "houdini.md":
        from loki_vfx.serialization.houdini_files import write_geometry
        from loki_vfx.serialization.houdini_streams import geometry_of

        assert run_command(["new", "dust", "--json"]) == 0
        _make_cache(here / "loki" / "obj_geo1_solver1_0123456789ab" / "cache", range(1, 2))
        points = geometry_of(Points(np.eye(3)))
        for name in ("seeds.bgeo.sc", "seeds.0001.bgeo", "seeds.0002.bgeo"):
            write_geometry(here / name, points)
    if page == "write_an_extension.md":
        assert run_command(["new", "scene", "--json"]) == 0
        folder = here / "my_extension"
        folder.mkdir()
        (folder / "still.py").write_text("# an extension without Behaviors\n")
        return {"/path/to/my_extension": str(folder)}
    if page == "drive_a_run_from_a_host.md":
        return {"ANNAS_KEY": "a1" * 32, "SERVER_KEY": "b2" * 32}
    return {}


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=[page.stem for page in WITH_COMMANDS])
def test_the_commands_of_a_page_run(page, here, monkeypatch, capsys):
    meant = _prepare(page.name, here)
    if any("submit" in one.words for one in printed_commands.commands(page)):
        _fake_sbatch(here, monkeypatch)
    for command in printed_commands.commands(page):
        if command.program != "wtloki":
            assert command.program in NOT_HERE, f"{command.place}: say why it is not run"
            continue
        _run(command, meant, monkeypatch, capsys)


def _run(command: Command, meant: dict[str, str], monkeypatch, capsys) -> None:
    words = [meant.get(word, word) for word in command.words[1:]]
    if words[0] in ONLY_PARSED and "--list" not in words:
        printed_commands.parse(words, place=command.place)
        return
    for name, value in command.environment.items():
        monkeypatch.setenv(name, meant.get(value, value))
    if words[:2] == ["inspect", "dust_job/dust/cache"]:  # which the job writes
        _make_cache(Path(words[1]), range(1, 2))
    if words[0] == "run" and words[1] == "scene.loki.json":
        words += ["--input", "seeds=scene_seeds.npz"]
    _forget_what_is_there(words)
    code = run_command(printed_commands.made_small(words))
    told = capsys.readouterr()
    assert code == 0, f"{command.place}: {' '.join(words)}: {told.out}{told.err}"


def _forget_what_is_there(words: list[str]) -> None:
    """A page that begins its story anew finds an empty folder."""
    if "--print" in words:
        shutil.rmtree("dust_job", ignore_errors=True)
    if words[0] == "new":
        for path in Path.cwd().glob("dust*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _fake_sbatch(here: Path, monkeypatch) -> None:
    tools = here / "home" / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text("#!/bin/sh\necho 42\n")
    (tools / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")


# -- what the program prints ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["particles", "emitter", *(one.name for one in templates())])
def test_what_new_prints_next_runs(name, here, capsys):
    assert run_command(["new", "--template", name]) == 0
    told = capsys.readouterr().out
    steps = [shlex.split(line) for line in told.partition("next:")[2].splitlines() if line.strip()]
    assert [step[1] for step in steps] == ["check", "explain", "run", "preview"]
    for step in steps[:3]:
        # The start frame of each: what frames compute is tested by template elsewhere.
        code = run_command(["1" if word == "48" else word for word in step[1:]])
        printed = capsys.readouterr()
        assert code == 0, f"{' '.join(step)}: {printed.out}{printed.err}"
    printed_commands.parse(steps[3][1:], place="new")
    assert run_command(["explain", f"{name}.loki.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schedule"]


def test_names_with_spaces_are_quoted(here, capsys):
    assert run_command(["new", "my dust"]) == 0
    told = capsys.readouterr().out.partition("next:")[2].strip().splitlines()
    for step in told[:2]:
        assert run_command(shlex.split(step)[1:]) == 0, step


def test_one_of_these_pictures_is_drawn(here, capsys):
    assert run_command(["new"]) == 0
    *_, run, preview = (line.split()[1:] for line in capsys.readouterr().out.splitlines())
    assert run_command(["2" if word == "48" else word for word in run]) == 0
    assert run_command(printed_commands.made_small(preview)) == 0
    assert run_command(["example", "fountain", "--frames", "1", "--output", "jet"]) == 0
    assert "next: wtloki preview jet" in capsys.readouterr().out


def test_check_explain_and_inspect_need_no_inputs_of_a_graph(here, capsys):
    assert run_command(["new", "--template", "fountain"]) == 0
    for command in ("check", "explain", "inspect"):
        assert run_command([command, "fountain.loki.json"]) == 0, capsys.readouterr()
    told = capsys.readouterr().out
    assert 'warning: input "nozzle" is not given' in told and "--input nozzle=PATH" in told
    assert "nozzle: not given; an empty stream stands in" in told
    assert run_command(["run", "fountain.loki.json"]) == 4
    assert 'needs the input "nozzle"; add --input nozzle=PATH' in capsys.readouterr().err


def _texts_of(path: Path) -> list[tuple[int, str]]:
    """String constants of a module, with f-strings joined around their values."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((node.lineno, node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [
                str(getattr(one, "value", "")) if isinstance(one, ast.Constant) else "X"
                for one in node.values
            ]
            found.append((node.lineno, "".join(parts)))
    return found


_PRINTED = re.compile(r"\bwtloki ((?:[a-z]+)(?: (?:--[a-z-]+|[A-Za-z0-9_./:*=]+))*)")
_MODULES = [
    path
    for folder in (
        "bridges",
        "loki_core",
        "loki_graph",
        "serialization",
        "benchmarks",
        "validation",
    )
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_options_that_messages_and_help_name_are_declared():
    for path in _MODULES:
        for line, text in _texts_of(path):
            for found in _PRINTED.findall(text):
                words = found.split()
                if words[0] in COMMANDS:
                    place = f"{path.relative_to(ROOT)}:{line}"
                    printed_commands.check_options(words, place=place)


def test_nothing_tells_people_to_install_from_an_index_that_has_no_loki():
    for path in _MODULES:
        for line, text in _texts_of(path):
            assert not re.search(r"pip install\s+['\"]?loki-vfx", text), f"{path}:{line}"


def test_pages_list_every_template():
    names = {one.label for one in templates() if ROOT in one.path.parents}
    for page in ("docs/manual/blender.md", "docs/concepts/loki_graph.md", "docs/manual/houdini.md"):
        rows = re.findall(r"^\| ([^|]+) \|", (ROOT / page).read_text(), re.MULTILINE)
        listed = {label for row in rows for label in row.split(", ")}
        assert names <= listed, f"{page} lacks {sorted(names - listed)}"


def test_every_sub_command_that_is_only_parsed_is_one():
    assert set(ONLY_PARSED) <= set(COMMANDS) and SHELLS
    assert set(wtloki.list_commands(None)) == set(COMMANDS)
