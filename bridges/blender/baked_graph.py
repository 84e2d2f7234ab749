"""Baked graph: what a bake of a graph computes now, and over which frames."""

from __future__ import annotations

from typing import Any

from loki_core.errors import InputError
from loki_graph import Graph
from loki_graph.nodes.output import Output
from loki_graph.nodes.solver_setup import SolverSetupNode

from .graph_exchange import graph_of, sample_drivers


def frame_range(tree: Any, scene: Any) -> tuple[int, int]:
    """Return the first and the last frame of a bake."""
    if tree.loki.use_scene_range:
        return scene.frame_start, scene.frame_end
    return tree.loki.frame_start, tree.loki.frame_end


def rate_of(scene: Any) -> float:
    """Return the frames per second of a scene."""
    return float(scene.render.fps / scene.render.fps_base)


def document_of(tree: Any, scene: Any, frames: tuple[int, int] | None = None) -> Any:
    """Return the Loki Graph that a bake would compute now, values with drivers apart."""
    frames = frames or frame_range(tree, scene)
    return graph_of(tree, frames=frames, frames_per_second=rate_of(scene))


def document_with_drivers(tree: Any, scene: Any, frames: tuple[int, int] | None = None) -> Any:
    """Return the Loki Graph that a bake would compute now; the scene steps through all frames."""
    frames = frames or frame_range(tree, scene)
    driven = sample_drivers(tree, scene, frames)
    return graph_of(tree, frames=frames, frames_per_second=rate_of(scene), driven=driven)


def check_complete(graph: Graph) -> None:
    """See whether there is something to simulate and something to keep.

    Raises:
        InputError: There is not; the message says what is missing.
    """
    solvers = [node for node in graph.nodes.values() if isinstance(node, SolverSetupNode)]
    if not solvers:
        raise InputError(
            f"{graph.name} has no Solver Setup, so there is nothing to simulate: add one in the "
            "Loki Graph editor"
        )
    if not any(node.outputs() for node in solvers):
        raise InputError(
            f"the Solver Setup of {graph.name} has no Object that is switched on, so there is "
            "nothing to simulate: add one, such as a Curves Object, under Solver Setup"
        )
    if not any(isinstance(node, Output) for node in graph.nodes.values()):
        raise InputError(
            f"{graph.name} has no Output, so nothing would be kept: add one in the Loki Graph "
            "editor, and connect what it shall show"
        )
