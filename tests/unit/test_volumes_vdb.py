"""VDB files: what was written is read again, at the same place, by whichever module is there."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError, InputError
from loki_vfx.serialization import volumes
from loki_vfx.serialization.volumes import find_openvdb, read_vdb, write_vdb

#: It has no package of its own; Blender's brings it, and `make numpy1` runs these tests there.
NO_OPENVDB = "openvdb comes with Blender's Python: make numpy1"
needs_openvdb = pytest.mark.skipif(find_openvdb() is None, reason=NO_OPENVDB)


@pytest.fixture(params=["openvdb", "tinyvdb"])
def module(request, monkeypatch):
    """Run a test through each module; what is not installed is skipped."""
    if request.param == "openvdb" and find_openvdb() is None:
        pytest.skip(NO_OPENVDB)
    if request.param == "tinyvdb":
        pytest.importorskip("tinyvdb")
        monkeypatch.setattr(volumes, "find_openvdb", lambda: None)
    return request.param


def smoke(seed: int = 3) -> Voxels:
    rng = np.random.default_rng(seed)
    coords = np.unique(rng.integers(-40, 40, (60, 3)), axis=0)
    voxels = Voxels(coords, 0.05, origin=(1.0, -2.0, 0.5))
    density = rng.random((len(coords), 8, 8, 8), dtype=np.float32)
    density[density < 0.5] = 0.0
    voxels.set_channel("density", density)
    voxels.set_channel("heat", rng.normal(size=(len(coords), 8, 8, 8)).astype(np.float32))
    return voxels


def by_block(voxels: Voxels, channel: str) -> dict:
    values = voxels.channel(channel).values
    return {tuple(c): values[i] for i, c in enumerate(voxels.coords.tolist()) if values[i].any()}


def assert_same(found: Voxels, expected: Voxels, channel: str) -> None:
    left, right = by_block(found, channel), by_block(expected, channel)
    assert left.keys() == right.keys()
    for coord, values in right.items():
        np.testing.assert_array_equal(left[coord], values)


def test_round_trip_is_exact_and_sparse(tmp_path, module):
    voxels = smoke()
    path = tmp_path / "smoke.vdb"
    write_vdb(path, voxels)
    again = read_vdb(path)
    assert set(again.channels) == {"density", "heat"}
    assert again.block_count == voxels.block_count
    assert_same(again, voxels, "density")
    assert_same(again, voxels, "heat")
    assert again.voxel_size == pytest.approx(0.05, rel=1e-12)
    np.testing.assert_allclose(again.origin, voxels.origin, atol=1e-14)
    assert [p.name for p in tmp_path.iterdir()] == ["smoke.vdb"]


def test_one_grid_by_name_and_unknown_names(tmp_path, module):
    path = tmp_path / "smoke.vdb"
    write_vdb(path, smoke(), classes={"density": "fog volume"})
    assert list(read_vdb(path, names=["heat"]).channels) == ["heat"]
    with pytest.raises(InputError, match='did you mean "density"'):
        read_vdb(path, names=["densty"])


def test_empty_volumes_are_written_and_read(tmp_path, module):
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("density", np.zeros((1, 8, 8, 8), np.float32))
    write_vdb(tmp_path / "nothing.vdb", voxels)
    assert read_vdb(tmp_path / "nothing.vdb").block_count == 0


def test_blocks_that_are_no_leaves_keep_their_voxels(tmp_path, module):
    voxels = Voxels([[1, 0, -1]], 0.1, block_resolution=4)
    values = np.arange(1, 65, dtype=np.float32).reshape(1, 4, 4, 4)
    voxels.set_channel("density", values)
    write_vdb(tmp_path / "small.vdb", voxels)
    again = read_vdb(tmp_path / "small.vdb")
    assert again.coords.tolist() == [[0, 0, -1]]
    np.testing.assert_array_equal(again.channel("density").values[0, 0, 4:, :4, 4:], values[0])


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 5000, b" BDV" + b"\xff" * 5000])
def test_files_that_are_no_vdb_raise_format_errors(tmp_path, module, content):
    path = tmp_path / "broken.vdb"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"broken\.vdb"):
        read_vdb(path)


def test_missing_files_and_cut_off_files_raise_format_errors(tmp_path, module):
    with pytest.raises(FormatError, match="is not there"):
        read_vdb(tmp_path / "none.vdb")
    path = tmp_path / "smoke.vdb"
    write_vdb(path, smoke())
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(FormatError, match=r"smoke\.vdb"):
        read_vdb(path)


def test_channels_that_vdb_does_not_have_are_named(tmp_path, module):
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("pair", np.zeros((1, 2, 8, 8, 8), np.float32))
    with pytest.raises(InputError, match='channel "pair" is float32 with 2 components'):
        write_vdb(tmp_path / "a.vdb", voxels)
    with pytest.raises(InputError, match="unknown VDB class"):
        write_vdb(tmp_path / "a.vdb", smoke(), classes={"density": "fog"})
    assert list(tmp_path.iterdir()) == []


def test_without_openvdb_other_numbers_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(volumes, "find_openvdb", lambda: None)
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("count", np.ones((1, 8, 8, 8), np.int32))
    with pytest.raises(InputError, match=r'channel "count" is int32; .* install openvdb'):
        write_vdb(tmp_path / "a.vdb", voxels)
    assert list(tmp_path.iterdir()) == []


@needs_openvdb
@pytest.mark.parametrize("location", ["cell", "face"])
def test_a_vector_that_is_written_without_openvdb_is_read_with_it(tmp_path, monkeypatch, location):
    voxels = Voxels([[0, 0, 0], [-3, 2, 7]], 0.25, origin=(0.1, 0.2, 0.3))
    velocity = np.random.default_rng(5).normal(size=(2, 3, 8, 8, 8)).astype(np.float32)
    voxels.set_channel("velocity", velocity, location=location)
    with monkeypatch.context() as patch:
        patch.setattr(volumes, "find_openvdb", lambda: None)
        write_vdb(tmp_path / "wind.vdb", voxels)
    again = read_vdb(tmp_path / "wind.vdb")
    assert_same(again, voxels, "velocity")
    assert again.channel("velocity").location == location


@needs_openvdb
@pytest.mark.parametrize("location", ["cell", "face"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_vector_grids_keep_components_and_location(tmp_path, location, dtype):
    rng = np.random.default_rng(5)
    voxels = Voxels([[0, 0, 0], [-3, 2, 7]], 0.25, origin=(0.1, 0.2, 0.3))
    velocity = rng.integers(1, 100, (2, 3, 8, 8, 8)).astype(dtype)
    voxels.set_channel("velocity", velocity, location=location)
    path = tmp_path / "wind.vdb"
    write_vdb(path, voxels)
    again = read_vdb(path)
    assert_same(again, voxels, "velocity")
    assert again.channel("velocity").location == location
    kind = "staggered" if location == "face" else "unknown"
    assert find_openvdb().readGridMetadata(str(path), "velocity").gridClass == kind


@needs_openvdb
@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float64"])
def test_scalar_grids_of_other_dtypes_and_backgrounds(tmp_path, dtype):
    background = 0.0 if dtype == "bool" else 3.0
    values = np.random.default_rng(6).integers(0, 2, (1, 8, 8, 8)).astype(dtype)
    voxels = Voxels([[2, 2, 2]], 0.1)
    voxels.set_channel("a", values, background=background)
    write_vdb(tmp_path / "a.vdb", voxels)
    again = read_vdb(tmp_path / "a.vdb").channel("a")
    np.testing.assert_array_equal(again.values[0, 0], values[0])
    assert (again.values.dtype.name, again.background) == (dtype, background)


@needs_openvdb
def test_a_voxel_is_where_openvdb_says(tmp_path):
    voxels = Voxels([[1, 0, 0]], 0.5, origin=(10.0, 0.0, 0.0))
    voxels.set_channel("a", np.ones((1, 8, 8, 8), np.float32))
    write_vdb(tmp_path / "a.vdb", voxels)
    transform = find_openvdb().readGridMetadata(str(tmp_path / "a.vdb"), "a").transform
    centre = transform.indexToWorld((8, 0, 0))
    np.testing.assert_allclose(centre, voxels.bounds()[0] + 0.25, atol=1e-12)


@needs_openvdb
def test_openvdb_reads_what_tinyvdb_wrote_with_its_names_and_classes(tmp_path, monkeypatch):
    pytest.importorskip("tinyvdb")
    voxels, path = smoke(), tmp_path / "smoke.vdb"
    with monkeypatch.context() as patch:
        patch.setattr(volumes, "find_openvdb", lambda: None)
        write_vdb(path, voxels, classes={"density": "fog volume"})
    assert_same(read_vdb(path), voxels, "density")
    found = {g.name: g.gridClass for g in find_openvdb().readAllGridMetadata(str(path))}
    assert found == {"density": "fog volume", "heat": "unknown"}


@needs_openvdb
def test_rotated_grids_are_refused(tmp_path):
    openvdb = find_openvdb()
    grid = openvdb.FloatGrid()
    grid.name = "turned"
    grid.copyFromArray(np.ones((8, 8, 8), np.float32))
    grid.transform.postRotate(0.3)
    openvdb.write(str(tmp_path / "turned.vdb"), grids=[grid])
    with pytest.raises(FormatError, match="rotated or stretched"):
        read_vdb(tmp_path / "turned.vdb")


@needs_openvdb
def test_active_tiles_are_read_as_voxels(tmp_path):
    openvdb = find_openvdb()
    grid = openvdb.FloatGrid()
    grid.name = "solid"
    grid.fill((0, 0, 0), (31, 15, 7), 2.0)
    openvdb.write(str(tmp_path / "solid.vdb"), grids=[grid])
    voxels = read_vdb(tmp_path / "solid.vdb")
    assert voxels.block_count == 8
    assert (voxels.channel("solid").values == 2.0).all()
