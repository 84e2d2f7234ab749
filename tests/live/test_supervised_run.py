"""The state of a run in the server's care, with nobody at the other end of its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loki_vfx.bridges.live.delivery import Delivery, End, Result
from loki_vfx.bridges.live.protocol import Message
from loki_vfx.bridges.live.run_folder import RunFolder, RunOptions, RunRecord
from loki_vfx.bridges.live.segments import SegmentReader, SegmentWriter
from loki_vfx.bridges.live.supervised_run import JobPolicy, SupervisedRun
from loki_vfx.serialization.codec import encode
from tests.live.live_scenes import seeds, sparks


class DeadWorker:
    """A worker that has ended with a signal."""

    def finish(self) -> int:
        return -9

    def error_in_log(self) -> None:
        return None

    def log_tail(self) -> str:
        return "its last words"


@pytest.fixture
def run(tmp_path: Path) -> SupervisedRun:
    folder = RunFolder(tmp_path, "dust")
    folder.path.mkdir()
    record = RunRecord("dust", "owner", RunOptions(ranks=4), animated=["wind"], ranks=4)
    folder.write_document(sparks().to_document())
    made = SupervisedRun(
        folder,
        record,
        announce=lambda run, event: None,
        send_link=lambda identity, message: sent.append(message),
        send_data=lambda *arguments, **options: True,
        link_endpoint="ipc:///nowhere",
        segments=tmp_path / "segments",
        policy=JobPolicy(),
    )
    sent: list[Message] = []
    made.sent = sent  # type: ignore[attr-defined]
    return made


def tell(run: SupervisedRun, event: str, **values: Any) -> None:
    run.hear(Message("told", {"event": {"event": event, **values}}))


def crash(run: SupervisedRun) -> None:
    run._worker_ended(DeadWorker(), now=0.0)  # type: ignore[arg-type]


def test_a_run_that_dies_at_the_same_frame_each_time_is_given_up(run: SupervisedRun) -> None:
    ranks = []
    for attempt in range(1, 7):
        for frame in (1, 2, 3):  # computed again after each restart, and no step forward
            tell(run, "frame", frame=frame)
        crash(run)
        ranks.append(run.record.ranks)
        assert run.state == ("failed" if attempt == 6 else "restarting")
    assert ranks[:5] == [4, 4, 2, 1, 1]
    assert "6 times without a new frame" in run.record.message
    assert "its last words" in run.record.message


def test_a_new_frame_begins_the_count_again(run: SupervisedRun) -> None:
    for frame in range(1, 20):
        tell(run, "frame", frame=frame)
        crash(run)
        assert run.state == "restarting" and run.record.ranks == 4


def test_a_worker_that_stops_unasked_is_started_again(run: SupervisedRun) -> None:
    # A launcher that is killed closes rank 0's line, as a server does that ends.
    tell(run, "started", frames=[1, 9])
    tell(run, "cancelled", frame=3, checkpoint=3)
    assert run.state == "running"
    crash(run)
    assert run.state == "restarting"


def test_a_worker_that_stops_as_it_was_asked_has_ended(run: SupervisedRun) -> None:
    run.hear(Message("ready", {"run": "dust", "attempt": 0, "pid": 1, "host": "here"}))
    tell(run, "started", frames=[1, 9])
    run.cancel()
    tell(run, "cancelled", frame=3, checkpoint=3)
    crash(run)
    assert run.state == "cancelled"


def test_pause_and_resume_reach_a_solver_that_has_not_begun(run: SupervisedRun) -> None:
    run.set_state("starting")
    run.hear(Message("ready", {"run": "dust", "attempt": 0, "pid": 1, "host": "here"}))
    run.pause()
    run.resume({})
    orders = [one.content["order"] for one in run.sent if one.type == "order"]  # type: ignore[attr-defined]
    assert orders == ["pause", "resume"]
    tell(run, "started", frames=[1, 9])
    assert run.state == "running"


def test_what_the_solver_waits_for_is_told_to_whoever_comes_later(run: SupervisedRun) -> None:
    told: list[dict[str, Any]] = []
    run._announce = lambda _, event: told.append(event)
    run.hear(Message("need", {"frame": 7, "names": ["wind"]}))
    run.tell_needs()
    assert told == [{"event": "need", "frame": 7, "names": ["wind"]}] * 2
    run.hear(Message("consumed", {"name": "wind", "frame": 7}))
    run.tell_needs()
    assert len(told) == 2


def test_what_lies_on_the_disk_is_not_asked_for_again(run: SupervisedRun) -> None:
    told: list[dict[str, Any]] = []
    run._announce = lambda _, event: told.append(event)
    run.folder.write_input("wind", 7, encode(seeds(2)))
    run.hear(Message("ready", {"run": "dust", "attempt": 0, "pid": 1, "host": "here"}))
    for frame in (7, 8):  # asked before the solver has heard what it is given
        run.hear(Message("need", {"frame": frame, "names": ["wind"]}))
    assert [event["frame"] for event in told if event["event"] == "need"] == [8]


def test_a_change_is_replayed_in_the_order_of_frames(run: SupervisedRun) -> None:
    for frame, value in ((5, 1), (5, 2), (5, 1), (9, 3)):
        tell(run, "changed", frame=frame, changes=[f"substeps={value}"])
    assert run.changes() == ["substeps=1", "substeps=2", "substeps=1", "substeps=3"]


def test_frames_and_the_end_wait_for_a_client_that_has_not_joined(tmp_path: Path) -> None:
    joined, sent = False, []

    class Tracker:
        done = True

    def send(session: bytes, kind: str, *arguments: Any, track: bool = False) -> Any:
        if joined:
            sent.append(kind)
        return (Tracker() if track else True) if joined else None

    writer = SegmentWriter(tmp_path, 2)
    delivery = Delivery(RunFolder(tmp_path, "dust"), send, SegmentReader(tmp_path))
    delivery.attach(b"s", after=None, credit=5)
    for frame in (1, 2):
        segment, sizes = writer.write(encode(seeds(10)))
        delivery.add_result(Result(frame, [["Dust", len(sizes)]], {}, segment, sizes))
    delivery.pump(results="frames", is_kept=False, end=End("finished", "", 0))
    assert sent == [] and delivery.has_results
    joined = True
    delivery.wake()
    delivery.pump(results="frames", is_kept=False, end=End("finished", "", 0))
    assert sent == ["frame", "frame", "end"]
    assert sorted(delivery.freed_segments()) == ["segment_0", "segment_1"]
