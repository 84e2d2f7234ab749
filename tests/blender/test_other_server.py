"""Bakes on a server that the preferences name: frames are sent, and kept here.

The server is on this machine, with a folder of its own; the add-on is not told so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bpy
import pytest

from loki_vfx.bridges.blender import bakes, cache_files, solver_connection
from loki_vfx.bridges.blender.out_of_date import has_changed
from loki_vfx.bridges.blender.preferences import Wishes
from loki_vfx.bridges.live.client import connect
from loki_vfx.bridges.live.local_server import ensure_server
from tests.blender.baking import hair_of_few_strands, pump
from tests.blender.conftest import solver_program


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The endpoint of a server elsewhere, as the preferences name it."""
    endpoint = ensure_server(tmp_path / "elsewhere", [str(solver_program())])
    prefer(monkeypatch, endpoint)
    yield endpoint
    with connect(endpoint) as client:
        client.stop_server()


def prefer(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for module in (bakes, solver_connection):
        monkeypatch.setattr(module, "wishes", lambda: Wishes(endpoint=endpoint))


@pytest.fixture
def hair(scene: Any, tmp_path: Path, server: str) -> Any:
    return hair_of_few_strands(scene, str(tmp_path / "shot.blend"))


def reopened() -> Any:
    bpy.ops.wm.save_mainfile()
    bpy.ops.wm.open_mainfile(filepath=bpy.data.filepath)
    return bpy.context.scene.loki.graph


def test_frames_are_kept_here_and_all_goes_with_the_bin(
    hair: Any, scene: Any, server: str, tmp_path: Path
) -> None:
    scene.frame_end = 3
    for _ in range(2):  # the second one replaces the first
        assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
        assert cache_files.baked_frames(hair) == [1, 2, 3]
    assert not has_changed(hair, scene)
    folder = cache_files.run_folder(hair)
    assert folder.parent == tmp_path / "loki_cache"
    assert not bakes.has_more(reopened())  # all frames are here
    bpy.ops.loki.free()
    assert not folder.exists()
    with connect(server) as client:
        assert client.status()["runs"] == []


def test_a_file_opened_again_follows_its_bake_and_gets_what_it_missed(
    hair: Any, scene: Any
) -> None:
    scene.frame_end = 60
    bpy.ops.loki.bake()
    pump(lambda: (bakes.bake_of(hair).frame or 0) >= 2)
    tree = reopened()
    bake = bakes.bake_of(tree)
    assert bake is not None
    pump(lambda: bake.is_over)
    assert bake.state == "finished"
    assert cache_files.baked_frames(tree) == list(range(1, 61))


def test_resume_takes_up_a_bake_of_a_file_opened_again(hair: Any, scene: Any) -> None:
    scene.frame_end = 400
    bpy.ops.loki.bake()
    bake = bakes.bake_of(hair)
    pump(lambda: (bake.frame or 0) >= 2)
    bpy.ops.loki.cancel()
    pump(lambda: bake.is_over)
    tree = reopened()
    pump(lambda: bakes.bake_of(tree).is_over)  # it was asked, and had nothing more
    last = cache_files.baked_frames(tree)[-1]
    bpy.ops.loki.resume()
    bake = bakes.bake_of(tree)
    pump(lambda: bake.frame > last + 1)
    assert cache_files.baked_frames(tree)[: last + 1] == list(range(1, last + 2))
    bpy.ops.loki.cancel()
    pump(lambda: bake.is_over)


def test_another_server_in_the_preferences_is_said(
    hair: Any, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.frame_end = 2
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    prefer(monkeypatch, "")
    with pytest.raises(RuntimeError, match=r"was baked on .*name no server"):
        bpy.ops.loki.resume()
    former = hair.loki.run
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    assert hair.loki.run != former  # a server here does not replace what another one has
