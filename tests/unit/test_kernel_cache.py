"""Where compiled kernels are kept: a place that changes with all that they are made of."""

from pathlib import Path

from loki_core.kernels import jit, liquid_cells, mac_grid


def test_a_kernel_file_is_followed_through_its_imports():
    found = {file.name for file in jit._imported_sources(Path(liquid_cells.__file__), set())}
    assert {"liquid_cells.py", "mac_grid.py", "jit.py"} <= found
    assert "marching_cubes.py" not in found


def test_the_digest_follows_what_is_imported(tmp_path, monkeypatch):
    for module in (jit, mac_grid):
        source = Path(module.__file__)
        (tmp_path / source.name).write_bytes(source.read_bytes())
    file = tmp_path / "own.py"
    file.write_text("from loki_core.kernels.mac_grid import FLUID\n", encoding="utf-8")
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    before = jit.sources_digest.__wrapped__(str(file))
    (tmp_path / "unrelated.py").write_text("x = 1\n", encoding="utf-8")
    assert jit.sources_digest.__wrapped__(str(file)) == before
    with (tmp_path / "mac_grid.py").open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert jit.sources_digest.__wrapped__(str(file)) != before
