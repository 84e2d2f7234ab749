"""Scene inputs: what the solver gets of a scene, read when it is asked for.

An input that can move is a function of the frame: the live client calls it in Blender's own
thread, a little ahead of the solver. Objects are looked up each time, since undo may have
replaced them in between.
"""

from __future__ import annotations

from typing import Any

import bpy
import numpy as np

from loki_core.errors import InputError

from .axes import Axes
from .compat import session_number
from .graph_tree import inputs_in
from .host_to_loki import streams_of
from .scene_time import time_of

#: Modifiers that depend on nothing but their object; any other may look at something that moves.
STILL_MODIFIERS = frozenset(
    ("BEVEL", "DECIMATE", "EDGE_SPLIT", "LAPLACIANSMOOTH", "MASK", "MULTIRES", "NORMAL_EDIT",
     "REMESH", "SKIN", "SMOOTH", "SOLIDIFY", "SUBSURF", "TRIANGULATE", "UV_WARP",
     "WEIGHTED_NORMAL", "WELD", "WIREFRAME")
)  # fmt: skip


def axes_of(scene: Any) -> Axes:
    """Return how a scene's axes and unit become those of Loki."""
    return Axes(scene.unit_settings.scale_length)


def may_move(source: Any, seen: set[int] | None = None) -> bool:
    """Whether an object can differ from frame to frame: it, or what it depends on, is animated."""
    seen = set() if seen is None else seen
    if source.as_pointer() in seen:
        return False
    seen.add(source.as_pointer())
    shape_keys = getattr(source.data, "shape_keys", None)
    for block in (source, source.data, shape_keys):
        data = getattr(block, "animation_data", None)
        if data is not None and (data.action or data.drivers or data.nla_tracks):
            return True
    if source.constraints or source.rigid_body or source.type in ("VOLUME", "ARMATURE", "META"):
        return True
    if any(modifier.type not in STILL_MODIFIERS for modifier in source.modifiers):
        return True
    return source.parent is not None and may_move(source.parent, seen)


class SceneInput:
    """One Host Input of a graph, without references to Blender's data.

    Args:
        node: Its node in the tree.
    """

    def __init__(self, node: Any, scene: Any) -> None:
        sources = node.sources()
        if not sources:
            raise InputError(f'{node.name}: choose the object that it reads, in its "Object" field')
        self.place = f"{node.id_data.name}/{node.name}"
        self.wanted = node.loki_node({}).type
        self.numbers = [session_number(one) for one in sources]
        self.scene = scene.name
        sampling = node.part.sampling
        if sampling == "AUTO":
            sampling = "FRAMES" if any(map(may_move, sources)) else "STATIC"
        self.is_animated = sampling != "STATIC"
        self.samples = node.part.samples if sampling == "SUBFRAMES" else 0
        self.remarks: list[str] = []  # what could not be carried when it was last read

    def given(self, first_frame: int) -> Any:
        """Return the stream, or a function of the frame if it can move."""
        if self.is_animated:
            return self.at
        with time_of(self._scene(), first_frame):
            return self._read()

    def at(self, frame: int) -> Any:
        """Return the stream of a frame."""
        scene = self._scene()
        motion = []
        for step in range(self.samples):
            fraction = (step + 1) / (self.samples + 1)
            with time_of(scene, frame - 1, fraction):
                motion.append(self._read().positions)
        with time_of(scene, frame, anew=True):  # without what was moved and not keyed
            stream = self._read()
        for number, positions in enumerate(motion, 1):
            if len(positions) != stream.point_count:
                raise InputError(
                    f"{self.place}: its points change in number within frame {frame}, so that it "
                    "cannot be read between frames; choose another way of reading"
                )
            stream.set_channel("point", f"motion_{number}", positions, transform="point")
        return stream

    def _scene(self) -> Any:
        scene = bpy.data.scenes.get(self.scene)
        if scene is None:
            raise InputError(f"{self.place}: the scene {self.scene} was removed")
        return scene

    def _read(self) -> Any:
        known = {session_number(one): one for one in bpy.data.objects}
        sources = [known[number] for number in self.numbers if number in known]
        if len(sources) < len(self.numbers):
            raise InputError(f"{self.place}: an object that it reads was removed")
        scene = self._scene()
        layer = bpy.context.view_layer if bpy.context.scene is scene else scene.view_layers[0]
        layer.update()
        graph = layer.depsgraph or bpy.context.evaluated_depsgraph_get()
        self.remarks = []
        return streams_of(
            sources,
            graph,
            axes_of(scene),
            wanted=self.wanted,
            own_details=overrides_of,
            remarks=self.remarks,
        )


def overrides_of(source: Any) -> dict[str, Any]:
    """Return the values that an object brings in place of those of Behaviors."""
    found = {}
    for one in source.loki.overrides:
        if one.channel:
            found[one.channel] = np.asarray(one.given(), np.float64)
    return found


def inputs_of(tree: Any, scene: Any) -> dict[str, SceneInput]:
    """Return the inputs of a graph by the names of their streams.

    Raises:
        InputError: A Host Input has no object.
    """
    return {node.stream_name: SceneInput(node, scene) for node in inputs_in(tree)}
