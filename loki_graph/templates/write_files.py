"""Write the `*.loki.json` of templates from what their modules build.

python -m loki_graph.templates.write_files
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from loki_graph.graph import Graph
from loki_graph.graph_document import write_graph

FOLDER = Path(__file__).parent


def built_graphs() -> dict[str, Graph]:
    """Return the graph that each module of the folder builds, by name."""
    names = [one.name for one in pkgutil.iter_modules([str(FOLDER)])]
    modules = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    return {name: module.build() for name, module in modules.items() if hasattr(module, "build")}


def main() -> None:
    """Write all files."""
    for name, graph in built_graphs().items():
        path = FOLDER / f"{name}.loki.json"
        write_graph(graph, path)
        print(path)


if __name__ == "__main__":
    main()
