"""Borders of the project: what a host process can import, and which way arrows point."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("numba", "scipy", "mpi4py", "openvdb", "trimesh", "pyvista", "bpy", "rich")

# A package may import those to the right of it, and itself.
MAY_IMPORT = {
    "loki_core": (),
    "serialization": ("loki_core",),
    "loki_graph": ("loki_core", "serialization"),
    "bridges": ("loki_core", "loki_graph", "serialization", "examples", "validation", "benchmarks"),
}
OURS = {*MAY_IMPORT, "examples", "validation", "benchmarks", "tests"}

LIGHT_PROCESS = """
import importlib.abc, json, pkgutil, sys

ALLOWED = {"numpy", "msgpack", "zmq", "loki_core", "loki_graph", "loki_vfx"}

class OnlyLight(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top in HEAVY or (top not in ALLOWED and top not in sys.stdlib_module_names
                            and not top.startswith(("_", "cython", "backports"))):
            raise ImportError(f"{name} is not there in a host process")
        return None

HEAVY = %r
sys.meta_path.insert(0, OnlyLight())
import loki_core, loki_graph
from loki_vfx import serialization
for package in (loki_core, loki_graph, serialization):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        __import__(module.name)
import loki_vfx.bridges.live.client
from loki_vfx.serialization.codec import decode, encode
parameters = {
    name: {key: one.describe() for key, one in behavior.parameters().items()}
    for name, behavior in loki_core.registry().items()
}
document = decode(encode({"parameters": parameters}))
assert document["parameters"] == parameters
import numpy as np, pathlib, tempfile
from loki_core.data.voxels import Voxels
from loki_vfx.serialization import volumes
smoke = Voxels(np.zeros((1, 3), np.int32), 0.1)
smoke.set_channel("density", np.ones((1, 1, 8, 8, 8), np.float32))
with tempfile.TemporaryDirectory() as folder:
    volumes.write_vdb(pathlib.Path(folder) / "smoke.vdb", smoke)
assert not set(HEAVY) & set(sys.modules), set(HEAVY) & set(sys.modules)
print(json.dumps({"behaviors": sorted(parameters), "count": sum(map(len, parameters.values()))}))
"""


def test_a_host_process_imports_everything_it_shows_without_heavy_packages():
    done = subprocess.run(
        [sys.executable, "-c", LIGHT_PROCESS % (HEAVY,)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"GravityForce", "ParticleObject", "ParticleExpression"} <= set(found["behaviors"])
    assert found["count"] > 20


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_arrows_point_one_way(package):
    allowed = {package, *MAY_IMPORT[package]}
    for path in (ROOT / package).rglob("*.py"):
        for name in _imports(path):
            first, _, rest = name.partition(".")
            part = rest.partition(".")[0] if first == "loki_vfx" else first
            assert part not in OURS or part in allowed, f"{path} imports {name}"


def test_what_is_installed_under_our_name_is_imported_under_it():
    placed = [link.name for link in (ROOT / "loki_vfx").iterdir() if link.is_symlink()]
    assert set(placed) == {"benchmarks", "bridges", "examples", "serialization", "validation"}
    for package in (*MAY_IMPORT, *placed):
        for path in (ROOT / package).rglob("*.py"):
            for name in _imports(path):
                assert name.partition(".")[0] not in placed, f"{path} imports {name}"


@pytest.mark.parametrize("folder", ["data", "parallel", "kernels"])
def test_data_and_kernels_know_nothing_of_physics(folder):
    allowed = {"data", "parallel", "kernels", "errors", "operating_system", "units", "wording"}
    for path in (ROOT / "loki_core" / folder).rglob("*.py"):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "loki_core" and len(parts) > 1:
                assert parts[1] in allowed, f"{path} imports {name}"


@pytest.mark.parametrize(
    ("library", "place"),
    [("mpi4py", "loki_core/parallel/comm.py"), ("zmq", "bridges/live/sockets.py")],
)
def test_a_library_is_imported_in_one_place(library, place):
    users = [
        path
        for package in MAY_IMPORT
        for path in (ROOT / package).rglob("*.py")
        if any(name.partition(".")[0] == library for name in _imports(path))
    ]
    assert users == [ROOT / place]
