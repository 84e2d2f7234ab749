"""Attributes and channels in Blender itself: every type, on every domain, there and back."""

from __future__ import annotations

import json
from typing import Any

import bpy
import numpy as np
import pytest

from loki_core.data.channels import CHANNEL_DTYPES
from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_vfx.bridges.blender.attribute_types import (
    ATTRIBUTE_TYPES,
    attribute_parts,
    channel_values,
)
from loki_vfx.bridges.blender.axes import Axes
from loki_vfx.bridges.blender.details import properties_of
from loki_vfx.bridges.blender.host_to_loki import streams_of
from loki_vfx.bridges.blender.loki_to_host import show
from loki_vfx.bridges.blender.stream_memory import RECORD, TYPES, record_of, types_of
from loki_vfx.serialization.codec import decode, encode
from tests.blender.conversion_scenes import (
    depsgraph,
    get_values,
    hair_object,
    mesh_object,
    prism,
    read,
    set_values,
)

RANDOM = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def empty_file() -> None:
    bpy.ops.wm.read_factory_settings(use_empty=True)


def some_values(kind: str, count: int) -> Any:
    """Values that an attribute of a type holds exactly, its limits among them."""
    type_ = ATTRIBUTE_TYPES[kind]
    shape = (count, *type_.shape)
    if kind == "BOOLEAN":
        return RANDOM.random(shape) > 0.5
    if kind == "BYTE_COLOR":  # steps of 1/255 after the curve of sRGB; 0 and 1 are exact
        return RANDOM.integers(0, 2, shape).astype(np.float32)
    if type_.dtype == "float32":
        return RANDOM.standard_normal(shape).astype(np.float32)
    limits = np.iinfo(type_.dtype)
    values = RANDOM.integers(limits.min, limits.max, shape, endpoint=True).astype(type_.dtype)
    values.reshape(-1)[:2] = limits.min, limits.max
    return values


@pytest.mark.parametrize("kind", ATTRIBUTE_TYPES)
@pytest.mark.parametrize("domain", ["POINT", "EDGE", "CORNER", "FACE", "CURVE"])
def test_every_type_on_every_domain_there_and_back(kind, domain):
    source = hair_object() if domain == "CURVE" else prism()
    data, field = source.data, ATTRIBUTE_TYPES[kind].field
    values = some_values(kind, data.attributes.domain_size(domain))
    set_values(data, "données", kind, domain, field, values)
    remarks: list[str] = []
    stream = read(source, remarks=remarks)
    location = {"POINT": "point", "FACE": "primitive", "CURVE": "primitive"}.get(domain, "vertex")
    channel = stream.channels[location]["données"]
    assert channel.dtype.name in CHANNEL_DTYPES
    assert channel.shape[1:] == values.shape[1:]
    if domain != "EDGE":
        assert np.array_equal(channel, values)
    sent = type(stream).from_document(decode(encode(stream.to_document())))  # as to a solver
    result = show(sent, "result", Axes(), remarks=remarks)
    attribute = result.data.attributes["données"]
    assert (attribute.data_type, attribute.domain) == (kind, domain)
    back = get_values(result.data, "données", field, values)
    if domain == "EDGE":  # Blender numbers the edges of a new mesh in its own way
        assert by_edge(result.data, back) == by_edge(data, values)
    else:
        assert np.array_equal(back, values)
    assert remarks == []


def by_edge(mesh: Any, values: Any) -> dict[tuple[int, ...], Any]:
    ends = np.empty((len(mesh.edges), 2), np.int32)
    mesh.attributes[".edge_verts"].data.foreach_get("value", ends.reshape(-1))
    return {tuple(sorted(e)): v for e, v in zip(ends.tolist(), values.tolist(), strict=True)}


def test_edges_of_a_mirrored_surface_keep_their_values():
    source = prism()
    values = np.arange(len(source.data.edges), dtype=np.float32)
    set_values(source.data, "crease_edge", "FLOAT", "EDGE", "value", values)
    set_values(
        source.data, "UVMap", "FLOAT2", "CORNER", "vector", RANDOM.random((18, 2), np.float32)
    )
    uv = {}
    for corner in source.data.loops:
        vector = source.data.attributes["UVMap"].data[corner.index].vector
        uv.setdefault(corner.vertex_index, set()).add(tuple(vector))
    source.scale = (1, -1, 1)
    result = show(read(source), "result", Axes())
    back = get_values(result.data, "crease_edge", "value", values)
    assert by_edge(result.data, back) == by_edge(source.data, values)
    found = {}
    for corner in result.data.loops:
        vector = result.data.attributes["UVMap"].data[corner.index].vector
        found.setdefault(corner.vertex_index, set()).add(tuple(vector))
    assert found == uv


def test_byte_colours_are_exact():
    source = mesh_object("colours", [(i, 0, 0) for i in range(256)])
    bytes_ = np.repeat(np.arange(256, dtype=np.float32)[:, None] / np.float32(255), 4, axis=1)
    set_values(source.data, "Col", "BYTE_COLOR", "POINT", "color_srgb", bytes_)
    points = read(source)
    linear = points.channels["point"]["Col"]
    assert 0.21 < linear[128, 0] < 0.22  # as nodes see it
    result = show(points, "result", Axes())
    back = get_values(result.data, "Col", "color_srgb", bytes_)
    assert np.array_equal(np.rint(255 * back), np.rint(255 * bytes_))


def test_what_blender_uses_itself_survives():
    source = prism()
    mesh = source.data
    mesh.uv_layers.new(name="UVMap")
    mesh.color_attributes.new("Paint", "BYTE_COLOR", "CORNER")
    set_values(mesh, "material_index", "INT", "FACE", "value", np.arange(5, dtype=np.int32))
    set_values(mesh, "sharp_edge", "BOOLEAN", "EDGE", "value", np.arange(9) % 2 == 0)
    mesh.polygons[0].use_smooth = False
    mesh.polygons[1].hide = True
    mesh.vertices[0].select = True
    stream = read(source)
    result = show(stream, "result", Axes())
    assert [p.material_index for p in result.data.polygons] == [0, 1, 2, 3, 4]
    assert [p.use_smooth for p in result.data.polygons] == [p.use_smooth for p in mesh.polygons]
    assert sum(edge.use_edge_sharp for edge in result.data.edges) == 5
    assert result.data.uv_layers.active.name == "UVMap"
    assert result.data.color_attributes.active_color.name == "Paint"
    assert not any(polygon.hide for polygon in result.data.polygons)
    assert not any(
        name.startswith(".") for names in stream.channel_names().values() for name in names
    )


def test_text_attributes_are_left_with_a_word():
    source = prism()
    source.data.attributes.new("labels", "STRING", "POINT")
    remarks: list[str] = []
    stream = read(source, remarks=remarks)
    assert "labels" not in stream.channels["point"]
    assert remarks == [
        'object "prism": not carried: labels; channels cannot hold values of type STRING'
    ]


def test_what_points_have_no_place_for_is_told():
    source = prism()
    source.data.uv_layers.new(name="UVMap")
    remarks: list[str] = []
    read(source, wanted="points", remarks=remarks)
    assert any("UVMap; points streams have no place for the domain CORNER" in r for r in remarks)


# -- channels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (4,), (5,), (16,), (3, 3)])
@pytest.mark.parametrize("dtype", CHANNEL_DTYPES)
def test_every_channel_there_and_back(dtype, shape):
    values = (10 * RANDOM.standard_normal((6, *shape))).astype(np.float32)
    values = np.abs(values).astype(dtype) if dtype == "uint8" else values.astype(dtype)
    surface = read(prism())
    surface.set_channel("point", "channel", values)
    remarks: list[str] = []
    again = read(show(surface, "result", Axes(), remarks=remarks), remarks=remarks)
    assert remarks == []
    found = again.channels["point"]["channel"]
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)
    assert again.channel_names() == surface.channel_names()


def test_large_whole_numbers_are_exact():
    points = Points(np.zeros((3, 3)))
    numbers = np.array([2**31, -(2**62) - 1, 7], np.int64)
    points.set_channel("point", "id", numbers)
    points.set_channel("point", "pairs", np.stack([numbers, numbers], axis=1))
    points.set_channel("detail", "seed", 2**40 + 1)
    result = show(points, "result", Axes())
    assert "INT32_2D" in {attribute.data_type for attribute in result.data.attributes}
    again = read(result)
    assert again.channels["point"]["id"].tolist() == numbers.tolist()
    assert again.channels["point"]["pairs"].tolist() == [[n, n] for n in numbers.tolist()]
    assert again.channels["detail"]["seed"].tolist() == [2**40 + 1]


def test_channels_of_no_points():
    points = Points(np.empty((0, 3)))
    for name, shape in (("a", ()), ("b", (3,)), ("c", (5,)), ("d", (3, 3))):
        points.set_channel("point", name, np.empty((0, *shape)))
    points.set_channel("point", "id", np.empty(0, np.int64))
    again = read(show(points, "none", Axes()), wanted="points")
    assert again.point_count == 0


def test_transform_kinds_are_remembered():
    surface = read(prism())
    places = surface.positions + np.float32(1.0)
    surface.set_channel("point", "motion_1", places, transform="point")
    surface.set_channel("vertex", "tangent", np.eye(18, 3, dtype=np.float32), transform="vector")
    result = show(surface, "result", Axes(0.01))
    blender = get_values(result.data, "motion_1", "vector", np.empty((6, 3), np.float32))
    np.testing.assert_allclose(blender[:, 2], 100.0 * places[:, 1], rtol=1e-6)
    again = read(result, Axes(0.01))
    assert again.channels["point"].transform_of("motion_1") == "point"
    np.testing.assert_allclose(again.channels["point"]["motion_1"], places, rtol=0, atol=1e-6)
    np.testing.assert_allclose(again.channels["vertex"]["tangent"], np.eye(18, 3), atol=1e-7)


def test_details_are_custom_properties():
    surface = read(prism())
    given = {"time": 1.5, "wind": [1.0, 2.0, 3.0], "label": "größe", "on": True, "count": 7}
    for name, value in given.items():
        surface.set_channel("detail", name, value)
    surface.set_channel("detail", "frame", np.arange(9.0).reshape(1, 3, 3))
    result = show(surface, "result", Axes())
    assert result.data["label"] == "größe"
    assert list(result.data["wind"]) == [1.0, 2.0, 3.0]
    assert properties_of(result.data)["time"] == 1.5
    again = read(result).channels["detail"]
    for name, values in surface.channels["detail"].items():
        assert again[name].dtype.kind == values.dtype.kind
        assert again[name].shape == values.shape
        assert np.array_equal(again[name], values)


def test_names_that_are_taken_or_too_long():
    surface = read(prism())
    long, edge = "x" * 68, "ü" * 33
    surface.set_channel("point", "position", np.arange(6.0))
    surface.set_channel("point", "twice", np.arange(6.0))
    surface.set_channel("vertex", "twice", np.arange(18.0))
    surface.set_channel("point", long, np.arange(6.0))
    surface.set_channel("point", edge, np.arange(6.0))
    surface.set_channel("detail", long, 1.0)
    remarks: list[str] = []
    result = show(surface, "result", Axes(), remarks=remarks)
    assert any('"position" is the attribute "point.position"' in remark for remark in remarks)
    assert any('"twice" is the attribute "vertex.twice"' in remark for remark in remarks)
    assert any("names of custom properties have up to 63 bytes" in remark for remark in remarks)
    refused = [remark for remark in remarks if "Blender refuses its name" in remark]
    assert len(refused) == (long not in result.data.attributes)  # from 5.2 on there is no limit
    assert len(remarks) == 3 + len(refused)
    again = read(result)
    assert again.channels["point"]["position"].tolist() == list(range(6))
    assert again.channels["point"]["twice"].tolist() == list(range(6))
    assert again.channels["vertex"]["twice"].tolist() == list(range(18))
    assert edge in again.channels["point"]


def test_a_vertex_group_of_the_result_stays():
    surface = read(prism())
    surface.set_channel("point", "weight", np.ones(6))
    result = show(read(prism()), "result", Axes())
    result.vertex_groups.new(name="weight")
    remarks: list[str] = []
    show(surface, "result", Axes(), target=result, remarks=remarks)
    assert remarks == [
        'object "result": point channel "weight" is the attribute "point.weight": its own name is '
        "taken"
    ]
    assert result.vertex_groups.keys() == ["weight"]
    assert read(result).channels["point"]["weight"].tolist() == [0.0] * 6


def test_vertex_channels_of_curves_and_wireframes():
    curves = Curves.from_strands(np.zeros((2, 3, 3)))
    curves.set_channel("vertex", "v", np.arange(6.0))
    again = read(show(curves, "hair", Axes()))
    assert again.channels["vertex"]["v"].tolist() == list(range(6))
    wire = Wireframe(np.eye(3), [[0, 1], [1, 2]])
    wire.set_channel("vertex", "v", np.arange(4.0))
    remarks: list[str] = []
    show(wire, "wire", Axes(), remarks=remarks)
    assert len(remarks) == 1
    assert "not carried: vertex channels v" in remarks[0]


def test_types_are_remembered_when_streams_are_merged():
    one, other = prism("one"), prism("other")
    set_values(one.data, "turn", "QUATERNION", "POINT", "value", np.ones((6, 4), np.float32))
    set_values(other.data, "bytes", "INT8", "FACE", "value", np.ones(5, np.int8))
    merged = streams_of([one, other], depsgraph(), Axes())
    assert types_of(merged) == {"turn": "QUATERNION", "bytes": "INT8"}
    data = show(merged, "result", Axes()).data
    assert data.attributes["turn"].data_type == "QUATERNION"
    assert data.attributes["bytes"].data_type == "INT8"


def test_a_type_is_given_up_where_values_do_not_fit():
    source = prism()
    set_values(source.data, "bytes", "INT8", "POINT", "value", np.ones(6, np.int8))
    stream = read(source)
    stream.set_channel("point", "bytes", np.full(6, 1000))
    attribute = show(stream, "result", Axes()).data.attributes["bytes"]
    assert attribute.data_type == "INT"
    assert [one.value for one in attribute.data] == [1000] * 6


def test_an_attribute_that_is_there_keeps_its_type():
    surface = read(prism())
    surface.set_channel("point", "turn", np.ones((6, 4), np.float32))
    result = show(surface, "result", Axes())
    assert result.data.attributes["turn"].data_type == "FLOAT_COLOR"
    result.data.attributes.remove(result.data.attributes["turn"])
    result.data.attributes.new("turn", "QUATERNION", "POINT")
    show(surface, "result", Axes(), target=result)
    assert result.data.attributes["turn"].data_type == "QUATERNION"


def test_a_spoilt_memory_does_no_harm():
    surface = read(prism())
    surface.set_channel("point", "x", np.arange(6, dtype=np.int64))
    result = show(surface, "result", Axes())
    assert [one["dtype"] for one in record_of(result.data) if one["name"] == "x"] == ["int64"]
    result.data[RECORD] = "{ not json"
    assert read(result).channels["point"]["x"].dtype == np.int32
    surface.set_channel("detail", TYPES, "mine")
    with pytest.raises(InputError, match="no map of attribute types"):
        show(surface, "result", Axes(), target=result)


def test_parts_of_channels_without_blender():
    kinds = [part.type for part in attribute_parts(np.zeros((2, 5), np.int32))]
    assert kinds == ["INT"] * 5
    assert attribute_parts(np.zeros((2, 4)), "QUATERNION")[0].type == "QUATERNION"
    assert attribute_parts(np.zeros((2, 3)), "QUATERNION")[0].type == "FLOAT_VECTOR"
    assert channel_values([np.zeros((2, 3), np.float32)], "float32", (4,)) is None
    assert channel_values([np.zeros(2, np.float32)], "int32", ()) is None


def test_the_memory_is_plain_text():
    source = prism()
    set_values(source.data, "turn", "QUATERNION", "POINT", "value", np.ones((6, 4), np.float32))
    stream = read(source)
    assert json.loads(str(stream.channels["detail"][TYPES][0])) == {"turn": "QUATERNION"}
    assert isinstance(stream, Surface)
