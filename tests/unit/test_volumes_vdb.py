"""VDB files: what was written is read again, at the same place, and openvdb agrees on both."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import loki_core as lk
from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError, InputError
from loki_graph import Evaluator, Graph
from loki_graph.nodes.file_input import FileInput
from loki_vfx.serialization import vdb_chunks, vdb_reader, volumes
from loki_vfx.serialization.vdb_openvdb import find_openvdb, read_with_openvdb
from loki_vfx.serialization.volumes import read_grids, read_vdb, write_vdb

#: It has no package of its own; Blender's brings it, and `make numpy1` runs these tests there.
NO_OPENVDB = "openvdb comes with Blender's Python: make numpy1"
needs_openvdb = pytest.mark.skipif(find_openvdb() is None, reason=NO_OPENVDB)
#: Written by openvdb 12: Blosc, a tile, a vector on faces, half floats, with `written_values`.
FROM_OPENVDB = Path(__file__).parent / "files" / "openvdb_blosc.vdb"


@pytest.fixture(params=["zip", "none"])
def compression(request):
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


def test_round_trip_is_exact_and_sparse(tmp_path, compression):
    voxels = smoke()
    path = tmp_path / "smoke.vdb"
    write_vdb(path, voxels, compression=compression)
    again = read_vdb(path)
    assert set(again.channels) == {"density", "heat"}
    assert again.block_count == voxels.block_count
    assert_same(again, voxels, "density")
    assert_same(again, voxels, "heat")
    assert again.voxel_size == pytest.approx(0.05, rel=1e-12)
    np.testing.assert_allclose(again.origin, voxels.origin, atol=1e-14)
    assert [p.name for p in tmp_path.iterdir()] == ["smoke.vdb"]


def test_one_grid_by_name_and_unknown_names(tmp_path):
    path = tmp_path / "smoke.vdb"
    write_vdb(path, smoke(), classes={"density": "fog volume"})
    assert list(read_vdb(path, names=["heat"]).channels) == ["heat"]
    with pytest.raises(InputError, match='did you mean "density"'):
        read_vdb(path, names=["densty"])


def test_empty_volumes_are_written_and_read(tmp_path):
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("density", np.zeros((1, 8, 8, 8), np.float32))
    write_vdb(tmp_path / "nothing.vdb", voxels)
    assert read_vdb(tmp_path / "nothing.vdb").block_count == 0


def test_blocks_that_are_no_leaves_keep_their_voxels(tmp_path):
    voxels = Voxels([[1, 0, -1]], 0.1, block_resolution=4)
    values = np.arange(1, 65, dtype=np.float32).reshape(1, 4, 4, 4)
    voxels.set_channel("density", values)
    write_vdb(tmp_path / "small.vdb", voxels)
    again = read_vdb(tmp_path / "small.vdb")
    assert again.coords.tolist() == [[0, 0, -1]]
    np.testing.assert_array_equal(again.channel("density").values[0, 0, 4:, :4, 4:], values[0])


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 5000, b" BDV" + b"\xff" * 5000])
def test_files_that_are_no_vdb_raise_format_errors(tmp_path, content):
    path = tmp_path / "broken.vdb"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"broken\.vdb"):
        read_vdb(path)


def test_missing_files_and_cut_off_files_raise_format_errors(tmp_path):
    with pytest.raises(FormatError, match="is not there"):
        read_vdb(tmp_path / "none.vdb")
    path = tmp_path / "smoke.vdb"
    write_vdb(path, smoke())
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(FormatError, match=r"smoke\.vdb"):
        read_vdb(path)


def test_channels_that_vdb_does_not_have_are_named(tmp_path):
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("pair", np.zeros((1, 2, 8, 8, 8), np.float32))
    with pytest.raises(InputError, match='channel "pair" is float32 with 2 components'):
        write_vdb(tmp_path / "a.vdb", voxels)
    with pytest.raises(InputError, match="unknown VDB class"):
        write_vdb(tmp_path / "a.vdb", smoke(), classes={"density": "fog"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("location", ["cell", "face"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_vector_grids_keep_components_and_location(tmp_path, compression, location, dtype):
    voxels = Voxels([[0, 0, 0], [-3, 2, 7]], 0.25, origin=(0.1, 0.2, 0.3))
    velocity = np.random.default_rng(5).integers(1, 100, (2, 3, 8, 8, 8)).astype(dtype)
    voxels.set_channel("velocity", velocity, location=location)
    path = tmp_path / "wind.vdb"
    write_vdb(path, voxels, compression=compression)
    again = read_vdb(path)
    assert_same(again, voxels, "velocity")
    assert again.channel("velocity").location == location


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float64"])
def test_scalar_grids_of_other_dtypes_and_backgrounds(tmp_path, dtype, compression):
    background = 0.0 if dtype == "bool" else 3.0
    values = np.random.default_rng(6).integers(0, 2, (1, 8, 8, 8)).astype(dtype)
    voxels = Voxels([[2, 2, 2]], 0.1)
    voxels.set_channel("a", values, background=background)
    write_vdb(tmp_path / "a.vdb", voxels, compression=compression)
    again = read_vdb(tmp_path / "a.vdb").channel("a")
    np.testing.assert_array_equal(again.values[0, 0], values[0])
    assert (again.values.dtype.name, again.background) == (dtype, background)


def test_zip_and_halves_make_files_smaller(tmp_path):
    voxels = Voxels(np.argwhere(np.ones((4, 4, 4))), 0.1)
    places = np.arange(64 * 512, dtype=np.float32).reshape(64, 8, 8, 8)
    voxels.set_channel("density", np.sin(1e-3 * places).astype(np.float32) + 2.0)
    sizes = {}
    for half in (False, True):
        for compression in ("none", "zip"):
            path = tmp_path / f"{compression}_{half}.vdb"
            write_vdb(path, voxels, compression=compression, half=half)
            sizes[compression, half] = path.stat().st_size
            found = read_vdb(path).channel("density").values
            error = np.abs(found - voxels.channel("density").values).max()
            assert error <= (2.0**-10 if half else 0.0)  # half a step of halves in 2...4
    assert sizes["zip", False] < 0.9 * sizes["none", False]
    assert sizes["none", True] < 0.6 * sizes["none", False]
    assert sizes["zip", True] < 0.9 * sizes["none", True]


def test_halves_that_would_be_infinite_are_refused(tmp_path):
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("heat", np.full((1, 8, 8, 8), 1e5, np.float32))
    with pytest.raises(InputError, match=r'"heat" has numbers up to 100000.*at most 65504'):
        write_vdb(tmp_path / "a.vdb", voxels, half=True)
    with pytest.raises(InputError, match='unknown VDB compression "gzip"; did you mean "zip"'):
        write_vdb(tmp_path / "a.vdb", voxels, compression="gzip")
    assert list(tmp_path.iterdir()) == []


# -- files of openvdb ----------------------------------------------------------------------------


def written_values():
    """What is in `FROM_OPENVDB`, from voxel (-4, 3, 6) on."""
    i, j, k = np.meshgrid(np.arange(12), np.arange(9), np.arange(10), indexing="ij")
    return (i + 16 * j + 256 * k + 1).astype(np.float32)


def box(voxels: Voxels, name: str, first, shape):
    """The values of a box of voxels, [c, *shape]."""
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, 3) + first
    rows = {tuple(coord): row for row, coord in enumerate(voxels.coords.tolist())}
    channel = voxels.channel(name)
    found = np.full((len(places), channel.components), channel.background, channel.values.dtype)
    for number, place in enumerate(places):
        row = rows.get(tuple((place // 8).tolist()))
        if row is not None:
            found[number] = channel.values[(row, slice(None), *(place % 8))]
    return found.T.reshape(-1, *shape)


def test_a_file_of_openvdb_is_read_without_it(monkeypatch):
    monkeypatch.setattr(volumes, "find_openvdb", lambda: None)
    found = read_vdb(FROM_OPENVDB)
    values = written_values()
    first, shape = (-4, 3, 6), values.shape
    np.testing.assert_array_equal(box(found, "density", first, shape)[0], values)
    np.testing.assert_array_equal(box(found, "density", (16, 0, 0), (8, 8, 8)), 2.0)  # a tile
    velocity = np.stack([values, -values, 0.5 * values])
    np.testing.assert_array_equal(box(found, "velocity", first, shape), velocity)
    halves = (0.25 * values).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(box(found, "heat", first, shape)[0], halves)
    assert found.channel("velocity").location == "face"
    assert found.channel("heat").background == -1.0
    assert found.voxel_size == 0.5
    np.testing.assert_allclose(found.origin, [0.75, 1.75, 2.75], atol=1e-14)


def test_a_file_that_is_cut_off_or_damaged_anywhere_is_refused_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr(volumes, "find_openvdb", lambda: None)
    whole = FROM_OPENVDB.read_bytes()
    path = tmp_path / "part.vdb"
    random = np.random.default_rng(2)
    for size in random.integers(1, len(whole), 40).tolist():
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"part\.vdb"):
            read_vdb(path)
    for place in random.integers(0, len(whole), 150).tolist():
        damaged = bytearray(whole)
        damaged[place : place + 4] = random.bytes(4)
        path.write_bytes(damaged)
        try:
            read_vdb(path)
        except FormatError as error:  # nothing else, and values may be what was damaged
            assert "part.vdb" in str(error)


def test_a_tile_that_claims_more_than_memory_is_refused(tmp_path):
    voxels = Voxels([[0, 0, 0]], 0.1)
    voxels.set_channel("a", np.ones((1, 8, 8, 8), np.float32))
    path = tmp_path / "tile.vdb"
    write_vdb(path, voxels)
    data = path.read_bytes()
    # In place of one node and no tile: a tile of 4096 voxels along each edge.
    root = struct.pack("<IfII", 1, 0.0, 0, 1)
    at = data.index(root)
    tile = struct.pack("<IfII", 1, 0.0, 1, 0) + struct.pack("<3ifb", 0, 0, 0, 1.0, 1)
    path.write_bytes(data[:at] + tile + data[at + len(tile) :])
    with pytest.raises(FormatError, match=r"tile\.vdb: grid .a.: its tiles fill 68,719,476,736 v"):
        read_vdb(path)


def test_what_is_zipped_may_not_unpack_to_more_than_it_should(tmp_path):
    data = zlib.compress(bytes(10_000_000))
    cursor = vdb_chunks.Cursor(struct.pack("<q", len(data)) + data)
    with pytest.raises(FormatError, match="do not unpack to 2048 bytes"):
        vdb_chunks.Payloads(vdb_chunks.ZIP).take(cursor, 2048)


def test_other_trees_and_versions_name_conda_forge_first(tmp_path, monkeypatch):
    monkeypatch.setattr(volumes, "find_openvdb", lambda: None)
    path = tmp_path / "old.vdb"
    whole = FROM_OPENVDB.read_bytes()
    path.write_bytes(whole.replace(b"Tree_vec3s_5_4_3", b"Tree_uint8_5_4_3"))
    assert len(read_grids(path, names=["density", "heat"])) == 2
    with pytest.raises(FormatError, match=r'"velocity".*Tree_uint8.*install openvdb \(conda'):
        read_vdb(path)
    path.write_bytes(whole[:8] + struct.pack("<I", 219) + whole[12:])
    with pytest.raises(FormatError, match=r"file version 219.*install openvdb \(conda"):
        read_vdb(path)


def test_blosc_that_is_not_lz4_needs_its_package_and_says_so(monkeypatch):
    blosc = pytest.importorskip("blosc")
    values = np.arange(512, dtype=np.float32)
    chunk = blosc.compress(values.tobytes(), typesize=4, cname="zlib")
    cursor = vdb_chunks.Cursor(struct.pack("<q", len(chunk)) + chunk)
    payload = vdb_chunks.Payloads(vdb_chunks.BLOSC)
    payload.take(cursor, values.nbytes)
    np.testing.assert_array_equal(payload.values("<f4"), values)
    monkeypatch.setitem(__import__("sys").modules, "blosc", None)
    with pytest.raises(FormatError, match="pip install blosc"):
        payload.values("<f4")


@pytest.mark.parametrize("typesize", [1, 4, 8, 12, 17])
@pytest.mark.parametrize("count", [10, 500, 70_001])
def test_chunks_of_blosc_are_unpacked_as_by_blosc(typesize, count):
    blosc = pytest.importorskip("blosc")
    random = np.random.default_rng(count)
    data = random.integers(0, 4, count * typesize).astype(np.uint8).tobytes()
    for shuffle in (blosc.NOSHUFFLE, blosc.SHUFFLE):
        chunk = blosc.compress(data, typesize=typesize, shuffle=shuffle, cname="lz4")
        payload = vdb_chunks.Payloads(vdb_chunks.BLOSC)
        payload.take(vdb_chunks.Cursor(struct.pack("<q", len(chunk)) + chunk), len(data))
        assert payload.values(np.uint8).tobytes() == data


# -- a velocity VDB is wind ----------------------------------------------------------------------


@pytest.mark.parametrize("location", ["cell", "face"])
def test_a_velocity_vdb_blows_dust_away_on_a_plain_install(tmp_path, monkeypatch, location):
    """One implicit step of linear drag: v = u K h / (m + K h), with u from the file."""
    monkeypatch.setattr(volumes, "find_openvdb", lambda: None)
    wind = Voxels(np.argwhere(np.ones((2, 2, 2))) - 1, 0.25)
    flow = np.broadcast_to(np.reshape([3.0, 0.0, -1.0], (1, 3, 1, 1, 1)), (8, 3, 8, 8, 8))
    wind.set_channel("velocity", flow.astype(np.float32), location=location)
    write_vdb(tmp_path / "wind.vdb", wind, half=True)
    graph = Graph("storm", nodes={"wind": FileInput(path="wind.vdb")})
    air = Evaluator(graph, base_folder=tmp_path).evaluate("wind.out", 1)
    dust = Points(np.random.default_rng(1).uniform(-1.0, 1.0, (20, 3)))
    solver = lk.Solver(
        lk.SolverSetup(
            "storm",
            lk.ParticleObject(name="Dust", input="dust", density=1000.0, radius=0.01),
            lk.FluidDragForce(law="linear", coefficient=0.5, field="air"),
            substeps=1,
            bucket_size=1.0,
        ),
        {"dust": dust, "air": air},
    )
    solver.run(1)
    h, mass = 1.0 / 24.0, 1000.0 * 4.0 / 3.0 * np.pi * 0.01**3
    expected = np.array([3.0, 0.0, -1.0]) * (0.5 * h) / (mass + 0.5 * h)
    found = solver.outputs()["Dust"].channels["point"]["velocity"]
    np.testing.assert_allclose(found, np.tile(expected, (20, 1)), rtol=1e-5)


# -- openvdb as judge ----------------------------------------------------------------------------


@needs_openvdb
@pytest.mark.parametrize("half", [False, True])
def test_openvdb_reads_the_same_in_what_is_written(tmp_path, compression, half):
    random = np.random.default_rng(2)
    voxels = Voxels([[0, 0, 0], [-3, 5, 20], [17, 0, 0], [17, -7, 3]], 0.25, origin=(0.1, 0.2, 0.3))
    for dtype in ("float32", "float64", "int32", "int64", "bool"):
        values = random.integers(0, 3, (4, 8, 8, 8)).astype(dtype)
        voxels.set_channel(dtype, values, background=0.0 if dtype == "bool" else 1.0)
    for dtype in ("float32", "float64", "int32"):
        values = random.integers(0, 3, (4, 3, 8, 8, 8)).astype(dtype)
        voxels.set_channel(f"vector {dtype}", values, location="face")
    path = tmp_path / "all.vdb"
    write_vdb(path, voxels, compression=compression, half=half, classes={"float32": "fog volume"})
    for grid in read_with_openvdb(find_openvdb(), path, None):
        channel = voxels.channel(grid.name)
        rows = {tuple(coord): row for row, coord in enumerate(grid.coords.tolist())}
        for block, coord in zip(channel.values, voxels.coords.tolist(), strict=True):
            np.testing.assert_array_equal(grid.values[rows[tuple(coord)]], block)
        assert (grid.location, grid.background) == (channel.location, channel.background)
    found = {one.name: one.gridClass for one in find_openvdb().readAllGridMetadata(str(path))}
    assert found["float32"] == "fog volume" and found["vector float32"] == "staggered"


def openvdb_grid(kind: str, dtype, *, half: bool = False, background: float = 0):
    """Values, tiles of two sizes, and inactive voxels of other values than the background."""
    openvdb = find_openvdb()
    vector, flag = kind.startswith("Vec"), dtype is bool
    ground = np.dtype(dtype).type(background).item()
    grid = getattr(openvdb, kind)((ground,) * 3 if vector else ground)
    grid.name, grid.saveFloatAsHalf = kind, half
    shape = (30, 20, 17, 3) if vector else (30, 20, 17)
    values = np.random.default_rng(1).integers(-5, 50, shape).astype(dtype)
    values[::3] = ground
    grid.copyFromArray(values if flag else (values * dtype(1.5)).astype(dtype), ijk=(-11, 5, 60))
    grid.fill((128, 0, 0), (275, 127, 136), (2, 3, 4) if vector else np.dtype(dtype).type(2).item())
    if not flag:
        accessor = grid.getAccessor()
        for i, value in enumerate((7, 7, 7, 9)):
            accessor.setValueOff((i, 0, -90), (value, 8, 9) if vector else value)
        accessor.setValueOn((5, 0, -90), (1, 1, 9) if vector else 9)
    matrix = np.diag([0.5, 0.5, 0.5, 1.0])
    matrix[3, :3] = 1.0, 2.0, 3.0
    grid.transform = openvdb.createLinearTransform(matrix.tolist())
    return grid


@needs_openvdb
def test_what_openvdb_writes_is_read_as_openvdb_reads_it(tmp_path):
    openvdb = find_openvdb()
    grids = [
        openvdb_grid("FloatGrid", np.float32),
        openvdb_grid("DoubleGrid", np.float64, background=3.0),
        openvdb_grid("Int32Grid", np.int32),
        openvdb_grid("Int64Grid", np.int64, background=-2),
        openvdb_grid("BoolGrid", bool),
        openvdb_grid("Vec3SGrid", np.float32),
        openvdb_grid("Vec3DGrid", np.float64),
        openvdb_grid("Vec3IGrid", np.int32),
    ]
    for name, number in (("FloatGrid", np.float32), ("Vec3SGrid", np.float32)):
        grids.append(openvdb_grid(name, number, half=True, background=3.0))
        grids[-1].name = f"half {name}"
    grids.append(openvdb.createLevelSetSphere(20.0, (1, 2, 3), 1.0, 3.0))
    grids[-1].name = "sphere"
    path = tmp_path / "many.vdb"
    openvdb.write(str(path), grids=grids)
    ours = {grid.name: grid for grid in vdb_reader.read_file(path, None)}
    assert len(ours) == len(grids)
    for theirs in read_with_openvdb(openvdb, path, None):
        found = ours[theirs.name]
        order, other = np.lexsort(found.coords.T), np.lexsort(theirs.coords.T)
        np.testing.assert_array_equal(found.coords[order], theirs.coords[other])
        np.testing.assert_array_equal(found.values[order], theirs.values[other])
        assert found.values.dtype == theirs.values.dtype
        assert (found.background, found.location) == (theirs.background, theirs.location)
        assert found.voxel_size == theirs.voxel_size
        np.testing.assert_allclose(found.origin, theirs.origin, atol=1e-14)


@needs_openvdb
def test_a_voxel_is_where_openvdb_says(tmp_path):
    voxels = Voxels([[1, 0, 0]], 0.5, origin=(10.0, 0.0, 0.0))
    voxels.set_channel("a", np.ones((1, 8, 8, 8), np.float32))
    write_vdb(tmp_path / "a.vdb", voxels)
    transform = find_openvdb().readGridMetadata(str(tmp_path / "a.vdb"), "a").transform
    centre = transform.indexToWorld((8, 0, 0))
    np.testing.assert_allclose(centre, voxels.bounds()[0] + 0.25, atol=1e-12)


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
