"""What operators share: finding what they work on, and telling what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import bpy

from loki_core.errors import InputError, LokiError

from .graph_tree import SolverNode, graphs, is_graph


def told(execute: Callable[[Any, Any], set[str]]) -> Callable[[Any, Any], set[str]]:
    """Let an operator report what went wrong instead of failing with a trace."""

    @wraps(execute)
    def safe(self: Any, context: Any) -> set[str]:
        try:
            return execute(self, context)
        except (LokiError, OSError) as error:
            self.report({"ERROR"}, str(error))
            return {"CANCELLED"}

    return safe


def active_graph(context: Any) -> Any:
    """Return the graph that the user sees, of the node editor or of the scene; None without."""
    space = getattr(context, "space_data", None)
    tree = getattr(space, "node_tree", None)
    if is_graph(tree):
        return tree
    tree = context.scene.loki.graph if context.scene is not None else None
    return tree if is_graph(tree) else None


def graph_for(context: Any, name: str = "") -> Any:
    """Return the graph of a name, or the active one.

    Raises:
        InputError: There is none.
    """
    if name:
        tree = next((one for one in graphs() if one.name == name), None)
        if tree is None:
            raise InputError(f"the file has no Loki Graph {name}")
        return tree
    tree = active_graph(context)
    if tree is None:
        raise InputError("there is no Loki Graph yet; add one from the menu Add > Loki")
    return tree


def solver_node(tree: Any) -> Any:
    """Return the Solver Setup that panels show: the active node, or the first; None without."""
    if tree is None:
        return None
    solvers = [node for node in tree.nodes if isinstance(node, SolverNode)]
    if tree.nodes.active in solvers:
        return tree.nodes.active
    return solvers[0] if solvers else None


def solver_for(context: Any) -> Any:
    """Return the Solver Setup that the user sees.

    Raises:
        InputError: There is none.
    """
    node = solver_node(graph_for(context))
    if node is None:
        raise InputError("the graph has no Solver Setup; add one in the Loki Graph editor")
    return node


def node_by_number(tree: Any, number: int) -> Any | None:
    """Return a node by the number it keeps when it is renamed."""
    return next((one for one in tree.nodes if getattr(one, "number", 0) == number), None)


class GraphOperator(bpy.types.Operator):
    """An operator that needs a Loki Graph."""

    @classmethod
    def poll(cls, context: Any) -> bool:
        """Whether there is a graph to work on."""
        if active_graph(context) is None:
            cls.poll_message_set("Add a simulation first: Add > Loki")
            return False
        return True
