"""Node solve: the run that a node shows, on a server that goes on when the host does not.

A run is known by what it computes: its name holds a digest of scene, inputs and first frame. So a
node that is cooked again, or a file that is opened again, finds its frames, and a node whose
parameters or inputs have changed asks for another run. Knows no host.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bridges.live.client import Client, ConnectionLost, Refused, Run, RunFailed, connect
from bridges.live.frame_keeper import FrameKeeper
from bridges.live.local_server import ensure_server
from bridges.live.run_folder import ENDED
from bridges.live.scene_document import document_to_send
from loki_core.errors import Cancelled, LokiError
from serialization.digest import digest
from serialization.frame_cache import FrameCacheReader, whole_frames

POLL_SECONDS = 0.1
LOST_SECONDS = 60.0  # that a server which is gone is waited for
LONGEST_NAME = 40

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
        return connect(root=self.folder, command=self.command or None, name="Houdini")


def request_key(request: Request, given: Mapping[str, Any]) -> str:
    """Return what a request is known by: scene, inputs at the first frame, and that frame."""
    streams = [[name, digest(stream)] for name, stream in sorted(given.items())]
    return digest(document_to_send(request.scene), streams, request.frames[0])


class NodeSolve:
    """The run of one node, while its request stays the same.

    Attributes:
        key: Of the request that it answers.
        warnings: What the solver has warned of so far.
    """

    def __init__(self, request: Request, given: Mapping[str, Any], client: Client) -> None:
        self.key = request_key(request, given)
        self.request = request
        self.warnings: list[str] = []
        self.client = client
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", request.name).lstrip("_-")[:LONGEST_NAME] or "node"
        self.run_name = f"{stem}_{self.key[:12]}"
        self.cache = request.folder / self.run_name / "cache"
        self._sent: dict[int, dict[str, str]] = {}  # digests of animated inputs, by frame
        self._message = ""
        self._told_last = request.frames[0] - 1  # up to which frame the run was asked to go
        self._failure: LokiError | None = None
        self._lost_at: float | None = None
        self._keeper: FrameKeeper | None = None
        if request.endpoint:
            self._keeper = FrameKeeper(request.folder / self.run_name, "all")
        self.frames: set[int] = set()
        if self.cache.is_dir():
            self.frames.update(whole_frames(self.cache))
        self.run = self._begin(given)

    def _begin(self, given: Mapping[str, Any]) -> Run:
        request, (first, last) = self.request, self.request.frames
        functions = self._functions()
        known = {one["run"]: one for one in self.client.status(self.run_name)["runs"]}
        span = f"{first}-{last}"
        if self.run_name in known:
            after = max(self.frames, default=None)
            run = self.client.attach(self.run_name, after=after, inputs=functions)
            if run.state in ENDED and (after is None or after < last):
                run.resume(frames=span)
                self._told_last = last
            return run
        self.frames.clear()
        self._told_last = last
        options: dict[str, Any] = dict(request.options)
        if not request.endpoint:
            options["results"] = "manifest"  # the frames are on a disk here
        return self.client.submit(
            request.scene,
            {**given, **functions},
            run=self.run_name,
            frames=span,
            **options,
        )

    def _functions(self) -> dict[str, Callable[[int], Any]]:
        """Inputs that differ from frame to frame; what is sent of them is noted."""

        def noted(name: str, read: Callable[[int], Any], frame: int) -> Any:
            stream = read(frame)
            self._sent.setdefault(frame, {})[name] = digest(stream)
            return stream

        animated = {n: one.read for n, one in self.request.inputs.items() if one.is_animated}
        return {name: partial(noted, name, read) for name, read in animated.items()}

    # -- what comes ------------------------------------------------------------------------------

    def wait_for(self, frame: int, progress: Progress) -> None:
        """Return when a frame is there.

        Raises:
            RunFailed: The run ended without it; the message says why.
            ConnectionLost: The server is gone, and did not come back in time.
        """
        first = self.request.frames[0]
        while frame not in self.frames:
            if self._failure is not None:
                raise self._failure
            if self._lost_at is not None and time.monotonic() - self._lost_at > LOST_SECONDS:
                raise ConnectionLost(f"the server is gone: {self.client.lost_because}")
            reached = max(self.frames, default=first - 1)
            part = (reached - first + 1) / max(frame - first + 1, 1)
            progress(min(max(part, 0.0), 1.0), self._message or f"frame {reached + 1} of {frame}")
            try:
                self._take(self.run.next_event(timeout=POLL_SECONDS))
            except TimeoutError:
                continue

    def _take(self, event: Any) -> None:
        content = event.content
        if event.kind == "warning":
            self.warnings.append(content["message"])
        elif event.kind == "rewound":
            self.frames = {one for one in self.frames if one < content["frame"]}
        elif event.kind == "state":
            self._message = content.get("message") or content.get("state", "")
        elif event.kind == "disconnected":
            self._lose()
        elif event.kind == "reconnected":
            self._lost_at = None
        elif event.kind == "frame":
            self._message = ""
        if event.frame is not None:
            if event.frame.folder is None and self._keeper is not None:
                self._keeper.keep(event.frame)
            self.frames.add(event.frame.number)
        if event.kind == "end":
            self._end(content)

    def _lose(self) -> None:
        """The server is gone: another one for the folder takes the run up, and we are told."""
        self._message = "waiting for the server"
        self._lost_at = time.monotonic()
        if not self.request.endpoint:
            ensure_server(self.request.folder, self.request.command or None)

    def _end(self, content: Mapping[str, Any]) -> None:
        state, (first, last) = content["state"], self.request.frames
        message = content.get("message") or self.run.message or f"the run was {state}"
        if state == "cancelled":
            self._failure = self._failure or Cancelled(message)
        elif state != "finished":
            self._failure = RunFailed(message)
        elif self._told_last < last:
            self._told_last = last
            self.run.resume(frames=f"{first}-{last}")

    def streams(self, frame: int) -> dict[str, Any]:
        """Return what a frame holds, by output."""
        reader = FrameCacheReader(self.cache)
        return {name: reader.read(frame, name) for name in reader.objects(frame)}

    # -- what it is told -------------------------------------------------------------------------

    def extend(self, request: Request) -> None:
        """Take a request of the same key, which may want more frames."""
        self.request, (first, last) = request, request.frames
        if self.run.state in ENDED and self._failure is None and self._told_last < last:
            self._told_last = last
            self.run.resume(frames=f"{first}-{last}")

    def check_inputs(self, frame: int) -> None:
        """Compute frames anew from the first whose animated inputs are no longer what was sent."""
        if not self._has_changed(frame):
            return
        changed = next(one for one in sorted(self._sent) if self._has_changed(one))
        self._sent = {one: sent for one, sent in self._sent.items() if one < changed}
        self.frames = {one for one in self.frames if one < changed}
        self.run.rewind(changed, inputs=self._functions())

    def _has_changed(self, frame: int) -> bool:
        return any(
            digest(self.request.inputs[name].read(frame)) != sent
            for name, sent in self._sent.get(frame, {}).items()
        )

    def cancel(self) -> None:
        """Stop at the end of the running Task, with a checkpoint."""
        try:
            self.run.cancel()
        except Refused:
            return  # it has ended
        self._failure = Cancelled("the simulation was cancelled; Resimulate begins anew")

    def remove(self) -> None:
        """End the run and remove its frames."""
        self.cancel()
        while self.run.state not in ENDED:
            try:
                self.run.next_event(timeout=POLL_SECONDS)
            except TimeoutError:
                continue
        self.client.remove(self.run_name)
        self.close()

    def close(self) -> None:
        """Let go of the server; what runs goes on there."""
        self.client.close()
