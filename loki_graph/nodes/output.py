"""Output: a stream that the application around the graph asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from loki_core.behavior import parameter
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context


class Output(Node):
    """Give a stream to the host application under a name."""

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", like="in"),)

    stream: str = parameter("", doc="Name of the output; empty is the name of the node.")

    def output_name(self, node_name: str) -> str:
        """Return the name under which the host asks for the stream."""
        return self.stream or node_name

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Pass the stream on."""
        return {"out": inputs["in"]}
