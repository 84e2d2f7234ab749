"""Where compiled kernels are kept: a place that changes with all that they are made of."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loki_core.kernels import kernel_cache
from loki_core.kernels.liquid import liquid_cells

ROOT = Path(__file__).parents[2]


def test_a_kernel_file_is_followed_through_its_imports():
    found = {
        file.name for file in kernel_cache._imported_sources(Path(liquid_cells.__file__), set())
    }
    assert {"liquid_cells.py", "mac_grid.py", "jit.py"} <= found
    assert "marching_cubes.py" not in found


@pytest.mark.parametrize(
    "words",
    [
        "from loki_core.kernels.gas.mac_grid import FLUID\n",
        "from loki_core.kernels.gas import mac_grid\n",
        "from loki_core.kernels.gas import (\n    traces,\n    mac_grid as grid,\n)\n",
    ],
)
def test_the_digest_follows_what_is_imported_from_a_room(tmp_path, monkeypatch, words):
    kernels = tmp_path / "loki_core" / "kernels"
    (kernels / "gas").mkdir(parents=True)
    monkeypatch.setattr(kernel_cache, "__file__", str(kernels / "kernel_cache.py"))
    for path in (kernels / "jit.py", kernels / "gas" / "mac_grid.py"):
        path.write_text("x = 0\n", encoding="utf-8")
    file = tmp_path / "own.py"
    file.write_text(words, encoding="utf-8")
    digest = kernel_cache.sources_digest.__wrapped__
    before = digest(str(file))
    (kernels / "gas" / "unrelated.py").write_text("x = 1\n", encoding="utf-8")
    assert digest(str(file)) == before
    room = kernels / "gas" / "mac_grid.py"
    room.write_text("from loki_core.kernels.jit import device\n", encoding="utf-8")
    changed = digest(str(file))
    assert changed != before
    (kernels / "jit.py").write_text("x = 2\n", encoding="utf-8")
    assert digest(str(file)) != changed


def test_every_kernel_follows_all_the_kernels_that_it_names():
    rooms = [path for path in (ROOT / "loki_core" / "kernels").rglob("*.py") if path.stem[0] != "_"]
    rooms += (ROOT / "bridges" / "standalone" / "kernels").glob("[!_]*.py")
    assert len(rooms) > 90
    for path in rooms:
        found = kernel_cache._imported_sources(path, set())
        imported = re.findall(r"kernels(?:\.\w+)*\.(\w+) import", path.read_text(encoding="utf-8"))
        assert {f"{name}.py" for name in imported} <= {file.name for file in found}, path


def test_two_copies_of_a_source_share_what_either_compiled(tmp_path):
    program = (
        "from loki_core.kernels.jit import compiled_kernels\n"
        "from own_kernels import twice\n"
        "assert twice(21) == 42\n"
        "print(len(compiled_kernels()))\n"
    )
    source = (
        "from loki_core.kernels.jit import kernel\n\n\n"
        "@kernel\ndef twice(number):\n    return 2 * number\n"
    )
    counts = []
    for folder in (tmp_path / "here", tmp_path / "there"):
        folder.mkdir()
        (folder / "own_kernels.py").write_text(source, encoding="utf-8")
        environment = {
            **os.environ,
            "LOKI_CACHE_DIR": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        counts.append(int(done.stdout))
    assert counts == [1, 0]
