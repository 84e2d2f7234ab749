"""Scenes and servers that the tests of the live bridge share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from loki_core.data.points import Points
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.solver_setup import Group, SolverSetup
from loki_vfx.bridges.live.local_server import discovered
from loki_vfx.serialization.frame_cache import FrameCacheReader

OBJECT = "Sparks/ParticleObject"
ROOT = Path(__file__).parent.parent.parent


def sparks(**settings: object) -> SolverSetup:
    """Particles that rise from seeds in a wind, live for a while and fall."""
    return SolverSetup(
        "sparks",
        Group(
            "Sparks",
            ParticleObject(
                input="seeds",
                source="seeds",
                rate=3000.0,
                velocity_spread=2.0,
                lifetime=0.2,
                lifetime_variation=0.5,
            ),
            FluidDragForce(velocity=(2.0, 0.0, 0.0)),
        ),
        GravityForce(),
        substeps=3,
        **settings,
    )


def seeds(count: int = 400, shift: float = 0.0) -> Points:
    random = np.random.default_rng(4)
    points = Points(random.random((count, 3)) + shift)
    points.set_channel("point", "heat", random.random(count))
    return points


def by_id(stream: Points) -> dict[str, np.ndarray]:
    """Channels in the order of ids, which does not depend on the number of ranks."""
    channels = {"position": stream.positions, **dict(stream.channels["point"].items())}
    order = np.argsort(channels["id"], kind="stable")
    return {name: values[order] for name, values in channels.items()}


def assert_same_particles(one: Points, other: Points) -> None:
    left, right = by_id(one), by_id(other)
    assert set(left) == set(right)
    for name, values in left.items():
        assert np.array_equal(values, right[name]), name


def assert_same_files(one: Path, other: Path) -> None:
    """Every frame of a cache is, byte for byte, that of another."""
    frames = FrameCacheReader(one).frames()
    assert frames == FrameCacheReader(other).frames()
    assert FrameCacheReader(other).verify() == []
    names = sorted(path.relative_to(one) for path in (one / "frames").rglob("*.loki"))
    assert names == sorted(path.relative_to(other) for path in (other / "frames").rglob("*.loki"))
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


class ServerProcess:
    """A real `wtloki serve`."""

    def __init__(self, root: Path, *options: str, **environment: str) -> None:
        self.root = root
        self.options = options
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it can be found."""
        words = [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line", "serve"]
        self.root.mkdir(mode=0o700, exist_ok=True)
        with (self.root / "server.out").open("ab") as out:
            self.process = subprocess.Popen(
                [*words, "--root", str(self.root), *self.options],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **self.environment},
            )
        end = time.monotonic() + 60.0
        while (found := discovered(self.root)) is None or found["pid"] != self.process.pid:
            assert self.process.poll() is None, (self.root / "server.out").read_text()
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.02)
        self.endpoint = found["endpoint"]
        self.tcp = found["tcp"]

    def kill(self) -> None:
        """Kill it as a power cut would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(60) == 0

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def log(self) -> str:
        return (self.root / "server.log").read_text()


def processes_of(folder: Path) -> list[int]:
    """Processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def events_in(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
