"""The scene of a run as it travels: the document of a Loki Graph or of a Solver Setup.

What comes from a client is confined to the run's own folder, and can be changed by texts such as
`Hair/BendingConstraint.stiffness=2e-9`, like `wtloki run --set` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loki_core.behavior import load_builtin_behaviors
from loki_core.errors import FormatError, InputError
from loki_core.setup_document import setup_from_document
from loki_core.solver_setup import SolverSetup
from loki_graph import Graph
from loki_graph.folder_access import FolderAccess
from loki_graph.graph_document import graph_from_document
from loki_graph.nodes.solver_setup import SolverSetupNode

MAX_CHANGES = 1000
MAX_CHANGE_TEXT = 10_000


def parse_scene(document: Any, folder: Path) -> SolverSetup | Graph:
    """Return the Solver Setup or graph of a document; files that it names lie in the folder.

    Raises:
        LokiError: It is not valid, or leads out of the folder.
    """
    load_builtin_behaviors()
    kind = document.get("loki") if isinstance(document, Mapping) else None
    if kind == "solver_setup":
        return setup_from_document(document)
    if kind == "graph":
        return graph_from_document(document).resolved(FolderAccess(folder, confined=True))
    raise FormatError(
        f'a scene is a Loki Graph or a Solver Setup, and "loki" is {str(kind)[:40]!r}'
    )


def change_scene(scene: SolverSetup | Graph, changes: Sequence[str]) -> SolverSetup | Graph:
    """Return the scene with changes applied in their order.

    Raises:
        LokiError: One of them names nothing, or has a value that is not allowed.
    """
    from loki_vfx.bridges.standalone.graph_scene import change_graph
    from loki_vfx.bridges.standalone.scene import apply_changes

    if isinstance(scene, SolverSetup):
        return apply_changes(scene, changes)

    return change_graph(scene, changes)


def checked_changes(changes: Any) -> list[str]:
    """Return the texts of changes if they are texts of sensible length.

    Raises:
        InputError: They are not.
    """
    if not isinstance(changes, list) or not 0 < len(changes) <= MAX_CHANGES:
        raise InputError(f"changes are a list of 1 to {MAX_CHANGES} texts")
    for text in changes:
        if not isinstance(text, str) or len(text) > MAX_CHANGE_TEXT:
            raise InputError("a change is a text such as Group/Behavior.parameter=value")
    return list(changes)


def has_solver(scene: SolverSetup | Graph) -> bool:
    """Whether something is simulated; a graph may also only convert data."""
    if isinstance(scene, SolverSetup):
        return True
    return any(isinstance(node, SolverSetupNode) for node in scene.nodes.values())


def document_to_send(scene: SolverSetup | Graph) -> dict[str, Any]:
    """Return the document of a scene with the Solver Setups of files inside it."""
    if isinstance(scene, SolverSetup):
        return scene.to_document()
    if not isinstance(scene, Graph):
        raise InputError(f"a scene is a Loki Graph or a Solver Setup, not {type(scene).__name__}")
    for name, node in scene.nodes.items():
        if isinstance(node, SolverSetupNode) and isinstance(node.setup, str):
            if node.loaded_setup is None:
                raise InputError(
                    f"{scene.name}/{name}.setup = {node.setup!r} was not read; read the graph "
                    "from its file"
                )
            scene = scene.with_node(name, node.with_setup(node.loaded_setup))
    return scene.to_document()
