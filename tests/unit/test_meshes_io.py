"""Mesh files through trimesh: vertices are kept, channels travel, broken files are named."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import FormatError, InputError
from loki_vfx.serialization.meshes import read_mesh, read_points, write_mesh

pytest.importorskip("trimesh")


def sheet() -> Surface:
    x, y = np.meshgrid(np.arange(4) * 0.25, np.arange(3) * 0.5, indexing="ij")
    positions = np.stack([x, y, 0 * x], axis=-1).reshape(-1, 3)
    quads = [[i, i + 3, i + 4, i + 1] for i in (0, 1, 3, 4, 6, 7)]
    return Surface.from_faces(positions, quads)


@pytest.mark.parametrize("suffix", [".ply", ".obj"])
def test_vertices_and_triangles_come_back_in_order(tmp_path, suffix):
    surface, path = sheet(), tmp_path / f"sheet{suffix}"
    assert write_mesh(path, surface) == []
    again = read_mesh(path)
    np.testing.assert_allclose(again.positions, surface.positions, atol=1e-7)
    np.testing.assert_array_equal(again.triangles(), surface.triangles())


def test_duplicate_points_are_not_fused(tmp_path):
    surface = Surface.from_faces([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]] * 2, [[0, 1, 2], [3, 4, 5]])
    write_mesh(tmp_path / "twice.ply", surface)
    assert read_mesh(tmp_path / "twice.ply").point_count == 6


def test_stl_keeps_the_shape(tmp_path):
    write_mesh(tmp_path / "sheet.stl", sheet())
    again = read_mesh(tmp_path / "sheet.stl")
    assert again.primitive_count == len(sheet().triangles())
    area = np.linalg.norm(again.area_vectors(), axis=1).sum()
    assert area == pytest.approx(0.75 * 1.0, rel=1e-6)


def test_point_channels_travel_through_ply(tmp_path):
    surface, rng = sheet(), np.random.default_rng(2)
    n = surface.point_count
    surface.set_channel("point", "mass", rng.random(n))
    surface.set_channel("point", "velocity", rng.random((n, 3), dtype=np.float32))
    surface.set_channel("point", "pinned", rng.random(n) > 0.5)
    surface.set_channel("point", "frame", np.zeros((n, 3, 3)))
    surface.set_channel("primitive", "material", np.zeros(6, np.int32))
    left_out = write_mesh(tmp_path / "sheet.ply", surface)
    assert left_out == ["point:frame", "primitive:material"]
    found = read_mesh(tmp_path / "sheet.ply").channels["point"]
    np.testing.assert_array_equal(found["mass"], surface.channels["point"]["mass"])
    np.testing.assert_array_equal(found["velocity"], surface.channels["point"]["velocity"])
    assert found.transform_of("velocity") == "vector"
    np.testing.assert_array_equal(found["pinned"], surface.channels["point"]["pinned"])


def test_points_with_channels_and_without_faces(tmp_path):
    points = Points(np.random.default_rng(3).random((20, 3)))
    points.set_channel("point", "id", np.arange(20))
    assert write_mesh(tmp_path / "spray.ply", points) == []
    again = read_points(tmp_path / "spray.ply")
    np.testing.assert_allclose(again.positions, points.positions, atol=1e-7)
    assert again.channels["point"]["id"].tolist() == list(range(20))


def test_ids_beyond_32_bits_are_left_out_and_said(tmp_path):
    points = Points(np.eye(3))
    points.set_channel("point", "id", np.array([1, 2, 1 << 40]))
    assert write_mesh(tmp_path / "spray.ply", points) == ["point:id"]


def test_a_hand_written_obj_with_comments(tmp_path):
    path = tmp_path / "hand.obj"
    path.write_text("# by hand\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    assert read_mesh(path).triangles().tolist() == [[0, 1, 2]]


# -- texture coordinates of OBJ --------------------------------------------------------------------

QUAD = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n"
SQUARE = "vt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"


def obj_of(tmp_path, text):
    path = tmp_path / "leaf.obj"
    path.write_text(text)
    return path


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "face", ["f 1/1 2/2 3/3 4/4", "f -4/-4 -3/-3/1 3/3/9 -1/4", "f 1/1 2/2 \\"]
)
def test_uv_of_an_obj_are_those_of_corners(tmp_path, face):
    """Counted from the start or backwards, with normals, and over two lines."""
    rest = "\n 3/3 4/4 # the end" if face.endswith("\\") else ""
    surface = read_mesh(obj_of(tmp_path, f"# a leaf\n{QUAD}{SQUARE}{face}{rest}\n"))
    uv = surface.channels["vertex"]["uv"]
    assert surface.triangles().tolist() == [[0, 1, 2], [0, 2, 3]]
    np.testing.assert_array_equal(uv, surface.positions[surface.face_vertices][:, :2])


@pytest.mark.filterwarnings("error")
def test_a_seam_of_an_obj_keeps_both_sides(tmp_path):
    """Two quads share an edge, and have two materials and two places in the image."""
    text = (
        f"mtllib none.mtl\n{QUAD}v 2 0 0\nv 2 1 0\nusemtl a\n{SQUARE}f 1/1 2/2 3/3 4/4\n"
        "usemtl b\nvt 0.5 0.25 0\nvt 0.75\nf 2/5 5/6 6/3 3/1\nf 5 6 1\n"
    )
    surface = read_mesh(obj_of(tmp_path, text))
    assert surface.point_count == 6  # none of them twice
    assert surface.triangles().tolist() == [[0, 1, 2], [0, 2, 3], [1, 4, 5], [1, 5, 2], [4, 5, 0]]
    first, second, other = np.split(surface.channels["vertex"]["uv"], [6, 12])
    assert first.tolist() == [[0, 0], [1, 0], [1, 1], [0, 0], [1, 1], [0, 1]]
    assert second[:4].tolist() == [[0.5, 0.25], [0.75, 0], [1, 1], [0.5, 0.25]]
    assert second[4:].tolist() == [[1, 1], [0, 0]] and not other.any()
    points = read_points(tmp_path / "leaf.obj")
    np.testing.assert_array_equal(points.positions, surface.positions)


def test_an_obj_that_uses_no_uv_has_none(tmp_path):
    surface = read_mesh(obj_of(tmp_path, f"{QUAD}{SQUARE}f 1 2 3 4\n"))
    assert surface.channel_names() == {} and surface.primitive_count == 2


@pytest.mark.parametrize("line", ["vt", "vt a b", "vt 0.5 nan", "vt 0,5 0,5"])
def test_a_broken_vt_is_named_with_its_line(tmp_path, line):
    path = obj_of(tmp_path, f"# a leaf\n{QUAD}vt 0 0\n{line}\nf 1/1 2/2 3/1\n")
    with pytest.raises(InputError, match=f'leaf.obj, line 7: "{line}" is no texture coordinate'):
        read_mesh(path)


@pytest.mark.parametrize(
    ("face", "words"),
    [
        ("1/1 2/2 9/3", 'a face names a vertex that is not there: "9/3"; 4 are above it'),
        ("1/1 2/2 3/5", 'a face names a texture coordinate that is not there: "3/5"; 4 are above'),
        ("0/1 2/2 3/3", 'a face names a vertex that is not there: "0/1"'),
        ("x 2/2 3/3", 'a face names a vertex that is not there: "x"'),
    ],
)
def test_a_broken_face_is_named_with_its_line(tmp_path, face, words):
    path = obj_of(tmp_path, f"{QUAD}{SQUARE}f {face}\n")
    with pytest.raises(FormatError, match=f"leaf.obj, line 9: {words}"):
        read_mesh(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ply", b"ply\nformat binary_little_endian 1.0\nelement vertex 99\n"),
        ("a.ply", b"garbage" * 20),
        ("a.ply", b""),
        ("a.obj", b"nothing here\n"),
        ("a.stl", b"\x00" * 90),
        ("a.stl", b"\xff" * 200),
    ],
)
def test_broken_files_raise_format_errors(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FormatError, match=f"{name}"):
        read_mesh(path)


def test_cut_off_ply_raises_a_format_error(tmp_path):
    path = tmp_path / "sheet.ply"
    write_mesh(path, sheet())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FormatError):
        read_mesh(path)


def test_missing_file_and_unknown_suffix(tmp_path):
    with pytest.raises(FormatError, match="is not there"):
        read_mesh(tmp_path / "none.ply")
    with pytest.raises(InputError, match="unknown mesh format"):
        read_mesh(tmp_path / "a.fbx")
    with pytest.raises(InputError, match=r"written as \.ply"):
        write_mesh(tmp_path / "a.obj", Points(np.eye(3)))


def test_bad_meshes_are_refused_before_anything_is_written(tmp_path):
    surface = sheet()
    surface.positions[3, 1] = np.nan
    with pytest.raises(InputError, match=r"positions\[3\]"):
        write_mesh(tmp_path / "a.ply", surface)
    assert list(tmp_path.iterdir()) == []
