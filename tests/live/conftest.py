"""One server for all tests of a module, and clients of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loki_vfx.bridges.live.client import Client
from tests.live.live_scenes import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path_factory.mktemp("runs") / "root", "--runs-at-once", "2")
    yield made
    made.stop()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.endpoint) as made:
        yield made


@pytest.fixture
def settings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(os.environ, "LOKI_CONFIG_DIR", str(tmp_path / "settings"))
    return tmp_path / "settings"
