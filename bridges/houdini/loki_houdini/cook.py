"""Cook: what Loki's nodes do when Houdini cooks them, and what their buttons do.

A cook is stateless: parms and inputs make a request, the request is known by a digest, and the run
of that digest gives the frame. The run lives in a server of its own and is held by the node's
session, so that a cook of a frame that is there ends at once.
"""

from __future__ import annotations

import atexit
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import hou
import numpy as np

from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError, InputError, LokiError, did_you_mean
from loki_vfx.bridges.houdini import run_parms as parms
from loki_vfx.bridges.live.client import ConnectionLost
from loki_vfx.serialization.houdini_files import read_bytes, write_bytes
from loki_vfx.serialization.houdini_geometry import Attribute
from loki_vfx.serialization.houdini_streams import geometry_of

from . import node_outputs
from .geometry_streams import MARK, move_points, read_stream, write_streams
from .node_request import number, request_of, text, whole
from .node_solve import NodeSolve, Request, place_of, remove_run, request_key
from .vdb_primitives import add_vdbs

_solves: dict[int, NodeSolve] = {}
"""Runs that nodes show, by the number that Houdini gives a node for the session."""


# -- nodes ---------------------------------------------------------------------------------------


def cook_solver(node: hou.SopNode) -> None:
    """Show the frame of a simulation that the node's parms describe."""
    with _told(node):
        _show(node, request_of(node))


def cook_template(node: hou.SopNode, template: str) -> None:
    """Show the frame of a template's simulation."""
    with _told(node):
        _show(node, request_of(node, template))


def cook_graph(node: hou.SopNode) -> None:
    """Show all outputs of a graph, with dense volumes, for Loki to Host."""
    with _told(node):
        _show(node, request_of(node), has_vdbs=False)


def cook_host_to_loki(node: hou.SopNode) -> None:
    """Make a stream of the first input, and say for which input of a graph it is."""
    with _told(node):
        geometry = _geometry(node)
        source = node.inputGeometry(0)
        if source is None:
            raise InputError("there is no geometry to convert: connect the first input")
        kind, group = text(node, parms.KIND, "any"), text(node, parms.GROUP)
        attributes = text(node, parms.ATTRIBUTES, "*")
        stream, remarks = read_stream(source, kind, "the input", group=group, attributes=attributes)
        for remark in remarks:
            node.addMessage(remark)
        for severity, message in stream.check("the input"):
            if severity == "error":
                raise InputError(message)
            node.addWarning(message)
        made = geometry_of(stream)
        name = text(node, parms.STREAM).strip() or node.name()
        made.attributes["detail"][MARK] = Attribute(np.zeros(1, np.int32), "", [name])
        geometry.load(write_bytes(made))


def cook_to_host(node: hou.SopNode) -> None:
    """Show one output of a graph, or all, as Houdini's own geometry."""
    with _told(node):
        geometry = _geometry(node)
        source = node.inputGeometry(0)
        if source is None:
            raise InputError("there is nothing to convert: connect a Loki Graph")
        found = node_outputs.output_of(read_bytes(source.data()), text(node, parms.OUTPUT).strip())
        node_outputs.keep_attributes(found, text(node, parms.ATTRIBUTES, "*"))
        for remark in found.remarks:
            node.addMessage(remark)
        geometry.load(write_bytes(found))


def cook_dop(node: hou.OpNode) -> None:
    """DOP nodes are cooked by DOP networks; the way through a SOP Solver is in the node's help."""
    raise hou.NodeError(
        "Loki simulates in SOPs: put a Loki Solver into a SOP Solver of the DOP network, as the "
        "help of this node shows"
    )


# -- buttons -------------------------------------------------------------------------------------


def cancel(node: hou.SopNode) -> None:
    """Stop the node's run; frames that are there stay."""
    solve = _solves.get(node.sessionId())
    if solve is not None:
        solve.cancel()


def reset(node: hou.SopNode) -> None:
    """Forget all frames of the node's run, and simulate anew at the next cook."""
    solve = _solves.pop(node.sessionId(), None)
    if solve is not None:
        try:
            _remove(solve)
        except (LokiError, OSError) as error:
            raise hou.OperationFailed(f"its frames cannot be removed: {error}") from error
        finally:
            solve.close()
    with suppress(hou.OperationFailed):  # what goes wrong stands on the node
        node.cook(force=True)


def _remove(solve: NodeSolve) -> None:
    try:
        solve.remove()
    except ConnectionLost:
        with solve.request.connected() as client:  # a server that goes on with the runs
            remove_run(client, solve.run_name)


def forget_all() -> None:
    """Let go of all servers, as when a file is closed; what runs goes on there."""
    for solve in _solves.values():
        solve.close()
    _solves.clear()


def _on_deleted(node: hou.SopNode, **_: Any) -> None:
    """Stop the run of a node that is deleted; where that is undone, it goes on."""
    cancel(node)
    _forget(node)


def _on_file_event(event: hou.EnumValue) -> None:
    if event == hou.hipFileEventType.BeforeClear:
        forget_all()


hou.hipFile.addEventCallback(_on_file_event)
atexit.register(forget_all)


# -- how -----------------------------------------------------------------------------------------


@contextmanager
def _told(node: hou.SopNode) -> Generator[None]:
    """Show what goes wrong on the node, in words."""
    try:
        yield
    except (LokiError, OSError, hou.OperationFailed) as error:
        raise hou.NodeError(str(error)) from error


def _geometry(node: hou.SopNode) -> hou.Geometry:
    geometry = node.geometry()
    if geometry is None:
        raise InputError("the node has no geometry to write to")
    return geometry


def _show(node: hou.SopNode, request: Request, *, has_vdbs: bool = True) -> None:
    geometry = _geometry(node)
    first, last = request.frames
    frame = min(max(round(number(node, parms.FRAME, hou.frame())), first), last)
    try:
        solve = _computed(node, request, frame)
    except ConnectionLost:  # once more, with a server that is there
        _forget(node)
        solve = _computed(node, request, frame)
    for warning in solve.warnings:
        node.addWarning(warning)
    try:
        streams = solve.streams(frame)
    except (FormatError, OSError):  # somebody removed or damaged it
        solve.mend(frame)
        solve = _computed(node, request, frame)
        streams = solve.streams(frame)
    wanted = text(node, parms.OUTPUT).strip()
    if wanted:
        if wanted not in streams:
            hint = did_you_mean(wanted, streams)
            known = ", ".join(streams)
            raise InputError(f'there is no output "{wanted}"{hint}; there are {known}')
        streams = {wanted: streams[wanted]}
    if whole(node, parms.MOVE):
        if len(streams) != 1:
            known = ", ".join(streams)
            raise InputError(f"points are moved by one output: choose one of {known}")
        move_points(geometry, next(iter(streams.values())))
        return
    has_many = len(streams) > 1
    if has_vdbs and text(node, parms.VOLUMES, "vdb") == "vdb":
        fields = {name: one for name, one in streams.items() if isinstance(one, Voxels)}
        streams = {name: one for name, one in streams.items() if name not in fields}
    else:
        fields = {}
    for remark in write_streams(geometry, streams):
        node.addMessage(remark)
    add_vdbs(geometry, fields, are_named=has_many)


def _computed(node: hou.SopNode, request: Request, frame: int) -> NodeSolve:
    """The run of a node, when a frame is there."""
    solve = _solve_of(node, request)
    solve.check_inputs(frame)
    if frame not in solve.frames:
        with hou.InterruptableOperation(
            f"Loki {node.name()}", "Simulating", open_interrupt_dialog=True
        ) as operation:
            solve.wait_for(frame, operation.updateLongProgress)
    return solve


def _forget(node: hou.SopNode) -> None:
    solve = _solves.pop(node.sessionId(), None)
    if solve is not None:
        solve.close()


def _solve_of(node: hou.SopNode, request: Request) -> NodeSolve:
    """The run of a node for a request; another one is begun where the request has changed."""
    given = request.given()
    former = _solves.get(node.sessionId())
    wanted = (request_key(request, given), place_of(request))
    if former is not None and (former.key, former.place) == wanted:
        former.extend(request)
        return former
    cancel(node)
    _forget(node)
    client = request.connected()
    try:
        solve = NodeSolve(request, given, client)
    except BaseException:
        client.close()
        raise
    _solves[node.sessionId()] = solve
    # the stub does not say what it is called with
    node.addEventCallback((hou.nodeEventType.BeingDeleted,), _on_deleted)  # pyright: ignore[reportUnknownMemberType]
    return solve
