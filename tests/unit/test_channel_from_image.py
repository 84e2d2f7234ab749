"""Channels painted by images: what is read, where it lands, and that it changes contacts."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import loki_core as lk
from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError, InputError, SetupError
from loki_graph import Evaluator, Graph
from loki_graph.nodes.channel_from_image import ChannelFromImage, sampled
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_vfx.serialization.images import read_image
from tests.particle_fluids import G, box_mesh, radius_of

Pillow = pytest.importorskip("PIL.Image", reason="needs Pillow")


def run(node, mesh, folder: Path, frame: int = 1):
    graph = Graph(
        "g", nodes={"mesh": HostInput(), "paint": node}, connections=[("mesh.out", "paint.in")]
    )
    evaluator = Evaluator(graph, host_inputs={"mesh": mesh}, base_folder=folder)
    return evaluator.evaluate("paint.out", frame)


def sheet(count: int = 5):
    """Quads over the unit square in x and z, with uv at points: u along x, v along z."""
    axis = np.linspace(0.0, 1.0, count)
    x, z = (one.reshape(-1) for one in np.meshgrid(axis, axis, indexing="ij"))
    i = np.arange(count * count).reshape(count, count)
    faces = np.stack([i[:-1, :-1], i[:-1, 1:], i[1:, 1:], i[1:, :-1]], axis=-1).reshape(-1, 4)
    mesh = lk.Surface.from_faces(np.column_stack([x, 0.0 * x, z]), faces)
    mesh.set_channel("point", "uv", np.column_stack([x, z]))
    return mesh


def grey_png(path: Path, values) -> Path:
    Pillow.fromarray(np.asarray(values, np.uint8)).save(path)
    return path


# -- reading -----------------------------------------------------------------------------------


def test_numbers_are_those_of_the_file(tmp_path):
    values = np.array([[0, 51], [102, 255]], np.uint8)
    found = read_image(grey_png(tmp_path / "grey.png", values))
    np.testing.assert_allclose(found[:, :, 0], values / 255.0, rtol=1e-6)
    Pillow.fromarray(np.array([[0, 65535], [13107, 1]], np.uint16)).save(tmp_path / "deep.png")
    deep = read_image(tmp_path / "deep.png")
    np.testing.assert_allclose(deep[:, :, 0], [[0.0, 1.0], [0.2, 1 / 65535]], rtol=1e-6)
    colours = np.arange(16, dtype=np.uint8).reshape(2, 2, 4)
    Pillow.fromarray(colours, "RGBA").save(tmp_path / "colours.png")
    np.testing.assert_allclose(read_image(tmp_path / "colours.png"), colours / 255.0, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_exr_has_any_numbers(tmp_path, kind):
    exr = pytest.importorskip("OpenEXR", reason="needs OpenEXR")
    values = np.array([[[-1.0, 0.0, 2.5], [100.0, 0.25, 0.5]]], kind)
    header = {"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage}
    exr.File(header, {"RGB": values}).write(str(tmp_path / "a.exr"))
    np.testing.assert_array_equal(read_image(tmp_path / "a.exr"), values.astype(np.float32))
    exr.File(header, {"Y": values[:, :, 0].copy()}).write(str(tmp_path / "y.exr"))
    np.testing.assert_array_equal(read_image(tmp_path / "y.exr")[:, :, 0], values[:, :, 0])


def test_damaged_and_large_images_are_refused_in_words(tmp_path):
    path = grey_png(tmp_path / "a.png", np.random.default_rng(1).integers(0, 256, (40, 40)))
    whole = path.read_bytes()
    for size in (0, 5, 60, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"a\.png cannot be read as an image"):
            read_image(path)

    def part(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = part(b"IHDR", struct.pack(">IIBBBBB", 1 << 20, 1 << 20, 8, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", b"") + part(b"IEND", b""))
    with pytest.raises(FormatError, match=r"a\.png"):
        read_image(path)
    (tmp_path / "a.exr").write_bytes(b"no image")
    if "OpenEXR" in sys.modules:
        with pytest.raises(FormatError, match=r"a\.exr cannot be read as EXR"):
            read_image(tmp_path / "a.exr")
    with pytest.raises(FormatError, match=r'unknown suffix "\.pgn"; did you mean "\.png"'):
        read_image(tmp_path / "a.pgn")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = grey_png(tmp_path / "a.png", [[1]])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r'a\.png needs Pillow: pip install pillow .*"textures"'):
        read_image(path)


# -- sampling ----------------------------------------------------------------------------------


def test_an_image_is_linear_between_the_centres_of_its_pixels():
    width, height = 8, 4
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    image = (2.0 * x - 3.0 * (height - y)).astype(np.float32)[:, :, None]  # v goes up
    place = np.random.default_rng(2).uniform(0.13, 0.87, (100, 2))
    found = sampled(image, place, wrap="clamp", is_linear=True)[:, 0]
    expected = 2.0 * width * place[:, 0] - 3.0 * height * place[:, 1]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_beyond_the_image_it_repeats_or_its_rim_goes_on():
    image = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)[:, :, None]  # 3 is lower left
    corner = np.array([[0.1, 0.1], [1.1, -0.9], [-0.4, 0.1], [0.9, 0.9]])
    near = sampled(image, corner, wrap="repeat", is_linear=False)[:, 0]
    np.testing.assert_array_equal(near, [3.0, 3.0, 4.0, 2.0])
    rim = sampled(image, corner, wrap="clamp", is_linear=False)[:, 0]
    np.testing.assert_array_equal(rim, [3.0, 4.0, 3.0, 2.0])


def test_a_node_paints_where_the_coordinates_are(tmp_path):
    grey_png(tmp_path / "ramp.png", np.tile(np.arange(0, 256, 5), (4, 1)))
    node = ChannelFromImage(path="ramp.png", channel="rough", low=2.0, high=4.0, wrap="clamp")
    mesh = sheet()
    painted = run(node, mesh, tmp_path)
    rough = painted.channels["point"]["rough"]
    inner = (mesh.positions[:, 0] > 0.1) & (mesh.positions[:, 0] < 0.9)
    expected = 2.0 + 2.0 * (52.0 * mesh.positions[:, 0] - 0.5) * 5.0 / 255.0
    np.testing.assert_allclose(rough[inner], expected[inner], rtol=1e-5)
    assert "rough" not in mesh.channels["point"]  # what came in is as it was

    by_map = ChannelFromImage(
        path="ramp.png", channel="rough", low=2.0, high=4.0, wrap="clamp", uv="map"
    )
    corners = sheet()
    corners.set_channel("vertex", "map", corners.channels["point"]["uv"][corners.face_vertices])
    found = run(by_map, corners, tmp_path).channels["vertex"]["rough"]
    np.testing.assert_allclose(found, rough[corners.face_vertices], rtol=1e-6)

    colours = np.zeros((2, 2, 4), np.uint8)
    colours[:, :, 0], colours[:, :, 3] = 255, 51
    Pillow.fromarray(colours, "RGBA").save(tmp_path / "red.png")

    def of(component):
        one = ChannelFromImage(path="red.png", channel="c", component=component)
        return run(one, sheet(), tmp_path).channels["point"]["c"][0]

    assert (of("red"), of("green")) == (1.0, 0.0)
    assert of("alpha") == pytest.approx(0.2) and of("grey") == pytest.approx(0.2126)
    np.testing.assert_array_equal(of("colour"), [1.0, 0.0, 0.0])


def test_an_image_for_each_frame(tmp_path):
    for number in (1, 2):
        grey_png(tmp_path / f"wet.{number:04d}.png", [[100 * number]])
    node = ChannelFromImage(path="wet.####.png", channel="wet")
    for number in (1, 2):
        wet = run(node, sheet(), tmp_path, number).channels["point"]["wet"]
        np.testing.assert_allclose(wet, 100 * number / 255.0, rtol=1e-6)


def test_what_is_missing_is_named(tmp_path):
    grey_png(tmp_path / "a.png", [[1]])
    with pytest.raises(InputError, match='no vertex or point channel "UVMap"'):
        run(ChannelFromImage(path="a.png", uv="UVMap"), sheet(), tmp_path)
    with pytest.raises(InputError, match=r'there is no file ".*b\.png"'):
        run(ChannelFromImage(path="b.png"), sheet(), tmp_path)
    with pytest.raises(InputError, match="the image has no alpha"):
        run(ChannelFromImage(path="a.png", component="alpha"), sheet(), tmp_path)
    with pytest.raises(InputError, match="paints meshes and points, not voxels"):
        run(ChannelFromImage(path="a.png"), Voxels([[0, 0, 0]], 0.1), tmp_path)
    with pytest.raises(SetupError, match=r'unknown suffix "\.gif"'):
        Graph("g", nodes={"p": ChannelFromImage(path="a.gif")})


# -- in a simulation ----------------------------------------------------------------------------


def test_friction_of_a_collider_is_that_of_an_image(tmp_path):
    """Two drops slide on a table that is smooth on one side and rough on the other.

    Coulomb: dv = mu g t, mu = 0.4 where the image is white and 0 where it is black.
    """
    grey_png(tmp_path / "rough.png", np.repeat([[255] * 2, [0] * 2], 8, axis=0))  # white above
    table = box_mesh((-5.0, -1.0, -5.0), (5.0, 0.0, 5.0))
    table.set_channel("point", "uv", table.positions[:, [0, 2]] / 10.0 + 0.5)
    drops = lk.Points([[0.0, 0.05, -4.9], [0.0, 0.05, 4.9]])
    drops.set_channel("point", "velocity", [[1.0, 0.0, 0.0]] * 2)
    setup = lk.SolverSetup(
        "slide",
        lk.ParticleObject(name="P", input="drops", radius=radius_of(0.1), density=1000.0),
        lk.PositionBasedFluid(),
        lk.Collider(input="table"),
        lk.GravityForce(),
        frames_per_second=100.0,
    )
    graph = Graph(
        "slide",
        nodes={
            "mesh": HostInput(),
            "paint": ChannelFromImage(path="rough.png", high=0.4, wrap="clamp"),
            "drops": HostInput(),
            "solver": SolverSetupNode(setup=setup),
            "result": Output(),
        },
        connections=[
            ("mesh.out", "paint.in"),
            ("paint.out", "solver.table"),
            ("drops.out", "solver.drops"),
            ("solver.P", "result.in"),
        ],
    )
    given = {"mesh": table, "drops": drops}
    evaluator = Evaluator(graph, host_inputs=given, base_folder=tmp_path)
    for frame in range(1, 22):
        found = evaluator.evaluate("result", frame)
    smooth, rubbed = found.channels["point"]["velocity"][:, 0]
    assert smooth == pytest.approx(1.0, abs=0.04)
    assert rubbed == pytest.approx(1.0 - 0.4 * G * 0.2, abs=0.06)
