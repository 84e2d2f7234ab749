"""The stand-in for `hou`, nodes of it, and a folder whose server ends with the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "stand_in"))

import hou

from loki_vfx.bridges.houdini.loki_houdini import cook
from loki_vfx.bridges.live.client import Client
from loki_vfx.bridges.live.local_server import discovered


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """A Houdini session at frame 1."""
    hou._state.update(frame=1.0, pwd=[], progress=[], interrupt_after=None)
    yield
    cook.forget_all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where runs lie; the server that a node starts there is stopped."""
    made = tmp_path_factory.mktemp("runs")
    yield made
    found: Any = discovered(made)
    if found is not None:
        with Client(found["endpoint"]) as client:
            client.stop_server()
