"""A bake of one graph: its run on a server, and how far it is.

The solver is another process, and whoever talks to it here never waits: the server is spoken to in
one thread, and frames of another machine are written in another. Neither touches Blender data;
`tick` takes in what has come, in Blender's own thread. Nothing of this is saved in the .blend.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from loki_core.errors import Cancelled, LokiError
from loki_vfx.bridges.live.client import Client, Run
from loki_vfx.bridges.live.frame_keeper import FrameKeeper
from loki_vfx.bridges.live.local_server import ensure_server
from loki_vfx.bridges.live.run_folder import ENDED

from . import cache_files
from .background import Background
from .compat import session_number
from .preferences import Wishes
from .scene_inputs import SceneInput
from .scene_time import go_home
from .solver_connection import connect_to, server_options

LOG_LINES = 200
MOST_UNWRITTEN = 2  # frames of another machine in memory; the others wait there
WAITING = "waiting"


class LogLine(NamedTuple):
    """Something that a user should know."""

    level: str  # "info", "warning" or "error"
    text: str


class Bake:
    """A bake of one graph.

    Args:
        frames: First and last.
        earlier: What becomes of frames that are there, if new ones come from another machine: see
            FrameKeeper.
    """

    def __init__(
        self, tree: Any, scene: Any, frames: tuple[int, int], *, earlier: str | int
    ) -> None:
        self.scene: str = scene.name
        self.number = session_number(tree)
        self.name: str = tree.name
        self.run_name: str = tree.loki.run
        self.folder: Path = cache_files.root_of(tree)
        self.first, self.last = frames
        self.state = WAITING
        self.message = ""
        self.frame: int | None = None  # the newest that is there
        self.has_new_frame = False
        self.seconds_left: float | None = None
        self.counts: dict[str, int] = {}
        self.memory = 0
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.feeds = False  # whether inputs are read while it runs
        self.is_connected = True
        self.client: Client | None = None
        self.run: Run | None = None
        self._wanted = Wishes()
        self._command: list[str] = []
        self._wants_cancel = False
        self._is_closed = False
        self._server = Background(f"loki {self.name}")
        self._writing = Background(f"loki frames of {self.name}")
        self._keeper = FrameKeeper(self.folder / self.run_name, earlier)

    # -- what the user interface asks ------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes by itself."""
        return self.state in ENDED

    @property
    def factor(self) -> float:
        """How far it is, from 0 to 1."""
        if self.frame is None:
            return 0.0
        return min(1.0, max(0.0, (self.frame - self.first + 1) / (self.last - self.first + 1)))

    def say(self, level: str, text: str) -> None:
        """Add a line to the log."""
        self.log.append(LogLine(level, text))

    # -- orders: none waits, and a refusal comes into the log ------------------------------------

    def begin(self, work: Callable[[Client], Run], wanted: Wishes, command: list[str]) -> None:
        """Connect, and do something there that gives a run."""

        def go() -> None:
            client = connect_to(self.folder, wanted, command)
            try:
                if self._is_closed or self._wants_cancel:
                    raise Cancelled("cancelled before it began")
                self.run = work(client)
                self.client = client
            finally:
                if self.client is None:
                    client.close()

        self._wanted, self._command = wanted, command
        self.state, self.message = WAITING, "starting the solver"
        self._server.do(go, failed=self._fail)

    def cancel(self) -> None:
        """Stop at the end of the running Task, with a checkpoint."""
        self._wants_cancel = True
        if not self.is_over:
            self._order("cancel")

    def pause(self) -> None:
        """Hold at the end of the frame."""
        self._order("pause")

    def resume(self) -> None:
        """Go on after a pause."""
        self.message = ""
        self._wants_cancel = False
        self._order("resume")

    def checkpoint(self) -> None:
        """Write a checkpoint at the end of the frame."""
        self._order("checkpoint")

    def _order(self, name: str) -> None:
        def send() -> None:
            if self.run is not None:  # else it could not begin, and has said so
                getattr(self.run, name)()

        self._server.do(send, failed=self._say_problem)

    def close(self) -> None:
        """Let go of the server, after the orders that were given; the run goes on there."""
        if self._is_closed:
            return
        self._is_closed = True

        def hang_up() -> None:
            if self.client is not None:
                self.client.close()

        self._server.do(hang_up)
        self._server.close()
        self._writing.close()

    def lose(self, problem: Exception) -> None:
        """Follow it no more: something went wrong here, not there."""
        self._fail(problem)
        self.close()

    def take_inputs(self, sources: Mapping[str, SceneInput]) -> None:
        """Note what is read of the scene, and say what could not be carried."""
        self.feeds = any(one.is_animated for one in sources.values())
        for one in sources.values():
            for remark in one.remarks:
                self.say("info", remark)

    # -- what has come ---------------------------------------------------------------------------

    def tick(self) -> None:
        """Take in what has come since the last time. Never waits."""
        if self._is_closed:
            return
        self._server.take_in()
        self._writing.take_in()
        if self._is_closed or self.run is None or self._writing.waiting >= MOST_UNWRITTEN:
            return
        try:
            for event in self.run.poll():
                self._take(event)
        except LokiError as error:  # an input could not be read: nothing can go on without it
            self.say("error", str(error))
            self.message = str(error)
            self.cancel()
        finally:
            go_home()

    def _fail(self, problem: Exception) -> None:
        self.state, self.message = "failed", str(problem)
        if isinstance(problem, Cancelled):
            self.state = "cancelled"
        else:
            self._say_problem(problem)

    def _say_problem(self, problem: Exception) -> None:
        self.say("error", str(problem))
        if not isinstance(problem, (LokiError, OSError)):
            self.say("error", f"this is a fault of the add-on: {type(problem).__name__}")

    def _take(self, event: Any) -> None:
        takers = {
            "state": self._take_state,
            "started": self._take_started,
            "frame": self._take_progress,
            "statistics": self._take_statistics,
            "warning": self._take_warning,
            "error": self._take_error,
            "disconnected": self._take_disconnected,
            "reconnected": self._take_reconnected,
            "end": self._take_end,
        }
        if event.kind in takers:
            takers[event.kind](event.content)
        if event.frame is not None:
            self._take_data(event.frame)

    def _take_state(self, content: Mapping[str, Any]) -> None:
        message = content.get("message") or ""
        if content["state"] not in ENDED:  # the end is told once more, after the last frame
            self.state, self.message = content["state"], message
        if message:
            failed = content["state"] in ("failed", "stopped")
            self.say("error" if failed else "info", message)

    def _take_started(self, content: Mapping[str, Any]) -> None:
        for one in content.get("inactive", ()):
            self.say("info", f"{one['path']} is inactive: {one['reason']}")

    def _take_progress(self, content: Mapping[str, Any]) -> None:
        self.seconds_left = content.get("seconds_left")
        self.counts = content.get("counts") or {}

    def _take_statistics(self, content: Mapping[str, Any]) -> None:
        self.memory = sum(rank["memory"] for rank in content["ranks"])

    def _take_warning(self, content: Mapping[str, Any]) -> None:
        self.say("warning", content["message"])

    def _take_error(self, content: Mapping[str, Any]) -> None:
        self.say("error", content["message"])

    def _take_disconnected(self, content: Mapping[str, Any]) -> None:
        self.say("warning", f"the server is gone: {content.get('message', '')}")
        self.is_connected = False
        self.message = "waiting for the server"
        if not self.is_over and not self._wanted.endpoint:
            self._start_another_server()

    def _start_another_server(self) -> None:
        """Start a server in place of one that is gone; it takes the run up, and we are told."""
        folder, command, options = self.folder, self._command, server_options(self._wanted)
        self._server.do(lambda: ensure_server(folder, command, options), failed=self._fail)

    def _take_reconnected(self, content: Mapping[str, Any]) -> None:
        self.say("info", "the server is there again")
        self.is_connected = True
        self.message = ""
        if self._wants_cancel:
            self.cancel()

    def _take_data(self, frame: Any) -> None:
        if frame.folder is not None:
            self._announce(frame.number)
            return
        self._writing.do(
            lambda: self._keeper.keep(frame),
            then=lambda _: self._announce(frame.number),
            failed=self.lose,
        )

    def _announce(self, frame: int) -> None:
        self.frame = frame
        self.has_new_frame = True

    def _take_end(self, content: Mapping[str, Any]) -> None:
        def end(_: Any = None) -> None:
            self.state = content["state"]
            self.message = content.get("message") or self.message
            self.seconds_left = None

        if self._wanted.endpoint:
            self._writing.do(lambda: None, then=end)  # when all frames are written
        else:
            end()
