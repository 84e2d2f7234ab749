"""Settings that are saved in the .blend: of a graph's bakes, of a scene, of an object.

The state of a bake is not among them: a file that was saved while a bake ran opens like any other.
"""

from __future__ import annotations

from typing import Any

import bpy

from .cache_files import DEFAULT_FOLDER
from .compat import BLEND_RELATIVE
from .graph_tree import is_graph


def make_graph_settings(part: type[Any], exposed: type[Any]) -> type[Any]:
    """Return the class of what a graph keeps: its nodes' parts, and how it is baked."""
    properties = bpy.props
    annotations = {
        "parts": properties.CollectionProperty(type=part),
        "exposed": properties.CollectionProperty(type=exposed),
        "folder": properties.StringProperty(
            name="Cache",
            description="Folder of the bakes; // is the folder of the .blend file",
            subtype="DIR_PATH",
            options=BLEND_RELATIVE,
            default=DEFAULT_FOLDER,
        ),
        "run": properties.StringProperty(
            name="Bake", description="Folder of this graph's bake, inside the cache folder"
        ),
        "scene": properties.PointerProperty(
            type=bpy.types.Scene, description="Scene that the bake was made for, and shows it"
        ),
        "use_scene_range": properties.BoolProperty(
            name="Scene Range", description="Bake the frame range of the scene", default=True
        ),
        "frame_start": properties.IntProperty(name="Start", default=1),
        "frame_end": properties.IntProperty(name="End", default=100),
        "ranks": properties.IntProperty(
            name="Ranks",
            description="Processes that share the work over MPI; 0 is what the preferences say",
            default=0,
            min=0,
            max=4096,
        ),
        "threads": properties.IntProperty(
            name="Threads",
            description="Threads of each process; 0 shares the cores out",
            default=0,
            min=0,
            max=1024,
        ),
        "checkpoint_every": properties.IntProperty(
            name="Checkpoint Every",
            description="Frames between two points from which a bake can be taken up; 0 leaves it "
            "to the solver, which spends little time on them",
            default=10,
            min=0,
            max=10_000,
        ),
        "live_preview": properties.BoolProperty(
            name="Live Preview",
            description="Follow the bake: show each frame as soon as it is there",
            default=True,
        ),
        "show_results": properties.BoolProperty(
            name="Show Results",
            description="Let objects show the baked frames when the time changes",
            default=True,
        ),
    }
    return type("LOKI_PG_graph", (bpy.types.PropertyGroup,), {"__annotations__": annotations})


class SceneSettings(bpy.types.PropertyGroup):
    """What a scene keeps: the graph that its panels show."""

    bl_idname = "LOKI_PG_scene"

    graph: bpy.props.PointerProperty(  # type: ignore[valid-type]
        type=bpy.types.NodeTree,
        name="Loki Graph",
        description="The simulation that the panels show",
        poll=lambda self, tree: is_graph(tree),
    )
    search: bpy.props.StringProperty(  # type: ignore[valid-type]
        name="Search", description="Show what has these words in it", options={"TEXTEDIT_UPDATE"}
    )
    only_set: bpy.props.BoolProperty(  # type: ignore[valid-type]
        name="Only Changed", description="Show only values that are not the default"
    )


class ObjectOverride(bpy.types.PropertyGroup):
    """A value that holds for one object instead of that of a Behavior."""

    bl_idname = "LOKI_PG_override"

    channel: bpy.props.StringProperty(  # type: ignore[valid-type]
        name="Channel", description="Such as bending_stiffness: Behavior and parameter"
    )
    size: bpy.props.IntProperty(default=1, min=1, max=3)  # type: ignore[valid-type]
    value: bpy.props.FloatProperty(name="Value", precision=4)  # type: ignore[valid-type]
    vector: bpy.props.FloatVectorProperty(name="Value", size=3, precision=4)  # type: ignore[valid-type]

    def given(self) -> Any:
        """Return the value."""
        return self.value if self.size == 1 else tuple(self.vector)


class ObjectSettings(bpy.types.PropertyGroup):
    """What an object keeps: values that override those of Behaviors."""

    bl_idname = "LOKI_PG_object"

    overrides: bpy.props.CollectionProperty(type=ObjectOverride)  # type: ignore[valid-type]
    active: bpy.props.IntProperty()  # type: ignore[valid-type]
