"""Where compiled kernels are kept: a place that changes with all that they are made of."""

import os
import subprocess
import sys
from pathlib import Path

from loki_core.kernels import jit, kernel_cache, liquid_cells, mac_grid

ROOT = Path(__file__).parents[2]


def test_a_kernel_file_is_followed_through_its_imports():
    found = {
        file.name for file in kernel_cache._imported_sources(Path(liquid_cells.__file__), set())
    }
    assert {"liquid_cells.py", "mac_grid.py", "jit.py"} <= found
    assert "marching_cubes.py" not in found


def test_the_digest_follows_what_is_imported(tmp_path, monkeypatch):
    for module in (jit, kernel_cache, mac_grid):
        source = Path(module.__file__)
        (tmp_path / source.name).write_bytes(source.read_bytes())
    file = tmp_path / "own.py"
    file.write_text("from loki_core.kernels.mac_grid import FLUID\n", encoding="utf-8")
    monkeypatch.setattr(kernel_cache, "__file__", str(tmp_path / "kernel_cache.py"))
    before = kernel_cache.sources_digest.__wrapped__(str(file))
    (tmp_path / "unrelated.py").write_text("x = 1\n", encoding="utf-8")
    assert kernel_cache.sources_digest.__wrapped__(str(file)) == before
    with (tmp_path / "mac_grid.py").open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert kernel_cache.sources_digest.__wrapped__(str(file)) != before


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
