"""Preferences: how Blender reaches a solver, and what a new bake uses."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bpy

from loki_core.errors import InputError

COMMAND_VARIABLE = "LOKI_COMMAND"
USUAL_PLACES = ("~/.local/bin/wtloki", "~/loki/bin/wtloki", "~/.venv/bin/wtloki")
INSTALL = (
    "The solver is a program of its own. Install it into a Python 3.11 or newer, as "
    "docs/install.md says, and give the path of its `wtloki` in the add-on's preferences"
)


class LokiPreferences(bpy.types.AddonPreferences):
    """How to reach or start the solver."""

    bl_idname = __package__

    command: bpy.props.StringProperty(  # type: ignore[valid-type]
        name="wtloki",
        description="Program that runs simulations; empty looks for it in the usual places",
        subtype="FILE_PATH",
    )
    endpoint: bpy.props.StringProperty(  # type: ignore[valid-type]
        name="Server",
        description="Server on another machine, tcp://name:port; empty starts one here",
    )
    keys: bpy.props.StringProperty(  # type: ignore[valid-type]
        name="Keys",
        description="Folder of the keys for servers on other machines; empty is ~/.config/loki",
        subtype="DIR_PATH",
    )
    ranks: bpy.props.IntProperty(  # type: ignore[valid-type]
        name="Ranks",
        description="Processes that share the work of a bake over MPI",
        default=1,
        min=1,
        max=4096,
    )
    memory_limit: bpy.props.FloatProperty(  # type: ignore[valid-type]
        name="Memory Limit [GB]",
        description="Of all bakes together; the largest is stopped, with a checkpoint, before "
        "the machine begins to swap. 0 is no limit",
        default=0.0,
        min=0.0,
    )

    def draw(self, context: Any) -> None:
        """Show the settings, and whether the solver is found."""
        layout = self.layout
        layout.use_property_split = True
        layout.prop(self, "command")
        try:
            layout.label(text=f"Solver: {solver_command()[0]}", icon="CHECKMARK")
        except InputError as error:
            column = layout.column()
            column.alert = True
            for line in _wrapped(str(error)):
                column.label(text=line)
        layout.operator("loki.test_solver", icon="PLUGIN")
        layout.prop(self, "ranks")
        layout.prop(self, "memory_limit")
        layout.separator()
        layout.prop(self, "endpoint")
        layout.prop(self, "keys")


def _wrapped(text: str, width: int = 90) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


@dataclass(frozen=True)
class Wishes:
    """What the preferences say, also where the add-on is used without being installed."""

    command: str = ""
    endpoint: str = ""
    keys: str = ""
    ranks: int = 1
    memory_limit: float = 0.0


def wishes() -> Wishes:
    """Return the preferences."""
    addon = bpy.context.preferences.addons.get(__package__)
    if addon is None or addon.preferences is None:
        return Wishes()
    names = Wishes.__dataclass_fields__
    return Wishes(**{name: getattr(addon.preferences, name) for name in names})


def solver_command() -> list[str]:
    """Return how `wtloki` is called.

    Raises:
        InputError: It is not where the preferences say, or nowhere.
    """
    given = wishes().command or os.environ.get(COMMAND_VARIABLE, "")
    if given:
        path = Path(bpy.path.abspath(given)).expanduser()
        if not path.is_file():
            raise InputError(f"there is no program {path}. {INSTALL}")
        return [str(path)]
    found = shutil.which("wtloki")
    if found:
        return [found]
    for place in USUAL_PLACES:
        path = Path(place).expanduser()
        if path.is_file():
            return [str(path)]
    raise InputError(f"wtloki was not found. {INSTALL}")
