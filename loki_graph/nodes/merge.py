"""Merge: several streams of one type as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from loki_core.data.mesh import merge_streams
from loki_core.errors import InputError
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context


class Merge(Node):
    """Join streams of one type, in the order of their connections, with all channels."""

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in", many=True),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", like="in"),)

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return one stream of all."""
        streams = inputs["in"]
        for stream in streams:
            if stream.type_name != streams[0].type_name:
                raise InputError(
                    f"cannot merge {stream.type_name} with {streams[0].type_name}; convert one of "
                    "them first"
                )
        return {"out": streams[0] if len(streams) == 1 else merge_streams(streams)}
