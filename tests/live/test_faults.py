"""Processes that are killed, disks that are full: what is left, and what goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loki_core.parallel.comm import SERIAL
from loki_vfx.bridges.live.client import Client, Run, RunFailed
from loki_vfx.bridges.live.local_server import discovered
from loki_vfx.bridges.standalone.runner import Runner
from loki_vfx.serialization.frame_cache import whole_frames
from tests.live.live_scenes import (
    ROOT,
    ServerProcess,
    assert_same_files,
    processes_of,
    seeds,
    sparks,
)

WAIT = 120.0
FRAMES = 60

CLIENT = """
import sys
from loki_vfx.bridges.live.client import Client
from tests.live.live_scenes import seeds, sparks
client = Client(sys.argv[1])
run = client.submit(sparks(), {"seeds": seeds()}, run=sys.argv[2], frames="60",
                    checkpoint_every=2, when_alone=sys.argv[3])
for frame in run.frames():
    print(frame.number, flush=True)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "cache"
    inputs = {"seeds": seeds()}
    Runner(sparks(), inputs, output=folder, frames=(1, FRAMES), comm=SERIAL, threads=1).run()
    return folder


def submit(client: Client, name: str, **options: object) -> Run:
    settings = {"frames": str(FRAMES), "checkpoint_every": 2, "threads": 1, **options}
    return client.submit(sparks(), {"seeds": seeds()}, run=name, **settings)


def eventually(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.02)


def test_a_killed_solver_goes_on_from_its_checkpoint(
    client: Client, server: ServerProcess, undisturbed: Path
) -> None:
    run = submit(client, "killed")
    numbers, states = [], []
    killed = 0
    while True:
        event = run.next_event(WAIT)
        if event.frame is not None:
            numbers.append(event.frame.number)
            if event.frame.number in (3, 9):  # the solver is ahead of us, but not by so much
                for pid in processes_of(server.root / "killed"):
                    os.kill(pid, signal.SIGKILL)
                killed += 1
        elif event.kind == "state":
            states.append(event.content["state"])
        elif event.kind == "end":
            break
    assert killed == 2 and states.count("restarting") == 2
    assert "failed" not in states and run.state == "finished"
    assert numbers == list(range(1, FRAMES + 1))  # each once, in order
    assert_same_files(undisturbed, server.root / "killed" / "cache")
    assert run.status()["restarts"] == 2


@pytest.mark.slow
def test_a_solver_that_keeps_ending_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "root", "--restarts", "2") as server,
        Client(server.endpoint) as client,
    ):
        run = submit(client, "hopeless")
        with pytest.raises(RunFailed, match=r"signal 9 .* 2 times without a new frame"):
            while True:
                event = run.next_event(WAIT)
                if event.kind == "state" and event.content["state"] == "starting":
                    for pid in processes_of(server.root / "hopeless"):
                        os.kill(pid, signal.SIGKILL)
                elif event.kind == "end":
                    run._raise_end(event.content["state"])
        run.resume()  # and when its cause is mended it goes on all the same
        run.wait(WAIT)


def test_a_killed_server_is_noticed_and_the_next_one_goes_on(
    tmp_path: Path, undisturbed: Path
) -> None:
    with ServerProcess(tmp_path / "root") as server, Client(server.endpoint) as client:
        run = submit(client, "orphan")
        numbers, kinds = [], []
        while True:
            event = run.next_event(WAIT)
            kinds.append(event.kind)
            if event.frame is not None:
                numbers.append(event.frame.number)
                if event.frame.number == 6:
                    server.kill()
            elif event.kind == "disconnected":
                assert "gone" in event.content["message"]
                # the solver ends by itself, with a checkpoint
                eventually(lambda: not processes_of(server.root / "orphan"), "its end")
                server.start()
            elif event.kind == "end":
                break
        assert kinds.count("disconnected") == 1 and kinds.count("reconnected") == 1
        assert numbers == list(range(1, FRAMES + 1))
    assert_same_files(undisturbed, server.root / "orphan" / "cache")
    assert not processes_of(server.root)


@pytest.mark.slow
@pytest.mark.parametrize("when_alone", ["continue", "stop"])
def test_a_killed_host_leaves_its_run_as_it_chose(
    client: Client, server: ServerProcess, undisturbed: Path, when_alone: str
) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", CLIENT, server.endpoint, f"host-{when_alone}", when_alone],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert host.stdout is not None
    assert host.stdout.readline().strip() == "1"
    host.kill()
    host.wait()
    host.stdout.close()
    name = f"host-{when_alone}"
    if when_alone == "stop":
        eventually(lambda: client.status(name)["runs"][0]["state"] == "stopped", "stop")
        assert "last client is gone" in client.status(name)["runs"][0]["message"]
        client._wire.ask("resume", {"run": name}).wait(WAIT)
    run = client.attach(name, after=1)
    assert [frame.number for frame in run.frames(WAIT)] == list(range(2, FRAMES + 1))
    assert_same_files(undisturbed, server.root / name / "cache")


@pytest.mark.slow
def test_a_stopped_server_leaves_a_checkpoint_and_the_next_one_goes_on(
    tmp_path: Path, undisturbed: Path
) -> None:
    server = ServerProcess(tmp_path / "root")
    with Client(server.endpoint) as client:
        run = submit(client, "evening", checkpoint_every=0)  # none but that of the stop
        for frame in run.frames(WAIT):
            if frame.number == 4:
                break
        server.stop()
    assert not processes_of(server.root)
    reached = whole_frames(server.root / "evening" / "cache")[-1]
    assert 4 <= reached < FRAMES
    server.start()
    with Client(server.endpoint) as client:
        run = client.attach("evening", after=reached)
        assert [one.number for one in run.frames(WAIT)] == list(range(reached + 1, FRAMES + 1))
    server.stop()
    assert_same_files(undisturbed, server.root / "evening" / "cache")


def test_a_full_disk_stops_the_run_with_whole_frames_and_says_what_is_needed(
    tmp_path: Path, undisturbed: Path
) -> None:
    root = tmp_path / "small"
    root.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1000k,mode=0700", "none", str(root)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("only root can make a small file system")
    server = ServerProcess(root)
    try:
        with Client(server.endpoint) as client:
            run = submit(client, "full", keep_checkpoints=1)
            with pytest.raises(RunFailed, match=r"no room on the disk.* frames left need about"):
                run.wait(WAIT)
            assert run.state == "stopped"
            frames = whole_frames(root / "full" / "cache")
            assert 1 < len(frames) < FRAMES and frames == list(range(1, len(frames) + 1))
            subprocess.run(["mount", "-o", "remount,size=64m", str(root)], check=True)
            run.resume()
            run.wait(WAIT)
        server.stop()
        assert_same_files(undisturbed, root / "full" / "cache")
    finally:
        server.stop()
        subprocess.run(["umount", str(root)], check=True)


def test_a_server_ends_when_its_folder_is_removed_and_leaves_that_of_the_next(
    tmp_path: Path,
) -> None:
    first = ServerProcess(tmp_path / "runs")
    with Client(first.endpoint) as client:
        client.submit(sparks(), {"seeds": seeds()}, run="endless", frames="1-100000")
        end = time.monotonic() + 60.0
        while client.status("endless")["runs"][0]["state"] != "running":
            assert time.monotonic() < end
            time.sleep(0.02)
        while (tmp_path / "runs").exists():  # the solver writes into it
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        with ServerProcess(tmp_path / "runs") as second:
            assert first.process is not None and first.process.wait(60) is not None
            assert processes_of(tmp_path / "runs" / "endless") == []
            found = discovered(tmp_path / "runs")
            assert found is not None and found["endpoint"] == second.endpoint
