"""The JSON document of a Loki Graph: reading, limits, older versions, files.

    {"loki": "graph", "schema_version": 1, "name": "sparks",
     "nodes": {"nozzle": {"type": "ShapeSource", "parameters": {"shape": "disc"}},
               "solver": {"type": "SolverSetupNode", "parameters": {"setup": {...}}}},
     "connections": [["nozzle.out", "solver.nozzle"]],
     "exposed": [{"name": "nozzle_size", "target": "nozzle.size", "label": "Nozzle size"}]}

The key "loki" tells a graph from a Solver Setup; both are `*.loki.json` files. As with Solver
Setups nothing in a document is trusted, and the same limits hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError, GraphError, LokiError, did_you_mean, require_file
from loki_core.parameter import show
from loki_core.setup_document import (
    MAX_TEXT_BYTES,
    check_limits,
    parse_json,
    setup_from_document,
)
from loki_core.solver_setup import SolverSetup
from loki_graph.exposed_parameters import Exposed
from loki_graph.folder_access import FolderAccess
from loki_graph.graph import Graph, GraphSettings, make_node
from loki_graph.node import Node, find_node

SCHEMA_VERSION = 1

_ROOT_KEYS = (
    "loki",
    "schema_version",
    "name",
    "settings",
    "nodes",
    "connections",
    "exposed",
    "$schema",
)
_NODE_KEYS = ("type", "parameters")
_EXPOSED_KEYS = ("name", "target", "label", "minimum", "maximum", "default")

MIGRATIONS: dict[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = {}
"""Functions that bring a document from a version to the next; version 1 is the first."""


def graph_to_document(graph: Graph) -> dict[str, Any]:
    """Return the JSON form of a graph, with the values that are not the default."""
    document: dict[str, Any] = {
        "loki": "graph",
        "schema_version": SCHEMA_VERSION,
        "name": graph.name,
    }
    settings = graph.settings.parameters_document()
    if settings:
        document["settings"] = settings
    nodes: dict[str, Any] = {}
    for name, node in graph.nodes.items():
        nodes[name] = {"type": type(node).__name__}
        parameters = node.parameters_document()
        if parameters:
            nodes[name]["parameters"] = parameters
    document["nodes"] = nodes
    document["connections"] = [[one.start, one.end] for one in graph.connections]
    exposed = graph.exposed_declarations()
    if exposed:
        document["exposed"] = [one.to_document() for one in exposed]
    return document


def graph_from_document(
    document: Any, *, source: str = "", base_folder: str | Path | None = None
) -> Graph:
    """Return the graph that a document describes.

    Raises:
        LokiError: The document is not a valid graph; the message begins with the source.
    """
    prefix = f"{source}: " if source else ""
    check_limits(document, prefix=prefix)
    try:
        return _read_graph(document, base_folder=base_folder)
    except LokiError as error:
        raise type(error)(f"{prefix}{error}") from None


def _read_graph(document: Any, *, base_folder: str | Path | None) -> Graph:
    document = migrate(_expect_object(document, "the document"))
    _check_keys(document, _ROOT_KEYS, "the document")
    name = document.get("name")
    if not isinstance(name, str):
        raise GraphError(f'the document has no "name" that is a text, but {show(name)}')
    place = name[:80]
    try:
        settings = GraphSettings.from_values(
            _expect_object(document.get("settings", {}), f"{place}.settings"), place=place
        )
    except GraphError:
        raise
    except LokiError as error:
        raise GraphError(str(error)) from None
    nodes = {
        key: _read_node(value, f"{place}/{key[:80]}")
        for key, value in _expect_object(document.get("nodes", {}), f"{place}.nodes").items()
    }
    if base_folder is not None:
        plain = Graph(name, nodes=nodes, settings=settings)
        nodes = dict(plain.resolved(FolderAccess(Path(base_folder))).nodes)
    return Graph(
        name,
        nodes=nodes,
        connections=_expect_list(document.get("connections", []), f"{place}.connections"),
        exposed=[
            _read_exposed(one, f"{place}.exposed[{index}]")
            for index, one in enumerate(
                _expect_list(document.get("exposed", []), f"{place}.exposed")
            )
        ],
        settings=settings,
    )


def _read_node(document: Any, place: str) -> Node:
    document = _expect_object(document, place)
    _check_keys(document, _NODE_KEYS, place)
    type_name = document.get("type")
    if not isinstance(type_name, str):
        raise GraphError(f'{place}: "type" is {show(type_name)}, not a text')
    try:
        node_class = find_node(type_name)
    except GraphError as error:
        raise GraphError(f"{place}: {error}") from None
    parameters = _expect_object(document.get("parameters", {}), f"{place}.parameters")
    return make_node(node_class, parameters, place=place)


def _read_exposed(document: Any, place: str) -> Exposed:
    document = _expect_object(document, place)
    _check_keys(document, _EXPOSED_KEYS, place)
    for key in ("name", "target"):
        if not isinstance(document.get(key), str):
            raise GraphError(f'{place}: "{key}" is {show(document.get(key))}, not a text')
    return Exposed(**document)


def _expect_object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GraphError(f"{place} is {show(value)}, not an object with keys")
    return value


def _expect_list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise GraphError(f"{place} is {show(value)}, not a list")
    return list(value)


def _check_keys(document: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in document:
        if key not in known:
            raise GraphError(f"{place} has no key {show(key)}{did_you_mean(key[:80], known)}")


def migrate(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document in the current schema version.

    Raises:
        GraphError: It is no graph, or of a version that this one cannot read.
    """
    if document.get("loki") != "graph":
        raise GraphError(
            f'this is no Loki Graph: "loki" is {show(document.get("loki"))}, not "graph"'
        )
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise GraphError(
            f'"schema_version" is {show(version)}, not a whole number from 1; the current '
            f"version is {SCHEMA_VERSION}"
        )
    if version > SCHEMA_VERSION:
        raise GraphError(
            f"this is schema_version {show(version)}, and this Loki reads up to "
            f"{SCHEMA_VERSION}; use a newer Loki"
        )
    while version < SCHEMA_VERSION:
        document = MIGRATIONS[version](document)
        version += 1
    return document


# -- files --------------------------------------------------------------------------------------


def load_document_file(path: str | os.PathLike[str]) -> SolverSetup | Graph:
    """Read a `*.loki.json` file, whose key "loki" says whether it is a Solver Setup or a graph.

    Raises:
        LokiError: The file cannot be read, or is neither.
    """
    path = Path(path)
    require_file(path)
    try:
        with open(path, "rb") as file:  # one byte more than allowed tells a larger file
            data = file.read(MAX_TEXT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FormatError(f"{path.name}: cannot be read: {reason}") from None
    if not data.strip():
        raise FormatError(f"{path.name} is empty; a Loki Graph or a Solver Setup is expected")
    document = parse_json(data, source=path.name)
    kind = document.get("loki") if isinstance(document, Mapping) else None
    if kind == "graph":
        return graph_from_document(document, source=path.name, base_folder=path.parent)
    if kind == "solver_setup":
        return setup_from_document(document, source=path.name)
    known = ("graph", "solver_setup")
    hint = did_you_mean(kind[:80], known) if isinstance(kind, str) else ""
    found = 'it has no key "loki"' if kind is None else f'"loki" is {show(kind)}{hint}'
    raise FormatError(f"{path.name} is neither a Loki Graph nor a Solver Setup: {found}")


def read_graph(path: str | os.PathLike[str]) -> Graph:
    """Read a graph from a `*.loki.json` file, with the Solver Setup files that it names.

    Raises:
        LokiError: The file cannot be read, or is not a valid graph.
    """
    found = load_document_file(path)
    if not isinstance(found, Graph):
        raise GraphError(f"{Path(path).name} is a Solver Setup, not a Loki Graph")
    return found


def write_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a `*.loki.json` file; a crash leaves the old file whole."""
    from loki_vfx.serialization.atomic_file import write_atomic

    write_atomic(Path(path), [graph.to_json().encode("utf-8")])
