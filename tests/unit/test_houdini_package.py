"""The Houdini package: node types as text, interfaces from declarations, and their checks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loki_core.behavior import registry
from loki_core.parameter import Parameter, parameter
from loki_core.solver_settings import SolverSettings
from loki_graph.node import node_registry
from loki_graph.templates import templates
from loki_vfx.bridges.houdini import build_package, run_parms
from loki_vfx.bridges.houdini.declared_parms import declared_parms, parms_of
from loki_vfx.bridges.houdini.dialog_blocks import DialogError
from loki_vfx.bridges.houdini.dialog_parser import parse_dialog
from loki_vfx.bridges.houdini.dialog_script import (
    Dialog,
    Expression,
    Folder,
    Parm,
    Range,
    dialog_text,
)
from loki_vfx.bridges.houdini.hda_directory import LIST, file_name, table_name, validate, write
from loki_vfx.bridges.houdini.help_card import card_name
from loki_vfx.bridges.houdini.loki_houdini.panel import Aim, RunWatch
from loki_vfx.bridges.houdini.node_types import NodeType, input_names, node_types
from loki_vfx.bridges.houdini.parm_names import GIVEN, NAME, is_switch, loki_name, parm_name

DECLARATIONS = [*registry().values(), *node_registry().values(), SolverSettings]
TYPES = {one.name: one for one in node_types()}


def read_back(*items: Parm | Folder) -> Dialog:
    return parse_dialog(dialog_text(Dialog("loki::test::1.0", "Test", tuple(items))))


def declared(default: Any, annotation: str, **words: Any) -> Parameter:
    made: Parameter = parameter(default, **words)
    return made.declared("value", annotation, owner="Test")


# -- names ----------------------------------------------------------------------------------------


def test_names_stay_readable_and_paths_are_written_out() -> None:
    assert parm_name("hair_count") == "hair_count"
    assert parm_name("Hair/BendingConstraint.stiffness") == "Hair__sBendingConstraint__dstiffness"
    assert parm_name("2nd try") == "__x000032nd__wtry"
    assert parm_name("a__b") == "a__u_b"


@given(st.text(max_size=30))
def test_every_name_can_be_read_back(name: str) -> None:
    parm = parm_name(name)
    assert not name or NAME.fullmatch(parm)
    assert loki_name(parm) == name
    assert not is_switch(parm)


@pytest.mark.parametrize("parm", ["a__q", "a__", "a__x12", "a__x000061", "b__given", "a__sx__"])
def test_other_names_are_not_read(parm: str) -> None:
    with pytest.raises(ValueError, match="is not the name"):
        loki_name(parm)


# -- interfaces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda one: one.__name__)
def test_every_declared_parameter_appears_once_as_declared(declaration: Any) -> None:
    dialog = read_back(*parms_of(declaration))
    assert dialog.items == tuple(parms_of(declaration))
    found = {parm.name: parm for parm in dialog.parms()}
    assert [name for name in found if not is_switch(name)] == [
        parm_name(name) for name in declaration.parameters()
    ]
    for name, known in declaration.parameters().items():
        parm = found[parm_name(name)]
        check_parm(parm, known)
        assert (parm.name + GIVEN in found) == known.type.optional
        if known.type.optional:
            assert found[parm.name + GIVEN].default == (str(int(known.default is not None)),)
            assert parm.disable_when == f"{{ {parm.name}{GIVEN} == 0 }}"


def check_parm(parm: Parm, parameter: Parameter) -> None:
    """Type, default, range and choices are those of the declaration."""
    base, length = parameter.type.base, parameter.type.length
    is_list = length is not None and (length == 0 or length > 4)
    assert parm.help.startswith(parameter.doc.rstrip("."))
    if parameter.unit:
        assert f"In {parameter.unit}." in parm.help
    if parameter.choices is not None and length is None:
        assert [token for token, _ in parm.menu] == [str(one) for one in parameter.choices]
    if base is str or is_list or parameter.choices is not None:
        assert parm.type in ("string", "file", "directory") and parm.range is None
        if length is None and parameter.default is not None:
            assert parm.default == (str(parameter.default),)
        return
    if base is bool:
        assert (parm.type, parm.default) == ("toggle", (str(int(parameter.default)),))
        return
    kinds = {
        float: {"float", "log", "vector2", "vector", "vector4"},
        int: {"integer", "intvector2"},
    }
    assert parm.type in kinds[base] and parm.size == (length or 1)
    if parameter.default is not None:
        values = parameter.default if length is not None else (parameter.default,)
        assert tuple(map(float, map(str, parm.default))) == pytest.approx(values, rel=0, abs=0)
    assert parm.range is not None
    low, high = parm.range.low, parm.range.high
    assert low < high and all(low <= float(str(one)) <= high for one in parm.default)
    assert parm.range.is_low_strict == (parameter.minimum is not None)
    if parameter.minimum is not None:
        assert low == parameter.minimum
    if parameter.maximum is not None and abs(parameter.maximum) < 2**31:
        assert high == parameter.maximum and parm.range.is_high_strict


def test_types_that_no_behavior_has_now() -> None:
    (box,) = declared_parms(declared((True, False), "tuple[bool, bool]"))
    assert (box.type, box.default, box.range) == (
        "intvector2", ("1", "0"), Range(0, 1, True, True)
    )  # fmt: skip
    (four,) = declared_parms(declared((1, 2, 3, 4), "tuple[int, int, int, int]"))
    assert (four.type, four.default) == ("intvector4", ("1", "2", "3", "4"))
    (wide,) = declared_parms(declared(1.0, "float", minimum=0.001, maximum=1000.0))
    assert (wide.type, wide.range) == ("log", Range(0.001, 1000.0, True, True))
    (large,) = declared_parms(declared(2**40, "int", minimum=0, maximum=2**62))
    assert (large.default, large.range) == (("2147483647",), Range(0, 2**31 - 1, True, False))
    switch, value = declared_parms(declared(None, "str | None", choices=("on", "off")))
    assert switch.default == ("0",) and value.default == ("on",)
    moving = {"keyframes": [[1, 3.0], [9, 5.0]], "time_unit": "frame"}
    assert declared_parms(declared(moving, "float"))[0].default == ("3",)
    quoting = declared_parms(declared('say "no" \\ more', "str", doc='A "text" \\ of it.'))
    assert tuple(read_back(*quoting).parms()) == tuple(quoting)


def test_what_is_written_is_read_back() -> None:
    parm = Parm(
        "start",
        "Start",
        "integer",
        (Expression("$FSTART"),),
        Range(1, 240),
        (("a", "A"), ("b", 'B "b"')),
        "help",
        (("editor", "1"),),
        "{ x == 0 }",
        '{ y != "" }',
        joins_next=True,
        has_label=False,
        is_hidden=True,
    )
    folder = Folder("tabs", "Tab", (parm,), "group", (("group_type", "simple"),))
    many = Folder("count", "Count", (replace(parm, name="one#"),), "multiparm")
    assert read_back(folder, many).items == (folder, many)
    with pytest.raises(ValueError, match="two parms are called wx"):
        dialog_text(
            Dialog("a", "A", (Parm("w", "W", "vector", ("0",) * 3), Parm("wx", "X", "string")))
        )


GOOD = """{
    name t
    label "T"
    parm {
        name "a"
        label "A"
        type vector
        size 3
        default { "0" "1" "2" }
        range { 0! 1 }
    }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    }\n", "", "a brace is not closed"),
        ('"A"', '"A', "a quote is not closed"),
        ('"2" }', '"2" ]', 'line 9: "]" without'),
        ("size 3", "size 2", "line 4: parm a has 3 defaults for 2"),
        ('"2" }', "}", "line 4: parm a has 2 defaults for 3"),
        ("type vector", "type vektor", 'the type "vektor"'),
        ("type vector", "type vector4", "of type vector4 has the size 3"),
        ('name "a"', 'name "a b"', 'line 5: "a b" is not the name of a parm'),
        ('name "a"', "", "line 4: a parm has no name"),
        ("name t", "", "the interface has no name"),
        ("range", "rang", 'line 10: "rang" is not a word of a parm'),
        ("0! 1", "2 1", "line 10: the range begins at 2.0 and ends at 1.0"),
        ("0! 1", "0 one", 'line 10: "one" is not a number'),
        ("0! 1", "0", "line 10: a range has two ends"),
        ("size 3", "size 3\nsize 3", 'line 9: parm says "size" twice'),
        ("parm {", "folder {", 'line 4: "folder" is not a word of dialog scripts'),
        ("label \"T\"", 'label "T"\ninputlabel 0 "x"', "line 4: inputlabel 0"),
    ],
)  # fmt: skip
def test_bad_dialog_scripts_are_refused(old: str, new: str, message: str) -> None:
    assert [parm.name for parm in parse_dialog(GOOD).parms()] == ["a"]
    with pytest.raises(DialogError) as error:
        parse_dialog(GOOD.replace(old, new, 1))
    assert message in str(error.value)


# -- node types -----------------------------------------------------------------------------------


def test_there_is_a_node_type_for_each_template_and_five_for_any_graph() -> None:
    general = ["host_to_loki", "graph", "to_host", "solver", "dop_solver"]
    own = [f"template_{one.name}" for one in templates()]
    assert list(TYPES) == general + own
    assert TYPES["solver"].operator == "loki::solver::1.0"
    assert card_name("loki::solver::1.0") == "loki--solver-1.0.txt"


@pytest.mark.parametrize("template", templates(), ids=lambda one: one.name)
def test_a_template_has_its_exposed_parameters_and_inputs(template: Any) -> None:
    graph = template.graph()
    made = TYPES[f"template_{template.name}"]
    dialog = parse_dialog(made.asset().sections["DialogScript"])
    parms = {parm.name: parm for parm in dialog.parms()}
    ours = [name for name in parms if not name.startswith("loki_") and not is_switch(name)]
    assert [loki_name(name) for name in ours] == [one.name for one in graph.exposed()]
    for one in graph.exposed():
        parm = parms[parm_name(one.name)]
        assert parm.label == one.label and parm.range is not None
        assert one.minimum is None or parm.range.low == one.minimum
        assert one.maximum is None or parm.range.high == one.maximum
        assert (parm.name + GIVEN in parms) == one.type.endswith("None")
        if one.default is not None:
            values = one.default if isinstance(one.default, tuple) else (one.default,)
            assert tuple(float(str(text)) for text in parm.default) == values
    names = input_names(graph)
    assert sorted(names) == graph.host_inputs() and len(names) <= run_parms.MOST_INPUTS
    assert [parms[f"loki_input{i}"].default for i in range(1, len(names) + 1)] == [
        (name,) for name in names
    ]
    assert [label.lower() for label in dialog.input_labels] == [
        name.replace("_", " ") for name in names
    ]


def test_the_solver_has_what_a_run_needs() -> None:
    parms = {parm.name: parm for parm in TYPES["solver"].dialog().parms()}
    wanted = (
        run_parms.SOURCE, run_parms.FILE, run_parms.TEMPLATE, run_parms.START, run_parms.END,
        run_parms.RESET, run_parms.CANCEL, run_parms.ENDPOINT, run_parms.CACHE, run_parms.RANKS,
        run_parms.THREADS, run_parms.OUTPUT, f"{run_parms.OVERRIDE}#",
        *(f"{run_parms.INPUT}{number}" for number in range(1, 5)),
    )  # fmt: skip
    assert set(wanted) <= set(parms)
    tokens = [token for token, _ in parms[run_parms.TEMPLATE].menu]
    assert tokens == [one.name for one in templates()]
    call = dict(parms[run_parms.RESET].tags)["script_callback"]
    assert call == "hou.phm().reset(kwargs['node'])"


def test_the_sections_are_calls_into_loki_houdini() -> None:
    for one in TYPES.values():
        sections = one.asset().sections
        first, second = sections["PythonCook"].splitlines()
        assert first == "from loki_houdini import cook"
        assert second.startswith("cook.cook_") and "hou.pwd()" in second
        assert ("PythonModule" in sections) == one.has_run
    cook = TYPES["template_grass"].asset().sections["PythonCook"]
    assert cook.splitlines()[1] == 'cook.cook_template(hou.pwd(), "grass")'


def test_help_names_every_visible_parm() -> None:
    for one in TYPES.values():
        text = one.help_text()
        assert text.startswith(f"= {one.label} =\n") and f"#internal: {one.operator}\n" in text
        assert f'"""{one.summary}"""' in text
        for parm in one.dialog().parms():
            shown = not parm.is_hidden and not is_switch(parm.name)
            assert (f"#id: {parm.name}\n" in text) == shown
    assert "SOP Solver" in TYPES["dop_solver"].help_text()


# -- directories ----------------------------------------------------------------------------------


@pytest.fixture
def solver(tmp_path: Path) -> Path:
    folder = tmp_path / "loki_solver.hda"
    write(folder, TYPES["solver"].asset())
    return folder


def inside(folder: Path, made: NodeType = TYPES["solver"]) -> Path:
    return folder / file_name(made.asset().key)


def test_names_of_files_and_tables() -> None:
    assert table_name("loki::solver::1.0", "Sop") == "loki::Sop/solver::1.0"
    assert table_name("labs::dds_file", "Cop2") == "labs::Cop2/dds_file"
    assert table_name("box", "Sop") == "Sop/box"
    assert file_name("loki::Sop/host_to_loki::1.0") == "loki_8_8Sop_1host__to__loki_8_81.0"
    assert file_name("INDEX_SECTION") == "INDEX__SECTION"


@pytest.mark.parametrize("name", TYPES)
def test_every_node_type_is_valid(name: str, tmp_path: Path) -> None:
    folder = tmp_path / TYPES[name].folder_name
    write(folder, TYPES[name].asset())
    assert validate(folder) == []
    assert validate(folder, is_ours=True) == []


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


BROKEN: list[tuple[str, str, str, str]] = [
    (LIST, '""\n', "", 'does not begin with ""'),
    (LIST, "\tINDEX_SECTION", " INDEX_SECTION", "has the line"),
    (LIST, "\tINDEX_SECTION", "\tINDEX", "lacks INDEX_SECTION"),
    (LIST, "_81.0\t", "_81.1\t", "is stored as loki_8_8Sop_1solver_8_81.1"),
    (LIST, "_81.0\tloki::Sop", "_81.0\tloki::Dop", "has no loki::Sop/solver::1.0"),
    ("INDEX__SECTION", "0 to 4", "4 to 0", "its Inputs are 4 to 0"),
    ("INDEX__SECTION", "0 to 4", "some", "its Inputs are some"),
    ("INDEX__SECTION", "Table:        Sop", "Table:        Sup", "its Table is Sup"),
    ("INDEX__SECTION", "Icon:", "Ikon:", "has no Icon"),
    ("INDEX__SECTION", "oplib:/", "otl:/", "its Path is otl:/"),
    ("INDEX__SECTION", "Subnet:       false", "Subnet:       true", "a subnet and written in"),
    ("INDEX__SECTION", "Python:       true", "Python:       yes", "Python is yes"),
    ("*/" + LIST, "PythonCook\tPythonCook\n", "", "has no PythonCook"),
    ("*/" + LIST, "PythonCook\tPythonCook", "PythonCook\tPython_Cook", "not as Python__Cook"),
    ("*/" + LIST, "Help\tHelp", "Help2\tHelp2", "section Help2 has no file Help2"),
    ("*/PythonCook", "cook.cook", "cook(", "PythonCook: line 2"),
    ("*/PythonModule", "import", "imports", "PythonModule: line 1"),
    ("*/Tools.shelf", "</tool>", "</tol>", "Tools.shelf: mismatched tag"),
    ("*/Tools.shelf", "shelfDocument>", "shelf>", "Tools.shelf: mismatched tag"),
    ("*/Tools.shelf", "<toolSubmenu>Loki</toolSubmenu>", "", "puts no tool in the menu"),
    ("*/IconSVG", "</svg>", "", "IconSVG: "),
    ("*/TypePropertiesOptions", ":= 1;", "= 1", "TypePropertiesOptions has the line"),
    ("*/ExtraFileOptions", "{", "", "ExtraFileOptions: "),
    ("*/Help", "= Loki", "Loki", "Help has no title"),
    ("*/DialogScript", "type    string", "type    text", 'the type "text"'),
    ("*/DialogScript", "solver::1.0\n", "server::1.0\n", "is not as Loki writes"),
    ("*/DialogScript", 'inputlabel\t4\t"Input 4"', "", "labels 3 of 4 inputs"),
    ("*/DialogScript", 'default { "0" }\n            help    "Pro', 'default { "none" }\n'
     '            help    "Pro', "which is not a number"),
    ("*/DialogScript", "range   { 0! 16 }", "range   { 1! 16 }", "outside of its range"),
    ("*/DialogScript", 'default { "vdb" }', 'default { "vdbs" }', "not in its menu"),
    ("*/DialogScript", '"file" "File"', '"template" "File"', "two entries of one token"),
    ("*/DialogScript", "label   \"Server\"", 'label   ""', "loki_endpoint has no label"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "message"), BROKEN)
def test_broken_directories_are_told(
    file: str, old: str, new: str, message: str, solver: Path
) -> None:
    edit(next(solver.glob(file)), old, new)
    problems = validate(solver, is_ours=True)
    assert any(message in problem for problem in problems), problems


def test_missing_and_surplus_files_are_told(solver: Path, tmp_path: Path) -> None:
    (inside(solver) / "extra").write_text("")
    assert validate(solver) == []
    assert validate(solver, is_ours=True) == [f"loki::solver::1.0: extra is not in {LIST}"]
    (inside(solver) / "extra").unlink()
    (inside(solver) / "DialogScript").unlink()
    assert validate(solver) == ["loki::solver::1.0: section DialogScript has no file DialogScript"]
    (inside(solver) / LIST).unlink()
    assert validate(solver) == [f"loki::solver::1.0: {inside(solver).name} has no {LIST}"]
    (solver / "INDEX__SECTION").unlink()
    assert "has no file INDEX__SECTION" in validate(solver)[0]
    (solver / LIST).unlink()
    assert validate(solver) == [f"loki_solver.hda: has no {LIST}"]
    assert validate(tmp_path / "none.hda") == ["none.hda: is not a folder"]


# -- the package ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("dist")
    problems, _ = build_package.build(output, None)
    assert problems == []
    return output


def test_the_same_sources_give_the_same_bytes(package: Path, tmp_path: Path) -> None:
    _, made = build_package.build(tmp_path, None)
    assert made.read_bytes() == (package / made.name).read_bytes()
    build_package.build(tmp_path, None)  # over what is there
    assert made.read_bytes() == (package / made.name).read_bytes()


def test_the_package_has_all_parts(package: Path) -> None:
    folder = package / build_package.NAME
    told = json.loads((folder / "loki.json").read_text(encoding="utf-8"))
    assert told["hpath"] == "$LOKI_HOUDINI"
    assert told["env"] == [{"LOKI_HOUDINI": "$HOUDINI_PACKAGE_PATH/loki"}]
    inside = folder / "loki"
    assert {path.name for path in (inside / "otls").iterdir()} == {
        one.folder_name for one in TYPES.values()
    }
    for one in TYPES.values():
        card = inside / "help" / "nodes" / one.table.lower() / card_name(one.operator)
        assert card.read_text(encoding="utf-8") == one.help_text()
    shelf = (inside / "toolbar" / "loki.shelf").read_text(encoding="utf-8")
    for name in ("host_to_loki", "graph", "to_host", "solver"):
        assert f"'{TYPES[name].operator}'" in shelf
    panel = (inside / "python_panels" / "loki.pypanel").read_text(encoding="utf-8")
    assert "panel.create()" in panel and 'name="loki_runs"' in panel
    libraries = inside / "python3.11libs"
    assert (libraries / "loki_houdini" / "panel.py").is_file()
    assert (libraries / "loki_graph" / "templates" / "grass.loki.json").is_file()
    assert not (libraries / "loki_vfx" / "bridges" / "blender").exists()
    assert not list(folder.rglob("__pycache__"))
    (made,) = package.glob("*.zip")
    with zipfile.ZipFile(made) as packed:
        assert "loki.json" in packed.namelist() and packed.testzip() is None


LIGHT = """
import importlib, sys
sys.path.insert(0, {libraries!r})
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one).lower()]
import loki_vfx.bridges.live.client, loki_houdini.panel, loki_vfx.serialization.codec
from loki_vfx.bridges.houdini.node_types import node_types
for module in ("loki_core", "loki_graph", "loki_vfx.bridges", "loki_houdini"):
    file = importlib.import_module(module).__file__
    assert file.startswith({libraries!r}), file
from loki_core.behavior import registry
from loki_graph.node import node_registry
assert registry() and node_registry() and node_types()
heavy = ("numba", "scipy", "mpi4py", "llvmlite", "trimesh", "rich", "click")
assert not [one for one in heavy if one in sys.modules], sys.modules
"""


def test_what_is_in_the_package_is_enough_and_light(package: Path) -> None:
    libraries = str(package / build_package.NAME / "loki" / "python3.11libs")
    script = LIGHT.format(libraries=libraries)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr


def test_a_node_type_that_is_not_valid_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(TYPES["to_host"], items=(Parm("a b", "A", "string", ("",), help="A."),))
    monkeypatch.setattr(build_package, "node_types", lambda: [wrong])
    words = ["build_package", "--output", str(tmp_path), "--without-wheels"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        build_package.main()
    assert ended.value.code == 1
    assert '"a b" is not the name of a parm' in capsys.readouterr().err
    assert not list(tmp_path.glob("*.zip"))


def test_the_panel_says_that_there_is_no_server(tmp_path: Path) -> None:
    watch = RunWatch(Aim(folder=tmp_path), seconds=0.01)
    end = time.monotonic() + 10.0
    while "No server" not in watch.view.line and time.monotonic() < end:
        time.sleep(0.01)
    watch.stop()
    watch.join()
    assert watch.view.line == f"No server runs for {tmp_path}"
    assert watch.view.rows == ()
