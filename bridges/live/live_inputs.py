"""Live inputs: streams that a host sends, brought to all ranks.

Rank 0 gets them from the server; the others get them from rank 0, by MPI. Every rank asks for the
same input at the same time, since the Solver does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loki_core.errors import Cancelled
from loki_core.parallel.comm import Communicator
from loki_vfx.bridges.live.segments import part_views
from loki_vfx.bridges.live.worker_link import WorkerLink, read_stream


class LiveInputs:
    """The inputs of a run: streams, and functions of the frame for what is animated."""

    def __init__(self, comm: Communicator, link: WorkerLink | None) -> None:
        self._comm = comm
        self._link = link

    def collect(self, names: Sequence[str], animated: Sequence[str]) -> dict[str, Any]:
        """Return all inputs by name. Collective."""
        inputs: dict[str, Any] = {name: self.read(name, None) for name in sorted(names)}
        inputs |= {name: AnimatedInput(self, name) for name in sorted(animated)}
        return inputs

    def read(self, name: str, frame: int | None) -> Any:
        """Return an input on all ranks; wait for it if need be. Collective.

        Raises:
            Cancelled: The run is to stop, and the input has not come.
        """
        parts: list[Any] | None = None
        if self._link is not None:
            parts = self._link.input_parts(name, frame)
        self._comm.patient_barrier()  # a host may take its time
        count = 0 if parts is None else len(parts)
        count = int.from_bytes(self._comm.broadcast(count.to_bytes(4, "little")), "little")
        if count == 0:
            stopped = Cancelled(f'stopped on request while waiting for input "{name}"')
            stopped.together = True
            raise stopped
        if self._comm.size > 1:
            views: list[Any] = [None] * count if parts is None else part_views(parts)
            parts = [self._comm.broadcast(view) for view in views]
        assert parts is not None
        place = f'input "{name}"' if frame is None else f'input "{name}" of frame {frame}'
        return read_stream(parts, label=place)


class AnimatedInput:
    """A stream that differs from frame to frame. The last one stays, and that of the first frame.

    Whoever makes a Solver asks for the start frame several times; whoever runs it asks for each
    frame once.
    """

    def __init__(self, inputs: LiveInputs, name: str) -> None:
        self._inputs = inputs
        self._name = name
        self._kept: dict[int, Any] = {}

    def __call__(self, frame: int) -> Any:
        if frame not in self._kept:
            stream = self._inputs.read(self._name, frame)
            first = min(self._kept, default=frame)
            self._kept = {first: self._kept.get(first), frame: stream}
        return self._kept[frame]
