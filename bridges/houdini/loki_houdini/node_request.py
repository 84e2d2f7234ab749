"""Node request: what the parms and inputs of a node ask Loki for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hou

from loki_core.errors import InputError, SetupError
from loki_core.solver_setup import SolverSetup
from loki_graph.graph import Graph, NamedInput
from loki_graph.graph_document import load_document_file
from loki_graph.nodes.host_input import HostInput
from loki_graph.templates import find_template
from loki_vfx.bridges.houdini import run_parms as parms
from loki_vfx.bridges.houdini.parm_names import GIVEN, parm_name
from loki_vfx.bridges.live.scene_document import change_scene

from .geometry_streams import MARK, read_stream
from .node_solve import Input, Request


def request_of(node: hou.SopNode, template: str = "") -> Request:
    """Return what a node asks for.

    Args:
        template: Of a node that belongs to one.

    Raises:
        LokiError: The scene, an override or an input is not valid.
    """
    suggested: dict[str, Any] = {}
    scene: SolverSetup | Graph
    if template:
        found = find_template(template)
        scene, suggested = _exposed(node, found.graph()), found.suggested_inputs()
    else:
        scene = _scene(node)
    first, last = whole(node, parms.START), whole(node, parms.END)
    if last < first:
        raise SetupError(f"the frames from {first} to {last} are none")
    clock = [f"start_frame={first}", f"frames_per_second={hou.fps()!r}"]
    scene = change_scene(scene, [*clock, *_overrides(node)])
    options = {
        name: whole(node, parm)
        for name, parm in (("ranks", parms.RANKS), ("threads", parms.THREADS))
        if whole(node, parm) > 0
    }
    given = {name: Input(_constant(stream)) for name, stream in suggested.items()}
    return Request(
        node.path(),
        scene,
        given | _inputs(node, scene),
        (first, last),
        Path(text(node, parms.CACHE) or "loki").expanduser().absolute(),
        endpoint=text(node, parms.ENDPOINT).strip(),
        keys=text(node, parms.KEYS).strip(),
        options=options,
    )


def _constant(stream: Any) -> Callable[[int], Any]:
    return lambda frame: stream


def text(node: hou.OpNode, name: str, default: str = "") -> str:
    """Return a parm as text."""
    parm = node.parm(name)
    return default if parm is None else parm.evalAsString()


def whole(node: hou.OpNode, name: str, default: int = 0) -> int:
    """Return a parm as a whole number."""
    parm = node.parm(name)
    return default if parm is None else parm.evalAsInt()


def number(node: hou.OpNode, name: str, default: float) -> float:
    """Return a parm as a number."""
    parm = node.parm(name)
    return default if parm is None else parm.evalAsFloat()


def _scene(node: hou.SopNode) -> SolverSetup | Graph:
    if text(node, parms.SOURCE) == "template":
        return find_template(text(node, parms.TEMPLATE)).graph()
    file = text(node, parms.FILE).strip()
    if not file:
        raise SetupError("no file is chosen: set File to a *.loki.json, or take a template")
    scene = load_document_file(file)
    return scene.resolved(Path(file).parent) if isinstance(scene, Graph) else scene


def _exposed(node: hou.SopNode, graph: Graph) -> Graph:
    """A template's graph, with the parms of the node as what it exposes."""
    for one in graph.exposed():
        name = parm_name(one.name)
        switch = node.parm(name + GIVEN)
        is_given = switch is None or bool(switch.evalAsInt())
        value = _value_text(node, name, one.type) if is_given else None
        graph = graph.set_exposed(one.name, value)
    return graph


def _value_text(node: hou.SopNode, name: str, kind: str) -> str:
    """A value as the command line writes it, with all its digits."""
    parm = node.parm(name)
    if parm is None:
        vector = node.parmTuple(name)
        if vector is None:
            raise SetupError(f'the node has no parm "{name}": it is of another version of Loki')
        return " ".join(repr(number) for number in vector.evalAsFloats())
    if kind.startswith("float"):
        return repr(parm.evalAsFloat())
    if kind.startswith("int"):
        return str(parm.evalAsInt())
    if kind.startswith("bool"):
        return str(bool(parm.evalAsInt())).lower()
    return parm.evalAsString()


def _overrides(node: hou.SopNode) -> list[str]:
    count = whole(node, parms.OVERRIDES)
    found = [text(node, f"{parms.OVERRIDE}{number}").strip() for number in range(1, count + 1)]
    return [one for one in found if one]


# -- inputs --------------------------------------------------------------------------------------


def _wanted(scene: SolverSetup | Graph) -> dict[str, str]:
    """Names of the streams that a scene wants, and their types."""
    if isinstance(scene, Graph):
        return {
            node.stream_name(name): getattr(node, "type", "any")
            for name, node in scene.nodes.items()
            if isinstance(node, (HostInput, NamedInput))
        }
    return dict.fromkeys((one.name for one in scene.streams()), "any")


def _inputs(node: hou.SopNode, scene: SolverSetup | Graph) -> dict[str, Input]:
    wanted = _wanted(scene)
    names = _input_names(node, list(wanted))
    found: dict[str, Input] = {}
    for index, name in names.items():
        source = node.inputs()[index]
        if name not in wanted:
            known = ", ".join(wanted) or "none"
            raise InputError(
                f'input {index + 1} is for "{name}", and the scene has the inputs {known}'
            )
        if name in found:
            raise InputError(f'two inputs of the node are for "{name}"')
        moves = bool(whole(node, f"{parms.ANIMATED}{index + 1}", 1))
        moves = moves and source is not None and source.isTimeDependent()
        label = f'input {index + 1} "{name}"'
        found[name] = Input(_reader(node, index, wanted[name], label), moves)
    return found


def _input_names(node: hou.SopNode, wanted: list[str]) -> dict[int, str]:
    """For which input of the scene each connected one is: as it says, or the next that is left."""
    names: dict[int, str] = {}
    for index, source in enumerate(node.inputs()):
        if source is None:
            continue
        geometry = node.inputGeometry(index)
        if geometry is None:
            raise InputError(f"input {index + 1} is connected, and has no geometry")
        names[index] = _marked(geometry) or text(node, f"{parms.INPUT}{index + 1}").strip()
    left = [name for name in wanted if name not in names.values()]
    for index, name in names.items():
        if not name and not left:
            raise InputError(f"input {index + 1} is one more than the scene has")
        names[index] = name or left.pop(0)
    return names


def _reader(node: hou.SopNode, index: int, kind: str, label: str) -> Callable[[int], Any]:
    def read(frame: int) -> Any:
        try:
            geometry = node.inputGeometryAtFrame(frame, index)
        except hou.OperationFailed as error:
            why = error.instanceMessage()
            raise InputError(f"{label} cannot be cooked at frame {frame}: {why}") from error
        if geometry is None:
            raise InputError(f"{label} has no geometry at frame {frame}")
        stream, remarks = read_stream(geometry, kind, label)
        for remark in remarks:
            node.addMessage(remark)
        return stream

    return read


def _marked(geometry: hou.Geometry) -> str:
    if geometry.findGlobalAttrib(MARK) is None:
        return ""
    return str(geometry.attribValue(MARK))
