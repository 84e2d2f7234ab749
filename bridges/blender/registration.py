"""Registration: every class of the add-on, made for the Behaviors and nodes that Loki knows now."""

from __future__ import annotations

from typing import Any

import bpy

from loki_core.behavior import registry
from loki_core.solver_settings import SolverSettings
from loki_graph.node import node_registry
from loki_graph.sockets import SOCKET_TYPES

from . import (
    bake_operators,
    declared_properties,
    file_events,
    graph_tree,
    node_menu,
    node_parts,
    object_overrides,
    object_panel,
    out_of_date,
    panels,
    settings,
    setup_operators,
    setup_rows,
    template_operators,
)
from .exposed import make_exposed_class
from .preferences import LokiPreferences

#: Modules with classes that Blender only has to know.
PARTS = (
    setup_operators,
    bake_operators,
    template_operators,
    object_overrides,
    panels,
    object_panel,
)

_registered: list[type[Any]] = []


def register_class(made: type[Any]) -> type[Any]:
    """Register a class and remember it for the end."""
    bpy.utils.register_class(made)
    _registered.append(made)
    return made


def register() -> None:
    """Register everything, and begin to listen; what was begun is taken back if it fails."""
    try:
        register_data()
        register_class(LokiPreferences)
        for part in PARTS:
            for made in part.CLASSES:
                register_class(made)
        template_operators.register()
        node_menu.register()
        file_events.register()
    except BaseException:
        unregister()
        raise


def register_data() -> None:
    """Register what is saved in files: values, rows, nodes, settings."""
    for declaration in (*registry().values(), *node_registry().values(), SolverSettings):
        register_class(declared_properties.values_class(declaration))
    row = register_class(setup_rows.make_row_class())
    part = register_class(node_parts.make_part_class(row))
    exposed = register_class(make_exposed_class())
    graph = register_class(settings.make_graph_settings(part, exposed))
    for name in SOCKET_TYPES:
        register_class(graph_tree.make_socket_class(name))
    register_class(graph_tree.make_tree_class(graph))
    for declaration in node_registry().values():
        register_class(graph_tree.make_node_class(declaration))
    for made in (
        settings.SceneSettings,
        settings.ObjectOverride,
        settings.ObjectSettings,
    ):
        register_class(made)
    bpy.types.Scene.loki = bpy.props.PointerProperty(type=settings.SceneSettings)
    bpy.types.Object.loki = bpy.props.PointerProperty(type=settings.ObjectSettings)
    declared_properties.on_change(graph_tree.sync_sockets_of)
    declared_properties.on_change(lambda group: out_of_date.note_edit(group.id_data))
    graph_tree.set_complete(True)


def unregister() -> None:
    """Take everything back, the last first."""
    graph_tree.set_complete(False)
    file_events.unregister()
    node_menu.unregister()
    template_operators.unregister()
    setup_operators.forget()
    declared_properties.forget_listeners()
    for owner in (bpy.types.Scene, bpy.types.Object):
        if hasattr(owner, "loki"):
            del owner.loki
    while _registered:
        bpy.utils.unregister_class(_registered.pop())
    declared_properties.forget_classes()
