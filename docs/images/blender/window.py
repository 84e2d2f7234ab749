"""The manual's picture of the window: hair in wind with the Loki tab, and its graph below.

    LIBGL_ALWAYS_SOFTWARE=1 xvfb-run -a -s "-screen 0 1600x1000x24 +extension GLX" \\
        blender --factory-startup --python-use-system-env --window-geometry 0 0 1600 1000 \\
        --python window.py -- window.png CACHE

CACHE is a frame cache of the template with its suggested head. Made with Debian's Blender 3.4, on a
machine without a display; it needs xdotool, and numpy, msgpack, pyzmq and Loki on PYTHONPATH. That
Blender cannot make hair, so strands are shown as edges.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import bpy

import loki_vfx.bridges.blender
from loki_graph.templates import find_template
from loki_vfx.bridges.blender import panels
from loki_vfx.bridges.blender.template_operators import add_graph
from loki_vfx.serialization.frame_cache import FrameCacheReader

OUTPUT, CACHE = sys.argv[sys.argv.index("--") + 1 :]
HEIGHT = 1000


def window() -> bpy.types.Window:
    return bpy.context.window_manager.windows[0]


def area(kind: str) -> bpy.types.Area:
    return next(one for one in window().screen.areas if one.type == kind)


def add_mesh(name: str, positions: Any, edges: Any, faces: Any) -> bpy.types.Object:
    """Add a mesh as this old version can; Y is up in the positions."""
    mesh = bpy.data.meshes.new(name)
    mesh.from_pydata([(x, -z, y) for x, y, z in positions.tolist()], edges, faces)
    for polygon in mesh.polygons:
        polygon.use_smooth = True
    made = bpy.data.objects.new(name, mesh)
    bpy.context.collection.objects.link(made)
    return made


def show_strands() -> bpy.types.Object:
    """Show the last frame of the cache, and return the head."""
    reader = FrameCacheReader(CACHE)
    frame = reader.frames()[-1]
    [name] = reader.objects(frame)
    hair = reader.read(frame, name)
    add_mesh("Hair", hair.positions, hair.edges().tolist(), [])
    head = find_template("hair_in_wind").suggested_inputs()["head"]
    return add_mesh("Head", head.positions, [], head.triangles().tolist())


def lay_out() -> None:
    bpy.ops.object.select_all(action="SELECT")
    bpy.ops.object.delete()
    tree = add_graph(bpy.context.scene, find_template("hair_in_wind").graph())
    tree.name = "Hair in wind"
    tree.nodes["head"].part.source = show_strands()
    solver = tree.nodes["solver"]
    tree.nodes.active = solver
    solver.part.active_row = 3
    view = area("VIEW_3D")
    view.spaces[0].show_region_ui = True
    view.spaces[0].overlay.show_floor = False
    with bpy.context.temp_override(window=window(), area=view, region=view.regions[-1]):
        bpy.ops.screen.area_split(direction="HORIZONTAL", factor=0.24)
    lower = min(
        (one for one in window().screen.areas if one.type == "VIEW_3D"), key=lambda one: one.y
    )
    lower.type = "NODE_EDITOR"
    lower.ui_type = "LokiGraphTree"
    lower.spaces[0].node_tree = tree
    lower.spaces[0].show_region_ui = False


def frame_all() -> None:
    """Let both editors show all there is."""
    for kind, operator in (("NODE_EDITOR", bpy.ops.node), ("VIEW_3D", bpy.ops.view3d)):
        editor = area(kind)
        region = next(one for one in editor.regions if one.type == "WINDOW")
        with bpy.context.temp_override(window=window(), area=editor, region=region):
            operator.view_all()
    for node in area("NODE_EDITOR").spaces[0].node_tree.nodes:
        node.select = False


def choose_tab() -> None:
    """Click on the tab: this version has no call for it."""
    sidebar = next(one for one in area("VIEW_3D").regions if one.type == "UI")
    x, y = sidebar.x + sidebar.width - 10, HEIGHT - (sidebar.y + sidebar.height - 113)
    words = ["xdotool", "mousemove", str(x), str(y), "sleep", "0.3", "click", "1"]
    subprocess.run(words, check=True)


def take_picture() -> None:
    with bpy.context.temp_override(window=window()):
        bpy.ops.screen.screenshot(filepath=OUTPUT)
    bpy.ops.wm.quit_blender()


panels.LOKI_PT_setup.bl_options = set()  # open
loki_vfx.bridges.blender.register()
bpy.context.preferences.view.show_splash = False
for seconds, step in (
    (1.5, lay_out),
    (4.0, frame_all),
    (5.0, choose_tab),
    (9.0, take_picture),
):
    bpy.app.timers.register(step, first_interval=seconds)
