"""Houdini's geometry files: what is read is what was written, and damage is told in words.

Public files that Houdini itself wrote are in the history of github.com/sideeffects/SideFXLabs,
below `automation/unittest/baseline` (1,555 versions of .bgeo and .bgeo.sc): with their folder in
LOKI_HOUDINI_FILES they are read here too.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loki_core as lk
from loki_core.errors import FormatError, InputError, LokiError
from loki_vfx.serialization.houdini_files import (
    SUFFIXES,
    read_bytes,
    read_geometry,
    write_bytes,
    write_geometry,
)
from loki_vfx.serialization.houdini_geometry import (
    PACKED,
    Attribute,
    Geometry,
    PackedPrimitive,
)
from loki_vfx.serialization.houdini_json import MAGIC, decode, encode_binary
from loki_vfx.serialization.houdini_packed import selected, unpacked
from loki_vfx.serialization.houdini_reader import geometry_of_document
from loki_vfx.serialization.houdini_streams import geometry_of, merged, stream_of, streams_of
from loki_vfx.serialization.vdb_sequence import grids_of
from tests.host_contract import TYPES, assert_same, dressed

HERE = os.environ.get("LOKI_HOUDINI_FILES", "")


def attribute(name, storage, size, values, **options):
    head = ["scope", "public", "type", "numeric", "name", name, "options", {}]
    return [head, ["size", size, "storage", storage, "values", values], *options]


def geometry(points, attributes=(), topology=(), primitives=(), **more):
    """A document as Houdini writes it."""
    document = [
        "fileversion", "18.0.595", "hasindex", False, "pointcount", points,
        "vertexcount", len(topology), "primitivecount", more.pop("count", 0),
        "topology", ["pointref", ["indices", np.array(topology, np.int8)]],
        "attributes", ["pointattributes", list(attributes)], "primitives", list(primitives),
    ]  # fmt: skip
    for key, value in more.items():
        document += [key, value]
    return geometry_of_document(decode(b"".join(encode_binary(document))))


def placed(values):
    flat = np.array(values, np.float32)
    return attribute("P", "fpreal32", 3, ["size", 3, "storage", "fpreal32", "pagesize", 1024,
                                          "rawpagedata", flat.reshape(-1)])  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_holds_a_stream_as_it_was(name, suffix, tmp_path):
    stream = dressed(name)
    write_geometry(tmp_path / f"a{suffix}", geometry_of(stream))
    found = read_geometry(tmp_path / f"a{suffix}")
    assert found.remarks == []
    again = streams_of(found)
    assert list(again) == [stream.type_name]
    assert_same(stream, again[stream.type_name])


def test_attributes_have_houdinis_names_and_types():
    made = geometry_of(dressed("surface"))
    point = made.attributes["point"]
    assert {"P", "v", "id", "pscale", "Cd"} <= set(point)
    assert (
        point["P"].hint == "point" and point["v"].hint == "vector" and point["Cd"].hint == "color"
    )
    assert point["id"].values.dtype == np.int64
    assert set(made.groups["point"]) == {"chosen"}
    assert geometry_of(dressed("points"), single=True).positions().dtype == np.float32


def test_faces_turn_to_the_other_side():
    """Houdini's are clockwise seen from outside; the first corner stays the first."""
    surface = lk.Surface(np.eye(4, 3), [0, 4], [0, 1, 2, 3])
    surface.set_channel("vertex", "uv", np.arange(8.0).reshape(4, 2))
    made = geometry_of(surface)
    assert made.vertex_points.tolist() == [0, 3, 2, 1]
    np.testing.assert_array_equal(made.attributes["vertex"]["uv"].values[:, 0], [0, 6, 4, 2])


def test_pages_with_one_value_for_all_and_packed_columns():
    flags = [np.array([True, False, False]), np.array([False, True, False])]
    data = np.array([1, 2, 3, 10, 11, 4, 5, 6, 7, 8, 9, 20, 0, 0, 1, 30], np.float32)
    values = [
        "size", 4, "storage", "fpreal32", "pagesize", 2, "packing", [3, 1],
        "constantpageflags", flags, "rawpagedata", data,
    ]  # fmt: skip
    found = geometry(5, [attribute("q", "fpreal32", 4, values)]).attributes["point"]["q"].values
    expected = [[1, 2, 3, 10], [1, 2, 3, 11], [4, 5, 6, 20], [7, 8, 9, 20], [0, 0, 1, 30]]
    np.testing.assert_array_equal(found, expected)


def test_older_forms_of_values_and_primitives():
    tuples = ["size", 2, "storage", "int32", "tuples", [[1, 2], [3, 4], [5, 6]]]
    columns = ["size", 2, "storage", "int32", "arrays", [[1, 3, 5], [2, 4, 6]]]
    found = geometry(
        3, [attribute("a", "int32", 2, tuples), attribute("b", "int32", 2, columns)], [0, 1, 2] * 3,
        [
            [["type", "Polygon"], ["vertex", [0, 1, 2], "closed", True]],
            [["type", "Polygon_run"], ["startvertex", 3, "nprimitives", 1, "nvertices", [3]]],
            [["type", "run", "runtype", "Poly", "varyingfields", ["vertex"],
              "uniformfields", {"closed": False}], [[[6, 7, 8]]]],
        ],
        count=3,
    )  # fmt: skip
    for name in "ab":
        expected = [[1, 2], [3, 4], [5, 6]]
        np.testing.assert_array_equal(found.attributes["point"][name].values, expected)
    assert found.kinds.tolist() == [0, 0, 1]
    streams = streams_of(found)
    assert streams["surface"].primitive_count == 2 and streams["curves"].primitive_count == 1


def test_groups_in_all_forms():
    forms = {
        "runs": ["unordered", ["boolRLE", [1, True, 2, False]]],
        "flags": ["unordered", ["i8", [1, 0, 0]]],
        "chosen": ["ordered", [0]],
    }
    groups = [[["name", name], ["selection", form]] for name, form in forms.items()]
    found = geometry(3, pointgroups=groups)
    for name in forms:
        assert found.groups["point"][name].tolist() == [True, False, False]


def test_texts_of_points_come_back_as_texts():
    made = geometry_of(lk.Points(np.zeros((3, 3))))
    made.attributes["point"]["name"] = Attribute(np.array([1, 0, -1], np.int32), "", ["a", "b"])
    stream = stream_of(read_bytes(write_bytes(made)))
    assert stream.channels["point"]["name"].tolist() == [1, 0, -1]
    again = geometry_of(stream)
    assert again.attributes["point"]["name"].as_texts() == ["b", "a", ""]


def test_half_precision_and_quaternions_come_back():
    made = geometry_of(lk.Points(np.zeros((2, 3))))
    made.attributes["point"]["half"] = Attribute(np.array([0.5, 2.0], np.float16))
    made.attributes["point"]["turn"] = Attribute(np.eye(2, 4, dtype=np.float32), "quaternion")
    again = geometry_of(stream_of(read_bytes(write_bytes(made))))
    assert again.attributes["point"]["half"].values.dtype == np.float16
    assert again.attributes["point"]["turn"].hint == "quaternion"


def test_packed_geometry_and_fragments_are_unpacked():
    inner = [
        "fileversion", "18.0.595", "pointcount", 4, "vertexcount", 6, "primitivecount", 2,
        "topology", ["pointref", ["indices", [0, 1, 2, 1, 2, 3]]],
        "attributes", [
            "pointattributes", [placed([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])],
            "primitiveattributes", [[
                ["scope", "public", "type", "string", "name", "piece", "options", {}],
                ["size", 1, "storage", "int32", "strings", ["a", "b"], "indices",
                 ["size", 1, "storage", "int32", "pagesize", 1024, "rawpagedata", [0, 1]]],
            ]],
        ],
        "primitives", [[["type", "p_r"], ["s_v", 0, "n_p", 2, "r_v", [3, 2]]]],
    ]  # fmt: skip
    turn = [0, 1, 0, -1, 0, 0, 0, 0, 1]  # by 90 degrees, for row vectors
    whole = {"parameters": {"embedded": "k"}, "pivot": [1, 0, 0], "transform": turn, "vertex": 0}
    part = {"parameters": {"embedded": "k", "attribute": "piece", "name": "b"}, "vertex": 1}
    found = geometry(
        2, [placed([[5, 0, 0], [0, 0, 9]])], [0, 1],
        [[["type", "PackedGeometry"], whole], [["type", "PackedFragment"], part]],
        count=2, sharedprimitivedata=["PackedGeometry", ["gu:embeddedgeo", "k", inner]],
    )  # fmt: skip
    surface = streams_of(found)["surface"]
    expected = [[5, -1, 0], [5, 0, 0], [4, -1, 0], [4, 0, 0], [1, 0, 9], [0, 1, 9], [1, 1, 9]]
    np.testing.assert_allclose(surface.positions, expected)
    assert surface.primitive_count == 3


def test_volumes_are_voxels():
    random = np.random.default_rng(1)
    dense = {"density": random.random((20, 8, 24)), "velocity": random.random((3, 20, 8, 24))}
    smoke = lk.Voxels.from_dense(dense, (1.0, 2.0, 3.0), 0.25)
    made = geometry_of(smoke)
    names = made.attributes["primitive"]["name"].as_texts()
    assert names == ["density", "vel.x", "vel.y", "vel.z"]
    again = streams_of(read_bytes(write_bytes(made)))["voxels"]
    np.testing.assert_allclose(again.bounds(), smoke.bounds(), rtol=1e-6)
    for name in dense:
        np.testing.assert_array_equal(again.to_dense(name), smoke.to_dense(name).astype(np.float32))


def test_a_mesh_is_whatever_is_no_field():
    ball = dressed("surface")
    assert_same(stream_of(geometry_of(ball), "mesh"), ball)
    assert stream_of(geometry_of(dressed("points")), "mesh").type_name == "points"
    field = geometry_of(lk.Voxels.from_dense(np.ones((8, 8, 8), np.float32), (0, 0, 0), 1.0))
    with pytest.raises(InputError, match="input holds voxels that is carried as mesh"):
        stream_of(field, "mesh")


def test_velocities_on_faces_are_the_same_as_volumes_and_as_vdbs():
    voxels = lk.Voxels([[0, 0, 0]], 0.5)
    voxels.set_channel("velocity", np.ones((1, 3, 8, 8, 8), np.float32), location="face")
    again = stream_of(geometry_of(voxels))
    grids = grids_of(voxels).voxels
    np.testing.assert_array_equal(again.to_dense("velocity"), grids.to_dense("velocity"))


def test_names_that_houdini_does_not_know_are_others_there():
    points = lk.Points(np.eye(3))
    names = ("velocity", "v", "my channel/1", "2nd", "heat.x", "heat_x")
    for number, name in enumerate(names):
        points.set_channel("point", name, np.full(3, float(number)))
    made = geometry_of(points)
    assert all(re.fullmatch(r"[A-Za-z_]\w*", one) for one in made.attributes["point"])
    assert_same(stream_of(made), points)


def test_texts_of_older_programs_are_read():
    document = ["pointcount", "K\u00fcste"]
    data = b"".join(encode_binary(document)).replace("\u00fc".encode(), b"\xfc")
    data = data.replace(b"\x27\x06K", b"\x27\x05K")
    assert decode(data) == document


def test_vertices_in_any_order_are_written():
    made = geometry_of(lk.Surface(np.eye(6, 3), [0, 3, 6], [0, 1, 2, 3, 4, 5]))
    made.attributes["vertex"]["u"] = Attribute(np.arange(6.0))
    other = selected(made, np.ones(2, bool), points=np.ones(6, bool))
    other.corners = np.array([3, 4, 5, 0, 1, 2])  # as after a Sort
    again = read_bytes(write_bytes(other))
    assert again.vertex_points.tolist() == other.vertex_points[other.corners].tolist()
    assert again.attributes["vertex"]["u"].values.tolist() == [3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize(
    "primitive",
    [
        [["type", "p_r"], ["s_v", 0, "n_p", 1, "r_v", [3]]],
        [["type", "Volume"], ["res", [1, 1, 1]]],
        [["type", "Tetrahedron_run"], ["startvertex", 0, "nprimitives", 1 << 30]],
        [["type", "run", "varyingfields", 3], [[1]]],
        [3, 4],
    ],
)
def test_primitives_of_no_sense_are_told(primitive):
    with pytest.raises(FormatError):
        geometry(3, [placed(np.eye(3))], [0, 1, 2], [primitive], count=1)


@pytest.mark.parametrize("group", [[3], [["name", "a"]], [["name", "a"], ["selection", [1]]], 5])
def test_groups_of_no_sense_are_told(group):
    with pytest.raises(FormatError):
        geometry(3, [placed(np.eye(3))], pointgroups=[group])


def test_orientations_in_packed_geometry_turn_with_it():
    inner = geometry_of(dressed("points"))
    angle = 0.7
    turn = np.array(
        [[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )  # of row vectors, about z
    rng = np.random.default_rng(2)
    orient = rng.normal(size=(inner.point_count, 4))
    orient /= np.linalg.norm(orient, axis=1, keepdims=True)
    inner.attributes["point"]["orient"] = Attribute(orient, "quaternion")
    inner.remarks.append("not carried: 3 primitives of type NURBSCurve")
    packed = Geometry(point_count=1)
    packed.attributes["point"]["P"] = Attribute(np.zeros((1, 3), np.float32), "point")
    packed.set_primitives(PACKED, np.ones(1, np.int64), np.zeros(1, np.int64))
    packed.packed[0] = PackedPrimitive(inner, 2.0 * turn, np.zeros(3))
    found = unpacked(packed).attributes["point"]["orient"].values
    vectors = rng.normal(size=(inner.point_count, 3))
    np.testing.assert_allclose(turned(found, vectors), turned(orient, vectors) @ turn, atol=1e-12)
    assert packed.remarks == ["not carried: 3 primitives of type NURBSCurve"]


def turned(quaternions, vectors):
    """q v q*, of quaternions (x, y, z, w)."""
    axis, w = quaternions[:, :3], quaternions[:, 3:]
    across = 2.0 * np.cross(axis, vectors)
    return vectors + w * across + np.cross(axis, across)


def test_vdbs_of_a_file_are_left_out_and_told():
    vdb = [["type", "VDB"], ["vertex", 0, "vdb", [0, "BDV "], "vdbvis", {}]]
    corner = [["type", "PolygonCurve"], ["vertex", [1, 2]]]
    alone = geometry(1, [placed(np.eye(1, 3))], [0], [vdb], count=1)
    told = "not carried: 1 VDBs, whose voxels are not read here: use .vdb files"
    with pytest.raises(InputError, match=f"input holds nothing that is carried as any; {told}"):
        stream_of(alone)
    beside = geometry(3, [placed(np.eye(3))], [0, 1, 2], [vdb, corner], count=2)
    assert stream_of(beside).point_count == 2
    assert beside.remarks == [told]


def test_a_mixture_is_split_by_type():
    surface, hair, dust = dressed("surface"), dressed("curves"), dressed("points")
    made = merged([("a", geometry_of(surface)), ("b", geometry_of(hair)), ("c", geometry_of(dust))])
    closed = int(np.count_nonzero(hair.closed))
    found = streams_of(read_bytes(write_bytes(made)))
    assert {name: one.primitive_count for name, one in found.items()} == {
        "surface": 3 + closed, "curves": 3 - closed, "points": 0,
    }  # fmt: skip
    with pytest.raises(InputError, match="holds surface, curves"):
        stream_of(made, label="input 1")
    with pytest.raises(InputError, match="expected body"):
        stream_of(made, "body")
    assert stream_of(made, "points").point_count == made.point_count


def test_tetrahedra_that_are_inside_out_are_turned():
    body = lk.Body(np.concatenate([np.zeros((1, 3)), np.eye(3)]), [[0, 2, 1, 3]])
    assert body.volumes()[0] < 0.0
    made = geometry_of(body)
    del made.attributes["detail"]["loki_stream"]
    assert streams_of(made)["body"].volumes()[0] > 0.0


def closed_to_polygons(geometry):
    """As a Sweep: the same detail attributes, other primitives."""
    made = geometry_of(lk.Surface.from_faces(np.eye(4, 3), [[0, 1, 2], [1, 2, 3]]))
    made.attributes["detail"] = geometry.attributes["detail"]
    return made


def test_what_other_nodes_have_changed_is_read_anew():
    """The record of a stream passes through nodes that change everything else."""
    swept = closed_to_polygons(geometry_of(dressed("curves")))
    assert list(streams_of(swept)) == ["surface"]
    joined = geometry_of(lk.Curves(np.random.default_rng(1).random((4, 3)), [0, 4]))
    joined.attributes["detail"] = geometry_of(dressed("wireframe")).attributes["detail"]
    assert streams_of(joined)["curves"].primitive_count == 1
    painted = geometry_of(dressed("points"))
    painted.attributes["point"]["count"] = Attribute(np.full(12, 0.5, np.float32))
    assert streams_of(painted)["points"].channels["point"]["count"][0] == 0.5


def test_a_part_of_a_geometry_keeps_what_is_said_of_the_whole():
    made = geometry_of(dressed("surface"))
    made.remarks.append("something")
    part = selected(made, np.array([True, False, True]))
    assert part.attributes["detail"].keys() == made.attributes["detail"].keys()
    assert part.remarks == ["something"]


def test_packed_points_without_primitives():
    packed = Geometry(point_count=1)
    packed.attributes["point"]["P"] = Attribute(np.array([[1.0, 0.0, 0.0]]), "point")
    packed.set_primitives(PACKED, np.ones(1, int), np.zeros(1, int))
    inside = geometry_of(lk.Points(np.eye(3)))
    packed.packed[0] = PackedPrimitive(inside, np.eye(3), np.zeros(3))
    positions = streams_of(packed)["points"].positions
    np.testing.assert_array_equal(positions, np.eye(3) + np.array((1.0, 0.0, 0.0)))


def test_a_fragment_that_is_not_there_is_told():
    packed = Geometry(point_count=2)
    packed.attributes["point"]["P"] = Attribute(np.zeros((2, 3)), "point")
    packed.set_primitives(PACKED, np.ones(2, int), np.arange(2))
    inside = geometry_of(dressed("surface"))
    for number in range(2):
        one = PackedPrimitive(inside, np.eye(3), np.zeros(3), ("piece", "a"))
        packed.packed[number] = one
    assert "surface" not in streams_of(packed)
    assert any('fragment "a"' in remark for remark in packed.remarks)


def damaged():
    data = write_bytes(geometry_of(dressed("surface")))
    for cut in (0, 3, 5, 6, 100, len(data) - 1):
        yield data[:cut]
    yield MAGIC + b"\x5b" * 1000
    yield MAGIC + b"\x40\x19\xf8" + struct.pack("<Q", 1 << 62)
    yield MAGIC + b"\x26\x07"
    yield b'["pointcount", -1]'
    yield b"{}"
    yield b"scf1" + bytes(40)
    yield b"\x1f\x8b" + bytes(20)


@pytest.mark.parametrize("data", list(damaged()))
def test_damage_is_told(data):
    with pytest.raises(FormatError):
        read_bytes(data)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_damage_never_ends_otherwise(data):
    whole = bytearray(write_bytes(geometry_of(dressed("curves"))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(LokiError):
        streams_of(read_bytes(bytes(whole)))


def test_files_are_inputs(tmp_path):
    from loki_vfx.bridges.standalone.input_files import read_input

    stream = dressed("curves")
    for frame in (1, 2):
        write_geometry(tmp_path / f"hair.{frame:04d}.bgeo.sc", geometry_of(stream))
    assert_same(read_input(str(tmp_path / "hair.0001.bgeo.sc")), stream)
    assert_same(read_input(str(tmp_path / "hair.####.bgeo.sc"))(2), stream)


def test_an_empty_geometry():
    assert streams_of(read_bytes(write_bytes(Geometry())))["points"].point_count == 0


@pytest.mark.skipif(not HERE, reason="LOKI_HOUDINI_FILES names no folder of Houdini's own files")
def test_files_that_houdini_wrote():
    files = [path for path in Path(HERE).rglob("*") if path.name.endswith(SUFFIXES)]
    assert files
    for path in files:
        for name, stream in streams_of(read_geometry(path)).items():
            stream.check_structure(path.name)
            if name != "voxels":
                again = streams_of(read_bytes(write_bytes(geometry_of(stream))))
                assert_same(stream, again[name])
