"""Host input: a stream that the application around the graph gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loki_core.behavior import parameter
from loki_core.errors import InputError
from loki_graph.node import Node, Values
from loki_graph.sockets import SOCKET_TYPES, Socket, fits

if TYPE_CHECKING:
    from loki_graph.evaluate import Context


class HostInput(Node):
    """Bring in a stream that the host application gives under a name."""

    stream: str = parameter("", doc="Name of the stream; empty is the name of the node.")
    type: str = parameter("any", choices=SOCKET_TYPES, doc="What kind of stream is expected.")

    def stream_name(self, node_name: str) -> str:
        """Return the name under which the host gives the stream."""
        return self.stream or node_name

    def outputs(self) -> Mapping[str, Socket]:
        """Return one output of the expected type."""
        return {"out": Socket("out", self.type)}

    def varies_with_frame(self, context: Context) -> bool:
        """Return whether the host gives a stream for each frame."""
        return context.host.is_animated(self.stream_name(context.name))

    def stamp(self, context: Context) -> Any:
        """Return which stream it is, and at which frame if the host animates it."""
        name = self.stream_name(context.name)
        animated = context.host.is_animated(name)
        return [name, context.host.version(name), context.frame if animated else None]

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the host's stream."""
        name = self.stream_name(context.name)
        stream = context.host.stream(name, context.whole_frame, place=context.place)
        given = getattr(stream, "type_name", type(stream).__name__)
        if not fits(given, self.type):
            raise InputError(f'input "{name}" holds {given}; expected {self.type}')
        return {"out": stream}
