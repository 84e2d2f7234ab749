"""A live run on several ranks that is rewound: the frames of one rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loki_core.data.points import Points
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.solver import Solver
from loki_vfx.bridges.live.client import Client
from loki_vfx.serialization.checkpoint_file import checkpoint_frames
from loki_vfx.serialization.frame_cache import FrameCacheReader
from tests.live.live_scenes import OBJECT, ServerProcess, assert_same_particles, seeds, sparks

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

WAIT = 240.0
LAST = 7


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("runs") / "root") as made:
        yield made


def growing(frame: int) -> Points:
    return seeds(200 + 50 * frame)


def shrinking(frame: int) -> Points:
    return seeds(800 - 50 * frame)


@pytest.mark.parametrize("ranks", [2, 1])
def test_frames_on_ranks_are_computed_anew_with_what_has_changed(
    server: ServerProcess, ranks: int
) -> None:
    changed = sparks().set("GravityForce.acceleration", "0 9.81 0")
    former = Solver(sparks(), {"seeds": growing}, comm=SERIAL)
    former.run(2)
    expected = Solver(
        changed, {"seeds": lambda at: growing(at) if at < 5 else shrinking(at)}, comm=SERIAL
    )
    expected.restore(former.state())
    with Client(server.endpoint) as client:
        run = client.submit(
            sparks(), {"seeds": growing}, run=f"to{ranks}", frames=str(LAST), ranks=2,
            checkpoint_every=2,
        )  # fmt: skip
        run.wait(WAIT)
        cache = server.root / f"to{ranks}" / "cache"
        assert checkpoint_frames(cache) == [3, 5, 7]
        assert run.rewind(5, changed, {"seeds": shrinking}, ranks=ranks)["from"] == 3
        found = {frame.number: frame[OBJECT] for frame in run.frames(WAIT)}
        assert list(found) == [5, 6, 7]
        while expected.frame < LAST:
            expected.advance_frame()
            if expected.frame >= 5:
                # particles have no neighbours here: the number of ranks changes no digit
                assert_same_particles(expected.outputs()[OBJECT], found[expected.frame])
        assert FrameCacheReader(cache).verify() == []
