"""Exposed parameters: values of a graph that its user is meant to change, under names of their own.

An exposed parameter is no copy: it points at the value itself, so that keyframes, drivers and
undo are those of that value. It finds it by numbers that nodes and rows keep when they are renamed
or moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import bpy

from loki_core.keyframes import Keyframes
from loki_core.parameter import Parameter
from loki_core.solver_settings import SolverSettings
from loki_graph.exposed_parameters import Exposed, find_parameter
from loki_graph.graph import Graph

from . import animation
from .declared_properties import property_name, set_value
from .setup_rows import behavior_of, path_of_row, values_of

SWITCH = "enabled"


class Target(NamedTuple):
    """Where an exposed parameter leads."""

    owner: Any  # the bpy struct that has the property
    property: str
    parameter: Parameter | None  # None for the switch of a row
    path: str  # as Loki Graphs write it


def make_exposed_class() -> type[Any]:
    """Return the class of the entries that a graph keeps."""
    annotations = {
        "title": bpy.props.StringProperty(name="Name", description="Its name in files and scripts"),
        "label": bpy.props.StringProperty(name="Label", description="What people read"),
        "node": bpy.props.IntProperty(options={"HIDDEN"}),
        "row": bpy.props.IntProperty(options={"HIDDEN"}),
        "parameter": bpy.props.StringProperty(options={"HIDDEN"}),
        "limits": bpy.props.StringProperty(options={"HIDDEN"}),  # JSON: minimum, maximum, default
    }
    return type("LOKI_PG_exposed", (bpy.types.PropertyGroup,), {"__annotations__": annotations})


def targets(tree: Any) -> Iterator[tuple[Any, Target | None]]:
    """Yield the exposed parameters of a graph and where they lead; None if that is gone."""
    for entry in tree.loki.exposed:
        yield entry, find_target(tree, entry)


def find_target(tree: Any, entry: Any) -> Target | None:
    """Return where an exposed parameter leads; None if that is gone."""
    node = next((one for one in tree.nodes if getattr(one, "number", 0) == entry.node), None)
    if node is None:
        return None
    if not entry.row:
        own = node.declaration.parameters().get(entry.parameter)
        if own is not None:
            place = f"{node.name}.{entry.parameter}"
            return Target(node.values, property_name(entry.parameter), own, place)
        setting = SolverSettings.parameters().get(entry.parameter)
        if setting is None:
            return None
        place = f"{node.name}/{entry.parameter}"
        return Target(node.part.settings, property_name(entry.parameter), setting, place)
    rows = node.part.rows
    for index, row in enumerate(rows):
        if row.number != entry.row:
            continue
        place = f"{node.name}/{path_of_row(rows, index)}.{entry.parameter}"
        if entry.parameter == SWITCH:
            return Target(row, SWITCH, None, place)
        behavior = behavior_of(row)
        parameter = None if behavior is None else behavior.parameters().get(entry.parameter)
        if parameter is None:
            return None
        return Target(values_of(row), property_name(entry.parameter), parameter, place)
    return None


def declarations(tree: Any) -> list[Exposed]:
    """Return the exposed parameters of a graph as a Loki Graph writes them."""
    found = []
    for entry, target in targets(tree):
        if target is not None:
            limits = json.loads(entry.limits or "{}")
            found.append(Exposed(entry.title, target.path, entry.label, **limits))
    return found


def fill(tree: Any, graph: Graph) -> None:
    """Show what a Loki Graph exposes; its nodes and rows are there already."""
    tree.loki.exposed.clear()
    for one in graph.exposed_declarations():
        node_name, rest, _, _ = find_parameter(one.target, graph.nodes, place=graph.name)
        node = tree.nodes[node_name]
        entry = tree.loki.exposed.add()
        entry.title, entry.label = one.name, one.label
        entry.node = node.number
        path, _, entry.parameter = rest.removeprefix("/").rpartition(".")
        if path:
            rows = node.part.rows
            paths = {path_of_row(rows, index): rows[index] for index in range(len(rows))}
            entry.row = paths[path].number
        document = one.to_document()
        limits = {k: document[k] for k in ("minimum", "maximum", "default") if k in document}
        entry.limits = json.dumps(limits)


def expose(tree: Any, node: Any, row: Any, parameter: str) -> Any:
    """Expose a parameter of a node or of one of its rows; return the entry."""
    number = 0 if row is None else row.number
    for entry in tree.loki.exposed:
        if (entry.node, entry.row, entry.parameter) == (node.number, number, parameter):
            return entry
    entry = tree.loki.exposed.add()
    entry.node, entry.row, entry.parameter = node.number, number, parameter
    taken = {one.title for one in tree.loki.exposed}
    owner = "" if row is None else f"{row.title or row.behavior}_"
    title = base = parameter if parameter not in taken else f"{owner}{parameter}".lower()
    count = 2
    while title in taken:
        title, count = f"{base}_{count}", count + 1
    entry.title = title
    entry.label = title.replace("_", " ").capitalize()
    return entry


def reset(entry: Any, target: Target, *, frames_per_second: float, start: int) -> None:
    """Bring a value back to what the graph's author gave as its default, which may be keyframes."""
    animation.reset(target.owner, target.property)
    default = json.loads(entry.limits or "{}").get("default")
    if default is None:
        return
    if target.parameter is None:
        setattr(target.owner, target.property, default)
        return
    checked = target.parameter.check(default, entry.title)
    if isinstance(checked, Keyframes):
        animation.insert_keyframes(
            target.owner,
            target.parameter,
            checked,
            frames_per_second=frames_per_second,
            start=start,
        )
    else:
        set_value(target.owner, target.parameter, checked)
