"""A Loki Graph as a scene: what goes into its Solver Setup, and what becomes of its Objects.

The Runner drives the Solver itself, for checkpoints and ranks. So a graph is cut at its Solver
Setup node: the nodes before it give the inputs, the nodes after it turn each frame's Objects into
the graph's named outputs, with the Objects coming in as host streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loki_core.errors import GraphError, LokiError, SetupError
from loki_core.solver_setup import SolverSetup
from loki_graph import Connection, Evaluator, Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_vfx.bridges.standalone.failures import UsageError
from loki_vfx.bridges.standalone.scene import Scene, nearest_target


def graph_scene(
    graph: Graph,
    host_inputs: Mapping[str, Any],
    *,
    folder: Path,
    confined: bool = False,
    stand_in: bool = False,
) -> Scene:
    """Return the scene of a graph that has one Solver Setup node.

    Args:
        graph: The graph, its Solver Setup files read.
        host_inputs: Streams for its host inputs.
        folder: What paths in the graph are relative to.
        confined: Whether paths may not lead out of that folder.
        stand_in: Leave out the streams of the Solver Setup that need host inputs which are not
            given, so that others can be looked at; else using them is an error.
    """
    node, setup = solver_node(graph)
    missing: dict[str, set[str]] = {name: set() for name in missing_inputs(graph, host_inputs)}
    before = Evaluator(graph, host_inputs=host_inputs, base_folder=folder, confined=confined)
    inputs: dict[str, Any] = {}
    for name in sorted({stream.name for stream in setup.streams()}):
        sources = graph.connections_to(node, name)
        lost = {name for one in sources for name in missing_inputs(graph, host_inputs, one.source)}
        for one in lost:
            missing[one].add(name)
        if sources and not (lost and stand_in):
            inputs[name] = _puller(before, node, name)
            if not any(before.varies(one.source) for one in sources):
                inputs[name] = _constant(inputs[name], setup.settings.start_frame)
    return Scene(
        setup,
        inputs,
        document=graph.to_document(),
        after=_AfterSolver(graph, node, folder, confined) if graph.outputs() else None,
        description=str(graph),
        missing={name: frozenset(streams) for name, streams in missing.items()},
    )


def host_input_names(graph: Graph) -> dict[str, str]:
    """Return the stream of each Host Input by the name of its node."""
    return {
        name: node.stream_name(name)
        for name, node in graph.nodes.items()
        if isinstance(node, HostInput)
    }


def missing_inputs(graph: Graph, given: Mapping[str, Any], *ends: str) -> list[str]:
    """Return the inputs that nodes need and that are not given; of the whole graph by default."""
    ends = ends or (*graph.outputs().values(), solver_node(graph)[0])
    used = {name for end in ends for name in graph.ancestors(end)}
    names = host_input_names(graph)
    return sorted({name for node, name in names.items() if node in used and name not in given})


def solver_node(graph: Graph) -> tuple[str, SolverSetup]:
    """Return the one Solver Setup node of a graph and its Solver Setup.

    Raises:
        GraphError: There is none, or several.
    """
    found = [name for name, node in graph.nodes.items() if isinstance(node, SolverSetupNode)]
    if len(found) != 1:
        many = f"{len(found)} Solver Setup nodes ({', '.join(found)})" if found else "none"
        raise GraphError(
            f"{graph.name}: a graph that runs here has one Solver Setup node, but there are "
            f"{many}; put all Groups into one Solver Setup"
        )
    node = graph.nodes[found[0]]
    setup = node.loaded_setup if isinstance(node, SolverSetupNode) else None
    if not isinstance(setup, SolverSetup):
        raise GraphError(f"{graph.name}/{found[0]}.setup was not read")
    return found[0], setup


def change_graph(graph: Graph, changes: Sequence[str]) -> Graph:
    """Return the graph with `name=value` texts applied in their order.

    A name is that of an exposed parameter, `node.parameter`, or `Group/Behavior.parameter` of the
    Solver Setup.
    """
    for text in changes:
        target, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not target:
            raise UsageError(f'--set "{text[:120]}" is not of the form node.parameter=value')
        exposed = [one.name for one in graph.exposed_declarations()]
        if target in exposed:
            graph = graph.set_exposed(target, value)
            continue
        _refuse_unknown_name(graph, target, exposed)
        path, _, name = target.rpartition(".")
        first, _, rest = path.partition("/")
        node = graph.nodes.get(first)
        if node is None:
            solver, setup = solver_node(graph)
            graph = _with_setup(graph, solver, setup.set(target, value))
        elif isinstance(node, SolverSetupNode) and (rest or name not in node.parameters()):
            inner = target.removeprefix(f"{first}/") if rest else name
            graph = _with_setup(graph, first, solver_node(graph)[1].set(inner, value))
        else:
            declared = node.parameters().get(name)
            place = f"{graph.name}/{first}.{name}"
            given = value if declared is None else declared.from_text(value, place)
            graph = graph.replace(first, **{name: given})
    return graph


def _refuse_unknown_name(graph: Graph, target: str, exposed: Sequence[str]) -> None:
    """Refuse a plain name that is neither exposed nor a setting; a path has words of its own."""
    _, setup = solver_node(graph)
    settings = setup.settings.parameters()
    if "." in target or "/" in target or target in settings:
        return
    near = nearest_target(setup, target, exposed)
    hint = f'; did you mean "{near}"?' if near else ";"
    known = f"it exposes {', '.join(exposed)}" if exposed else "it exposes none"
    raise SetupError(f'{graph.name} exposes no parameter "{target[:80]}"{hint} {known}')


def _with_setup(graph: Graph, name: str, setup: SolverSetup) -> Graph:
    node = graph.nodes[name]
    assert isinstance(node, SolverSetupNode)
    return graph.with_node(name, node.with_setup(setup))


def _puller(evaluator: Evaluator, node: str, name: str) -> Any:
    return lambda frame: evaluator.pull(node, name, frame)


def _constant(read: Any, frame: int) -> Any:
    """Return the stream itself; one that fails is kept as a function, to fail when it is used."""
    try:
        return read(frame)
    except LokiError:
        return read


class _AfterSolver:
    """Turns the Objects of a frame into the graph's outputs."""

    def __init__(self, graph: Graph, node: str, folder: Path, confined: bool) -> None:
        used = [one for one in graph.connections if one.source == node]
        stand_ins = {one.output: f"object {n}" for n, one in enumerate(used)}
        nodes = {name: found for name, found in graph.nodes.items() if name != node}
        nodes |= {name: HostInput(stream=path) for path, name in stand_ins.items()}
        connections = [
            Connection(stand_ins[one.output], "out", one.target, one.input)
            if one.source == node
            else one
            for one in graph.connections
            if one.target != node
        ]
        clock = {
            "frames_per_second": graph.frames_per_second,
            "start_frame": graph.start_frame,
        }
        self._graph = Graph(graph.name, nodes=nodes, connections=connections).with_settings(**clock)
        self._evaluator = Evaluator(self._graph, base_folder=folder, confined=confined)
        self.paths = tuple(stand_ins)
        outputs = [self._graph.nodes[name] for name in self._graph.outputs().values()]
        direct = {one.target for one in used}
        self.only_passes_on = all(isinstance(one, Output) for one in outputs) and direct == set(
            self._graph.outputs().values()
        )

    def __call__(self, frame: int, objects: Mapping[str, Any]) -> dict[str, Any]:
        for path in self.paths:
            if path not in objects:
                raise GraphError(
                    f"{self._graph.name}: Object {path}, which an output needs, is inactive"
                )
            self._evaluator.set_input(path, objects[path], frame=frame)
        self._evaluator.host.drop_frames(frame)
        return {name: self._evaluator.evaluate(name, frame) for name in self._graph.outputs()}
