"""The frame cache: whole frames or none, checksums that notice, and files nobody can misuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError, InputError
from loki_vfx.serialization import frame_cache
from loki_vfx.serialization.frame_cache import (
    FrameCacheReader,
    FrameCacheWriter,
    Manifest,
    safe_name,
)

HAIR, SMOKE = "scene/Hair/CurvesObject", "scene/Wind/VolumeObject"


def manifest(setup_hash: str = "a" * 64, **setup) -> Manifest:
    return Manifest(setup_hash=setup_hash, setup=setup, units={"length": "m"}, fps=24.0)


def streams(frame: int) -> dict:
    curves = Curves.from_strands(np.random.default_rng(abs(frame)).random((3, 4, 3)))
    curves.set_channel("point", "velocity", np.full((12, 3), float(frame)))
    voxels = Voxels.from_dense(np.full((8, 8, 8), frame, np.float32), (0.0, 0.0, 0.0), 0.1)
    return {HAIR: curves, SMOKE: voxels}


def written(folder: Path, frames=(1, 2, 3)) -> Path:
    with FrameCacheWriter(folder, manifest(gravity=-9.81)) as writer:
        for frame in frames:
            writer.write_frame(frame, streams(frame), statistics={"substeps": frame})
    return folder


def test_frames_come_back_as_they_were(tmp_path):
    reader = FrameCacheReader(written(tmp_path / "run"))
    assert reader.frames() == [1, 2, 3]
    assert reader.objects(2) == [HAIR, SMOKE]
    hair = reader.read(2, HAIR)
    np.testing.assert_array_equal(hair.positions, streams(2)[HAIR].positions)
    assert hair.channels["point"]["velocity"].max() == 2.0
    np.testing.assert_array_equal(reader.read(3, SMOKE).to_dense("density"), 3.0)
    assert reader.statistics(3) == {"substeps": 3}
    assert reader.verify() == []


def test_the_manifest_says_what_the_cache_is_of(tmp_path):
    found = FrameCacheReader(written(tmp_path)).manifest
    assert found.setup == {"gravity": -9.81}
    assert sorted(found.frames) == ["1", "2", "3"]
    assert found.objects[HAIR]["type"] == "curves"
    assert found.objects[HAIR]["counts"] == {"point": 12, "vertex": 12, "primitive": 3}
    assert found.objects[HAIR]["channels"] == {"point": ["velocity"]}
    assert found.units == {"length": "m"}


def test_negative_frames_and_rewriting_a_frame(tmp_path):
    written(tmp_path, frames=(-10, 0, 1))
    with FrameCacheWriter(tmp_path, manifest(gravity=-9.81)) as writer:
        writer.write_frame(0, {HAIR: streams(7)[HAIR]})
    reader = FrameCacheReader(tmp_path)
    assert reader.frames() == [-10, 0, 1]
    assert reader.objects(0) == [HAIR]
    assert reader.read(0, HAIR).channels["point"]["velocity"].max() == 7.0
    assert not (tmp_path / "frames" / safe_name(SMOKE) / "000000.loki").exists()


def test_missing_frames_and_objects_are_named(tmp_path):
    reader = FrameCacheReader(written(tmp_path))
    with pytest.raises(InputError, match="no frame 9; frames there: 1 to 3"):
        reader.read(9, HAIR)
    with pytest.raises(InputError, match="did you mean"):
        reader.read(1, HAIR + "s")
    with pytest.raises(FormatError, match="elsewhere is not there"):
        FrameCacheReader(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(FormatError, match=r"no manifest\.json"):
        FrameCacheReader(tmp_path / "elsewhere")


# -- whose folder is it -------------------------------------------------------------------------


def test_another_setup_is_refused_and_the_difference_named(tmp_path):
    written(tmp_path)
    with pytest.raises(InputError, match=r"gravity: -9\.81 there, -1\.62 here.*overwrite"):
        FrameCacheWriter(tmp_path, manifest("b" * 64, gravity=-1.62))
    assert FrameCacheReader(tmp_path).verify() == []


def test_overwrite_removes_the_old_frames_and_nothing_else(tmp_path):
    written(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "frames" / "picture.png").write_text("mine too")
    with FrameCacheWriter(tmp_path, manifest("b" * 64), overwrite=True) as writer:
        writer.write_frame(5, {HAIR: streams(5)[HAIR]})
    reader = FrameCacheReader(tmp_path)
    assert reader.frames() == [5]
    assert reader.verify() == []
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "frames" / "picture.png").exists()


def test_resume_keeps_frames_and_remembers_the_earlier_setup(tmp_path):
    written(tmp_path)
    with FrameCacheWriter(tmp_path, manifest("b" * 64), resume=True) as writer:
        writer.write_frame(4, streams(30))
    reader = FrameCacheReader(tmp_path)
    assert reader.frames() == [1, 2, 3, 4]
    assert reader.manifest.earlier_setups == [{"setup_hash": "a" * 64, "last_frame": 3}]
    assert reader.verify() == []


def test_rewind_removes_frames_from_one_on(tmp_path):
    written(tmp_path)
    with FrameCacheWriter(tmp_path, manifest("b" * 64), resume=True, rewind=2) as writer:
        reader = FrameCacheReader(tmp_path)
        assert reader.frames() == [1] and reader.verify() == []
        assert not list(tmp_path.rglob("000003*"))
        writer.write_frame(2, streams(30))
    reader = FrameCacheReader(tmp_path)
    assert reader.frames() == [1, 2]
    assert reader.manifest.earlier_setups == [{"setup_hash": "a" * 64, "last_frame": 1}]
    assert reader.verify() == []


def test_frames_without_a_manifest_are_not_taken_over(tmp_path):
    written(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no manifest\.json"):
        FrameCacheWriter(tmp_path, manifest())


# -- parts of ranks -------------------------------------------------------------------------------


def test_parts_of_ranks_are_joined_in_rank_order(tmp_path):
    writers = [FrameCacheWriter(tmp_path, manifest(), rank=rank) for rank in range(3)]
    for rank in (2, 0, 1):
        points = Points(np.full((rank + 1, 3), float(rank)))
        points.set_channel("point", "rank", np.full(rank + 1, rank, np.int32))
        writers[rank].write_frame(1, {"spray": points}, part=(rank, 3))
    assert FrameCacheReader(tmp_path).frames() == []
    writers[0].commit_frame(1, parts=3, statistics={"ranks": 3})
    reader = FrameCacheReader(tmp_path)
    assert reader.frames() == [1]
    assert reader.read(1, "spray").channels["point"]["rank"].tolist() == [0, 1, 1, 2, 2, 2]
    assert reader.manifest.objects["spray"]["counts"]["point"] == 6
    assert reader.verify() == []


def test_a_missing_part_is_named_and_the_frame_does_not_count(tmp_path):
    writer = FrameCacheWriter(tmp_path, manifest())
    writer.write_frame(1, streams(1), part=(0, 2))
    with pytest.raises(InputError, match="part 1 of 2 was not written"):
        writer.commit_frame(1, parts=2)
    assert FrameCacheReader(tmp_path).frames() == []


def test_a_frame_rewritten_in_fewer_parts_leaves_no_old_parts(tmp_path):
    writer = FrameCacheWriter(tmp_path, manifest())
    for rank in range(2):
        writer.write_frame(1, {"spray": Points(np.zeros((2, 3)))}, part=(rank, 2))
    writer.commit_frame(1, parts=2)
    writer.write_frame(1, {"spray": Points(np.zeros((3, 3)))})
    assert FrameCacheReader(tmp_path).read(1, "spray").point_count == 3
    files = [p.name for p in (tmp_path / "frames" / safe_name("spray")).iterdir()]
    assert files == ["000001.loki"]


# -- damage -----------------------------------------------------------------------------------


def test_verify_finds_missing_cut_off_and_changed_files(tmp_path):
    folder = written(tmp_path)
    data = folder / "frames" / safe_name(HAIR)
    (data / "000001.loki").unlink()
    whole = (data / "000002.loki").read_bytes()
    (data / "000002.loki").write_bytes(whole[:-64])
    flipped = bytearray((data / "000003.loki").read_bytes())
    flipped[-100] ^= 1
    (data / "000003.loki").write_bytes(flipped)
    problems = FrameCacheReader(folder).verify()
    assert len(problems) == 3
    assert "cannot be read" in problems[0]
    assert "cut off" in problems[1]
    assert "checksum" in problems[2]
    for frame in (1, 2, 3):
        with pytest.raises(FormatError):
            FrameCacheReader(folder).read(frame, HAIR)


def test_a_whole_file_of_another_frame_is_noticed(tmp_path):
    folder = written(tmp_path)
    data = folder / "frames" / safe_name(HAIR)
    os.replace(data / "000001.loki", data / "000002.loki")
    with pytest.raises(FormatError, match="another file than the index says"):
        FrameCacheReader(folder).read(2, HAIR)


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: m.update(version=2),
        lambda m: m.update(format="other"),
        lambda m: m.pop("fps"),
        lambda m: m.update(fps=0),
        lambda m: m.update(fps="24"),
        lambda m: m.update(frames={"x": "y"}),
        lambda m: m.update(frames={"../1": "a" * 64}),
        lambda m: m.update(frames=[1]),
        lambda m: m.update(fpss=1),
        lambda m: m.update(setup=3),
    ],
)
def test_hand_edited_manifests_raise_format_errors(tmp_path, damage):
    path = written(tmp_path) / "manifest.json"
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"manifest\.json"):
        FrameCacheReader(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"a": 1e999', "\x00"])
def test_manifests_that_are_no_json_raise_format_errors(tmp_path, text):
    (written(tmp_path) / "manifest.json").write_text(text)
    with pytest.raises(FormatError):
        FrameCacheReader(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda e: e.update(file="../../../etc/passwd"),
        lambda e: e.update(file="/etc/passwd"),
        lambda e: e.update(file=e["file"].replace("000001", "000002")),
        lambda e: e.update(file=3),
        lambda e: e.update(checksum="short"),
        lambda e: e.update(type="liquid"),
        lambda e: e.update(type=["points"]),
        lambda e: e.update(type="surface"),
        lambda e: e.clear(),
    ],
)
def test_indexes_cannot_point_elsewhere(tmp_path, damage):
    path = written(tmp_path) / "frames" / "000001.json"
    index = json.loads(path.read_text())
    damage(index["objects"][HAIR][0])
    path.write_text(json.dumps(index))
    reader = FrameCacheReader(tmp_path)
    with pytest.raises(FormatError):
        reader.read(1, HAIR)
    assert reader.verify() != []


def test_a_failing_write_leaves_the_frame_out_and_no_temporary_file(tmp_path, monkeypatch):
    written(tmp_path, frames=(1,))
    with FrameCacheWriter(tmp_path, manifest(gravity=-9.81)) as writer:
        real = frame_cache.write_packed

        def fail_on_smoke(path, document, **options):
            if safe_name(SMOKE) in str(path):
                raise OSError("No space left on device")
            return real(path, document, **options)

        monkeypatch.setattr(frame_cache, "write_packed", fail_on_smoke)
        with pytest.raises(OSError, match="No space"):
            writer.write_frame(2, streams(2))
    reader = FrameCacheReader(tmp_path)
    assert reader.frames() == [1]
    assert reader.verify() == []
    assert list(tmp_path.rglob(".*.tmp")) == []


KILLED = """
import sys, numpy as np
sys.path.insert(0, {root!r})
from loki_core.data.points import Points
from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest
writer = FrameCacheWriter({folder!r}, Manifest(setup_hash="a" * 64))
points = Points(np.zeros((20000, 3)))
for frame in range(1, 100000):
    writer.write_frame(frame, {{"a": points, "b": points}})
"""


def test_a_killed_writer_leaves_whole_frames_only(tmp_path):
    root = str(Path(__file__).parents[2])
    script = KILLED.format(root=root, folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 60.0
    while not (tmp_path / "frames" / "000005.json").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    reader = FrameCacheReader(tmp_path)
    assert len(reader.frames()) >= 5
    assert reader.verify() == []
    with FrameCacheWriter(tmp_path, manifest()) as writer:  # and the run can go on
        writer.write_frame(200_000, {"a": Points(np.zeros((1, 3)))})
    assert list(tmp_path.rglob(".*.tmp")) == []
    assert FrameCacheReader(tmp_path).verify() == []


# -- names ------------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=2, unique=True))
def test_two_paths_never_share_a_folder_even_when_case_does_not_count(paths):
    first, second = (safe_name(path).lower() for path in paths)
    assert first != second


@pytest.mark.parametrize(
    "path",
    [
        *("..", ".", "../../etc", "/etc/passwd", "a/../b", "con", "NUL", "C:\\x", "~"),
        *("é" * 300, "\ud800", "a\x00b", " ", "Hair/Hair", "x" * 4096),
    ],
)
def test_no_path_escapes_its_folder(path):
    name = safe_name(path)
    assert name not in (".", "..")
    assert not set(name) & set('/\\:*?"<>|\x00 .')
    assert len(name) < 200
    assert name == name.lower()


def test_short_names_do_not_meet_longer_ones():
    paths = ["con", "con/", "con//", "CON", "con~", "a", "A", "+a", "%41"]
    assert len({safe_name(path) for path in paths}) == len(paths)


def test_paths_that_are_no_names_are_refused():
    for path in ("", "x" * 5000, None):
        with pytest.raises(InputError, match="Object path"):
            safe_name(path)
