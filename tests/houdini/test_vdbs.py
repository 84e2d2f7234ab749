"""VDBs on their way out of Loki and into it, through a stand-in whose VDBs are read from files."""

from __future__ import annotations

import hou
import numpy as np
import pytest

import loki_core as lk
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.setup_document import write_setup
from loki_graph.nodes.shape_source import unit_sphere
from loki_vfx.bridges.houdini import run_parms as parms
from loki_vfx.bridges.houdini.loki_houdini import vdb_primitives
from loki_vfx.bridges.houdini.loki_houdini.geometry_streams import read_stream, write_streams
from loki_vfx.bridges.houdini.loki_houdini.vdb_primitives import add_vdbs
from loki_vfx.serialization import volumes
from tests.houdini.nodes import loki


def field(shape=(70, 9, 13), first=(-5, 3, -20), edge=0.25):
    """A box that is no cube, of more than one piece, and of no whole blocks."""
    random = np.random.default_rng(8)
    dense = {"density": random.random(shape, np.float32) + 0.5}
    dense["heat"] = random.random(shape, np.float32) - 2.0
    return Voxels.from_dense(dense, edge * np.array(first), edge)


def wind(location="cell"):
    voxels = field()
    shape = (voxels.block_count, 3, 8, 8, 8)
    values = np.random.default_rng(9).random(shape, np.float32)
    voxels.set_channel("velocity", values, location=location)
    return voxels


def shown(voxels):
    geometry = hou.Geometry()
    add_vdbs(geometry, {"Smoke": voxels})
    return geometry


def taken(geometry, kind="any"):
    stream, remarks = read_stream(geometry, kind, "input")
    assert remarks == []
    return stream


def assert_same_field(found, expected, names):
    """At every place; blocks may be cut otherwise."""
    assert found.voxel_size == pytest.approx(expected.voxel_size, rel=1e-6)
    assert sorted(found.channels) == sorted(names)
    for name in names:
        at = [by_place(one, name) for one in (found, expected)]
        assert at[0].keys() == at[1].keys()
        assert all(at[0][place] == value for place, value in at[1].items())


def by_place(voxels, name):
    channel = voxels.channel(name)
    is_set = np.argwhere((channel.values != channel.background).any(axis=1))
    rows, local = is_set[:, 0], is_set[:, 1:]
    places = voxels.origin + voxels.voxel_size * (voxels.coords[rows] * 8 + local + 0.5)
    values = channel.values[rows, :, local[:, 0], local[:, 1], local[:, 2]]
    keys = map(tuple, np.round(places, 4).tolist())
    return dict(zip(keys, map(tuple, values.tolist()), strict=True))


def test_fields_there_and_back():
    assert_same_field(taken(shown(field())), field(), ["density", "heat"])


def test_what_is_outside_is_kept():
    voxels = Voxels([[-2, 0, 1], [40, 0, 1]], 0.1)
    values = np.full((2, 8, 8, 8), 300.0, np.float32)
    values[:, 2:4, 5, 1] = 450.0
    voxels.set_channel("temperature", values, background=300.0)
    found = taken(shown(voxels))
    assert found.channel("temperature").background == 300.0
    assert found.block_count == 2
    assert_same_field(found, voxels, ["temperature"])


def test_doubles_and_whole_numbers_are_shown_in_single_precision():
    voxels = Voxels([[0, 0, 0]], 0.5)
    voxels.set_channel("count", np.full((1, 8, 8, 8), 7, np.int32))
    voxels.set_channel("density", np.full((1, 8, 8, 8), 0.1, np.float64))
    found = taken(shown(voxels))
    assert {one.values.dtype.name for one in found.channels.values()} == {"float32"}
    assert found.channel("count").values.max() == 7.0


def test_vectors_have_the_names_of_houdini():
    geometry = shown(wind())
    assert sorted(one.attribValue("name") for one in geometry.prims()) == ["density", "heat", "vel"]
    assert_same_field(taken(geometry), wind(), ["density", "heat", "velocity"])


def test_a_staggered_vdb_is_on_faces(tmp_path):
    volumes.write_vdb(tmp_path / "wind.vdb", wind("face"))
    geometry = hou.Geometry()
    geometry.loadFromFile(str(tmp_path / "wind.vdb"))
    found = taken(geometry)
    assert found.channel("velocity").location == "face"
    assert_same_field(found, wind("face"), ["density", "heat", "velocity"])


def test_scalars_of_three_axes_are_one_vector():
    voxels = Voxels([[0, 0, 0]], 0.5)
    values = np.random.default_rng(3).random((3, 1, 8, 8, 8), np.float32)
    for axis, one in zip("xyz", values):
        voxels.set_channel(f"vel.{axis}", one)
    velocity = taken(shown(voxels)).channel("velocity").values
    np.testing.assert_array_equal(velocity, values.transpose(1, 0, 2, 3, 4))


def test_vdbs_beside_polygons_have_to_be_chosen():
    geometry = hou.Geometry()
    write_streams(geometry, {"out": unit_sphere(8, 4)})
    geometry.merge(shown(field()))
    with pytest.raises(InputError, match="holds voxels, surface: split it"):
        taken(geometry)
    assert taken(geometry, "surface").point_count == unit_sphere(8, 4).point_count
    assert_same_field(taken(geometry, "voxels"), field(), ["density", "heat"])


def test_a_vdb_on_another_lattice_is_left_out_and_told():
    geometry = shown(field())
    coarse = Voxels([[0, 0, 0]], 0.5)
    coarse.set_channel("fuel", np.ones((1, 8, 8, 8), np.float32))
    geometry.merge(shown(coarse))
    stream, remarks = read_stream(geometry, "any", "input")
    assert_same_field(stream, field(), ["density", "heat"])
    assert remarks == [
        'input: not carried: VDB "fuel", which is there twice or lies on another lattice'
    ]


def test_what_cannot_be_read_is_an_error(monkeypatch):
    geometry = shown(field())
    with monkeypatch.context() as patch:
        turned = lambda self, index: hou.Vector3(index[1], index[0], index[2])  # noqa: E731
        patch.setattr(hou.VDB, "indexToPos", turned)
        with pytest.raises(InputError, match='VDB "density" has no cubes along the axes'):
            taken(geometry)
        beside = hou.Geometry()
        write_streams(beside, {"out": unit_sphere(8, 4)})
        beside.merge(geometry)
        stream, remarks = read_stream(beside, "any", "input")
        assert stream.type_name == "surface" and "no cubes" in remarks[0]
    with monkeypatch.context() as patch:
        patch.setattr(hou.VDB, "voxelRangeAsFloat", lambda self, range: (0.0,) * 7)
        with pytest.raises(InputError, match=r'"density" gave 7 values for a box of \['):
            taken(geometry)
    monkeypatch.setattr(vdb_primitives, "MAX_VOXELS", 1000)
    with pytest.raises(InputError, match=r"spans \[70, 9, 13\] voxels"):
        taken(geometry)


def smoke():
    return lk.SolverSetup(
        "smoke",
        lk.VolumeObject(name="Smoke", voxel_size=0.25),
        lk.PressureMaterial(),
        lk.BuoyancyForce(),
        lk.VolumeEmission(source="burner", density=1.0, temperature=600.0),
    )


def test_smoke_from_a_vdb_is_shown_as_vdbs(folder, tmp_path):
    burner = Voxels.from_dense({"density": np.ones((4, 4, 4), np.float32)}, (0.0,) * 3, 0.25)
    write_setup(smoke(), tmp_path / "smoke.loki.json")

    def cooked(node):
        node.geometry().clear()
        add_vdbs(node.geometry(), {"Burner": burner})

    source = hou.SopNode("source", "source", {}, cooked)
    given = {parms.SOURCE: "file", parms.FILE: str(tmp_path / "smoke.loki.json")}
    node = loki("solver", folder, (source,), **given)
    hou.setFrame(3)
    node.cook()
    alone = lk.Solver(smoke(), {"burner": burner})
    alone.run(2)
    expected = alone.outputs()["Smoke"]
    names = {one.attribValue("name") for one in node.geometry().prims()}
    assert {"density", "temperature", "vel"} <= names
    found = taken(node.geometry())
    for name in ("density", "temperature"):
        assert by_place(found, name) == by_place(expected, name)
