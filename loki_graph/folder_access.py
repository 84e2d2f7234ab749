"""Where a graph may look for files: relative paths stand for the graph's own folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loki_core.errors import GraphError
from loki_core.parameter import show


@dataclass(frozen=True)
class FolderAccess:
    """The folder that paths are relative to, and whether they may lead out of it."""

    base: Path | None = None
    confined: bool = False

    def find(self, text: str, *, place: str) -> Path:
        """Return the path that a parameter's text means.

        Raises:
            GraphError: The text is empty, or leads out of a folder that confines the graph.
        """
        if not text.strip():
            raise GraphError(f"{place} is empty; give a path")
        path = Path(text)
        if not path.is_absolute() and self.base is not None:
            path = self.base / path
        if self.confined:
            base = (self.base or Path()).resolve()
            if not path.resolve().is_relative_to(base):
                raise GraphError(
                    f"{place} = {show(text)} leads out of the folder of the graph, which this "
                    "run does not allow; put the file inside that folder"
                )
        return path
