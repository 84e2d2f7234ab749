"""Stream Sink: frames that are not kept, only sent: gathered on rank 0 and handed to the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loki_core.parallel.comm import Communicator
from loki_vfx.bridges.live.worker_link import WorkerLink
from loki_vfx.serialization.codec import encode
from loki_vfx.serialization.frame_cache import Manifest
from loki_vfx.serialization.rank_parts import gather_streams


class StreamSink:
    """Sends each frame as it is; a run waits while the client has no room for one more."""

    is_kept = False

    def __init__(self, comm: Communicator, link: WorkerLink | None) -> None:
        self._comm = comm
        self._link = link

    def check(self, manifest: Manifest) -> None:
        """Nothing is kept, so no folder can be the wrong one."""

    def open(self, manifest: Manifest) -> None:
        """Nothing is kept, so nothing is opened."""

    def write(self, frame: int, streams: Mapping[str, Any], statistics: dict[str, Any]) -> None:
        """Gather a frame and hand it over. Collective."""
        whole = gather_streams(self._comm, streams)
        if self._link is not None:
            objects, parts = [], []
            for path, stream in whole.items():
                encoded = encode(stream)
                objects.append([path, len(encoded)])
                parts += encoded
            self._link.send_result(frame, objects, statistics, parts)
        self._comm.patient_barrier()  # the client may take its time

    def change(self, manifest: Manifest) -> None:
        """The next frame is of the changed setup; nothing else has to know."""

    def close(self) -> None:
        """Nothing is open."""
