"""First run check: a question to Houdini, where it is asked, and how its answer is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hou

from loki_core.errors import LokiError
from loki_vfx.bridges.live.client import Client
from loki_vfx.bridges.live.local_server import discovered, wtloki_command

from . import cook
from .geometry_streams import read_stream

TOLERANCE = 1e-5  # of lengths that went through single precision [m]
MOST_TOLD = 20


class CheckFailed(Exception):
    """It is not as it should be; the message says what."""

    result = "fail"


class NotPossible(Exception):
    """Something that the check needs is not here; the message says what."""

    result = "not possible here"


@dataclass
class Place:
    """Where checks work, and with what.

    Attributes:
        folder: That is theirs, and is removed.
        template: Which is simulated.
        command: How `wtloki` is called; none finds it.
    """

    folder: Path
    template: str = "fountain"
    command: tuple[str, ...] = ()
    nodes: list[hou.Node] = field(default_factory=list[hou.Node])

    def wtloki(self) -> list[str]:
        """Return how `wtloki` is called.

        Raises:
            NotPossible: It was not found.
        """
        try:
            return list(self.command) or wtloki_command()
        except LokiError as error:
            raise NotPossible(str(error)) from error

    @property
    def runs(self) -> Path:
        """The folder of what nodes simulate."""
        return self.folder / "runs"

    def close(self) -> str:
        """Remove nodes, and end the server that a node has started; returns what there was."""
        cook.forget_all()
        count = len(self.nodes)
        while self.nodes:
            self.nodes.pop().destroy()
        found = discovered(self.runs)
        if found is not None:
            with Client(found["endpoint"]) as client:
                client.stop_server()
        return f"{count} networks and {'no' if found is None else 'one'} server"


@dataclass(frozen=True)
class Check:
    """A question.

    Attributes:
        needs: What of `hou` it calls that a stand-in may lack.
    """

    name: str
    ask: Callable[[Place], str]
    needs: tuple[str, ...] = ()

    def run(self, place: Place) -> str:
        """Return what was seen; raises CheckFailed or NotPossible."""
        lacking = [name for name in self.needs if not has(name)]
        if lacking:
            raise NotPossible(f"this hou has no {', '.join(lacking)}")
        return self.ask(place)


def has(name: str) -> bool:
    """Return whether `hou` has something."""
    found: Any = hou
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def demand(problems: Sequence[str]) -> None:
    """Raise CheckFailed with what is wrong, if anything is."""
    if problems:
        more = len(problems) - MOST_TOLD
        tail = [f"and {more} more"] if more > 0 else []
        raise CheckFailed("\n".join([*problems[:MOST_TOLD], *tail]))


def made(place: Place, operator: str, table: str = "Sop") -> hou.Node:
    """Return a node in a network of its own."""
    scene = hou.node("/obj")
    if scene is None:
        raise CheckFailed("there is no /obj")
    network = scene.createNode("dopnet" if table == "Dop" else "geo")
    place.nodes.append(network)
    return network.createNode(operator)


def made_sop(place: Place, operator: str, source: hou.SopNode | None = None) -> hou.SopNode:
    """Return a SOP, beside the one that is its first input."""
    if source is None:
        node = made(place, operator)
    else:
        parent = source.parent()
        if parent is None:
            raise CheckFailed(f"{source.name()} is in no network")
        node = parent.createNode(operator)
        node.setInput(0, source)
    if not isinstance(node, hou.SopNode):
        raise CheckFailed(f"{operator} is a {type(node).__name__}, not a SOP")
    return node


def taken(geometry: hou.Geometry) -> Any:
    """Return the stream of a geometry, all of which has to be carried."""
    stream, remarks = read_stream(geometry, "any", "input")
    demand(remarks)
    return stream


def cooked(node: hou.SopNode) -> hou.Geometry:
    """Return what a node shows after it was cooked."""
    node.cook(force=True)
    geometry = node.geometry()
    if geometry is None:
        raise CheckFailed(f"{node.name()} has no geometry")
    return geometry
