"""The wheel, installed elsewhere, has the command, the gallery and the benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
#: What `make wheel` says to `python -m build`, before the folder.
BUILD = "--wheel --no-isolation --outdir"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder into which the wheel was unpacked, as pip lays it out."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    unwanted = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "output")
    shutil.copytree(ROOT, source, ignore=unwanted)
    command = [sys.executable, "-m", "build", *BUILD.split(), folder, source]
    subprocess.run(command, check=True, capture_output=True)
    wheel = next(folder.glob("*.whl"))
    target = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def _run(installed, *code):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, *code], cwd=installed, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_the_wheel_of_make_and_of_the_manual(installed):
    assert f"-m build {BUILD} dist\n" in (ROOT / "Makefile").read_text()
    name = next(installed.parent.glob("*.whl")).name
    for page in ("README.md", "docs/install.md", "bridges/houdini/FIRST_RUN.md"):
        assert f"dist/{name}[" in (ROOT / page).read_text(), page


def test_its_extras_are_those_of_the_manual(installed):
    metadata = next(installed.glob("*.dist-info/METADATA")).read_text()
    known = {
        line.split()[1] for line in metadata.splitlines() if line.startswith("Provides-Extra:")
    }
    table = (ROOT / "docs" / "install.md").read_text().partition("| extra |")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name.strip(" `") for row in rows for name in row.split(",")}
    assert listed == known


def test_it_adds_no_generic_import_names(installed):
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"loki_core", "loki_graph", "loki_vfx"}


def test_gallery_benchmarks_and_cases_are_there(installed):
    where = _run(installed, "-c", "import loki_core; print(loki_core.__file__)")
    assert str(installed) in where
    command = ("-m", "loki_vfx.bridges.standalone.command_line")
    assert "fountain" in _run(installed, *command, "example", "--list")
    assert "data" in _run(installed, *command, "bench", "--list")
    assert "terminal_velocity" in _run(installed, *command, "validate", "--list")


def test_licences_are_in_it(installed):
    texts = [path.read_text() for path in installed.rglob("LICENSE*")]
    assert any("Apache License" in text for text in texts)
    assert any("GNU GENERAL PUBLIC LICENSE" in text for text in texts)
