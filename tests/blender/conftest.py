"""Blender itself, as the `bpy` module; without it these tests are left out."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent.parent

if importlib.util.find_spec("bpy") is None:
    collect_ignore_glob = ["test_*.py"]


def solver_program() -> Path:
    """Return the `wtloki` of the project's own environment, or of this one."""
    own = PROJECT / ".venv" / "bin" / "wtloki"
    return own if own.exists() else Path(sys.executable).parent / "wtloki"


@pytest.fixture(scope="session")
def addon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ["BLENDER_USER_RESOURCES"] = str(tmp_path_factory.mktemp("blender"))
    os.environ["LOKI_COMMAND"] = str(solver_program())
    os.environ["LOKI_RUNS"] = str(tmp_path_factory.mktemp("unsaved"))
    import loki_vfx.bridges.blender as addon

    addon.register()
    yield addon
    addon.unregister()


@pytest.fixture
def scene(addon: Any) -> Iterator[Any]:
    """An empty scene with the add-on enabled."""
    import bpy

    bpy.ops.wm.read_factory_settings(use_empty=True)
    yield bpy.context.scene
    from loki_vfx.bridges.blender import bakes
    from loki_vfx.bridges.live.client import ConnectionLost

    for _, bake in bakes.all_bakes():
        if bake.client is not None:
            with suppress(ConnectionLost):
                bake.client.stop_server()
    bakes.forget_all()
