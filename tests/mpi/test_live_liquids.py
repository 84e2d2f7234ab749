"""Examples with liquids through the live bridge: the frames of the Solver, on any ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.solver import Solver
from loki_vfx.bridges.live.client import Client
from loki_vfx.bridges.standalone.gallery import find_example
from loki_vfx.bridges.standalone.scene import apply_changes
from tests.live.live_scenes import ServerProcess, by_id

pytest.importorskip("mpi4py")
pytestmark = [pytest.mark.mpi, pytest.mark.slow]

WAIT = 400.0
FRAMES = 4
#: Options that make scenes small, and the Objects that are compared.
SCENES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "dam_break": ({"voxel_size": 0.1}, ("Water/Particles",)),
    "waterfall": ({"voxel_size": 0.2}, ("Water/Particles", "Wind/Air")),
    "hair_in_water": (
        {"voxel_size": 0.08, "strands": 40, "vertices": 10},
        ("Water/Particles", "Weed/Stems"),
    ),
    "honey": ({"voxel_size": 0.0025}, ("Honey/Particles",)),
}
TOLERANCE = 1.0e-6  # m and m/s, with what is below


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("runs") / "root") as made:
        yield made


def values(stream: Any) -> dict[str, np.ndarray]:
    """What a stream holds, in an order that does not depend on ranks."""
    if isinstance(stream, Points):
        return {name: by_id(stream)[name] for name in ("id", "position", "velocity")}
    if hasattr(stream, "to_dense"):
        return {"velocity": stream.to_dense("velocity")}
    order = np.argsort(stream.channels["primitive"]["id"])  # of strands of one length
    found = {"position": stream.positions, "velocity": stream.channels["point"]["velocity"]}
    return {name: array.reshape(len(order), -1)[order] for name, array in found.items()}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", SCENES)
def test_live_frames_of_liquids_are_those_of_the_solver(
    server: ServerProcess, name: str, ranks: int
) -> None:
    options, objects = SCENES[name]
    setup, inputs = find_example(name).build(**options)
    solved = [path for path, _ in setup.behaviors() if "Pressure" in path or "Viscosity" in path]
    precise = [f"{path}.tolerance=1e-10" for path in solved]
    setup = apply_changes(setup, ["precision=double", *precise])
    solver = Solver(setup, inputs, comm=SERIAL)
    with Client(server.endpoint) as client:
        run = client.submit(
            setup, inputs, run=f"{name}{ranks}", frames=str(FRAMES), ranks=ranks, threads=1
        )
        numbers = []
        for frame in run.frames(WAIT):
            numbers.append(frame.number)
            if frame.number > 1:
                solver.advance_frame()
            expected = solver.outputs()
            for path in objects:
                found, wanted = values(frame[path]), values(expected[path])
                for channel, given in wanted.items():
                    allowed = 0.0 if ranks == 1 else TOLERANCE
                    place = f"{path}.{channel} of frame {frame.number}"
                    np.testing.assert_allclose(
                        found[channel], given, rtol=0, atol=allowed, err_msg=place
                    )
    assert numbers == list(range(1, FRAMES + 1))
