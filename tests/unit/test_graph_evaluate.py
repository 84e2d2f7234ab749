"""Evaluation: caching, frames out of order, restarts, host streams, solvers in graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.errors import GraphError, InputError
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.particles.particles import ParticleObject
from loki_core.parallel.comm import Communicator, world
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import Group, SolverSetup
from loki_graph import Evaluator, Graph, Node, Socket, isolated_node_registry
from loki_graph.nodes.cache_reader import CacheReader
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.merge import Merge
from loki_graph.nodes.output import Output
from loki_graph.nodes.points_from_mesh import PointsFromMesh
from loki_graph.nodes.shape_source import ShapeSource
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_graph.nodes.transform import Transform

DUST = "Dust/ParticleObject"


@pytest.fixture
def serial() -> Communicator:
    return world()


def falling(**settings: Any) -> SolverSetup:
    return SolverSetup(
        "falling", Group("Dust", ParticleObject(input="seeds")), GravityForce(), **settings
    )


def simulation(**options: Any) -> Graph:
    return Graph(
        "sim",
        nodes={
            "ball": ShapeSource(resolution=(6, 4)),
            "seeds": PointsFromMesh(),
            "solver": SolverSetupNode(setup=falling(), **options),
            "move": Transform(translate=(1.0, 0.0, 0.0)),
            "dust": Output(),
        },
        connections=[
            ("ball", "seeds"),
            ("seeds.out", "solver.seeds"),
            (f"solver.{DUST}", "move.in"),
            ("move", "dust"),
        ],
    )


def by_id(points: Points) -> np.ndarray[Any, Any]:
    return points.positions[np.argsort(points.channels["point"]["id"])]


# -- caching ------------------------------------------------------------------------------------


def test_static_nodes_are_evaluated_once_and_animated_ones_by_frame() -> None:
    keys = Keyframes([(1, (0.0, 0.0, 0.0)), (3, (2.0, 0.0, 0.0))], time_unit="frame")
    graph = Graph(
        "g",
        nodes={
            "ball": ShapeSource(),
            "still": Transform(scale=(2.0, 2.0, 2.0)),
            "move": Transform().replace(translate=keys),
            "out": Output(),
        },
        connections=[("ball", "still"), ("still", "move"), ("move", "out")],
    )
    evaluator = Evaluator(graph)
    centre = [evaluator.evaluate("out", f).bounds().mean(axis=0)[0] for f in (1, 2, 3, 4, 3)]
    np.testing.assert_allclose(centre, [0.0, 1.0, 2.0, 2.0, 2.0], atol=1e-12)
    counts = evaluator.evaluation_counts
    # frames 3 and 4 have equal values after the last key, so they are one result
    assert (counts["ball"], counts["still"], counts["move"]) == (1, 1, 3)
    assert not evaluator.varies("still") and evaluator.varies("out")


def test_only_what_changed_is_evaluated_again() -> None:
    graph = Graph(
        "g",
        nodes={"a": ShapeSource(), "b": ShapeSource(shape="box"), "all": Merge(), "out": Output()},
        connections=[("a", "all"), ("b", "all"), ("all", "out")],
    )
    evaluator = Evaluator(graph)
    first = evaluator.evaluate("out", 1)
    assert evaluator.evaluate("out", 1) is first
    evaluator.update(graph.replace("b", size=(2, 2, 2)))
    second = evaluator.evaluate("out", 1)
    assert second is not first and second.bounds()[1, 0] == 1.0
    assert evaluator.evaluation_counts == {"a": 1, "b": 2, "all": 2, "out": 2}
    evaluator.update(graph)  # back again: the old results are still known
    assert evaluator.evaluate("out", 1) is first


def test_nodes_that_an_output_does_not_need_are_left_alone() -> None:
    graph = Graph(
        "g",
        nodes={"a": ShapeSource(), "b": HostInput(), "out": Output(), "other": Output()},
        connections=[("a", "out"), ("b", "other")],
    )
    evaluator = Evaluator(graph)
    evaluator.evaluate("out", 1)
    assert set(evaluator.evaluation_counts) == {"a", "out"}
    with pytest.raises(GraphError, match='g/b: the host gave no stream "b"'):
        evaluator.evaluate("other", 1)


def test_few_results_stay_in_memory() -> None:
    evaluator = Evaluator(
        Graph("g", nodes={"h": HostInput(), "out": Output()}, connections=[("h", "out")]),
        host_inputs={"h": lambda frame: Points(np.full((1, 3), float(frame)))},
        keep_results=2,
    )
    for frame in (1, 2, 3, 3, 2, 1):
        assert evaluator.evaluate("out", frame).positions[0, 0] == frame
    assert evaluator.evaluation_counts["h"] == 4  # 1 had gone


def test_errors_begin_with_the_place() -> None:
    graph = Graph("g", nodes={"move": Transform(), "out": Output()}, connections=[("move", "out")])
    with pytest.raises(GraphError, match=r"g/move\.in is not connected; it needs any"):
        Evaluator(graph).evaluate("out", 1)
    flat = Graph(
        "g",
        nodes={"ball": ShapeSource(), "move": Transform(scale=(1.0, 0.0, 1.0))},
        connections=[("ball", "move")],
    )
    with pytest.raises(InputError, match=r"g/move: the matrix .* is singular"):
        Evaluator(flat).evaluate("move.out", 1)
    with pytest.raises(GraphError, match='no output "ot"; did you mean "out"'):
        Evaluator(graph).evaluate("ot", 1)
    with pytest.raises(GraphError, match=r"g/move has no output"):
        Evaluator(graph).evaluate("move.in", 1)
    with pytest.raises(GraphError, match="a frame is a whole number"):
        Evaluator(graph).evaluate("out", 1.5)  # type: ignore[arg-type]


def test_data_of_the_wrong_type_are_refused_where_they_arrive() -> None:
    graph = Graph(
        "g",
        nodes={"h": HostInput(type="mesh"), "ask": PointsFromMesh(), "iso": Output()},
        connections=[("h", "ask"), ("ask", "iso")],
    )
    from loki_core.data.voxels import Voxels

    evaluator = Evaluator(graph, host_inputs={"h": Voxels(np.zeros((1, 3), int), 0.1)})
    with pytest.raises(InputError, match='g/h: input "h" holds voxels; expected mesh'):
        evaluator.evaluate("iso", 1)


def test_a_wide_output_into_a_narrow_input_is_checked_when_data_arrive() -> None:
    with isolated_node_registry():

        class FacesOnlySample(Node):
            """Count faces."""

            input_sockets = (Socket("in", "surface"),)

            def evaluate(self, context: Any, inputs: Any) -> Any:
                return {"out": inputs["in"]}

        nodes = {"h": HostInput(), "faces": FacesOnlySample()}
        evaluator = Evaluator(
            Graph("g", nodes=nodes, connections=[("h", "faces")]),
            host_inputs={"h": Points(np.zeros((1, 3)))},
        )
        with pytest.raises(GraphError, match=r"g/faces\.in takes surface, but h\.out gives points"):
            evaluator.evaluate("faces.out", 1)


# -- solvers ------------------------------------------------------------------------------------


def test_a_graph_gives_what_the_solver_gives() -> None:
    evaluator = Evaluator(simulation())
    seeds = evaluator.evaluate("seeds.out", 1)
    solver = Solver(falling(), {"seeds": seeds})
    for frame in range(1, 6):
        expected = solver.outputs()[DUST]
        found = evaluator.evaluate(f"solver.{DUST}", frame)
        np.testing.assert_array_equal(found.positions, expected.positions)
        for name, values in expected.channels["point"].items():
            np.testing.assert_array_equal(found.channels["point"][name], values)
        moved = evaluator.evaluate("dust", frame)
        np.testing.assert_allclose(
            moved.positions - expected.positions, [[1, 0, 0]] * 20, atol=1e-6
        )
        solver.advance_frame()
    assert evaluator.solver("solver").frame == 5


def test_frames_out_of_order_say_what_must_run_first() -> None:
    evaluator = Evaluator(simulation())
    with pytest.raises(GraphError, match="sim/solver: frame 12 needs frames 2 to 11 first; run"):
        evaluator.evaluate("dust", 12)
    second = evaluator.evaluate("dust", 2)
    with pytest.raises(GraphError, match="frame 4 needs frame 3 first"):
        evaluator.evaluate("dust", 4)
    with pytest.raises(GraphError, match="sim/solver has no frame 0; it starts at frame 1"):
        evaluator.evaluate("dust", 0)
    third = evaluator.evaluate("dust", 3)
    assert not np.array_equal(second.positions, third.positions)
    again = evaluator.evaluate("dust", 2)  # earlier frames are kept
    np.testing.assert_array_equal(again.positions, second.positions)
    assert evaluator.solver("solver").frame == 3
    evaluator.advance("solver", 5)
    assert evaluator.evaluate("dust", 5).point_count == second.point_count


def test_old_frames_leave_memory_and_later_ones_can_be_caught_up_with() -> None:
    evaluator = Evaluator(simulation(keep_frames=2, catch_up=True), keep_results=1)
    evaluator.evaluate("dust", 5)
    assert evaluator.solver("solver").frame == 5
    evaluator.evaluate("dust", 4)
    with pytest.raises(GraphError, match=r"frame 2 is no longer in memory \(kept: 4 to 5\)"):
        evaluator.evaluate("dust", 2)


def test_a_change_starts_the_solver_again() -> None:
    graph = simulation().expose("solver/GravityForce.acceleration", name="gravity")
    evaluator = Evaluator(graph)
    for frame in (1, 2, 3):
        fast = evaluator.evaluate("dust", frame)
    evaluator.set_exposed("gravity", (0.0, 0.0, 0.0))
    with pytest.raises(GraphError, match="frame 3 needs frame 2 first"):
        evaluator.evaluate("dust", 3)
    for frame in (1, 2, 3):
        floating = evaluator.evaluate("dust", frame)
    assert floating.positions[:, 1].mean() > fast.positions[:, 1].mean() + 0.01
    # an input of the solver counts as much as its setup
    evaluator.update(evaluator.graph.replace("ball", center=(5.0, 0.0, 0.0)))
    with pytest.raises(GraphError, match="frame 3 needs frame 2 first"):
        evaluator.evaluate("dust", 3)
    # what comes after the solver does not
    for frame in (1, 2, 3):
        evaluator.evaluate("dust", frame)
    evaluator.update(evaluator.graph.replace("move", translate=(0.0, 0.0, 0.0)))
    assert evaluator.evaluate("dust", 3).bounds().mean(axis=0)[0] == pytest.approx(5.0, abs=0.1)
    # nor how frames are kept
    solver = evaluator.solver("solver")
    evaluator.update(evaluator.graph.replace("solver", keep_frames=2))
    assert evaluator.solver("solver") is solver


def test_animated_inputs_reach_the_solver_at_each_frame() -> None:
    frames: list[int] = []

    def nozzle(frame: int) -> Points:
        frames.append(frame)
        return Points(np.full((1, 3), float(frame)))

    setup = SolverSetup("emit", Group("Dust", ParticleObject(source="nozzle", rate=24.0)))
    graph = Graph(
        "g",
        nodes={"h": HostInput(stream="nozzle"), "s": SolverSetupNode(setup=setup), "o": Output()},
        connections=[("h.out", "s.nozzle"), (f"s.{DUST}", "o.in")],
    )
    assert graph.host_inputs() == ["nozzle"]
    evaluator = Evaluator(graph, host_inputs={"nozzle": nozzle})
    for frame in (1, 2, 3, 4):
        found = evaluator.evaluate("o", frame)
    np.testing.assert_allclose(by_id(found)[:, 0], [2.0, 3.0, 4.0])
    assert frames == [1, 2, 3, 4]
    # the host may also give one frame after the other
    evaluator = Evaluator(graph)
    for frame in (1, 2, 3, 4):
        evaluator.set_input("nozzle", Points(np.full((1, 3), float(frame))), frame=frame)
        found = evaluator.evaluate("o", frame)
    np.testing.assert_allclose(by_id(found)[:, 0], [2.0, 3.0, 4.0])
    with pytest.raises(GraphError, match="for frame 5; frames there: 1 to 4"):
        evaluator.evaluate("o", 5)
    # a frame that is replaced makes what followed from it wrong
    evaluator.set_input("nozzle", Points(np.zeros((1, 3))), frame=2)
    with pytest.raises(GraphError, match="frame 4 needs frames 2 to 3 first"):
        evaluator.evaluate("o", 4)


def test_an_inactive_object_says_why() -> None:
    graph = simulation().disconnect("seeds.out", "solver.seeds")
    with pytest.raises(GraphError, match="Dust/ParticleObject is inactive: there is no input str"):
        Evaluator(graph).evaluate("dust", 1)


def test_solvers_feed_each_other() -> None:
    follow = SolverSetup("follow", Group("Trail", ParticleObject(source="dust", rate=240.0)))
    graph = simulation().add("second", SolverSetupNode(setup=follow)).add("trail", Output())
    graph = graph.connect("move.out", "second.dust")
    graph = graph.connect("second.Trail/ParticleObject", "trail.in")
    evaluator = Evaluator(graph)
    for frame in (1, 2, 3):
        trail = evaluator.evaluate("trail", frame)
    assert trail.point_count == 20
    assert evaluator.solver("solver").frame == 3
    assert trail.positions[:, 0].mean() > 0.5  # emitted from the moved dust


def test_the_clock_comes_from_the_setup() -> None:
    graph = Graph("g", nodes={"s": SolverSetupNode(setup=falling(frames_per_second=30.0))})
    assert (graph.frames_per_second, graph.start_frame) == (30.0, 1)
    other = SolverSetupNode(setup=falling(frames_per_second=25.0))
    with pytest.raises(GraphError, match="frames_per_second = 25, but g/s has 30; make them equal"):
        graph.add("other", other)
    moved = Graph("g", nodes={"t": Transform()}).with_settings(frames_per_second=10, start_frame=0)
    assert (moved.frames_per_second, moved.start_frame) == (10.0, 0)


# -- the cache on disk --------------------------------------------------------------------------


def test_a_cache_serves_frames_of_an_earlier_process(tmp_path: Path) -> None:
    graph = simulation(cache="cache", keep_frames=1)
    first = Evaluator(graph, base_folder=tmp_path, keep_results=1)
    expected = {f: first.evaluate("dust", f).positions.copy() for f in (1, 2, 3, 4)}
    np.testing.assert_array_equal(first.evaluate("dust", 2).positions, expected[2])
    later = Evaluator(graph, base_folder=tmp_path)
    np.testing.assert_array_equal(later.evaluate("dust", 3).positions, expected[3])
    assert later.evaluation_counts["move"] == 1
    changed = graph.replace("ball", size=(2.0, 2.0, 2.0))
    with pytest.raises(GraphError, match=r"sim/solver\.cache: .* holds another simulation"):
        Evaluator(changed, base_folder=tmp_path).evaluate("dust", 1)
    again = Evaluator(changed.replace("solver", overwrite_cache=True), base_folder=tmp_path)
    assert again.evaluate("dust", 1).bounds()[1, 1] == pytest.approx(1.0)
    with pytest.raises(GraphError, match="frame 3 needs frame 2 first"):
        again.evaluate("dust", 3)  # the old frames are gone


def test_cache_reader_reads_an_object(tmp_path: Path) -> None:
    evaluator = Evaluator(simulation(cache="cache"), base_folder=tmp_path)
    for frame in (1, 2, 3):
        evaluator.evaluate("dust", frame)
    expected = evaluator.evaluate(f"solver.{DUST}", 2)
    graph = Graph(
        "read",
        nodes={"r": CacheReader(folder="cache", object=DUST), "o": Output()},
        connections=[("r", "o")],
    )
    reader = Evaluator(graph, base_folder=tmp_path)
    np.testing.assert_array_equal(reader.evaluate("o", 2).positions, expected.positions)
    reader.update(graph.replace("r", object="", frame_offset=1))
    np.testing.assert_array_equal(reader.evaluate("o", 1).positions, expected.positions)
    with pytest.raises(InputError, match=r"read/r: .* has no frame 9"):
        reader.evaluate("o", 8)
    reader.update(graph.replace("r", object="Dust/Particles"))
    with pytest.raises(InputError, match='did you mean "Dust/ParticleObject"'):
        reader.evaluate("o", 2)


def test_a_confined_graph_stays_in_its_folder(tmp_path: Path) -> None:
    graph = Graph("g", nodes={"r": CacheReader(folder="../cache")})
    evaluator = Evaluator(graph, base_folder=tmp_path, confined=True)
    with pytest.raises(GraphError, match=r'g/r\.folder = "\.\./cache" leads out of the folder'):
        evaluator.evaluate("r.out", 1)
    absolute = Graph("g", nodes={"s": SolverSetupNode(setup="/etc/hosts")})
    with pytest.raises(GraphError, match=r"g/s\.setup = .* leads out"):
        Evaluator(absolute, base_folder=tmp_path, confined=True)


def test_a_failed_run_can_be_cleared(serial: Communicator) -> None:
    evaluator = Evaluator(simulation(), comm=serial, threads=1)
    evaluator.evaluate("dust", 1)
    evaluator.cancel()  # before a frame: the next one stops at once
    from loki_core.errors import Cancelled

    with pytest.raises(Cancelled, match="sim/solver: stopped on request"):
        evaluator.evaluate("dust", 2)
    assert evaluator.evaluate("dust", 2).point_count > 0  # and can be asked for again
    evaluator.clear()
    with pytest.raises(GraphError, match="frame 3 needs frame 2 first"):
        evaluator.evaluate("dust", 3)
