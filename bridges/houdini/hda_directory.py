"""HDA directories: assets of Houdini in their expanded form, a folder of text files.

    loki_solver.hda/
      Sections.list                         files and the sections that they hold
      INDEX__SECTION                        the node types of the library
      houdini.hdalibrary                    empty
      loki_8_8Sop_1solver_8_81.0/           a node type: DialogScript, PythonCook, Help, ...

Houdini loads such a folder from `otls` as if it were a file. Node types of Loki are written in
Python, so that nothing in them is binary; the layout is that of published assets.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loki_vfx.bridges.houdini.dialog_blocks import DialogError
from loki_vfx.bridges.houdini.dialog_parser import parse_dialog
from loki_vfx.bridges.houdini.dialog_rules import rule_problems

LIST = "Sections.list"
INDEX = "INDEX_SECTION"
LIBRARY = "houdini.hdalibrary"
MODIFIED = "Thu Jan  1 00:00:00 2026"  # the same in every build
PYTHON_SECTIONS = ("PythonCook", "PythonModule", "OnCreated", "OnLoaded")
TABLES = ("Chop", "Cop", "Cop2", "Dop", "Driver", "Lop", "Object", "Shop", "Sop", "Top", "Vop")

_ESCAPES = {"_": "__", "/": "_1", ":": "_8"}
_INDEX_KEYS = (
    "Operator", "Label", "Path", "Icon", "Table", "License", "Extra", "User", "Inputs",
    "Subnet", "Python", "Empty", "Modified",
)  # fmt: skip


@dataclass(frozen=True)
class Asset:
    """A node type to be written.

    Attributes:
        operator: Its whole name, such as `loki::solver::1.0`.
        table: "Sop", "Dop", ...
        sections: Texts by section name.
    """

    operator: str
    label: str
    table: str
    icon: str
    least_inputs: int
    most_inputs: int
    sections: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name with its table, such as `loki::Sop/solver::1.0`."""
        return table_name(self.operator, self.table)


def table_name(operator: str, table: str) -> str:
    """Return the name of a node type with its table: `loki::Sop/solver::1.0`."""
    parts = operator.split("::")
    is_versioned = len(parts) > 1 and re.fullmatch(r"[0-9.]+", parts[-1]) is not None
    at = len(parts) - (2 if is_versioned else 1)
    return "::".join([*parts[:at], f"{table}/{parts[at]}", *parts[at + 1 :]])


def file_name(section: str) -> str:
    """Return the name of the file that holds a section."""
    return "".join(_ESCAPES.get(letter, letter) for letter in section)


def write(folder: Path, asset: Asset) -> None:
    """Write a node type as a library of its own; the folder's name ends with `.hda`."""
    inside = folder / file_name(asset.key)
    inside.mkdir(parents=True)
    for section, text in asset.sections.items():
        _write(inside / file_name(section), text)
    _write(inside / LIST, _list_text(list(asset.sections)))
    _write(folder / file_name(INDEX), _index_text(asset))
    _write(folder / LIBRARY, "")
    _write(folder / LIST, _list_text([INDEX, LIBRARY, asset.key]))


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))  # lines end alike on every system


def _list_text(sections: list[str]) -> str:
    return '""\n' + "".join(f"{file_name(one)}\t{one}\n" for one in sections)


def _index_text(asset: Asset) -> str:
    values = {
        "Operator": asset.operator,
        "Label": asset.label,
        "Path": f"oplib:/{asset.key}?{asset.key}",
        "Icon": asset.icon,
        "Table": asset.table,
        "Inputs": f"{asset.least_inputs} to {asset.most_inputs}",
        "Subnet": "false",
        "Python": "true",
        "Empty": "false",
        "Modified": MODIFIED,
    }
    lines = [f"{key + ':':<14}{values.get(key, '')}\n" for key in _INDEX_KEYS]
    return "".join(lines) + "\n"


# -- reading and checking -------------------------------------------------------------------------


def validate(path: Path, *, is_ours: bool = False) -> list[str]:
    """Return what is wrong with an HDA directory; nothing if Houdini can be expected to load it.

    Args:
        path: The folder.
        is_ours: Hold it to what Loki's own node types keep to as well: a help text, a tool, labels
            for all inputs, no file too many, and a dialog script as Loki writes them.
    """
    if not path.is_dir():
        return [f"{path.name}: is not a folder"]
    problems = [] if path.suffix == ".hda" else [f"{path.name}: is not called *.hda"]
    if not (path / LIST).is_file():
        return [*problems, f"{path.name}: has no {LIST}"]
    try:
        listed = _read_list(path / LIST)
        problems += [f"{path.name}: {one}" for one in _list_problems(path, listed, is_ours)]
        if not {INDEX, LIBRARY} <= set(listed.values()):
            return [*problems, f"{path.name}: {LIST} lacks {INDEX} or {LIBRARY}"]
        entries = _read_index(path / file_name(INDEX))
        keys = []
        for entry in entries:
            name = entry.get("Operator", "?")
            problems += [f"{name}: {one}" for one in _entry_problems(entry)]
            key = table_name(name, entry.get("Table", ""))
            keys.append(key)
            if key not in listed.values():
                problems.append(f"{name}: {LIST} has no {key}")
                continue
            inside = path / file_name(key)
            problems += [f"{name}: {one}" for one in _type_problems(inside, entry, is_ours)]
    except (OSError, ValueError) as error:
        return [*problems, f"{path.name}: {error}"]
    for section in listed.values():
        if section not in (INDEX, LIBRARY, *keys):
            problems.append(f"{path.name}: {section} is not in {INDEX}")
    return problems


def _read_list(path: Path) -> dict[str, str]:
    """Return the sections by file name."""
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines[0] != '""':
        raise ValueError(f'{path.parent.name}/{LIST} does not begin with ""')
    found: dict[str, str] = {}
    for line in filter(None, lines[1:]):
        file, tab, section = line.partition("\t")
        if not tab or file in found:
            raise ValueError(f"{path.parent.name}/{LIST} has the line {line!r}")
        found[file] = section
    return found


def _read_index(path: Path) -> list[dict[str, str]]:
    entries = []
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8").strip("\n")):
        pairs = (line.partition(":") for line in block.splitlines() if line.strip())
        entries.append({key.strip(): value.strip() for key, _, value in pairs})
    return entries


def _list_problems(folder: Path, listed: Mapping[str, str], is_ours: bool) -> Iterator[str]:
    """Yield where a list of sections and the files beside it differ."""
    for file, section in listed.items():
        if file_name(section) != file:
            yield f"section {section} is stored as {file}, not as {file_name(section)}"
        if not (folder / file).exists() and not _unpacked(folder, file).is_dir():
            yield f"section {section} has no file {file}"
    for path in sorted(folder.iterdir()) if is_ours else ():
        if path.name != LIST and path.name not in listed:
            yield f"{path.name} is not in {LIST}"


def _unpacked(folder: Path, file: str) -> Path:
    """Return where Houdini puts a network that it has unpacked: Contents.gz is Contents.dir."""
    return folder / (file.partition(".")[0] + ".dir")


def _entry_problems(entry: Mapping[str, str]) -> Iterator[str]:
    for key in _INDEX_KEYS:
        if key not in entry:
            yield f"{file_name(INDEX)} has no {key}"
    key = table_name(entry.get("Operator", ""), entry.get("Table", ""))
    if entry.get("Path") != f"oplib:/{key}?{key}":
        yield f"its Path is {entry.get('Path')}, not oplib:/{key}?{key}"
    if entry.get("Table") not in TABLES:
        yield f"its Table is {entry.get('Table')}"
    for switch in ("Subnet", "Python", "Empty"):
        if entry.get(switch) not in ("true", "false"):
            yield f"{switch} is {entry.get(switch)}, neither true nor false"
    least, most = _inputs(entry)
    if not 0 <= least <= most:
        yield f"its Inputs are {entry.get('Inputs')}, not such as 0 to 4"


def _inputs(entry: Mapping[str, str]) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+) to (\d+)", entry.get("Inputs", ""))
    return (int(match.group(1)), int(match.group(2))) if match else (-1, -1)


def _type_problems(folder: Path, entry: Mapping[str, str], is_ours: bool) -> Iterator[str]:
    if not (folder / LIST).is_file():
        yield f"{folder.name} has no {LIST}"
        return
    listed = _read_list(folder / LIST)
    yield from _list_problems(folder, listed, is_ours)
    sections = set(listed.values())
    if entry.get("Python") == "true" and "PythonCook" not in sections:
        yield "is written in Python and has no PythonCook"
    if entry.get("Python") == entry.get("Subnet") == "true":
        yield "is a subnet and written in Python"
    needed = ["DialogScript", "CreateScript", "TypePropertiesOptions", "Tools.shelf"]
    for section in [*needed, "Help", "IconSVG"] if is_ours else needed:
        if section not in sections:
            yield f"has no section {section}"
    for section in sorted(sections):
        path = folder / file_name(section)
        if path.is_file():
            yield from _section_problems(section, path, entry, is_ours)


def _section_problems(
    section: str, path: Path, entry: Mapping[str, str], is_ours: bool
) -> Iterator[str]:
    if section == "DialogScript":
        yield from _dialog_problems(_text_of(path), entry, is_ours)
    elif section in PYTHON_SECTIONS and (section == "PythonCook" or is_ours):
        try:
            compile(_text_of(path), section, "exec")
        except SyntaxError as error:
            yield f"{section}: line {error.lineno}: {error.msg}"
    elif section == "TypePropertiesOptions":
        for line in filter(None, map(str.strip, _text_of(path).splitlines())):
            if not re.fullmatch(r"\w+ := .*;", line):
                yield f"{section} has the line {line!r}"
    elif section == "ExtraFileOptions":
        try:
            json.loads(_text_of(path))
        except ValueError as error:
            yield f"{section}: {error}"
    elif section in ("Tools.shelf", "IconSVG"):
        try:
            root = ElementTree.fromstring(path.read_bytes())
        except ElementTree.ParseError as error:
            yield f"{section}: {error}"
            return
        if section == "Tools.shelf" and root.tag != "shelfDocument":
            yield f"{section} is a {root.tag}, not a shelfDocument"
        if section == "Tools.shelf" and is_ours and root.find("tool/toolSubmenu") is None:
            yield f"{section} puts no tool in the menu"
    elif section == "Help" and is_ours and not _text_of(path).startswith("= "):
        yield "Help has no title"


def _dialog_problems(text: str, entry: Mapping[str, str], is_ours: bool) -> Iterator[str]:
    try:
        dialog = parse_dialog(text)
    except DialogError as error:
        yield f"DialogScript: {error}"
        return
    if not is_ours:
        return
    if dialog.name != entry.get("Operator"):
        yield f"DialogScript is that of {dialog.name}"
    if len(dialog.input_labels) != _inputs(entry)[1]:
        yield f"DialogScript labels {len(dialog.input_labels)} of {_inputs(entry)[1]} inputs"
    yield from (f"DialogScript: {problem}" for problem in rule_problems(dialog, text))


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
