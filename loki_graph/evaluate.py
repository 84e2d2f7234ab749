"""Evaluation: pull a named output at a frame, computing only what is not known yet.

    evaluator = Evaluator(graph, host_inputs={"hair": curves})
    for frame in range(1, 49):
        result = evaluator.evaluate("hair", frame)

A result is known by its content key: the node's type, its parameters with keyframes evaluated at
the frame, the state of the files or host streams that it reads, and the keys of its inputs. A node
that depends on no frame has one key for all frames and is evaluated once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loki_core.errors import GraphError, LokiError, did_you_mean
from loki_core.parameter import show
from loki_graph.folder_access import FolderAccess
from loki_graph.graph import Connection, Graph
from loki_graph.host_streams import HostStreams
from loki_graph.node import Node, Values
from loki_graph.sockets import fits

if TYPE_CHECKING:
    from loki_core.parallel.comm import Communicator
    from loki_core.pipeline.solver import Solver

MAX_FRAME = 10_000_000
MAX_PULLS = 64  # solvers that feed each other


@dataclass(frozen=True)
class Context:
    """What a node may know while it is evaluated.

    Attributes:
        name: Name of the node.
        place: What messages call it, `graph/node`.
        frame: The frame, or None where all frames are meant.
        time: Time of the frame [s].
        host: The streams that the host gave.
        memory: What the node itself keeps between evaluations.
        comm: The ranks of the run; None leaves the choice to the solver.
        threads: Threads of this rank; None leaves the choice to the solver.
    """

    name: str
    place: str
    frame: int | None
    time: float
    host: HostStreams
    memory: dict[str, Any]
    comm: Communicator | None
    threads: int | None
    evaluator: Evaluator

    @property
    def whole_frame(self) -> int:
        """The frame as a number."""
        assert self.frame is not None
        return self.frame

    def find(self, text: str, parameter: str) -> Path:
        """Return the file or folder that the text of a parameter means."""
        return self.evaluator.folder.find(text, place=f"{self.place}.{parameter}")

    def is_connected(self, socket: str) -> bool:
        """Return whether anything leads to an input."""
        return bool(self.evaluator.graph.connections_to(self.name, socket))

    def varies(self, socket: str) -> bool:
        """Return whether what arrives at an input may differ from frame to frame."""
        sources = self.evaluator.graph.connections_to(self.name, socket)
        return any(self.evaluator.varies(one.source) for one in sources)

    def pull(self, socket: str, frame: int) -> Any:
        """Return what arrives at an input at a frame."""
        return self.evaluator.pull(self.name, socket, frame)

    def recipe(self) -> str:
        """Return the content key of the node and all that leads to it, over all frames."""
        return self.evaluator.recipe(self.name)


class Evaluator:
    """Evaluates a graph, and holds the results and the running solvers.

    Args:
        graph: What is evaluated.
        host_inputs: Streams by name, or functions `frame -> stream`.
        base_folder: What relative paths in the graph are relative to.
        confined: Refuse paths that lead out of the base folder, for graphs from elsewhere.
        comm: The ranks; those of the MPI job if there is one, else this process alone.
        threads: Threads of this rank; all cores if None.
        keep_results: Results of each node that stay in memory, the latest ones.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        host_inputs: Mapping[str, Any] | None = None,
        base_folder: str | Path | None = None,
        confined: bool = False,
        comm: Communicator | None = None,
        threads: int | None = None,
        keep_results: int = 4,
    ) -> None:
        self.folder = FolderAccess(None if base_folder is None else Path(base_folder), confined)
        self.host = HostStreams(host_inputs)
        self.comm = comm
        self.threads = threads
        self.keep_results = max(1, keep_results)
        self.evaluation_counts: Counter[str] = Counter()
        self._results: dict[str, OrderedDict[str, Values]] = {}
        self._memory: dict[str, dict[str, Any]] = {}
        self._pulls = 0
        self.graph = graph.resolved(self.folder)

    # -- what callers ask -----------------------------------------------------------------------

    def evaluate(self, output: str, frame: int) -> Any:
        """Return the stream of a named output, or of any `node.socket`, at a frame.

        Raises:
            GraphError: The output is unknown, an input is missing, or the frame cannot be reached
                from here; the message says what must run first.
            LokiError: A node fails; the message begins with its place.
        """
        name, socket = self._find_output(output)
        self._check_frame(frame, output)
        return self._evaluate(name, frame)[socket]

    def update(self, graph: Graph) -> None:
        """Take a changed graph; what did not change stays known, changed solvers start again."""
        self.graph = graph.resolved(self.folder)
        for name in [name for name in self._results if name not in self.graph.nodes]:
            del self._results[name]
        for name in [name for name in self._memory if name not in self.graph.nodes]:
            del self._memory[name]

    def set_exposed(self, name: str, value: Any) -> None:
        """Change an exposed parameter of the graph."""
        self.update(self.graph.set_exposed(name, value))

    def set_input(self, name: str, stream: Any, *, frame: int | None = None) -> None:
        """Give a host stream, for all frames or for one; see HostStreams."""
        self.host.set(name, stream, frame=frame)

    def advance(
        self, node: str, frame: int, *, each_frame: Callable[[int], None] | None = None
    ) -> None:
        """Compute the frames of a Solver Setup node up to and with a frame, in their order."""
        self._run_of(node).advance(frame, each_frame=each_frame)

    def solver(self, node: str) -> Solver:
        """Return the Solver of a Solver Setup node, started if need be: state, statistics."""
        solver: Solver = self._run_of(node).solver
        return solver

    def cancel(self) -> None:
        """Ask running solvers to stop at the end of their Task; safe from another thread."""
        for memory in list(self._memory.values()):
            run = memory.get("run")
            if run is not None:
                run.cancel()

    def clear(self) -> None:
        """Forget all results and solvers."""
        self._results.clear()
        self._memory.clear()

    # -- what nodes ask, through their context --------------------------------------------------

    def varies(self, node: str) -> bool:
        """Return whether the results of a node may differ from frame to frame."""
        return any(
            self.graph.nodes[name].is_animated()
            or self.graph.nodes[name].varies_with_frame(self._context(name, None))
            for name in self.graph.ancestors(node)
        )

    def pull(self, node: str, socket: str, frame: int) -> Any:
        """Return what arrives at an input of a node at a frame."""
        if self._pulls >= MAX_PULLS:
            raise GraphError(f"{self.graph.name}: more than {MAX_PULLS} solvers feed each other")
        self._pulls += 1
        try:
            (one,) = self.graph.connections_to(node, socket)
            value = self._evaluate(one.source, frame)[one.output]
            return self._checked(value, one)
        finally:
            self._pulls -= 1

    def recipe(self, node: str) -> str:
        """Return the content key of a node and its ancestors over all frames."""
        recipes: dict[str, str] = {}
        for name in self.graph.ancestors(node):
            one = self.graph.nodes[name]
            recipes[name] = self._key(one, one.stamp(self._context(name, None)), name, recipes)
        return recipes[node]

    # -- evaluating -----------------------------------------------------------------------------

    def _evaluate(self, target: str, frame: int) -> Values:
        order = self.graph.ancestors(target, beyond_pulls=False)
        keys = self._keys(order, frame)
        values: dict[str, Values] = {}
        needed = {target}
        for name in reversed(order):
            if name not in needed:
                continue
            results = self._results.get(name)
            if results is not None and keys[name] in results:
                results.move_to_end(keys[name])
                values[name] = results[keys[name]]
            elif not self.graph.nodes[name].pulls:
                needed.update(self.graph.sources[name])
        for name in order:
            if name in needed and name not in values:
                values[name] = self._run(name, frame, values)
                self._keep(name, keys[name], values[name])
        return values[target]

    def _keys(self, order: list[str], frame: int) -> dict[str, str]:
        keys: dict[str, str] = {}
        for name in order:
            context = self._context(name, frame)
            node = self._at(self.graph.nodes[name], context.time)
            stamp = [self.recipe(name), frame] if node.pulls else node.stamp(context)
            keys[name] = self._key(node, stamp, name, {} if node.pulls else keys)
        return keys

    def _key(self, node: Node, stamp: Any, name: str, keys: Mapping[str, str]) -> str:
        sources = [
            [one.input, keys[one.source], one.output]
            for one in self.graph.connections_to(name)
            if one.source in keys
        ]
        parts = [type(node).__name__, node.content(), stamp, sources]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()

    def _run(self, name: str, frame: int, values: Mapping[str, Values]) -> Values:
        context = self._context(name, frame)
        node = self._at(self.graph.nodes[name], context.time)
        inputs = {} if node.pulls else self._inputs(name, node, values)
        self.evaluation_counts[name] += 1
        try:
            results = node.evaluate(context, inputs)
        except LokiError as error:
            if str(error).startswith(context.place):
                raise
            raise type(error)(f"{context.place}: {error}") from error
        for socket, declared in node.outputs().items():
            given = getattr(results.get(socket), "type_name", None)
            if given is not None and not fits(given, declared.type):
                raise GraphError(f"{context.place}.{socket} is {declared.type}, but found {given}")
        return results

    def _inputs(self, name: str, node: Node, values: Mapping[str, Values]) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        for socket, declared in node.inputs().items():
            connections = self.graph.connections_to(name, socket)
            if not connections and declared.required:
                raise GraphError(
                    f"{self.graph.name}/{name}.{socket} is not connected; it needs {declared.type}"
                )
            found = [self._checked(values[one.source][one.output], one) for one in connections]
            inputs[socket] = found if declared.many else (found[0] if found else None)
        return inputs

    def _checked(self, value: Any, one: Connection) -> Any:
        """Return a stream that arrives at an input, if its type is one that the input takes."""
        expected = self.graph.input_socket(one.target, one.input).type
        given = getattr(value, "type_name", type(value).__name__)
        if not fits(given, expected):
            raise GraphError(
                f"{self.graph.name}/{one.end} takes {expected}, but {one.start} gives {given}"
            )
        return value

    def _keep(self, name: str, key: str, values: Values) -> None:
        if self.graph.nodes[name].pulls:
            return
        results = self._results.setdefault(name, OrderedDict())
        results[key] = values
        while len(results) > self.keep_results:
            results.popitem(last=False)

    # -- small things ---------------------------------------------------------------------------

    def _context(self, name: str, frame: int | None) -> Context:
        start, rate = self.graph.start_frame, self.graph.frames_per_second
        return Context(
            name=name,
            place=f"{self.graph.name}/{name}",
            frame=frame,
            time=0.0 if frame is None else (frame - start) / rate,
            host=self.host,
            memory=self._memory.setdefault(name, {}),
            comm=self.comm,
            threads=self.threads,
            evaluator=self,
        )

    def _at(self, node: Node, time: float) -> Node:
        rate, start = self.graph.frames_per_second, self.graph.start_frame
        return node.at(time, frames_per_second=rate, start_frame=start)

    def _find_output(self, output: str) -> tuple[str, str]:
        outputs = self.graph.outputs()
        if output in outputs:
            return outputs[output], "out"
        name, dot, socket = output.partition(".")
        if not dot:
            hint = did_you_mean(output[:80], outputs)
            raise GraphError(f'{self.graph.name} has no output "{output[:80]}"{hint}')
        known = self.graph.node(name).outputs()
        if socket not in known:
            hint = did_you_mean(socket[:80], known)
            raise GraphError(f'{self.graph.name}/{name} has no output "{socket[:80]}"{hint}')
        return name, socket

    def _check_frame(self, frame: int, output: str) -> None:
        whole = isinstance(frame, int) and not isinstance(frame, bool)
        if not whole or abs(frame) > MAX_FRAME:
            raise GraphError(
                f"{self.graph.name}: output {show(output)} at frame {show(frame)}: a frame is a "
                f"whole number up to {MAX_FRAME}"
            )

    def _run_of(self, name: str) -> Any:
        node = self.graph.node(name)
        if not hasattr(node, "run"):
            raise GraphError(f"{self.graph.name}/{name} is a {type(node).__name__}, not a solver")
        return node.run(self._context(name, None))
