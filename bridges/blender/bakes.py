"""Bakes: simulations that run for graphs of the open file, and what is known of them.

The solver is another process, and whoever talks to it here never waits: a bake is started in a
thread that touches no Blender data, and `tick` takes in what has come. Blender data is read and
written in Blender's own thread only. Nothing of this is saved in the .blend; a graph is known by
the number that Blender gives it until the file is closed, which undo does not change.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import bpy

from bridges.live.client import Client, Refused, Run, connect
from bridges.live.local_server import discovered, ensure_server
from bridges.live.run_folder import ENDED, RunFolder
from loki_core.errors import Cancelled, FormatError, InputError, LokiError
from loki_graph.graph_document import graph_to_document
from serialization.atomic_file import read_json, write_json

from . import cache_files
from .compat import session_number
from .graph_exchange import graph_of, sample_drivers
from .graph_tree import graphs
from .preferences import Wishes, solver_command, wishes
from .scene_inputs import SceneInput, inputs_of
from .scene_time import go_home

LOG_LINES = 200
WAITING = "waiting"


class LogLine(NamedTuple):
    """Something that a user should know."""

    level: str  # "info", "warning" or "error"
    text: str


class Bake:
    """A bake of one graph: its run on a server, and how far it is."""

    def __init__(self, tree: Any, scene: Any, frames: tuple[int, int]) -> None:
        self.scene: str = scene.name
        self.number = session_number(tree)
        self.name: str = tree.name
        self.run_name: str = tree.loki.run
        self.folder: Path = cache_files.root_of(tree)
        self.first, self.last = frames
        self.state = WAITING
        self.message = ""
        self.frame: int | None = None  # the newest that is there
        self.seconds_left: float | None = None
        self.counts: dict[str, int] = {}
        self.memory = 0
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.run: Run | None = None
        self.has_new_frame = False
        self.client: Client | None = None
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None
        self._wants_cancel = self._wants_pause = False
        self._is_closed = False
        self.is_connected = True
        self.feeds = False  # whether inputs are read while it runs
        self._keeps_earlier = False  # whether frames from another machine are added to those here
        self._wanted = Wishes()
        self._command: list[str] = []
        self._writer: Any = None

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

    # -- orders ----------------------------------------------------------------------------------

    def begin(self, work: Callable[[Client], Run], wanted: Wishes, command: list[str]) -> None:
        """Connect and do something in a thread; `tick` goes on when it has ended."""

        def go() -> None:
            try:
                client = connect_to(self.folder, wanted, command)
                if self._is_closed or self._wants_cancel:
                    client.close()
                    raise Cancelled("cancelled before it began")
                self.client = client
                self.run = work(client)
                if self._is_closed:
                    client.close()
            except Exception as error:  # told by `tick`, where users can see it
                self._problem = error

        self._problem = None
        self._wanted, self._command = wanted, command
        self.state, self.message = WAITING, "starting the solver"
        self._thread = threading.Thread(target=go, name=f"loki {self.name}", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop at the end of the running Task, with a checkpoint."""
        self._wants_cancel = True
        if self.run is not None and not self.is_over:
            self._order(self.run.cancel)

    def pause(self) -> None:
        """Hold at the end of the frame."""
        self._wants_pause = True
        if self.run is not None:
            self._order(self.run.pause)

    def resume(self) -> None:
        """Go on after a pause, or take up a bake that was stopped."""
        if self.run is not None:
            self.message = ""
            self._wants_cancel = self._wants_pause = False
            self._order(self.run.resume)

    def checkpoint(self) -> None:
        """Write a checkpoint at the end of the frame."""
        if self.run is not None:
            self._order(self.run.checkpoint)

    def _order(self, order: Callable[[], Any]) -> None:
        try:
            order()
        except LokiError as error:
            self.say("error", str(error))

    def close(self) -> None:
        """Let go of the server; the run goes on there. Never waits."""
        self._is_closed = True
        if self.client is not None:
            self.client.close()
            self.client = None
        if self._writer is not None:
            self._writer.close()

    def take_inputs(self, sources: Mapping[str, SceneInput]) -> None:
        """Note what is read of the scene, and say what could not be carried."""
        self.feeds = any(one.is_animated for one in sources.values())
        for one in sources.values():
            for remark in one.remarks:
                self.say("info", remark)

    # -- what has come ---------------------------------------------------------------------------

    def tick(self) -> None:
        """Take in what has come since the last time. Never waits."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            if self._problem is not None:
                self._fail(self._problem)
                return
            if self._wants_cancel:
                self.cancel()
            elif self._wants_pause:
                self.pause()
        if self.run is None or self.client is None:
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

    def lose(self, problem: BaseException) -> None:
        """Follow it no more: something went wrong here, not there."""
        self._fail(problem)
        self.close()

    def _fail(self, problem: BaseException) -> None:
        self.state, self.message = "failed", str(problem)
        if isinstance(problem, Cancelled):
            self.state = "cancelled"
            return
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
        self.state = content["state"]
        self.message = content.get("message") or (self.message if self.is_over else "")
        if content.get("message"):
            failed = self.state in ("failed", "stopped")
            self.say("error" if failed else "info", content["message"])

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
        options = server_options(self._wanted)

        def go() -> None:
            try:
                ensure_server(self.folder, self._command, options)
            except Exception as error:  # told by `tick`
                self._problem = error

        self._thread = threading.Thread(target=go, name=f"loki {self.name}", daemon=True)
        self._thread.start()

    def _take_reconnected(self, content: Mapping[str, Any]) -> None:
        self.say("info", "the server is there again")
        self.is_connected = True
        self.message = ""

    def _take_end(self, content: Mapping[str, Any]) -> None:
        self.state = content["state"]
        self.seconds_left = None

    def _take_data(self, frame: Any) -> None:
        self.frame = frame.number
        self.has_new_frame = True
        if frame.folder is None:
            self._keep(frame)

    def _keep(self, frame: Any) -> None:
        """Write a frame from another machine into the cache here."""
        from serialization.frame_cache import FrameCacheWriter, Manifest

        if self._writer is None:
            folder = self.folder / self.run_name / "cache"
            keeps = self._keeps_earlier
            self._writer = FrameCacheWriter(
                folder, Manifest(self.run_name), overwrite=not keeps, resume=keeps
            )
        self._writer.write_frame(frame.number, frame.streams(), statistics=frame.statistics)


def connect_to(folder: Path, wanted: Wishes, command: list[str]) -> Client:
    """Return a client: of the server that the preferences name, or of that of a folder here."""
    if wanted.endpoint:
        keys = Path(wanted.keys).expanduser() if wanted.keys else None
        return connect(wanted.endpoint, keys=keys, name="Blender")
    options = server_options(wanted)
    return connect(root=folder, command=command, server_options=options, name="Blender")


def server_options(wanted: Wishes) -> tuple[str, ...]:
    """Return the options of a server that is started here."""
    return ("--memory-limit", str(wanted.memory_limit)) if wanted.memory_limit else ()


# -- all bakes of the file ------------------------------------------------------------------------

_bakes: dict[int, Bake] = {}


def bake_of(tree: Any) -> Bake | None:
    """Return the bake of a graph; None if there is none since the file was opened."""
    return _bakes.get(session_number(tree))


def all_bakes() -> Iterator[tuple[Any, Bake]]:
    """Yield graphs and their bakes; one whose graph was removed is cancelled and forgotten."""
    trees = {session_number(tree): tree for tree in graphs()}
    for number, bake in list(_bakes.items()):
        if number in trees:
            yield trees[number], bake
        else:
            bake.cancel()
            bake.close()
            del _bakes[number]


def forget_all() -> None:
    """Let go of all servers, when a file is closed; what runs goes on there."""
    for bake in _bakes.values():
        bake.close()
    _bakes.clear()


def frame_range(tree: Any, scene: Any) -> tuple[int, int]:
    """Return the first and the last frame of a bake."""
    if tree.loki.use_scene_range:
        return scene.frame_start, scene.frame_end
    return tree.loki.frame_start, tree.loki.frame_end


def rate_of(scene: Any) -> float:
    """Return the frames per second of a scene."""
    return float(scene.render.fps / scene.render.fps_base)


def document_of(tree: Any, scene: Any, *, with_drivers: bool = False) -> Any:
    """Return the Loki Graph that a bake would compute now."""
    frames = frame_range(tree, scene)
    driven = sample_drivers(tree, scene, frames) if with_drivers else None
    return graph_of(tree, frames=frames, frames_per_second=rate_of(scene), driven=driven)


def start(tree: Any, scene: Any, *, from_frame: int | None = None) -> Bake:
    """Begin a bake.

    Args:
        from_frame: Keep the frames before this one, and go on from the last checkpoint before it.

    Raises:
        LokiError: The graph is not valid, an input has no object, or there is no solver.
    """
    former = bake_of(tree)
    if former is not None and not former.is_over:
        raise InputError(f"{tree.name} is being baked; cancel that first")
    frames = frame_range(tree, scene)
    if frames[1] < frames[0]:
        raise InputError(f"the frame range {frames[0]} to {frames[1]} is empty")
    if not bpy.data.filepath and tree.loki.folder.startswith("//"):
        tree.loki.folder = str(cache_files.root_of(tree))  # found again when the file is saved
    wanted, command = wishes(), [] if wishes().endpoint else solver_command()
    graph = document_of(tree, scene, with_drivers=True)
    sources = inputs_of(tree, scene)
    try:
        inputs = {name: one.given(frames[0]) for name, one in sources.items()}
    finally:
        go_home()
    tree.loki.scene = scene
    if from_frame is None and not _is_own(tree):
        taken = {one.loki.run for one in graphs()} | _folders(cache_files.root_of(tree))
        tree.loki.run = cache_files.run_name(tree, taken)
    options = _options(tree, frames, wanted)
    run_name = tree.loki.run
    if former is not None:
        former.close()
    bake = _bakes[session_number(tree)] = Bake(tree, scene, frames)
    bake._keeps_earlier = from_frame is not None
    bake.take_inputs(sources)
    owner = _owner(tree)

    def submit(client: Client) -> Run:
        if from_frame is not None:
            run = client.attach(run_name, after=from_frame - 1)
            run.rewind(from_frame, scene=graph, inputs=inputs, **options)
            return run
        if any(one["run"] == run_name for one in client.status(run_name)["runs"]):
            client.remove(run_name)
        run = client.submit(graph, inputs, run=run_name, **options)
        if not wanted.endpoint:
            write_json(bake.folder / run_name / OWNER, owner)
        return run

    bake.begin(submit, wanted, command)
    return bake


OWNER = "blender.json"
"""The file in a run's folder that says which graph of which .blend it was baked for."""


def _owner(tree: Any) -> dict[str, str]:
    return {"graph": tree.name, "file": Path(bpy.data.filepath).name}


def _is_own(tree: Any) -> bool:
    """Whether a graph may replace the bake that it names: a copied graph or file may not."""
    folder = cache_files.run_folder(tree)
    if folder is None or not folder.is_dir():
        return folder is not None
    try:
        return bool(read_json(folder / OWNER)[0] == _owner(tree))
    except (FormatError, OSError):
        return False


def attach(tree: Any, scene: Any, *, resume: bool = False) -> Bake:
    """Follow a bake that runs already, or can be taken up: of this file, opened again.

    Args:
        resume: Also let it go on if it has ended.

    Raises:
        LokiError: The graph was never baked, or there is no solver.
    """
    if not tree.loki.run:
        raise InputError(f"{tree.name} was never baked")
    former = bake_of(tree)
    if former is not None:
        former.close()
    wanted, command = wishes(), [] if wishes().endpoint else solver_command()
    sources = inputs_of(tree, scene)
    functions = {name: one.at for name, one in sources.items() if one.is_animated}
    frames = cache_files.baked_frames(tree)
    bake = _bakes[session_number(tree)] = Bake(tree, scene, frame_range(tree, scene))
    bake.frame = frames[-1] if frames else None
    bake._keeps_earlier = True
    bake.take_inputs(sources)
    run_name = tree.loki.run

    def follow(client: Client) -> Run:
        run = client.attach(run_name, after=bake.frame, inputs=functions)
        bake.state, bake.message = run.state, run.message
        if resume and run.state in ENDED:
            run.resume()
        return run

    bake.begin(follow, wanted, command)
    return bake


def is_running_elsewhere(tree: Any) -> bool:
    """Whether a server has the bake of a graph, though nobody here follows it."""
    folder = cache_files.run_folder(tree)
    if folder is None or bake_of(tree) is not None or not folder.is_dir():
        return False
    if discovered(folder.parent) is None:
        return False
    try:
        return RunFolder(folder.parent, folder.name).read_record().state not in ENDED
    except FormatError:
        return False


def remove(tree: Any) -> None:
    """Forget a bake and remove all its files.

    Raises:
        InputError: It is still running.
    """
    import shutil

    bake = bake_of(tree)
    if bake is not None and not bake.is_over:
        raise InputError(f"{tree.name} is being baked; cancel that first")
    folder = cache_files.run_folder(tree)
    if folder is not None and _is_own(tree):
        _remove_on_server(folder)
        if (folder / "cache" / "manifest.json").is_file():
            shutil.rmtree(folder)
    if bake is not None:
        bake.close()
        del _bakes[bake.number]
    tree.loki.run = ""


def _remove_on_server(folder: Path) -> None:
    """Let a server that knows a run forget it, with its files."""
    wanted = wishes()
    if not wanted.endpoint and discovered(folder.parent) is None:
        return
    client = connect_to(folder.parent, wanted, [])
    try:
        client.remove(folder.name)
    except Refused as error:
        if error.code != "unknown_run":
            raise
    finally:
        client.close()


def _folders(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} if root.is_dir() else set()


def _options(tree: Any, frames: tuple[int, int], wanted: Wishes) -> dict[str, Any]:
    options: dict[str, Any] = {
        "frames": f"{frames[0]}-{frames[1]}",
        "ranks": tree.loki.ranks or wanted.ranks,
        "results": "frames" if wanted.endpoint else "manifest",
    }
    if tree.loki.threads:
        options["threads"] = tree.loki.threads
    if tree.loki.checkpoint_every:
        options["checkpoint_every"] = tree.loki.checkpoint_every
        options["keep_checkpoints"] = 10_000  # for bakes from any frame on
    return options


_changed: dict[int, bool] = {}  # what `is_out_of_date` has found, until something is edited


def note_edit(block: Any) -> None:
    """Note that a graph was edited."""
    _changed.pop(session_number(block), None)


def is_out_of_date(tree: Any, scene: Any) -> bool:
    """Whether a graph has changed since it was baked; quick, for panels."""
    number = session_number(tree)
    if number not in _changed:
        _changed[number] = has_changed(tree, scene)
    return _changed[number]


def has_changed(tree: Any, scene: Any) -> bool:
    """Whether a graph is not what its frames were made of any more, drivers apart."""
    folder = cache_files.run_folder(tree)
    if folder is None or not folder.is_dir():
        return False
    try:
        baked = RunFolder(folder.parent, folder.name).read_document()
        return bool(baked != graph_to_document(document_of(tree, scene)))
    except (LokiError, OSError):
        return True


def rest() -> None:
    """Let the solver work for a moment, where there is no window whose clock would go on."""
    time.sleep(0.02)
