"""Graphs: sockets, types, cycles, names, exposed parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from loki_core.behavior import parameter
from loki_core.errors import GraphError
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.particles.particles import ParticleObject
from loki_core.solver_setup import Group, SolverSetup
from loki_graph import (
    Graph,
    Node,
    Socket,
    find_node,
    isolated_node_registry,
    node_registry,
)
from loki_graph.nodes.attribute import Attribute
from loki_graph.nodes.field_source import FieldSource
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.merge import Merge
from loki_graph.nodes.mesh_from_volume import MeshFromVolume
from loki_graph.nodes.output import Output
from loki_graph.nodes.points_from_mesh import PointsFromMesh
from loki_graph.nodes.shape_source import ShapeSource
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_graph.nodes.transform import Transform
from loki_graph.sockets import common_type, fits, may_connect


def falling() -> SolverSetup:
    return SolverSetup(
        "falling", Group("Dust", ParticleObject(input="seeds")), GravityForce(), substeps=2
    )


def small() -> Graph:
    return Graph(
        "small",
        nodes={
            "ball": ShapeSource(),
            "move": Transform(),
            "seeds": PointsFromMesh(),
            "solver": SolverSetupNode(setup=falling()),
            "dust": Output(),
        },
        connections=[
            ("ball.out", "move.in"),
            ("move.out", "seeds.in"),
            ("seeds.out", "solver.seeds"),
            ("solver.Dust/ParticleObject", "dust.in"),
        ],
    )


def message(action: Callable[[], object]) -> str:
    with pytest.raises(GraphError) as caught:
        action()
    return str(caught.value)


def test_types_form_a_tree() -> None:
    assert fits("surface", "mesh") and fits("surface", "any") and fits("voxels", "any")
    assert not fits("mesh", "surface") and not fits("voxels", "mesh")
    assert may_connect("mesh", "surface")  # perhaps: it is checked when data arrive
    assert not may_connect("points", "surface")
    assert common_type(["surface", "points"]) == "mesh"
    assert common_type(["surface", "voxels"]) == "any"
    assert common_type(["points", "points"]) == "points"
    with pytest.raises(GraphError, match='unknown type "voxel"; did you mean "voxels"'):
        Socket("x", "voxel")


def test_wrong_types_do_not_connect() -> None:
    graph = Graph("g", nodes={"field": FieldSource(), "points": PointsFromMesh()})
    text = message(lambda: graph.connect("field.out", "points.in"))
    assert text == "g/points.in takes mesh, but field.out gives voxels"


def test_a_type_passes_through_nodes_that_keep_it() -> None:
    nodes = {"field": FieldSource(), "move": Transform(), "change": Attribute()}
    graph = Graph("g", nodes=nodes, connections=[("field", "move"), ("move", "change")])
    assert graph.output_type("change", "out") == "voxels"
    graph = graph.add("points", PointsFromMesh())
    assert "takes mesh, but change.out gives voxels" in message(
        lambda: graph.connect("change", "points")
    )
    # and a change upstream is checked downstream
    late = Graph(
        "g",
        nodes={"host": HostInput(), "move": Transform(), "iso": MeshFromVolume()},
        connections=[("host", "move"), ("move", "iso")],
    )
    assert "takes voxels, but move.out gives curves" in message(
        lambda: late.replace("host", type="curves")
    )


def test_merge_takes_many_and_others_one() -> None:
    nodes = {"a": ShapeSource(), "b": ShapeSource(), "all": Merge(), "move": Transform()}
    graph = Graph("g", nodes=nodes).connect("a.out", "all.in").connect("b.out", "all.in")
    assert [one.source for one in graph.connections_to("all", "in")] == ["a", "b"]
    assert "is there twice" in message(lambda: graph.connect("a.out", "all.in"))
    taken = graph.connect("a.out", "move.in")
    text = message(lambda: taken.connect("b.out", "move.in"))
    assert "g/move.in takes one connection, but a.out and b.out" in text
    assert taken.disconnect("a.out", "move.in") == graph
    assert "are not connected" in message(lambda: graph.disconnect("a.out", "move.in"))


def test_cycles_are_printed() -> None:
    graph = Graph("g", nodes={n: Transform() for n in ("a", "b", "c")})
    graph = graph.connect("a", "b").connect("b", "c")
    text = message(lambda: graph.connect("c", "a"))
    assert text.startswith("g: ") and "is a cycle" in text
    names = text[3 : text.index(" is a cycle")].split(" -> ")
    assert names[0] == names[-1] and set(names) == {"a", "b", "c"}
    follows = {"a": "b", "b": "c", "c": "a"}
    assert all(follows[x] == y for x, y in itertools.pairwise(names))
    assert "m -> m is a cycle" in message(
        lambda: Graph("g", nodes={"m": Merge()}, connections=[("m.out", "m.in")])
    )


def test_a_long_chain_is_ordered() -> None:
    nodes = {f"n{i}": Transform() for i in range(3000)}
    chain = [(f"n{i + 1}.out", f"n{i}.in") for i in range(2999)]
    graph = Graph("long", nodes=nodes, connections=chain)
    assert graph.order[0] == "n2999" and graph.order[-1] == "n0"
    assert "is a cycle" in message(lambda: graph.connect("n0.out", "n2999.in"))


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (lambda g: g.connect("bal.out", "move.in"), 'no node "bal"; did you mean "ball"?'),
        (lambda g: g.connect("ball.outt", "move.in"), 'small/ball has no output "outt"'),
        (lambda g: g.connect("ball.out", "solver.seed"), 'did you mean "seeds"?'),
        (lambda g: g.connect("solver.Dust/Particle", "dust.in"), "Dust/ParticleObject"),
        (lambda g: g.replace("ball", radius=2), 'small/ball has no parameter "radius"'),
        (lambda g: g.replace("ball", shape="cube"), "small/ball.shape"),
        (lambda g: g.replace("ball", size=(1, 1, -1)), "small/ball.size[2] = -1 m is below"),
        (lambda g: g.add("ball", Merge()), 'has a node "ball" already'),
        (lambda g: g.add("a.b", Merge()), "is not a name"),
        (lambda g: g.add("x", Merge), "is a class; write Merge()"),  # type: ignore[arg-type]
        (lambda g: g.remove("nobody"), 'small has no node "nobody"'),
        (lambda g: find_node("Transfrom"), 'did you mean "Transform"?'),
        (lambda g: g.add("again", Output(stream="dust")), 'both the output "dust"'),
        (lambda g: g.replace("solver", setup=3), "small/solver.setup is 3"),
        (lambda g: g.with_settings(start_frame=5), "start_frame = 1, but small has 5"),
    ],
)
def test_unknown_things_are_named(action: Callable[[Graph], object], expected: str) -> None:
    graph = small()
    assert expected in message(lambda: action(graph))


def test_removing_a_node_removes_its_connections() -> None:
    graph = small().expose("move.translate", name="shift").remove("move")
    assert all("move" not in (c.source, c.target) for c in graph.connections)
    assert len(graph.connections) == 2 and graph.exposed() == []
    assert graph.outputs() == {"dust": "dust"}


def test_definition_registers_a_node_and_names_are_unique() -> None:
    with isolated_node_registry():

        class ShrinkSample(Node):
            """Make a mesh smaller.

            Not larger.
            """

            input_sockets = (Socket("in", "mesh", doc="What is made smaller."),)
            factor: float = parameter(0.5, minimum=0.0, doc="New size over old size.")

        assert node_registry()["ShrinkSample"] is ShrinkSample
        assert ShrinkSample.documentation() == "Make a mesh smaller."
        assert "factor: float >= 0 default 0.5" in ShrinkSample.describe()
        assert "input in: mesh; What is made smaller." in ShrinkSample.describe()
        with pytest.raises(GraphError, match="two nodes are named Merge"):

            class Merge(Node):
                """Take a name that is taken."""

    assert "ShrinkSample" not in node_registry()


def test_every_node_is_documented() -> None:
    for name, node in node_registry().items():
        assert node.documentation().endswith((".", "frame")), name
        for declared in node.parameters().values():
            assert declared.doc, f"{name}.{declared.name}"


# -- exposed parameters -------------------------------------------------------------------------


def exposed() -> Graph:
    graph = small().expose("move.translate", name="shift", label="Shift", minimum=-2.0, maximum=2.0)
    graph = graph.expose("solver/GravityForce.acceleration", name="gravity", maximum=5.0)
    return graph.expose("solver/substeps", name="substeps", maximum=10, default=4)


def test_exposed_parameters_tell_all_that_an_interface_needs() -> None:
    shift, gravity, substeps = exposed().exposed()
    assert (shift.label, shift.unit, shift.type) == ("Shift", "m", "tuple[float, float, float]")
    assert (shift.minimum, shift.maximum, shift.default) == (-2.0, 2.0, (0.0, 0.0, 0.0))
    assert (gravity.label, gravity.unit, gravity.maximum) == ("Gravity", "m/s^2", 5.0)
    assert gravity.value == (0.0, -9.81, 0.0)
    # the declared minimum stays; the default became the value
    assert (substeps.minimum, substeps.maximum, substeps.value) == (1, 10, 4)


def test_set_exposed_returns_a_new_graph() -> None:
    graph = exposed()
    moved = graph.set_exposed("shift", (1, 0, 0))
    assert moved.nodes["move"].values()["translate"] == (1.0, 0.0, 0.0)
    assert graph.nodes["move"].values()["translate"] == (0.0, 0.0, 0.0)
    text = graph.set_exposed("shift", "10 20 30 cm")
    assert text.nodes["move"].values()["translate"] == pytest.approx((0.1, 0.2, 0.3))
    lighter = graph.set_exposed("gravity", (0.0, -1.62, 0.0))
    node = lighter.nodes["solver"]
    assert isinstance(node, SolverSetupNode) and isinstance(node.setup, SolverSetup)
    assert node.setup.get("GravityForce").values() == {"acceleration": (0.0, -1.62, 0.0)}  # type: ignore[union-attr]
    assert {p.name: p.value for p in lighter.exposed()}["gravity"] == (0.0, -1.62, 0.0)
    keys = Keyframes([(0.0, (0.0, 0.0, 0.0)), (1.0, (2.0, 0.0, 0.0))])
    assert graph.set_exposed("shift", keys).nodes["move"].is_animated()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("shift", (3.0, 0.0, 0.0), "small/exposed shift[0] = 3 m is above the maximum 2 m"),
        ("gravity", (0.0, 6.0, 0.0), "above the maximum 5 m/s^2"),
        ("gravity", "1 2 3 kg", "small/exposed gravity"),
        ("substeps", 0, "below the minimum 1"),
        ("substeps", 11, "above the maximum 10"),
        ("substeps", 2.5, "is not a whole number"),
        ("shft", 1, 'exposes no parameter "shft"; did you mean "shift"?'),
        ("shift", Keyframes([(0.0, (9.0, 0.0, 0.0))]), "above the maximum 2 m"),
    ],
)
def test_exposed_values_are_checked(name: str, value: object, expected: str) -> None:
    assert expected in message(lambda: exposed().set_exposed(name, value))


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("mov.translate", {}, 'there is no node "mov"; did you mean "move"?'),
        ("move.translte", {}, 'did you mean "translate"?'),
        ("move/Group.x", {}, "it holds no Solver Setup"),
        ("solver/Gravity.acceleration", {}, 'did you mean "GravityForce"?'),
        ("solver/GravityForce.accel", {}, "small/exposed x"),
        ("solver/Dust.rate", {}, "has no parameter"),
        ("move.order", {"minimum": 1.0}, "without a range"),
        ("move.translate", {"minimum": 2.0, "maximum": 1.0}, "holds no value"),
        ("ball.resolution", {"maximum": 0}, "holds no value"),
        ("move.translate", {"minimum": 1.0}, "below the minimum 1 m"),  # its value is 0
        ("move.translate", {"default": (1.0, 2.0)}, "has 2 items"),
        ("move.translate", {"minimum": "low"}, "is not a number"),
    ],
)
def test_exposing_is_checked(target: str, options: dict[str, object], expected: str) -> None:
    text = message(lambda: small().expose(target, name="x", **options))  # type: ignore[arg-type]
    assert expected in text


def test_a_name_or_target_is_exposed_once() -> None:
    graph = exposed()
    assert "is exposed twice" in message(lambda: graph.expose("move.scale", name="shift"))
    assert "is exposed twice" in message(lambda: graph.expose("move.translate", name="other"))
    assert [p.name for p in graph.unexpose("shift").exposed()] == ["gravity", "substeps"]


def test_a_switch_inside_a_setup_can_be_exposed() -> None:
    graph = small().expose("solver/GravityForce.enabled", name="falls")
    assert graph.exposed()[0].type == "bool" and graph.exposed()[0].value is True
    off = graph.set_exposed("falls", "off")
    assert off.exposed()[0].value is False
