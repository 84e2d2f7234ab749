"""The JSON document of a Solver Setup: reading, limits, older versions, and its schema.

    {"loki": "solver_setup", "schema_version": 1, "name": "hair_in_wind",
     "settings": {"substeps": 4},
     "children": [
       {"group": "Hair", "children": [{"behavior": "CurvesObject", "parameters": {...}}]},
       {"behavior": "GravityForce", "name": "g", "enabled": false}]}

Only values that are not the default are written. A document may come from anywhere, so nothing in
it is trusted: sizes are bounded before anything is built, and every message names the file and
the path in the tree. Writing is `to_document()` of each class.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loki_core.behavior import Behavior, Declaration, check_name, find_behavior, registry
from loki_core.errors import FormatError, LokiError, SetupError, did_you_mean, require_file
from loki_core.parameter import MAX_EXPRESSION, is_clean_text, show
from loki_core.solver_settings import SolverSettings
from loki_core.solver_setup import MAX_DEPTH, MAX_NODES, Group, SolverSetup

SCHEMA_VERSION = 1
SUFFIX = ".loki.json"

MAX_TEXT_BYTES = 64 * 2**20
MAX_NESTING = 2 * MAX_DEPTH + 16  # lists and objects inside each other: two for each Group
MAX_ITEMS = 2_000_000  # values of all kinds in one document
MAX_DIGITS = 19  # of a whole number: more does not fit into 64 bits

_ROOT_KEYS = ("loki", "schema_version", "name", "enabled", "settings", "children", "$schema")
_GROUP_KEYS = ("group", "enabled", "children")
_BEHAVIOR_KEYS = ("behavior", "name", "enabled", "parameters")


# -- text ---------------------------------------------------------------------------------------


def parse_json(text: str | bytes, *, source: str = "") -> Any:
    """Return the document that a JSON text holds, stricter than JSON itself is.

    Raises:
        FormatError: The text is too large, not UTF-8, not JSON, has a key twice, or a number
            that is not finite or has too many digits.
    """
    place = f"{source}: " if source else ""
    if len(text) > MAX_TEXT_BYTES:
        raise FormatError(f"{place}{len(text)} bytes are more than the limit of {MAX_TEXT_BYTES}")
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_int=_read_integer,
            parse_float=_read_float,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        raise FormatError(f"{place}byte {error.start} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise FormatError(f"{place}not valid JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise FormatError(f"{place}nested more than {MAX_NESTING} levels deep") from None
    except FormatError as error:
        raise FormatError(f"{place}{error}") from None


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise FormatError(f"the key {show(key)} is there twice in one object")
            seen.add(key)
    return document


def _read_integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise FormatError(f"a whole number of {len(text)} digits does not fit into 64 bits")
    return int(text)


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise FormatError(f"the number {text[:40]} is too large")
    return value


def _refuse_constant(text: str) -> Any:
    raise FormatError(f"{text} is not a number that a Solver Setup can hold")


def format_json(value: Any, indent: str = "") -> str:
    """Return a document as text for people: short lists, vectors and keys, on one line."""
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value:
        return text
    if "{" not in text and len(text) <= 72:
        return text
    inner = indent + "  "
    if isinstance(value, list):
        parts = [format_json(item, inner) for item in value]
    else:
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {format_json(item, inner)}"
            for key, item in value.items()
        ]
    opening, closing = ("[", "]") if isinstance(value, list) else ("{", "}")
    lines = ",\n".join(inner + part for part in parts)
    return f"{opening}\n{lines}\n{indent}{closing}"


def read_setup(path: str | os.PathLike[str]) -> SolverSetup:
    """Read a Solver Setup from a `*.loki.json` file.

    Raises:
        LokiError: The file cannot be read, or is not a valid Solver Setup.
    """
    source = Path(path).name
    require_file(Path(path))
    try:
        with open(path, "rb") as file:  # one byte more than allowed tells a larger file
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise FormatError(f"{source}: cannot be read: {error.strerror or error}") from None
    return SolverSetup.from_json(data, source)


def write_setup(setup: SolverSetup, path: str | os.PathLike[str]) -> None:
    """Write a Solver Setup to a `*.loki.json` file; a crash leaves the old file whole.

    Raises:
        FormatError: The file cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(setup.to_json())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FormatError(f"{target.name}: cannot be written: {error.strerror or error}") from None


# -- reading ------------------------------------------------------------------------------------


def setup_from_document(document: Any, *, source: str = "") -> SolverSetup:
    """Return the Solver Setup that a document describes.

    Raises:
        LokiError: The document is not a valid Solver Setup; the message begins with the source.
    """
    prefix = f"{source}: " if source else ""
    check_limits(document, prefix=prefix)
    document = migrate(_expect_object(document, f"{prefix}the document"), prefix=prefix)
    _check_keys(document, _ROOT_KEYS, f"{prefix}the document")
    if "name" not in document:
        raise SetupError(f'{prefix}the document has no "name"')
    name = document["name"]
    check_name(name, f"{prefix}the name of the Solver Setup")
    place = prefix + name
    settings = _expect_object(document.get("settings", {}), f"{place}.settings")
    return SolverSetup.from_values(
        name,
        _read_children(document, place),
        enabled=document.get("enabled", True),
        place=place,
        settings=SolverSettings.from_values(settings, place=place),
    )


def check_limits(document: Any, *, prefix: str = "") -> None:
    """Check nesting, size, keys and plain values of a document, without recursion.

    Raises:
        FormatError: A limit is passed, or a value is of a kind that JSON does not have.
    """
    waiting: list[tuple[Any, int]] = [([document], 0)]
    count = nodes = 0
    while waiting:
        container, depth = waiting.pop()
        count += len(container)
        if count > MAX_ITEMS:
            raise FormatError(f"{prefix}more than {MAX_ITEMS} values")
        if depth > MAX_NESTING:
            raise FormatError(f"{prefix}nested more than {MAX_NESTING} levels deep")
        if isinstance(container, Mapping):
            for key in container:
                _check_text(key, prefix)
            nodes += "behavior" in container or "group" in container or "type" in container
            if nodes >= MAX_NODES:  # the root is one of them
                raise FormatError(f"{prefix}more than {MAX_NODES} Groups and Behaviors")
        for value in container.values() if isinstance(container, Mapping) else container:
            if isinstance(value, (Mapping, list, tuple)):
                waiting.append((value, depth + 1))
            elif isinstance(value, str):
                _check_text(value, prefix)
            elif isinstance(value, float) and not math.isfinite(value):
                raise FormatError(f"{prefix}the number {value} is not finite")
            elif value is not None and not isinstance(value, (bool, int, float)):
                raise FormatError(f"{prefix}{show(value)} has no place in a document")


def _check_text(text: Any, prefix: str) -> None:
    if not isinstance(text, str):
        raise FormatError(f"{prefix}a key is {show(text)}, not a text")
    if len(text) > MAX_EXPRESSION:
        raise FormatError(
            f"{prefix}a text of {len(text)} characters; at most {MAX_EXPRESSION} are allowed"
        )
    if not is_clean_text(text):
        raise FormatError(f"{prefix}{show(text)} holds characters that are not text")


def _read_children(document: Mapping[str, Any], place: str) -> tuple[Group | Behavior, ...]:
    children = document.get("children", [])
    if not isinstance(children, (list, tuple)):
        raise SetupError(f'{place}: "children" is {show(children)}, not a list')
    return tuple(
        _read_node(child, place, f"{place}/children[{index}]")
        for index, child in enumerate(children)
    )


def _read_node(document: Any, parent: str, place: str) -> Group | Behavior:
    document = _expect_object(document, place)
    if ("group" in document) == ("behavior" in document):
        both = "both" if "group" in document else "neither"
        raise SetupError(f'{place} has {both} "group" and "behavior"; it needs one of them')
    return (_read_group if "group" in document else _read_behavior)(document, parent, place)


def _read_group(document: Mapping[str, Any], parent: str, place: str) -> Group:
    _check_keys(document, _GROUP_KEYS, place)
    name = document["group"]
    check_name(name, f"{place}: the name of a Group")
    path = f"{parent}/{name}"
    children = _read_children(document, path)
    return Group.from_values(name, children, enabled=document.get("enabled", True), place=path)


def _read_behavior(document: Mapping[str, Any], parent: str, place: str) -> Behavior:
    _check_keys(document, _BEHAVIOR_KEYS, place)
    class_name = document["behavior"]
    if not isinstance(class_name, str):
        raise SetupError(f'{place}: "behavior" is {show(class_name)}, not a text')
    try:
        behavior_class = find_behavior(class_name)
    except SetupError as error:
        raise SetupError(f"{place}: {error}") from None
    name = document.get("name")
    if name is not None:
        check_name(name, f"{place}: the name of a Behavior")
    path = f"{parent}/{name or class_name}"
    parameters = _expect_object(document.get("parameters", {}), f"{path}.parameters")
    for own in ("name", "enabled"):  # they stand beside the parameters, not among them
        if own in parameters:
            raise SetupError(f'{path}: "{own}" belongs beside "parameters", not into them')
    values = {**parameters, "name": name, "enabled": document.get("enabled", True)}
    return behavior_class.from_values(values, place=path)


def _expect_object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SetupError(f"{place} is {show(value)}, not an object with keys")
    return value


def _check_keys(document: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in document:
        if key not in known:
            raise SetupError(f"{place} has no key {show(key)}{did_you_mean(key[:80], known)}")


# -- older versions -----------------------------------------------------------------------------


def migrate(document: Mapping[str, Any], *, prefix: str = "") -> Mapping[str, Any]:
    """Return a document in the current schema version.

    Raises:
        SetupError: It is no Solver Setup, or of a newer version than this one.
    """
    if document.get("loki") != "solver_setup":
        raise SetupError(
            f'{prefix}this is no Solver Setup: "loki" is {show(document.get("loki"))}, '
            'not "solver_setup"'
        )
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise SetupError(
            f'{prefix}"schema_version" is {show(version)}, not a whole number; '
            f"the current version is {SCHEMA_VERSION}"
        )
    if version > SCHEMA_VERSION:
        raise SetupError(
            f"{prefix}this is schema_version {show(version)}, and this Loki reads up to "
            f"{SCHEMA_VERSION}; use a newer Loki"
        )
    while version < SCHEMA_VERSION:
        try:
            document = MIGRATIONS[version](document)
        except LokiError as error:
            raise SetupError(f"{prefix}{error} (schema_version {version})") from None
        version += 1
    return document


def migrate_0_to_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a document of version 0 to version 1.

    Version 0 kept Behaviors and Groups in two lists, called a Behavior's class "type" and a
    Group's name "name": {"behaviors": [{"type": ...}], "groups": [{"name": ..., ...}]}.
    """
    new = {key: value for key, value in document.items() if key not in ("behaviors", "groups")}
    children = _children_of_version_0(document, "the document")
    return {**new, "schema_version": 1, "children": children}


def _children_of_version_0(document: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    children: list[dict[str, Any]] = []
    if "children" in document:
        raise SetupError(f'{place} has "children", which came with version 1')
    for key, old, new in (("groups", "name", "group"), ("behaviors", "type", "behavior")):
        items = document.get(key, [])
        if not isinstance(items, (list, tuple)):
            raise SetupError(f'{place}: "{key}" is {show(items)}, not a list')
        for index, item in enumerate(items):
            item_place = f"{place}: {key}[{index}]"
            item = _expect_object(item, item_place)
            if old not in item:
                raise SetupError(f'{item_place} has no "{old}"')
            if new in item:
                raise SetupError(f'{item_place} has "{new}", which came with version 1')
            moved = {k: v for k, v in item.items() if k not in (old, "groups", "behaviors")}
            child = {new: item[old], **moved}
            if key == "groups":
                child["children"] = _children_of_version_0(item, item_place)
            elif "groups" in item or "behaviors" in item:
                raise SetupError(f"{item_place} is a Behavior and holds nothing")
            children.append(child)
    return children


MIGRATIONS: dict[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = {0: migrate_0_to_1}


# -- schema -------------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a whole document, from the registered Behaviors."""
    behaviors = registry()
    definitions: dict[str, Any] = {
        name: _behavior_schema(behavior) for name, behavior in behaviors.items()
    }
    node = {"anyOf": [{"$ref": "#/$defs/Group"}]}
    node["anyOf"] += [{"$ref": f"#/$defs/behaviors/{name}"} for name in behaviors]
    children = {"type": "array", "items": {"$ref": "#/$defs/node"}}
    name = {"type": "string", "pattern": r"^\w([\w \-]*[\w\-])?$", "maxLength": 128}
    group = {
        "type": "object",
        "properties": {"group": name, "enabled": {"type": "boolean"}, "children": children},
        "required": ["group"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Loki Solver Setup",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "loki": {"const": "solver_setup"},
            "schema_version": {"const": SCHEMA_VERSION},
            "name": name,
            "enabled": {"type": "boolean", "default": True},
            "settings": _parameters_schema(SolverSettings),
            "children": children,
        },
        "required": ["loki", "schema_version", "name"],
        "additionalProperties": False,
        "$defs": {"node": node, "Group": group, "behaviors": definitions},
    }


def _parameters_schema(declaration: type[Declaration]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {n: p.json_schema() for n, p in declaration.parameters().items()},
        "additionalProperties": False,
    }


def _behavior_schema(behavior: type[Behavior]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (behavior.__doc__ or "").strip().partition("\n")[0],
        "properties": {
            "behavior": {"const": behavior.__name__},
            "name": {"type": "string"},
            "enabled": {"type": "boolean", "default": True},
            "parameters": _parameters_schema(behavior),
        },
        "required": ["behavior"],
        "additionalProperties": False,
    }
