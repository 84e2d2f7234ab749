"""Pictures of the gallery, without the render: scenes have light, a camera and what they show."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import bpy
import numpy as np
import pytest
from PIL import Image

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_graph.nodes.shape_source import box_between
from loki_vfx.bridges.blender.gallery import stage
from loki_vfx.bridges.blender.gallery.__main__ import picture_names
from loki_vfx.bridges.blender.gallery.image_files import write_clip, write_still
from loki_vfx.bridges.blender.gallery.picture import Frame
from loki_vfx.bridges.standalone.gallery import example_names, find_example
from loki_vfx.bridges.standalone.scene import streams_at

NAMES = picture_names()


def stand_in(behavior: Any, inputs: dict[str, Any]) -> Any:
    """What an Object may give at a frame, without a simulation."""
    kind = type(behavior).__name__
    if kind == "CurvesObject":
        return inputs[behavior.input]
    if kind == "ParticleObject":
        drops = Points(np.zeros((5, 3)))
        drops.set_channel("point", "heat", np.linspace(0.0, 1.0, 5))
        drops.set_channel("point", "radius", np.full(5, 0.01))
        return drops
    if kind in ("HybridObject", "LiquidSurface"):
        return box_between((0.0, 0.0, 0.0), (0.1, 0.1, 0.1))
    blob = {"density": np.ones((1, 8, 8, 8), np.float32)}
    return Voxels.from_dense(blob | {"temperature": 600.0 * blob["density"]}, (0.0, 0.0, 0.0), 0.1)


def test_every_picture_is_of_an_example() -> None:
    assert len(NAMES) >= 6 and set(NAMES) <= set(example_names())


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_shows_its_frame(name: str, tmp_path: Path) -> None:
    picture = importlib.import_module(f"loki_vfx.bridges.blender.gallery.{name}").PICTURE
    setup, given = find_example(name).build(**picture.options)
    inputs = streams_at(given, 1)
    objects = {
        path: stand_in(behavior, inputs)
        for path, behavior in setup.behaviors()
        if behavior.kind == "object"
    }
    scene = stage.empty_scene()
    show = picture.dress(scene)
    assert scene.camera is not None and scene.world is not None
    before = set(scene.objects)
    for number in (1, 2):  # the second time the same objects are used
        scene.frame_set(number)
        show(Frame(number, {**inputs, **objects}, tmp_path))
    shown = set(scene.objects) - before
    assert shown and all(one.active_material for one in shown)
    assert not [one.name for one in shown if one.name.endswith(".001")]
    first, last, step = picture.clip
    assert 1 <= first < last and step >= 1 and picture.still >= 1
    assert {one.type for one in shown} & {"CURVES", "VOLUME", "MESH"}
    assert len(bpy.data.cameras) == 1


def noise(path: Path, seed: int) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 255, (720, 1280, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def test_files_are_small_enough_for_a_page(tmp_path: Path) -> None:
    source = noise(tmp_path / "noise.png", 1)
    write_still(source, tmp_path / "still.jpg")
    assert (tmp_path / "still.jpg").stat().st_size < 0.5 * source.stat().st_size
    frames = []
    for k in range(30):
        frames.append(tmp_path / f"{k}.png")
        Image.new("RGB", (64, 36), (8 * k, 0, 0)).save(frames[-1])
    write_clip(frames, tmp_path / "clip.webp", rate=12.0)
    with Image.open(tmp_path / "clip.webp") as clip:
        assert clip.n_frames == 22  # eight of thirty are faded into others
        assert clip.info["loop"] == 0
        clip.seek(21)
        red = clip.convert("RGB").getpixel((10, 10))[0]
    assert 50 < red < 110  # between the last picture's 232 and the first one's 56, near the latter
