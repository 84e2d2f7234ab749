"""A run as a client sees it: what comes, what goes, and what it can be told.

The wire's thread puts events into the run's queue; whoever uses the run takes them out in a thread
of its own. Nothing is called back.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from loki_core.data.parts import join_parts
from loki_core.errors import Cancelled, InputError, LokiError
from loki_vfx.bridges.live.buffer_pool import BufferPool
from loki_vfx.bridges.live.protocol import Message, document_part, read_document
from loki_vfx.bridges.live.scene_document import document_to_send
from loki_vfx.bridges.live.segments import part_views
from loki_vfx.bridges.live.sent_arrays import SentArrays
from loki_vfx.bridges.live.wire import ConnectionLost
from loki_vfx.serialization.codec import decode, encode

if TYPE_CHECKING:
    from loki_vfx.bridges.live.client import Client

ANSWER_SECONDS = 30.0
FRAMES_AHEAD = 2  # of the solver, for inputs that are functions


class RunFailed(LokiError):
    """A run ended without its work done; the message says why."""


class Frame:
    """A frame of a run. Its arrays are views of what was received, so they are read-only.

    It counts against the credit until the next event of its run has come, or `release`.
    """

    def __init__(self, run: Run, message: Message) -> None:
        self._run = run
        self._parts: dict[str, list[list[Any]]] = {}
        self._streams: dict[str, Any] = {}
        self.number: int = message.content["frame"]
        told = read_document(message.payload[:1])
        self.statistics: dict[str, Any] = told["statistics"]
        #: Where the frame lies on the disk, if only that was sent.
        self.folder: str | None = message.content.get("folder")
        self.manifest: dict[str, Any] | None = told if self.folder is not None else None
        start = 1
        for path, count in told["objects"] if self.folder is None else ():
            self._parts.setdefault(path, []).append(list(message.payload[start : start + count]))
            start += count
        self.nbytes = sum(len(part) for part in message.payload[1:])
        self._is_held = True

    @property
    def objects(self) -> list[str]:
        """Paths of the Objects, or names of the outputs, that the frame has."""
        if self.manifest is not None:
            return sorted(self.manifest["objects"])
        return sorted({*self._parts, *self._streams})

    def __getitem__(self, path: str) -> Any:
        """Return a stream; the parts of ranks are joined when it is first asked for."""
        if path not in self._streams:
            if self.folder is not None:
                from loki_vfx.serialization.frame_cache import FrameCacheReader

                return FrameCacheReader(self.folder).read(self.number, path)
            if path not in self._parts:
                raise InputError(f'frame {self.number} has no "{path}"; it has {self.objects}')
            shares = [decode(part_views(parts)) for parts in self._parts.pop(path)]
            self._streams[path] = join_parts(shares)
        return self._streams[path]

    def streams(self) -> dict[str, Any]:
        """Return all streams."""
        return {path: self[path] for path in self.objects}

    def release(self) -> None:
        """Let the server send another frame in place of this one."""
        if self._is_held:
            self._is_held = False
            self._run._let_go()


class _Flight(NamedTuple):
    """An input on its way: what it holds until the server has it."""

    name: str
    frame: int | None
    size: int
    parts: Sequence[Any]


@dataclass(frozen=True)
class RunEvent:
    """Something that happened: `kind` is the name of an event, or "data" with a frame.

    Besides the events of `wtloki run --json` there are "state", "need" (inputs of a frame),
    "disconnected", "reconnected", "data" (a frame has come), "rewound" (from `frame` on all come
    again) and "end" (nothing more comes).
    """

    kind: str
    content: dict[str, Any] = field(default_factory=dict)
    frame: Frame | None = None


class Run:
    """A run on a server, seen from a client. All methods may be called from any thread."""

    def __init__(self, client: Client, name: str, *, credit: int) -> None:
        self.name = name
        self.state = "collecting"
        self.message = ""
        self.credit = credit
        self.last_frame: int | None = None
        #: How many rewinds of the run are known here; whoever attaches again says so.
        self.rewinds = 0
        #: How often the run was taken up on request; an end of before that is not its end.
        self.begins = 0
        self._client = client
        self._queue: queue.SimpleQueue[RunEvent] = queue.SimpleQueue()
        self._held: Frame | None = None
        self._sent = SentArrays()
        self._versions = itertools.count(1)
        self._functions: dict[str, Callable[[int], Any]] = {}
        self._next_input: int | None = None
        self._reached: int | None = None  # the last frame that the solver has computed
        self._asked_for: int | None = None  # the last frame whose inputs it has asked for
        self._final_frame: int | None = None
        self._in_flight: dict[int, _Flight] = {}
        self._pool = BufferPool()
        self._room = threading.Condition()
        self._is_lost = False
        self._sizes: dict[str, int] = {}  # of the last of each input
        self._unreleased = 0  # frames that use up credit
        self._attached = True

    # -- what comes ------------------------------------------------------------------------------

    def poll(self) -> list[RunEvent]:
        """Return what has come since the last call, without waiting."""
        events: list[RunEvent] = []
        while True:
            try:
                event = self.next_event(timeout=0.0)
            except TimeoutError:
                return events
            events.append(event)
            if event.frame is not None:
                return events  # the rest stays until this frame has been seen

    def next_event(self, timeout: float | None = None) -> RunEvent:
        """Return the next event; wait for it, up to `timeout` seconds.

        Raises:
            TimeoutError: None came in time.
        """
        if self._held is not None and self.credit == 1:
            self._held.release()  # nothing else would make room for the next one
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self._feed()
            rest = 0.1 if end is None else min(0.1, end - time.monotonic())
            try:
                event = self._queue.get(timeout=rest) if rest > 0 else self._queue.get_nowait()
            except queue.Empty:
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError(f"run {self.name}: no event within {timeout} s") from None
                continue
            if event.kind == "end" and event.content["begins"] < self.begins:
                continue
            if self._held is not None:
                self._held.release()  # only now: the caller has had it in a variable so far
            self._held = event.frame
            if event.kind == "need":
                self._feed(event.content["frame"])
            return event

    def frames(self, timeout: float | None = None) -> Iterator[Frame]:
        """Yield the frames in their order, as they come, until the run ends.

        Args:
            timeout: Longest wait for any sign of life [s].

        Raises:
            Cancelled: It was cancelled.
            RunFailed: It failed or was stopped; the message says why.
            ConnectionLost: The server is gone and did not come back in time.
        """
        lost: float | None = None
        while True:
            try:
                event = self.next_event(timeout=1.0 if lost is not None else timeout)
            except TimeoutError:
                if lost is None:
                    raise
                if time.monotonic() - lost > self._client.reconnect_seconds:
                    raise ConnectionLost(f"run {self.name}: {self._client.lost_because}") from None
                continue
            if event.kind == "disconnected":
                lost = time.monotonic()
            elif event.kind == "reconnected":
                lost = None
            elif event.frame is not None:
                yield event.frame
            elif event.kind == "end":
                self._raise_end(event.content["state"])
                return

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the run has finished; frames that come are let go.

        Raises:
            LokiError: As `frames` does.
        """
        for _ in self.frames(timeout):
            continue

    def _raise_end(self, state: str) -> None:
        if state == "cancelled":
            raise Cancelled(f"run {self.name} was cancelled")
        if state != "finished":
            raise RunFailed(f"run {self.name} {state}: {self.message}")

    # -- what goes -------------------------------------------------------------------------------

    def send_input(self, name: str, stream: Any, frame: int | None = None) -> None:
        """Send a stream for all frames, or for one; wait while the server is behind.

        Raises:
            ConnectionLost: The server is gone; an event `need` will ask for the input again.

        Only arrays that changed since the last call travel. Those of a frame are copied, so the
        host may fill its own again at once.
        """
        parts = encode(stream)
        size = sum(memoryview(part).nbytes for part in parts)
        with self._room:
            self._room.wait_for(lambda: self._has_room(size) or self._is_lost)
            if self._is_lost:
                raise ConnectionLost(f"run {self.name}: {self._client.lost_because}")
            self._sizes[name] = size
            self._post_input(name, None if frame is None else int(frame), parts)

    def feed_with(self, functions: Mapping[str, Callable[[int], Any]]) -> None:
        """Ask other functions of the frame for animated inputs, or those again that have failed."""
        self._functions = dict(functions)

    def _has_room(self, size: int) -> bool:
        held = self._in_flight_bytes()
        return held == 0 or held + size <= self._client.input_window

    def _in_flight_bytes(self) -> int:
        return sum(one.size for one in self._in_flight.values())

    def _post_input(self, name: str, frame: int | None, parts: Sequence[Any]) -> None:
        version = next(self._versions)
        base, reused = None, None
        if frame is not None:
            parts, base, reused = self._sent.reduce(name, parts, version)
            parts = self._pool.copied(parts)
        content = {
            "run": self.name, "name": name, "frame": frame, "version": version, "base": base,
            "reused": reused or None,
        }  # fmt: skip
        size = sum(memoryview(part).nbytes for part in parts)
        self._in_flight[version] = _Flight(name, frame, size, parts)
        self._client._wire.post("input", content, parts, (self.name, version))

    def set(self, *changes: str) -> None:
        """Change parameters from the next frame on: `Group/Behavior.parameter=value`."""
        payload = document_part(list(changes))
        self._client._wire.ask("change", {"run": self.name}, payload).wait(ANSWER_SECONDS)

    def pause(self) -> None:
        """Hold the run at the end of its frame."""
        self._ask("pause")

    def resume(self, **options: Any) -> None:
        """Let a paused run go on, or take up an ended one; then options may change."""
        self.begins = self._ask("resume", options=options or None)["begins"]

    def cancel(self) -> None:
        """Stop the run at the end of its Task, with a checkpoint."""
        self._ask("cancel")

    def checkpoint(self) -> None:
        """Write a checkpoint at the end of the frame."""
        self._ask("checkpoint")

    def rewind(
        self,
        frame: int,
        scene: Any = None,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Compute a frame and all after it anew, from the last checkpoint before it.

        A run that goes on is stopped at once. Frames before this one stay as they are; the others
        come again after an event "rewound".

        Args:
            scene: The Loki Graph or Solver Setup from now on, if it has changed.
            inputs: Streams, or functions of the frame, for inputs that have changed. An animated
                input that `send_input` brings is named with None.
            options: That change, as for `resume`.

        Returns:
            `frame`, and `from`: the frame of the checkpoint, after which the solver computes with
            what is new; None for the start.

        Raises:
            Refused: There is no such frame, or something is not valid; all is as before.
        """
        changed = dict(inputs or {})
        asked = {
            "document": None if scene is None else document_to_send(scene),
            "inputs": sorted(changed),
            "options": options,
        }
        # inputs that were sent before this one and are overtaken by it do not count any more
        content = {"run": self.name, "frame": int(frame), "version": next(self._versions)}
        answer = self._client._wire.ask("rewind", content, document_part(asked))
        done = answer.wait(ANSWER_SECONDS)
        self.begins = done["begins"]
        for name, given in changed.items():
            if callable(given):
                self._functions[name] = given
            elif given is not None:
                self.send_input(name, given)
        return {"frame": done["frame"], "from": done["from"]}

    def detach(self) -> None:
        """Follow the run no longer; it goes on."""
        self._attached = False
        self._client._forget(self)
        self._ask("detach")

    def status(self) -> dict[str, Any]:
        """Return state, progress, memory, time per Stage and balance."""
        runs = self._client.status(self.name)["runs"]
        return dict(runs[0]) if runs else {}

    def _ask(self, kind: str, **content: Any) -> dict[str, Any]:
        return self._client._wire.ask(kind, {"run": self.name, **content}).wait(ANSWER_SECONDS)

    def _let_go(self) -> None:
        self._unreleased -= 1
        if self._attached:
            self._client._wire.tell("credit", {"run": self.name, "frames": 1})

    def _feed(self, wanted: int | None = None) -> None:
        """Send inputs that are functions of the frame, a little ahead of the solver."""
        if not self._functions:
            return
        with self._room:
            if wanted is not None:
                self._asked_for = wanted
                if self._next_input is None or wanted > self._next_input:
                    self._next_input = wanted
            if self._next_input is None:
                return
            known = [one for one in (self._reached, self._asked_for) if one is not None]
            end = max(known) + FRAMES_AHEAD
        if self._final_frame is not None:
            end = min(end, self._final_frame)
        while (frame := self._next_frame_to_send(end)) is not None:
            try:
                for name, function in self._functions.items():
                    self.send_input(name, function(frame), frame)
            except ConnectionLost:
                return  # the solver asks again when somebody hears it
            except BaseException:
                self._functions = {}  # asked no more, so that the caller can still hear the run
                with self._room:
                    self._next_input = frame
                raise

    def _next_frame_to_send(self, end: int) -> int | None:
        """Return the next frame of inputs to be evaluated, if there is room for them."""
        with self._room:
            frame = self._next_input
            if frame is None or frame > end or self._is_lost:
                return None
            if not self._has_room(sum(self._sizes.values())):
                return None
            self._next_input = frame + 1
            return frame

    # -- called in the wire's thread ---------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        content = message.content
        if message.type in ("frame", "manifest"):
            frame = Frame(self, message)
            self._unreleased += 1
            if self.last_frame is not None and frame.number <= self.last_frame:
                frame.release()  # had before; the server knows better, but a frame comes once
                return
            self.last_frame = frame.number
            self._queue.put(RunEvent("data", {"frame": frame.number}, frame))
        elif message.type == "rewound":
            if self.last_frame is not None:
                self.last_frame = min(self.last_frame, content["frame"] - 1)
            self.rewinds = content["rewinds"]
            self._queue.put(RunEvent("rewound", {"frame": content["frame"]}))
        elif message.type == "end":
            if content["begins"] >= self.begins:
                self._end(content["state"], content["message"], content["begins"])
        elif message.type == "event":
            event = read_document(message.payload)
            if event["event"] == "state":
                self.state, self.message = event["state"], event["message"]
                if self.state == "starting":
                    with self._room:
                        # a new solver asks for what it lacks
                        self._next_input = self._reached = self._asked_for = None
            elif event["event"] == "started" and event.get("frames"):
                self._final_frame = event["frames"][1]
            elif event["event"] == "frame":
                self._reached = event["frame"]
            self._queue.put(RunEvent(event["event"], event))

    def _input_taken(self, version: int) -> _Flight | None:
        with self._room:
            flight = self._in_flight.pop(version, None)
            self._room.notify_all()
        return flight

    def _input_refused(self, version: int, code: str, message: str) -> None:
        flight = self._input_taken(version)
        if flight is None:
            return
        if code == "unknown_base":  # the server is a new one: the whole is needed
            with self._room:
                self._sent.forget()
                self._next_input = None
            self._queue.put(RunEvent("need", {"frame": flight.frame, "names": [flight.name]}))
            return
        if code == "ended" and flight.frame is not None:
            return  # it was read ahead; whoever takes the run up is asked for it again
        text = f'input "{flight.name}" was refused: {message}'
        self._queue.put(RunEvent("error", {"error": code, "message": text, "exit_code": 4}))

    def _gone(self, error: LokiError) -> None:
        """The server is there again, and the run is not."""
        self._end("failed", str(error), self.begins)

    def _end(self, state: str, message: str, begins: int) -> None:
        self.state, self.message = state, message
        told = {"state": state, "message": message, "begins": begins}
        self._queue.put(RunEvent("end", told))

    def _lost(self, reason: str) -> None:
        with self._room:
            self._is_lost = True
            self._room.notify_all()
        self._queue.put(RunEvent("disconnected", {"message": reason}))

    def _take_up(self) -> None:
        """Attach again after the connection was lost, and send again what was not taken."""
        with self._room:
            self._is_lost = False
            self._sent.forget()
            self._next_input = None  # the server says again what the solver waits for
            lost, self._in_flight = self._in_flight, {}
            for flight in lost.values():
                if flight.frame is None:
                    self._post_input(flight.name, None, flight.parts)
            self._room.notify_all()
        self._client._wire.tell(
            "attach",
            {
                "run": self.name,
                "after": self.last_frame,
                "rewinds": self.rewinds,
                "credit": max(0, self.credit - self._unreleased),
            },
            on_refused=self._gone,
        )
        self._queue.put(RunEvent("reconnected", {}))
