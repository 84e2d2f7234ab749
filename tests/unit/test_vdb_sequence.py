"""Voxels as grids for other programs: vectors at centres, types that readers know, turned axes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.data.voxels import Voxels
from loki_vfx.serialization.vdb_sequence import (
    centred_values,
    grids_of,
    sequence_file,
    sequence_files,
    turned_to_z_up,
)
from loki_vfx.serialization.volumes import read_vdb


def box_of_faces(seed: int, resolution: int = 4) -> Voxels:
    """Blocks 2 x 3 x 2 in any order, with random vectors on faces."""
    random = np.random.default_rng(seed)
    coords = np.argwhere(np.ones((2, 3, 2))) + random.integers(-4, 4, 3)
    coords = random.permutation(coords)
    voxels = Voxels(coords, 0.1, block_resolution=resolution)
    shape = (len(coords), 3, *[resolution] * 3)
    voxels.set_channel("velocity", random.normal(size=shape), location="face")
    return voxels


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_faces_are_averaged_across_blocks(seed):
    voxels = box_of_faces(seed)
    faces = voxels.to_dense("velocity")
    expected = faces.copy()
    for axis in range(3):
        lower = np.moveaxis(faces[axis], axis, 0)
        upper = np.concatenate([lower[1:], lower[-1:]])  # nothing is known above the last
        expected[axis] = np.moveaxis(0.5 * (lower + upper), 0, axis)
    voxels.set_channel("centred", centred_values(voxels, "velocity"))
    np.testing.assert_allclose(voxels.to_dense("centred"), expected, rtol=1e-12)


def test_a_volume_without_blocks_has_no_values():
    empty = Voxels([], 0.1)
    empty.set_channel("velocity", np.empty((0, 3, 8, 8, 8)), location="face")
    assert centred_values(empty, "velocity").shape == (0, 3, 8, 8, 8)
    assert turned_to_z_up(empty).block_count == 0


def test_a_turned_volume_holds_the_same_values_at_turned_places():
    random = np.random.default_rng(4)
    voxels = Voxels([[-2, 0, 1], [3, -1, 0]], 0.25, origin=(1.0, 2.0, 3.0), block_resolution=4)
    voxels.set_channel("heat", random.random((2, 4, 4, 4)), background=300.0)
    voxels.set_channel("velocity", random.random((2, 3, 4, 4, 4)))
    voxels.set_channel("Cd", random.random((2, 3, 4, 4, 4)))
    turned = turned_to_z_up(voxels)
    assert turned.channel("heat").background == 300.0

    def by_place(given: Voxels, name: str) -> dict[tuple[float, ...], list[float]]:
        found = {}
        for block, coord in enumerate(given.coords):
            for local in np.ndindex(4, 4, 4):
                centre = given.origin + given.voxel_size * (coord * 4 + np.array(local) + 0.5)
                found[tuple(centre.tolist())] = (
                    given.channel(name).values[(block, slice(None), *local)].tolist()
                )
        return found

    for name in ("heat", "velocity", "Cd"):
        before, after = by_place(voxels, name), by_place(turned, name)
        assert len(after) == len(before) == 128
        for (x, y, z), value in before.items():
            vx_vy_vz = [value[0], -value[2], value[1]] if name == "velocity" else value
            assert after[x, -z, y] == vx_vy_vz


def mixed() -> Voxels:
    voxels = Voxels([[0, 0, 0]], 0.1)
    shape = (1, 8, 8, 8)
    voxels.set_channel("density", np.ones(shape))
    voxels.set_channel("temperature", np.full(shape, 400.0), background=300.0)
    voxels.set_channel("distance", np.ones(shape), background=0.5)
    voxels.set_channel("velocity", np.ones((1, 3, 8, 8, 8)), location="face", background=2.0)
    voxels.set_channel("mask", np.ones(shape, np.uint8))
    voxels.set_channel("pair", np.ones((1, 2, 8, 8, 8)))
    voxels.set_channel("cell", np.ones((1, 3, 8, 8, 8), np.int64))
    return voxels


def test_grids_have_the_numbers_of_their_channels():
    grids = grids_of(mixed())
    kinds = {n: (c.values.dtype.name, c.components) for n, c in grids.voxels.channels.items()}
    assert kinds == {
        "density": ("float32", 1),
        "temperature": ("float32", 1),
        "distance": ("float32", 1),
        "velocity": ("float32", 3),
        "mask": ("int32", 1),
        "pair.0": ("float32", 1),
        "pair.1": ("float32", 1),
        "cell.x": ("int64", 1),
        "cell.y": ("int64", 1),
        "cell.z": ("int64", 1),
    }
    assert grids.classes == {"density": "fog volume", "distance": "level set"}
    assert grids.voxels.channel("temperature").background == 300.0
    assert grids.voxels.channel("velocity").background == 0.0
    assert grids.voxels.channel("velocity").location == "cell"


def test_what_is_written_is_read_again(tmp_path):
    voxels = mixed()
    voxels.channel("density").values.setflags(write=False)  # as they come out of a cache
    grids_of(voxels).write(tmp_path / "mixed.vdb")
    found = read_vdb(tmp_path / "mixed.vdb")
    assert sorted(found.channels) == sorted(grids_of(voxels).voxels.channels)
    np.testing.assert_array_equal(found.to_dense("velocity"), 1.0)
    assert found.channel("velocity").location == "cell"
    assert found.channel("temperature").background == 300.0
    assert found.channel("cell.x").values.dtype == np.int64


def test_files_of_a_sequence_are_told_from_others(tmp_path):
    names = [sequence_file("smoke", frame) for frame in (-3, 1, 12345)]
    assert names == ["smoke_-003.vdb", "smoke_0001.vdb", "smoke_12345.vdb"]
    for name in [*names, "smoke_2_0001.vdb", "smoke_0001.txt", "smoke.vdb", "asmoke_0001.vdb"]:
        (tmp_path / name).touch()
    assert sorted(path.name for path in sequence_files(tmp_path, "smoke")) == sorted(names)
    assert sequence_files(tmp_path / "none", "smoke") == []
