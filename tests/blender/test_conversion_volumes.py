"""Volumes in Blender itself: voxels are where they were, and what moves turns with them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import bpy
import mathutils
import numpy as np
import pytest

from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_graph.voxel_blocks import voxel_centres
from loki_vfx.bridges.blender.axes import Axes, Placement
from loki_vfx.bridges.blender.loki_to_host import show, show_volume
from loki_vfx.bridges.blender.turned_voxels import turned
from loki_vfx.bridges.blender.volume_files import volume_path, write_volume
from loki_vfx.serialization.volumes import find_openvdb, read_vdb, write_vdb
from tests.blender.conversion_scenes import depsgraph, link, read


@pytest.fixture(autouse=True)
def empty_file() -> None:
    bpy.ops.wm.read_factory_settings(use_empty=True)


def smoke(seed: int = 0) -> Voxels:
    """A few blocks with a scalar, a vector at centres, a vector on faces, and lengths."""
    random = np.random.default_rng(seed)
    coords = np.array([[0, 0, 0], [1, 0, 0], [0, -1, 0], [3, 2, -2]])
    voxels = Voxels(coords, 0.1, origin=(1.0, 2.0, 3.0))
    voxels.set_channel("density", random.random((4, 1, 8, 8, 8), dtype=np.float32))
    voxels.set_channel("force", random.random((4, 3, 8, 8, 8), dtype=np.float32))
    voxels.set_channel("velocity", random.random((4, 3, 8, 8, 8), np.float32), location="face")
    voxels.set_channel("distance", random.random((4, 1, 8, 8, 8), dtype=np.float32))
    return voxels


def shown(folder: Path, axes: Axes, frames: list[int], **options: Any) -> Any:
    return show_volume(folder, "Smoke", frames, axes, **options)


def by_place(voxels: Voxels, name: str, *, face: int | None = None) -> dict[tuple[int, ...], Any]:
    """Values by place in units of a twentieth of a metre: centres and faces are whole numbers."""
    places = voxel_centres(voxels)
    if face is not None:
        places[:, face] -= 0.5 * voxels.voxel_size
    values = np.moveaxis(voxels.channel(name).values, 1, -1).reshape(len(places), -1)
    keys = np.rint(places / 0.05).astype(int).tolist()
    return {tuple(k): v.tolist() for k, v in zip(keys, values, strict=True) if v.any()}


@pytest.mark.parametrize("axes", [Axes(), Axes(0.01), Axes(0.3048)])
def test_there_and_back_is_the_same_volume(tmp_path, axes):
    voxels = smoke()
    write_volume(tmp_path, "Smoke", 1, voxels)
    result = shown(tmp_path, axes, [1])
    again = read(result, axes)
    assert isinstance(again, Voxels)
    order = np.lexsort(voxels.coords.T[::-1])
    assert np.array_equal(again.coords, voxels.coords[order])
    np.testing.assert_allclose(again.origin, voxels.origin, rtol=0, atol=1e-12)
    assert again.voxel_size == pytest.approx(0.1, rel=1e-12)
    for name, channel in voxels.channels.items():
        assert np.array_equal(again.channel(name).values, channel.values[order])
        assert again.channel(name).location == channel.location


@pytest.mark.parametrize("axes", [Axes(), Axes(0.01)])
def test_a_voxel_is_at_its_place_in_the_world(tmp_path, axes):
    voxels = smoke()
    path = write_volume(tmp_path, "Smoke", 1, voxels)
    result = shown(tmp_path, axes, [1])
    depsgraph()
    grid = find_openvdb().read(str(path), "density")
    index = (8, 3, 5)
    world = result.matrix_world @ mathutils.Vector(grid.transform.indexToWorld(index))
    x, y, z = voxels.origin + 0.1 * (np.array(index) + 0.5)  # its centre, in Loki
    np.testing.assert_allclose(world, np.array([x, -z, y]) / axes.unit_scale, rtol=1e-6)
    # Cycles turns and scales velocities with the object: up in Loki is up in Blender.
    up = result.matrix_world.to_3x3() @ mathutils.Vector((0, 1, 0))
    np.testing.assert_allclose(up, [0, 0, 1 / axes.unit_scale], atol=1e-5)
    assert result.data.velocity_unit == "SECOND"
    assert result.data.velocity_grid == "velocity"


def test_a_volume_of_blender_is_turned_to_y_up(tmp_path):
    voxels = Voxels([[0, 0, 0]], 0.5)
    values = np.zeros((1, 1, 8, 8, 8), np.float32)
    values[0, 0, 1, 2, 7] = 1.0
    vectors = np.zeros((1, 3, 8, 8, 8), np.float32)
    vectors[0, :, 1, 2, 7] = 1.0, 2.0, 3.0
    voxels.set_channel("density", values)
    voxels.set_channel("velocity", vectors)
    write_vdb(tmp_path / "zup.vdb", voxels)
    volume = bpy.data.volumes.new("zup")
    volume.filepath = str(tmp_path / "zup.vdb")
    source = link("zup", volume)
    source.location, source.scale = (10, 20, 30), (2, 2, 2)
    again = read(source, Axes(0.01))
    place = voxel_centres(again)[np.flatnonzero(again.channel("density").values)[0]]
    x, y, z = np.array([10, 20, 30]) + 2 * 0.5 * np.array([1.5, 2.5, 7.5])
    np.testing.assert_allclose(place, 0.01 * np.array([x, z, -y]), rtol=1e-6)
    assert again.voxel_size == pytest.approx(0.01)
    there = np.moveaxis(again.channel("velocity").values, 1, -1).reshape(-1, 3)
    np.testing.assert_allclose(there[there.any(axis=1)], [[0.02, 0.06, -0.04]], rtol=1e-5)
    source.rotation_euler = (0, 0, math.pi / 2)
    assert read(source).channel("density").values.sum() == 1.0
    source.rotation_euler = (0, 0, 0.3)
    with pytest.raises(InputError, match='object "zup": its voxels are turned or stretched'):
        read(source)


TURNS = [
    mathutils.Matrix.Rotation(math.pi / 2, 3, "X"),
    mathutils.Matrix.Rotation(math.pi, 3, "Y"),
    mathutils.Matrix.Rotation(-math.pi / 2, 3, "Z")
    @ mathutils.Matrix.Rotation(math.pi / 2, 3, "X"),
    mathutils.Matrix.Scale(-1.0, 3, mathutils.Vector((0, 1, 0))),
]


@pytest.mark.parametrize("turn", TURNS, ids=["x", "y", "zx", "mirror"])
def test_every_value_turns_with_its_place(turn):
    matrix = np.rint(np.array(turn)).astype(float)
    voxels = smoke()
    result = turned(voxels, Placement(matrix, (1.0, -2.0, 0.5)))

    def moved(place: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.rint(matrix @ place + np.array([20, -40, 10])).astype(int).tolist())

    density = {moved(k): v for k, v in by_place(voxels, "density").items()}
    assert by_place(result, "density") == density
    force = {moved(k): (matrix @ v).tolist() for k, v in by_place(voxels, "force").items()}
    assert by_place(result, "force") == force
    for axis in range(3):  # a face that looks along an axis looks along another one then
        source = int(np.argmax(np.abs(matrix[axis])))
        sign = matrix[axis, source]
        before = by_place(voxels, "velocity", face=source)
        expected = {moved(k): sign * v[source] for k, v in before.items() if v[source]}
        after = by_place(result, "velocity", face=axis)
        assert {k: v[axis] for k, v in after.items() if v[axis]} == expected
    back = turned(result, Placement(matrix.T, -matrix.T @ [1.0, -2.0, 0.5]))
    assert by_place(back, "density") == by_place(voxels, "density")


def test_lengths_and_velocities_grow_with_the_volume():
    voxels = smoke()
    larger = turned(voxels, Placement(2.0 * np.eye(3)))
    assert larger.voxel_size == pytest.approx(0.2)
    for name, factor in (("distance", 2.0), ("velocity", 2.0), ("density", 1.0)):
        assert np.array_equal(larger.channel(name).values, factor * voxels.channel(name).values)


def test_a_sequence_follows_the_timeline(tmp_path):
    for frame in (3, 4, 5):
        write_volume(tmp_path, "Smoke", frame, smoke(frame))
    result = shown(tmp_path, Axes(), [3, 4, 5], label="tree smoke")
    assert result.name == "tree smoke"
    for frame, number in ((3, 3), (5, 5), (4, 4), (9, 5), (1, 3)):
        bpy.context.scene.frame_set(frame)
        path = read_path(result)
        assert path == volume_path(tmp_path, "Smoke", number)
    assert shown(tmp_path, Axes(), [3, 4, 5], target=result) is result


def read_path(result: Any) -> Path:
    volume = result.evaluated_get(depsgraph()).data
    volume.grids.load()
    return Path(volume.grids.frame_filepath)


def test_a_file_that_was_written_again_is_read_again(tmp_path):
    path = write_volume(tmp_path, "Smoke", 2, smoke(1))
    result = shown(tmp_path, Axes(), [2], frame=2)
    bpy.context.scene.frame_set(2)
    assert read_path(result) == path
    write_volume(tmp_path, "Smoke", 2, smoke(2))
    os.utime(path, ns=(1, 1))
    shown(tmp_path, Axes(), [2], frame=2, target=result)
    other = read_path(result)
    assert other != path
    expected = read_vdb(path).channel("density").values
    assert np.array_equal(read_vdb(other).channel("density").values, expected)
    write_volume(tmp_path, "Smoke", 2, smoke(3))
    shown(tmp_path, Axes(), [2], frame=2, target=result)
    assert read_path(result) not in (path, other)
    assert len(list(tmp_path.iterdir())) == 2  # the name before is gone


def test_volumes_without_voxels_and_odd_channels(tmp_path):
    write_volume(tmp_path, "none", 0, Voxels(np.empty((0, 3), int), 0.1))
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("pair", np.ones((1, 2, 8, 8, 8)))
    voxels.set_channel("exact", np.full((1, 1, 8, 8, 8), 0.5))
    voxels.set_channel("cell", np.ones((1, 3, 8, 8, 8), np.int64))
    path = write_volume(tmp_path, "odd", 7, voxels)
    again = read_vdb(path)
    assert sorted(again.channels) == ["cell", "exact", "pair.0", "pair.1"]
    assert {c.values.dtype.name for c in again.channels.values()} == {"float32"}
    with pytest.raises(InputError, match="numbered from 0"):
        write_volume(tmp_path, "odd", -1, voxels)


def test_what_cannot_be_read_or_shown_is_told(tmp_path):
    source = link("nothing", bpy.data.volumes.new("nothing"))
    with pytest.raises(InputError, match='object "nothing": it has no VDB file at this frame'):
        read(source)
    source.data.filepath = str(tmp_path / "missing.vdb")
    with pytest.raises(InputError, match='object "nothing"'):
        read(source)
    with pytest.raises(InputError, match="shown by show_volume"):
        show(smoke(), "smoke", Axes())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="gives voxels, and surface is wanted"):
        read(source, wanted="surface")
