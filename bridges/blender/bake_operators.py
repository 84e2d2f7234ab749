"""Operators that run simulations: bake, pause, resume, cancel, and what is done with the frames."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import bpy

from loki_core.errors import InputError

from . import bakes, cache_files, volumes
from .bake import Bake
from .baked_graph import document_with_drivers
from .clock import tick_all
from .messages import tell_later
from .operator_tools import GraphOperator, graph_for, told
from .preferences import solver_command, wishes
from .solver_connection import connect_to

LONGEST_START = 60.0  # s for a program to tell its version
REST = 0.02  # s for the solver, where there is no window whose clock would go on


class LOKI_OT_bake(GraphOperator):
    """Simulate in the background; frames appear as they are ready"""

    bl_idname = "loki.bake"
    bl_label = "Bake"
    bl_options = {"UNDO"}  # so that no later undo takes back where the frames are

    graph: bpy.props.StringProperty(  # type: ignore[valid-type]
        name="Graph", description="Empty is the active one", options={"SKIP_SAVE"}
    )
    wait: bpy.props.BoolProperty(  # type: ignore[valid-type]
        name="Wait", description="Return when all frames are there", options={"SKIP_SAVE"}
    )
    from_frame: bpy.props.IntProperty(  # type: ignore[valid-type]
        name="From Frame",
        description="Keep earlier frames; go on from the last checkpoint before this frame",
        default=-(2**31),
        options={"SKIP_SAVE"},
    )

    @told
    def execute(self, context: Any) -> set[str]:
        """Start; without a window `wait` takes in what comes until the end."""
        tree = graph_for(context, self.graph)
        first = None if self.from_frame == -(2**31) else self.from_frame
        bake = bakes.start(tree, context.scene, from_frame=first)
        if not self.wait:
            return {"FINISHED"}
        while not bake.is_over or volumes.is_writing():
            tick_all()
            time.sleep(REST)
        tick_all()
        if bake.state != "finished":
            raise InputError(f"{bake.state}: {bake.message}")
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Ask before frames are replaced."""
        tree = graph_for(context, self.graph)
        if cache_files.baked_frames(tree):
            return set(context.window_manager.invoke_confirm(self, event))
        return self.execute(context)


class LOKI_OT_rebake(GraphOperator):
    """Compute the frames from the current one on anew, and keep those before it"""

    bl_idname = "loki.rebake"
    bl_label = "Bake from Here"

    @told
    def execute(self, context: Any) -> set[str]:
        """Start at the last checkpoint before the current frame."""
        tree = graph_for(context)
        bakes.start(tree, context.scene, from_frame=context.scene.frame_current)
        return {"FINISHED"}


class _Order(GraphOperator):
    """Tells the bake of the active graph something."""

    def bake(self, context: Any) -> Bake:
        """Return the bake of the active graph."""
        found = bakes.bake_of(graph_for(context))
        if found is None:
            raise InputError("nothing is being baked")
        return found


class LOKI_OT_pause(_Order):
    """Hold the simulation at the end of its frame"""

    bl_idname = "loki.pause"
    bl_label = "Pause"

    @told
    def execute(self, context: Any) -> set[str]:
        """Pause."""
        self.bake(context).pause()
        return {"FINISHED"}


class LOKI_OT_resume(_Order):
    """Go on, after a pause or from where a bake was stopped"""

    bl_idname = "loki.resume"
    bl_label = "Resume"

    @told
    def execute(self, context: Any) -> set[str]:
        """Resume; a bake that nobody follows any more is found first."""
        bakes.resume(graph_for(context), context.scene)
        return {"FINISHED"}


class LOKI_OT_cancel(_Order):
    """Stop at once; frames that are there stay, and the bake can be resumed"""

    bl_idname = "loki.cancel"
    bl_label = "Cancel"

    @told
    def execute(self, context: Any) -> set[str]:
        """Cancel."""
        self.bake(context).cancel()
        return {"FINISHED"}


class LOKI_OT_checkpoint(_Order):
    """Write a checkpoint at the end of this frame"""

    bl_idname = "loki.checkpoint"
    bl_label = "Checkpoint"

    @told
    def execute(self, context: Any) -> set[str]:
        """Write it."""
        self.bake(context).checkpoint()
        return {"FINISHED"}


class LOKI_OT_free(GraphOperator):
    """Remove the frames and checkpoints of this simulation from the disk"""

    bl_idname = "loki.free"
    bl_label = "Free Bake"

    @told
    def execute(self, context: Any) -> set[str]:
        """Remove them."""
        bakes.remove(graph_for(context))
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Ask first: hours of work may be lost."""
        return set(context.window_manager.invoke_confirm(self, event))


class LOKI_OT_export(GraphOperator):
    """Write the baked frames as USD or VDB files, which load without Loki"""

    bl_idname = "loki.export"
    bl_label = "Export Frames"

    filepath: bpy.props.StringProperty(subtype="FILE_PATH")  # type: ignore[valid-type]
    filter_glob: bpy.props.StringProperty(  # type: ignore[valid-type]
        default="*.usd;*.usda;*.usdc", options={"HIDDEN"}
    )
    check_existing: bpy.props.BoolProperty(default=True, options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Let `wtloki export` write them, in a process of its own."""
        tree = graph_for(context)
        folder = cache_files.cache_folder(tree)
        if folder is None or not cache_files.baked_frames(tree):
            raise InputError(f"{tree.name} has no baked frames")
        target = bpy.path.abspath(self.filepath)
        words = [
            *solver_command(),
            "export",
            str(folder),
            "--to",
            target,
            "--up",
            "z",
            "--overwrite",
        ]
        if bpy.app.background:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise InputError(done.stderr.strip()[-500:])
        else:
            threading.Thread(target=_finish, args=(tree.name, words), daemon=True).start()
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Ask for the file."""
        self.filepath = f"//{graph_for(context).name}.usdc"
        context.window_manager.fileselect_add(self)
        return {"RUNNING_MODAL"}


def _finish(name: str, words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    text = "exported" if done.returncode == 0 else done.stderr.strip()[-500:]
    tell_later(name, f"{name}: {text}")


class LOKI_OT_test_solver(bpy.types.Operator):
    """Start the solver and ask for its version"""

    bl_idname = "loki.test_solver"
    bl_label = "Test"

    @told
    def execute(self, context: Any) -> set[str]:
        """Run `wtloki version`, or connect to the server that is given."""
        if wishes().endpoint:
            client = connect_to(Path.home(), wishes(), [])
            version = client.server["version"]
            client.close()
        else:
            version = _version_of([*solver_command(), "--version"])
        self.report({"INFO"}, f"The solver answers: {version}")
        return {"FINISHED"}


def _version_of(words: list[str]) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LONGEST_START, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{words[0]} did not answer within {LONGEST_START:g} s") from None
    if done.returncode != 0:
        raise InputError(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
    version = done.stdout.strip()
    if not version.startswith("wtloki"):
        raise InputError(f"{words[0]} is another program: {version[:80]}")
    return version


class LOKI_OT_save_graph(GraphOperator):
    """Write this simulation to a file that every host and `wtloki run` can read"""

    bl_idname = "loki.save_graph"
    bl_label = "Save Loki Graph"

    filepath: bpy.props.StringProperty(subtype="FILE_PATH")  # type: ignore[valid-type]
    filter_glob: bpy.props.StringProperty(default="*.loki.json", options={"HIDDEN"})  # type: ignore[valid-type]

    @told
    def execute(self, context: Any) -> set[str]:
        """Write the file."""
        graph = document_with_drivers(graph_for(context), context.scene)
        Path(bpy.path.abspath(self.filepath)).write_text(graph.to_json(), encoding="utf-8")
        return {"FINISHED"}

    def invoke(self, context: Any, event: Any) -> set[str]:
        """Ask for the file."""
        self.filepath = f"//{graph_for(context).name}.loki.json"
        context.window_manager.fileselect_add(self)
        return {"RUNNING_MODAL"}


def status_line(bake: Bake) -> str:
    """Return how far a bake is, in words."""
    if bake.frame is None or bake.is_over:
        return bake.state.capitalize()
    text = f"Frame {bake.frame} of {bake.last}"
    if bake.seconds_left is not None and bake.state == "running":
        text += f", {duration(bake.seconds_left)} left"
    return text


def duration(seconds: float) -> str:
    """Return a time in words: `2 h 05 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


CLASSES = (
    LOKI_OT_bake,
    LOKI_OT_rebake,
    LOKI_OT_pause,
    LOKI_OT_resume,
    LOKI_OT_cancel,
    LOKI_OT_checkpoint,
    LOKI_OT_free,
    LOKI_OT_export,
    LOKI_OT_test_solver,
    LOKI_OT_save_graph,
)
