"""The live bridge: frames there and back, cancel, a thousand clients, checkpoints.

Everything is real: `wtloki serve` in a process of its own, its solver in another, and clients here
and in further processes. The echo that a round trip is compared with sends the same parts through
the same kind of socket to a process that does nothing but send them back.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zmq

from loki_core.data.points import Points
from loki_core.errors import Cancelled
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operating_system import resident_bytes, shared_memory_folder
from loki_core.solver_setup import SolverSetup
from loki_graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_vfx.bridges.live.client import Client, Run
from loki_vfx.bridges.live.local_server import discovered

from ._measure import figure

CHANNELS = ("velocity", "colour", "force")  # with the position: 12 float32 a particle
CREDIT = 2
WAIT = 120.0

FOLLOWER = """
import sys
from loki_core.operating_system import forget_peak_resident_bytes, peak_resident_bytes
from loki_vfx.bridges.live.client import Client
client = Client(sys.argv[1])
forget_peak_resident_bytes()
before = peak_resident_bytes()
run = client.attach(sys.argv[2], credit=int(sys.argv[3]))
size = 0
for frame in run.frames(120.0):
    size = frame.nbytes
    float(frame["points"].positions.sum())
print((peak_resident_bytes() - before) / size)
"""


def run(quick: bool) -> dict[str, Any]:
    """Measure all figures."""
    count = 200_000 if quick else 1_000_000
    cycles = 120 if quick else 1000
    with local_server() as (root, endpoint):
        with Client(endpoint) as client:
            figures = {
                "frame_roundtrip_vs_echo": round_trip(client, count),
                "client_peak_frames_above_credit": client_peak(client, endpoint, count),
                "cancel_seconds": cancel(client, count),
            }
        figures |= many_clients(root, endpoint, cycles)
    figures["checkpoint_overhead"] = checkpoint_overhead(seconds=25.0 if quick else 75.0)
    return figures


@contextmanager
def local_server() -> Iterator[tuple[Path, str]]:
    """Serve a new folder while the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        words = [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line", "serve"]
        process = subprocess.Popen(
            [*words, "--root", str(root), "--end-when-idle", "300"], stdout=subprocess.DEVNULL
        )
        try:
            while (found := discovered(root)) is None:
                if process.poll() is not None:
                    raise RuntimeError("the server did not start")
                time.sleep(0.02)
            yield root, str(found["endpoint"])
        finally:
            process.terminate()
            process.wait()


def echo_graph() -> Graph:
    """A graph that gives back what it gets."""
    return Graph(
        "echo",
        nodes={"in": HostInput(stream="points"), "out": Output(stream="points")},
        connections=[("in.out", "out.in")],
    )


def particles(count: int) -> Points:
    """Particles with 12 single-precision numbers each."""
    random = np.random.default_rng(1)
    points = Points(random.random((count, 3), dtype=np.float32))
    for name in CHANNELS:
        points.set_channel("point", name, random.random((count, 3), dtype=np.float32))
    return points


def round_trip(client: Client, count: int, rounds: int = 15) -> dict[str, Any]:
    """Time a frame to rank 0 and back against the echo, turn by turn."""
    points = particles(count)
    arrays = [points.positions, *(points.channels["point"][name] for name in CHANNELS)]
    frames = str(rounds + 1)
    live = client.submit(
        echo_graph(), run="roundtrip", animated=["points"], frames=frames, keep_frames=False
    )
    with echo_process() as socket:
        ours, echo = [], []
        for frame in range(1, rounds + 2):
            for array in arrays:  # all of it is new, so all of it travels
                array += np.float32(1.0)
            start = time.perf_counter()
            live.send_input("points", points, frame)
            back = next_frame(live)["points"]
            ours.append(time.perf_counter() - start)
            assert np.array_equal(back.positions[:100], points.positions[:100])
            start = time.perf_counter()
            socket.send_multipart(arrays, copy=False)
            socket.recv_multipart(copy=False)
            echo.append(time.perf_counter() - start)
    live.wait(WAIT)
    # the first ones start processes and make memory
    ours, echo = sorted(ours[3:]), sorted(echo[3:])
    megabytes = sum(array.nbytes for array in arrays) / 1e6
    how = (
        f"{count:,} particles, {megabytes:.0f} MB, client to rank 0 and back through the server: "
        f"median {1e3 * ours[len(ours) // 2]:.0f} ms, best {1e3 * ours[0]:.0f}; ZeroMQ echo of "
        f"the same arrays: {1e3 * echo[len(echo) // 2]:.0f}, best {1e3 * echo[0]:.0f}; medians"
    )
    return figure(echo[len(echo) // 2] / ours[len(ours) // 2], "x", 0.5, "higher", how)


def next_frame(live: Run) -> Any:
    """Wait for the next frame."""
    while True:
        event = live.next_event(WAIT)
        if event.frame is not None:
            return event.frame


@contextmanager
def echo_process() -> Iterator[Any]:
    """Yield a socket whose other end sends everything back."""
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{folder}/echo.sock"
        process = multiprocessing.get_context("spawn").Process(target=_echo, args=(endpoint,))
        process.start()
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(endpoint)
        try:
            yield socket
        finally:
            socket.send(b"end")
            process.join()
            context.destroy(linger=0)


def _echo(endpoint: str) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)
    while True:
        parts = socket.recv_multipart(copy=False)
        if len(parts) == 2 and parts[1].bytes == b"end":
            break
        socket.send_multipart(parts, copy=False)
    context.destroy(linger=0)


def client_peak(client: Client, endpoint: str, count: int) -> dict[str, Any]:
    """Let another process follow a run, and ask it how much memory that took."""
    client.submit(
        echo_graph(), {"points": particles(count)}, run="peak", frames="25", keep_frames=False,
        credit=0,
    )  # fmt: skip
    words = [sys.executable, "-c", FOLLOWER, endpoint, "peak", str(CREDIT)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    value = float(done.stdout) - CREDIT
    how = f"peak memory of a client over 25 frames, in frames, less its credit of {CREDIT}"
    return figure(value, "frames", 0.5, "lower", how)


def cancel(client: Client, count: int, rounds: int = 5) -> dict[str, Any]:
    """Time from cancel to the state "cancelled" while frames stream."""
    times = []
    for number in range(rounds):
        live = client.submit(
            echo_graph(), {"points": particles(count)}, run=f"cancel{number}", frames="100000",
            keep_frames=False, credit=CREDIT,
        )  # fmt: skip
        for frame in live.frames(WAIT):
            if frame.number == 10:
                break
        start = time.perf_counter()
        live.cancel()
        while live.state != "cancelled":
            live.next_event(WAIT)
        times.append(time.perf_counter() - start)
    megabytes = 48e-6 * count
    how = (
        f"worst of {rounds}: from cancel to the solver's end, while {megabytes:.0f} MB frames come"
    )
    return figure(max(times), "s", 0.3, "lower", how)


def many_clients(root: Path, endpoint: str, cycles: int) -> dict[str, Any]:
    """Connect, submit, cancel, remove and leave, again and again; look at what is left."""
    setup = SolverSetup("tiny", ParticleObject(input="seeds"), GravityForce())
    seeds = Points(np.random.default_rng(0).random((10, 3)))
    server = int(discovered(root)["pid"])  # type: ignore[index]
    first = cycles // 5
    resources, memory = {}, {}
    for cycle in range(1, cycles + 1):
        with Client(endpoint) as client:
            live = client.submit(setup, {"seeds": seeds}, run="cycle", frames="2")
            live.cancel()
            while live.state != "cancelled":
                live.next_event(WAIT)
            client.remove("cycle")
        if cycle in (10, cycles):
            time.sleep(1.0)
            resources[cycle] = _resources(server, root)
        if cycle in (first, cycles):
            memory[cycle] = (resident_bytes(server), resident_bytes(os.getpid()))
    leaked = sum(max(0, b - a) for a, b in zip(resources[10], resources[cycles], strict=True))
    growth = max(b / a - 1.0 for a, b in zip(memory[first], memory[cycles], strict=True))
    cycle_words = f"{cycles} cycles of connect, submit, cancel, remove, disconnect"
    kinds = ("server descriptors", "client descriptors", "processes", "files", "shared memory")
    counts = ", ".join(
        f"{kind} {a} to {b}"
        for kind, a, b in zip(kinds, resources[10], resources[cycles], strict=True)
    )
    return {
        "leaked_after_1000_cycles": figure(
            leaked, "things", 0, "lower", f"{cycle_words}: {counts}"
        ),
        "memory_growth_200_to_1000": figure(
            growth, "", 0.01, "lower", f"of server or client, between cycles {first} and {cycles}"
        ),
    }


def _resources(server: int, root: Path) -> tuple[int, ...]:
    served = psutil.Process(server)
    return (
        served.num_fds(),
        psutil.Process().num_fds(),
        len(served.children()),
        sum(1 for _ in root.rglob("*")),
        sum(1 for one in shared_memory_folder().glob(f"loki-*-{server}") for _ in one.rglob("*")),
    )


def checkpoint_overhead(seconds: float) -> dict[str, Any]:
    """Run the hair of the gallery for a while, as everybody does, and add up its checkpoints."""
    from loki_core.parallel.comm import SERIAL
    from loki_vfx.bridges.standalone.runner import Runner
    from loki_vfx.bridges.standalone.scene import build_example

    scene = build_example("hair_in_wind", {})
    with tempfile.TemporaryDirectory() as folder:
        events: list[dict[str, Any]] = []
        start = 0.0

        def listen(event: dict[str, Any]) -> None:
            nonlocal start
            events.append(event)
            if event["event"] == "frame" and event["frame"] == 2:
                start = time.perf_counter()  # kernels are loaded
            if start and time.perf_counter() - start > seconds:
                runner.cancel()

        runner = Runner(
            scene.setup,
            scene.inputs,
            output=Path(folder) / "cache",
            frames=(1, 100_000),
            comm=SERIAL,
            listener=listen,
        )
        with suppress(Cancelled):
            runner.run()
        spent = time.perf_counter() - start
        log = (Path(folder) / "cache" / "log.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in log if '"checkpoint"' in line]
    told = [one["seconds"] for one in written if one["event"] == "checkpoint"][
        :-1
    ]  # not the stop's
    how = (
        f"hair_in_wind, {spent:.0f} s, {len(told)} checkpoints at the default interval, "
        f"{sum(told):.2f} s in all"
    )
    return figure(sum(told) / spent, "of the time", 0.05, "lower", how)
