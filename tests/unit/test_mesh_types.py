"""Mesh types and Voxels: topology, channels, transforms, merging, and the checks of input."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.mesh import (
    STREAM_TYPES,
    Mesh,
    duplicate_points,
    merge,
    merge_streams,
    stream_from_document,
    stream_type,
)
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import FormatError, InputError

CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float64)
CUBE_QUADS = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]


def cube() -> Surface:
    return Surface.from_faces(CUBE, CUBE_QUADS)


def two_tetrahedra() -> Body:
    positions = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], np.float64)
    return Body(positions, [[0, 1, 2, 3], [1, 2, 3, 4]])


def strands() -> Curves:
    x = np.zeros((2, 3, 3), np.float32)
    x[:, :, 1] = np.arange(3)
    x[1, :, 0] = 1.0
    return Curves.from_strands(x)


def every_mesh() -> list[Mesh]:
    return [
        Points(CUBE),
        strands(),
        Wireframe(CUBE, [[0, 1], [1, 3]]),
        cube(),
        two_tetrahedra(),
    ]


def severities(findings: list[tuple[str, str]], words: str) -> list[str]:
    return [severity for severity, message in findings if words in message]


# -- topology ---------------------------------------------------------------------------------


def test_positions_are_kept_without_a_copy():
    positions = np.zeros((4, 3), np.float32)
    assert np.shares_memory(Points(positions).positions, positions)


def test_curve_edges_include_the_closing_ones():
    curves = Curves(CUBE[:7], [0, 3, 7], [False, True])
    edges = {tuple(edge) for edge in curves.edges().tolist()}
    assert edges == {(0, 1), (1, 2), (3, 4), (4, 5), (5, 6), (6, 3)}
    assert curves.curve_of_point().tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert (curves.vertex_count, curves.primitive_count) == (7, 2)


def test_surface_counts_and_euler_characteristic():
    surface = cube()
    assert surface.point_count - len(surface.edges()) + surface.primitive_count == 2
    assert surface.vertex_count == 24
    assert surface.check("cube") == []


def test_area_vectors_of_a_closed_surface_sum_to_zero_and_give_its_area():
    areas = cube().area_vectors()
    np.testing.assert_allclose(areas.sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(areas, axis=1), 1.0, rtol=1e-15)


def test_volume_by_the_divergence_theorem_says_that_the_cube_faces_outward():
    x = CUBE[cube().triangles()]
    volume = np.einsum("ij,ij->i", np.cross(x[:, 0], x[:, 1]), x[:, 2]).sum() / 6.0
    assert volume == pytest.approx(1.0, rel=1e-14)


def test_triangle_fan_of_mixed_polygons():
    surface = Surface.from_polygons(CUBE, [[0, 1, 2], [0, 1, 3, 2, 4], [4, 5, 6, 7]])
    assert surface.triangles().tolist() == [
        [0, 1, 2],
        [0, 1, 3],
        [0, 3, 2],
        [0, 2, 4],
        [4, 5, 6],
        [4, 6, 7],
    ]
    assert surface.triangle_faces().tolist() == [0, 1, 1, 1, 2, 2]


def test_body_boundary_faces_are_closed_and_face_outward():
    body = two_tetrahedra()
    assert (body.volumes() > 0).all()
    surface = body.boundary_surface()
    assert surface.primitive_count == 6
    assert severities(surface.check("boundary"), "boundary edges") == []
    x = body.positions[surface.triangles()]
    enclosed = np.einsum("ij,ij->i", np.cross(x[:, 0], x[:, 1]), x[:, 2]).sum() / 6.0
    assert enclosed == pytest.approx(body.volumes().sum(), rel=1e-14)


@pytest.mark.parametrize("mesh", every_mesh(), ids=lambda mesh: mesh.type_name)
def test_empty_meshes_work_and_are_reported(mesh):
    empty = type(mesh)(
        np.empty((0, 3)),
        **{name: np.empty(0, np.int32) for name in mesh.topology_names if name != "closed"},
    )
    empty.validate("nothing")
    assert empty.edges().shape == (0, 2)
    assert empty.bounds()[0, 0] == np.inf
    assert severities(empty.check("nothing"), "nothing is empty") == ["warning"]
    assert merge([empty, mesh]).point_count == mesh.point_count


# -- channels ---------------------------------------------------------------------------------


def test_channels_of_every_location_dtype_and_shape():
    surface = cube()
    surface.set_channel("point", "velocity", np.ones((8, 3), np.float32))
    surface.set_channel("vertex", "uv", np.zeros((24, 2)))
    surface.set_channel("primitive", "material", np.arange(6, dtype=np.int32))
    surface.set_channel("primitive", "frame", np.zeros((6, 3, 3)))
    surface.set_channel("point", "pinned", np.zeros(8, bool))
    surface.set_channel("detail", "mass", 3.0)
    surface.set_channel("detail", "name", "box")
    assert surface.channels["point"]["velocity"].dtype == np.float32
    assert surface.channels["point"].transform_of("velocity") == "vector"
    assert surface.channels["detail"]["mass"].tolist() == [3.0]
    assert surface.channels["detail"]["name"].tolist() == ["box"]
    surface.validate("box")
    assert surface.channel_names()["primitive"] == ["frame", "material"]


@pytest.mark.parametrize(
    ("location", "name", "values", "words"),
    [
        ("point", "velocity", np.zeros((7, 3)), "expected 8 elements"),
        ("points", "velocity", np.zeros((8, 3)), 'did you mean "point"'),
        ("point", "a", np.zeros(8, np.complex128), "complex128"),
        ("point", "a", np.array(["x"] * 8), "allowed are"),
        ("point", "a", np.array([object()] * 8), "object"),
        ("point", "a", np.zeros((8, 2, 2)), "[n, 3, 3]"),
        ("point", "", np.zeros(8), "a name is"),
    ],
)
def test_channels_that_cannot_be_stored_are_named(location, name, values, words):
    with pytest.raises(InputError, match=words.replace("[", r"\[")):
        cube().set_channel(location, name, values)


def test_a_vector_channel_must_have_three_components():
    with pytest.raises(InputError, match="transforms as a vector"):
        cube().set_channel("point", "flow", np.zeros((8, 2)), transform="vector")


def test_unknown_channel_suggests_the_near_name():
    surface = cube()
    surface.set_channel("point", "velocity", np.zeros((8, 3)))
    with pytest.raises(KeyError, match="did you mean"):
        surface.channels["point"]["velocty"]


# -- transforms -------------------------------------------------------------------------------


def test_transform_moves_points_vectors_and_normals_by_their_kind():
    surface = Surface.from_faces([[0.0, 0, 0], [1, 0, 0], [0, 1, 1]], [[0, 1, 2]])
    normal = np.tile(np.cross([1.0, 0, 0], [0, 1, 1]), (3, 1))
    surface.set_channel("point", "velocity", np.tile([1.0, 0, 0], (3, 1)))
    surface.set_channel("point", "normal", normal)
    surface.set_channel("point", "anchor", surface.positions.copy(), transform="point")
    surface.set_channel("point", "plain", np.ones((3, 3)))
    matrix = np.diag([2.0, 1.0, 3.0, 1.0])
    matrix[:3, 3] = [10.0, 20.0, 30.0]
    moved = surface.transformed(matrix)
    points = moved.channels["point"]
    np.testing.assert_allclose(moved.positions[1], [12.0, 20.0, 30.0])
    np.testing.assert_allclose(points["velocity"][0], [2.0, 0.0, 0.0])
    np.testing.assert_allclose(points["anchor"], moved.positions)
    np.testing.assert_array_equal(points["plain"], 1.0)
    edges = moved.positions[1:] - moved.positions[0]
    np.testing.assert_allclose(edges @ points["normal"][0], 0.0, atol=1e-14)
    np.testing.assert_allclose(
        np.linalg.norm(points["normal"], axis=1), np.linalg.norm(normal, axis=1)
    )
    assert points.transform_of("velocity") == "vector"


def test_a_mirrored_body_and_surface_are_not_turned_inside_out():
    mirror = np.diag([-1.0, 1.0, 1.0, 1.0])
    assert (two_tetrahedra().transformed(mirror).volumes() > 0).all()
    surface = cube()
    surface.set_channel("vertex", "corner", surface.face_vertices.copy())
    mirrored = surface.transformed(mirror)
    x = mirrored.positions[mirrored.triangles()]
    volume = np.einsum("ij,ij->i", np.cross(x[:, 0], x[:, 1]), x[:, 2]).sum() / 6.0
    assert volume == pytest.approx(1.0)
    np.testing.assert_array_equal(mirrored.channels["vertex"]["corner"], mirrored.face_vertices)


@pytest.mark.parametrize("matrix", [np.zeros((4, 4)), np.eye(3), np.full((4, 4), np.nan)])
def test_matrices_that_are_no_transform_are_refused(matrix):
    with pytest.raises(InputError, match="matrix"):
        cube().transformed(matrix)


# -- merge ------------------------------------------------------------------------------------


def test_merge_carries_all_channels_and_fills_with_zeros():
    first, second = cube(), cube()
    first.set_channel("point", "mass", np.full(8, 2.0, np.float32))
    second.set_channel("primitive", "material", np.full(6, 4, np.int32))
    first.set_channel("detail", "name", "left")
    second.set_channel("detail", "name", "right")
    merged = merge([first, second])
    merged.validate("merged")
    assert merged.channels["point"]["mass"].tolist() == [2.0] * 8 + [0.0] * 8
    assert merged.channels["primitive"]["material"].tolist() == [0] * 6 + [4] * 6
    assert merged.channels["detail"]["name"].tolist() == ["left"]
    np.testing.assert_array_equal(merged.face_vertices[24:], second.face_vertices + 8)


@pytest.mark.parametrize("mesh", every_mesh(), ids=lambda mesh: mesh.type_name)
def test_merge_of_every_type_doubles_its_counts_and_edges(mesh):
    merged = merge([mesh, mesh])
    merged.validate("merged")
    assert merged.counts() == {name: 2 * n for name, n in mesh.counts().items()}
    assert len(merged.edges()) == 2 * len(mesh.edges())


def test_merge_refuses_what_does_not_fit():
    with pytest.raises(InputError, match="cannot merge body into surface"):
        merge([cube(), two_tetrahedra()])
    first, second = cube(), cube()
    first.set_channel("point", "a", np.zeros(8))
    second.set_channel("point", "a", np.zeros((8, 2)))
    with pytest.raises(InputError, match='cannot merge point channel "a"'):
        merge([first, second])
    with pytest.raises(InputError, match="at least one"):
        merge([])


# -- validate and check -----------------------------------------------------------------------


def test_non_finite_positions_are_named_with_index_and_value():
    positions = CUBE.copy()
    positions[5, 1] = np.nan
    positions[6, 0] = np.inf
    with pytest.raises(InputError, match=r"smoke\.positions\[5\] = \[1\.0, nan, 1\.0\] m \(2 of 8"):
        Points(positions).validate("smoke")
    assert [s for s, _ in Points(positions).check("smoke")] == ["error"]


@pytest.mark.parametrize(
    ("mesh", "words"),
    [
        (Surface.from_faces(CUBE, [[0, 1, 8]]), r"face_vertices\[2\] = 8 is no point"),
        (Surface.from_faces(CUBE, [[0, -1, 7]]), r"face_vertices\[1\] = -1 is no point"),
        (Surface(CUBE, [0, 2], [0, 1]), "face 0 has 2 corners"),
        (Surface(CUBE, [0, 4, 3, 6], [0, 1, 2, 3, 4, 5]), "never step back"),
        (Surface(CUBE, [0, 3], [0, 1, 2, 3]), r"expected \[0, 4\]"),
        (Curves(CUBE, [0, 7, 8]), "curve 1 has 1 point "),
        (Curves(CUBE, [0, 9]), r"expected \[0, 8\]"),
        (Wireframe(CUBE, [[0, 99]]), r"edge_points\[0, 1\] = 99"),
        (Body(CUBE, [[0, 1, 2, 9]]), r"tetrahedra\[0, 3\] = 9"),
    ],
)
def test_bad_topology_is_named(mesh, words):
    with pytest.raises(InputError, match=words):
        mesh.validate("input")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Points(np.zeros((2, 2))), r"shape \[2, 2\]"),
        (lambda: Points(np.zeros((2, 3), complex)), "complex"),
        (lambda: Wireframe(CUBE, [[0.5, 1.0]]), "whole numbers"),
        (lambda: Wireframe(CUBE, [[0, 1 << 40]]), "int32"),
        (lambda: Wireframe(CUBE, [[0, 1, 2]]), r"expected \[n, 2\]"),
        (lambda: Curves(CUBE, [0, 8], [True, False]), r"bool\[1\]"),
    ],
)
def test_arrays_of_the_wrong_kind_are_refused_at_once(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_channel_of_wrong_length_is_found_later_too():
    surface = cube()
    surface.channels["point"]["mass"] = np.zeros(5)
    with pytest.raises(InputError, match='point channel "mass" has 5 elements; expected 8'):
        surface.validate("box")


def test_check_finds_open_and_non_manifold_surfaces():
    opened = Surface.from_faces(CUBE, CUBE_QUADS[:-1])
    assert "4 boundary edges" in opened.check("box")[0][1]
    fins = Surface.from_faces(
        [[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1]],
        [[0, 1, 2], [1, 0, 3], [0, 1, 4]],
    )
    assert severities(fins.check("fins"), "1 edge with more than two faces") == ["warning"]


def test_check_finds_degenerate_faces_and_zero_edges():
    positions = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 0, 0]])
    surface = Surface.from_faces(positions, [[0, 1, 2], [0, 2, 3]])
    findings = surface.check("strip")
    assert severities(findings, "2 faces without area") == ["warning"]
    assert severities(findings, "1 edge of zero length") == ["error"]
    assert severities(findings, "at the place of another one") == ["warning"]


def test_check_finds_inverted_and_flat_tetrahedra():
    body = two_tetrahedra()
    body.tetrahedra = body.tetrahedra[:, [1, 0, 2, 3]]
    assert severities(body.check("jelly"), "2 inverted tetrahedra") == ["error"]
    flat = Body([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], [[0, 1, 2, 3]])
    assert severities(flat.check("jelly"), "1 flat tetrahedron") == ["error"]


@pytest.mark.parametrize("scale", [1.0e5, 1.0e-6])
def test_check_finds_odd_scales(scale):
    assert severities(Points(CUBE * scale).check("input"), "are its units metres") == ["warning"]


def test_duplicate_points_agree_with_a_lexicographic_search(rng_seed=7):
    rng = np.random.default_rng(rng_seed)
    positions = rng.integers(-3, 4, (500, 3)).astype(np.float64)
    positions[positions == 0.0] *= -1.0  # -0.0 and 0.0 are one place
    unique = np.unique(positions + 0.0, axis=0).shape[0]
    found = duplicate_points(positions)
    assert found.size == 500 - unique
    assert np.unique(found).size == found.size


# -- documents --------------------------------------------------------------------------------


@pytest.mark.parametrize("mesh", every_mesh(), ids=lambda mesh: mesh.type_name)
def test_documents_come_back_as_the_same_mesh(mesh):
    mesh.set_channel("point", "velocity", np.ones((mesh.point_count, 3)), transform="vector")
    mesh.set_channel("detail", "name", "it")
    again = stream_from_document(mesh.to_document())
    assert type(again) is type(mesh)
    assert np.shares_memory(again.positions, mesh.positions)
    assert again.counts() == mesh.counts()
    assert again.channels["point"].transform_of("velocity") == "vector"
    assert again.channels["detail"]["name"].tolist() == ["it"]
    np.testing.assert_array_equal(again.edges(), mesh.edges())


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("channels"),
        lambda d: d.update(type="surfaces"),
        lambda d: d.update(type=["surface"]),
        lambda d: d.update(positions=[[0.0, 0.0, 0.0]]),
        lambda d: d.update(positions=np.zeros((8, 2))),
        lambda d: d["topology"].update(face_vertices=np.full(24, 99, np.int32)),
        lambda d: d["topology"].update(extra=np.zeros(3)),
        lambda d: d.update(channels={"point": {"a": {"values": 3, "transform": "none"}}}),
        lambda d: d.update(channels={"point": {"a": {"values": np.zeros(3), "transform": "none"}}}),
        lambda d: d.update(channels={"middle": {}, "point": []}),
        lambda d: d.update(channels={"detail": {"a": {"values": ["x", "y"], "transform": "none"}}}),
    ],
)
def test_damaged_documents_raise_format_errors(damage):
    document = cube().to_document()
    damage(document)
    with pytest.raises(FormatError):
        stream_from_document(document)


def test_the_registry_names_every_type_as_the_type_names_itself():
    assert [stream_type(name).type_name for name in STREAM_TYPES] == list(STREAM_TYPES)


# -- voxels -----------------------------------------------------------------------------------


def ball(n: int = 20) -> np.ndarray:
    x = np.stack(np.meshgrid(*[np.arange(n) - (n - 1) / 2] * 3, indexing="ij"))
    return np.maximum(0.0, n / 4 - np.sqrt((x**2).sum(axis=0))).astype(np.float32)


def test_dense_to_blocks_and_back():
    dense = ball(20)
    voxels = Voxels.from_dense(dense, (1.0, 2.0, 3.0), 0.1)
    assert voxels.block_count == 8  # the ball has radius 5: voxels 5 to 14 of 20
    again = voxels.to_dense("density")[0]
    np.testing.assert_array_equal(again, dense[:16, :16, :16])
    assert again.sum(dtype=np.float64) == pytest.approx(dense.sum(dtype=np.float64), rel=1e-12)
    np.testing.assert_allclose(voxels.bounds(), [[1.0, 2.0, 3.0], [2.6, 3.6, 4.6]])


def test_blocks_of_background_are_left_out():
    dense = np.zeros((64, 8, 8), np.float32)
    dense[40, 3, 2] = 5.0
    voxels = Voxels.from_dense(dense, (0.0, 0.0, 0.0), 0.5)
    assert voxels.coords.tolist() == [[5, 0, 0]]
    assert voxels.first_voxel().tolist() == [40, 0, 0]
    assert voxels.channel("density").values[0, 0, 0, 3, 2] == 5.0


def test_several_channels_share_their_blocks_and_keep_component_order():
    velocity = np.arange(3 * 8 * 8 * 16, dtype=np.float32).reshape(3, 8, 8, 16)
    voxels = Voxels.from_dense({"velocity": velocity, "heat": velocity[0]}, np.zeros(3), 1.0)
    np.testing.assert_array_equal(voxels.to_dense("velocity"), velocity)
    assert voxels.channel("velocity").values.shape == (2, 3, 8, 8, 8)


def test_merged_voxels_hold_the_blocks_of_both_and_refuse_a_block_twice():
    left = Voxels([[0, 0, 0]], 0.1)
    left.set_channel("a", np.ones((1, 8, 8, 8), np.float32), background=-1.0)
    right = Voxels([[1, 0, 0]], 0.1)
    merged = merge_streams([left, right])
    assert merged.channel("a").values[1].max() == -1.0
    with pytest.raises(InputError, match="names 1 blocks twice"):
        merge_streams([left, left])


def test_voxels_name_the_voxel_that_is_not_finite():
    voxels = Voxels([[0, 0, 0], [-1, 2, 0]], 0.1)
    values = np.zeros((2, 1, 8, 8, 8))
    values[1, 0, 3, 4, 5] = np.nan
    voxels.set_channel("heat", values)
    with pytest.raises(InputError, match=r'smoke channel "heat" is nan at voxel \[-5, 20, 5\]'):
        voxels.validate("smoke")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Voxels([[0, 0, 0]], -0.1), "voxel_size = -0.1 m"),
        (lambda: Voxels([[0, 0, 0]], float("nan")), "voxel_size"),
        (lambda: Voxels([[0, 0]], 0.1), "coords"),
        (lambda: Voxels([[0, 0, 1 << 30]], 0.1), "move the origin"),
        (lambda: Voxels([[0, 0, 0]], 0.1, origin=[0, np.inf, 0]), "origin"),
        (lambda: Voxels([[0, 0, 0]], 0.1, block_resolution=0), "block_resolution"),
    ],
)
def test_voxels_that_cannot_be_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_voxel_channels_that_do_not_fit_are_refused():
    voxels = Voxels([[0, 0, 0]], 0.1)
    with pytest.raises(InputError, match=r"expected \[1, c, 8, 8, 8\]"):
        voxels.set_channel("a", np.zeros((2, 8, 8, 8)))
    with pytest.raises(InputError, match="3, one for each axis"):
        voxels.set_channel("a", np.zeros((1, 8, 8, 8)), location="face")
    with pytest.raises(InputError, match='did you mean "face"'):
        voxels.set_channel("a", np.zeros((1, 8, 8, 8)), location="faces")


def test_far_apart_blocks_do_not_become_a_huge_dense_array():
    voxels = Voxels([[0, 0, 0], [1000, 1000, 1000]], 0.1)
    voxels.set_channel("a", np.zeros((2, 8, 8, 8)))
    with pytest.raises(InputError, match="too large for a dense array"):
        voxels.to_dense("a")


def test_voxels_come_back_from_their_document():
    voxels = Voxels.from_dense(ball(), (0.0, 1.0, 0.0), 0.25, background=-2.0)
    again = stream_from_document(voxels.to_document())
    np.testing.assert_array_equal(again.to_dense("density"), voxels.to_dense("density"))
    assert again.channel("density").background == -2.0
    document = voxels.to_document()
    document["coords"] = document["coords"][:1]
    with pytest.raises(FormatError):
        stream_from_document(document)
