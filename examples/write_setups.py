"""Write the `*.loki.json` of scenes from what their `build` returns.

python -m examples.write_setups [NAME ...]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from loki_core.setup_document import write_setup


def main(names: list[str]) -> None:
    """Write those of the named scenes, or of all."""
    here = Path(__file__).parent
    for name in names or sorted(path.parent.name for path in here.glob("*/example.py")):
        setup, _ = importlib.import_module(f"{__package__}.{name}.example").build()
        path = here / name / f"{name}.loki.json"
        write_setup(setup, path)
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
