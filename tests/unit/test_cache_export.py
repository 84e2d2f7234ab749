"""Exports of frame caches: what is chosen, where files go, and what an interrupted one leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from loki_core.errors import FormatError, InputError, LokiError
from loki_vfx.serialization import cache_export
from loki_vfx.serialization.cache_export import export_frames
from loki_vfx.serialization.frame_cache import FrameCacheReader
from loki_vfx.serialization.volumes import read_vdb
from tests.unit.export_scenes import cache_of, sheet, smoke

pytest.importorskip("pxr", reason="needs usd-core")
from pxr import Usd


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    frames = {}
    for frame in range(1, 5):
        frames[frame] = {
            "Cloth/Sheet": sheet(frame),
            "Cloth/Hem": sheet(frame),
            "Fog": smoke(frame),
        }
    return cache_of(tmp_path / "cache", frames)


def test_frames_and_objects_are_chosen(cache, tmp_path):
    report = export_frames(cache, tmp_path / "a.usdc", frames=(2, 3), objects=["Cloth"])
    assert report.frames == [2, 3] and report.files == 1
    assert report.objects == {
        "Cloth/Hem": ["/shot/Cloth/Hem"],
        "Cloth/Sheet": ["/shot/Cloth/Sheet"],
    }
    stage = Usd.Stage.Open(report.target)
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (2, 3)
    assert not (tmp_path / "a_vdb").exists()
    assert report.bytes == (tmp_path / "a.usdc").stat().st_size


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"objects": ["Cloth/Shet"]}, InputError, 'did you mean "Cloth/Sheet"'),
        ({"frames": (3, 6)}, InputError, r"no frame 5 \(2 of .*frames there: 1 to 4"),
        ({"frames": (3, 2)}, InputError, "end before they begin"),
        ({"frames": (0, 99_999_999)}, InputError, "no frame 0 "),
        ({"up": "w"}, InputError, "y, z"),
        ({"target": "shot.abc"}, InputError, r"ends in \.usd, \.usdc, \.usda"),
        ({"target": "folder", "file_format": "usd"}, InputError, r"ends in \.usd"),
        ({"target": "a.usdc", "file_format": "vdb"}, InputError, "need a folder"),
        ({"target": "cache/manifest.json/a.usdc"}, InputError, "cannot be written"),
        ({"target": "cache/manifest.json", "file_format": "vdb"}, InputError, "is a file"),
        ({"target": "f", "file_format": "vdb", "objects": ["Cloth"]}, InputError, "no volume"),
        ({"cache": "elsewhere"}, FormatError, "elsewhere is not there"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(cache, tmp_path, options, error, words):
    before = sorted(tmp_path.rglob("*"))
    given = {"cache": "cache", "target": "a.usdc"} | options
    source, target = tmp_path / given.pop("cache"), tmp_path / given.pop("target")
    with pytest.raises(error, match=words):
        export_frames(source, target, **given)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_object_that_changes_its_type_is_refused(tmp_path):
    cache = cache_of(tmp_path / "cache", {1: {"A": sheet(1)}, 2: {"A": smoke(2)}})
    with pytest.raises(InputError, match='"A" is voxels in frame 2, and was surface'):
        export_frames(cache, tmp_path / "a.usdc")
    first, second = sheet(1), sheet(2)
    first.set_channel("point", "heat", np.ones(10))
    second.set_channel("point", "heat", np.ones((10, 3)))
    cache = cache_of(tmp_path / "other", {1: {"A": first}, 2: {"A": second}})
    with pytest.raises(
        InputError, match=r'"A": primvars:heat is Float3Array \(vertex\) in frame 2'
    ):
        export_frames(cache, tmp_path / "a.usdc")
    assert not list(tmp_path.glob("*a.usd*"))


def test_without_usd_core_the_way_out_is_named(cache, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pxr", None)
    with pytest.raises(LokiError, match="pip install usd-core"):
        export_frames(cache, tmp_path / "a.usdc")


def test_what_is_there_is_replaced_only_on_request(cache, tmp_path):
    target = tmp_path / "a.usdc"
    export_frames(cache, target)
    (tmp_path / "a_vdb" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        export_frames(cache, target)
    with pytest.raises(InputError, match=r"Fog_0001\.vdb is there already"):
        export_frames(cache, tmp_path / "a_vdb", file_format="vdb")
    export_frames(cache, target, frames=(2, 3), overwrite=True)
    left = sorted(path.name for path in (tmp_path / "a_vdb").iterdir())
    assert left == ["Fog_0002.vdb", "Fog_0003.vdb", "notes.txt"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize(("target", "options"), [("a.usdc", {}), ("a", {"file_format": "vdb"})])
def test_an_export_that_breaks_off_leaves_what_was_there(cache, tmp_path, target, options, failure):
    def stop(frame: int, done: int, total: int) -> None:
        if done == 2:
            raise failure

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = content(), sorted(tmp_path.iterdir())
    with pytest.raises(failure):
        export_frames(cache, tmp_path / target, on_frame=stop, **options)
    assert (content(), sorted(tmp_path.iterdir())) == before
    export_frames(cache, tmp_path / target, frames=(1, 2), **options)
    before = content()
    with pytest.raises(failure):
        export_frames(cache, tmp_path / target, overwrite=True, on_frame=stop, **options)
    assert content() == before


def test_what_a_killed_export_left_is_removed_by_the_next(cache, tmp_path):
    left, other = tmp_path / ".a.usdc.k1ll_d00.tmp", tmp_path / ".b.usdc.k1ll_d00.tmp"
    for folder in (left, other):
        folder.mkdir()
        (folder / "stage.usdc").write_text("half")
    export_frames(cache, tmp_path / "a.usdc")
    assert not left.exists() and other.exists()


def test_volumes_alone_are_a_folder_of_sequences(cache, tmp_path):
    report = export_frames(cache, tmp_path / "fog", file_format="vdb", frames=(2, 3))
    assert report.objects == {"Fog": ["Fog_####.vdb"]}
    names = sorted(path.name for path in (tmp_path / "fog").iterdir())
    assert names == ["Fog_0002.vdb", "Fog_0003.vdb"] and report.files == 2
    grids = read_vdb(tmp_path / "fog" / names[1], names=["density"])
    np.testing.assert_array_equal(
        grids.to_dense("density"), FrameCacheReader(cache).read(3, "Fog").to_dense("density")
    )


# -- the command -----------------------------------------------------------------------------------


def test_the_command_tells_of_frames_and_of_what_it_wrote(cache, tmp_path, capsys):
    from loki_vfx.bridges.standalone.command_line import run_command

    words = ["export", str(cache), "--to", str(tmp_path / "a.usda"), "--objects", "Cloth/Sheet"]
    assert run_command([*words, "--frames", "2-4", "--json"]) == 0
    *progress, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [(one["frame"], one["done"], one["total"]) for one in progress] == [
        (2, 1, 3), (3, 2, 3), (4, 3, 3),
    ]  # fmt: skip
    assert last["event"] == "finished" and last["frames"] == [2, 3, 4]
    assert last["objects"] == {"Cloth/Sheet": ["/shot/Cloth/Sheet"]}
    assert (tmp_path / "a.usda").read_text().startswith("#usda")
    assert run_command(words) == 4  # there already
    assert run_command([*words, "--overwrite", "--frames", "3"]) == 0
    assert "frames 3 to 3" in capsys.readouterr().out
    assert run_command([*words, "--frames", "many"]) == 2
    assert run_command(["export", str(tmp_path / "none"), "--to", "a.usda"]) == 4


def test_formats_of_the_command_are_those_of_the_function():
    from loki_vfx.bridges.standalone.export_command import command

    choices = {
        one.name: list(one.type.choices)
        for one in command.params
        if one.name in ("up", "file_format")
    }
    assert choices == {"up": list(cache_export.UP_AXES), "file_format": list(cache_export.FORMATS)}
