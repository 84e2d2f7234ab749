"""Loki Graphs as node trees of Blender, and back, without a solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bpy
import pytest

from loki_core.keyframes import Keyframes
from loki_core.setup_document import read_setup
from loki_graph import Graph
from loki_graph.graph_document import graph_to_document
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_graph.templates import find_template, templates
from loki_vfx.bridges.blender import animation, exposed, graph_exchange
from loki_vfx.bridges.blender.baked_graph import document_with_drivers
from loki_vfx.bridges.blender.graph_tree import NODE, inputs_in, outputs_in
from loki_vfx.bridges.blender.node_parts import remove_unused_parts

PROJECT = Path(__file__).parent.parent.parent
FRAMES = (1, 50)


def around(setup: Any) -> Graph:
    """Return a graph that gives a setup all its inputs and shows all its Objects."""
    solver = SolverSetupNode(setup=setup)
    inputs = {name: HostInput() for name in solver.inputs()}
    outputs = {f"out{k}": Output() for k in range(len(solver.outputs()))}
    return Graph(
        setup.name,
        nodes={"solver": solver, **inputs, **outputs},
        connections=[
            *((f"{name}.out", f"solver.{name}") for name in inputs),
            *((f"solver.{path}", f"out{k}.in") for k, path in enumerate(solver.outputs())),
        ],
    )


def as_frames(graph: Graph) -> Any:
    """Return a graph's document with six digits, keyframes at frames instead of seconds."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict) and "keyframes" in value:
            keys = Keyframes.from_document(value)
            in_frames = keys.time_unit == "frame"
            times = [time if in_frames else 1 + time * 24.0 for time in keys.times]
            return walk([keys.interpolation, times, list(keys.values)])
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [walk(item) for item in value]
        return float(f"{value:.6g}") if isinstance(value, float) else value

    return walk(graph_to_document(graph))


def tree_of(graph: Graph) -> Any:
    return graph_exchange.new_tree(graph, frames_per_second=24.0, start=1)


def graph_of(tree: Any) -> Graph:
    return graph_exchange.graph_of(tree, frames=FRAMES, frames_per_second=24.0)


@pytest.mark.parametrize(
    "file", sorted(PROJECT.glob("examples/*/*.loki.json")), ids=lambda p: p.stem
)
def test_every_example_survives_the_way_through_blender(scene: Any, file: Path) -> None:
    graph = around(read_setup(file))
    assert as_frames(graph_of(tree_of(graph))) == as_frames(graph)


@pytest.mark.parametrize("template", templates(), ids=lambda one: one.name)
def test_every_template_survives_saving_and_loading(
    scene: Any, template: Any, tmp_path: Path
) -> None:
    graph = template.graph()
    scene.loki.graph = tree_of(graph)
    file = str(tmp_path / "saved.blend")
    bpy.ops.wm.save_as_mainfile(filepath=file)
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.ops.wm.open_mainfile(filepath=file)
    tree = bpy.context.scene.loki.graph
    assert as_frames(graph_of(tree)) == as_frames(graph)
    assert [entry.title for entry, target in exposed.targets(tree) if target is not None] == [
        one.name for one in graph.exposed()
    ]
    text = bpy.data.texts[f"{tree.name}.loki.json"].as_string()
    assert graph_to_document(Graph.from_json(text)) == graph_to_document(graph_of(tree))


def test_a_file_without_the_add_on_keeps_everything(scene: Any, addon: Any, tmp_path: Path) -> None:
    graph = templates()[0].graph()
    tree = tree_of(graph)
    addon.unregister()
    try:
        file = str(tmp_path / "without.blend")
        bpy.ops.wm.save_as_mainfile(filepath=file)
        bpy.ops.wm.open_mainfile(filepath=file)
    finally:
        addon.register()
    tree = bpy.data.node_groups[graph.name]
    assert as_frames(graph_of(tree)) == as_frames(graph)
    addon.unregister()  # with its graphs in the open file
    addon.register()
    assert as_frames(graph_of(bpy.data.node_groups[graph.name])) == as_frames(graph)


def test_values_that_nobody_set_stay_defaults_and_reset_brings_them_back(scene: Any) -> None:
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    node = tree.nodes.new(NODE + "SolverSetupNode")
    bpy.ops.loki.setup_add(what="GravityForce")
    row = node.part.rows[0]
    assert "parameters" not in graph_of(tree).nodes[node.name].setup.to_document()["children"][0]
    assert tuple(row.p_GravityForce.acceleration) == pytest.approx((0.0, 0.0, -9.81))  # Z is up
    row.p_GravityForce.acceleration = (1.0, 2.0, -3.0)
    [gravity] = graph_of(tree).nodes[node.name].setup.children
    assert gravity.acceleration == (1.0, -3.0, -2.0)  # Y is up
    path = row.p_GravityForce.path_from_id("acceleration")
    bpy.ops.loki.reset_value(owner=tree.name, path=path)
    assert graph_of(tree).nodes[node.name].setup.children[0].acceleration == (0.0, -9.81, 0.0)


def test_reset_also_removes_keyframes_and_drivers(scene: Any) -> None:
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    node = tree.nodes.new(NODE + "SolverSetupNode")
    bpy.ops.loki.setup_add(what="TurbulenceForce")
    values = node.part.rows[0].p_TurbulenceForce
    default = values.acceleration
    values.acceleration = 2.0 * default + 1.0
    values.keyframe_insert("acceleration", frame=1)
    values.driver_add("scale").driver.expression = "frame"
    bpy.ops.loki.reset_value(owner=tree.name, path=values.path_from_id("acceleration"))
    assert list(animation.animated_paths(tree)) == [values.path_from_id("scale")]
    bpy.ops.loki.reset_value(owner=tree.name, path=values.path_from_id("scale"))
    assert animation.animated_paths(tree) == {}
    scene.frame_set(5)
    assert values.acceleration == default and not values.is_property_set("scale")


def test_reset_of_an_exposed_value_brings_back_what_the_simulation_came_with(scene: Any) -> None:
    graph = find_template("hair_in_wind").graph()
    graph = graph.expose("solver/CoupledDragForce.normal_coefficient", name="drag")
    tree = scene.loki.graph = tree_of(graph)
    came_with = as_frames(graph_of(tree))
    found = {entry.title: target for entry, target in exposed.targets(tree)}
    for name in ("length", "drag", "gusts"):
        owner, own = found[name].owner, found[name].property
        setattr(owner, own, 0.123)
        owner.keyframe_insert(own, frame=3)
    found["stiffness"].owner.driver_add(found["stiffness"].property)
    assert as_frames(graph_of(tree)) != came_with
    bpy.ops.loki.reset_exposed()
    assert as_frames(graph_of(tree)) == came_with


def test_animation_follows_rows_that_move_and_goes_with_rows_that_go(scene: Any) -> None:
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    part = tree.nodes.new(NODE + "SolverSetupNode").part
    for what in ("GravityForce", "TurbulenceForce", "ParticleObject"):
        bpy.ops.loki.setup_add(what=what)
    turbulence = part.rows[1].p_TurbulenceForce
    for frame, value in ((1, 1.0), (11, 3.0)):
        turbulence.acceleration = value
        turbulence.keyframe_insert("acceleration", frame=frame)
    part.active_row = 1
    bpy.ops.loki.setup_move(direction="UP")
    assert list(animation.animated_paths(tree)) == [
        "loki.parts[0].rows[0].p_TurbulenceForce.acceleration"
    ]
    setup = graph_of(tree).nodes["Solver Setup"].setup
    keys = setup.get("TurbulenceForce").acceleration
    assert keys.times == (1.0, 11.0) and keys.values == (1.0, 3.0)
    part.active_row = 1
    bpy.ops.loki.setup_remove()
    assert len(animation.animated_paths(tree)) == 1
    part.active_row = 0
    bpy.ops.loki.setup_remove()
    assert animation.animated_paths(tree) == {}


def test_a_curve_that_loki_does_not_know_is_sampled_and_a_driver_too(scene: Any) -> None:
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    part = tree.nodes.new(NODE + "SolverSetupNode").part
    bpy.ops.loki.setup_add(what="TurbulenceForce")
    values = part.rows[0].p_TurbulenceForce
    for frame, value in ((1, 0.0), (10, 5.0), (50, 1.0)):
        values.acceleration = value
        values.keyframe_insert("acceleration", frame=frame)
    scene.frame_end = 50
    driver = values.driver_add("scale").driver
    driver.expression = "0.1 + frame / 100"
    setup = document_with_drivers(tree, scene).nodes["Solver Setup"].setup
    force = setup.get("TurbulenceForce")
    [curve] = animation.animated_paths(tree)["loki.parts[0].rows[0].p_TurbulenceForce.acceleration"]
    for frame in (1, 7, 23, 50):
        time = (frame - 1) / 24.0
        clock = {"frames_per_second": 24.0, "start_frame": 1}
        assert force.acceleration.at(time, **clock) == pytest.approx(
            curve.evaluate(frame), abs=1e-5
        )
        assert force.scale.at(time, **clock) == pytest.approx(0.1 + frame / 100, abs=1e-5)


def test_a_copied_node_has_values_of_its_own_and_unused_ones_go(scene: Any) -> None:
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    first, second = (tree.nodes.new(NODE + "ShapeSource") for _ in range(2))
    first.values.size = (1.0, 2.0, 3.0)
    second.number = first.number  # what a copy has, by whatever way it was made
    tree.update()
    assert second.number != first.number and tuple(second.values.size) == (1.0, 2.0, 3.0)
    second.values.size = (4.0, 5.0, 6.0)
    assert tuple(first.values.size) == (1.0, 2.0, 3.0)
    second.values.keyframe_insert("size", frame=1)
    tree.nodes.remove(first)
    remove_unused_parts(tree)
    assert len(tree.loki.parts) == 1
    assert list(animation.animated_paths(tree)) == [second.values.path_from_id("size")]


def test_a_graph_that_was_pasted_into_has_values_of_its_own(scene: Any) -> None:
    source = tree_of(templates()[0].graph())
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    for node in source.nodes:  # what pasting leaves: nodes with the numbers of their originals
        tree.nodes.new(node.bl_idname).number = node.number
    tree.update()
    assert len({node.number for node in (*tree.nodes, *source.nodes)}) == 2 * len(source.nodes)
    for theirs, ours in zip(source.nodes, tree.nodes, strict=True):
        assert len(ours.part.rows) == len(theirs.part.rows)


def test_a_muted_node_hides_what_it_exposes(scene: Any) -> None:
    tree = tree_of(find_template("hair_in_wind").graph())
    tree.nodes["groom"].mute = True
    assert all(not one.target.startswith("groom") for one in graph_of(tree).exposed())


def test_sockets_follow_the_setup_and_links_stay(scene: Any) -> None:
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    node = tree.nodes.new(NODE + "SolverSetupNode")
    bpy.ops.loki.setup_add(what="CurvesObject")
    source = tree.nodes.new(NODE + "HostInput")
    tree.links.new(source.outputs["out"], node.inputs["curves"])
    bpy.ops.loki.setup_add(what="Collider")
    node.part.rows[1].p_Collider.input__given = True
    node.part.rows[1].p_Collider.input = "body"
    assert {socket.name for socket in node.inputs} == {"curves", "body"}
    assert [link.to_socket.name for link in tree.links] == ["curves"]
    node.part.rows[0].enabled = False
    node.sync_sockets()
    assert [socket.name for socket in node.outputs] == []


def test_what_cannot_be_connected_is_marked(scene: Any) -> None:
    bpy.ops.loki.new_graph()
    tree = scene.loki.graph
    volume = tree.nodes.new(NODE + "VolumeFromMesh")
    points = tree.nodes.new(NODE + "PointsFromMesh")
    link = tree.links.new(volume.outputs["out"], points.inputs["in"])
    tree.update()
    assert not link.is_valid


def test_inputs_and_outputs_of_a_graph_are_those_that_are_not_muted(scene: Any) -> None:
    tree = tree_of(find_template("hair_in_wind").graph())
    assert [node.stream_name for node in inputs_in(tree)] == ["head"]
    assert [node.result_name for node in outputs_in(tree)] == ["hair"]
    for node in (*inputs_in(tree), *outputs_in(tree)):
        node.mute = True
    assert inputs_in(tree) == outputs_in(tree) == []
