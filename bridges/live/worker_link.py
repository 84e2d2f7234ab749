"""The link of rank 0 to the server: events and frames out, orders and inputs in.

A thread owns the socket, so that orders are heard while a Task runs and frames leave while the
next one is computed. Bulk goes through segments, or through the files of kept inputs.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError
from loki_vfx.bridges.live.buffer_pool import BufferPool
from loki_vfx.bridges.live.protocol import (
    CONTROL_PART_BYTES,
    LINK_KINDS,
    Message,
    message_parts,
    read_message,
)
from loki_vfx.bridges.live.security import credentials_for
from loki_vfx.bridges.live.segments import SegmentReader, SegmentWriter, read_parts
from loki_vfx.bridges.live.sockets import (
    POLLIN,
    Mailbox,
    Poller,
    connect,
    new_context,
    receive,
    send,
)
from loki_vfx.serialization.codec import decode

#: Variables in which the server tells its workers how to find it, and how to run.
ENDPOINT, IDENTITY, ATTEMPT, SEGMENTS, THREADS = (
    "LOKI_LINK_ENDPOINT",
    "LOKI_LINK_IDENTITY",
    "LOKI_LINK_ATTEMPT",
    "LOKI_LINK_SEGMENTS",
    "LOKI_LINK_THREADS",
)
SECONDS_BETWEEN_BEATS = 1.0
RESULT_SEGMENTS = 3
_SECONDS_TO_SAY_GOODBYE = 5.0


class WorkerLink:
    """What rank 0 says and hears. Methods may be called from the main thread at any time.

    Args:
        endpoint: The server's private socket.
        identity: Tells the server which start of which run this is.
        folder: The run's folder, for kept inputs.
        segments: Folder of shared memory; `in` is the server's, `out` is ours.
        on_cancel: Is called, in the link's thread, when the run is to stop.
    """

    def __init__(
        self,
        endpoint: str,
        identity: bytes,
        *,
        run: str,
        attempt: int,
        folder: Path,
        segments: Path,
        on_cancel: Callable[[], None],
    ) -> None:
        self._outbox = Mailbox()
        self._changed = threading.Condition()
        # parts, or the file that holds them
        self._given: dict[tuple[str, int | None], list[Any] | Path] = {}
        self._asked: dict[str, int | None] = {}  # the last frame of each input
        self._orders: list[dict[str, Any]] = []
        self._paused = False
        self._waits = 0  # beats that went by while we waited for somebody: no sign of a stall
        self._is_waiting = False
        self._cancelled = False
        self._closing = False
        self._on_cancel = on_cancel
        self._folder = folder
        self._pool = BufferPool()
        self._reader = SegmentReader(segments / "in")
        self._writer = SegmentWriter(segments / "out", RESULT_SEGMENTS)
        #: Returns how many Tasks were begun, and the label of the last.
        self.progress: Callable[[], tuple[int, str]] = lambda: (0, "")
        self._context = new_context()
        self._socket = connect(
            self._context,
            endpoint,
            data=False,
            part_bytes=CONTROL_PART_BYTES,
            credentials=credentials_for(endpoint, keys=None, token=None),
            identity=identity,
        )
        self._post("ready", run=run, attempt=attempt, pid=os.getpid(), host=platform.node()[:200])
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._thread.start()

    # -- said by the main thread -----------------------------------------------------------------

    def tell(self, event: dict[str, Any]) -> None:
        """Pass an event on."""
        self._post("told", event=event)

    def fail(self, error: str, message: str, exit_code: int) -> None:
        """Say why the run ends."""
        self._post("failed", error=error, message=message[:100_000], exit_code=exit_code)

    def send_result(
        self, frame: int, objects: list[Any], statistics: dict[str, Any], parts: Sequence[Any]
    ) -> bool:
        """Hand over a frame that is not kept on the disk; wait until one before has been taken.

        Returns False when the run is to stop instead.
        """
        with self._changed:
            self._wait_for(lambda: self._writer.has_free or self._cancelled)
            if self._cancelled:
                return False
            segment, sizes = self._writer.write(parts)
        self._post(
            "result", frame=frame, objects=objects, statistics=statistics, segment=segment,
            sizes=sizes,
        )  # fmt: skip
        return True

    def input_parts(self, name: str, frame: int | None) -> list[Any] | None:
        """Return an input when it has come; None when the run is to stop instead."""
        key = (name, frame)
        with self._changed:
            self._asked[name] = frame
            if key not in self._given and not self._cancelled:
                self._post("need", frame=frame, names=[name])
            self._wait_for(lambda: key in self._given or self._cancelled)
            if key not in self._given:
                return None
            given = self._given.pop(key)
        self._post("consumed", name=name, frame=frame)
        return list(read_parts(given)) if isinstance(given, Path) else given

    def orders(self) -> tuple[list[dict[str, Any]], bool]:
        """Return what was ordered since, and whether to stop; wait while the run is paused."""
        with self._changed:
            self._wait_for(lambda: not self._paused or self._cancelled)
            orders, self._orders = self._orders, []
            return orders, self._cancelled

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        self._is_waiting = True
        self._changed.wait_for(condition)
        self._is_waiting = False

    def cancel(self) -> None:
        """Wake whoever waits here: the run is to stop."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def close(self) -> None:
        """Send what is left and end the thread."""
        self._closing = True
        self._outbox.put(None)
        self._thread.join(_SECONDS_TO_SAY_GOODBYE)

    def _post(self, kind: str, **content: Any) -> None:
        self._outbox.put(message_parts(Message(kind, content), LINK_KINDS))

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        poller = Poller()
        poller.register(self._socket, POLLIN)
        poller.register(self._outbox.fileno(), POLLIN)
        next_beat = time.monotonic()
        while True:
            poller.poll(max(0, int(1000.0 * (next_beat - time.monotonic()))))
            for parts in self._outbox.take():
                if parts is not None:
                    send(self._socket, parts)
            while (received := receive(self._socket)) is not None:
                self._hear(received)
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + SECONDS_BETWEEN_BEATS
                tasks, label = self.progress()
                self._waits += self._is_waiting
                self._post("beat", tasks=tasks + self._waits, label=label[:200])
            if self._closing:
                break
        for parts in self._outbox.take():
            if parts is not None:
                send(self._socket, parts)
        self._socket.close(linger=int(1000 * _SECONDS_TO_SAY_GOODBYE))
        self._outbox.close()
        self._context.term()

    def _hear(self, parts: Sequence[Any]) -> None:
        message = read_message(parts, sender="server", socket="link", kinds=LINK_KINDS)
        content = message.content
        with self._changed:
            if message.type == "given":
                self._take(content)
            elif message.type == "free":
                self._writer.free(content["segment"])
            else:
                self._obey(content["order"], content["values"] or {})
            self._changed.notify_all()

    def _take(self, given: dict[str, Any]) -> None:
        name, frame, segment = given["name"], given["frame"], given["segment"]
        if segment is None:
            self._given[name, frame] = self._folder / given["file"]
            return
        asked = self._asked.get(name)
        if asked is None or frame >= asked:  # else it comes again, after it was used
            # copied, since the segment is wanted for what the solver may ask for first
            parts = self._reader.parts(segment, given["sizes"])
            self._given[name, frame] = self._pool.copied(parts)
        self._post("released", segment=segment)

    def _obey(self, order: str, values: dict[str, Any]) -> None:
        if order == "cancel":
            self._cancelled = True
            self._on_cancel()
        elif order in ("pause", "resume"):
            self._paused = order == "pause"
        else:
            self._orders.append({"order": order, **values})


def read_stream(parts: Sequence[Any], *, label: str) -> Any:
    """Return the stream of an input's parts.

    Raises:
        FormatError: They hold something else.
    """
    try:
        stream = decode(parts)
    except FormatError as error:
        raise FormatError(f"{label}: {error}") from error
    if not hasattr(stream, "validate"):
        raise FormatError(f"{label} holds a {type(stream).__name__}; expected a stream")
    return stream
