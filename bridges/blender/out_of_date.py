"""Out of date: whether a graph is still what its frames were made of."""

from __future__ import annotations

from typing import Any

from loki_core.errors import LokiError
from loki_graph.graph_document import graph_to_document
from loki_vfx.bridges.live.run_folder import RunFolder

from . import cache_files
from .baked_graph import document_of
from .compat import session_number

_changed: dict[int, bool] = {}  # what was found, until something is edited


def note_edit(block: Any) -> None:
    """Note that a graph was edited."""
    _changed.pop(session_number(block), None)


def forget() -> None:
    """Forget what was found, since the graphs are others."""
    _changed.clear()


def is_out_of_date(tree: Any, scene: Any) -> bool:
    """Whether a graph has changed since it was baked; quick, for panels."""
    number = session_number(tree)
    if number not in _changed:
        _changed[number] = has_changed(tree, scene)
    return _changed[number]


def has_changed(tree: Any, scene: Any) -> bool:
    """Whether a graph is not what its frames were made of any more, drivers apart."""
    folder = cache_files.run_folder(tree)
    if folder is None or not folder.is_dir():
        return False
    try:
        baked = RunFolder(folder.parent, folder.name).read_document()
        return bool(baked != graph_to_document(document_of(tree, scene)))
    except (LokiError, OSError):
        return True
