"""One rank of a live run: `python -m loki_vfx.bridges.live.worker FOLDER`, alone or under mpiexec.

The server starts it, with what it needs to find its way back in the environment. It reads the run
from its folder and drives a Runner, as `wtloki run` does; rank 0 has a link to the server, for
orders, inputs and news. It ends by itself when the server or its own parent is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from loki_core.errors import Cancelled, InputError
from loki_core.parallel.comm import Communicator, world
from loki_core.solver_setup import SolverSetup
from loki_graph import Evaluator, Graph
from loki_vfx.bridges.live.live_inputs import LiveInputs
from loki_vfx.bridges.live.run_folder import RunFolder
from loki_vfx.bridges.live.scene_document import change_scene, has_solver, parse_scene
from loki_vfx.bridges.live.stream_sink import StreamSink
from loki_vfx.bridges.live.worker_link import (
    ATTEMPT,
    ENDPOINT,
    IDENTITY,
    SEGMENTS,
    THREADS,
    WorkerLink,
)
from loki_vfx.bridges.standalone.failures import describe_failure
from loki_vfx.bridges.standalone.folder_lock import FolderLock
from loki_vfx.bridges.standalone.frame_sinks import CacheSink, FrameSink
from loki_vfx.bridges.standalone.run_request import RunRequest
from loki_vfx.bridges.standalone.runner import Runner, document_digest
from loki_vfx.bridges.standalone.scene import Scene, frame_range, make_scene
from loki_vfx.serialization.frame_cache import Manifest

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_RANKS = 0.2


class LiveRun:
    """A run as this rank sees it: the scene, its changes, and what drives it."""

    def __init__(self, folder: RunFolder, comm: Communicator) -> None:
        self.folder = folder
        self.record = folder.read_record()
        self.comm = comm
        self._files: Scene | None = None  # of a run that names its files
        if self.record.request is not None:
            self._files = RunRequest.from_json(json.dumps(self.record.request)).scene()
            self.scene: SolverSetup | Graph = self._files.setup
        else:
            self.scene = parse_scene(folder.read_document(), folder.path)
        self._recorded = sorted(folder.read_changes(), key=lambda one: int(one["frame"]))
        self._former_scene = self.scene
        self._cancelled = False
        self.runner: Runner | None = None
        self.link = self._connect() if comm.rank == 0 else None
        self.streams: dict[str, Any] = {}

    def _connect(self) -> WorkerLink:
        return WorkerLink(
            os.environ[ENDPOINT],
            bytes.fromhex(os.environ[IDENTITY]),
            run=self.record.name,
            attempt=int(os.environ[ATTEMPT]),
            folder=self.folder.path,
            segments=Path(os.environ[SEGMENTS]),
            on_cancel=self.cancel,
        )

    def cancel(self) -> None:
        """Stop soon; safe from any thread."""
        self._cancelled = True
        if self.runner is not None:
            self.runner.cancel()

    def run(self) -> None:
        """Compute all frames. Collective."""
        inputs = LiveInputs(self.comm, self.link)
        self.streams = inputs.collect(self.record.inputs, self.record.animated)
        options = self.record.options
        sink: FrameSink = StreamSink(self.comm, self.link)
        # all ranks do as rank 0 finds it: a file may be seen late on another machine
        begun = (self.folder.cache / "manifest.json").exists()
        begun = bool(self.comm.broadcast(bytes([begun and options.keep_frames]))[0])
        rewind = self.record.void_from
        if options.keep_frames:
            sink = CacheSink(self.folder.cache, self.comm, resume=begun, rewind=rewind)
        if not has_solver(self.scene):
            assert isinstance(self.scene, Graph)
            with FolderLock(self.folder.cache):
                GraphRun(self, self.scene, sink).run()
            return
        scene = self.changed_scene([])
        self.runner = Runner(
            scene.setup,
            scene.inputs,
            output=self.folder.cache,
            frames=self.frame_range(scene.setup, suggested=scene.frame_count),
            checkpoint_every=options.checkpoint_every if options.keep_frames else 0,
            keep_checkpoints=options.keep_checkpoints,
            resume=begun,
            rewind=rewind,
            threads=int(os.environ[THREADS]),
            comm=self.comm,
            listener=None if self.link is None else self.link.tell,
            document=scene.document,
            after=scene.after,
            sink=sink,
            conductor=self,
        )
        if self.link is not None:
            report = self.runner.report
            self.link.progress = lambda: (report.task_count, report.task_label)
        if self._cancelled:
            self.runner.cancel()
        self.runner.run()

    def frame_range(self, setup: SolverSetup, *, suggested: int) -> tuple[int, int]:
        """Return the first and the last frame to write; what was not rewound is there."""
        first, last = frame_range(self.record.options.frames, setup, suggested=suggested)
        rewound = self.record.rewound_to
        return first if rewound is None else max(first, rewound), last

    # -- the Runner's conductor ------------------------------------------------------------------

    def orders(self, frame: int) -> list[dict[str, Any]]:
        """Return what the server ordered, and what an earlier attempt changed at this frame."""
        content: dict[str, Any] = {}
        if self.link is not None:
            orders, stop = self.link.orders()
            again = [
                {"order": "change", "changes": one["changes"], "is_new": False}
                for one in self._recorded
                if one["frame"] == frame
            ]
            content = {"orders": [*again, *orders], "stop": stop}
        self.comm.patient_barrier()  # a pause may take hours
        content = json.loads(self.comm.broadcast(json.dumps(content).encode()))
        if content["stop"]:
            stopped = Cancelled(f"stopped on request after frame {frame}")
            stopped.together = True
            raise stopped
        return list(content["orders"])

    def changes_until(self, frame: int) -> list[str]:
        """Return what an earlier attempt had changed before a frame that it reached.

        What was changed at the frame itself comes again as an order.
        """
        before = [one for one in self._recorded if one["frame"] < frame]
        return [text for one in before for text in one["changes"]]

    def undo_changes(self) -> None:
        """Take the last changes back."""
        self.scene = self._former_scene

    def changed_scene(self, changes: list[str]) -> Scene:
        """Return the scene with all changes so far and these."""
        self._former_scene = self.scene
        self.scene = change_scene(self.scene, changes)
        if self._files is not None:
            assert isinstance(self.scene, SolverSetup)
            return replace(self._files, setup=self.scene)
        return make_scene(self.scene, self.streams, folder=self.folder.path, confined=True)


class GraphRun:
    """A graph without a Solver Setup: its outputs, frame by frame."""

    def __init__(self, run: LiveRun, graph: Graph, sink: FrameSink) -> None:
        if run.comm.size > 1:
            raise InputError(
                f"{graph.name} has no Solver Setup node, so there is nothing to share among "
                f"{run.comm.size} ranks; run it on one"
            )
        self._run = run
        self._graph = graph
        self._sink = sink

    def run(self) -> None:
        """Evaluate all outputs at all frames."""
        live, start = self._run, time.perf_counter()
        setup = SolverSetup(
            "graph",
            frames_per_second=self._graph.frames_per_second,
            start_frame=self._graph.start_frame,
        )
        first, last = live.frame_range(setup, suggested=1)
        live.scene = change_scene(self._graph, live.changes_until(first - 1))
        assert isinstance(live.scene, Graph)
        self._graph = live.scene
        evaluator = Evaluator(
            self._graph,
            host_inputs=live.streams,
            base_folder=live.folder.path,
            confined=True,
            comm=live.comm,
            keep_results=1,
        )
        link = live.link
        assert link is not None
        self._sink.open(
            Manifest(
                setup_hash=document_digest(self._graph.to_document()),
                setup=self._graph.to_document(),
                fps=float(self._graph.frames_per_second),
                start_frame=int(self._graph.start_frame),
            )
        )
        link.tell({"event": "started", "setup": self._graph.name, "frames": [first, last]})
        frame = first
        try:
            for frame in range(first, last + 1):
                self._follow_orders(evaluator, frame - 1, link)
                outputs = self._graph.outputs()
                streams = {name: evaluator.evaluate(name, frame) for name in outputs}
                self._sink.write(frame, streams, {})
                evaluator.host.drop_frames(frame)
                link.tell({"event": "frame", "frame": frame, "last": last})
        except Cancelled:
            link.tell({"event": "cancelled", "frame": frame - 1, "checkpoint": None})
            raise
        finally:
            self._sink.close()
        seconds = time.perf_counter() - start
        link.tell({"event": "finished", "frames": last - first + 1, "seconds": seconds})

    def _follow_orders(self, evaluator: Evaluator, frame: int, link: WorkerLink) -> None:
        live = self._run
        for order in live.orders(frame):
            if order["order"] == "change":
                live.scene = change_scene(live.scene, order["changes"])
                assert isinstance(live.scene, Graph)
                evaluator.update(live.scene)
                if order.get("is_new", True):
                    link.tell({"event": "changed", "frame": frame, "changes": order["changes"]})


def main() -> int:
    """Run this rank's share and return the exit code."""
    comm = world()
    if comm.size > 1:
        _end_with_parent()
    path = Path(sys.argv[1])
    live: LiveRun | None = None
    try:
        live = LiveRun(RunFolder(path.parent, path.name), comm)
        if comm.rank == 0:
            _stop_with_server(live)
        live.run()
    except Cancelled:
        pass  # all ranks are here together, and the server knows from the event
    except BaseException as error:
        failure = describe_failure(error)
        if live is not None and live.link is not None:
            live.link.fail(failure.kind, failure.message, failure.exit_code)
            live.link.close()
        # When all ranks fail together one after the other speaks; the first abort ends the others.
        time.sleep(min(SECONDS_BETWEEN_RANKS * comm.rank, 2.0))
        event = {"event": "error", **failure._asdict()}  # the server reads it where no link tells
        with suppress(OSError):  # the disk of the log may be the one that is full
            sys.stderr.write(f"rank {comm.rank} of {comm.size}:\n{traceback.format_exc()}")
            sys.stderr.write(json.dumps(event) + "\n")
            sys.stderr.flush()
        comm.abort(failure.exit_code)
    if live is not None and live.link is not None:
        live.link.close()
    return 0


def _stop_with_server(live: LiveRun) -> None:
    """Stop, with a checkpoint, when the server closes the pipe or is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            continue
        live.cancel()
        if live.link is not None:
            live.link.cancel()

    threading.Thread(target=watch, name="server", daemon=True).start()


def _end_with_parent() -> None:
    """End at once when the launcher is gone: an orphan of a job would wait for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
