"""Nodes of the stand-in: what gives geometry, and Loki's own with the parms of their types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hou

from loki_vfx.bridges.houdini import run_parms as parms
from loki_vfx.bridges.houdini.dialog_script import Expression
from loki_vfx.bridges.houdini.loki_houdini import cook
from loki_vfx.bridges.houdini.node_types import NodeType, node_types
from loki_vfx.serialization.houdini_files import write_bytes
from loki_vfx.serialization.houdini_streams import geometry_of


@functools.cache
def types() -> dict[str, NodeType]:
    return {one.name: one for one in node_types()}


def giving(stream: Any, name: str = "source") -> hou.SopNode:
    """A node that gives a stream, or a function of the frame that returns one."""
    moves = callable(stream)
    values = {"time": (lambda frame: frame)} if moves else {}

    def cooked(node: hou.SopNode) -> None:
        one = stream(round(hou.frame())) if moves else stream
        node.geometry().load(write_bytes(geometry_of(one)))

    return hou.SopNode(name, "source", values, cooked)


def loki(kind: str, folder: Path, inputs: tuple[Any, ...] = (), **values: Any) -> hou.SopNode:
    """A node of one of Loki's types, with the defaults of its interface."""
    given: dict[str, Any] = {}
    for parm in types()[kind].dialog().parms():
        defaults = [0 if isinstance(one, Expression) else one for one in parm.default]
        given |= dict(zip(parm.component_names(), map(_number, defaults)))
    given |= {parms.CACHE: str(folder), parms.START: 1, parms.END: 6, parms.OVERRIDES: 0}
    if parms.FRAME in given:
        given[parms.FRAME] = lambda frame: frame
    given |= values
    node = hou.SopNode(kind, types()[kind].operator, given, _cooker(types()[kind]))
    for index, one in enumerate(inputs):
        node.setInput(index, one)
    return node


def _cooker(kind: NodeType) -> Callable[[hou.SopNode], None]:
    """What the node's own cook section does."""
    code = compile(
        kind.asset().sections["PythonCook"].replace("loki_houdini", HERE), "cook", "exec"
    )

    def cooked(node: hou.SopNode) -> None:
        exec(code, {"hou": hou})

    return cooked


HERE = cook.__name__.rpartition(".")[0]


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
