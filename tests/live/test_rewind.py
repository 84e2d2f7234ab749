"""Frames computed anew from one on: what stays, what comes again, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.errors import Cancelled
from loki_core.objects.particles.particles import ParticleObject
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from loki_graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_vfx.bridges.live.client import Client, Refused, Run, RunFailed
from loki_vfx.bridges.live.delivery import Delivery
from loki_vfx.bridges.live.run_folder import RunFolder, RunOptions, RunRecord
from loki_vfx.bridges.live.run_inputs import RunInputs
from loki_vfx.bridges.live.segments import SegmentReader
from loki_vfx.serialization.checkpoint_file import (
    checkpoint_frames,
    checkpoints_before,
    commit_checkpoint,
    write_rank_state,
)
from loki_vfx.serialization.codec import encode
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
LAST = 9
UPWARD = "0 9.81 0"


def upward() -> SolverSetup:
    return sparks().set("GravityForce.acceleration", UPWARD)


def bake(client: Client, name: str, inputs: object = None, scene: object = None) -> Run:
    """A finished run of nine frames with checkpoints of frames 4, 7 and 9."""
    run = client.submit(
        sparks() if scene is None else scene,
        {"seeds": seeds()} if inputs is None else inputs,  # type: ignore[arg-type]
        run=name,
        frames=str(LAST),
        threads=1,
        checkpoint_every=3,
        keep_checkpoints=10,
    )
    run.wait(WAIT)
    return run


def copied(folder: Path, to: Path) -> Path:
    # the run has told its last frame, and may just be replacing its manifest
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns(".*"))
    return to


def numbers(run: Run) -> list[int]:
    return [frame.number for frame in run.frames(WAIT)]


def frame_bytes(cache: Path, frame: int) -> bytes:
    return b"".join(one.read_bytes() for one in sorted(cache.rglob(f"{frame:06d}*.loki")))


def continued(
    before: Callable[[], Solver], after: Callable[[], Solver], *, checkpoint: int
) -> dict[int, Points]:
    """Frames of a Solver that takes the state of another one after a frame."""
    first, second = before(), after()
    first.run(checkpoint - 1)
    second.restore(first.state())
    frames = {}
    while second.frame < LAST:
        second.advance_frame()
        frames[second.frame] = second.outputs()[OBJECT]
    return frames


def solver(setup: SolverSetup, given: object = None) -> Callable[[], Solver]:
    return lambda: Solver(setup, {"seeds": seeds() if given is None else given}, comm=SERIAL)


def test_without_a_change_the_frames_are_the_same(
    client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    run = bake(client, "same")
    cache = server.root / "same" / "cache"
    before = copied(cache, tmp_path / "before")
    assert run.rewind(6) == {"frame": 6, "from": 4}
    assert numbers(run) == [6, 7, 8, 9]
    assert_same_files(before, cache)
    assert run.rewind(1) == {"frame": 1, "from": None}
    assert numbers(run) == list(range(1, LAST + 1))
    assert_same_files(before, cache)
    run.rewinds = 1  # as if the connection had been lost before the second
    run._take_up()
    assert numbers(run) == list(range(1, LAST + 1))


def test_changed_parameters_reach_frames_from_the_checkpoint_on(
    client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    run = bake(client, "changed")
    cache = server.root / "changed" / "cache"
    before = copied(cache, tmp_path / "before")
    assert run.rewind(6, upward())["from"] == 4
    found = {frame.number: frame[OBJECT] for frame in run.frames(WAIT)}
    expected = continued(solver(sparks()), solver(upward()), checkpoint=4)
    assert list(found) == [6, 7, 8, 9]
    for number, stream in found.items():
        assert_same_particles(expected[number], stream)
    for number in range(1, LAST + 1):
        assert (frame_bytes(before, number) == frame_bytes(cache, number)) == (number < 6)
    assert FrameCacheReader(cache).verify() == []
    assert checkpoint_frames(cache) == [4, 7, 9]


def test_a_rewind_equals_a_change_on_the_way(client: Client, server: ServerProcess) -> None:
    options = {"threads": 1, "checkpoint_every": 1, "keep_checkpoints": 300}
    changed = client.submit(sparks(), {"seeds": seeds()}, run="on_the_way", frames="300", **options)
    wait_for(changed, "frame", frame=2)
    changed.set(f"GravityForce.acceleration={UPWARD}")
    at = int(str(wait_for(changed, "changed")["frame"]))
    wait_for(changed, "frame", frame=at + 3)
    changed.cancel()
    with pytest.raises(Cancelled):
        changed.wait(WAIT)
    cache = server.root / "on_the_way" / "cache"
    last = FrameCacheReader(cache).frames()[-1]
    run = client.submit(sparks(), {"seeds": seeds()}, run="after_it", frames=str(last), **options)
    run.wait(WAIT)
    assert run.rewind(at + 1, upward()) == {"frame": at + 1, "from": at}
    run.wait(WAIT)
    assert_same_files(cache, server.root / "after_it" / "cache")


def test_changes_before_the_frame_stay_and_a_new_scene_has_its_own(
    client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    run = client.submit(
        sparks(), {"seeds": seeds()}, run="replayed", frames="300", checkpoint_every=1,
        keep_checkpoints=300, threads=1,
    )  # fmt: skip
    wait_for(run, "frame", frame=2)
    run.set(f"GravityForce.acceleration={UPWARD}")
    at = int(str(wait_for(run, "changed")["frame"]))
    wait_for(run, "frame", frame=at + 3)
    assert run.rewind(at + 1, frames=str(at + 3))["from"] == at
    run.wait(WAIT)
    cache = server.root / "replayed" / "cache"
    upwards = copied(cache, tmp_path / "upwards")
    run.rewind(at + 1, sparks())
    run.wait(WAIT)
    assert frame_bytes(upwards, at) == frame_bytes(cache, at)
    expected = Solver(sparks(), {"seeds": seeds()}, comm=SERIAL)
    expected.run(at + 2)
    reader = FrameCacheReader(cache)
    assert reader.frames()[-1] == at + 3
    assert_same_particles(expected.outputs()[OBJECT], reader.read(at + 3, OBJECT))
    assert frame_bytes(upwards, at + 3) != frame_bytes(cache, at + 3)


def test_static_inputs_are_sent_again_before_it_goes_on(client: Client) -> None:
    run = bake(client, "static")
    run.rewind(6, inputs={"seeds": seeds(shift=0.5)})
    expected = continued(solver(sparks()), solver(sparks(), seeds(shift=0.5)), checkpoint=4)
    for frame in run.frames(WAIT):
        assert_same_particles(expected[frame.number], frame[OBJECT])
    assert frame.number == LAST


def test_animated_inputs_are_asked_from_the_frame_on(client: Client) -> None:
    asked: dict[str, list[int]] = {"before": [], "after": []}

    def moving(which: str, speed: float) -> Callable[[int], Points]:
        def host(frame: int) -> Points:
            asked[which].append(frame)
            return seeds(shift=speed * frame)

        return host

    run = bake(client, "animated", {"seeds": moving("before", 0.1)})
    asked["before"].clear()
    assert run.rewind(6)["from"] == 4
    assert numbers(run) == [6, 7, 8, 9]
    assert asked["before"] == []  # the server has them
    run.rewind(6, inputs={"seeds": moving("after", 0.2)})
    found = {frame.number: frame[OBJECT] for frame in run.frames(WAIT)}
    assert asked == {"before": [], "after": [6, 7, 8, 9]}

    def switched(frame: int) -> Points:
        return seeds(shift=(0.1 if frame < 6 else 0.2) * frame)

    expected = Solver(sparks(), {"seeds": switched}, comm=SERIAL)
    for number in range(2, LAST + 1):
        expected.advance_frame()
        if number >= 6:
            assert_same_particles(expected.outputs()[OBJECT], found[number])


def test_a_graph_without_a_solver_is_evaluated_from_the_frame_on(client: Client) -> None:
    graph = Graph(
        "echo",
        nodes={"in": HostInput(stream="seeds"), "out": Output(stream="seeds")},
        connections=[("in.out", "out.in")],
    )
    run = bake(client, "echo", {"seeds": lambda frame: seeds(shift=frame)}, graph)
    run.rewind(7, inputs={"seeds": lambda frame: seeds(shift=-frame)})
    found = {frame.number: frame["seeds"] for frame in run.frames(WAIT)}
    assert list(found) == [7, 8, 9]
    for number, stream in found.items():
        assert np.array_equal(stream.positions, seeds(shift=-number).positions)


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_run_that_goes_on_is_rewound_at_once(
    client: Client, server: ServerProcess, tmp_path: Path, is_paused: bool
) -> None:
    name = f"going{is_paused}"
    run = client.submit(
        sparks(), {"seeds": seeds()}, run=name, frames="400", checkpoint_every=2, threads=1,
        keep_checkpoints=200, credit=50,
    )  # fmt: skip
    wait_for(run, "frame", frame=7)
    if is_paused:
        run.pause()
        wait_for(run, "state", state="paused")
    with Client(server.endpoint, name="another") as other:
        follower = other.attach(name)
        wait_for(follower, "data", frame=7)
        assert run.rewind(5, frames=str(LAST)) == {"frame": 5, "from": 3}
        for one in (run, follower):
            wait_for(one, "rewound", frame=5)
            assert numbers(one) == [5, 6, 7, 8, 9]
    bake(client, f"{name}_undisturbed")
    assert_same_files(server.root / f"{name}_undisturbed" / "cache", server.root / name / "cache")


def test_a_setup_of_another_structure_loses_no_frame(
    client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    run = bake(client, "structure")
    cache = server.root / "structure" / "cache"
    before = copied(cache, tmp_path / "before")
    more = SolverSetup(
        "sparks", *sparks().children, ParticleObject(name="More", input="seeds"), substeps=3
    )
    run.rewind(6, more)
    with pytest.raises(RunFailed, match=r"structure has changed.*state of frame 4.*no frame was"):
        run.wait(WAIT)
    assert_same_files(before, cache)
    assert checkpoint_frames(cache) == [4, 7, 9]
    assert run.rewind(8, sparks()) == {"frame": 6, "from": 4}  # the one before is still to be done
    assert numbers(run) == [6, 7, 8, 9]
    assert_same_files(before, cache)
    run.rewind(1, more)
    assert [frame.objects for frame in run.frames(WAIT)] == [["More", OBJECT]] * LAST


def test_what_cannot_be_rewound_is_refused_and_stays_as_it_is(
    client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    run = bake(client, "refused")
    cache = server.root / "refused" / "cache"
    before = copied(cache, tmp_path / "before")
    for frame in (0, LAST + 2):
        with pytest.raises(Refused, match=f"has frames 1 to 9.* and not to frame {frame}"):
            run.rewind(frame)
    with pytest.raises(Refused, match='has no input "sedes"'):
        run.rewind(4, inputs={"sedes": seeds()})
    with pytest.raises(Refused, match='run option "rank" is unknown'):
        run.rewind(4, rank=2)
    with pytest.raises(Refused, match="is not kept"):
        run.rewind(4, keep_frames=False)
    preview = client.submit(
        sparks(), {"seeds": seeds()}, run="preview", frames="2", keep_frames=False
    )
    preview.wait(WAIT)
    with pytest.raises(Refused, match="is not kept"):
        preview.rewind(1)
    assert run.status()["state"] == "finished"
    assert_same_files(before, cache)


def test_a_server_that_is_killed_rewinds_when_it_is_there_again(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "root") as server, Client(server.endpoint) as client:
        run = bake(client, "killed")
        cache = server.root / "killed" / "cache"
        before = copied(cache, tmp_path / "before")
        run.rewind(6, upward())
        server.kill()
        server.start()
        assert numbers(run)[-4:] == [6, 7, 8, 9]
        run.rewind(6, sparks())
        assert numbers(run) == [6, 7, 8, 9]
        assert_same_files(before, cache)


# -- without a server -----------------------------------------------------------------------------


def test_a_client_that_was_away_is_told_the_lowest_frame(tmp_path: Path) -> None:
    sent: list[tuple[bytes, str, dict[str, object]]] = []

    def send(session: bytes, kind: str, content: dict[str, object], *rest: object) -> bool:
        sent.append((session, kind, content))
        return True

    delivery = Delivery(RunFolder(tmp_path, "dust"), send, SegmentReader(tmp_path))
    delivery.rewind([30, 12, 25], None)
    away = delivery.attach(b"away", after=40, credit=1, rewinds=1)
    new = delivery.attach(b"new", after=20, credit=1)
    delivery.pump(results="frames", is_kept=True, end=None)
    assert sent == [(b"away", "rewound", {"run": "dust", "frame": 12, "rewinds": 3})]
    assert (away.delivered, new.delivered) == (11, 20)


def test_an_input_that_a_rewind_has_overtaken_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "dust")
    record = RunRecord("dust", "owner", RunOptions(), animated=["wind"])
    inputs = RunInputs(folder, record, tmp_path, lambda **given: None, 1 << 20)

    def put(version: int) -> int:
        words = {"session": b"s", "version": version, "base": None, "reused": None}
        taken = inputs.put("wind", 6, encode(seeds(2)), **words)  # type: ignore[arg-type]
        return len(taken)

    assert put(1) == 1 and folder.frames_of_input("wind") == [6]
    folder.rewind(6, document=None, inputs=["wind"])
    inputs.rewind(["wind"], b"s", 3)
    assert put(2) == 1 and folder.frames_of_input("wind") == []
    assert put(4) == 1 and folder.frames_of_input("wind") == [6]


def test_a_checkpoint_inside_a_frame_does_not_lead_to_its_beginning(tmp_path: Path) -> None:
    for frame, frame_begun in ((3, True), (5, True), (6, False)):
        write_rank_state(tmp_path, frame, {"x": 1})
        commit_checkpoint(tmp_path, frame, notes={"frame_begun": frame_begun})
    assert checkpoints_before(tmp_path, 8) == [3, 5, 6]
    assert checkpoints_before(tmp_path, 7) == [3, 5, 6]
    assert checkpoints_before(tmp_path, 6) == [3]
    assert checkpoints_before(tmp_path, 4) == []


def wait_for(run: Run, kind: str, **content: object) -> dict[str, object]:
    while True:
        event = run.next_event(WAIT)
        if event.kind == kind and content.items() <= event.content.items():
            return event.content
        assert event.kind != "end", (event, run.message)
