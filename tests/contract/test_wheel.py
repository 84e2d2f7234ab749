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


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder into which the wheel was unpacked, as pip lays it out."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    unwanted = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "output")
    shutil.copytree(ROOT, source, ignore=unwanted)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, source], check=True, capture_output=True)
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
