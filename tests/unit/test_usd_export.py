"""USD stages of frame caches: read back with USD's own library, at every frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_vfx.serialization import usd_stage
from loki_vfx.serialization.cache_export import export_frames
from loki_vfx.serialization.usd_names import PrimPaths, UniqueNames, plain_name
from loki_vfx.serialization.volumes import read_vdb
from tests.unit.export_scenes import Streams, cache_of, sheet, smoke

pytest.importorskip("pxr", reason="needs usd-core")
from pxr import Usd, UsdGeom, UsdVol


def exported(folder: Path, frames: dict[int, Streams], **options: Any) -> Any:
    """Write a cache and its stage, and return the open stage."""
    cache = cache_of(folder / "cache", frames)
    export_frames(cache, folder / "shot.usdc", **options)
    return Usd.Stage.Open(str(folder / "shot.usdc"))


def at(stage: Any, path: str, attribute: str, frame: int) -> Any:
    return np.array(stage.GetPrimAtPath(path).GetAttribute(attribute).Get(frame))


def times(stage: Any, path: str, attribute: str) -> list[float]:
    return list(stage.GetPrimAtPath(path).GetAttribute(attribute).GetTimeSamples())


# -- what is written -------------------------------------------------------------------------------


def test_the_stage_says_what_it_is_of(tmp_path):
    stage = exported(tmp_path, {frame: {"Sheet": sheet(frame)} for frame in (-1, 0, 1)})
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (-1, 1)
    assert stage.GetTimeCodesPerSecond() == stage.GetFramesPerSecond() == 25.0
    assert UsdGeom.GetStageMetersPerUnit(stage) == 1.0
    assert UsdGeom.GetStageUpAxis(stage) == "Y"
    assert stage.GetDefaultPrim().GetPath() == "/shot"
    layer = stage.GetRootLayer()
    assert dict(layer.customLayerData["loki"]) == {"setup": "shot", "setup_hash": "a" * 64}
    assert "shot" in layer.comment


def test_a_mesh_moves_and_its_topology_is_written_once(tmp_path):
    frames = {}
    for frame in (1, 2, 3):
        mesh = sheet(frame)
        mesh.set_channel("point", "velocity", np.full((10, 3), [0.0, 2.5, 0.0]))
        mesh.set_channel("vertex", "normal", np.tile([0.0, 1.0, 0.0], (16, 1)))
        frames[frame] = {"Cloth/Sheet": mesh}
    stage = exported(tmp_path, frames)
    path = "/shot/Cloth/Sheet"
    assert stage.GetPrimAtPath(path).GetTypeName() == "Mesh"
    assert at(stage, path, "subdivisionScheme", 1) == "none"
    assert times(stage, path, "points") == [1.0, 2.0, 3.0]
    for frame in (1, 2, 3):
        expected = frames[frame]["Cloth/Sheet"].positions.astype(np.float32)
        np.testing.assert_array_equal(at(stage, path, "points", frame), expected)
        np.testing.assert_array_equal(
            at(stage, path, "extent", frame), [expected.min(axis=0), expected.max(axis=0)]
        )
    for name in ("faceVertexCounts", "faceVertexIndices", "normals"):
        assert times(stage, path, name) == []
    mesh = frames[1]["Cloth/Sheet"]
    assert at(stage, path, "faceVertexCounts", 2).tolist() == [4, 4, 4, 4]
    np.testing.assert_array_equal(at(stage, path, "faceVertexIndices", 2), mesh.face_vertices)
    assert UsdGeom.Mesh.Get(stage, path).GetNormalsInterpolation() == "faceVarying"
    # equal at all frames, and sampled all the same: USD moves points only by velocities that are
    assert times(stage, path, "velocities") == [1.0, 2.0, 3.0]
    moved = np.array(UsdGeom.PointBased.Get(stage, path).ComputePointsAtTime(2.5, 2.0))
    np.testing.assert_allclose(moved[:, 1], 0.2 + 2.5 * 0.5 / 25.0, rtol=1e-6)


def test_changing_topology_has_samples_where_it_changes(tmp_path):
    faces = {1: 4, 2: 4, 3: 6, 4: 6, 5: 2}
    frames = {frame: {"Liquid": sheet(frame, count)} for frame, count in faces.items()}
    stage = exported(tmp_path, frames)
    assert times(stage, "/shot/Liquid", "faceVertexCounts") == [1.0, 3.0, 5.0]
    for frame, count in faces.items():
        assert len(at(stage, "/shot/Liquid", "faceVertexCounts", frame)) == count
        assert len(at(stage, "/shot/Liquid", "points", frame)) == 2 * count + 2


def test_real_numbers_that_stay_the_same_for_a_while_are_not_blended(tmp_path):
    frames = {}
    for frame, heat in {1: 0.0, 2: 0.0, 3: 0.0, 4: 8.0, 5: 8.0}.items():
        mesh = sheet(1)
        mesh.set_channel("primitive", "heat", np.full(4, heat))
        frames[frame] = {"Sheet": mesh}
    stage = exported(tmp_path, frames)
    assert times(stage, "/shot/Sheet", "points") == []
    assert times(stage, "/shot/Sheet", "primvars:heat") == [1.0, 3.0, 4.0]
    for frame, heat in ((2, 0.0), (3.5, 4.0), (5, 8.0)):
        assert at(stage, "/shot/Sheet", "primvars:heat", frame).tolist() == [heat] * 4


def test_curves_are_linear_with_widths_and_closed_ones_stand_apart(tmp_path):
    positions = np.random.default_rng(1).random((13, 3))
    curves = Curves(positions, [0, 4, 9, 11, 13], [False, True, True, False])
    curves.set_channel("point", "radius", np.arange(1.0, 14.0))
    curves.set_channel("vertex", "along", np.arange(13.0))
    curves.set_channel("primitive", "strand", np.arange(4, dtype=np.int64))
    stage = exported(tmp_path, {1: {"Hair": curves}})
    kept = [0, 1, 2, 3, 9, 10, 11, 12]  # a closed curve of two points is a segment
    for path, points, counts, wrap in (
        ("/shot/Hair", kept, [4, 2, 2], "nonperiodic"),
        ("/shot/Hair_closed", [4, 5, 6, 7, 8], [5], "periodic"),
    ):
        assert stage.GetPrimAtPath(path).GetTypeName() == "BasisCurves"
        assert at(stage, path, "type", 1) == "linear" and at(stage, path, "wrap", 1) == wrap
        assert at(stage, path, "curveVertexCounts", 1).tolist() == counts
        np.testing.assert_array_equal(
            at(stage, path, "points", 1), positions[points].astype(np.float32)
        )
        np.testing.assert_array_equal(at(stage, path, "widths", 1), 2.0 * (1.0 + np.array(points)))
        assert UsdGeom.BasisCurves.Get(stage, path).GetWidthsInterpolation() == "vertex"
        assert at(stage, path, "primvars:along", 1).tolist() == points
    assert at(stage, "/shot/Hair", "primvars:strand", 1).tolist() == [0, 2, 3]
    assert at(stage, "/shot/Hair_closed", "primvars:strand", 1).tolist() == [1]
    low, high = at(stage, "/shot/Hair", "extent", 1)
    np.testing.assert_allclose(high - positions[kept].max(axis=0), 13.0, rtol=1e-6)
    np.testing.assert_allclose(positions[kept].min(axis=0) - low, 13.0, rtol=1e-6)


def test_points_carry_ids_widths_and_velocities_while_their_number_changes(tmp_path):
    frames = {}
    for frame in (1, 2):
        points = Points(np.random.default_rng(frame).random((5 + frame, 3)))
        points.set_channel("point", "id", np.arange(5 + frame) + (1 << 40))
        points.set_channel("point", "velocity", np.full((5 + frame, 3), float(frame)))
        points.set_channel("detail", "radius", 0.25)
        frames[frame] = {"Spray": points}
    stage = exported(tmp_path, frames)
    for frame in (1, 2):
        ids = at(stage, "/shot/Spray", "ids", frame)
        assert ids.tolist() == [(1 << 40) + i for i in range(5 + frame)]
        assert at(stage, "/shot/Spray", "velocities", frame).tolist() == [[frame] * 3] * (5 + frame)
        assert at(stage, "/shot/Spray", "widths", frame).tolist() == [0.5]
    assert UsdGeom.Points.Get(stage, "/shot/Spray").GetWidthsInterpolation() == "constant"


def test_wireframes_are_segments_and_bodies_their_boundary(tmp_path):
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    truss = Wireframe(corners, [[0, 1], [1, 2], [0, 3]])
    truss.set_channel("point", "load", np.arange(4.0))
    truss.set_channel("primitive", "strain", np.arange(3.0))
    jelly = Body(corners, [[0, 1, 2, 3]])
    jelly.set_channel("point", "stress", np.arange(4.0))
    jelly.set_channel("primitive", "damage", np.ones(1))
    cache = cache_of(tmp_path / "cache", {1: {"Truss": truss, "Jelly": jelly}})
    report = export_frames(cache, tmp_path / "shot.usda")
    assert report.left_out == ["Jelly: primitive damage"]
    stage = Usd.Stage.Open(str(tmp_path / "shot.usda"))
    assert at(stage, "/shot/Truss", "curveVertexCounts", 1).tolist() == [2, 2, 2]
    ends = truss.edge_points.reshape(-1)
    np.testing.assert_array_equal(at(stage, "/shot/Truss", "points", 1), corners[ends])
    assert at(stage, "/shot/Truss", "primvars:load", 1).tolist() == ends.tolist()
    assert at(stage, "/shot/Truss", "primvars:strain", 1).tolist() == [0.0, 1.0, 2.0]
    assert at(stage, "/shot/Jelly", "faceVertexCounts", 1).tolist() == [3, 3, 3, 3]
    assert at(stage, "/shot/Jelly", "primvars:stress", 1).tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("location", "name", "values", "kind", "interpolation", "primvar"),
    [
        ("point", "heat", np.ones(10), "float[]", "vertex", "heat"),
        ("point", "spin", np.ones((10, 3), np.float32), "float3[]", "vertex", "spin"),
        ("point", "force", np.ones((10, 3)), "vector3f[]", "vertex", "force"),
        ("point", "orient", np.ones((10, 4)), "float4[]", "vertex", "orient"),
        ("point", "stress", np.ones((10, 3, 3)), "float[]", "vertex", "stress"),
        ("point", "wet", np.ones(10, bool), "bool[]", "vertex", "wet"),
        ("primitive", "piece", np.arange(4, dtype=np.int32), "int[]", "uniform", "piece"),
        ("primitive", "small", np.arange(4), "int[]", "uniform", "small"),
        ("primitive", "huge", np.arange(4) + (1 << 40), "int64[]", "uniform", "huge"),
        ("primitive", "flags", np.ones((4, 2), np.uint8), "int2[]", "uniform", "flags"),
        ("vertex", "uv", np.ones((16, 2)), "texCoord2f[]", "faceVarying", "st"),
        ("vertex", "Cd", np.ones((16, 3)), "color3f[]", "faceVarying", "displayColor"),
        ("detail", "mass", 3.5, "float[]", "constant", "mass"),
        ("detail", "note", "wet cloth", "string[]", "constant", "note"),
        ("point", "Grüße 2", np.ones(10), "float[]", "vertex", "Gru_e_2"),
    ],
)
def test_channels_become_primvars(tmp_path, location, name, values, kind, interpolation, primvar):
    mesh = sheet(1)
    mesh.set_channel(location, name, values)
    stage = exported(tmp_path, {1: {"Sheet": mesh}})
    found = UsdGeom.PrimvarsAPI(stage.GetPrimAtPath("/shot/Sheet")).GetPrimvar(primvar)
    assert str(found.GetTypeName()) == kind
    assert found.GetInterpolation() == interpolation
    count = mesh.count(location)
    assert len(found.Get()) == count * found.GetElementSize()
    given = mesh.channels[location][name]
    assert np.array(found.Get()).reshape(given.shape).tolist() == given.tolist()


def test_two_channels_of_one_name_are_told_apart(tmp_path):
    mesh = sheet(1)
    mesh.set_channel("point", "heat", np.zeros(10))
    mesh.set_channel("primitive", "heat", np.ones(4))
    mesh.set_channel("primitive", "heat!", np.full(4, 2.0))
    mesh.set_channel("primitive", "heat?", np.full(4, 3.0))
    stage = exported(tmp_path, {1: {"Sheet": mesh}})
    found = {
        name: at(stage, "/shot/Sheet", f"primvars:{name}", 1)[0]
        for name in ("heat", "heat_primitive", "heat_", "heat__1")
    }
    assert found == {"heat": 0.0, "heat_primitive": 1.0, "heat_": 2.0, "heat__1": 3.0}


def test_volumes_point_to_vdb_files_beside_the_stage(tmp_path):
    frames = {frame: {"Fire/Smoke": smoke(frame)} for frame in (9, 10)}
    stage = exported(tmp_path, frames)
    volume = UsdVol.Volume.Get(stage, "/shot/Fire/Smoke")
    assert volume
    for frame in (9, 10):
        field = UsdVol.OpenVDBAsset.Get(stage, volume.GetFieldPath("density"))
        asset = field.GetFilePathAttr().Get(frame)
        assert asset.path == f"./shot_vdb/Fire_Smoke_{frame:04d}.vdb"
        assert Path(asset.resolvedPath) == tmp_path / asset.path
        assert field.GetFieldNameAttr().Get() == "density"
        assert field.GetFieldDataTypeAttr().Get() == "float"
        assert field.GetFieldClassAttr().Get() == "fogVolume"
        grids = read_vdb(asset.resolvedPath, names=["density"])
        expected = frames[frame]["Fire/Smoke"]
        np.testing.assert_array_equal(grids.to_dense("density"), expected.to_dense("density"))
        np.testing.assert_allclose(
            at(stage, "/shot/Fire/Smoke", "extent", frame), expected.bounds(), rtol=1e-6
        )
    assert set(volume.GetFieldPaths()) == {"density", "velocity"}
    velocity = UsdVol.OpenVDBAsset.Get(stage, volume.GetFieldPath("velocity"))
    assert velocity.GetFieldDataTypeAttr().Get() == "float3"


def test_objects_that_begin_late_or_end_early(tmp_path):
    frames: dict[int, Streams] = {frame: {} for frame in range(1, 6)}
    for frame in (3, 4):
        frames[frame] = {"Late": sheet(frame), "Puff": smoke(frame)}
    for frame in (1, 2, 5):
        frames[frame] = {"Early": sheet(frame)}
    stage = exported(tmp_path, frames)
    there = {"Late": (3, 4), "Puff": (3, 4), "Early": (1, 2, 5)}
    for name, present in there.items():
        for frame in range(1, 6):
            shown = UsdGeom.Imageable.Get(stage, f"/shot/{name}").ComputeVisibility(frame)
            assert shown == ("inherited" if frame in present else "invisible"), (name, frame)
            if name != "Puff":
                expected = 10 if frame in present else 0
                assert len(at(stage, f"/shot/{name}", "points", frame)) == expected
                corners = at(stage, f"/shot/{name}", "faceVertexIndices", frame)
                assert len(corners) == 1.6 * expected
    assert times(stage, "/shot/Late", "faceVertexCounts") == [1.0, 3.0, 5.0]
    bound = UsdGeom.Imageable.Get(stage, "/shot/Late").ComputeWorldBound(1, "default")
    assert bound.GetRange().IsEmpty()


def test_a_channel_that_comes_later_is_empty_before(tmp_path):
    late = sheet(2)
    late.set_channel("point", "heat", np.ones(10))
    stage = exported(tmp_path, {1: {"Sheet": sheet(1)}, 2: {"Sheet": late}, 3: {"Sheet": sheet(3)}})
    counts = [len(at(stage, "/shot/Sheet", "primvars:heat", frame)) for frame in (1, 2, 3)]
    assert counts == [0, 10, 0]


def test_z_up_turns_meshes_vectors_and_volumes_alike(tmp_path):
    mesh = sheet(1)
    mesh.set_channel("point", "velocity", np.tile([1.0, 2.0, 3.0], (10, 1)))
    voxels = Voxels([[0, 0, 0]], 0.5, origin=(1.0, 2.0, 3.0))
    density = np.zeros((1, 8, 8, 8), np.float32)
    density[0, 1, 2, 3] = 7.0  # its centre is (1.75, 3.25, 4.75)
    voxels.set_channel("density", density)
    stage = exported(tmp_path, {1: {"Sheet": mesh, "Fog": voxels}}, up="z")
    assert UsdGeom.GetStageUpAxis(stage) == "Z"
    x, y, z = mesh.positions.astype(np.float32).T
    np.testing.assert_array_equal(
        at(stage, "/shot/Sheet", "points", 1), np.column_stack([x, -z, y])
    )
    np.testing.assert_array_equal(at(stage, "/shot/Sheet", "velocities", 1)[0], [1.0, -3.0, 2.0])
    grids = read_vdb(tmp_path / "shot_vdb" / "Fog_0001.vdb", names=["density"])
    place = np.argwhere(grids.to_dense("density")[0] == 7.0)[0] + grids.first_voxel()
    centre = grids.origin + grids.voxel_size * (place + 0.5)
    np.testing.assert_allclose(centre, [1.75, -4.75, 3.25], rtol=1e-6)


def test_every_kind_passes_the_checks_of_usd_itself(tmp_path):
    validation = pytest.importorskip("pxr.UsdValidation")
    spray = Points(np.random.default_rng(0).random((4, 3)))
    spray.set_channel("point", "radius", np.ones(4))
    hair = Curves.from_strands(np.random.default_rng(0).random((2, 3, 3)))
    kinds = {"Group/Sheet": sheet(1), "Smoke": smoke(1), "Spray": spray, "Hair": hair}
    stage = exported(tmp_path, {1: kinds, 2: {"Smoke": smoke(2)}, 3: kinds})
    validators = validation.ValidationRegistry().GetOrLoadAllValidators()
    assert len(validators) > 10
    problems = validation.ValidationContext(validators).Validate(stage)
    assert [problem.GetMessage() for problem in problems] == []


def test_values_that_go_to_the_disk_on_the_way_are_the_same(tmp_path, monkeypatch):
    frames = {f: {"Sheet": sheet(f), "Liquid": sheet(f, 2 + f)} for f in range(1, 7)}
    whole = exported(tmp_path / "whole", frames).ExportToString(addSourceFileComment=False)
    monkeypatch.setattr(usd_stage, "FLUSH_BYTES", 0)
    assert exported(tmp_path / "bits", frames).ExportToString(addSourceFileComment=False) == whole


# -- names -----------------------------------------------------------------------------------------


def test_odd_names_become_prims_that_remember_them(tmp_path):
    names = ["Haar/Strähne", "2nd sheet", "2nd/sheet", "煙", "霧", "A", "A/B", "a b", "a_b"]
    stage = exported(tmp_path, {1: {name: sheet(1) for name in names}})
    prims = [prim for prim in stage.Traverse() if prim.GetTypeName() == "Mesh"]
    assert {prim.GetCustomDataByKey("loki:path") for prim in prims} == set(names)
    assert all(str(prim.GetPath()).isascii() for prim in prims)
    for prim in prims:  # geometry lies in Groups only
        assert prim.GetParent().GetTypeName() == "Xform"


def test_names_are_plain_unique_and_lasting():
    assert [plain_name(one) for one in ("Strähne", "2nd", "a-b", "")] == [
        "Strahne", "_2nd", "a_b", "_",
    ]  # fmt: skip
    names = UniqueNames()
    assert [names.of(key, "x y") for key in (1, 2, 1, 3)] == ["x_y", "x_y_1", "x_y", "x_y_2"]
    paths = PrimPaths("my shot")
    assert paths.object("A/B") == "/my_shot/A/B"
    assert paths.object("A") == "/my_shot/A_1"
    assert paths.groups("A/B/C") == ["/my_shot/A", "/my_shot/A/B_1"]
