"""Live runs on several ranks: the frames of one rank, whichever way they come."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.solver import Solver
from loki_vfx.bridges.live.client import Client, RunFailed
from tests.live.live_scenes import (
    OBJECT,
    ServerProcess,
    assert_same_particles,
    seeds,
    sparks,
)

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

WAIT = 240.0
FRAMES = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("runs") / "root") as made:
        yield made


def growing(frame: int) -> Points:
    points = seeds(200 + 50 * frame)
    points.positions[:] *= 1.0 + 0.1 * frame
    return points


def in_process(inputs: dict[str, object]) -> dict[int, Points]:
    solver = Solver(sparks(), inputs, comm=SERIAL)
    frames = {1: solver.outputs()[OBJECT]}
    for _ in range(FRAMES - 1):
        solver.advance_frame()
        frames[solver.frame] = solver.outputs()[OBJECT]
    return frames


@pytest.mark.parametrize(("ranks", "keep_frames"), [(4, True), (2, False)])
def test_frames_on_ranks_are_those_of_the_solver_in_this_process(
    server: ServerProcess, ranks: int, keep_frames: bool
) -> None:
    expected = in_process({"seeds": seeds()})
    with Client(server.endpoint) as client:
        run = client.submit(
            sparks(), {"seeds": seeds()}, run=f"ranks{ranks}", frames=str(FRAMES), ranks=ranks,
            keep_frames=keep_frames,
        )  # fmt: skip
        found = {frame.number: frame[OBJECT] for frame in run.frames(WAIT)}
        assert list(found) == list(expected)
        for number, stream in found.items():
            # particles have no neighbours here: the number of ranks changes no digit
            assert_same_particles(expected[number], stream)
        if keep_frames:
            shown = run.status()
            assert len(shown["statistics"]["ranks"]) == ranks == shown["ranks"]


def test_inputs_that_change_reach_all_ranks(server: ServerProcess) -> None:
    expected = in_process({"seeds": growing})
    with Client(server.endpoint) as client:
        run = client.submit(
            sparks(), {"seeds": growing}, run="animated", frames=str(FRAMES), ranks=2
        )
        run.set("GravityForce.acceleration=0 -9.81 0")  # the same value: all ranks rebuild
        for frame in run.frames(WAIT):
            assert_same_particles(expected[frame.number], frame[OBJECT])


def test_what_fails_on_ranks_says_why(server: ServerProcess) -> None:
    broken = seeds()
    broken.positions[7] = np.inf
    with Client(server.endpoint) as client:
        run = client.submit(sparks(), {"seeds": broken}, run="broken", frames="3", ranks=2)
        with pytest.raises(RunFailed, match=r'input "seeds"'):
            run.wait(WAIT)
