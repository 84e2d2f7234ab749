"""The data nodes, each against what it must give."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import GraphError, InputError, LokiError
from loki_graph import Evaluator, Graph, Node
from loki_graph.nodes.attribute import Attribute
from loki_graph.nodes.field_source import FieldSource
from loki_graph.nodes.file_input import FileInput
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.merge import Merge
from loki_graph.nodes.mesh_from_volume import MeshFromVolume
from loki_graph.nodes.points_from_mesh import PointsFromMesh
from loki_graph.nodes.shape_source import ShapeSource
from loki_graph.nodes.transform import Transform
from loki_graph.nodes.volume_from_mesh import VolumeFromMesh
from loki_graph.nodes.volume_from_points import VolumeFromPoints
from loki_vfx.serialization.meshes import write_mesh
from loki_vfx.serialization.volumes import write_vdb


def run(node: Node, *streams: Any, frame: int = 1, base_folder: Path | None = None) -> Any:
    """Evaluate one node on some streams."""
    names = [f"h{i}" for i in range(len(streams))]
    nodes: dict[str, Node] = {"node": node} | {name: HostInput() for name in names}
    connections = [(f"{name}.out", "node.in") for name in names]
    graph = Graph("g", nodes=nodes, connections=connections)
    inputs = dict(zip(names, streams, strict=True))
    return Evaluator(graph, host_inputs=inputs, base_folder=base_folder).evaluate("node.out", frame)


def volume(surface: Surface) -> float:
    x = surface.positions[surface.triangles()]
    return float(np.einsum("ij,ij->i", np.cross(x[:, 0], x[:, 1]), x[:, 2]).sum() / 6.0)


# -- sources ------------------------------------------------------------------------------------


def test_closed_shapes_face_outward() -> None:
    box = run(ShapeSource(shape="box", size=(1.0, 2.0, 3.0), center=(4.0, 5.0, 6.0)))
    assert volume(box) == pytest.approx(6.0)
    np.testing.assert_allclose(box.bounds(), [[3.5, 4.0, 4.5], [4.5, 6.0, 7.5]])
    sphere = run(ShapeSource(shape="sphere", resolution=(64, 32)))
    assert volume(sphere) == pytest.approx(np.pi / 6.0, rel=0.01)
    for closed in (box, sphere):
        assert not [m for _, m in closed.check("s") if "boundary" in m or "non-manifold" in m]


def test_flat_shapes_face_up() -> None:
    disc = run(ShapeSource(shape="disc", size=(2.0, 0.0, 2.0), resolution=(100, 1)))
    np.testing.assert_allclose(disc.area_vectors().sum(axis=0), [0.0, np.pi, 0.0], atol=0.01)
    grid = run(ShapeSource(shape="grid", size=(2.0, 1.0, 3.0), resolution=(4, 5)))
    np.testing.assert_allclose(grid.area_vectors().sum(axis=0), [0.0, 6.0, 0.0], atol=1e-12)
    assert (grid.point_count, grid.primitive_count) == (30, 20)
    line = run(ShapeSource(shape="line", size=(0.0, 2.0, 0.0), resolution=(8, 1)))
    assert isinstance(line, Curves) and line.point_count == 9
    np.testing.assert_allclose(line.positions[[0, -1], 1], [-1.0, 1.0])


def test_field_source_fills_its_box() -> None:
    constant = run(FieldSource(velocity=(1.0, 2.0, 3.0), voxel_size=0.125))
    assert constant.voxel_count == 16**3
    np.testing.assert_allclose(constant.bounds(), [[-1.0] * 3, [1.0] * 3])
    assert (constant.to_dense("velocity") == np.array([1, 2, 3])[:, None, None, None]).all()
    assert run(FieldSource(voxel_size=0.1)).bounds()[1, 0] >= 1.0  # filled up to a whole block


def test_vortex_turns_about_its_axis() -> None:
    vortex = FieldSource(field="vortex", angular_velocity=2.0, radius=10.0, axis=(0.0, 3.0, 0.0))
    places = np.array([[0.1, 0.7, 0.0], [0.0, 0.0, 0.1]])
    fall = np.exp(-0.01 / 100.0)
    # omega x r with omega along y: x turns to -z, z turns to x
    expected = [[0.0, 0.0, -0.2 * fall], [0.2 * fall, 0.0, 0.0]]
    np.testing.assert_allclose(vortex.velocity_at(places), expected, atol=1e-12)


def test_curl_noise_has_no_divergence() -> None:
    noise = FieldSource(field="curl_noise", amplitude=3.0, wavelength=0.7, offset=(0.3, 0.1, 0.2))
    rng = np.random.default_rng(4)
    places = rng.uniform(-1.0, 1.0, (50, 3))
    step = 1.0e-5
    divergence = np.zeros(50)
    for axis in range(3):
        shift = step * np.eye(3)[axis]
        high, low = noise.velocity_at(places + shift), noise.velocity_at(places - shift)
        divergence += (high - low)[:, axis] / (2.0 * step)
    assert np.abs(divergence).max() < 1e-6 < np.abs(noise.velocity_at(places)).max()


def test_field_source_refuses_what_is_too_large() -> None:
    with pytest.raises(InputError, match=r"g/node: the box takes .* choose a larger voxel_size"):
        run(FieldSource(voxel_size=1.0e-5))
    with pytest.raises(InputError, match="is not above lower"):
        run(FieldSource(lower=(0, 0, 0), upper=(1, 0, 1)))


# -- files --------------------------------------------------------------------------------------


def test_mesh_files_and_their_changes(tmp_path: Path) -> None:
    sphere = run(ShapeSource())
    sphere.set_channel("point", "heat", np.arange(sphere.point_count, dtype=np.float32))
    write_mesh(tmp_path / "ball.ply", sphere)
    graph = Graph("g", nodes={"file": FileInput(path="ball.ply")})
    assert graph.output_type("file", "out") == "surface"
    evaluator = Evaluator(graph, base_folder=tmp_path)
    found = evaluator.evaluate("file.out", 1)
    np.testing.assert_allclose(found.positions, sphere.positions, atol=1e-6)
    np.testing.assert_array_equal(found.channels["point"]["heat"], np.arange(sphere.point_count))
    assert evaluator.evaluate("file.out", 7) is found  # one file for all frames
    write_mesh(tmp_path / "ball.ply", run(ShapeSource(size=(2.0, 2.0, 2.0))))
    os.utime(tmp_path / "ball.ply", ns=(1, 1))  # a clock that is too coarse must not matter here
    assert evaluator.evaluate("file.out", 1).bounds()[1, 1] == pytest.approx(1.0)
    points = run(FileInput(path="ball.ply", points_only=True), base_folder=tmp_path)
    assert isinstance(points, Points)


@pytest.mark.parametrize("pattern", ["ball.####.ply", "ball.%04d.ply"])
def test_file_sequences(tmp_path: Path, pattern: str) -> None:
    for number in (9, 10):
        write_mesh(tmp_path / f"ball.{number:04d}.ply", Points(np.full((1, 3), float(number))))
    node = FileInput(path=pattern, points_only=True, frame_offset=8)
    evaluator = Evaluator(Graph("g", nodes={"f": node}), base_folder=tmp_path)
    assert [evaluator.evaluate("f.out", f).positions[0, 0] for f in (1, 2)] == [9.0, 10.0]
    assert evaluator.varies("f")
    with pytest.raises(InputError, match=r'g/f\.path: there is no file ".*ball\.0011\.ply" \(fr'):
        evaluator.evaluate("f.out", 3)
    assert FileInput(path="a_#_%d.ply").file_at(12) == "a_12_12.ply"
    assert FileInput(path="a.##.ply").file_at(-1) == "a.-1.ply"


def test_volume_files(tmp_path: Path) -> None:
    points = Points(np.random.default_rng(2).normal(size=(50, 3)))
    voxels = run(VolumeFromPoints(voxel_size=0.25), points)
    write_vdb(tmp_path / "wind.vdb", voxels)
    graph = Graph("g", nodes={"f": FileInput(path="wind.vdb")})
    assert graph.output_type("f", "out") == "voxels"
    found = Evaluator(graph, base_folder=tmp_path).evaluate("f.out", 1)
    total = found.channels["density"].values.sum(dtype=np.float64) * 0.25**3
    assert total == pytest.approx(50.0, rel=1e-5)
    one = Evaluator(graph.replace("f", grids=("densty",)), base_folder=tmp_path)
    with pytest.raises(LokiError, match="density"):
        one.evaluate("f.out", 1)


def test_bad_paths(tmp_path: Path) -> None:
    graph = Graph("g", nodes={"f": FileInput()})
    with pytest.raises(GraphError, match=r'g/f\.path = "a\.plyy" has the unknown suffix "\.plyy"'):
        graph.replace("f", path="a.plyy")
    with pytest.raises(GraphError, match=r"g/f\.path is empty; give a path"):
        Evaluator(graph).evaluate("f.out", 1)
    (tmp_path / "broken.ply").write_bytes(b"ply\nformat ascii 1.0\nelement vertex 99\n")
    broken = graph.replace("f", path="broken.ply")
    with pytest.raises(Exception, match=r"g/f: .*broken\.ply"):
        Evaluator(broken, base_folder=tmp_path).evaluate("f.out", 1)


# -- transform and merge ------------------------------------------------------------------------


def test_transform_turns_scales_and_moves() -> None:
    points = Points(np.array([[1.0, 0.0, 0.0]]))
    points.set_channel("point", "velocity", np.array([[1.0, 0.0, 0.0]]))
    node = Transform(translate=(0.0, 0.0, 5.0), scale=(2.0, 1.0, 1.0)).replace(rotate="0 90 0 deg")
    moved = run(node, points)
    np.testing.assert_allclose(moved.positions, [[0.0, 0.0, 3.0]], atol=1e-12)  # x turns to -z
    np.testing.assert_allclose(moved.channels["point"]["velocity"], [[0, 0, -2]], atol=1e-12)
    around = run(Transform(pivot=(1.0, 0.0, 0.0), scale=(3.0, 3.0, 3.0)), points)
    np.testing.assert_allclose(around.positions, points.positions)
    # about x first takes y to z, which about z stays; the other order does not
    up = Points(np.array([[0.0, 1.0, 0.0]]))
    quarter = np.pi / 2.0
    for order, expected in (("xyz", [0.0, 0.0, 1.0]), ("zyx", [-1.0, 0.0, 0.0])):
        turned = run(Transform(rotate=(quarter, 0.0, quarter), order=order), up)
        np.testing.assert_allclose(turned.positions, [expected], atol=1e-12)


def test_transform_by_matrix() -> None:
    matrix = np.eye(4)
    matrix[:3, 3] = (1.0, 2.0, 3.0)
    node = Transform(scale=(2.0, 2.0, 2.0), matrix=tuple(matrix.reshape(-1).tolist()))
    moved = run(node, Points(np.ones((1, 3))))
    np.testing.assert_allclose(moved.positions, [[3.0, 4.0, 5.0]])


def test_transform_of_voxels() -> None:
    voxels = run(FieldSource(velocity=(1.0, 0.0, 0.0), voxel_size=0.125))
    moved = run(Transform(scale=(2.0, 2.0, 2.0), translate=(1.0, 0.0, 0.0)), voxels)
    np.testing.assert_allclose(moved.bounds(), [[-1.0, -2.0, -2.0], [3.0, 2.0, 2.0]])
    assert moved.channels["velocity"].values.max() == 2.0
    with pytest.raises(InputError, match="voxels can be shifted and scaled evenly, not turned"):
        run(Transform(rotate=(0.1, 0.0, 0.0)), voxels)
    with pytest.raises(InputError, match="not turned, mirrored or stretched"):
        run(Transform(scale=(1.0, 2.0, 1.0)), voxels)


def test_merge_keeps_channels_and_order() -> None:
    a, b = Points(np.zeros((2, 3))), Points(np.ones((1, 3)))
    a.set_channel("point", "heat", np.array([1.0, 2.0]))
    merged = run(Merge(), a, b)
    np.testing.assert_array_equal(merged.positions[:, 0], [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(merged.channels["point"]["heat"], [1.0, 2.0, 0.0])
    with pytest.raises(InputError, match="g/node: cannot merge surface with points; convert"):
        run(Merge(), a, run(ShapeSource()))


# -- attributes ---------------------------------------------------------------------------------


def square() -> Surface:
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1]])
    surface = Surface.from_faces(corners, [[0, 2, 1], [0, 3, 2]])
    surface.set_channel("point", "heat", np.array([0.0, 3.0, 6.0, 9.0]))
    return surface


def test_attribute_set_copy_rename_delete() -> None:
    source = square()
    made = run(Attribute(channel="stiffness", value=2.5, location="primitive"), source)
    values = made.channels["primitive"]["stiffness"]
    assert values.tolist() == [2.5, 2.5] and values.dtype == np.float32
    assert "stiffness" not in source.channels["primitive"]  # the input is left as it was
    vector = run(Attribute(channel="velocity", size=3, vector=(1, 2, 3)), source)
    assert vector.channels["point"]["velocity"].shape == (4, 3)
    assert vector.channels["point"].transform_of("velocity") == "vector"
    whole = run(Attribute(channel="n", value=3, dtype="int32", location="detail"), source)
    assert whole.channels["detail"]["n"].tolist() == [3]
    rest = run(Attribute(operation="copy", channel="position", to="rest"), source)
    np.testing.assert_array_equal(rest.channels["point"]["rest"], source.positions)
    assert rest.channels["point"].transform_of("rest") == "point"
    renamed = run(Attribute(operation="rename", channel="heat", to="warmth"), source)
    assert renamed.channel_names() == {"point": ["warmth"]}
    assert run(Attribute(operation="delete", channel="heat"), source).channel_names() == {}
    with pytest.raises(InputError, match='no point channel "heet"; did you mean "heat"'):
        run(Attribute(operation="delete", channel="heet"), source)
    with pytest.raises(InputError, match="give the new name"):
        run(Attribute(operation="rename", channel="heat"), source)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("primitive", [3.0, 5.0]),
        ("vertex", [0.0, 6.0, 3.0, 0.0, 9.0, 6.0]),
        ("detail", [4.5]),
        ("point", [0.0, 3.0, 6.0, 9.0]),
    ],
)
def test_attribute_promotes_from_points(target: str, expected: list[float]) -> None:
    node = Attribute(operation="promote", channel="heat", to_location=target, to="new")
    assert run(node, square()).channels[target]["new"].tolist() == expected


def test_attribute_promotes_to_points_and_on_every_mesh_type() -> None:
    surface = square()
    surface.set_channel("primitive", "part", np.array([1.0, 2.0]))
    surface.set_channel("primitive", "kind", np.array([7, 8], np.int32))
    node = Attribute(operation="promote", channel="part", location="primitive")
    assert run(node, surface).channels["point"]["part"].tolist() == [1.5, 1.0, 1.5, 2.0]
    kind = Attribute(operation="promote", channel="kind", location="primitive")
    assert run(kind, surface).channels["point"]["kind"].tolist() == [7, 7, 7, 8]  # the first
    x = np.arange(12.0).reshape(4, 3)
    for mesh, expected in (
        (Curves(x, [0, 1, 4]), [0.0, 2.0]),
        (Wireframe(x, [[0, 2], [1, 3]]), [1.0, 2.0]),
        (Body(x, [[0, 1, 2, 3]]), [1.5]),
    ):
        mesh.set_channel("point", "n", np.arange(4.0))
        node = Attribute(operation="promote", channel="n", to_location="primitive")
        assert run(node, mesh).channels["primitive"]["n"].tolist() == expected
    points = Points(x)
    points.set_channel("point", "n", np.arange(4.0))
    with pytest.raises(InputError, match="points has no elements at primitive"):
        run(Attribute(operation="promote", channel="n", to_location="primitive"), points)


def test_attributes_of_voxels() -> None:
    voxels = run(FieldSource(voxel_size=0.125))
    made = run(Attribute(channel="density", value=2.0), voxels)
    assert (made.to_dense("density") == 2.0).all() and "density" not in voxels.channels
    renamed = run(Attribute(operation="rename", channel="velocity", to="wind"), voxels)
    assert list(renamed.channels) == ["wind"]
    with pytest.raises(InputError, match='no channel "wind"; known: velocity'):
        run(Attribute(operation="delete", channel="wind"), voxels)


# -- between meshes, points and volumes ---------------------------------------------------------


def test_points_of_a_mesh_keep_channels() -> None:
    points = run(PointsFromMesh(), square())
    assert isinstance(points, Points) and points.point_count == 4
    assert points.channels["point"]["heat"].tolist() == [0.0, 3.0, 6.0, 9.0]


def test_scattering_is_even_and_the_same_every_time() -> None:
    mesh = run(Merge(), square(), run(Transform(translate=(5, 0, 0), scale=(2, 2, 2)), square()))
    node = PointsFromMesh(mode="scatter", count=5000, seed=3)
    points = run(node, mesh)
    np.testing.assert_array_equal(points.positions, run(node, mesh).positions)
    assert not np.array_equal(points.positions, run(node.replace(seed=4), mesh).positions)
    right = points.positions[:, 0] > 3.0
    # four fifths of the area; 5 standard deviations of a binomial are 5 sqrt(0.16 / 5000) = 0.028
    assert right.mean() == pytest.approx(0.8, abs=0.028)
    np.testing.assert_allclose(points.channels["point"]["normal"], [[0, 1, 0]] * 5000, atol=1e-12)
    # heat = 3 x + 9 z - 6 x z has no linear form; on triangle (0, 2, 1) it is 3 x + 3 z
    left = points.positions[~right]
    first = left[:, 0] > left[:, 2]
    heat = points.channels["point"]["heat"][~right]
    x, z = left[:, 0], left[:, 2]
    np.testing.assert_allclose(heat[first], (3 * x + 3 * z)[first], atol=1e-9)


def test_scattering_over_curves_bodies_and_nothing() -> None:
    line = Curves.from_strands(np.array([[[0.0, 0, 0], [1, 0, 0], [4, 0, 0]]]))
    points = run(PointsFromMesh(mode="scatter", count=4000), line)
    assert points.positions[:, 0].mean() == pytest.approx(2.0, abs=0.1)  # by length
    body = Body(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]), [[0, 1, 2, 3]])
    assert run(PointsFromMesh(mode="scatter", count=10), body).point_count == 10
    assert run(PointsFromMesh(mode="scatter", count=0), line).point_count == 0
    with pytest.raises(InputError, match="g/node: the points has no points to scatter over"):
        run(PointsFromMesh(mode="scatter"), Points(np.empty((0, 3))))
    flat = Curves.from_strands(np.zeros((1, 3, 3)))
    with pytest.raises(InputError, match="no area or length"):
        run(PointsFromMesh(mode="scatter"), flat)


def test_density_conserves_mass() -> None:
    rng = np.random.default_rng(1)
    points = Points(rng.normal(size=(500, 3)))
    points.set_channel("point", "mass", rng.uniform(1.0, 2.0, 500))
    points.set_channel("point", "velocity", np.tile([1.0, 2.0, 3.0], (500, 1)))
    voxels = run(VolumeFromPoints(voxel_size=0.2, carry=("velocity",)), points)
    total = voxels.channels["density"].values.sum(dtype=np.float64) * 0.2**3
    assert total == pytest.approx(points.channels["point"]["mass"].sum(), rel=1e-6)
    dense = voxels.to_dense("velocity")
    filled = voxels.to_dense("density")[0] > 0.0
    np.testing.assert_allclose(dense[:, filled].T, [[1.0, 2.0, 3.0]] * filled.sum(), rtol=1e-5)
    with pytest.raises(InputError, match='no point channel "velocty"; did you mean'):
        run(VolumeFromPoints(carry=("velocty",)), points)


def test_distance_and_mask_of_points() -> None:
    points = Points(np.array([[0.3, 0.0, 0.0], [5.0, 0.0, 0.0]]))
    node = VolumeFromPoints(mode="distance", voxel_size=0.1, radius=0.5)
    voxels = run(node, points)
    distance = voxels.channels["distance"].values
    assert voxels.channels["distance"].background == pytest.approx(0.3)
    assert distance.max() <= 0.3 + 1e-6
    r, h = 8, 0.1
    block = 0
    centre = (voxels.coords[block] * r + np.array([3, 4, 5]) + 0.5) * h
    exact = np.linalg.norm(points.positions - centre, axis=1).min() - 0.5
    assert distance[block, 0, 3, 4, 5] == pytest.approx(min(exact, 0.3), abs=1e-6)
    mask = run(node.replace(mode="mask", voxel_size=0.05), points)
    balls = mask.channels["mask"].values.sum() * 0.05**3
    assert balls == pytest.approx(2 * np.pi / 6.0, rel=0.02)
    assert run(node, Points(np.empty((0, 3)))).block_count == 0
    with pytest.raises(InputError, match="choose a larger voxel_size"):
        run(node.replace(voxel_size=1e-6, radius=1.0), points)


def test_distance_to_a_box_is_exact_in_the_band() -> None:
    box = run(ShapeSource(shape="box", size=(1.0, 1.0, 1.0), center=(0.03, 0.0, 0.0)))
    voxels = run(VolumeFromMesh(voxel_size=0.1, band=3.0), box)
    dense = voxels.to_dense("distance")[0]
    index = np.indices(dense.shape).reshape(3, -1).T + voxels.first_voxel() + 0.5
    places = voxels.origin + 0.1 * index - np.array([0.03, 0.0, 0.0])
    q = np.abs(places) - 0.5  # signed distance of a box
    exact = np.linalg.norm(np.maximum(q, 0.0), axis=1) + np.minimum(q.max(axis=1), 0.0)
    expected = np.clip(exact, -0.3, 0.3)
    np.testing.assert_allclose(dense.reshape(-1), expected, atol=1e-6)


@pytest.mark.parametrize("shape", ["sphere", "box"])
def test_the_inside_is_found_when_columns_meet_edges(shape: str) -> None:
    # voxel centres lie exactly on corners and edges of these shapes along y and z
    solid = run(ShapeSource(shape=shape, size=(1.0, 1.0, 1.0), resolution=(16, 8)))
    for shift in (0.0, 0.03125):
        moved = run(Transform(translate=(shift, shift, shift)), solid)
        mask = run(VolumeFromMesh(mode="mask", voxel_size=0.0625), moved).to_dense("mask")
        assert mask.sum() * 0.0625**3 == pytest.approx(volume(solid), rel=0.03)
        assert set(np.unique(mask)) <= {0.0, 1.0}


def test_an_open_surface_has_no_inside() -> None:
    with pytest.raises(InputError, match="g/node: the surface has 4 boundary edges: it is open"):
        run(VolumeFromMesh(), square())
    box = run(ShapeSource(shape="box"))
    turned = box.face_vertices.copy()
    turned[:4] = turned[:4][::-1]
    inside_out = Surface(box.positions, box.face_offsets, turned)
    with pytest.raises(InputError, match="look in opposite directions"):
        run(VolumeFromMesh(), inside_out)
    with pytest.raises(InputError, match="points have none; use VolumeFromPoints"):
        run(VolumeFromMesh(), Points(np.zeros((1, 3))))
    with pytest.raises(InputError, match="choose a larger voxel_size"):
        run(VolumeFromMesh(voxel_size=1e-5), box)


def test_body_to_volume_uses_its_boundary() -> None:
    body = Body(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]), [[0, 1, 2, 3]])
    mask = run(VolumeFromMesh(mode="mask", voxel_size=0.02), body)
    assert mask.channels["mask"].values.sum() * 0.02**3 == pytest.approx(1.0 / 6.0, rel=0.03)


def test_mesh_from_volume_and_back() -> None:
    pytest.importorskip("pyvista")
    sphere = run(ShapeSource(resolution=(64, 32), center=(2.0, 0.0, 0.0)))
    voxels = run(VolumeFromMesh(voxel_size=0.05), sphere)
    again = run(MeshFromVolume(), voxels)
    assert volume(again) == pytest.approx(volume(sphere), rel=0.01)  # positive: faces outward
    np.testing.assert_allclose(again.bounds(), sphere.bounds(), atol=0.01)
    mask = run(VolumeFromMesh(mode="mask", voxel_size=0.05), sphere)
    solid = run(MeshFromVolume(value=0.5, inside="above"), mask)
    assert volume(solid) == pytest.approx(volume(sphere), rel=0.02)
    full = Voxels.from_dense(np.ones((8, 8, 8), np.float32), (0, 0, 0), 0.125)
    block = run(MeshFromVolume(value=0.5, inside="above"), full)  # closed at the last block
    assert volume(block) == pytest.approx(1.0, rel=0.05)
    velocity = run(FieldSource(voxel_size=0.125))
    with pytest.raises(InputError, match="has 3 components at cells; a surface needs one number"):
        run(MeshFromVolume(), velocity)
    with pytest.raises(InputError, match='no channel "densty"'):
        run(MeshFromVolume(channel="densty"), full)
    assert run(MeshFromVolume(value=9.0), full).primitive_count == 0


def test_without_pyvista_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyvista", None)
    full = Voxels.from_dense(np.ones((8, 8, 8), np.float32), (0, 0, 0), 0.125)
    with pytest.raises(InputError, match="pip install pyvista"):
        run(MeshFromVolume(), full)
