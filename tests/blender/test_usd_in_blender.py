"""Exported stages in Blender itself: every kind arrives with the numbers of the cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.wireframe import Wireframe
from tests.unit.export_scenes import Streams, cache_of, sheet, smoke

bpy = pytest.importorskip("bpy", reason="needs Blender's Python module: make numpy1")

FRAMES = (1, 2, 3)
COMMAND = [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line"]


def streams_at(frame: int) -> Streams:
    random = np.random.default_rng(frame)
    cloth = sheet(frame)
    cloth.set_channel("point", "velocity", random.random((10, 3)))
    cloth.set_channel("point", "Cd", random.random((10, 3)))
    cloth.set_channel("point", "piece", np.arange(10))
    cloth.set_channel("primitive", "heat", random.random(4))
    cloth.set_channel("vertex", "uv", random.random((16, 2)))
    hair = Curves.from_strands(random.random((4, 6, 3)))
    hair.set_channel("point", "radius", random.random(24))
    hair.set_channel("point", "velocity", random.random((24, 3)))
    rings = Curves(random.random((9, 3)), [0, 4, 9], True)
    spray = Points(random.random((10 + frame, 3)))
    spray.set_channel("point", "radius", random.random(10 + frame))
    spray.set_channel("point", "velocity", random.random((10 + frame, 3)))
    corners = frame * np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    streams = {
        "Cloth/Sheet": cloth,
        "Liquid": sheet(frame, 2 + frame),
        "Hair": hair,
        "Rings": rings,
        "Spray": spray,
        "Truss": Wireframe(corners, [[0, 1], [1, 2], [0, 3]]),
        "Jelly": Body(corners, [[0, 1, 2, 3]]),
        "Smoke/Plume": smoke(frame),
    }
    if frame > 1:
        streams["Late"] = sheet(frame)
    return streams


@pytest.fixture(scope="module", params=["y", "z"])
def shot(request, tmp_path_factory) -> Path:
    """A stage of all kinds; written by the command, since Blender brings a USD of its own."""
    folder = tmp_path_factory.mktemp(f"{request.param}_up")
    cache_of(folder / "cache", {frame: streams_at(frame) for frame in FRAMES})
    words = ["export", "cache", "--to", "shot.usdc", "--up", request.param, "--json"]
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["frames"] == list(FRAMES)
    return folder / "shot.usdc"


@pytest.fixture(scope="module")
def imported(shot: Path) -> Path:
    bpy.ops.wm.read_homefile(use_empty=True, use_factory_startup=True)
    assert bpy.ops.wm.usd_import(filepath=str(shot)) == {"FINISHED"}
    return shot


def evaluated(name: str, frame: int) -> Any:
    bpy.context.scene.frame_set(frame)
    return bpy.data.objects[name].evaluated_get(bpy.context.evaluated_depsgraph_get())


def attribute(data: Any, name: str, key: str, components: int) -> np.ndarray:
    found = data.attributes[name].data
    values = np.empty(len(found) * components, np.float32)
    found.foreach_get(key, values)
    return values.reshape(-1, components)


def world(one: Any, vectors: np.ndarray, *, place: bool) -> np.ndarray:
    """Return vectors of an object in Blender's own space, where z is up."""
    matrix = np.array(one.matrix_world)
    return vectors @ matrix[:3, :3].T + (matrix[:3, 3] if place else 0.0)


def z_up(vectors: np.ndarray) -> np.ndarray:
    return vectors[:, [0, 2, 1]] * (1.0, -1.0, 1.0)


def assert_near(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [
        ("Sheet", "Cloth/Sheet", "MESH"),
        ("Liquid", "Liquid", "MESH"),
        ("Jelly", "Jelly", "MESH"),
        ("Hair", "Hair", "CURVES"),
        ("Rings_closed", "Rings", "CURVES"),
        ("Spray", "Spray", "POINTCLOUD"),
    ],
)
def test_positions_and_velocities_are_those_of_the_cache(imported, name, path, kind, frame):
    stream = streams_at(frame)[path]
    one = evaluated(name, frame)
    assert one.type == kind
    position = attribute(one.data, "position", "vector", 3)
    assert_near(world(one, position, place=True), z_up(stream.positions))
    if "velocity" in stream.channels["point"]:
        velocity = attribute(one.data, "velocity", "vector", 3)
        expected = z_up(stream.channels["point"]["velocity"])
        assert_near(world(one, velocity, place=False), expected)
    if "radius" in stream.channels["point"]:
        radius = attribute(one.data, "radius", "value", 1)
        assert_near(radius[:, 0], stream.channels["point"]["radius"])


@pytest.mark.parametrize("frame", (1, 3))
def test_topology_and_channels_arrive(imported, frame):
    cloth = streams_at(frame)["Cloth/Sheet"]
    mesh = evaluated("Sheet", frame).data
    assert [len(face.vertices) for face in mesh.polygons] == [4] * 4
    corners = [i for face in mesh.polygons for i in face.vertices]
    assert corners == cloth.face_vertices.tolist()
    assert_near(attribute(mesh, "heat", "value", 1)[:, 0], cloth.channels["primitive"]["heat"])
    assert_near(attribute(mesh, "st", "vector", 2), cloth.channels["vertex"]["uv"])
    color = attribute(mesh, "displayColor", "color", 4)
    assert_near(color[:, :3], cloth.channels["point"]["Cd"])
    assert attribute(mesh, "piece", "value", 1)[:, 0].tolist() == list(range(10))
    assert len(evaluated("Liquid", frame).data.polygons) == 2 + frame
    assert len(evaluated("Jelly", frame).data.polygons) == 4


def test_curves_close_where_they_do(imported):
    rings = evaluated("Rings_closed", 2).data
    assert [one.value for one in rings.attributes["cyclic"].data] == [True, True]
    assert [curve.points_length for curve in rings.curves] == [4, 5]
    truss = evaluated("Truss", 2).data  # evaluates the scene again, so the rings are gone
    assert [curve.points_length for curve in truss.curves] == [2, 2, 2]


def test_an_object_that_begins_late_is_not_there_before(imported):
    assert [len(evaluated("Late", frame).data.vertices) for frame in FRAMES] == [0, 10, 10]


@pytest.mark.parametrize("frame", FRAMES)
def test_volumes_follow_the_frames_with_a_velocity_for_blur(imported, frame):
    volume = evaluated("Plume", frame).data
    assert volume.grids.load()
    assert Path(volume.grids.frame_filepath).name == f"Smoke_Plume_{frame:04d}.vdb"
    assert {grid.name: grid.data_type for grid in volume.grids} == {
        "density": "FLOAT",
        "velocity": "VECTOR_FLOAT",
    }
    assert volume.velocity_grid == "velocity"
