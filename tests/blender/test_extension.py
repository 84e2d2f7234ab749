"""The extension as users get it: the zip that `make blender` builds, installed into Blender."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
ZIPS = sorted((PROJECT / "dist").glob("loki-*-linux_x64-py311.zip"))

SCRIPT = """
import sys
import bpy, numpy
site = [one for one in sys.path if one.endswith("site-packages")]
sys.path[:] = [one for one in sys.path if one not in site]  # nothing but what the zip brings
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one).lower()]
bpy.ops.preferences.addon_refresh()
bpy.ops.extensions.package_install_files(
    filepath={zip!r}, repo="user_default", enable_on_install=True
)
import loki_core, msgpack, zmq
for module in (loki_core, msgpack, zmq):
    assert "extensions" in module.__file__, module.__file__
assert not any(name in sys.modules for name in ("numba", "scipy", "mpi4py", "llvmlite"))
name = "bl_ext.user_default.loki"
assert name in bpy.context.preferences.addons
preferences = bpy.context.preferences.addons[name].preferences
preferences.command = {wtloki!r}
assert bpy.ops.loki.test_solver() == {{"FINISHED"}}
bpy.ops.wm.read_factory_settings(use_empty=True)
bpy.ops.preferences.addon_enable(module=name)
bpy.context.preferences.addons[name].preferences.command = {wtloki!r}
scene = bpy.context.scene
scene.frame_end = 3
bpy.ops.loki.add_template(template="fountain")
bpy.ops.wm.save_as_mainfile(filepath={blend!r})
assert bpy.ops.loki.bake(wait=True) == {{"FINISHED"}}
scene.frame_set(3)
shown = bpy.data.collections["Loki"].objects[0]
assert len(shown.data.vertices) > 0
bpy.ops.preferences.addon_disable(module=name)
assert not hasattr(bpy.types.Scene, "loki") and not hasattr(bpy.types, "LOKI_OT_bake")
bpy.ops.preferences.addon_enable(module=name)
assert bpy.context.scene.loki.graph is not None
print("installed")
"""


def zip_file() -> Path:
    if not ZIPS:
        pytest.skip("there is no zip in dist; `make blender` builds it")
    return ZIPS[-1]


def test_the_zip_installs_bakes_and_goes_again(tmp_path: Path) -> None:
    from tests.blender.conftest import solver_program

    script = SCRIPT.format(
        zip=str(zip_file()), wtloki=str(solver_program()), blend=str(tmp_path / "shot.blend")
    )
    environment = os.environ | {"BLENDER_USER_RESOURCES": str(tmp_path / "user")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "installed" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_zip_is_small_and_passes_blenders_own_check(tmp_path: Path) -> None:
    import bpy

    file = zip_file()
    assert file.stat().st_size < 4_000_000
    scripts = Path(bpy.utils.resource_path("LOCAL")) / "scripts"
    tool = scripts / "addons_core" / "bl_pkg" / "cli" / "blender_ext.py"
    words = [sys.executable, str(tool), "validate", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
