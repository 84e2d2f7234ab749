"""Templates: Loki Graphs with exposed parameters, that a host offers as its own nodes.

    template = find_template("hair_in_wind")
    graph = template.graph().set_exposed("hair_length", "30 cm")

A template is a `*.loki.json` file. Those here are written from the module of the same name beside
them (`python -m loki_graph.templates.write_files`), which also makes simple inputs to try them on;
folders that the environment variable LOKI_TEMPLATES names hold others.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loki_core.errors import InputError, did_you_mean
from loki_graph.graph import Graph
from loki_graph.graph_document import read_graph

FOLDER = Path(__file__).parent
SUFFIX = ".loki.json"
FOLDERS_VARIABLE = "LOKI_TEMPLATES"

__all__ = ["Template", "find_template", "templates"]


@dataclass(frozen=True)
class Template:
    """A graph that is ready to be used.

    Attributes:
        name: What programs call it; the name of its file and of its graph.
        label: What people read.
        doc: What it makes, in one line.
        path: Its file.
    """

    name: str
    label: str
    doc: str
    path: Path

    def graph(self) -> Graph:
        """Return the graph.

        Raises:
            LokiError: The file cannot be read, or is no graph.
        """
        return read_graph(self.path)

    def suggested_inputs(self) -> dict[str, Any]:
        """Return simple streams for the graph's host inputs; none for a template of one's own."""
        if self.path.parent != FOLDER:
            return {}
        streams: Mapping[str, Any] = _module(self.name).suggested_inputs()
        return dict(streams)


def templates() -> list[Template]:
    """Return all templates by name: those of Loki, and those in the folders of LOKI_TEMPLATES.

    Of two of one name the latter counts.
    """
    found = {one.name: one for one in map(_builtin, sorted(FOLDER.glob(f"*{SUFFIX}")))}
    for folder in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep):
        for path in sorted(Path(folder).glob(f"*{SUFFIX}")) if folder else ():
            name = path.name.removesuffix(SUFFIX)
            label = name.replace("_", " ").capitalize()
            found[name] = Template(name, label, f"From {path.parent}.", path)
    return [found[name] for name in sorted(found)]


def find_template(name: str) -> Template:
    """Return the template of a name.

    Raises:
        InputError: There is none; the message gives the nearest name.
    """
    known = {one.name: one for one in templates()}
    if name not in known:
        raise InputError(f'there is no template "{name[:80]}"{did_you_mean(name[:80], known)}')
    return known[name]


def _builtin(path: Path) -> Template:
    name = path.name.removesuffix(SUFFIX)
    module = _module(name)
    doc = (module.__doc__ or "").strip().partition("\n")[0]
    return Template(name, module.LABEL, doc, path)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
