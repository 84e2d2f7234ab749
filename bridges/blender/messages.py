"""Messages: what a user should know of a graph, for its panel, beside the log of its bake."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

from .compat import session_number
from .graph_tree import graphs

_messages: dict[int, str] = {}
_told: SimpleQueue[tuple[str, str]] = SimpleQueue()


def report(tree: Any, text: str) -> None:
    """Keep what a user should know of a graph, for its panel; once on the console too."""
    number = session_number(tree)
    if _messages.get(number) != text:
        _messages[number] = text
        print(f"Loki: {text}")


def message_of(tree: Any) -> str:
    """Return what a user should know of a graph."""
    return _messages.get(session_number(tree), "")


def take_back(tree: Any) -> None:
    """Say nothing of a graph any more: what was wrong is right again."""
    _messages.pop(session_number(tree), None)


def tell_later(name: str, text: str) -> None:
    """Report something of the graph of a name from another thread."""
    _told.put((name, text))


def take_in() -> None:
    """Report what other threads have told."""
    while not _told.empty():
        name, text = _told.get()
        for tree in graphs():
            if tree.name == name:
                report(tree, text)


def forget() -> None:
    """Forget what was said of the graphs of another file."""
    _messages.clear()
