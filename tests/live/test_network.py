"""Networks that are cut or slow: a proxy between client and server plays the cable."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from loki_core.data.points import Points
from loki_vfx.bridges.live.client import Client
from tests.live.live_scenes import ServerProcess, assert_same_files, seeds, sparks

WAIT = 120.0
NEAR, FAR = "127.0.0.2", "127.0.0.1"


class Cable:
    """Forwards connections from one loopback address to another, until it is cut."""

    def __init__(self, port: int, *, bytes_per_second: float = 0.0) -> None:
        self.port = port
        self.pace = bytes_per_second
        self.is_cut = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server((NEAR, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            far = socket.create_connection((FAR, self.port))
            self._pairs.append((near, far))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.pace:
                    time.sleep(len(data) / self.pace)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self.is_cut = True
        pairs, self._pairs = self._pairs, []
        for near, far in pairs:
            for one in (near, far):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def close(self) -> None:
        self.cut()
        self._listener.close()


def ports_of(server: ServerProcess) -> tuple[int, int]:
    """The server's two TCP ports: its control port is told, its data port listens as well."""
    control = int(server.tcp.rpartition(":")[2])
    found = set()
    inodes = set()
    assert server.process is not None
    for path in Path(f"/proc/{server.process.pid}/fd").iterdir():
        target = path.readlink().name
        if target.startswith("socket:"):
            inodes.add(target[8:-1])
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        values = line.split()
        if values[3] == "0A" and values[9] in inodes:
            found.add(int(values[1].rpartition(":")[2], 16))
    [data] = found - {control}
    return control, data


@pytest.mark.parametrize("is_animated", [False, True])
def test_a_cut_cable_is_a_pause_and_no_frame_comes_twice(
    tmp_path: Path, settings_folder: Path, is_animated: bool
) -> None:
    def moving(frame: int) -> Points:
        return seeds(shift=0.01 * frame)

    inputs = {"seeds": moving if is_animated else seeds()}
    with ServerProcess(tmp_path / "root", "--listen", f"tcp://{FAR}:*") as server:
        cables = [Cable(port) for port in ports_of(server)]
        with Client(f"tcp://{NEAR}:{cables[0].port}") as client:
            run = client.submit(sparks(), inputs, run="cut", frames="60", credit=3)
            numbers, kinds, cuts = [], [], 0
            while True:
                event = run.next_event(WAIT)
                kinds.append(event.kind)
                if event.frame is not None:
                    numbers.append(event.frame.number)
                    if event.frame.number in (5, 20):
                        cuts += 1
                        for cable in cables:
                            cable.cut()
                elif event.kind == "disconnected":
                    for cable in cables:
                        cable.is_cut = False
                elif event.kind == "end":
                    break
            assert cuts == 2 and kinds.count("disconnected") == kinds.count("reconnected") >= 2
            assert numbers == list(range(1, 61))
            client.submit(sparks(), inputs, run="whole", frames="60").wait(WAIT)
        for cable in cables:
            cable.close()
        assert_same_files(server.root / "whole" / "cache", server.root / "cut" / "cache")


@pytest.mark.slow
def test_a_slow_network_slows_frames_and_not_the_solver(
    tmp_path: Path, settings_folder: Path
) -> None:
    with ServerProcess(tmp_path / "root", "--listen", f"tcp://{FAR}:*") as server:
        control, data = ports_of(server)
        cables = [Cable(control), Cable(data, bytes_per_second=1e5)]
        with Client(f"tcp://{NEAR}:{control}") as client:
            run = client.submit(sparks(), {"seeds": seeds()}, run="slow", frames="30", credit=2)
            numbers, finished_at = [], None
            while True:
                event = run.next_event(WAIT)
                if event.frame is not None:
                    numbers.append(event.frame.number)
                elif event.kind == "finished":
                    finished_at = len(numbers)
                elif event.kind == "end":
                    break
            assert numbers == list(range(1, 31))
            assert finished_at is not None and finished_at < 30  # frames wait on the disk
        for cable in cables:
            cable.close()
