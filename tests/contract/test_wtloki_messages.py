"""Wrong uses of `wtloki` that newcomers make: one message in words, and the right exit code."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest

import loki_core as lk
from loki_core.kernels import kernel_book
from loki_core.wording import counted, noun, plural
from loki_vfx.bridges.standalone.command_line import COMMANDS, run_command, wtloki

DUST = ["dust.loki.json", "--input", "seeds=dust_seeds.npz"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a starter setup, a template, a cache, and files of every wrong kind."""
    here = tmp_path_factory.mktemp("messages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert run_command(["new", "dust", "--json"]) == 0
        assert run_command(["new", "--template", "fountain", "--json"]) == 0
        assert run_command(["new", "--template", "hair_in_wind", "--json"]) == 0
        assert run_command(["run", *DUST, "--frames", "1", "--output", "cache", "--json"]) == 0
    (here / "folder").mkdir()
    for name, text in {
        "text.npz": "hello",
        "empty.npz": "",
        "text.npy": "hello",
        "plain": "hello",
        "empty.obj": "",
        "bad.obj": "v 0 0 0\nf 1 2 9\n",
        "bad.ply": "ply\nformat ascii 1.0\nelement vertex 3\n",
        "bad.bgeo.sc": "hello",
        "broken.loki.json": '{"loki": "solver_setup",',
        "empty.loki.json": "",
        "other.loki.json": "{}",
    }.items():
        (here / name).write_text(text)
    save = {
        "objects": {"positions": np.array([{}], dtype=object)},
        "texts": {"positions": np.array(["a"])},
        "flat": {"positions": np.zeros(7)},
        "short": {"positions": np.eye(3), "radius": np.ones(2)},
        "nan": {"positions": np.full((2, 3), np.nan)},
        "huge": {"positions": np.eye(3) * 1e300},
    }
    for name, arrays in save.items():
        np.savez(here / f"{name}.npz", **arrays)
    np.save(here / "points.npy", np.eye(3))
    return here


def tell(folder: Path, words: list[str], capsys, monkeypatch) -> tuple[int, str]:
    """Run a command; return its code and all that it prints."""
    monkeypatch.chdir(folder)
    code = run_command(words)
    told = capsys.readouterr()
    return code, told.out + told.err


INPUTS = {
    "nowhere.npz": (4, "nowhere.npz is not there"),
    "nowhere": (4, "nowhere is not there"),
    "nowhere#Object": (4, "there is no frame cache nowhere"),
    "cache#Nothing": (4, 'cache has no Object "Nothing"'),
    "wind.####.npz": (4, "wind.0001.npz is not there"),
    "plain": (4, "files without an ending; known: .bgeo"),
    "text.npz": (5, "text.npz is no .npz file of numpy"),
    "text.npy": (5, "text.npy is no .npy file of numpy"),
    "empty.npz": (5, "it is empty"),
    "empty.obj": (5, "empty.obj is empty"),
    "bad.obj": (5, "a face names a vertex that is not there"),
    "bad.ply": (5, "bad.ply is damaged, or is no PLY file"),
    "bad.bgeo.sc": (5, "bad.bgeo.sc"),
    "objects.npz": (4, "objects.npz holds Python objects"),
    "texts.npz": (4, 'texts.npz: the values of "positions" are of dtype'),
    "flat.npz": (4, "flat.npz: points.positions has shape [7]"),
    "short.npz": (4, 'short.npz: points point channel "radius"'),
    "nan.npz": (4, 'input "seeds".positions[0]'),
    "huge.npz": (4, "expected finite numbers up to 1e+15 m"),
}


@pytest.mark.parametrize("given", INPUTS)
def test_a_wrong_input_file(folder, given, capsys, monkeypatch):
    code, words = INPUTS[given]
    run = ["run", "dust.loki.json", "--input", f"seeds={given}", "--output", "never"]
    found, text = tell(folder, run, capsys, monkeypatch)
    assert found == code and words in text, text
    found, text = tell(folder, ["check", *run[1:4]], capsys, monkeypatch)
    assert found == 4 and words in text and "1 error, 0 warnings" in text, text
    for word in ("allow_pickle", "unsafely", "IndexError", "mistake in Loki", "Traceback"):
        assert word not in text
    assert not (folder / "never").exists()


USES = {
    "run nowhere.loki.json": (4, "nowhere.loki.json is not there"),
    "check nowhere.loki.json": (4, "nowhere.loki.json is not there"),
    "explain nowhere.loki.json": (4, "nowhere.loki.json is not there"),
    "inspect nowhere.loki.json": (4, "nowhere.loki.json is not there"),
    "submit nowhere.loki.json --print": (4, "nowhere.loki.json is not there"),
    "run nowhere.loki.json --ranks 2": (4, "nowhere.loki.json is not there"),
    "preview nowhere": (4, "nowhere is not there"),
    "export nowhere --to a.usdc": (4, "nowhere is not there"),
    "run folder": (4, "folder is a folder; a file is expected"),
    "run broken.loki.json": (5, "not valid JSON"),
    "run empty.loki.json": (5, "empty.loki.json is empty"),
    "run other.loki.json": (5, 'it has no key "loki"'),
    "inspect bad.bgeo.sc": (5, "bad.bgeo.sc"),
    "run dust.loki.json --input seds=dust_seeds.npz": (4, 'did you mean "seeds"?'),
    "check dust.loki.json --input seds=dust_seeds.npz": (4, 'did you mean "seeds"?'),
    "explain dust.loki.json --input seds=dust_seeds.npz": (4, 'did you mean "seeds"?'),
    "run fountain.loki.json --input nozle=points.npy": (4, 'did you mean "nozzle"?'),
    "run hair_in_wind.loki.json --input head=points.npy": (
        4,
        'input "head" holds points; expected surface',
    ),
    "run fountain.loki.json --set rat=3": (3, 'did you mean "rate"? it exposes rate, speed,'),
    "run fountain.loki.json --set zzz=3": (3, "it exposes rate, speed, throw, spread"),
    "check fountain.loki.json --set zzz=3": (4, "it exposes rate, speed, throw, spread"),
    "run dust.loki.json --set radius=3": (3, 'did you mean "Particles/ParticleObject.radius"?'),
    "run dust.loki.json --set substep=3": (3, 'did you mean "substeps"?'),
    "run dust.loki.json --set radus=3": (3, 'did you mean "Particles/ParticleObject.radius"?'),
    "run fountain.loki.json --set densty=3": (3, '.density"? it exposes rate, speed,'),
    "check dust.loki.json --set nonsense": (2, "--set"),
    "check dust.loki.json --input seeds": (2, '--input "seeds" is not of the form NAME=PATH'),
    "run dust.loki.json --frames 99999999999": (2, "1 to 10,000,000 frames"),
    "run dust.loki.json --set GravityForce.acceleration=1": (3, "has 1 item, but 3 numbers"),
    "preview cache --output folder": (4, "expected the name of a .png file"),
    "example fountain --option x=3": (2, 'the scene has no option "x"'),
    "example fountain --option rate=abc": (2, "expected a number"),
    "reference --output plain": (1, "plain is a file"),
}


@pytest.mark.parametrize("use", USES)
def test_a_wrong_use(folder, use, capsys, monkeypatch):
    code, words = USES[use]
    found, text = tell(folder, use.split(), capsys, monkeypatch)
    assert found == code and words in text, text
    assert "mistake in Loki" not in text and "Traceback" not in text


def test_what_a_disabled_part_would_use_is_no_mistake(folder, capsys, monkeypatch):
    off = ["--set", "Particles.enabled=false"]
    found, text = tell(folder, ["check", *DUST, *off], capsys, monkeypatch)
    assert 'input "seeds" is given for Particles/ParticleObject, which is disabled' in text
    assert found == 4 and "1 error, 1 warning\n" in text


def test_the_check_says_of_an_input_that_nothing_uses_once(folder, capsys, monkeypatch):
    off = lk.ForceDensityField(field="wind", enabled=False)
    setup = lk.SolverSetup("s", lk.Group("Dust", lk.ParticleObject(input="seeds"), off))
    (folder / "still.loki.json").write_text(setup.to_json())
    check = ["check", "still.loki.json", "--input", "seeds=points.npy"]
    found, text = tell(folder, [*check, "--input", "wind=points.npy"], capsys, monkeypatch)
    assert found == 0 and text.count('"wind"') == 1 and "which is disabled" in text
    found, text = tell(folder, [*check, "--input", "wnd=points.npy"], capsys, monkeypatch)
    assert found == 4 and text.count('"wnd"') == 1 and "1 error, 0 warnings" in text


def test_counts_have_the_right_nouns(folder, capsys, monkeypatch):
    assert [plural(one) for one in ("vertex", "mesh", "body", "array")] == [
        "vertices",
        "meshes",
        "bodies",
        "arrays",
    ]
    assert counted(1, "error") == "1 error" and counted(2000, "vertex") == "2,000 vertices"
    assert noun(0, "flat tetrahedron") == "flat tetrahedra"
    _, text = tell(folder, ["inspect", "hair_in_wind_head.loki"], capsys, monkeypatch)
    assert " vertices, " in text and "vertexs" not in text
    monkeypatch.setattr(kernel_book, "entries_for", lambda modules: entries[:1])
    monkeypatch.setattr(kernel_book, "missing", lambda wanted: [])
    entries = [entry for some in kernel_book.read_book().values() for entry in some]
    assert "1 kernel is ready, 0 of them new" in tell(folder, ["warm"], capsys, monkeypatch)[1]


# -- help ------------------------------------------------------------------------------------------

#: A help text of an option says what the option does: it begins with one of these.
_VERB_WORDS = """
Add Ask Change Charge Check Colour Connect Continue Draw End Estimate Give Halve Import Keep Let
Limit List Listen Look Make Pair Pass Print Queue Replace Restart Run Set Share Show Stop Submit
Use Vary Write
"""
VERBS = frozenset(_VERB_WORDS.split())


def _commands() -> list[tuple[str, click.Command]]:
    found = []
    for name in COMMANDS:
        command = wtloki.get_command(None, name)
        found.append((name, command))
        found += [(f"{name} {one}", two) for one, two in getattr(command, "commands", {}).items()]
    return found


@pytest.mark.parametrize(("name", "command"), _commands(), ids=[name for name, _ in _commands()])
def test_every_option_has_a_help_that_is_a_sentence(name, command):
    assert command.help and command.help.split("\n\n")[0].rstrip().endswith(".")
    for option in command.params:
        if isinstance(option, click.Option):
            text = option.help or ""
            first = text.split()[0] if text else ""
            assert first in VERBS and text.endswith("."), f"{name} {option.opts[0]}: {text!r}"


def test_the_list_of_commands_is_one_of_sentences(capsys):
    assert run_command(["--help"]) == 0
    assert all(line.endswith(".") and line[0].isupper() for _, line in COMMANDS.values())
    assert json.loads(json.dumps(list(COMMANDS))) == list(COMMANDS)
