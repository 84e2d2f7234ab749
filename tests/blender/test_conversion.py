"""Objects to streams and back, in Blender itself: places, kinds, topology, frame after frame."""

from __future__ import annotations

import json
import math
from typing import Any

import bpy
import mathutils
import numpy as np
import pytest

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_vfx.bridges.blender.axes import Axes
from loki_vfx.bridges.blender.host_to_loki import streams_of
from loki_vfx.bridges.blender.loki_to_host import show
from loki_vfx.bridges.blender.points_display import NAME as POINTS_MODIFIER
from loki_vfx.bridges.blender.vertex_groups import vertex_weights
from tests.blender.conversion_scenes import (
    depsgraph,
    everything_in_the_file,
    expected_positions,
    hair_object,
    link,
    mesh_object,
    prism,
    read,
)

CENTIMETRES = Axes(0.01)


@pytest.fixture(autouse=True)
def empty_file() -> None:
    bpy.ops.wm.read_factory_settings(use_empty=True)


def close(found: Any, expected: Any, *, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=atol)


# -- places ---------------------------------------------------------------------------------------


def test_axes_are_turned_and_scaled():
    axes = Axes(0.01)
    close(axes.to_loki().points(np.array([[1.0, 2.0, 3.0]])), [[0.01, 0.03, -0.02]])
    there = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    close(axes.to_blender().points(axes.to_loki().points(there)), there)
    matrix = np.array(
        mathutils.Matrix.Rotation(0.3, 4, "Z") @ mathutils.Matrix.Translation((1, 2, 3))
    )
    moved = axes.to_loki().points(there @ matrix[:3, :3].T + matrix[:3, 3])
    in_loki = axes.matrix_to_loki(matrix)
    close(axes.to_loki().points(there) @ in_loki[:3, :3].T + in_loki[:3, 3], moved)
    close(axes.matrix_to_blender(in_loki), matrix, atol=1e-12)


def test_normals_stay_upright_on_an_uneven_scale():
    # The plane x + z = 1 has the normal (1, 0, 1); stretched by 2 along x, it is (1, 0, 2).
    place = Axes().to_loki(np.diag([2.0, 1.0, 1.0, 1.0]))
    normal = place.normals(np.array([[1.0, 0.0, 1.0]]) / math.sqrt(2.0))
    close(normal, np.array([[1.0, 2.0, 0.0]]) / math.sqrt(5.0))
    mirrored = Axes().to_loki(np.diag([-2.0, 1.0, 1.0, 1.0]))
    close(
        mirrored.normals(np.array([[1.0, 0.0, 1.0]])), np.array([[-1.0, 2.0, 0.0]]) * math.sqrt(0.4)
    )
    flat = Axes().to_loki(np.diag([1.0, 1.0, 0.0, 1.0]))
    close(flat.normals(np.array([[0.0, 0.0, 1.0]])), [[0.0, 1.0, 0.0]])


@pytest.mark.parametrize("axes", [Axes(), CENTIMETRES])
@pytest.mark.parametrize("scale", [(1, 1, 1), (2, 0.5, 3), (-1, 1, 1), (-1, -2, -1)])
def test_objects_are_read_in_world_space(axes, scale):
    source = prism()
    parent = link("parent", None)
    parent.location, parent.rotation_euler = (3.0, -2.0, 1.0), (0.4, 0.2, -0.7)
    source.parent = parent
    source.location, source.rotation_euler, source.scale = (1, 2, 3), (1.0, 0.3, 0.1), scale
    surface = read(source, axes)
    close(surface.positions, expected_positions(source, axes), atol=2e-6 * axes.unit_scale)
    # Faces look outward in a mirror as well: by Gauss, a third of the flux of x is the volume.
    corners = surface.positions[surface.triangles()].astype(np.float64)
    volume = np.linalg.det(corners).sum() / 6.0
    close(volume, abs(np.prod(scale)) * axes.unit_scale**3, atol=1e-5 * axes.unit_scale**3)


def test_a_result_is_where_its_source_was():
    source = prism()
    source.matrix_world = mathutils.Matrix.Translation((5, 6, 7)) @ mathutils.Matrix.Rotation(
        1, 4, "X"
    )
    surface = read(source, CENTIMETRES)
    result = show(surface, "result", CENTIMETRES)
    assert result.matrix_world == mathutils.Matrix.Identity(4)
    places = [tuple(vertex.co) for vertex in result.data.vertices]
    close(places, [tuple(source.matrix_world @ v.co) for v in source.data.vertices], atol=1e-5)


def test_a_result_stands_at_the_origin_unless_it_has_a_parent():
    surface = read(prism())
    result = show(surface, "result", Axes())
    result.location = (1, 2, 3)
    show(surface, "result", Axes(), target=result)
    assert tuple(result.location) == (0, 0, 0)
    result.parent = link("parent", None)
    result.location = (1, 2, 3)
    show(surface, "result", Axes(), target=result)
    assert tuple(result.location) == (1, 2, 3)


def test_velocity_and_radius_follow_the_axes_and_the_unit():
    source = mesh_object("spray", [(1, 2, 3), (4, 5, 6)])
    mesh = source.data
    mesh.attributes.new("velocity", "FLOAT_VECTOR", "POINT").data.foreach_set(
        "vector", [1, 2, 3] * 2
    )
    mesh.attributes.new("colour", "FLOAT_VECTOR", "POINT").data.foreach_set("vector", [1, 2, 3] * 2)
    mesh.attributes.new("radius", "FLOAT", "POINT").data.foreach_set("value", [4, 8])
    source.scale = (2, 2, 2)
    points = read(source, CENTIMETRES)
    channels = points.channels["point"]
    assert isinstance(points, Points)
    close(channels["velocity"], [[0.02, 0.06, -0.04]] * 2)
    close(channels["radius"], [0.08, 0.16])
    close(channels["colour"], [[1, 2, 3]] * 2)  # not known to turn
    result = show(points, "result", CENTIMETRES)
    found = {a.name for a in result.data.attributes}
    assert {"velocity", "radius", "colour"} <= found
    close([tuple(v.vector) for v in result.data.attributes["velocity"].data], [(2, 4, 6)] * 2)
    close([v.value for v in result.data.attributes["radius"].data], [8, 16])


# -- what is evaluated ----------------------------------------------------------------------------


def test_modifiers_and_shape_keys_count():
    source = prism()
    source.modifiers.new("smooth", "SUBSURF").levels = 2
    evaluated = source.evaluated_get(depsgraph()).data
    assert read(source).point_count == len(evaluated.vertices) > 6
    deformed = prism("deformed")
    deformed.shape_key_add(name="Basis")
    key = deformed.shape_key_add(name="up")
    for point in key.data:
        point.co.z += 1.0
    key.value = 0.5
    plain = expected_positions(deformed, Axes())
    close(read(deformed).positions - plain, [[0.0, 0.5, 0.0]] * 6)


def test_an_object_that_is_hidden_or_edited_is_read():
    source = prism()
    source.vertex_groups.new(name="tips").add([3, 4, 5], 0.5, "REPLACE")
    before = read(source)
    source.hide_set(True)
    assert read(source).counts() == before.counts()
    source.hide_set(False)
    bpy.context.view_layer.objects.active = source
    bpy.ops.object.mode_set(mode="EDIT")
    edited = read(source)
    bpy.ops.object.mode_set(mode="OBJECT")
    close(edited.positions, before.positions)
    close(edited.channels["point"]["tips"], [0, 0, 0, 0.5, 0.5, 0.5])
    source.hide_viewport = True
    with pytest.raises(InputError, match='object "prism" is not part of the view layer'):
        read(source)


def nodes_modifier(source: Any, build: Any) -> Any:
    from loki_vfx.bridges.blender.scratch_scene import geometry_ends

    tree = bpy.data.node_groups.new("nodes", "GeometryNodeTree")
    given, result = geometry_ends(tree)
    tree.links.new(build(tree, given), result)
    source.modifiers.new("nodes", "NODES").node_group = tree
    return tree


def test_instances_are_made_real():
    grain = prism("grain")
    grain.scale = (1, 1, -1)
    source = mesh_object("ground", [(0, 0, 0), (10, 0, 0), (0, 10, 0)])

    def build(tree: Any, given: Any) -> Any:
        info = tree.nodes.new("GeometryNodeObjectInfo")
        info.inputs["Object"].default_value = grain
        info.inputs["As Instance"].default_value = True
        info.transform_space = "RELATIVE"
        spread = tree.nodes.new("GeometryNodeInstanceOnPoints")
        tree.links.new(given, spread.inputs["Points"])
        tree.links.new(info.outputs["Geometry"], spread.inputs["Instance"])
        spread.inputs["Scale"].default_value = (2, 2, 2)
        return spread.outputs["Instances"]

    nodes_modifier(source, build)
    source.location = (0, 0, 100)
    surface = read(source)
    assert isinstance(surface, Surface)
    assert surface.counts() == {"point": 18, "vertex": 54, "primitive": 15}
    surface.validate("instances")
    spans = np.ptp(surface.positions.reshape(3, 6, 3), axis=1)
    close(spans, [[2, 4, 2]] * 3)
    drawn = [
        (place.matrix_world @ vertex.co)[:]
        for place in depsgraph().object_instances
        if place.is_instance
        for vertex in place.object.data.vertices
    ]
    there = [(x, -z, y) for x, y, z in surface.positions.tolist()]
    close(sorted(there), sorted(drawn), atol=1e-4)
    volume = np.linalg.det(surface.positions[surface.triangles()].astype(np.float64)).sum() / 6.0
    close(volume, 3 * 8.0, atol=1e-2)


def test_what_stands_beside_the_wanted_kind_is_told():
    source = prism()

    def build(tree: Any, given: Any) -> Any:
        line = tree.nodes.new("GeometryNodeCurvePrimitiveLine")
        join = tree.nodes.new("GeometryNodeJoinGeometry")
        tree.links.new(given, join.inputs[0])
        tree.links.new(line.outputs[0], join.inputs[0])
        return join.outputs[0]

    nodes_modifier(source, build)
    remarks: list[str] = []
    assert isinstance(read(source, remarks=remarks), Surface)
    assert remarks == ['object "prism": not carried: its curves, beside a surface stream']
    curves = read(source, wanted="curves")
    assert isinstance(curves, Curves)
    assert curves.primitive_count == 1
    assert read(source, wanted="points").point_count == 6 + curves.point_count


# -- kinds ----------------------------------------------------------------------------------------


def test_the_kind_follows_from_what_is_there():
    points = [(0, 0, 0), (1, 0, 0), (1, 1, 0)]
    assert isinstance(read(mesh_object("a", points)), Points)
    wire = read(mesh_object("b", points, edges=[(0, 1), (1, 2)]))
    assert isinstance(wire, Wireframe)
    assert wire.edge_points.tolist() == [[0, 1], [1, 2]]
    surface = mesh_object("c", points, faces=[(0, 1, 2)])
    assert isinstance(read(surface), Surface)
    assert read(surface, wanted="points").point_count == 3
    assert read(surface, wanted="wireframe").primitive_count == 3
    assert isinstance(read(mesh_object("d", [])), Points)
    empty = read(mesh_object("e", []), wanted="surface")
    assert isinstance(empty, Surface)
    assert empty.counts() == {"point": 0, "vertex": 0, "primitive": 0}
    assert read(mesh_object("f", []), wanted="curves").primitive_count == 0


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("surface", 'object "dots" gives points, and surface is wanted: give it faces'),
        ("curves", "convert it to hair curves"),
        ("voxels", "Volume From Mesh node"),
        ("body", "Blender has no tetrahedra"),
        ("cheese", 'no stream type "cheese"'),
    ],
)
def test_what_cannot_be_given_is_refused_in_words(wanted, message):
    with pytest.raises(InputError, match=message):
        read(mesh_object("dots", [(0, 0, 0)]), wanted=wanted)


def test_lights_are_refused():
    lamp = link("lamp", bpy.data.lights.new("lamp", "POINT"))
    with pytest.raises(InputError, match='object "lamp" is a LIGHT, which has no geometry'):
        read(lamp)


def test_loose_edges_of_a_surface_are_told():
    source = mesh_object("s", [(0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 2, 2)], [(0, 1, 2)], [(2, 3)])
    remarks: list[str] = []
    assert read(source, remarks=remarks).point_count == 4
    assert "1 edges without faces" in remarks[0]


def test_hair_with_closed_curves_there_and_back():
    hair = hair_object()
    closed = np.array([True, False, True])
    hair.data.attributes.new("cyclic", "BOOLEAN", "CURVE").data.foreach_set("value", closed)
    hair.data.set_types(type="POLY")
    hair.data.set_types(type="CATMULL_ROM", indices=[1])
    curves = read(hair)
    assert isinstance(curves, Curves)
    assert curves.offsets.tolist() == [0, 3, 7, 9]
    assert np.array_equal(curves.closed, closed)
    result = show(curves, "result", Axes())
    again = read(result)
    assert result.type == "CURVES"
    assert np.array_equal(again.positions, curves.positions)
    assert np.array_equal(again.closed, closed)
    assert [v.value for v in result.data.attributes["curve_type"].data] == [1, 0, 1]


def test_bezier_curves_come_as_they_are_drawn():
    bpy.ops.curve.primitive_bezier_circle_add(radius=2.0)
    before = everything_in_the_file()
    circle = read(bpy.context.object)
    assert isinstance(circle, Curves)
    assert circle.closed.tolist() == [True]
    assert circle.point_count > 20
    close(np.linalg.norm(circle.positions, axis=1), 2.0, atol=0.01)
    close(circle.positions[:, 1], 0.0)
    assert everything_in_the_file() == before


def test_a_point_cloud_comes_as_points():
    source = mesh_object("cloud", [(0, 0, 1), (0, 0, 2)])
    bpy.context.view_layer.objects.active = source
    source.select_set(True)
    bpy.ops.object.convert(target="POINTCLOUD")
    assert source.type == "POINTCLOUD"
    points = read(source)
    assert isinstance(points, Points)
    close(points.positions, [(0, 1, 0), (0, 2, 0)])


def test_an_empty_comes_with_its_axes_and_its_field():
    bpy.ops.object.effector_add(type="WIND", location=(1, 2, 3), rotation=(0, math.pi / 2, 0))
    wind = bpy.context.object
    wind.empty_display_size = 50.0
    wind.field.strength, wind.field.distance_max = 7.5, 200.0
    points = read(wind, CENTIMETRES)
    close(points.positions, [[0.01, 0.03, -0.02]])
    channels = points.channels["point"]
    close(channels["z_axis"], [[0.01, 0, 0]])  # turned by a quarter about y, z looks along x
    close(channels["y_axis"], [[0, 0, -0.01]])
    assert channels.transform_of("z_axis") == "vector"
    close(channels["size"], [0.5])
    details = points.channels["detail"]
    assert details["field_type"].tolist() == ["WIND"]
    assert details["field_strength"].tolist() == [7.5]
    close(details["field_distance_max"], [2.0])
    with pytest.raises(InputError, match="gives points, and surface is wanted"):
        read(wind, wanted="surface")


# -- vertex groups --------------------------------------------------------------------------------


def weights_one_by_one(mesh: Any, names: list[str]) -> dict[str, Any]:
    found = {name: np.zeros(len(mesh.vertices), np.float32) for name in names}
    for vertex in mesh.vertices:
        for group in vertex.groups:
            found[names[group.group]][vertex.index] = group.weight
    return found


def test_vertex_groups_equal_a_loop_over_the_vertices():
    source = prism()
    material = bpy.data.materials.new("skin")
    source.data.materials.append(material)
    source.modifiers.new("finer", "SUBSURF").levels = 2
    random = np.random.default_rng(3)
    for name in ("stiffness", "größe", "empty"):
        group = source.vertex_groups.new(name=name)
        if name != "empty":
            for index in range(5):
                group.add([index], float(random.random()), "REPLACE")
    graph = depsgraph()
    before = everything_in_the_file()
    users = (material.users, source.data.users)
    evaluated = source.evaluated_get(graph).data
    expected = weights_one_by_one(evaluated, source.vertex_groups.keys())
    surface = read(source)
    assert list(surface.channels["point"]) == ["stiffness", "größe", "empty"]
    for name, values in expected.items():
        assert np.array_equal(surface.channels["point"][name], values)
        assert np.array_equal(vertex_weights(evaluated)[name], values)
    assert everything_in_the_file() == before
    assert (material.users, source.data.users) == users
    assert [modifier.type for modifier in source.modifiers] == ["SUBSURF"]
    assert set(source.data.attributes.keys()) == set(prism("other").data.attributes.keys())


# -- several objects ------------------------------------------------------------------------------


def test_several_objects_are_one_stream():
    one, other = prism("one"), prism("other")
    other.location = (5, 0, 0)
    one.vertex_groups.new(name="weight").add([0], 1.0, "REPLACE")
    collection = bpy.data.collections.new("things")
    bpy.context.scene.collection.children.link(collection)
    collection.objects.link(other)
    collection.objects.link(link("lamp", bpy.data.lights.new("lamp", "POINT")))
    merged = streams_of([one, collection], depsgraph(), Axes(), details={"density": 7.0})
    assert merged.counts() == {"point": 12, "vertex": 36, "primitive": 10}
    assert merged.channels["primitive"]["object_index"].tolist() == [0] * 5 + [1] * 5
    details = merged.channels["detail"]
    assert json.loads(str(details["object_names"][0])) == ["one", "other"]
    assert details["density"].tolist() == [7.0]
    close(merged.channels["point"]["weight"], [1] + [0] * 11)
    close(merged.positions[6:, 0], merged.positions[:6, 0] + 5)


def test_objects_may_bring_values_of_their_own():
    objects = [prism("light"), prism("heavy")]
    graph = depsgraph()
    own = {"light": {"density": 1.0, "drag": 2.0}, "heavy": {"density": 9.0, "drag": 2.0}}
    merged = streams_of(objects, graph, Axes(), own_details=lambda one: own[one.name])
    assert merged.channels["primitive"]["density"].tolist() == [1.0] * 5 + [9.0] * 5
    assert merged.channels["detail"]["drag"].tolist() == [2.0]
    del own["heavy"]["density"]
    with pytest.raises(InputError, match='not for "heavy"'):
        streams_of(objects, graph, Axes(), own_details=lambda one: own[one.name])


def test_objects_of_several_kinds_are_refused():
    with pytest.raises(InputError, match='"prism" surface, "hair" curves'):
        streams_of([prism(), hair_object()], depsgraph(), Axes())
    with pytest.raises(InputError, match="no object"):
        streams_of([], depsgraph(), Axes())
    both = [bpy.data.objects["prism"], bpy.data.objects["hair"]]
    assert streams_of(both, depsgraph(), Axes(), wanted="points").point_count == 6 + 9


# -- results, frame after frame -------------------------------------------------------------------


def grid(columns: int, rows: int) -> Surface:
    xy = np.stack(np.meshgrid(np.arange(columns), np.arange(rows), indexing="ij"), axis=-1)
    points = np.concatenate([xy, np.zeros((columns, rows, 1))], axis=-1).reshape(-1, 3)
    corner = np.arange(columns * rows).reshape(columns, rows)[:-1, :-1].reshape(-1)
    faces = np.stack([corner, corner + rows, corner + rows + 1, corner + 1], axis=1)
    return Surface.from_faces(points.astype(np.float32), faces)


def mixed() -> Surface:
    points = np.random.default_rng(5).random((6, 3), dtype=np.float32)
    return Surface.from_polygons(points, [(0, 1, 2), (2, 3, 4, 5), (0, 2, 5), (1, 3, 4, 5, 0)])


def test_a_surface_changes_its_topology_from_frame_to_frame():
    material = bpy.data.materials.new("water")
    result = show(grid(3, 3), "liquid", Axes())
    result.data.materials.append(material)
    none = Surface(np.empty((0, 3)), [0], [])
    for number, frame in enumerate((grid(4, 5), mixed(), none, grid(2, 2), none, mixed())):
        frame.set_channel("point", "heat", np.arange(frame.point_count, dtype=np.float32))
        assert show(frame, "liquid", Axes(), target=result) is result
        mesh = result.data
        assert mesh.validate(verbose=True) is False, f"frame {number} had to be repaired"
        again = read(result, wanted="surface")
        assert np.array_equal(again.face_offsets, frame.face_offsets)
        assert np.array_equal(again.face_vertices, frame.face_vertices)
        assert np.array_equal(again.positions, frame.positions)
        if frame.point_count:
            assert np.array_equal(again.channels["point"]["heat"], frame.channels["point"]["heat"])
    assert result.data.materials[:] == [material]


def test_where_faces_alone_differ_the_mesh_is_built_anew():
    first = Surface.from_polygons(np.eye(5, 3), [(0, 1, 2, 3), (1, 2, 4)])
    second = Surface(first.positions, [0, 3, 7], first.face_vertices)
    result = show(first, "s", Axes())
    show(second, "s", Axes(), target=result)
    assert [face.loop_total for face in result.data.polygons] == [3, 4]


def test_the_same_topology_is_not_written_again():
    surface = grid(4, 4)
    result = show(surface, "cloth", Axes())
    uv = result.data.uv_layers.new(name="by_hand")  # lost where the mesh is built anew
    uv.data[0].uv = (0.25, 0.75)
    smooth = Surface(
        surface.positions + np.float32(1.0), surface.face_offsets, surface.face_vertices
    )
    show(smooth, "cloth", Axes(), target=result)
    assert tuple(result.data.uv_layers["by_hand"].data[0].uv) == (0.25, 0.75)
    assert np.array_equal(read(result).positions, smooth.positions)


def test_what_is_shown_reaches_the_evaluated_scene():
    surface = grid(3, 3)
    result = show(surface, "cloth", Axes())
    depsgraph()
    close(result.dimensions, [2, 0, 2])  # y is up in Loki, z in Blender
    surface.positions[:, 2] = surface.positions[:, 0]
    show(surface, "cloth", Axes(), target=result)
    evaluated = result.evaluated_get(depsgraph())
    assert [-v.co.y for v in evaluated.data.vertices] == surface.positions[:, 2].tolist()
    close(evaluated.data.polygons[0].normal, np.array([-1, -1, 0]) / math.sqrt(2.0))
    close(result.dimensions, [2, 2, 2])
    strands = np.random.default_rng(1).random((2, 3, 3))
    hair = show(Curves.from_strands(strands), "hair", Axes())
    depsgraph()
    size = np.array(hair.dimensions)
    show(Curves.from_strands(10 * strands), "hair", Axes(), target=hair)
    close(read(hair).positions, 10 * strands.reshape(-1, 3))
    assert (np.array(hair.dimensions) > 5 * size).all()


def test_attributes_of_an_earlier_frame_do_not_stay():
    surface = grid(3, 3)
    surface.set_channel("point", "heat", np.ones(9))
    surface.set_channel("detail", "time", 0.5)
    result = show(surface, "cloth", Axes())
    result.data.attributes.new("mine", "FLOAT", "POINT")
    assert result.data["time"] == 0.5
    show(grid(3, 3), "cloth", Axes(), target=result)
    names = result.data.attributes.keys()
    assert "heat" not in names
    assert "mine" in names
    assert "time" not in result.data


def test_points_of_changing_number_are_drawn_as_spheres():
    material = bpy.data.materials.new("drops")
    result = None
    for count in (5, 9, 0, 3):
        points = Points(np.random.default_rng(count).random((count, 3), dtype=np.float32))
        points.set_channel("point", "radius", np.full(count, 0.25, np.float32))
        points.set_channel("point", "velocity", np.ones((count, 3), np.float32))
        result = show(points, "spray", Axes(), target=result)
        if not result.data.materials:
            result.data.materials.append(material)
        graph = depsgraph()
        geometry = result.evaluated_get(graph).evaluated_geometry()
        assert geometry.mesh is None or len(geometry.mesh.vertices) == 0
        if count:
            cloud = geometry.pointcloud
            assert len(cloud.points) == count
            radius = np.empty(count, np.float32)
            cloud.attributes["radius"].data.foreach_get("value", radius)
            close(radius, 0.25)
            assert "velocity" in cloud.attributes
            assert result.data.materials[0] is material
    assert [one.name for one in cloud.materials] == [material.name]
    assert len([g for g in bpy.data.node_groups if g.name.startswith(POINTS_MODIFIER)]) == 1
    show(Points(np.zeros((1, 3))), "other", Axes())
    assert len([g for g in bpy.data.node_groups if g.name.startswith(POINTS_MODIFIER)]) == 1
    result.modifiers.clear()
    show(points, "spray", Axes(), target=result)
    assert not result.modifiers  # who removed it does not want it


def test_an_object_becomes_another_kind_in_its_place():
    material = bpy.data.materials.new("stuff")
    collection = bpy.data.collections.new("results")
    bpy.context.scene.collection.children.link(collection)
    result = show(Points(np.zeros((2, 3))), "result", Axes(), collection=collection)
    result.data.materials.append(material)
    follower = link("follower", None)
    follower.constraints.new("COPY_LOCATION").target = result
    result = show(grid(2, 2), "result", Axes(), target=result)
    assert [m.name for m in result.modifiers] == []
    same = result
    result = show(Curves.from_strands(np.eye(3)[None]), "result", Axes(), target=result)
    assert result.type == "CURVES"
    assert result.name == "result"
    assert result.data.materials[:] == [material]
    assert [o.name for o in collection.objects] == ["result"]
    assert follower.constraints[0].target is result
    with pytest.raises(ReferenceError):
        same.name  # noqa: B018
    result = show(grid(2, 2), "result", Axes(), target=result)
    assert result.type == "MESH"
    assert [o.name for o in bpy.data.objects] == ["follower", "result"]


def test_hair_changes_its_strands_from_frame_to_frame():
    result = None
    for sizes in ((3, 4), (2, 2, 2), (4, 3), (), (5,)):
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        curves = Curves(np.random.default_rng(1).random((offsets[-1], 3)), offsets)
        curves.set_channel("primitive", "strand", np.arange(len(sizes)))
        result = show(curves, "hair", Axes(), target=result)
        again = read(result, wanted="curves")
        assert again.offsets.tolist() == curves.offsets.tolist()
        close(again.positions, curves.positions)
        if sizes:
            assert again.channels["primitive"]["strand"].tolist() == list(range(len(sizes)))
    with pytest.raises(InputError, match="curve 1 has no point"):
        show(Curves(np.zeros((2, 3)), [0, 2, 2]), "hair", Axes(), target=result)


def test_wireframes_and_bodies_are_meshes():
    wire = Wireframe(np.random.default_rng(1).random((4, 3)), [[0, 1], [1, 2], [1, 3]])
    wire.set_channel("primitive", "strength", np.arange(3, dtype=np.float32))
    result = show(wire, "frame", Axes())
    again = read(result)
    assert isinstance(again, Wireframe)
    assert again.edge_points.tolist() == wire.edge_points.tolist()
    assert again.channels["primitive"]["strength"].tolist() == [0, 1, 2]
    other = Wireframe(wire.positions, [[0, 1], [1, 2], [2, 3]])
    show(other, "frame", Axes(), target=result)
    assert read(result).edge_points.tolist() == other.edge_points.tolist()
    body = Body(np.eye(4, 3), [[0, 2, 1, 3]])
    body.set_channel("primitive", "stress", np.ones(1))
    body.set_channel("point", "heat", np.arange(4.0))
    remarks: list[str] = []
    solid = show(body, "solid", Axes(), remarks=remarks)
    assert len(solid.data.polygons) == 4
    assert "heat" in solid.data.attributes
    assert remarks == ['object "solid": not carried: stress; a body is shown by its boundary faces']


def test_a_result_that_is_edited_is_left_alone():
    result = show(grid(2, 2), "result", Axes())
    bpy.context.view_layer.objects.active = result
    bpy.ops.object.mode_set(mode="EDIT")
    with pytest.raises(InputError, match="leave edit mode"):
        show(grid(2, 2), "result", Axes(), target=result)
    bpy.ops.object.mode_set(mode="OBJECT")


def test_what_is_not_finite_is_carried():
    positions = np.array([[np.nan, 1, 2], [np.inf, -np.inf, 3], [1e30, 0, 0]], np.float32)
    points = Points(positions)
    points.set_channel("point", "velocity", positions)
    points.set_channel("point", "large", np.array([1e300, np.nan, 1.0]))
    again = read(show(points, "wild", Axes()), wanted="points")
    assert np.array_equal(again.positions, positions, equal_nan=True)
    assert np.array_equal(again.channels["point"]["velocity"], positions, equal_nan=True)
    expected = np.array([np.inf, np.nan, 1.0])
    assert np.array_equal(again.channels["point"]["large"], expected, equal_nan=True)
