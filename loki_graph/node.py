"""Node: the declaration of one step of a Loki Graph, and the registry of them all.

A node is data, like a Behavior: an immutable record of parameters, with typed sockets. Defining a
subclass registers it:

    class Shrink(Node):
        \"\"\"Make a mesh smaller.\"\"\"

        input_sockets = (Socket("in", "mesh"),)
        output_sockets = (Socket("out", like="in"),)

        factor: float = parameter(0.5, minimum=0.0, doc="New size over old size.")

        def evaluate(self, context, inputs):
            return {"out": inputs["in"].transformed(scaling(self.factor))}
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from loki_core.behavior import Declaration, load_builtin_behaviors
from loki_core.errors import GraphError, did_you_mean
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

Values = Mapping[str, Any]
"""Streams by socket name; a list of streams where a socket takes many, None where optional."""

_nodes: dict[str, type[Node]] = {}
_loaded: set[str] = set()


class Node(Declaration):
    """The base of everything that a Loki Graph is made of.

    Class attributes:
        input_sockets: Inputs, unless `inputs` is overridden.
        output_sockets: Outputs, unless `outputs` is overridden; by default one, "out".
        pulls: The node asks for its inputs itself, at any frame, and keeps its own results.
    """

    input_sockets: ClassVar[tuple[Socket, ...]] = ()
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out"),)
    pulls: ClassVar[bool] = False
    abstract: ClassVar[bool] = True

    def __init_subclass__(cls, *, abstract: bool = False, **keywords: Any) -> None:
        cls.abstract = abstract
        super().__init_subclass__(**keywords)
        if not abstract:
            _register(cls)

    def inputs(self) -> Mapping[str, Socket]:
        """Return the input sockets by name."""
        return {socket.name: socket for socket in self.input_sockets}

    def outputs(self) -> Mapping[str, Socket]:
        """Return the output sockets by name."""
        return {socket.name: socket for socket in self.output_sockets}

    def missing_input(self, name: str) -> str:
        """Return the end of the message for an input that does not exist."""
        return did_you_mean(name, self.inputs())

    def is_open(self) -> bool:
        """Return whether sockets are not known yet, because a file was not read."""
        return False

    def resolved(self, find: Callable[[str], Path], *, place: str) -> Self:
        """Return the node with the files read that its sockets depend on."""
        return self

    def content(self) -> dict[str, Any]:
        """Return what the result depends on, in JSON form: the parameters."""
        return self.parameters_document()

    def varies_with_frame(self, context: Context) -> bool:
        """Return whether frames differ although parameters and inputs are the same."""
        return False

    def stamp(self, context: Context) -> Any:
        """Return what else the result depends on, in JSON form: the state of files, the frame.

        Without a frame in the context, return what concerns all frames.
        """
        return None

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the value of every output at the frame of the context.

        Parameters are plain numbers here: keyframes were evaluated before.
        """
        raise GraphError(f"{type(self).__name__} is a Node and must define evaluate(...)")

    @classmethod
    def documentation(cls) -> str:
        """Return the first paragraph of the docstring on one line."""
        text = inspect.cleandoc(cls.__doc__ or "")
        return " ".join(text.partition("\n\n")[0].split())

    @classmethod
    def describe(cls) -> str:
        """Return the node's documentation, sockets and parameters, a line each."""
        lines = [f"{cls.__name__}: {cls.documentation()}"]
        for word, sockets in (("input", cls.input_sockets), ("output", cls.output_sockets)):
            for socket in sockets:
                end = f"; {socket.doc}" if socket.doc else ""
                kind = f"as {socket.like}" if socket.like else socket.type
                lines.append(f"  {word} {socket.name}: {kind}{end}")
        lines += [f"  {declared.describe()}" for declared in cls.parameters().values()]
        return "\n".join(lines)


# -- the registry -------------------------------------------------------------------------------


def _register(cls: type[Node]) -> None:
    known = _nodes.get(cls.__name__)
    if known is not None:
        ours, theirs = (f"{c.__module__}.{c.__qualname__}" for c in (cls, known))
        if ours != theirs:  # the same address twice is a module that was reloaded
            raise GraphError(
                f"two nodes are named {cls.__name__}: {theirs} and {ours}; rename one of them"
            )
    _nodes[cls.__name__] = cls


def node_registry() -> Mapping[str, type[Node]]:
    """Return every registered node class by name, sorted; built-in ones and extensions loaded."""
    load_builtin_nodes()
    return MappingProxyType(dict(sorted(_nodes.items())))


def find_node(name: str) -> type[Node]:
    """Return the node class of a name.

    Raises:
        GraphError: There is none; the message gives the nearest name.
    """
    load_builtin_nodes()
    if name in _nodes:
        return _nodes[name]
    raise GraphError(f'there is no node type "{name[:80]}"{did_you_mean(name[:80], _nodes)}')


def load_builtin_nodes() -> None:
    """Import every module of `loki_graph.nodes`, and LOKI_EXTENSIONS, once."""
    if "builtin" in _loaded:
        return
    _loaded.add("builtin")  # first, since a module may itself ask for the registry
    try:
        package = importlib.import_module("loki_graph.nodes")
        for module in pkgutil.iter_modules(package.__path__, "loki_graph.nodes."):
            importlib.import_module(module.name)
        load_builtin_behaviors()  # an extension file may declare nodes too
    except BaseException:
        _loaded.discard("builtin")  # so that the next call tells the same error
        raise


@contextlib.contextmanager
def isolated_node_registry(*extra: type[Node]) -> Iterator[None]:
    """Register some node classes for a while; forget them and all new ones afterwards."""
    load_builtin_nodes()
    before = dict(_nodes)
    try:
        for node in extra:
            _register(node)
        yield
    finally:
        _nodes.clear()
        _nodes.update(before)
