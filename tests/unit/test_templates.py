"""Templates: files are current, parameters can be set, and every one simulates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, LokiError
from loki_graph import Evaluator, Graph
from loki_graph.graph_document import graph_from_document
from loki_graph.templates import Template, find_template, idols, templates
from loki_graph.templates.write_files import built_graphs

NAMES = (
    "dam_break",
    "fountain",
    "grass",
    "hair_in_water",
    "hair_in_wind",
    "honey",
    "idols",
    "smoke_plume",
    "spray_in_wind",
    "toothpaste",
    "waterfall",
    "wine",
)
#: Changes that make each one small.
SMALL: dict[str, dict[str, Any]] = {
    "fountain": {"rate": 2000.0},
    "grass": {"blade_count": 60, "wind_detail": 0.25},
    "hair_in_water": {"stem_count": 40, "resolution": 0.08},
    "hair_in_wind": {"hair_count": 60, "wind_detail": 0.1},
    "idols": {"resolution": 0.025},
    "smoke_plume": {"resolution": 0.08},
    "spray_in_wind": {"rate": 2000.0, "wind_detail": 0.3},
    "toothpaste": {"resolution": 0.04},
    "waterfall": {"resolution": 0.08, "wind_detail": 0.16},
    "wine": {"resolution": 0.002},
}


def small(template: Template) -> Graph:
    graph = template.graph()
    for name, value in SMALL[template.name].items():
        graph = graph.set_exposed(name, value)
    return graph


def outputs(template: Template, frames: int, **inputs: Any) -> list[Any]:
    """What the template's one output gives at each frame."""
    graph = small(template)
    (output,) = graph.outputs()
    evaluator = Evaluator(graph, host_inputs=template.suggested_inputs() | inputs)
    return [evaluator.evaluate(output, frame) for frame in range(1, frames + 1)]


def test_all_are_there_with_words_for_people() -> None:
    found = templates()
    assert tuple(one.name for one in found) == NAMES
    for one in found:
        assert one.label and one.doc.endswith(".") and "\n" not in one.doc
    with pytest.raises(InputError, match='did you mean "grass"'):
        find_template("gras")


def test_files_are_what_the_modules_build() -> None:
    built = built_graphs()
    assert tuple(built) == NAMES
    for name, graph in built.items():
        path = find_template(name).path
        stale = f"{path.name} is not current: python -m loki_graph.templates.write_files"
        assert path.read_text(encoding="utf-8") == graph.to_json(), stale
        assert graph.name == name
        assert graph_from_document(graph.to_document()).to_document() == graph.to_document()


@pytest.mark.parametrize("name", NAMES)
def test_exposed_parameters_are_few_and_can_be_set(name: str) -> None:
    graph = find_template(name).graph()
    shown = graph.exposed()
    assert 5 <= len(shown) <= 10
    for one in shown:
        assert one.value == one.default and one.doc and one.label[0].isupper()
        if one.type in ("float", "int", "float | None"):
            assert one.minimum is not None and one.maximum is not None
            for limit in (one.minimum, one.maximum):
                changed = graph.set_exposed(one.name, limit)
                assert {e.name: e.value for e in changed.exposed()}[one.name] == limit
            with pytest.raises(LokiError):
                graph.set_exposed(one.name, one.maximum + 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_suggested_inputs_fit(name: str) -> None:
    template = find_template(name)
    streams = template.suggested_inputs()
    hosts = {
        node.stream_name(key): node
        for key, node in template.graph().nodes.items()
        if type(node).__name__ == "HostInput"
    }
    assert set(streams) == set(hosts) and hosts
    for key, stream in streams.items():
        assert hosts[key].type in (stream.type_name, "mesh")
        assert not [text for severity, text in stream.check(key) if severity == "error"]


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["grass", "hair_in_wind"])
def test_strands_stay_on_their_roots(name: str) -> None:
    start, *_, end = outputs(find_template(name), 3)
    assert isinstance(start, Curves) and start.primitive_count > 20
    first, last = (one.positions[one.offsets[:-1]] for one in (start, end))
    np.testing.assert_allclose(first, last, atol=1e-9)
    moved = np.linalg.norm(end.positions - start.positions, axis=1)
    assert 1e-6 < moved.max() < 0.1


@pytest.mark.compiles
def test_a_head_that_turns_takes_its_hair_along() -> None:
    template = find_template("hair_in_wind")
    head = template.suggested_inputs()["head"]

    def turning(frame: int) -> Any:
        angle = 0.1 * (frame - 1)
        matrix = np.eye(4)
        matrix[0, 0] = matrix[2, 2] = np.cos(angle)
        matrix[0, 2], matrix[2, 0] = np.sin(angle), -np.sin(angle)
        return head.transformed(matrix)

    start, *_, end = outputs(template, 3, head=turning)
    roots = start.offsets[:-1]
    cosine, sine = np.cos(0.2), np.sin(0.2)
    turn = np.array([[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]])
    for held in (roots, roots + 1):  # the root and its direction
        np.testing.assert_allclose(end.positions[held], start.positions[held] @ turn.T, atol=1e-9)


@pytest.mark.compiles
def test_smoke_is_hot_and_rises() -> None:
    *_, end = outputs(find_template("smoke_plume"), 4)
    assert isinstance(end, Voxels)
    density, temperature = end.to_dense("density"), end.to_dense("temperature")
    assert density.max() > 0.5 and temperature.max() > 400.0
    assert end.to_dense("velocity")[1].max() > 0.1


@pytest.mark.slow
def test_weed_floats_up() -> None:
    template = find_template("hair_in_water")
    evaluator = Evaluator(small(template), host_inputs=template.suggested_inputs())
    start, *_, end = (evaluator.evaluate("weed", frame) for frame in range(1, 9))
    rise = (end.positions - start.positions)[end.offsets[1:] - 1, 1]  # of the tips
    assert np.median(rise) > 0.005 and np.isfinite(end.positions).all()
    surface = evaluator.evaluate("surface", 8)
    assert 0.5 < surface.positions[:, 1].max() < 0.66


@pytest.mark.slow
def test_a_spring_falls_over_its_ledge() -> None:
    *_, end = outputs(find_template("waterfall"), 16)
    fallen = end.positions[:, 1] < 1.0
    assert fallen.any() and end.positions[fallen, 0].min() > -0.5


@pytest.mark.compiles
def test_drops_leave_the_nozzle_upwards() -> None:
    empty, *_, end = outputs(find_template("fountain"), 4)
    assert isinstance(end, Points) and empty.point_count == 0
    assert end.point_count in (249, 250)  # three frames of a 24th of a second
    assert end.channels["point"]["velocity"][:, 1].min() > 2.0


@pytest.mark.slow
def test_water_falls_over_statues_and_not_through_them() -> None:
    template = find_template("idols")
    *_, end = outputs(template, 20)
    assert isinstance(end, Points) and end.point_count > 200
    x, y, z = end.positions.T
    radius, height = np.array(idols.FIGURE[2:]).T
    beside = (y > 0.25) & (y < 1.0)
    depth = np.interp(y, height, radius) - np.hypot(x, z)
    assert beside.any() and depth[beside].max() < 0.005
    assert (y < 0.4).any()  # it has run down


@pytest.mark.slow
def test_wine_stays_in_its_glass() -> None:
    template = find_template("wine")
    *_, end = outputs(template, 14)
    x, y, z = end.positions.T
    fallen = y < 0.05
    assert fallen.sum() > 100 and np.hypot(x, z)[fallen].max() < 0.036 and y.min() > 0.006


@pytest.mark.slow
def test_toothpaste_holds_where_water_runs() -> None:
    template = find_template("toothpaste")
    widths = []
    for viscosity in (0.01, 200.0):
        graph = small(template).set_exposed("viscosity", viscosity)
        evaluator = Evaluator(graph, host_inputs=template.suggested_inputs())
        end = [evaluator.evaluate("paste", frame) for frame in range(1, 15)][-1]
        widths.append(np.hypot(end.positions[:, 0], end.positions[:, 2]).mean())
    assert widths[0] > 1.3 * widths[1]


@pytest.mark.slow
def test_wind_carries_small_drops_farther() -> None:
    *_, end = outputs(find_template("spray_in_wind"), 16)
    radius, x = end.channels["point"]["radius"], end.positions[:, 0]
    small_ones, large_ones = radius < 0.0004, radius > 0.0009
    assert small_ones.sum() > 50 and large_ones.sum() > 50
    assert x[small_ones].mean() > 1.5 * x[large_ones].mean() > 0.0


def test_folders_of_the_user_hold_templates_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_plume.loki.json").write_bytes(find_template("smoke_plume").path.read_bytes())
    monkeypatch.setenv("LOKI_TEMPLATES", str(tmp_path))
    mine = find_template("my_plume")
    assert mine.label == "My plume" and mine.graph().name == "smoke_plume"
    assert mine.suggested_inputs() == {}
    assert len(templates()) == len(NAMES) + 1
