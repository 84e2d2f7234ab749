"""Any process killed at any moment: the run ends with the frames of an undisturbed one.

Kinds: a rank, MPI's launcher, its proxy, the server (a new one is started, as a service manager
would), and the host (another one takes the run up).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loki_vfx.bridges.live.client import Client
from loki_vfx.serialization.frame_cache import whole_frames
from tests.live.live_scenes import (
    OBJECT,
    ROOT,
    ServerProcess,
    assert_same_files,
    assert_same_particles,
    processes_of,
    seeds,
    sparks,
)

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

FRAMES = 80
WAIT = 300.0
KINDS = ("rank", "launcher", "proxy", "server", "host")
NEVER = ("--restarts", "10000", "--fewer-ranks-after", "10000")

HOST = """
import sys
from loki_vfx.bridges.live.client import Client, Refused
from tests.live.live_scenes import seeds, sparks
endpoint, name, ranks, frames = sys.argv[1:]
client = Client(endpoint, reconnect_seconds=300.0)
try:
    run = client.submit(sparks(balance_every=4), {"seeds": seeds()}, run=name, frames=frames,
                        ranks=int(ranks), threads=1, checkpoint_every=10)
except Refused as error:
    assert error.code == "exists", error
    run = client.attach(name)
for frame in run.frames():
    print(frame.number, flush=True)
"""


class Stage:
    """A server, a host, and somebody who kills them."""

    def __init__(self, root: Path, ranks: int, seed: int) -> None:
        self.server = ServerProcess(root, *NEVER)
        self.ranks = ranks
        self.random = random.Random(seed)
        self.kills: list[str] = []

    def start_host(self, name: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", HOST, self.server.endpoint, name]
        with (self.server.root / "host.out").open("ab") as out:
            return subprocess.Popen(
                [*words, str(self.ranks), str(FRAMES)], cwd=ROOT, stdout=out, stderr=out
            )

    def run(self, name: str, kills: int) -> None:
        """Compute a run to its end, with so many kills at random moments."""
        host = self.start_host(name)
        end = time.monotonic() + WAIT
        while host.poll() is None:
            assert time.monotonic() < end, self.server.log()[-3000:]
            if len(self.kills) >= kills:
                time.sleep(0.1)
                continue
            time.sleep(self.random.uniform(0.0, 2.5))
            kind = self.random.choice(KINDS)
            if kind == "host":
                host.kill()
                host.wait()
                host = self.start_host(name)
                self.kills.append(kind)
            elif kind == "server":
                self.server.kill()
                self.server.start()
                self.kills.append(kind)
            elif self.kill_worker(name, kind):
                self.kills.append(kind)
        words = (self.server.root / "host.out").read_text()[-2000:]
        assert host.returncode == 0, words + self.server.log()[-3000:]

    def kill_worker(self, name: str, kind: str) -> bool:
        found = [pid for pid in processes_of(self.server.root / name) if kind_of(pid) == kind]
        if kind == "proxy":
            launchers = [
                pid for pid in processes_of(self.server.root / name) if kind_of(pid) == "launcher"
            ]
            found = [pid for one in launchers for pid in children_of(one)]
        if not found:
            return False
        try:
            os.kill(self.random.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


def kind_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    if words[0].endswith(b"mpiexec") or b"mpiexec" in words[1:2][0:1]:
        return "launcher"
    return "rank" if b"loki_vfx.bridges.live.worker" in words[:4] else "other"


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found.append(int(path.parent.name))
    return found


def undisturbed(stage: Stage) -> Path:
    with Client(stage.server.endpoint) as client:
        client.submit(
            sparks(balance_every=4), {"seeds": seeds()}, run="undisturbed", frames=str(FRAMES),
            ranks=stage.ranks, threads=1, checkpoint_every=10,
        ).wait(WAIT)  # fmt: skip
    return stage.server.root / "undisturbed" / "cache"


@pytest.mark.parametrize(
    ("ranks", "kills"),
    [
        (2, 3),
        pytest.param(2, 50, marks=pytest.mark.slow),
        pytest.param(4, 50, marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(3000)
def test_kills_at_random_moments_change_no_frame(tmp_path: Path, ranks: int, kills: int) -> None:
    stage = Stage(tmp_path / "root", ranks, seed=ranks + kills)
    expected = undisturbed(stage)
    assert whole_frames(expected) == list(range(1, FRAMES + 1))
    number = 0
    while len(stage.kills) < kills:
        number += 1
        stage.run(f"run{number}", kills)
        # with the same number of ranks: byte for byte
        assert_same_files(expected, stage.server.root / f"run{number}" / "cache")
    stage.server.stop()
    assert not processes_of(stage.server.root), "something is left running"
    if kills >= 50:
        assert {*stage.kills} == {*KINDS}


@pytest.mark.slow
def test_a_job_that_keeps_dying_goes_on_with_fewer_ranks(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "root", "--restarts", "5", "--fewer-ranks-after", "1") as server,
        Client(server.endpoint) as client,
    ):
        run = client.submit(
            sparks(), {"seeds": seeds()}, run="weak", frames="30", ranks=2, threads=1,
            checkpoint_every=2,
        )  # fmt: skip
        streams, is_killed = {}, False
        for frame in run.frames(WAIT):
            streams[frame.number] = frame[OBJECT]
            if frame.number == 5 and not is_killed:
                is_killed = True
                for pid in processes_of(server.root / "weak"):
                    os.kill(pid, signal.SIGKILL)
        assert run.status()["ranks"] == 1 and list(streams) == list(range(1, 31))
        run = client.submit(sparks(), {"seeds": seeds()}, run="alone", frames="30", ranks=1)
        for frame in run.frames(WAIT):
            # particles have no neighbours here: the number of ranks changes no digit
            assert_same_particles(frame[OBJECT], streams[frame.number])
