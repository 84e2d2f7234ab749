"""The first run: its report here, and its questions where the stand-in can be asked them.

What needs Houdini itself is "not possible here", never a pass. Those checks that measure something
are given wrong answers too, to see that they notice.
"""

from __future__ import annotations

import json
import sys
import types

import hou
import numpy as np
import pytest

from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import LokiError
from loki_vfx.bridges.houdini import first_run
from loki_vfx.bridges.houdini import run_parms as parms
from loki_vfx.bridges.houdini.loki_houdini import (
    contract_streams,
    first_run_check,
    first_run_checks,
)
from loki_vfx.bridges.houdini.loki_houdini.first_run_check import CheckFailed, NotPossible, Place
from loki_vfx.serialization.houdini_files import read_geometry, write_geometry
from loki_vfx.serialization.houdini_volume import VolumePrimitive
from loki_vfx.serialization.houdini_voxels import geometry_of_voxels
from tests.houdini.nodes import loki
from tests.houdini.nodes import types as node_types

REAL = (
    "Houdini and its licence", "node ", "files of ", "winding", "packed", "vol", "voxels of",
    "vectors", "a template", "the panel",
)  # fmt: skip


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, command=())
    yield made
    made.close()


def ask(name, place):
    (found,) = [one for one in first_run_checks.checks() if one.name == name]
    return found.run(place)


def test_the_report_tells_what_is_not_possible_here(tmp_path, capsys):
    file = tmp_path / "report.json"
    assert first_run.main(["--output", str(file)]) == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["houdini"] == "a stand-in" and report["loki_first_run"] == 1
    results = {one["name"]: one["result"] for one in report["checks"]}
    assert report["counts"] == {
        "pass": list(results.values()).count("pass"),
        "fail": 0,
        "not possible here": list(results.values()).count("not possible here"),
    }
    assert {one["result"] for one in report["checks"]} == {"pass", "not possible here"}
    for name, result in results.items():
        assert (result == "not possible here") == name.startswith(REAL), name
    for one in node_types().values():
        assert f"node {one.operator}" in results
    assert "not possible here" in capsys.readouterr().out


def test_one_failure_does_not_stop_the_others(tmp_path, monkeypatch):
    def load(self, data):
        raise hou.OperationFailed("no room")

    monkeypatch.setattr(hou.Geometry, "load", load)
    file = tmp_path / "report.json"
    assert first_run.main(["--output", str(file), "--only", "stream"]) == 1
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["counts"]["fail"] == len(contract_streams.TYPES)
    assert report["checks"][0]["why"] == "OperationFailed: no room"
    assert "in _give" in report["checks"][0]["traceback"]


def test_the_checks_are_listed_and_loki_that_is_not_there_is_told(tmp_path, monkeypatch, capsys):
    file = tmp_path / "report.json"
    assert first_run.main(["--output", str(file), "--list", "--only", "winding"]) == 0
    assert capsys.readouterr().out == "winding of a Box\n"
    monkeypatch.setattr(first_run, "MODULES", ("nowhere.first_run_checks",))
    assert first_run.main(["--output", str(file)]) == 1
    (told,) = json.loads(file.read_text(encoding="utf-8"))["checks"]
    assert told["name"] == "Loki is imported"
    assert told["result"] == "fail" and "nowhere" in told["why"]


def test_a_check_that_ends_the_process_is_left_as_begun(tmp_path):
    report = first_run.Report(tmp_path / "report.json")

    def killed():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.add("the last", killed)
    (told,) = json.loads(report.path.read_text(encoding="utf-8"))["checks"]
    assert (told["name"], told["result"]) == ("the last", "began")


def test_a_template_is_compared_with_the_standalone_run(folder, place, monkeypatch):
    monkeypatch.setattr(Place, "runs", folder)
    node = loki("template_fountain", folder, **{parms.END: first_run_checks.FRAMES})
    words = "3 frames, the same as those of wtloki run"
    assert first_run_checks.simulated(node, place) == words
    monkeypatch.setattr(first_run_checks, "_standalone", lambda place: place.folder / "alone")
    node.parm("rate").set(node.parm("rate").eval() * 0.5)
    with pytest.raises(CheckFailed, match="2 runs lie"):
        first_run_checks.simulated(node, place)


def test_wtloki_that_is_missing_or_another_is_told(place, monkeypatch):
    place.command = (sys.executable,)
    with pytest.raises(CheckFailed, match="and here is Loki"):
        ask("wtloki starts from Houdini", place)
    monkeypatch.setattr(first_run_check, "wtloki_command", lambda: place_error())
    place.command = ()
    with pytest.raises(NotPossible, match="not found"):
        ask("wtloki starts from Houdini", place)


def place_error():
    raise LokiError("wtloki was not found")


def test_faces_that_look_inwards_are_found():
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    quads = np.array(
        [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    )
    assert first_run_checks.outside_problems(Surface.from_faces(corners, quads)) == []
    turned = Surface.from_faces(corners, quads[:, ::-1])
    assert first_run_checks.outside_problems(turned) == ["6 of 6 faces look inwards"]
    (told,) = first_run_checks.outside_problems(contract_streams.dressed("points"))
    assert "not a Surface" in told


@pytest.mark.parametrize("suffix", first_run_checks.FILES)
def test_files_are_compared(suffix, place, monkeypatch):
    def load(geometry, file_name):
        geometry._kept = read_geometry(file_name)

    def save(geometry, file_name):
        write_geometry(file_name, geometry._kept)

    monkeypatch.setattr(hou.Geometry, "loadFromFile", load)
    monkeypatch.setattr(hou.Geometry, "saveToFile", save, raising=False)
    assert "7 streams" in ask(f"files of Houdini: {suffix}", place)
    assert "7 streams" in ask(f"files of Loki: {suffix}", place)

    def shifted(geometry, file_name):
        load(geometry, file_name)
        geometry._kept.attributes["point"]["P"].values = geometry._kept.positions() + 1.0

    monkeypatch.setattr(hou.Geometry, "loadFromFile", shifted)
    with pytest.raises(CheckFailed, match="points: positions: 36 of 36 values differ"):
        ask(f"files of Loki: {suffix}", place)


class Volume:
    """A volume primitive with the methods that a check calls."""

    def __init__(self, kept):
        self.kept = kept

    def resolution(self):
        return self.kept.values.shape

    def setAllVoxelsFromString(self, values):
        shape = self.kept.values.shape
        self.kept.values = np.frombuffer(values, np.float32).reshape(shape[::-1]).T

    def allVoxelsAsString(self):
        return np.ascontiguousarray(self.kept.values.T).tobytes()


def create_volume(geometry, xres, yres, zres, bounding_box):
    shape, (low, high) = (xres, yres, zres), bounding_box
    blank = Voxels.from_dense({"density": np.ones((1, *shape), np.float32)}, low, 0.1)
    geometry._kept = geometry_of_voxels(blank)
    half = 0.5 * (np.array(high) - np.array(low))
    kept = VolumePrimitive(np.zeros(shape, np.float32), np.diag(half))
    geometry._kept.volumes[0] = kept
    place = geometry._kept.attributes["point"]["P"]
    place.values = (np.array(low) + half)[np.newaxis].astype(np.float32)
    return Volume(kept)


def test_voxels_are_compared(place, monkeypatch):
    box = lambda *ends: (ends[:3], ends[3:])  # noqa: E731
    prims = lambda geometry: tuple(map(Volume, geometry._kept.volumes.values()))  # noqa: E731
    for name, value in (("Volume", Volume), ("BoundingBox", box)):
        monkeypatch.setattr(hou, name, value, raising=False)
    monkeypatch.setattr(hou.Geometry, "createVolume", create_volume, raising=False)
    monkeypatch.setattr(hou.Geometry, "prims", prims, raising=False)
    assert ask("voxels of a volume", place) == "285 values both ways"
    in_another_order = lambda self: self.kept.values.tobytes()  # noqa: E731
    monkeypatch.setattr(Volume, "allVoxelsAsString", in_another_order)
    with pytest.raises(CheckFailed, match="are others in Houdini"):
        ask("voxels of a volume", place)


def test_a_vdb_in_another_order_is_found(place, monkeypatch):
    assert ask("voxels as a VDB", place) == "3150 voxels both ways"
    ordered = hou.VDB._range
    turned = lambda self, range: ordered(self, range)[::-1]  # noqa: E731
    monkeypatch.setattr(hou.VDB, "_range", turned)
    with pytest.raises(CheckFailed, match="are others in Loki"):
        ask("voxels as a VDB", place)


def told_parm(declared, default):
    """A parm as Houdini would make it of a declaration."""
    made = types.SimpleNamespace(name=lambda: declared.name)
    made.expression = lambda: default.text
    made.menuItems = lambda: tuple(token for token, _ in declared.menu)
    made.unexpandedString = lambda: default
    made.evalAsFloat = lambda: float(default)
    template = hou.FloatParmTemplate()
    if declared.range is not None:
        template.minValue = lambda: declared.range.low
        template.maxValue = lambda: declared.range.high
    made.parmTemplate = lambda: template
    return made


@pytest.mark.parametrize("kind", node_types())
def test_parms_are_compared_with_the_declarations(kind, monkeypatch):
    for name in ("FloatParmTemplate", "IntParmTemplate"):
        monkeypatch.setattr(hou, name, type(name, (), {}), raising=False)
    dialog = node_types()[kind].dialog()
    known = {
        name.replace("#", "1"): told_parm(parm, default)
        for parm in dialog.parms()
        for name, default in zip(parm.component_names(), parm.default)
    }
    node = types.SimpleNamespace(parm=known.get)
    for parm in dialog.parms():
        assert first_run_checks.parm_problems(node, parm) == []
    for parm in dialog.parms():
        first = parm.component_names()[0].replace("#", "1")
        lost = types.SimpleNamespace(parm=(known | {first: None}).get)
        assert "is not there" in first_run_checks.parm_problems(lost, parm)[0]
        if parm.type in ("float", "log", "integer"):
            wrong = types.SimpleNamespace(**vars(known[first]))
            wrong.evalAsFloat, wrong.expression = (lambda: -7.25), (lambda: "$F")
            other = types.SimpleNamespace(parm=(known | {first: wrong}).get)
            assert len(first_run_checks.parm_problems(other, parm)) == 1


def test_differences_are_told_in_words():
    one, other = contract_streams.dressed("curves"), contract_streams.dressed("curves")
    del other.channels["point"]["radius"]
    other.channels["point"]["count"] = other.channels["point"]["count"].astype(np.int64)
    other.channels["detail"].set("place", other.channels["detail"]["place"], transform="vector")
    assert contract_streams.differences(one, other) == [
        "point radius is lost",
        "point count of int32 became int64",
        "detail place transforms as vector; before as point",
    ]
    surface = contract_streams.dressed("surface")
    assert contract_streams.differences(one, surface) == ["Curves became Surface"]
