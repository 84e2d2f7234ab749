"""The JSON document of a graph: round trips, versions, limits, thousands of damaged ones."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.errors import FormatError, GraphError, LokiError
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.particles.particles import ParticleObject
from loki_core.setup_document import write_setup
from loki_core.solver_setup import Group, SolverSetup
from loki_graph import Graph, load_document_file, read_graph, write_graph
from loki_graph.nodes.merge import Merge
from loki_graph.nodes.output import Output
from loki_graph.nodes.points_from_mesh import PointsFromMesh
from loki_graph.nodes.shape_source import ShapeSource
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_graph.nodes.transform import Transform


def falling() -> SolverSetup:
    return SolverSetup("falling", Group("Dust", ParticleObject(input="seeds")), GravityForce())


def whole() -> Graph:
    graph = Graph(
        "whole",
        nodes={
            "ball": ShapeSource(shape="box", size=(1, 2, 3)),
            "line": ShapeSource(shape="sphere"),
            "both": Merge(),
            "move": Transform(order="zyx", matrix=tuple(float(i % 5 == 0) for i in range(16))),
            "seeds": PointsFromMesh(mode="scatter", count=10),
            "solver": SolverSetupNode(setup=falling(), keep_frames=5),
            "dust": Output(),
        },
        connections=[
            ("ball.out", "both.in"),
            ("line.out", "both.in"),
            ("both.out", "move.in"),
            ("move.out", "seeds.in"),
            ("seeds.out", "solver.seeds"),
            ("solver.Dust/ParticleObject", "dust.in"),
        ],
    )
    keys = Keyframes([(0.0, (0.0, 0.0, 0.0)), (1.0, (0.0, 1.0, 0.0))], interpolation="smooth")
    graph = graph.replace("move", translate=keys)
    graph = graph.expose("seeds.count", name="how_many", label="How many", maximum=100)
    return graph.expose("solver/GravityForce.acceleration", name="gravity")


TEXT = whole().to_json()
DOCUMENT = json.loads(TEXT)


def test_round_trip() -> None:
    graph = whole()
    again = Graph.from_json(TEXT)
    assert again == graph
    assert again.to_json() == TEXT
    assert [p.name for p in again.exposed()] == ["how_many", "gravity"]
    assert again.connections == graph.connections and list(again.nodes) == list(graph.nodes)
    assert again.nodes == graph.nodes
    assert Graph.from_document(graph.to_document()) == graph
    assert again != graph.replace("ball", size=(1, 1, 1))


def test_files_tell_graphs_from_setups(tmp_path: Path) -> None:
    write_graph(whole(), tmp_path / "whole.loki.json")
    write_setup(falling(), tmp_path / "falling.loki.json")
    assert load_document_file(tmp_path / "whole.loki.json") == whole()
    assert load_document_file(tmp_path / "falling.loki.json") == falling()
    assert read_graph(tmp_path / "whole.loki.json") == whole()
    with pytest.raises(GraphError, match=r"falling\.loki\.json is a Solver Setup"):
        read_graph(tmp_path / "falling.loki.json")
    (tmp_path / "other.json").write_text('{"loki": "graf"}')
    with pytest.raises(FormatError, match='"loki" is "graf"; did you mean "graph"'):
        load_document_file(tmp_path / "other.json")
    with pytest.raises(FormatError, match=r"nothing\.json is not there"):
        load_document_file(tmp_path / "nothing.json")


def test_a_setup_may_be_a_file_beside_the_graph(tmp_path: Path) -> None:
    write_setup(falling(), tmp_path / "falling.loki.json")
    document = copy.deepcopy(DOCUMENT)
    document["nodes"]["solver"]["parameters"]["setup"] = "falling.loki.json"
    (tmp_path / "graph.loki.json").write_text(json.dumps(document))
    graph = read_graph(tmp_path / "graph.loki.json")
    assert set(graph.nodes["solver"].outputs()) == {"Dust/ParticleObject"}
    assert graph.to_document()["nodes"]["solver"]["parameters"]["setup"] == "falling.loki.json"
    # a changed value inside makes it part of the graph
    changed = graph.set_exposed("gravity", (0.0, -1.0, 0.0))
    inside = changed.to_document()["nodes"]["solver"]["parameters"]["setup"]
    assert inside["children"][1]["parameters"] == {"acceleration": [0.0, -1.0, 0.0]}
    # without its folder the sockets stay open, and exposed paths cannot be known
    with pytest.raises(GraphError, match="file was not read; give base_folder"):
        Graph.from_document(document)
    del document["exposed"]
    graph = Graph.from_document(document)
    assert graph.nodes["solver"].is_open()
    (tmp_path / "falling.loki.json").unlink()
    with pytest.raises(
        FormatError, match=r"whole/solver\.setup: .*falling\.loki\.json is not there"
    ):
        graph.resolved(tmp_path)
    # a file with other streams is found out when it is read
    other = SolverSetup("falling", Group("Dust", ParticleObject(input="grains")))
    write_setup(other, tmp_path / "falling.loki.json")
    with pytest.raises(GraphError, match='whole/solver has no input "seeds"'):
        graph.resolved(tmp_path)


def change(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(DOCUMENT)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("loki",), "solver_setup", 'f.json: this is no Loki Graph: "loki" is "solver_setup"'),
        (("schema_version",), 7, "this is schema_version 7, and this Loki reads up to 1"),
        (("schema_version",), 0, "not a whole number from 1"),
        (("schema_version",), True, "the current version is 1"),
        (("nods",), {}, 'has no key "nods"; did you mean "nodes"?'),
        (("nodes",), [], "whole.nodes is (), not an object"),
        (("nodes", "move", "type"), "Transfrom", 'whole/move: there is no node type "Transfrom"'),
        (("nodes", "move", "type"), 3, 'whole/move: "type" is 3'),
        (("nodes", "move", "parameters", "scal"), 1, 'whole/move has no parameter "scal"'),
        (("nodes", "move", "parameters", "order"), "xxy", "whole/move.order"),
        (("nodes", "move", "parameters", "scale"), [1, "2 m", 1], "whole/move.scale[1]"),
        (("nodes", "solver", "parameters", "setup"), {}, "whole/solver.setup: this is no Solver"),
        (("nodes", "solver", "parameters", "setup"), None, "whole/solver.setup is none"),
        (("connections", 0), ["ball.out"], "is not a pair"),
        (("connections", 0), "ball.out both.in", "is not a pair"),
        (("connections", 0), [1, 2], "of a connection is not a text"),
        (("connections", 0), ["ball.out", "both.inn"], 'whole/both has no input "inn"'),
        (("exposed", 0, "target"), "seeds.cont", 'did you mean "count"?'),
        (("exposed", 0, "maximum"), 5, "above the maximum 5"),  # the value is 10
        (("exposed", 0, "label"), 5, "label is not a text"),
        (("exposed", 0, "unit"), "m", 'has no key "unit"'),
        (("settings",), {"frames_per_second": 25}, "frames_per_second = 24, but whole has 25"),
        (("settings",), {"fps": 25}, 'whole has no parameter "fps"'),
        (("name",), None, 'has no "name"'),
        (("name",), "a/b", "is not a name"),
    ],
)
def test_damaged_documents_say_where(path: tuple[Any, ...], value: Any, expected: str) -> None:
    with pytest.raises(GraphError) as caught:
        Graph.from_document(change(path, value), "f.json")
    assert str(caught.value).startswith("f.json: ")
    assert expected in str(caught.value)


def test_limits() -> None:
    with pytest.raises(FormatError, match='the key "a" is there twice'):
        Graph.from_json('{"a": 1, "a": 2}')
    with pytest.raises(FormatError, match="levels deep"):
        Graph.from_json("[" * 5000 + "]" * 5000)
    many = change(("nodes",), {f"n{i}": {"type": "Merge"} for i in range(10_001)})
    with pytest.raises(GraphError, match="at most 10000"):
        Graph.from_document(many)
    with pytest.raises(LokiError, match="not a number"):
        Graph.from_json('{"loki": NaN}')


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in items:
        found.append((*path, key))
        if isinstance(item, (dict, list)):
            found += places(item, (*path, key))
    return found


JUNK: list[Any] = [
    None, True, -1, 0, 2**63, 1.0e308, "", "ball.out", "x" * 5000, "\x00", "\ud800", [], {}, [[]],
    {"keyframes": [[0, 1]]}, {"type": "Merge"}, [1, 2, 3], "Transform", "solver/Dust.rate", "1 m",
    {"loki": "solver_setup", "schema_version": 1, "name": "s"}, ["ball.out", "ball.out"],
]  # fmt: skip


def mutate(document: Any, chooser: random.Random) -> None:
    for _ in range(chooser.randint(1, 4)):
        paths = places(document)
        if not paths:
            return
        path = chooser.choice(paths)
        parent = document
        for step in path[:-1]:
            parent = parent[step]
        action = chooser.randrange(5)
        if action == 0:
            del parent[path[-1]]
        elif action == 1:
            other = document
            for step in chooser.choice(paths):
                if not isinstance(other, (dict, list)):
                    break
                other = other[step]
            parent[path[-1]] = copy.deepcopy(other)
        elif action == 2 and isinstance(parent, dict):
            parent[chooser.choice(["type", "setup", "ball", "count", "", "a.b"])] = parent.pop(
                path[-1]
            )
        elif action == 3 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        else:
            parent[path[-1]] = copy.deepcopy(chooser.choice(JUNK))


@settings(max_examples=2500, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_mutated_documents_fail_by_name_or_are_whole(seed: int) -> None:
    document = copy.deepcopy(DOCUMENT)
    mutate(document, random.Random(seed))
    try:
        graph = Graph.from_document(document)
    except LokiError as error:
        assert str(error)
        return
    assert Graph.from_json(graph.to_json()) == graph  # what is accepted can be written and read


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.integers(0, len(TEXT) - 1), st.text(max_size=3), st.booleans())
def test_mutated_texts_fail_by_name_or_are_whole(place: int, junk: str, cut: bool) -> None:
    text = TEXT[:place] + junk + ("" if cut else TEXT[place + 1 :])
    try:
        graph = Graph.from_json(text)
    except LokiError as error:
        assert str(error)
        return
    assert isinstance(graph, Graph)
