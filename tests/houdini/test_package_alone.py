"""The package is enough to cook, in a Python that has numpy, pyzmq and msgpack alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from loki_core.setup_document import write_setup
from loki_vfx.bridges.houdini import build_package
from tests.houdini.test_vdbs import smoke
from tests.live.live_scenes import sparks

STAND_IN = Path(__file__).parent / "stand_in"

#: Of a host: everything of Loki comes from the package, and what a solver needs is not there.
COOK = """
import importlib.abc, pathlib, shutil, sys
libraries, stand_in, folder = sys.argv[1:]
sys.path[:0] = [libraries, stand_in]
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one).lower()]
MISSING = {"numba", "scipy", "mpi4py", "llvmlite", "trimesh", "rich", "click", "openvdb"}

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import hou
import loki_core.data.points, loki_graph.nodes.shape_source
from loki_houdini import cook
from loki_vfx.bridges.live.client import Client
from loki_vfx.bridges.live.local_server import discovered
from loki_vfx.serialization.houdini_files import read_bytes, write_bytes
from loki_vfx.serialization.houdini_streams import geometry_of, streams_of

files = []

def load(self, file_name):  # which reads VDBs by what is missing here
    files.append(file_name)
    shutil.copy(file_name, f"{folder}/{len(files)}.vdb")

hou.Geometry.loadFromFile = load

def cooked(file, stream):
    def give(node):
        node.geometry().load(write_bytes(geometry_of(stream)))

    parms = {"loki_source": "file", "loki_file": f"{folder}/{file}", "loki_cache": f"{folder}/runs"}
    parms |= {"loki_start": 1, "loki_end": 2, "loki_volumes": "vdb", "loki_overrides": 0}
    node = hou.SopNode(file, "loki::solver", parms, cook.cook_solver)
    node.setInput(0, hou.SopNode("source", "source", {}, give))
    hou.setFrame(2)
    node.cook()
    return streams_of(read_bytes(node.geometry().data()))

try:
    places = loki_core.data.points.Points([[0.0, 1.0, 0.0], [0.5, 1.0, 0.0]])
    print(*cooked("sparks.loki.json", places))
    cooked("smoke.loki.json", loki_graph.nodes.shape_source.unit_sphere(12, 6))
    print(len(files), "files", "of", cook.__file__)
    assert not MISSING & set(sys.modules)
finally:
    cook.forget_all()
    found = discovered(pathlib.Path(folder, "runs"))
    if found is not None:
        with Client(found["endpoint"]) as client:
            client.stop_server()
"""


def test_nodes_cook_with_the_package_alone(tmp_path, monkeypatch):
    problems, _ = build_package.build(tmp_path / "dist", None)
    assert problems == []
    libraries = tmp_path / "dist" / build_package.NAME / "loki" / build_package.LIBRARIES
    write_setup(sparks(), tmp_path / "sparks.loki.json")
    write_setup(smoke(), tmp_path / "smoke.loki.json")
    monkeypatch.setenv("LOKI_WTLOKI", shutil.which("wtloki", path=Path(sys.executable).parent))
    words = [sys.executable, "-c", COOK, *map(str, (libraries, STAND_IN, tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "points",
        f"1 files of {libraries / 'loki_houdini' / 'cook.py'}",
    ]
    written = (tmp_path / "1.vdb").read_bytes()
    for name in (b"density", b"temperature", b"vel", b"Tree_vec3s_5_4_3"):
        assert name in written
