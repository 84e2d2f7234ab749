"""Operators in any order do no harm: no exception, and a tree that is still sound."""

from __future__ import annotations

import random
from typing import Any

import bpy
import pytest

from loki_core.behavior import registry
from loki_core.errors import LokiError
from loki_graph.node import node_registry
from loki_graph.templates import templates
from loki_vfx.bridges.blender import animation, exposed, graph_exchange
from loki_vfx.bridges.blender.graph_tree import NODE, graphs
from loki_vfx.bridges.blender.object_overrides import override_items
from loki_vfx.bridges.blender.setup_rows import name_of, siblings_of


class Hands:
    """Somebody who clicks at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def act(self) -> None:
        name = self.random.choice([name for name in dir(self) if name.startswith("do_")])
        try:
            getattr(self, name)()
        except RuntimeError as error:  # how Blender tells that an operator reported an error
            assert "Traceback" not in str(error), error

    @property
    def tree(self) -> Any:
        return bpy.context.scene.loki.graph

    def part(self) -> Any:
        nodes = [n for n in self.tree.nodes if n.bl_idname == NODE + "SolverSetupNode"]
        return self.random.choice(nodes).part if nodes else None

    def do_template(self) -> None:
        if len(graphs()) < 3:
            bpy.ops.loki.add_template(template=self.random.choice(templates()).name)

    def do_new_graph(self) -> None:
        if len(graphs()) < 3:
            bpy.ops.loki.new_graph()

    def do_add_node(self) -> None:
        if self.tree:
            self.tree.nodes.new(NODE + self.random.choice(list(node_registry())))

    def do_remove_node(self) -> None:
        if self.tree and len(self.tree.nodes):
            self.tree.nodes.remove(self.random.choice(list(self.tree.nodes)))

    def do_link(self) -> None:
        if not self.tree or len(self.tree.nodes) < 2:
            return
        one, other = self.random.sample(list(self.tree.nodes), 2)
        if len(one.outputs) and len(other.inputs):
            self.tree.links.new(
                self.random.choice(list(one.outputs)), self.random.choice(list(other.inputs))
            )

    def do_add_row(self) -> None:
        bpy.ops.loki.setup_add(what=self.random.choice(["GROUP", *registry()]))

    def do_remove_row(self) -> None:
        bpy.ops.loki.setup_remove()

    def do_move_row(self) -> None:
        bpy.ops.loki.setup_move(direction=self.random.choice(["UP", "DOWN", "IN", "OUT"]))

    def do_choose_row(self) -> None:
        part = self.part() if self.tree else None
        if part and len(part.rows):
            part.active_row = self.random.randrange(len(part.rows))

    def do_switch_row(self) -> None:
        part = self.part() if self.tree else None
        if part and len(part.rows):
            row = self.random.choice(list(part.rows))
            row.enabled = not row.enabled

    def do_animate(self) -> None:
        groups = graph_exchange.declared_groups(self.tree) if self.tree else []
        if groups:
            group, declaration = self.random.choice(groups)
            numbers = [p for p in declaration.parameters().values() if p.type.base is float]
            if numbers and numbers[0].type.length is None:
                group.keyframe_insert(numbers[0].name, frame=self.random.randrange(1, 20))

    def do_expose(self) -> None:
        part = self.part() if self.tree else None
        if part and len(part.rows):
            row = self.random.choice(list(part.rows))
            parameter = self.random.choice(["enabled", "stiffness", "input", "mode"])
            bpy.ops.loki.expose(node=part.number, row=row.number, parameter=parameter)

    def do_reset(self) -> None:
        bpy.ops.loki.reset_exposed()

    def do_override(self) -> None:
        if bpy.context.object is not None:
            channels = [one[0] for one in override_items(None, None)]
            bpy.ops.loki.override_add(channel=self.random.choice(channels))

    def do_paint(self) -> None:
        if bpy.context.object is not None:
            channels = [one[0] for one in override_items(None, None)]
            bpy.ops.loki.paint_override(channel=self.random.choice(channels))

    def do_remove_override(self) -> None:
        if bpy.context.object is not None:
            bpy.ops.loki.override_remove()

    def do_undo(self) -> None:
        if bpy.ops.ed.undo.poll():
            bpy.ops.ed.undo_push()
            bpy.ops.ed.undo()

    def do_delete_object(self) -> None:
        if bpy.data.objects:
            bpy.data.objects.remove(self.random.choice(list(bpy.data.objects)))

    def do_orders(self) -> None:
        order = self.random.choice(["pause", "cancel", "checkpoint", "free"])
        getattr(bpy.ops.loki, order)()


@pytest.mark.parametrize("seed", range(200))
def test_operators_in_any_order(scene: Any, seed: int) -> None:
    hands = Hands(seed)
    for _ in range(25):
        hands.act()
    for tree in graphs():
        for node in tree.nodes:
            rows = node.part.rows
            for index, row in enumerate(rows):
                assert row.depth <= (rows[index - 1].depth + 1 if index else 0)
                assert name_of(row) not in {name_of(rows[k]) for k in siblings_of(rows, index)}
        for path in animation.animated_paths(tree):
            tree.path_resolve(path)  # raises where an animation was left behind
        list(exposed.targets(tree))
        try:
            graph_exchange.graph_of(tree, frames=(1, 5), frames_per_second=24.0)
        except LokiError:
            continue  # random graphs are seldom valid; they say so instead of failing
