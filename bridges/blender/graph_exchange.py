"""Graph exchange: a node tree of Blender becomes a Loki Graph, and a Loki Graph a node tree.

What goes to the solver is made here, so this is also where frames per second and start frame of
the scene enter, and where animated values become keyframes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import bpy

from loki_core.behavior import Declaration
from loki_core.errors import GraphError
from loki_core.keyframes import Keyframes
from loki_core.parameter import show
from loki_core.solver_settings import SolverSettings
from loki_graph import Graph
from loki_graph.nodes.solver_setup import SolverSetupNode

from . import exposed, setup_rows
from .animation import (
    animated_paths,
    driven_paths,
    insert_keyframes,
    keyframes_of,
    path_of,
    sampled_keyframes,
)
from .declared_properties import set_values
from .graph_tree import NODE, TREE, is_loki, loki_name
from .scene_time import go_home, time_of

COLUMN, LINE = 260.0, 200.0  # between nodes of a new tree
CLOCK = ("frames_per_second", "start_frame")


# -- to a Loki Graph ------------------------------------------------------------------------------


def graph_of(
    tree: Any,
    *,
    frames: tuple[int, int],
    frames_per_second: float,
    driven: Mapping[str, Mapping[int, Any]] | None = None,
) -> Graph:
    """Return the Loki Graph of a node tree.

    Args:
        frames: First and last frame of the bake; the first one is time zero.
        driven: Values that drivers gave, by data path and frame.

    Raises:
        LokiError: Something in it is not valid; the message says where.
    """
    animated = _animated_values(tree, frames, driven or {})
    names = {node.name: loki_name(node.name) for node in tree.nodes if is_loki(node)}
    if len(set(names.values())) < len(names):
        raise GraphError(f"{tree.name}: two nodes have names that differ by special letters only")
    nodes = {}
    for node in tree.nodes:
        if not is_loki(node) or node.mute:
            continue
        made = node.loki_node(animated)
        if isinstance(made, SolverSetupNode) and made.loaded_setup is not None:
            setup = made.loaded_setup
            clock = {"frames_per_second": frames_per_second, "start_frame": frames[0]}
            settings = SolverSettings.from_values(
                {**setup.settings.changed_values(), **clock}, place=setup.name
            )
            made = made.with_setup(setup.with_settings(settings))
        nodes[names[node.name]] = made
    there = {name: ours for name, ours in names.items() if ours in nodes}
    connections = [
        (f"{names[a.name]}.{a_socket.name}", f"{names[b.name]}.{b_socket.name}")
        for a, a_socket, b, b_socket in links_of(tree)
        if names.get(a.name) in nodes and names.get(b.name) in nodes
    ]
    graph = Graph(
        loki_name(tree.name), nodes=nodes, connections=connections, exposed=_exposed(tree, there)
    )
    _check_limits(graph)
    return graph


def _check_limits(graph: Graph) -> None:
    """Hold exposed values to the range that the graph's author gave them."""
    for one in graph.exposed():
        values = one.value if isinstance(one.value, tuple) else (one.value,)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            low = one.minimum is not None and value < one.minimum
            if low or (one.maximum is not None and value > one.maximum):
                raise GraphError(
                    f"{one.label} = {show(value)}; it goes from {show(one.minimum)} to "
                    f"{show(one.maximum)} {one.unit}".rstrip()
                )


def _exposed(tree: Any, names: Mapping[str, str]) -> list[Any]:
    found = []
    for one in exposed.declarations(tree):
        name = max((n for n in names if one.target.startswith(n)), key=len, default=None)
        if name is None:
            continue  # its node is muted
        found.append(replace(one, target=names[name] + one.target[len(name) :]))
    return found


def links_of(tree: Any) -> list[tuple[Any, Any, Any, Any]]:
    """Return links as node, socket, node, socket; reroutes are followed back to their source."""
    found = []
    for link in tree.links:
        if not is_loki(link.to_node):
            continue
        source = link
        while source is not None and source.from_node.bl_idname == "NodeReroute":
            behind = source.from_node.inputs[0].links
            source = behind[0] if behind else None
        if source is not None and is_loki(source.from_node):
            found.append((source.from_node, source.from_socket, link.to_node, link.to_socket))
    return found


def declared_groups(tree: Any) -> list[tuple[Any, type[Declaration]]]:
    """Return every PropertyGroup with declared values in a tree, with its declaration."""
    found: list[tuple[Any, type[Declaration]]] = []
    for node in tree.nodes:
        if not is_loki(node):
            continue
        found.append((node.values, node.declaration))
        for row in node.part.rows:
            behavior = setup_rows.behavior_of(row)
            if behavior is not None:
                found.append((setup_rows.values_of(row), behavior))
    return found


def _animated_values(
    tree: Any, frames: tuple[int, int], driven: Mapping[str, Mapping[int, Any]]
) -> dict[str, Keyframes]:
    curves = animated_paths(tree)
    if not curves:
        return {}
    found = {}
    for group, declaration in declared_groups(tree):
        for parameter in declaration.parameters().values():
            path = path_of(group, parameter)
            if path in driven:
                found[path] = sampled_keyframes(parameter, driven[path])
            elif path in curves and path not in driven_paths({path: curves[path]}):
                found[path] = keyframes_of(group, parameter, curves[path], frames)
    return found


def sample_drivers(tree: Any, scene: Any, frames: tuple[int, int]) -> dict[str, dict[int, Any]]:
    """Return what drivers give at every frame, by data path; the scene steps through all frames.

    Values are copied out: Blender hands out views that change with the scene.
    """
    wanted = driven_paths(animated_paths(tree))
    if not wanted:
        return {}
    samples: dict[str, dict[int, Any]] = {path: {} for path in wanted}
    try:
        for frame in range(frames[0], frames[1] + 1):
            with time_of(scene, frame, anew=True):
                for path in wanted:
                    value = tree.path_resolve(path)
                    samples[path][frame] = tuple(value) if hasattr(value, "__len__") else value
    finally:
        go_home()
    return samples


# -- from a Loki Graph ----------------------------------------------------------------------------


def fill_tree(tree: Any, graph: Graph, *, frames_per_second: float, start: int) -> None:
    """Make the nodes, links and exposed parameters of a Loki Graph in an empty tree."""
    columns = _columns(graph)
    used: dict[int, int] = {}
    for name, node in graph.nodes.items():
        made = tree.nodes.new(NODE + type(node).__name__)
        made.name = made.label = name
        column = columns[name]
        made.location = (COLUMN * column, -LINE * used.setdefault(column, 0))
        used[column] += 1
        _fill_node(made, node, frames_per_second=frames_per_second, start=start)
    for one in graph.connections:
        source, target = tree.nodes[one.source], tree.nodes[one.target]
        tree.links.new(source.outputs[one.output], target.inputs[one.input])
    exposed.fill(tree, graph)


def _fill_node(made: Any, node: Any, *, frames_per_second: float, start: int) -> None:
    values = {k: v for k, v in node.changed_values().items() if not isinstance(v, Keyframes)}
    set_values(made.values, type(node), values)
    setup = getattr(node, "loaded_setup", None)
    clock: dict[str, Any] = {"frames_per_second": frames_per_second, "start": start}
    if setup is not None:
        part = made.part
        part.setup_name = setup.name
        own = {k: v for k, v in setup.settings.changed_values().items() if k not in CLOCK}
        set_values(part.settings, SolverSettings, own)
        setup_rows.fill_rows(part.rows, setup)
        setup_rows.insert_row_keyframes(part.rows, setup, **clock)
    for name, value in node.changed_values().items():
        if isinstance(value, Keyframes):
            insert_keyframes(made.values, type(node).parameters()[name], value, **clock)
    made.sync_sockets()


def _columns(graph: Graph) -> dict[str, int]:
    columns: dict[str, int] = {}
    for name in graph.order:
        sources: Sequence[str] = graph.sources[name]
        columns[name] = 1 + max((columns[one] for one in sources), default=-1)
    return columns


def new_tree(graph: Graph, *, frames_per_second: float, start: int) -> Any:
    """Return a new node tree of a Loki Graph; a fake user keeps it in the file."""
    tree = bpy.data.node_groups.new(graph.name, TREE)
    tree.use_fake_user = True
    fill_tree(tree, graph, frames_per_second=frames_per_second, start=start)
    return tree
