"""Motion blur: Cycles draws what moves at 24 m/s, at 24 frames a second, one metre longer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import bpy
import numpy as np
import pytest

from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_graph.voxel_blocks import voxel_centres
from loki_vfx.bridges.blender.axes import Axes
from loki_vfx.bridges.blender.compat import use_nodes
from loki_vfx.bridges.blender.loki_to_host import show, show_volume
from loki_vfx.bridges.blender.volume_files import write_volume

PIXELS, ACROSS = 48, 4.8  # a pixel is a decimetre
SIZE = 0.4  # m: of everything that is drawn here
UP = np.array([0.0, 24.0, 0.0], np.float32)
UNITS = [Axes(), Axes(0.01)]


@pytest.fixture
def scene() -> Any:
    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    scene.render.engine = "CYCLES"
    scene.cycles.samples, scene.cycles.use_denoising = 64, False
    scene.render.use_motion_blur, scene.render.motion_blur_shutter = True, 1.0
    scene.render.fps = 24
    scene.render.resolution_x = scene.render.resolution_y = PIXELS
    scene.render.image_settings.file_format = "OPEN_EXR"
    scene.world = None
    return scene


def drawn_size(scene: Any, axes: Axes, folder: Path) -> tuple[float, float]:
    """Render from the front, and return the width and the height of what is seen [m]."""
    camera = bpy.data.cameras.new("camera")
    camera.type, camera.clip_end = "ORTHO", 100.0 / axes.unit_scale
    camera.ortho_scale = ACROSS / axes.unit_scale
    scene.camera = bpy.data.objects.new("camera", camera)
    scene.camera.location = (0.0, -10.0 / axes.unit_scale, 0.0)
    scene.camera.rotation_euler = (math.pi / 2, 0.0, 0.0)
    scene.collection.objects.link(scene.camera)
    scene.render.filepath = str(folder / "picture.exr")
    bpy.ops.render.render(write_still=True)
    image = bpy.data.images.load(scene.render.filepath)
    pixels = np.empty(len(image.pixels), np.float32)
    image.pixels.foreach_get(pixels)
    bright = pixels.reshape(PIXELS, PIXELS, -1)[:, :, 0]
    seen = bright > 0.02 * bright.max()
    rows, columns = (np.flatnonzero(seen.any(axis=axis)) for axis in (1, 0))
    assert abs(rows.mean() - columns.mean()) < 1.0  # before and after the frame alike
    return ACROSS / PIXELS * len(columns), ACROSS / PIXELS * len(rows)


def glow(shown: Any, *, density: bool = False) -> None:
    """Let an object shine by itself."""
    material = bpy.data.materials.new("glow")
    use_nodes(material)
    tree = material.node_tree
    tree.nodes.clear()
    end = tree.nodes.new("ShaderNodeOutputMaterial")
    if density:
        light = tree.nodes.new("ShaderNodeVolumePrincipled")
        light.inputs["Density"].default_value = 0.0
        grid = tree.nodes.new("ShaderNodeAttribute")
        grid.attribute_name = "density"
        tree.links.new(grid.outputs["Fac"], light.inputs["Emission Strength"])
        tree.links.new(light.outputs[0], end.inputs["Volume"])
    else:
        light = tree.nodes.new("ShaderNodeEmission")
        tree.links.new(light.outputs[0], end.inputs["Surface"])
    shown.data.materials.append(material)


def check_size(width: float, height: float) -> None:
    """Up to a pixel on each side, which is the filter's or too dark to be seen.

    The ends of a curve are flat or round, by the version.
    """
    assert SIZE - 0.01 <= width <= 2 * SIZE + 0.21
    assert SIZE + 1.0 - 0.11 <= height <= SIZE + 1.0 + 0.21


def stream(kind: str) -> Any:
    half = SIZE / 2
    if kind == "surface":
        corners = [[-half, -half, 0], [half, -half, 0], [half, half, 0], [-half, half, 0]]
        made: Any = Surface.from_faces(np.array(corners, np.float32), [[0, 1, 2, 3]])
    elif kind == "points":
        made = Points(np.zeros((1, 3), np.float32))
    else:
        made = Curves.from_strands(np.array([[[-half, 0, 0], [half, 0, 0]]], np.float32))
    if kind != "surface":
        made.set_channel("point", "radius", np.full(made.point_count, half, np.float32))
    made.set_channel("point", "velocity", np.tile(UP, (made.point_count, 1)))
    return made


@pytest.mark.parametrize("axes", UNITS, ids=["metres", "centimetres"])
@pytest.mark.parametrize("kind", ["surface", "points", "curves"])
def test_geometry_is_blurred_by_its_velocity(scene, kind, axes, tmp_path):
    shown = show(stream(kind), kind, axes)
    glow(shown)
    show(stream(kind), kind, axes, target=shown)
    width, height = drawn_size(scene, axes, tmp_path)
    check_size(width, height)


@pytest.mark.slow
@pytest.mark.parametrize("axes", UNITS, ids=["metres", "centimetres"])
def test_a_volume_is_blurred_by_its_velocity(scene, axes, tmp_path):
    blocks = [[i, j, k] for i in (-1, 0) for j in (-2, -1, 0, 1) for k in (-1, 0)]
    voxels = Voxels(blocks, 0.05)
    inside = np.abs(voxel_centres(voxels)).max(axis=1) < SIZE / 2
    voxels.set_channel("density", inside.reshape(-1, 8, 8, 8).astype(np.float32))
    velocity = np.zeros((len(blocks), 3, 8, 8, 8), np.float32)
    velocity[:] = UP.reshape(1, 3, 1, 1, 1)
    voxels.set_channel("velocity", velocity, location="face")
    write_volume(tmp_path, "smoke", 1, voxels)
    shown = show_volume(tmp_path, "smoke", [1], axes)
    glow(shown, density=True)
    scene.frame_set(1)
    width, height = drawn_size(scene, axes, tmp_path)
    check_size(width, height)
