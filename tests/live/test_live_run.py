"""Runs through a real server and a real solver process, compared with the Solver itself."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.errors import Cancelled, FormatError, InputError
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.solver import Solver
from loki_graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_vfx.bridges.live.client import Client, Refused, Run, RunFailed, connect
from loki_vfx.bridges.live.live_run import FRAMES_AHEAD
from loki_vfx.bridges.live.protocol import Message
from loki_vfx.bridges.standalone.runner import Runner
from loki_vfx.serialization.frame_cache import FrameCacheReader
from tests.live.live_scenes import (
    OBJECT,
    ServerProcess,
    assert_same_files,
    assert_same_particles,
    seeds,
    sparks,
)

WAIT = 120.0  # for a sign of life: the first run on a machine compiles kernels


def echo_graph() -> Graph:
    return Graph(
        "echo",
        nodes={"in": HostInput(stream="points"), "out": Output(stream="points")},
        connections=[("in.out", "out.in")],
    )


def moving(frame: int) -> Points:
    points = seeds(5000)
    points.positions[:, 0] += 0.1 * frame
    return points


def wait_for(run: Run, kind: str, **content: object) -> dict[str, object]:
    while True:
        event = run.next_event(WAIT)
        if event.kind == kind and content.items() <= event.content.items():
            return event.content
        assert event.kind != "end", (event, run.message)


def test_a_live_run_gives_the_frames_of_the_runner_and_of_the_solver(
    client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    run = client.submit(sparks(), {"seeds": seeds()}, run="same", frames="6", threads=1)
    frames = {frame.number: frame[OBJECT] for frame in run.frames(WAIT)}
    assert list(frames) == [1, 2, 3, 4, 5, 6] and run.state == "finished"
    Runner(
        sparks(), {"seeds": seeds()}, output=tmp_path / "cache", frames=(1, 6), comm=SERIAL
    ).run()
    assert_same_files(tmp_path / "cache", server.root / "same" / "cache")
    solver = Solver(sparks(), {"seeds": seeds()}, comm=SERIAL)
    for number, stream in frames.items():
        if number > 1:
            solver.advance_frame()
        assert_same_particles(solver.outputs()[OBJECT], stream)


def test_frames_that_are_not_kept_are_the_same_and_leave_no_file(
    client: Client, server: ServerProcess
) -> None:
    run = client.submit(
        sparks(), {"seeds": seeds()}, run="preview", frames="6", keep_frames=False, credit=1
    )
    solver = Solver(sparks(), {"seeds": seeds()}, comm=SERIAL)
    numbers = []
    for frame in run.frames(WAIT):
        numbers.append(frame.number)
        solver.run(frame.number - solver.frame)
        assert_same_particles(frame[OBJECT], solver.outputs()[OBJECT])
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert not list((server.root / "preview").rglob("*.loki"))


@pytest.mark.parametrize("keep_frames", [True, False])
def test_inputs_that_are_functions_are_asked_frame_by_frame(
    client: Client, keep_frames: bool
) -> None:
    asked = []

    def host(frame: int) -> Points:
        asked.append(frame)
        return moving(frame)

    run = client.submit(
        echo_graph(), {"points": host}, run=f"echo{keep_frames}", frames="12",
        keep_frames=keep_frames,
    )  # fmt: skip
    for frame in run.frames(WAIT):
        expected = moving(frame.number)
        assert np.array_equal(frame["points"].positions, expected.positions)
        heat = expected.channels["point"]["heat"]
        assert np.array_equal(frame["points"].channels["point"]["heat"], heat)
    assert asked == list(range(1, 13))  # each once, and none beyond the last


def test_functions_are_asked_only_a_little_ahead_and_no_more_once_they_fail(client: Client) -> None:
    asked = []

    def host(frame: int) -> Points:
        asked.append(frame)
        if frame == 40:
            raise InputError("the head is gone")
        return seeds(shift=0.001 * frame)

    run = client.submit(sparks(), {"seeds": host}, run="ahead", frames="200")
    reached = 0
    with pytest.raises(InputError, match="the head is gone"):
        while True:
            for event in run.poll():
                if event.kind == "frame":
                    reached = int(event.content["frame"])
            assert not asked or asked[-1] <= reached + FRAMES_AHEAD + 3
            time.sleep(0.001)
    run.cancel()  # and the run is still heard
    wait_for(run, "end", state="cancelled")


@pytest.mark.parametrize("order", ["resume", "rewind"])
def test_an_end_of_before_is_not_the_end_of_a_run_that_is_taken_up(
    client: Client, order: str
) -> None:
    """It may wait to be looked at, or be still on its way, since data has a socket of its own."""
    run = client.submit(sparks(), {"seeds": seeds()}, run=f"taken_up_{order}", frames="2")
    late = []
    hear = run._hear

    def heard(message: Message) -> None:
        hear(message)
        if message.type == "end":
            late.append(message)

    run._hear = heard  # type: ignore[method-assign]
    end = time.monotonic() + WAIT
    while not late:  # nobody looks at the events
        assert time.monotonic() < end
        time.sleep(0.01)
    if order == "resume":
        run.resume(frames="1-4")
    else:
        run.rewind(2, frames="1-4")
    hear(late[0])
    assert run.state != "finished"
    expected = [1, 2, 3, 4] if order == "resume" else [1, 2, 2, 3, 4]
    assert [frame.number for frame in run.frames(WAIT)] == expected
    assert run.state == "finished"


def test_an_array_that_stays_the_same_travels_no_more(client: Client) -> None:
    run = client.submit(
        echo_graph(), run="reduced", animated=["points"], frames="5", keep_frames=False
    )
    sizes = []
    post = client._wire.post

    def noted(kind, content, payload, key):
        sizes.append(sum(memoryview(part).nbytes for part in payload))
        post(kind, content, payload, key)

    client._wire.post = noted  # type: ignore[method-assign]
    for frame in range(1, 6):
        run.send_input("points", moving(frame), frame)
    for frame in run.frames(WAIT):
        expected = moving(frame.number)
        assert np.array_equal(frame["points"].positions, expected.positions)
        heat = expected.channels["point"]["heat"]
        assert np.array_equal(frame["points"].channels["point"]["heat"], heat)
    # known from the third time on: the first sight is a sample, the second the whole
    assert max(sizes[2:]) < 0.8 * sizes[0]


def test_the_host_may_fill_its_arrays_again_at_once(client: Client) -> None:
    run = client.submit(
        echo_graph(), run="aliased", animated=["points"], frames="4", keep_frames=False
    )
    mine = moving(0)
    for frame in range(1, 5):
        mine.positions[:] = frame
        run.send_input("points", mine, frame)
    for frame in run.frames(WAIT):
        assert np.all(frame["points"].positions == frame.number)


def test_a_run_pauses_changes_its_parameters_and_goes_on(
    client: Client, server: ServerProcess
) -> None:
    run = client.submit(sparks(), {"seeds": seeds()}, run="changed", frames="200")
    wait_for(run, "frame", frame=3)
    run.pause()
    wait_for(run, "state", state="paused")
    run.set("GravityForce.acceleration=0 9.81 0")
    run.checkpoint()
    run.resume()
    changed = wait_for(run, "changed")["frame"]
    wait_for(run, "checkpoint", frame=changed)
    wait_for(run, "frame", frame=changed + 2)
    run.cancel()
    with pytest.raises(Cancelled):
        run.wait(WAIT)
    cache = FrameCacheReader(server.root / "changed" / "cache")
    last = cache.frames()[-1]
    assert last > changed
    solver = Solver(sparks(), {"seeds": seeds()}, comm=SERIAL)
    solver.run(changed - 1)
    other = Solver(
        sparks().set("GravityForce.acceleration", "0 9.81 0"), {"seeds": seeds()}, comm=SERIAL
    )
    other.restore(solver.state())
    other.run(last - changed)
    assert_same_particles(other.outputs()[OBJECT], cache.read(last, OBJECT))


def test_a_cancelled_run_is_taken_up_and_nothing_comes_twice(
    client: Client, server: ServerProcess
) -> None:
    run = client.submit(sparks(), {"seeds": seeds()}, run="again", frames="40", credit=3)
    numbers = []
    for frame in run.frames(WAIT):
        numbers.append(frame.number)
        if frame.number == 4:
            run.cancel()
            break
    with pytest.raises(Cancelled):
        numbers += [frame.number for frame in run.frames(WAIT)]
    reached = numbers[-1]
    run.resume(frames=str(reached + 4))
    run.detach()
    with Client(server.endpoint, name="another") as other:
        attached = other.attach("again", after=reached)
        numbers += [frame.number for frame in attached.frames(WAIT)]
    assert numbers == list(range(1, reached + 5))
    with pytest.raises(Refused, match="there is a run"):
        client.submit(sparks(), {"seeds": seeds()}, run="again")
    client.remove("again")
    assert not (server.root / "again").exists()


def test_only_the_manifest_is_sent_if_that_is_asked_for(client: Client) -> None:
    run = client.submit(
        sparks(), {"seeds": seeds()}, run="manifest", frames="3", results="manifest"
    )
    for frame in run.frames(WAIT):
        assert frame.nbytes == 0 and frame.objects == [OBJECT]
        assert frame[OBJECT].point_count == 400 or frame.number > 1


def test_what_cannot_be_run_is_refused_at_once_and_what_fails_says_why(client: Client) -> None:
    inputs = {"seeds": seeds()}
    with pytest.raises(Refused, match='run option "rank" is unknown; did you mean "ranks"'):
        client.submit(sparks(), inputs, run="bad", rank=2)
    with pytest.raises(Refused, match='"ten" is neither a number of frames nor a range'):
        client.submit(sparks(), inputs, run="bad", frames="ten")
    with pytest.raises(Refused, match=r"run name '\.\./out'"):
        client.submit(sparks(), inputs, run="../out")
    broken = seeds()
    broken.positions[3] = np.nan
    run = client.submit(sparks(), {"seeds": broken}, run="nan", frames="3")
    with pytest.raises(RunFailed, match=r'input "seeds".*nan'):
        run.wait(WAIT)
    run = client.submit(sparks(), {"seeds": seeds()}, run="fine", frames="2")
    with pytest.raises(Refused, match=r"GravityForce has no parameter"):
        run.set("GravityForce.acelleration=0 0 0")
    run.wait(WAIT)


def test_more_runs_than_places_wait_for_their_turn(client: Client) -> None:
    runs = [
        client.submit(sparks(), {"seeds": seeds()}, run=f"queue{n}", frames="3") for n in range(3)
    ]
    state = "collecting"
    while state == "collecting":  # its inputs are on their way
        state = runs[2].status()["state"]
    assert state == "queued"
    for run in runs:
        run.wait(WAIT)
    shown = client.status("queue2")["runs"][0]
    assert shown["state"] == "finished" and shown["progress"]["frame"] == 3
    assert shown["statistics"]["ranks"][0]["memory"] > 1e7


def test_many_inputs_in_any_order_and_a_host_that_comes_later(
    client: Client, server: ServerProcess
) -> None:
    names = [f"points{n}" for n in range(6)]
    graph = Graph(
        "six",
        nodes={
            **{f"in{n}": HostInput(stream=name) for n, name in enumerate(names)},
            **{f"out{n}": Output(stream=name) for n, name in enumerate(names)},
        },
        connections=[(f"in{n}.out", f"out{n}.in") for n in range(6)],
    )
    run = client.submit(graph, run="six", animated=names, frames="3", keep_frames=False)
    wait_for(run, "need")
    run.detach()  # it has heard what is needed, and goes
    with Client(server.endpoint) as later:
        functions = dict.fromkeys(reversed(names), moving)
        attached = later.attach("six", inputs=functions)
        for frame in attached.frames(WAIT):
            assert frame.objects == names
            expected = moving(frame.number).positions
            assert all(np.array_equal(frame[name].positions, expected) for name in names)


def test_a_change_that_cannot_be_made_is_told_and_the_run_goes_on(client: Client) -> None:
    run = client.submit(sparks(), {"seeds": seeds()}, run="unchanged", frames="30")
    run.set("Sparks/ParticleObject.input=other")
    warning = wait_for(run, "warning")
    assert "cannot be changed in a run" in str(warning["message"])
    run.wait(WAIT)


def test_a_mistake_in_an_argument_is_told_where_it_was_made(client: Client) -> None:
    run = client.submit(sparks(), {"seeds": seeds()}, run="once", frames="2")
    with pytest.raises(FormatError, match=r"credit is a float"):
        client.attach("once", credit=2.0)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="there is a run"):
        client.submit(sparks(), {"seeds": seeds()}, run="once", frames="2")
    assert [frame.number for frame in run.frames(WAIT)] == [1, 2]  # it still hears


def test_a_server_that_was_just_told_to_stop_is_not_found_again(tmp_path: Path) -> None:
    for name in ("first", "second"):  # the second finds the folder while the first server ends
        with connect(root=tmp_path / "root") as one:
            run = one.submit(sparks(), {"seeds": seeds()}, run=name, frames="2")
            assert [frame.number for frame in run.frames(WAIT)] == [1, 2]
            one.stop_server()


def test_a_server_keeps_to_the_limits_it_was_given(tmp_path: Path) -> None:
    limits = ("--most-ranks", "2", "--memory-limit", "0.001")
    with ServerProcess(tmp_path / "root", *limits) as server, Client(server.endpoint) as client:
        with pytest.raises(Refused, match="allows 2"):
            client.submit(sparks(), {"seeds": seeds()}, run="wide", frames="2", ranks=3)
        run = client.submit(sparks(), {"seeds": seeds()}, run="large", frames="5000")
        with pytest.raises(RunFailed, match=r"limit of 0\.001 GB"):
            run.wait(WAIT)
        assert run.state == "stopped"
