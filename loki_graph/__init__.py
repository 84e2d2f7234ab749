"""Loki Graph: data flow around a Solver Setup.

Typed nodes and sockets, pull evaluation by frame with caching, exposed parameters, one JSON file.
"""

from loki_graph.evaluate import Context, Evaluator
from loki_graph.exposed_parameters import Exposed, ExposedParameter
from loki_graph.graph import Connection, Graph, GraphSettings
from loki_graph.graph_document import load_document_file, read_graph, write_graph
from loki_graph.node import Node, find_node, isolated_node_registry, node_registry
from loki_graph.sockets import SOCKET_TYPES, Socket

__all__ = [
    "SOCKET_TYPES",
    "Connection",
    "Context",
    "Evaluator",
    "Exposed",
    "ExposedParameter",
    "Graph",
    "GraphSettings",
    "Node",
    "Socket",
    "find_node",
    "isolated_node_registry",
    "load_document_file",
    "node_registry",
    "read_graph",
    "write_graph",
]
