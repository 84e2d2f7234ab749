"""Blender's own thread waits for nothing: neither for a server nor for a disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bpy
import numpy as np
import pytest

from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_vfx.bridges.blender import bake as bake_module
from loki_vfx.bridges.blender import bake_operators, bakes, cache_files, clock, rendering, volumes
from loki_vfx.bridges.blender.bake import Bake
from loki_vfx.bridges.blender.graph_tree import outputs_in
from loki_vfx.bridges.blender.preferences import Wishes
from loki_vfx.bridges.live.frame_keeper import FrameKeeper
from loki_vfx.bridges.live.live_run import RunEvent


class Gate:
    """Something slow, that goes on when it is told to."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.passed = 0

    def __call__(self, *given: Any, **more: Any) -> None:
        assert self.opened.wait(30.0)
        self.passed += 1


class FakeRun:
    """A run that says what a test gives it."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self.pause, self.cancel = Gate(), Gate()

    def poll(self) -> list[RunEvent]:
        taken, self.events = self.events, []
        return taken

    def checkpoint(self) -> None:
        raise InputError("no room for a checkpoint")


def smoke() -> Voxels:
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("density", np.ones((1, 1, 8, 8, 8), np.float32))
    return voxels


def sent(number: int) -> Any:
    """Return a frame as the client gets it from another machine."""
    return SimpleNamespace(
        number=number, folder=None, statistics={}, streams=lambda: {"smoke": smoke()}
    )


def wait_until(condition: Any, then: Any) -> None:
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end
        then()
        time.sleep(0.005)


@pytest.fixture
def plume(scene: Any, tmp_path: Path) -> Any:
    bpy.ops.loki.add_template(template="smoke_plume")
    bpy.ops.wm.save_as_mainfile(filepath=str(tmp_path / "shot.blend"))
    tree = scene.loki.graph
    tree.loki.run = "plume"
    return tree


@pytest.fixture
def bake(plume: Any, scene: Any) -> Iterator[Bake]:
    made = Bake(plume, scene, (1, 3), earlier="none")
    made.run = FakeRun()  # type: ignore[assignment]
    made.state = "running"
    bakes._bakes[made.number] = made
    yield made
    made.run.pause.opened.set()
    made.run.cancel.opened.set()


def test_orders_are_not_waited_for_and_a_refusal_comes_into_the_log(bake: Any) -> None:
    run = bake.run
    bpy.ops.loki.pause()
    bpy.ops.loki.checkpoint()
    bpy.ops.loki.cancel()
    assert run.pause.passed == 0
    run.pause.opened.set()
    run.cancel.opened.set()
    wait_until(lambda: bake.log, bake.tick)
    assert (bake.log[0].level, bake.log[0].text) == ("error", "no room for a checkpoint")
    wait_until(lambda: run.cancel.passed, bake.tick)


def test_a_solver_that_does_not_answer_is_not_waited_for_long(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "wtloki"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("LOKI_COMMAND", str(program))
    monkeypatch.setattr(bake_operators, "LONGEST_START", 0.2)
    with pytest.raises(RuntimeError, match="did not answer within"):
        bpy.ops.loki.test_solver()


def test_a_bake_that_is_cancelled_while_it_connects_never_begins(
    plume: Any, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, closed, begun = Gate(), [], []

    def connect(*given: Any) -> Any:
        gate()
        return SimpleNamespace(close=lambda: closed.append(True))

    monkeypatch.setattr(bake_module, "connect_to", connect)
    made = Bake(plume, scene, (1, 3), earlier="none")
    made.begin(begun.append, Wishes(), [])  # type: ignore[arg-type]
    made.tick()
    assert made.state == "waiting"
    made.cancel()
    gate.opened.set()
    wait_until(lambda: made.is_over, made.tick)
    assert made.state == "cancelled" and closed and not begun and not made.log


def test_a_frame_from_another_machine_is_announced_when_it_is_written(
    bake: Any, plume: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, keep = Gate(), FrameKeeper.keep
    monkeypatch.setattr(FrameKeeper, "keep", lambda self, frame: (gate(), keep(self, frame)))
    bake._wanted = Wishes(endpoint="tcp://far.away:1")
    bake.run.events = [RunEvent("data", {}, sent(1)), RunEvent("end", {"state": "finished"})]
    for _ in range(5):
        bake.tick()
    assert bake.frame is None and not bake.is_over  # the end comes after the last frame
    gate.opened.set()
    wait_until(lambda: bake.is_over, bake.tick)
    assert bake.frame == 1 and bake.has_new_frame and bake.state == "finished"
    assert cache_files.baked_frames(plume) == [1]


def test_frames_wait_on_the_other_machine_while_the_disk_is_slow(
    bake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(FrameKeeper, "keep", gate)
    for number in range(1, 20):
        bake.run.events.append(RunEvent("data", {}, sent(number)))
        bake.tick()
    assert len(bake.run.events) > 10
    gate.opened.set()
    wait_until(lambda: bake.frame == 19, bake.tick)


def test_a_disk_that_is_full_ends_the_bake_with_a_message(
    bake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(self: Any, frame: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(FrameKeeper, "keep", keep)
    bake.run.events = [RunEvent("data", {}, sent(1))]
    wait_until(lambda: bake.is_over, bake.tick)
    assert bake.state == "failed" and "no space left" in bake.message


def test_a_frame_is_rewound_to_in_a_cache_of_another_machine(tmp_path: Path) -> None:
    keeper = FrameKeeper(tmp_path / "plume", "none")
    for number in (1, 2, 3):
        keeper.keep(sent(number))
    FrameKeeper(tmp_path / "plume", 2).keep(sent(2))
    assert cache_files.whole_frames(tmp_path / "plume" / "cache") == [1, 2]
    FrameKeeper(tmp_path / "plume", "all").keep(sent(3))
    assert cache_files.whole_frames(tmp_path / "plume" / "cache") == [1, 2, 3]


def test_the_live_preview_shows_a_volume_when_its_file_is_written(
    bake: Any, plume: Any, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, write = Gate(), volumes.write_volume
    gate.opened.set()
    monkeypatch.setattr(volumes, "write_volume", lambda *given: (gate(), write(*given)))
    monkeypatch.setattr(rendering, "must_wait", lambda: False)  # as in a window
    keeper = FrameKeeper(cache_files.run_folder(plume), "none")

    def file_of_frame(shown: Any) -> str:
        shown.data.grids.load()
        assert shown.data.grids.is_loaded, shown.data.grids.error_message
        return Path(shown.data.grids.frame_filepath).name

    def new_frame(number: int) -> None:
        keeper.keep(sent(number))
        bake._announce(number)
        clock.tick_all()

    new_frame(1)
    wait_until(lambda: not volumes.is_writing(), clock.tick_all)
    clock.tick_all()
    [output] = outputs_in(plume)
    shown = output.part.target
    assert scene.frame_current == 1 and file_of_frame(shown) == "smoke_0001.vdb"
    gate.opened.clear()
    new_frame(2)
    assert scene.frame_current == 1  # the preview follows when there is something to see
    scene.frame_set(2)
    assert file_of_frame(shown) == "smoke_0001.vdb"
    gate.opened.set()
    wait_until(lambda: shown.data.is_sequence, clock.tick_all)
    assert scene.frame_current == 2 and file_of_frame(shown) == "smoke_0002.vdb"


def test_a_render_waits_for_the_file_of_a_volume(
    bake: Any, plume: Any, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = volumes.write_volume
    monkeypatch.setattr(volumes, "write_volume", lambda *given: (time.sleep(0.3), write(*given)))
    plume.loki.live_preview = False
    FrameKeeper(cache_files.run_folder(plume), "none").keep(sent(1))
    bake._announce(1)
    clock.tick_all()
    assert volumes.is_writing()
    scene.frame_set(1)
    [output] = outputs_in(plume)
    output.part.target.data.grids.load()
    assert output.part.target.data.grids.is_loaded
