"""Loki Graph: nodes, typed connections between them, and exposed parameters.

    graph = Graph(
        "sparks",
        nodes={"nozzle": ShapeSource(shape="disc"), "solver": SolverSetupNode(setup=setup),
               "sparks": Output()},
        connections=[("nozzle.out", "solver.nozzle"),
                     ("solver.Sparks/ParticleObject", "sparks.in")],
    )
    graph = graph.expose("nozzle.size", name="nozzle_size")

A Graph never changes: `add`, `connect`, `replace`, `set_exposed` and their like return a new one
that has been checked as a whole, so that what exists can be evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from loki_core.behavior import Declaration, check_name, parameter
from loki_core.errors import GraphError, LokiError, SetupError, did_you_mean
from loki_core.parameter import show
from loki_graph.exposed_parameters import (
    Exposed,
    ExposedParameter,
    check_exposed,
    describe_exposed,
    find_parameter,
    narrowed,
)
from loki_graph.folder_access import FolderAccess
from loki_graph.node import Node
from loki_graph.ordering import find_cycle, in_order
from loki_graph.sockets import Socket, common_type, may_connect

MAX_NODES = 10_000
MAX_CONNECTIONS = 100_000
MAX_EXPOSED = 10_000


class GraphSettings(Declaration):
    """What belongs to the graph as a whole: how frames become time."""

    frames_per_second: float | None = parameter(
        None, unit="1/s", minimum=0.01, maximum=1.0e5, doc="None takes it from the Solver Setups."
    )
    start_frame: int | None = parameter(
        None, minimum=-1_000_000, maximum=1_000_000, doc="The frame at time zero; none likewise."
    )


@runtime_checkable
class NamedOutput(Protocol):
    """A node whose value the host asks for by name."""

    def output_name(self, node_name: str) -> str: ...


@runtime_checkable
class NamedInput(Protocol):
    """A node whose value the host gives by name."""

    def stream_name(self, node_name: str) -> str: ...


class Connection(NamedTuple):
    """Data that goes from an output of one node to an input of another."""

    source: str
    output: str
    target: str
    input: str

    @property
    def start(self) -> str:
        """The output as text, `node.socket`."""
        return f"{self.source}.{self.output}"

    @property
    def end(self) -> str:
        """The input as text, `node.socket`."""
        return f"{self.target}.{self.input}"


class Graph:
    """Nodes by name, connections and exposed parameters; see the module for an example."""

    def __init__(
        self,
        name: str,
        *,
        nodes: Mapping[str, Node] | None = None,
        connections: Iterable[Connection | Sequence[str]] = (),
        exposed: Iterable[Exposed] = (),
        settings: GraphSettings | None = None,
    ) -> None:
        try:
            check_name(name, "the name of a graph")
        except SetupError as error:
            raise GraphError(str(error)) from None
        self.name = name
        self.settings = settings or GraphSettings()
        self.nodes: Mapping[str, Node] = MappingProxyType(_check_nodes(dict(nodes or {}), name))
        self.connections = tuple(self._read_connection(one) for one in connections)
        self._check_inputs()
        sources: dict[str, list[str]] = {node: [] for node in self.nodes}
        self._arriving: dict[str, list[Connection]] = {node: [] for node in self.nodes}
        for one in self.connections:
            sources[one.target].append(one.source)
            self._arriving[one.target].append(one)
        cycle = find_cycle(sources)
        if cycle:
            raise GraphError(
                f"{name}: {' -> '.join(cycle)} is a cycle; remove one of these connections"
            )
        self.sources: Mapping[str, Sequence[str]] = MappingProxyType(sources)
        self.order = in_order(sources)
        self._check_types()
        self._exposed = self._check_exposed(tuple(exposed))
        self.frames_per_second, self.start_frame = self._clock()
        self.outputs()

    # -- checking -------------------------------------------------------------------------------

    def _read_connection(self, given: Connection | Sequence[str]) -> Connection:
        if isinstance(given, Connection):
            ends: Sequence[Any] = (given.start, given.end)
        else:
            ends = given
        if isinstance(ends, str) or not isinstance(ends, (list, tuple)) or len(ends) != 2:
            raise GraphError(
                f'{self.name}: the connection {show(ends)} is not a pair, ["node.output", '
                '"node.input"]'
            )
        source, output = self._read_end(ends[0], "output")
        target, input_name = self._read_end(ends[1], "input")
        return Connection(source, output, target, input_name)

    def _read_end(self, text: Any, word: str) -> tuple[str, str]:
        if not isinstance(text, str):
            raise GraphError(f"{self.name}: the {word} {show(text)} of a connection is not a text")
        name, dot, socket = text.partition(".")
        node = self.node(name)
        known = node.outputs() if word == "output" else node.inputs()
        if not dot and len(known) == 1:  # one socket only: the node's name says enough
            return name, next(iter(known))
        if socket not in known and not node.is_open():
            hint = did_you_mean(socket[:80], known)
            if word == "input":
                hint = node.missing_input(socket[:80])
            raise GraphError(f'{self.name}/{name} has no {word} "{socket[:80]}"{hint}')
        return name, socket

    def _check_inputs(self) -> None:
        if len(self.connections) > MAX_CONNECTIONS:
            raise GraphError(
                f"{self.name} has {len(self.connections)} connections; at most "
                f"{MAX_CONNECTIONS} are allowed"
            )
        taken: dict[tuple[str, str], Connection] = {}
        seen: set[Connection] = set()
        for one in self.connections:
            if one in seen:
                raise GraphError(f"{self.name}: {one.start} -> {one.end} is there twice")
            seen.add(one)
            other = taken.get((one.target, one.input))
            if other is not None and not self.input_socket(one.target, one.input).many:
                raise GraphError(
                    f"{self.name}/{one.end} takes one connection, but {other.start} and "
                    f"{one.start} both lead to it; put a Merge between"
                )
            taken[one.target, one.input] = one

    def _check_types(self) -> None:
        self._types: dict[tuple[str, str], str] = {}
        for name in self.order:
            node = self.nodes[name]
            inputs = node.inputs()
            here: dict[str, list[str]] = {}
            for one in self._arriving[name]:
                given = self.output_type(one.source, one.output)
                expected = inputs[one.input].type if one.input in inputs else "any"
                if not may_connect(given, expected):
                    raise GraphError(
                        f"{self.name}/{one.end} takes {expected}, but {one.start} gives {given}"
                    )
                here.setdefault(one.input, []).append(given)
            for output, declared in node.outputs().items():
                given = declared.type
                if declared.like is not None:
                    given = common_type(here.get(declared.like, []))
                self._types[name, output] = given

    def _check_exposed(self, exposed: tuple[Exposed, ...]) -> tuple[Exposed, ...]:
        if len(exposed) > MAX_EXPOSED:
            raise GraphError(f"{self.name} exposes more than {MAX_EXPOSED} parameters")
        checked = tuple(check_exposed(one, self.nodes, place=self.name) for one in exposed)
        for kind in ("name", "target"):
            seen: set[str] = set()
            for one in checked:
                if getattr(one, kind) in seen:
                    raise GraphError(
                        f'{self.name}: the {kind} "{getattr(one, kind)}" is exposed twice'
                    )
                seen.add(getattr(one, kind))
        return checked

    def _clock(self) -> tuple[float, int]:
        """Return frames per second and start frame, on which all Solver Setups agree."""
        found: dict[str, tuple[Any, str]] = {}
        own = self.settings
        for key in ("frames_per_second", "start_frame"):
            if getattr(own, key) is not None:
                found[key] = getattr(own, key), self.name
        for name, node in self.nodes.items():
            setup = getattr(node, "loaded_setup", None)
            if setup is None:
                continue
            for key in ("frames_per_second", "start_frame"):
                value = getattr(setup.settings, key)
                known, who = found.setdefault(key, (value, f"{self.name}/{name}"))
                if known != value:
                    raise GraphError(
                        f"{self.name}/{name}: its Solver Setup has {key} = {show(value)}, but "
                        f"{who} has {show(known)}; make them equal"
                    )
        rate, start = (found.get(key) for key in ("frames_per_second", "start_frame"))
        return float(rate[0]) if rate else 24.0, int(start[0]) if start else 1

    # -- finding --------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """Return a node by name.

        Raises:
            GraphError: There is none; the message gives the nearest name.
        """
        if name not in self.nodes:
            hint = did_you_mean(str(name)[:80], self.nodes)
            raise GraphError(f'{self.name} has no node "{str(name)[:80]}"{hint}')
        return self.nodes[name]

    def input_socket(self, node: str, socket: str) -> Socket:
        """Return an input socket; one of any type where a file was not read yet."""
        return self.nodes[node].inputs().get(socket) or Socket(socket, required=False)

    def output_type(self, node: str, socket: str) -> str:
        """Return the type of an output, as far as it is known before evaluation."""
        return self._types.get((node, socket), "any")

    def connections_to(self, node: str, socket: str | None = None) -> list[Connection]:
        """Return the connections into a node, or into one of its inputs, in their order."""
        return [one for one in self._arriving[node] if socket is None or one.input == socket]

    def ancestors(self, node: str, *, beyond_pulls: bool = True) -> list[str]:
        """Return a node and all that it depends on, what comes first in front.

        Without `beyond_pulls` the search ends at nodes that ask for their inputs themselves.
        """
        found, waiting = {node}, [node]
        while waiting:
            name = waiting.pop()
            if self.nodes[name].pulls and not beyond_pulls:
                continue
            for source in self.sources[name]:
                if source not in found:
                    found.add(source)
                    waiting.append(source)
        return [name for name in self.order if name in found]

    def outputs(self) -> dict[str, str]:
        """Return the node of every named output."""
        found: dict[str, str] = {}
        for name, node in self.nodes.items():
            if isinstance(node, NamedOutput):
                public = node.output_name(name)
                if public in found:
                    raise GraphError(
                        f'{self.name}: {found[public]} and {name} are both the output "{public}"; '
                        "rename one of them"
                    )
                found[public] = name
        return found

    def host_inputs(self) -> list[str]:
        """Return the names of the streams that the host gives."""
        named = [(k, n) for k, n in self.nodes.items() if isinstance(n, NamedInput)]
        return sorted({node.stream_name(name) for name, node in named})

    # -- changing -------------------------------------------------------------------------------

    def _with(self, **parts: Any) -> Graph:
        given = {
            "nodes": self.nodes,
            "connections": self.connections,
            "exposed": self._exposed,
            "settings": self.settings,
        }
        return Graph(self.name, **{**given, **parts})

    def add(self, name: str, node: Node) -> Graph:
        """Return a graph with one node more."""
        if name in self.nodes:
            raise GraphError(f'{self.name} has a node "{name}" already; choose another name')
        return self._with(nodes={**self.nodes, name: node})

    def remove(self, name: str) -> Graph:
        """Return a graph without a node, its connections and what was exposed of it."""
        self.node(name)
        return self._with(
            nodes={n: node for n, node in self.nodes.items() if n != name},
            connections=[c for c in self.connections if name not in (c.source, c.target)],
            exposed=[
                one
                for one in self._exposed
                if find_parameter(one.target, self.nodes, place=self.name)[0] != name
            ],
        )

    def connect(self, start: str, end: str) -> Graph:
        """Return a graph with a connection more, `connect("nozzle.out", "solver.nozzle")`.

        Raises:
            GraphError: A node or socket is unknown, types do not fit, the input is taken, or
                there would be a cycle, which the message prints.
        """
        return self._with(connections=[*self.connections, (start, end)])

    def disconnect(self, start: str, end: str) -> Graph:
        """Return a graph without a connection."""
        wanted = self._read_connection((start, end))
        if wanted not in self.connections:
            raise GraphError(f"{self.name}: {wanted.start} and {wanted.end} are not connected")
        return self._with(connections=[one for one in self.connections if one != wanted])

    def replace(self, name: str, **parameters: Any) -> Graph:
        """Return a graph with other parameters of one node."""
        node = self.node(name)
        values = {**node._content(), **parameters}
        new = make_node(type(node), values, place=f"{self.name}/{name}")
        return self._with(nodes={**self.nodes, name: new})

    def with_node(self, name: str, node: Node) -> Graph:
        """Return a graph with another node under a name that is there."""
        self.node(name)
        return self._with(nodes={**self.nodes, name: node})

    def with_settings(self, **settings: Any) -> Graph:
        """Return a graph with other settings."""
        try:
            new = GraphSettings.from_values(settings, place=self.name)
        except SetupError as error:
            raise GraphError(str(error)) from None
        return self._with(settings=new)

    def resolved(self, folder: FolderAccess | str | Path) -> Graph:
        """Return the graph with the Solver Setup files read that its sockets depend on."""
        access = folder if isinstance(folder, FolderAccess) else FolderAccess(Path(folder))
        nodes = {}
        for name, node in self.nodes.items():
            place = f"{self.name}/{name}"

            def find(text: str, place: str = place) -> Path:
                return access.find(text, place=f"{place}.setup")

            nodes[name] = node.resolved(find, place=place)
        if all(nodes[name] is node for name, node in self.nodes.items()):
            return self
        return self._with(nodes=nodes)

    # -- exposed parameters ---------------------------------------------------------------------

    def expose(
        self,
        target: str,
        *,
        name: str,
        label: str = "",
        minimum: float | None = None,
        maximum: float | None = None,
        default: Any = None,
    ) -> Graph:
        """Return a graph that shows a parameter under a public name.

        Args:
            target: `node.parameter`, or `solver/Group/Behavior.parameter` inside a Solver Setup.
            name: The public name.
            label: What people read; made from the name if empty.
            minimum: Smallest value, in the parameter's SI unit, inside its own range.
            maximum: Largest value, likewise.
            default: What a host resets it to, and its value from now on; None keeps the value.
        """
        one = Exposed(name, target, label, minimum, maximum, default)
        graph = self._with(exposed=[*self._exposed, one])
        return graph if default is None else graph.set_exposed(name, default)

    def unexpose(self, name: str) -> Graph:
        """Return a graph that no longer shows a parameter; its value stays."""
        self._find_exposed(name)
        return self._with(exposed=[one for one in self._exposed if one.name != name])

    def exposed(self) -> list[ExposedParameter]:
        """Return the exposed parameters with all that a user interface needs, in their order."""
        return [describe_exposed(one, self.nodes, place=self.name) for one in self._exposed]

    def exposed_declarations(self) -> tuple[Exposed, ...]:
        """Return what was said about each exposed parameter, as it is written to a file."""
        return self._exposed

    def set_exposed(self, name: str, value: Any) -> Graph:
        """Return a graph with another value of an exposed parameter, given as value or text.

        A Solver Setup that was read from its own file becomes part of the graph by this.

        Raises:
            GraphError: The name is unknown, or the value is outside the exposed or the declared
                range.
        """
        one = self._find_exposed(name)
        place = f"{self.name}/exposed {name}"
        node_name, rest, declared, _ = find_parameter(one.target, self.nodes, place=place)
        narrow = narrowed(one, declared, place=place)
        try:
            if isinstance(value, str) and declared.type.base is not str:
                value = narrow.from_text(value, place)
            value = narrow.check(value, place)
            if not rest.startswith("/"):
                return self.replace(node_name, **{rest: value})
            node: Any = self.nodes[node_name]
            return self.with_node(
                node_name, node.with_setup(node.loaded_setup.set(rest[1:], value))
            )
        except GraphError:
            raise
        except LokiError as error:
            raise GraphError(str(error)) from None

    def _find_exposed(self, name: str) -> Exposed:
        for one in self._exposed:
            if one.name == name:
                return one
        hint = did_you_mean(str(name)[:80], [one.name for one in self._exposed])
        raise GraphError(f'{self.name} exposes no parameter "{str(name)[:80]}"{hint}')

    # -- documents ------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form, with the values that are not the default."""
        from loki_graph.graph_document import graph_to_document  # it reads what it writes

        return graph_to_document(self)

    def to_json(self) -> str:
        """Return the text of a `*.loki.json` file."""
        from loki_core.setup_document import format_json

        return format_json(self.to_document()) + "\n"

    @classmethod
    def from_document(
        cls, document: Any, source: str = "", *, base_folder: str | Path | None = None
    ) -> Graph:
        """Read the JSON form; messages begin with the source, such as a file name.

        With a base folder, the Solver Setup files that the graph names are read from there.

        Raises:
            LokiError: The document is not a valid graph.
        """
        from loki_graph.graph_document import graph_from_document

        return graph_from_document(document, source=source, base_folder=base_folder)

    @classmethod
    def from_json(
        cls, text: str | bytes, source: str = "", *, base_folder: str | Path | None = None
    ) -> Graph:
        """Read the text of a `*.loki.json` file, as `from_document` does."""
        from loki_core.setup_document import parse_json

        document = parse_json(text, source=source)
        return cls.from_document(document, source, base_folder=base_folder)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.to_document() == other.to_document()

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.nodes), self.connections))

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes>"

    def __str__(self) -> str:
        """List the nodes in the order of evaluation, each with what leads to it."""
        lines = [self.name]
        for name in self.order:
            node = self.nodes[name]
            changed = ", ".join(f"{k}={show(v)}" for k, v in node.changed_values().items())
            lines.append(f"  {name}: {type(node).__name__}" + (f"  {changed}" if changed else ""))
            lines += [f"    {one.input} <- {one.start}" for one in self.connections_to(name)]
        return "\n".join(lines)


def make_node(node_class: type[Node], values: Mapping[str, Any], *, place: str) -> Node:
    """Return a node of checked parameters; messages call it `place`.

    Raises:
        GraphError: A parameter is unknown or a value is not valid.
    """
    if node_class.abstract:
        raise GraphError(f"{place}: {node_class.__name__} is a base for nodes, not one itself")
    try:
        return node_class.from_values(values, place=place)
    except GraphError:
        raise
    except LokiError as error:
        raise GraphError(str(error)) from None


def _check_nodes(nodes: dict[str, Node], place: str) -> dict[str, Node]:
    if len(nodes) > MAX_NODES:
        raise GraphError(f"{place} has {len(nodes)} nodes; at most {MAX_NODES} are allowed")
    for name, node in nodes.items():
        try:
            check_name(name, f"{place}: the name of a node")
        except SetupError as error:
            raise GraphError(str(error)) from None
        if isinstance(node, type):
            raise GraphError(f"{place}/{name}: {node.__name__} is a class; write {node.__name__}()")
        if not isinstance(node, Node):
            raise GraphError(f"{place}/{name} is {show(node)}, not a node")
    return nodes
