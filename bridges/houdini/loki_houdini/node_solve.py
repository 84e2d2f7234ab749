"""Node solve: the run that a node shows, on a server that goes on when the host does not.

A run is known by what it computes: its name holds a digest of scene, inputs and first frame. So a
node that is cooked again, or a file that is opened again, finds its frames, and a node whose
parameters or inputs have changed asks for another run. Knows no host.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loki_core.errors import Cancelled, LokiError
from loki_vfx.bridges.live.client import Client, ConnectionLost, Refused, Run, RunFailed, connect
from loki_vfx.bridges.live.frame_keeper import FrameKeeper
from loki_vfx.bridges.live.run_folder import ENDED
from loki_vfx.bridges.live.scene_document import document_to_send
from loki_vfx.serialization.digest import digest
from loki_vfx.serialization.frame_cache import FrameCacheReader, whole_frames

POLL_SECONDS = 0.1
ASK_SECONDS = 5.0  # without any event, after which the server is asked whether the run is there
END_SECONDS = 60.0  # that a run which is cancelled may take to end
LONGEST_NAME = 40
#: A run that waits for the inputs of its next frame, until its node cooks, must not keep others.
SERVER_OPTIONS = ("--runs-at-once", "64")
SENT = "sent_inputs.jsonl"
"""The file beside a run's cache that says which animated inputs it was given."""

#: Is told from 0 to 1 how far it is, and in words; it ends the waiting by an exception.
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Input:
    """A stream, as a function of the frame."""

    read: Callable[[int], Any]
    is_animated: bool = False


@dataclass(frozen=True)
class Request:
    """What a node wants to see.

    Attributes:
        scene: A Loki Graph or a Solver Setup, with all changes.
        frames: First and last.
        folder: Of the runs; frames lie in FOLDER/RUN/cache.
        endpoint: Of the server; empty starts one for the folder.
        keys: Folder of keys for servers elsewhere; empty is the user's.
        options: Of the run: ranks, threads ...
        command: How `wtloki` is called; none finds it.
    """

    name: str
    scene: Any
    inputs: Mapping[str, Input]
    frames: tuple[int, int]
    folder: Path
    endpoint: str = ""
    keys: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    command: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        """Return what the first frame begins with, by input."""
        return {name: one.read(self.frames[0]) for name, one in self.inputs.items()}

    def connected(self) -> Client:
        """Return a client of the server that is asked for."""
        if self.endpoint:
            return connect(self.endpoint, keys=self.keys or None, name="Houdini")
        return connect(
            root=self.folder,
            command=self.command or None,
            server_options=SERVER_OPTIONS,
            name="Houdini",
        )


def request_key(request: Request, given: Mapping[str, Any]) -> str:
    """Return what a request is known by: scene, inputs at the first frame, and that frame."""
    streams = [
        [name, request.inputs[name].is_animated, digest(stream)]
        for name, stream in sorted(given.items())
    ]
    return digest(document_to_send(request.scene), streams, request.frames[0])


def run_name_of(request: Request, key: str) -> str:
    """Return the name of the run of a request, which begins with a letter or a digit."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", request.name)[-LONGEST_NAME:].lstrip("_-")
    return f"{stem or 'node'}_{key[:12]}"


class NodeSolve:
    """The run of one node, while its request stays the same.

    Attributes:
        key: Of the request that it answers.
        place: Where its frames are, and who computes them.
        frames: Those that are there.
        warnings: What the solver has warned of so far.
    """

    def __init__(self, request: Request, given: Mapping[str, Any], client: Client) -> None:
        self.key, self.place = request_key(request, given), place_of(request)
        self.request = request
        self.warnings: dict[str, None] = {}  # each once, in their order
        self.client = client
        self.run_name = run_name_of(request, self.key)
        self.cache = request.folder / self.run_name / "cache"
        self._message = ""
        self._told_last = request.frames[0] - 1  # up to which frame the run was asked to go
        self._failure: LokiError | None = None
        self._failed_input: tuple[int, Exception] | None = None  # frame, and what went wrong
        self._mended: set[int] = set()  # frames that were lost, asked for again, and not there yet
        self._void_from: int | None = None  # frames that a rewind has asked for anew
        self._keeper: FrameKeeper | None = None
        if request.endpoint:
            self._keeper = FrameKeeper(self.cache.parent, "all")
        self.frames: set[int] = set()
        if self.cache.is_dir():
            self.frames.update(whole_frames(self.cache))
        self._sent = self._read_sent()
        self.run = self._begin(given)

    def _begin(self, given: Mapping[str, Any]) -> Run:
        request, (first, last) = self.request, self.request.frames
        if self.client.status(self.run_name)["runs"]:
            return self._attach()
        self._forget_frames()
        self._told_last = last
        options: dict[str, Any] = dict(request.options)
        if not request.endpoint:
            options["results"] = "manifest"  # the frames are on a disk here
        return self.client.submit(
            request.scene,
            {**given, **self._functions()},
            run=self.run_name,
            frames=f"{first}-{last}",
            **options,
        )

    def _forget_frames(self) -> None:
        """Begin with nothing: what is kept here of a run that the server has not is of another."""
        self.frames.clear()
        self._sent.clear()
        (self.cache.parent / SENT).unlink(missing_ok=True)
        if self._keeper is not None:
            self._keeper = FrameKeeper(self.cache.parent, "none")
            shutil.rmtree(self.cache, ignore_errors=True)

    def _begin_anew(self) -> None:
        """Remove the run, and submit it with the inputs as they are now."""
        remove_run(self.client, self.run_name)
        self._failure = self._void_from = None
        self.run = self._begin(self.request.given())

    def _attach(self) -> Run:
        first, last = self.request.frames
        after = first - 1
        while after + 1 in self.frames:
            after += 1
        self.frames = {one for one in self.frames if one <= after}
        run = self.client.attach(
            self.run_name, after=after if after >= first else None, inputs=self._functions()
        )
        if run.state in ENDED:
            if after < last:
                self._go_on(run)
            else:
                self._told_last = last
        return run

    # -- inputs that move ------------------------------------------------------------------------

    def _functions(self) -> dict[str, Callable[[int], Any]]:
        """Inputs that differ from frame to frame; what is sent of them is noted."""

        def noted(name: str, read: Callable[[int], Any], frame: int) -> Any:
            try:
                stream = read(frame)
            except Exception as error:
                self._failed_input = (frame, error)
                raise
            self._note_sent(frame, name, digest(stream))
            return stream

        animated = {n: one.read for n, one in self.request.inputs.items() if one.is_animated}
        return {name: partial(noted, name, read) for name, read in animated.items()}

    def _note_sent(self, frame: int, name: str, known: str) -> None:
        self._sent.setdefault(frame, {})[name] = known
        path = self.cache.parent / SENT
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([frame, name, known]) + "\n")

    def _read_sent(self) -> dict[int, dict[str, str]]:
        """Digests of animated inputs by frame and name; of several of one frame the last counts."""
        found: dict[int, dict[str, str]] = {}
        path = self.cache.parent / SENT
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for line in lines:
            try:
                frame, name, known = json.loads(line)
                found.setdefault(int(frame), {})[str(name)] = str(known)
            except (ValueError, TypeError):
                continue  # a line that was cut off when the host ended
        return found

    def check_inputs(self, frame: int) -> None:
        """Compute frames anew from the first whose animated inputs are no longer what was sent.

        Inputs are compared at this frame, or at the last before it that was sent; where they
        differ, at all before that.
        """
        last = max((one for one in self._sent if one <= frame), default=None)
        if last is None or not self._has_changed(last):
            return
        changed = next(one for one in sorted(self._sent) if self._has_changed(one))
        self._rewind(min(changed, max(self.frames, default=self.request.frames[0] - 1) + 1))
        self._sent = {one: sent for one, sent in self._sent.items() if one < changed}

    def _rewind(self, frame: int) -> None:
        """Compute a frame and all after it anew."""
        try:
            self.run.rewind(frame, inputs=self._functions())
        except Refused:
            if whole_frames(self.cache):
                raise  # frames that are there are thrown away by Resimulate alone
            self._begin_anew()
            return
        self.frames = {one for one in self.frames if one < frame}
        self._void_from, self._failure = frame, None
        self.warnings.clear()
        if self._keeper is not None:
            self._keeper = FrameKeeper(self.cache.parent, frame)

    def _has_changed(self, frame: int) -> bool:
        inputs = self.request.inputs
        return any(
            name in inputs and digest(inputs[name].read(frame)) != sent
            for name, sent in self._sent.get(frame, {}).items()
        )

    # -- what comes ------------------------------------------------------------------------------

    def wait_for(self, frame: int, progress: Progress) -> None:
        """Return when a frame is there.

        Raises:
            RunFailed: The run ended without it; the message says why.
            ConnectionLost: The server is gone.
        """
        first = self.request.frames[0]
        heard = time.monotonic()
        while frame not in self.frames:
            if self._failure is not None:
                raise self._failure
            reached = max(self.frames, default=first - 1)
            part = (reached - first + 1) / max(frame - first + 1, 1)
            progress(min(max(part, 0.0), 1.0), self._message or f"frame {reached + 1} of {frame}")
            try:
                self._take(self.run.next_event(timeout=POLL_SECONDS))
                heard = time.monotonic()
            except TimeoutError:
                if time.monotonic() - heard > ASK_SECONDS:
                    self._ask_whether_it_goes_on(frame)
                    heard = time.monotonic()
            except Exception as error:
                failed = self._failed_input
                if failed is None or failed[1] is not error or failed[0] <= frame:
                    raise
                # else of a frame that was read ahead; those before it are computed without

    def _ask_whether_it_goes_on(self, frame: int) -> None:
        if self._state() in ENDED:
            self.mend(frame)

    def _state(self) -> str:
        """The state of the run, as the server has it."""
        found = self.client.status(self.run_name)["runs"]
        if not found:
            raise ConnectionLost("the run was removed by somebody else")
        return str(found[0]["state"])

    def mend(self, frame: int) -> None:
        """Compute a frame that was lost or damaged anew.

        Raises:
            RunFailed: That was asked for before, and it is still not there.
        """
        if frame in self._mended:
            raise RunFailed(f"the run has ended without frame {frame}; Resimulate begins anew")
        self._mended.add(frame)
        self._rewind(frame)

    def _take(self, event: Any) -> None:
        content = event.content
        if event.kind == "warning":
            self.warnings[content["message"]] = None
        elif event.kind == "error":
            self._failure = RunFailed(content["message"])
        elif event.kind == "rewound":
            self._void_from = None
            self.frames = {one for one in self.frames if one < content["frame"]}
        elif event.kind == "state":
            self._message = content.get("message") or content.get("state", "")
        elif event.kind == "disconnected":
            raise ConnectionLost(f"the server is gone: {self.client.lost_because}")
        elif event.kind == "frame":
            self._message = ""
        if event.frame is not None and not self._is_void(event.frame.number):
            if event.frame.folder is None and self._keeper is not None:
                self._keeper.keep(event.frame)
            self.frames.add(event.frame.number)
            self._mended.discard(event.frame.number)
        if event.kind == "end":
            self._end(content)

    def _is_void(self, frame: int) -> bool:
        return self._void_from is not None and frame >= self._void_from

    def _end(self, content: Mapping[str, Any]) -> None:
        state, last = content["state"], self.request.frames[1]
        if state not in ("finished", "cancelled"):
            message = content.get("message") or self.run.message or f"the run was {state}"
            self._failure = RunFailed(message)
        elif self._failure is None and (state == "cancelled" or self._told_last < last):
            self._go_on(self.run)  # another node or session has cancelled it, or wanted less

    def streams(self, frame: int) -> dict[str, Any]:
        """Return what a frame holds, by output."""
        reader = FrameCacheReader(self.cache)
        return {name: reader.read(frame, name) for name in reader.objects(frame)}

    # -- what it is told -------------------------------------------------------------------------

    def extend(self, request: Request) -> None:
        """Take a request of the same key, which may want more frames."""
        self.request, last = request, request.frames[1]
        self._failed_input = None
        self.run.feed_with(self._functions())
        if self.run.state in ENDED and self._failure is None and self._told_last < last:
            self._go_on(self.run)

    def _go_on(self, run: Run) -> None:
        """Take up a run that has ended, up to the last frame that is wanted."""
        first, last = self.request.frames
        try:
            run.resume(frames=f"{first}-{last}")
            self._told_last = last
        except Refused:
            if self._state() in ENDED:
                raise
            # else another session has just taken it up; what lacks is asked for at its end

    def cancel(self) -> None:
        """Stop at the end of the running Task, with a checkpoint."""
        if self.run.state in ENDED:
            return
        try:
            self.run.cancel()
        except (Refused, ConnectionLost):
            return  # it was removed, or nobody is there to be told
        self._failure = Cancelled("the simulation was cancelled; Resimulate begins anew")

    def remove(self) -> None:
        """End the run and remove its frames.

        Raises:
            ConnectionLost: The server is gone, or the run does not end.
        """
        remove_run(self.client, self.run_name)
        self._forget_frames()

    def close(self) -> None:
        """Let go of the server; what runs goes on there."""
        self.client.close()


def remove_run(client: Client, name: str) -> None:
    """End a run, and remove it and its frames from a server; one that is not there is fine.

    Raises:
        ConnectionLost: The server is gone, or the run does not end.
    """
    found = client.status(name)["runs"]
    if found and found[0]["state"] not in ENDED:
        client.attach(name, credit=0).cancel()
    end = time.monotonic() + END_SECONDS
    while found and found[0]["state"] not in ENDED:
        if time.monotonic() > end:
            raise ConnectionLost(f"run {name} does not end; end its server")
        time.sleep(POLL_SECONDS)
        found = client.status(name)["runs"]
    if found:
        client.remove(name)


def place_of(request: Request) -> tuple[Path, str, str]:
    """Return what a request says of where it is computed and kept."""
    return request.folder, request.endpoint, request.keys
