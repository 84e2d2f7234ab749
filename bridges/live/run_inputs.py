"""Run Inputs: what clients sent for one run, on its way to rank 0.

Inputs of a run that is kept lie on the disk, so that a restart needs no client. Those of a run
that is not kept go through shared memory, a few at a time. An array that did not change since the
client's last message is not sent again: the parts of that message stay here and are put in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loki_vfx.bridges.live.protocol import ProtocolError
from loki_vfx.bridges.live.run_folder import RunFolder, RunRecord
from loki_vfx.bridges.live.segments import SegmentWriter

INPUT_SEGMENTS = 4
#: How many frames a client may be ahead of the solver.
FRAMES_AHEAD = 4


class Taken(NamedTuple):
    """An input that the server has taken in: the client may send so many bytes more."""

    session: bytes
    name: str
    frame: int | None
    version: int
    size: int


class _Base(NamedTuple):
    version: int
    session: bytes
    parts: list[Any]


class RunInputs:
    """The inputs of one run.

    Args:
        give: Sends a "given" message to rank 0; does nothing while there is none.
        most_bytes: What may be held that rank 0 has not asked for yet.
    """

    def __init__(
        self,
        folder: RunFolder,
        record: RunRecord,
        segments: Path,
        give: Callable[..., None],
        most_bytes: int,
    ) -> None:
        self._most_bytes = most_bytes
        self._folder = folder
        self._record = record
        self._give = give
        self._segments = segments
        self._writer = SegmentWriter(segments, INPUT_SEGMENTS)
        self._waiting: deque[tuple[str, int, list[Any], Taken]] = deque()
        self._late: list[Taken] = []  # taken in, but far ahead: the client is told later
        self._bases: dict[str, _Base] = {}
        self._valid_from: dict[tuple[bytes, str], int] = {}  # versions of sessions and inputs
        self._reached: int | None = None
        self._first: int | None = None  # the lowest frame that came, or lies on the disk
        self._worker_is_ready = False
        #: The inputs without frames that have not come yet.
        self.missing = {one for one in record.inputs if not folder.input_file(one, None).exists()}

    def put(
        self,
        name: str,
        frame: int | None,
        payload: Sequence[Any],
        *,
        session: bytes,
        version: int,
        base: int | None,
        reused: dict[str, Any] | None,
    ) -> list[Taken]:
        """Take an input in; return what clients may now be told.

        Raises:
            ProtocolError: The run has no such input, or what it builds on is not here.
            OSError: There is no room on the disk.
        """
        known = self._record.inputs if frame is None else self._record.animated
        if name not in known:
            raise ProtocolError(
                "unknown_input", f'run {self._record.name} has no input "{name[:80]}" of that kind'
            )
        if frame is not None and abs(frame) > 10_000_000:
            raise ProtocolError("malformed", f"frame {frame} of an input is not possible")
        size = sum(len(part) for part in payload)
        held = self._held_bytes()
        if held and held + size > self._most_bytes:
            raise ProtocolError(
                "busy", f"inputs of {held} bytes wait already; send when they are accepted"
            )
        parts = self._completed(name, payload, session, base, reused)
        taken = Taken(session, name, frame, version, size)
        if frame is not None:
            self._bases[name] = _Base(version, session, parts)
            self._first = frame if self._first is None else min(self._first, frame)
        if version < self._valid_from.get((session, name), version):
            return [taken]  # a rewind has overtaken it, and it comes anew
        if frame is None or self._record.options.keep_frames:
            self._folder.write_input(name, frame, parts)
            self.missing.discard(name)
            self._give_file(name, frame)
            if frame is not None and not self._is_near(frame):
                self._late.append(taken)
                return []
            return [taken]
        self._waiting.append((name, frame, parts, taken))
        return self.pass_on()

    def _completed(
        self,
        name: str,
        payload: Sequence[Any],
        session: bytes,
        base: int | None,
        reused: dict[str, Any] | None,
    ) -> list[Any]:
        parts = list(payload)
        if not reused:
            return parts
        known = self._bases.get(name)
        if known is None or known.version != base or known.session != session:
            raise ProtocolError("unknown_base", f'input "{name[:80]}" builds on one not here')
        for text, number in reused.items():
            place = int(text) if text.isdecimal() and len(text) < 6 else 0
            if not (0 < place < len(parts) and type(number) is int):
                raise ProtocolError("malformed", f'input "{name[:80]}": part {text[:20]!r}')
            if not 0 < number < len(known.parts) or len(parts[place]) != 0:
                raise ProtocolError("malformed", f'input "{name[:80]}" reuses what is not there')
            parts[place] = known.parts[number]
        return parts

    # -- rank 0 ----------------------------------------------------------------------------------

    def worker_started(self) -> None:
        """Give a new rank 0 everything that is here."""
        self._worker_is_ready = True
        self._reached = None
        self._writer = SegmentWriter(self._segments, INPUT_SEGMENTS)
        for name in self._record.inputs:
            self._give_file(name, None)
        for name in self._record.animated:
            for frame in self._folder.frames_of_input(name):
                self._first = frame if self._first is None else min(self._first, frame)
                self._give_file(name, frame)

    def is_given(self, name: str, frame: int | None) -> bool:
        """Whether rank 0 was told where an input lies; it may have asked before it heard that."""
        return self._worker_is_ready and self._folder.input_file(name, frame).exists()

    def worker_ended(self) -> None:
        """Nobody takes inputs any more."""
        self._worker_is_ready = False

    def released(self, segment: str) -> list[Taken]:
        """Rank 0 has emptied a segment; return what clients may now be told."""
        self._writer.free(segment)
        return self.pass_on()

    def consumed(self, frame: int | None) -> list[Taken]:
        """Rank 0 has used an input; return what clients may now be told."""
        if frame is not None:
            self._reached = frame if self._reached is None else max(self._reached, frame)
        near = [one for one in self._late if one.frame is None or self._is_near(one.frame)]
        self._late = [one for one in self._late if one not in near]
        return [*near, *self.pass_on()]

    def pass_on(self) -> list[Taken]:
        """Move what waits into shared memory, as far as there is room."""
        done: list[Taken] = []
        if not self._worker_is_ready:
            return done
        for one in list(self._waiting):
            name, frame, parts, taken = one
            if not self._writer.has_free:
                break
            if not self._is_near(frame):
                continue
            segment, sizes = self._writer.write(parts)
            self._waiting.remove(one)
            self._give(name=name, frame=frame, segment=segment, sizes=sizes)
            done.append(taken)
        return done

    def release(self) -> None:
        """Let go what was held for a worker that is gone."""
        self._writer = SegmentWriter(self._segments, INPUT_SEGMENTS)
        self._waiting.clear()
        self._late.clear()
        self._bases.clear()

    def rewind(self, names: Sequence[str], session: bytes, version: int) -> list[Taken]:
        """Wait for inputs anew, whose files are gone; return what clients may now be told.

        Args:
            version: Of the request. What the session sent before it does not count any more.
        """
        self.missing |= {name for name in names if name in self._record.inputs}
        self._valid_from |= {(session, name): version for name in names}
        told, self._late = self._late, []  # nobody holds them up any more
        return told

    def _held_bytes(self) -> int:
        return sum(one[3].size for one in self._waiting) + sum(one.size for one in self._late)

    def drop_old(self) -> None:
        """Remove what no restart can need."""
        self._folder.drop_inputs(self._record.animated)

    def _is_near(self, frame: int) -> bool:
        # before anything was asked for, the first frames are near
        reached = self._reached if self._reached is not None else self._first
        return reached is None or frame <= reached + FRAMES_AHEAD

    def _give_file(self, name: str, frame: int | None) -> None:
        path = self._folder.input_file(name, frame)
        if self._worker_is_ready and path.exists():
            file = str(path.relative_to(self._folder.path))
            self._give(name=name, frame=frame, file=file, sizes=[])
