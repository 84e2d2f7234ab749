"""Loki's nodes cook: real servers, real files; only Houdini itself is a stand-in."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import hou
import numpy as np
import pytest

import loki_core as lk
from loki_core.setup_document import write_setup
from loki_vfx.bridges.houdini import run_parms as parms
from loki_vfx.bridges.houdini.loki_houdini import cook, node_solve
from loki_vfx.bridges.live.client import Client, Refused
from loki_vfx.bridges.live.local_server import discovered
from loki_vfx.bridges.live.run_folder import checked_name
from loki_vfx.serialization.frame_cache import whole_frames
from loki_vfx.serialization.houdini_files import read_bytes
from loki_vfx.serialization.houdini_streams import streams_of
from tests.host_contract import assert_same, dressed
from tests.houdini.nodes import giving, loki
from tests.live.live_scenes import OBJECT, by_id, seeds, sparks


def shown(node):
    """What a node shows, as streams."""
    return streams_of(read_bytes(node.geometry().data()))


def solver(folder, tmp_path, source, setup=None, **values):
    file = tmp_path / "sparks.loki.json"
    write_setup(setup or sparks(), file)
    given = {parms.SOURCE: "file", parms.FILE: str(file)}
    return loki("solver", folder, (source,), **(given | values))


def assert_shows(node, expected):
    """A node shows the particles of a run without host or server, in single precision."""
    np.testing.assert_array_equal(
        by_id(shown(node)["points"])["position"], by_id(expected)["position"].astype(np.float32)
    )


def wait_for_the_end(node):
    """Until the run of a node has computed all its frames."""
    end = time.monotonic() + 60.0
    while cook._solves[node.sessionId()].run.state != "finished":
        assert time.monotonic() < end
        time.sleep(0.01)


def run_alone(setup, inputs, frames):
    """The same without a server or a host, frame by frame."""
    alone = lk.Solver(setup, inputs)
    found = {}
    for frame in range(1, frames + 1):
        alone.run(int(frame > 1))
        found[frame] = alone.outputs()[OBJECT]
    return found


def test_a_scene_solved_through_a_server_equals_the_standalone_run(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds()))
    expected = run_alone(sparks(), {"seeds": seeds()}, 6)
    for frame in (1, 4, 6, 2):
        hou.setFrame(frame)
        node.cook()
        alone = by_id(expected[frame])
        here = by_id(shown(node)["points"])
        exact = by_id(cook._solves[node.sessionId()].streams(frame)[OBJECT])
        assert set(alone) == set(here) == set(exact)
        for name, values in alone.items():
            np.testing.assert_array_equal(exact[name], values, err_msg=name)
            kind = np.float32 if values.dtype == np.float64 else values.dtype
            np.testing.assert_array_equal(here[name], values.astype(kind), err_msg=name)


def test_frames_that_are_there_are_shown_at_once_in_another_session(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(50)))
    hou.setFrame(6)
    node.cook()
    cook.forget_all()
    hou._state["progress"].clear()
    again = solver(folder, tmp_path, giving(seeds(50)))
    again.cook()
    assert hou._state["progress"] == []
    np.testing.assert_array_equal(shown(node)["points"].positions, shown(again)["points"].positions)


def test_a_changed_parm_makes_another_run_and_a_changed_display_does_not(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(50)), **{parms.OVERRIDES: 1})
    override = hou.Parm(f"{parms.OVERRIDE}1", "")
    node._parms[override.name()] = override
    hou.setFrame(3)
    node.cook()
    before, key = shown(node)["points"].positions, cook._solves[node.sessionId()].key
    node.parm(parms.THREADS).set(1)
    node.cook()
    assert cook._solves[node.sessionId()].key == key
    override.set("GravityForce.acceleration=0 9.81 0")
    node.cook()
    assert cook._solves[node.sessionId()].key != key
    assert shown(node)["points"].positions[:, 1].mean() > before[:, 1].mean()


def test_an_input_that_moves_is_asked_at_every_frame(folder, tmp_path):
    def moved(frame):
        return seeds(60, shift=float(frame))

    node = solver(folder, tmp_path, giving(moved))
    hou.setFrame(5)
    node.cook()
    expected = run_alone(sparks(), {"seeds": moved}, 5)[5]
    here, alone = by_id(shown(node)["points"]), by_id(expected)
    np.testing.assert_array_equal(here["position"], alone["position"].astype(np.float32))


def test_an_input_that_changes_later_is_noticed(folder, tmp_path):
    late = {"shift": 0.0}

    def moved(frame):
        return seeds(60, shift=late["shift"] if frame >= 3 else 0.0)

    node = solver(folder, tmp_path, giving(moved))
    for frame in (2, 5):
        hou.setFrame(frame)
        node.cook()
    early = shown(node)["points"].positions.copy()
    late["shift"] = 2.0
    node.cook()
    assert not np.array_equal(early, shown(node)["points"].positions)
    assert_shows(node, run_alone(sparks(), {"seeds": moved}, 5)[5])


def test_a_change_in_another_session_is_noticed(folder, tmp_path):
    late = {"shift": 0.0}

    def moved(frame):
        return seeds(62, shift=late["shift"] if frame >= 3 else 0.0)

    node = solver(folder, tmp_path, giving(moved))
    hou.setFrame(5)
    node.cook()
    cook.forget_all()
    late["shift"] = 3.0
    again = solver(folder, tmp_path, giving(moved))
    again.cook()
    assert_shows(again, run_alone(sparks(), {"seeds": moved}, 5)[5])


@pytest.mark.parametrize(("first", "then"), [(3, 5), (3, 30), (6, 30)])
def test_a_change_before_the_last_frame_that_was_sent_is_noticed_further_on(
    folder, tmp_path, first, then
):
    """The frame that is shown was never sent, and those before it have changed."""
    late = {"shift": 0.0}

    def moved(frame):
        return seeds(64 + first + then, shift=late["shift"] if frame >= 3 else 0.0)

    node = solver(folder, tmp_path, giving(moved), **{parms.END: 40})
    hou.setFrame(first)
    node.cook()
    late["shift"] = 2.0
    hou.setFrame(then)
    node.cook()
    assert_shows(node, run_alone(sparks(), {"seeds": moved}, then)[then])


def test_an_input_that_fails_at_a_frame_is_told_until_it_is_mended(folder, tmp_path):
    broken = {4}

    def moved(frame):
        if frame in broken:
            raise hou.NodeError("the file is not there")
        return seeds(73, shift=0.1 * frame)

    node = solver(folder, tmp_path, giving(moved))
    hou.setFrame(3)
    node.cook()  # what is read ahead is not needed here
    hou.setFrame(6)
    told = r'input 1 "seeds" cannot be cooked at frame 4: (.|\n)*the file is not there'
    for _ in range(2):
        with pytest.raises(hou.OperationFailed, match=told):
            node.cook()
    broken.clear()
    node.cook()
    assert_shows(node, run_alone(sparks(), {"seeds": moved}, 6)[6])


def test_frames_that_were_lost_or_damaged_are_computed_again(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(74)))
    hou.setFrame(6)
    node.cook()
    cache = folder / cook._solves[node.sessionId()].run_name / "cache"
    (lost,) = cache.glob("frames/**/000004.loki")
    expected = run_alone(sparks(), {"seeds": seeds(74)}, 6)

    def check(frame):
        hou.setFrame(frame)
        node.cook()
        assert_shows(node, expected[frame])

    lost.unlink()
    check(4)
    lost.write_bytes(lost.read_bytes()[:100])
    check(4)
    lost.unlink()
    cook.forget_all()
    check(6)
    check(4)
    wait_for_the_end(node)
    shutil.rmtree(cache)
    check(5)


def test_buttons_after_the_run_was_removed(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(75)))
    hou.setFrame(2)
    node.cook()
    wait_for_the_end(node)  # nobody writes into it any more
    shutil.rmtree(folder / cook._solves[node.sessionId()].run_name)
    cook.reset(node)
    assert node.errors() == () and shown(node)["points"].point_count
    with Client(discovered(folder)["endpoint"]) as client:
        node_solve.remove_run(client, cook._solves[node.sessionId()].run_name)
    node.parm(parms.END).set(9)
    hou.setFrame(8)
    node.cook()
    with Client(discovered(folder)["endpoint"]) as client:
        node_solve.remove_run(client, cook._solves[node.sessionId()].run_name)
    cook.reset(node)
    assert node.errors() == () and shown(node)["points"].point_count


def test_a_finished_run_that_is_cancelled_goes_on(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(76)), **{parms.END: 3})
    hou.setFrame(3)
    node.cook()
    wait_for_the_end(node)
    cook.cancel(node)
    node.parm(parms.END).set(5)
    hou.setFrame(5)
    node.cook()


def test_what_a_server_elsewhere_computes_anew_replaces_what_is_kept_here(folder, tmp_path):
    late = {"shift": 0.0}

    def moved(frame):
        return seeds(77, shift=late["shift"] if frame >= 3 else 0.0)

    solver(folder, tmp_path, giving(seeds(77))).cook()  # which starts a server
    elsewhere = {parms.ENDPOINT: discovered(folder)["endpoint"], parms.CACHE: str(tmp_path / "own")}
    node = solver(folder, tmp_path, giving(moved), **elsewhere)
    hou.setFrame(6)
    node.cook()
    late["shift"] = 2.0
    hou.setFrame(3)
    cook.reset(node)
    cook.forget_all()
    again = solver(folder, tmp_path, giving(moved), **elsewhere)
    expected = run_alone(sparks(), {"seeds": moved}, 6)
    for frame in (6, 4):
        hou.setFrame(frame)
        again.cook()
        assert_shows(again, expected[frame])
    late["shift"] = 3.0
    again.cook()  # frame 4
    cook.forget_all()
    hou.setFrame(6)
    last = solver(folder, tmp_path, giving(moved), **elsewhere)
    last.cook()
    assert_shows(last, run_alone(sparks(), {"seeds": moved}, 6)[6])


@pytest.mark.parametrize("depth", range(3, 9))
def test_long_paths_make_names_of_runs(depth):
    request = node_solve.Request("/obj" + "/geo_a" * depth, sparks(), {}, (1, 2), Path("runs"))
    name = node_solve.run_name_of(request, "0123456789abcdef")
    assert checked_name(name) == name


def test_an_input_that_is_told_to_stay_is_another_simulation(folder, tmp_path):
    def moved(frame):
        return seeds(63, shift=float(frame))

    node = solver(folder, tmp_path, giving(moved))
    hou.setFrame(4)
    node.cook()
    before = shown(node)["points"].positions
    node.parm(f"{parms.ANIMATED}1").set(0)
    node.cook()
    expected = run_alone(sparks(), {"seeds": moved(1)}, 4)[4]
    after = by_id(shown(node)["points"])["position"]
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, by_id(expected)["position"].astype(np.float32))


def test_two_nodes_of_one_name_have_runs_of_their_own(folder, tmp_path):
    nodes = [solver(folder, tmp_path, giving(seeds(64))) for _ in range(2)]
    nodes[1].path = lambda: "/obj/geo2/solver"
    for node in nodes:
        node.cook()
    runs = [cook._solves[node.sessionId()].run_name for node in nodes]
    assert runs[0] != runs[1]


def test_another_folder_is_another_run(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(65)))
    node.cook()
    node.parm(parms.CACHE).set(str(folder / "other"))
    node.cook()
    assert cook._solves[node.sessionId()].cache.is_relative_to(folder / "other")
    found = discovered(folder / "other")
    with Client(found["endpoint"]) as client:
        client.stop_server()


def test_buttons_without_a_server(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(66)))
    hou.setFrame(6)
    node.cook()
    os.kill(discovered(folder)["pid"], signal.SIGKILL)
    cook.cancel(node)
    cook.reset(node)
    assert node.errors() == () and shown(node)["points"].point_count > 0


def test_a_run_that_somebody_removed_begins_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(node_solve, "ASK_SECONDS", 0.3)
    node = solver(folder, tmp_path, giving(seeds(67)), **{parms.END: 3})
    hou.setFrame(3)
    node.cook()
    solve = cook._solves[node.sessionId()]
    with solve.request.connected() as other:
        other.remove(solve.run_name)
    solve.frames.clear()
    node.cook()
    assert shown(node)["points"].point_count > 0


def test_more_frames_go_on_where_the_run_ended(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(40)), **{parms.END: 2})
    hou.setFrame(9)
    node.cook()
    assert cook._solves[node.sessionId()].frames == {1, 2}
    node.parm(parms.END).set(4)
    node.cook()
    assert cook._solves[node.sessionId()].frames == {1, 2, 3, 4}


def test_escape_ends_the_wait_and_leaves_the_run(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(70)))
    hou.setFrame(6)
    hou._state["interrupt_after"] = 1
    with pytest.raises(hou.OperationInterrupted):
        node.cook()
    hou._state["interrupt_after"] = None
    node.cook()
    assert shown(node)["points"].point_count > 0


def test_buttons(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(30)))
    hou.setFrame(6)
    node.cook()
    run = cook._solves[node.sessionId()]
    cook.reset(node)
    assert cook._solves[node.sessionId()] is not run
    node = solver(folder, tmp_path, giving(seeds(31)), **{parms.END: 20000})
    node.cook()
    cook.cancel(node)
    hou.setFrame(20000)
    with pytest.raises(hou.OperationFailed, match="cancelled"):
        node.cook()
    hou.setFrame(3)
    node.cook()
    assert shown(node)["points"].point_count > 0


@pytest.mark.parametrize(
    "values, words",
    [
        ({parms.FILE: ""}, "no file is chosen"),
        ({parms.FILE: "nowhere.loki.json"}, "nowhere.loki.json"),
        ({f"{parms.INPUT}1": "sedes"}, 'input 1 is for "sedes"'),
        ({parms.END: 0}, "frames from 1 to 0"),
        ({parms.OUTPUT: "Spark"}, 'no output "Spark"'),
        ({parms.OVERRIDES: 1, f"{parms.OVERRIDE}1": "GravityForce.strength=1"}, "strength"),
        ({parms.ENDPOINT: "tcp://127.0.0.1:1"}, "token cannot be read"),
    ],
)
def test_what_is_wrong_is_told_on_the_node(folder, tmp_path, values, words):
    node = solver(folder, tmp_path, giving(seeds(30)), **values)
    with pytest.raises(hou.OperationFailed):
        node.cook()
    assert words in node.errors()[0]


def test_bad_input_is_told(folder, tmp_path):
    bad = seeds(10)
    bad.positions[3, 1] = np.nan
    node = solver(folder, tmp_path, giving(bad))
    with pytest.raises(hou.OperationFailed):
        node.cook()
    assert "seeds" in node.errors()[0] and "[3]" in node.errors()[0]


def test_geometry_is_read_only_outside_a_cook(folder):
    node = giving(seeds(3))
    node.cook()
    with pytest.raises(hou.GeometryPermissionError):
        node.geometry().clear()


def test_host_to_loki_converts_and_names(folder, tmp_path):
    source = giving(dressed("surface"))
    node = loki("host_to_loki", folder, (source,), **{parms.STREAM: "cloth"})
    node.cook()
    assert node.geometry().attribValue("loki_input") == "cloth"
    found = shown(node)["surface"]
    del found.channels["detail"]["loki_input"]
    assert_same(found, dressed("surface"))


def test_host_to_loki_takes_the_attributes_of_houdinis_names(folder):
    given = lk.Points(np.eye(3))
    for name, value in {"velocity": np.eye(3), "color": np.eye(3), "radius": np.ones(3)}.items():
        given.set_channel("point", name, value)
    node = loki("host_to_loki", folder, (giving(given),), **{parms.ATTRIBUTES: "* ^v ^pscale"})
    node.cook()
    kept = set(read_bytes(node.geometry().data()).attributes["point"])
    assert kept == {"P", "Cd"}


def test_a_template_takes_a_mesh(folder):
    node = loki("template_fountain", folder, (giving(dressed("surface")),))
    hou.setFrame(2)
    node.cook()
    assert shown(node)["points"].point_count


def test_what_host_to_loki_says_stays_there(folder, tmp_path):
    named = loki("host_to_loki", folder, (giving(seeds(78)),), **{parms.STREAM: "seeds"})
    node = solver(folder, tmp_path, named)
    node.cook()
    assert node.geometry().findGlobalAttrib("loki_input") is None
    wrong = loki("to_host", folder, (node,), **{parms.OUTPUT: "nope"})
    with pytest.raises(hou.OperationFailed, match=f'no output "nope"; there is {OBJECT}'):
        wrong.cook()


def test_three_nodes_are_one_solver(folder, tmp_path):
    file = tmp_path / "sparks.loki.json"
    write_setup(sparks(), file)
    host = loki("host_to_loki", folder, (giving(seeds(20)),), **{parms.STREAM: "seeds"})
    given = {parms.SOURCE: "file", parms.FILE: str(file)}
    graph = loki("graph", folder, (host,), **given)
    end = loki("to_host", folder, (graph,), **{parms.ATTRIBUTES: "* ^age"})
    hou.setFrame(4)
    end.cook()
    expected = by_id(run_alone(sparks(), {"seeds": seeds(20)}, 4)[4])
    here = by_id(shown(end)["points"])
    assert set(expected) - set(here) <= {"age"}
    np.testing.assert_array_equal(here["position"], expected["position"].astype(np.float32))


def test_a_template_needs_no_input(folder):
    """It brings its own where nothing is connected."""
    node = loki("template_fountain", folder, **{parms.END: 2})
    hou.setFrame(2)
    node.cook()
    assert sum(one.point_count for one in shown(node).values()) > 0


def test_a_templates_parms_are_what_it_exposes(folder):
    node = loki("template_fountain", folder, **{parms.END: 3})
    hou.setFrame(3)
    node.cook()
    first = cook._solves[node.sessionId()].key
    changed = next(p for p in node.parms() if not p.name().startswith("loki_"))
    changed.set(changed.evalAsFloat() * 0.5)
    node.cook()
    assert cook._solves[node.sessionId()].key != first


def test_the_clock_is_houdinis(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(hou._state, "fps", 25.0)
    node = solver(folder, tmp_path, giving(seeds(40)), **{parms.START: 1001, parms.END: 1004})
    hou.setFrame(1004)
    node.cook()
    assert cook._solves[node.sessionId()].frames == {1001, 1002, 1003, 1004}
    same = sparks(frames_per_second=25.0, start_frame=1001)
    expected = by_id(run_alone(same, {"seeds": seeds(40)}, 4)[4])
    here = by_id(shown(node)["points"])
    np.testing.assert_array_equal(here["position"], expected["position"].astype(np.float32))


def test_a_killed_server_is_replaced(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(45)), **{parms.END: 40})
    hou.setFrame(2)
    node.cook()
    os.kill(discovered(folder)["pid"], signal.SIGKILL)
    hou.setFrame(40)
    node.cook()
    expected = by_id(run_alone(sparks(), {"seeds": seeds(45)}, 40)[40])
    here = by_id(shown(node)["points"])
    np.testing.assert_array_equal(here["position"], expected["position"].astype(np.float32))


def test_points_of_the_first_input_are_moved(folder, tmp_path):
    """What Loki does not carry stays: groups of edges, here a vertex attribute of the faces."""
    setup = lk.SolverSetup("fall", lk.ParticleObject(name="P", input="seeds"), lk.GravityForce())
    sheet = lk.Surface.from_faces(np.eye(4, 3), [[0, 1, 2], [1, 2, 3]])
    sheet.set_channel("vertex", "uv", np.random.default_rng(1).random((6, 3)).astype(np.float32))
    node = solver(folder, tmp_path, giving(sheet), setup, **{parms.MOVE: 1})
    hou.setFrame(6)
    node.cook()
    found = shown(node)["surface"]
    np.testing.assert_array_equal(found.channels["vertex"]["uv"], sheet.channels["vertex"]["uv"])
    assert np.all(found.positions[:, 1] < sheet.positions[:, 1])
    np.testing.assert_array_equal(found.positions[:, 0], sheet.positions[:, 0])
    node = solver(folder, tmp_path, giving(seeds(40)), **{parms.MOVE: 1})
    with pytest.raises(hou.OperationFailed, match="Move Points of First Input"):
        node.cook()


def test_a_deleted_node_stops_its_run_which_goes_on_when_that_is_undone(folder, tmp_path):
    node = solver(folder, tmp_path, giving(seeds(72)), **{parms.END: 100_000})
    hou.setFrame(2)
    node.cook()
    run = cook._solves[node.sessionId()].run_name
    node.destroy()
    assert node.sessionId() not in cook._solves
    with Client(discovered(folder)["endpoint"]) as client:
        end = time.monotonic() + 60.0
        while client.status(run)["runs"][0]["state"] != "cancelled":
            assert time.monotonic() < end
            time.sleep(0.05)
    again = solver(folder, tmp_path, giving(seeds(72)), **{parms.END: 100_000})
    hou.setFrame(1 + max(whole_frames(folder / run / "cache")))
    again.cook()
    assert cook._solves[again.sessionId()].run_name == run
    again.destroy()


def test_a_run_that_waits_for_inputs_keeps_no_other(folder, tmp_path):
    """Only the cook of its own node brings them."""
    moving = solver(folder, tmp_path, giving(lambda frame: seeds(71, float(frame))))
    moving.cook()
    still = solver(folder, tmp_path, giving(seeds(72)))
    hou.setFrame(6)
    still.cook()
    moving.cook()
    expected = run_alone(sparks(), {"seeds": lambda frame: seeds(71, float(frame))}, 6)[6]
    here = by_id(shown(moving)["points"])
    np.testing.assert_array_equal(here["position"], by_id(expected)["position"].astype(np.float32))


def test_a_refused_rewind_throws_no_frames_away(folder, tmp_path, monkeypatch):
    late = {"shift": 0.0}

    def moved(frame):
        return seeds(79, shift=late["shift"] if frame >= 3 else 0.0)

    node = solver(folder, tmp_path, giving(moved))
    hou.setFrame(5)
    node.cook()
    late["shift"] = 2.0
    solve = cook._solves[node.sessionId()]

    def refused(*arguments, **options):
        raise Refused("busy", "the server is ending; try again")

    with monkeypatch.context() as patch:
        patch.setattr(solve.run, "rewind", refused)
        with pytest.raises(hou.OperationFailed, match="the server is ending; try again"):
            node.cook()
    assert {1, 2, 3, 4, 5} <= set(whole_frames(solve.cache))
    node.cook()  # and it is still known that the input has changed
    assert_shows(node, run_alone(sparks(), {"seeds": moved}, 5)[5])
