"""Files that are opened, that cannot be opened, and that are open when the add-on is enabled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bpy
import pytest

from loki_vfx.bridges.blender import bakes, file_events, rendering
from loki_vfx.bridges.blender.messages import message_of
from tests.blender.baking import hair_of_few_strands, pump


@pytest.fixture
def hair(scene: Any, tmp_path: Path) -> Any:
    tree = hair_of_few_strands(scene, str(tmp_path / "shot.blend"))
    scene.frame_end = 400
    return tree


def begin(tree: Any) -> None:
    bpy.ops.loki.bake()
    pump(lambda: bakes.bake_of(tree).frame is not None)


def goes_on(tree: Any) -> None:
    bake = bakes.bake_of(tree)
    before = bake.frame or 0
    pump(lambda: (bake.frame or 0) > before)
    bpy.ops.loki.cancel()
    pump(lambda: bake.is_over)


def test_a_bake_is_followed_after_a_file_that_cannot_be_opened(hair: Any, tmp_path: Path) -> None:
    begin(hair)
    (tmp_path / "broken.blend").write_bytes(b"BLENDER-v500" + bytes(100))
    rendering.on_render_begin()
    with pytest.raises(RuntimeError):
        bpy.ops.wm.open_mainfile(filepath=str(tmp_path / "broken.blend"))
    assert not rendering.is_rendering()
    goes_on(hair)


def test_a_bake_is_followed_when_the_add_on_is_enabled_again(hair: Any, addon: Any) -> None:
    begin(hair)
    name = hair.name
    addon.unregister()
    addon.register()
    assert bpy.app.timers.is_registered(file_events.look_at_open_file)
    file_events.look_at_open_file()  # a timer does it where there is a window
    file_events.look_at_open_file()
    goes_on(bpy.data.node_groups[name])


def test_what_an_open_file_lacks_is_said_when_the_add_on_is_enabled(hair: Any, addon: Any) -> None:
    hair.loki.run = "gone"
    name = hair.name
    addon.unregister()
    addon.register()
    file_events.look_at_open_file()
    assert "its frames are not in" in message_of(bpy.data.node_groups[name])


def test_every_handler_is_there_once(addon: Any, scene: Any) -> None:
    addon.unregister()
    handlers = [some for some, _ in file_events._handlers()]
    assert not any(
        "loki_vfx.bridges.blender" in one.__module__ for some in handlers for one in some
    )
    addon.register()
    for some, handler in file_events._handlers():
        assert some.count(handler) == 1
