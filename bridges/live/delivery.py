"""Delivery: frames to the clients that are attached to a run, as far as their credit reaches.

Frames of a run that is kept are sent from its cache, straight out of the mapped files: whoever
comes late or again gets what it has not had, and a slow client holds nothing up. Frames that are
not kept are sent out of shared memory, which is free again when all of it has left.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from loki_core.errors import FormatError, InputError
from loki_vfx.bridges.live.protocol import document_part
from loki_vfx.bridges.live.run_folder import RunFolder
from loki_vfx.bridges.live.segments import SegmentReader, map_file
from loki_vfx.serialization.codec import packed_frames
from loki_vfx.serialization.frame_cache import FrameCacheReader, whole_frames

logger = logging.getLogger("loki.live")

MOST_CREDIT = 10_000


@dataclass
class Attachment:
    """A client that follows a run.

    Attributes:
        delivered: The last frame that it has had; None for none.
        credit: How many frames it has room for.
        rewinds: How many rewinds of the run it knows of.
    """

    session: bytes
    credit: int
    delivered: int | None = None
    ended: bool = False
    rewinds: int = 0

    def grant(self, frames: int) -> None:
        """Let so many frames more be sent."""
        self.credit = min(self.credit + frames, MOST_CREDIT)

    def wants(self, frame: int) -> bool:
        """Whether a frame is new to the client."""
        return self.delivered is None or frame > self.delivered


class End(NamedTuple):
    """How a run has ended, and after how many beginnings on request."""

    state: str
    message: str
    begins: int


class Result(NamedTuple):
    """A frame in shared memory."""

    frame: int
    objects: list[Any]
    statistics: dict[str, Any]
    segment: str
    sizes: list[int]


class Delivery:
    """What is on its way to the clients of one run.

    Args:
        send: Sends a data message to a session; returns a tracker, or None if that is gone.

    Attributes:
        rewinds: First frames of all that was computed anew, or will be, in the order of requests.
        void_from: The first frame on the disk that does not count any more; None if all do.
    """

    def __init__(
        self, folder: RunFolder, send: Callable[..., Any], segments: SegmentReader
    ) -> None:
        self.rewinds: Sequence[int] = ()
        self.void_from: int | None = None
        self._folder = folder
        self._send = send
        self._segments = segments
        self.attachments: dict[bytes, Attachment] = {}
        self._frames: list[int] | None = None  # on the disk; read once somebody wants them
        self._is_awake = True
        self._results: deque[Result] = deque()
        self._leaving: list[tuple[str, list[Any]]] = []

    def attach(
        self, session: bytes, *, after: int | None, credit: int, rewinds: int | None = None
    ) -> Attachment:
        """Let a client follow, from the frame after `after` on.

        Args:
            rewinds: How many rewinds it knows of; None for all, since it has followed none.
        """
        count = len(self.rewinds)
        known = count if rewinds is None else min(max(rewinds, 0), count)
        attachment = Attachment(session, min(credit, MOST_CREDIT), after, rewinds=known)
        self.attachments[session] = attachment
        self.wake()
        return attachment

    def rewind(self, rewinds: Sequence[int], void_from: int | None) -> None:
        """Take notice that frames are void, or, with no such frame, that they are gone."""
        self.rewinds, self.void_from = rewinds, void_from
        self._frames = None
        self.wake()

    def wake(self) -> None:
        """Look again for something to send: there is a frame, a client or credit more."""
        self._is_awake = True

    def add_frame(self, frame: int) -> None:
        """Take notice of a frame that was written."""
        if self._frames is not None and frame not in self._frames[-1:]:
            self._frames = sorted({*self._frames, frame})
        self.wake()

    def add_result(self, result: Result) -> None:
        """Take a frame that is not kept."""
        self._results.append(result)
        self.wake()

    def release(self) -> None:
        """Let go the shared memory of a worker that is gone."""
        self._segments.release()

    def clear_results(self) -> None:
        """Forget frames of a worker that is gone."""
        self._results.clear()
        self._leaving.clear()

    @property
    def has_results(self) -> bool:
        """Whether frames in shared memory wait for somebody."""
        return bool(self._results)

    @property
    def is_sending(self) -> bool:
        """Whether shared memory waits to be free."""
        return bool(self._leaving)

    def freed_segments(self) -> list[str]:
        """Return the shared memory that has left this process."""
        gone = [name for name, trackers in self._leaving if all(one.done for one in trackers)]
        self._leaving = [one for one in self._leaving if one[0] not in gone]
        return gone

    def pump(self, *, results: str, is_kept: bool, end: End | None) -> None:
        """Send what can be sent; at the end of a run say so, after all frames."""
        if not self._is_awake or not self.attachments:
            return
        self._is_awake = False
        if is_kept:
            if self._frames is None:
                found, void = whole_frames(self._folder.cache), self.void_from
                self._frames = [frame for frame in found if void is None or frame < void]
            for attachment in list(self.attachments.values()):
                if self._tell_rewinds(attachment):
                    self._pump_kept(attachment, self._frames, results, is_over=end is not None)
        else:
            self._pump_results()
        for attachment in self.attachments.values():
            if end is not None and not attachment.ended and not self._is_behind(attachment):
                sent = self._send(
                    attachment.session,
                    "end",
                    {
                        "run": self._folder.name,
                        "state": end.state,
                        "message": end.message[:100_000],
                        "frame": attachment.delivered,
                        "begins": end.begins,
                    },
                )
                attachment.ended = sent is not None  # else it has not joined: later

    def _tell_rewinds(self, attachment: Attachment) -> bool:
        """Tell a client from which frame on all comes again; return whether it knows."""
        missed = self.rewinds[attachment.rewinds :]
        if not missed:
            return True
        first, count = min(missed), len(self.rewinds)
        content = {"run": self._folder.name, "frame": first, "rewinds": count}
        if self._send(attachment.session, "rewound", content) is None:
            return False
        attachment.rewinds = count
        if attachment.delivered is not None:
            attachment.delivered = min(attachment.delivered, first - 1)
        return True

    def _is_behind(self, attachment: Attachment) -> bool:
        frames = [*(self._frames or ()), *(one.frame for one in self._results)]
        return any(attachment.wants(frame) for frame in frames[-1:])

    def _pump_kept(
        self, attachment: Attachment, frames: Sequence[int], results: str, *, is_over: bool
    ) -> None:
        start = 0 if attachment.delivered is None else bisect_right(frames, attachment.delivered)
        for frame in frames[start:]:
            if attachment.credit <= 0:
                return
            try:
                content, payload = self._read(frame, results)
            except (FormatError, InputError, OSError, ValueError) as error:
                if not is_over:
                    return  # a restarted run is writing it anew; its next event brings us back
                logger.warning("frame %d of run %s: %s", frame, self._folder.name, error)
                attachment.delivered = frame  # it is lost; the others are not
                continue
            kind = "frame" if results == "frames" else "manifest"
            if self._send(attachment.session, kind, content, payload) is None:
                return
            attachment.delivered = frame
            attachment.credit -= 1

    def _read(self, frame: int, results: str) -> tuple[dict[str, Any], list[Any]]:
        reader = FrameCacheReader(self._folder.cache)
        index = reader.index(frame)
        content: dict[str, Any] = {"run": self._folder.name, "frame": frame}
        if results == "manifest":
            folder = str(self._folder.cache.resolve())
            return {**content, "folder": folder}, document_part(index)
        objects, payload = [], []
        for path, entries in index["objects"].items():
            for entry in entries:
                area = map_file(self._folder.cache / "frames" / entry["file"])
                parts = packed_frames(memoryview(area), label=entry["file"])
                objects.append([path, len(parts)])
                payload += parts
        told = {"objects": objects, "statistics": index["statistics"]}
        return content, [*document_part(told), *payload]

    def _pump_results(self) -> None:
        while self._results:
            ready = [one for one in self.attachments.values() if one.credit > 0]
            if not ready:
                return
            result = self._results[0]
            told = {"objects": result.objects, "statistics": result.statistics}
            parts = self._segments.parts(result.segment, result.sizes)
            payload = [*document_part(told), *parts]
            content = {"run": self._folder.name, "frame": result.frame}
            trackers = []
            for attachment in ready:
                tracker = self._send(attachment.session, "frame", content, payload, track=True)
                if tracker is not None:
                    trackers.append(tracker)
                    attachment.delivered = result.frame
                    attachment.credit -= 1
            if not trackers:
                return  # nobody has joined yet
            self._results.popleft()
            self._leaving.append((result.segment, trackers))
