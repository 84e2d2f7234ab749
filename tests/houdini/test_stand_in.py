"""The stand-in has the methods, arguments and defaults that Houdini's published types have."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
#: What stubtest may say: parts that the bridge does not use, and names that are ours.
FINE = ("is not present at runtime", "__init__ is", "is not present in stub")


def differences(folder: Path, text: str) -> list[str]:
    """What mypy's stubtest has against a text as `hou`."""
    (folder / "stubs" / "hou").mkdir(parents=True)
    (folder / "fake").mkdir()
    found = importlib.util.find_spec("mypy")
    assert found is not None and found.origin is not None
    stub = Path(found.origin).parent.parent / "hou-stubs" / "__init__.pyi"
    shutil.copy(stub, folder / "stubs" / "hou" / "__init__.pyi")
    (folder / "fake" / "hou.py").write_text(text, encoding="utf-8")
    settings = folder / "mypy.ini"
    settings.write_text(
        "[mypy]\n[mypy-pxr.*,PySide2.*,PySide6.*]\n"
        "ignore_missing_imports = true\nfollow_imports = skip\nfollow_imports_for_stubs = true\n"
    )
    options = (
        "--mypy-config-file",
        str(settings),
        "--ignore-missing-stub",
        "--ignore-positional-only",
        "--concise",
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "hou", *options],
        env={
            **os.environ,
            "MYPYPATH": str(folder / "stubs"),
            "PYTHONPATH": f"{folder / 'fake'}{os.pathsep}{ROOT}",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert any("not present at runtime" in line for line in lines), done.stdout + done.stderr
    return [line for line in lines if line and not any(words in line for words in FINE)]


@pytest.fixture(scope="module")
def text() -> str:
    return (HERE / "stand_in" / "hou.py").read_text(encoding="utf-8")


def test_the_stand_in_is_as_the_published_types_say(tmp_path, text):
    assert differences(tmp_path, text) == []


def test_a_renamed_argument_is_found(tmp_path, text):
    changed = text.replace("def load(self, data):", "def load(self, content):")
    changed = changed.replace("read_bytes(data)", "read_bytes(content)")
    assert any("Geometry.load" in line for line in differences(tmp_path, changed))
