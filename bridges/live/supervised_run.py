"""Supervised Run: one run as the server sees it: its state, its processes, and their restarts.

    collecting → queued → starting → running ⇄ paused → finished
                   ↑          ↘ restarting ↙           cancelled, failed, stopped

The server is never a rank. A job that ends before it said why is started again from the last
checkpoint: at once, then ever later, on half the ranks when it keeps ending, and in the end not at
all. What the user or the solver decided (cancelled, an error in the scene) is final.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loki_core.errors import InputError, LokiError
from loki_vfx.bridges.live.delivery import Delivery, Result
from loki_vfx.bridges.live.protocol import Message, ProtocolError
from loki_vfx.bridges.live.rewind import Rewind
from loki_vfx.bridges.live.run_folder import ENDED, RunFolder, RunOptions, RunRecord
from loki_vfx.bridges.live.run_inputs import RunInputs, Taken
from loki_vfx.bridges.live.segments import SegmentReader
from loki_vfx.bridges.live.worker_link import ATTEMPT, ENDPOINT, IDENTITY, SEGMENTS, THREADS
from loki_vfx.bridges.live.worker_process import WorkerProcess
from loki_vfx.bridges.standalone.folder_lock import FolderLock
from loki_vfx.bridges.standalone.launch import job_command, job_environment, threads_of_rank

logger = logging.getLogger("loki.live")

KEPT_EVENTS = 500
#: Errors that a restart may cure, if the user makes room first.
STOPPED_BY = ("DiskFullError", "MemoryError")


@dataclass(frozen=True)
class JobPolicy:
    """How jobs are started, and when one that ended by itself is started again.

    Attributes:
        ranks: Of runs that do not say how many.
        fewer_ranks_after: Ends without a new frame after which half the ranks are used.
        give_up_after: Ends without a new frame after which the run has failed.
        stall_seconds: A job that begins no Task for so long is ended; 0 waits for ever.
        longest_pause: Between two starts [s].
        input_bytes: Inputs of a run that are held before its solver asks for them.
    """

    ranks: int = 1
    fewer_ranks_after: int = 3
    give_up_after: int = 6
    stall_seconds: float = 3600.0
    longest_pause: float = 30.0
    input_bytes: int = 1 << 29

    def pause(self, crashes: int) -> float:
        """Return how long to wait after so many ends without a new frame [s]."""
        return 0.0 if crashes <= 1 else min(0.25 * 2.0 ** (crashes - 1), self.longest_pause)


class SupervisedRun:
    """A run in the care of this server.

    Args:
        announce: Is told every event, for the clients that follow.
        send_link: Sends a message to the worker of an identity.
        send_data: Sends a data message to a session.
        link_endpoint: Where workers connect to.
        segments: Folder for the shared memory of this run.
    """

    def __init__(
        self,
        folder: RunFolder,
        record: RunRecord,
        *,
        announce: Callable[[SupervisedRun, dict[str, Any]], None],
        send_link: Callable[[bytes, Message], None],
        send_data: Callable[..., Any],
        link_endpoint: str,
        segments: Path,
        policy: JobPolicy,
    ) -> None:
        self.folder = folder
        self.record = record
        self.policy = policy
        self.identity = b""
        self.delivery = Delivery(folder, send_data, SegmentReader(segments / "out"))
        self.delivery.rewind(record.rewinds, record.void_from)
        self.inputs = RunInputs(folder, record, segments / "in", self._give, policy.input_bytes)
        self.events: deque[tuple[int, dict[str, Any]]] = deque(maxlen=KEPT_EVENTS)
        self.event_count = 0
        self._is_written = True
        self.statistics: dict[str, Any] = {}
        self.progress: dict[str, Any] = {}
        self.memory = 0
        self._announce = announce
        self._send_link = send_link
        self._link_endpoint = link_endpoint
        self._segments = segments
        self._worker: WorkerProcess | None = None
        self._has_link = False
        self._stop_as: tuple[str, str] | None = None  # the state that a stop on request leads to
        self._keep_state = False  # while the server itself ends
        self._has_said_why = False  # whether the worker has told how it ends
        self._pending: list[list[str]] = []  # changes that the worker has not made yet
        self._wants_pause = False
        self._crashes = 0
        self._furthest: int | None = None  # the last frame that was new
        self._needs: dict[str, int | None] = {}  # inputs that the solver waits for
        self._start_after = 0.0
        self._tasks = -1
        self._last_task = time.monotonic()

    # -- what the server asks --------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state, as everybody sees it."""
        return self.record.state

    @property
    def is_active(self) -> bool:
        """Whether processes of it run."""
        return self._worker is not None

    @property
    def has_ended(self) -> bool:
        """Whether it does not go on by itself."""
        return self.record.state in ENDED

    def may_start(self, now: float) -> bool:
        """Whether it waits for nothing but its turn."""
        waits = self.record.state in ("queued", "restarting")
        return waits and not self.is_active and now >= self._start_after

    def set_state(self, state: str, message: str = "") -> None:
        """Go to another state, on the disk first."""
        self.record.state, self.record.message = state, message
        self._write_record()
        self.delivery.wake()
        self.tell({"event": "state", "state": state, "message": message})

    def _write_record(self) -> None:
        """Write the record; on a full disk it is tried again later, and the run goes on."""
        try:
            self.folder.write_record(self.record)
            self._is_written = True
        except OSError as error:
            if self._is_written:
                logger.warning("the record of run %s: %s", self.record.name, error)
            self._is_written = False

    def tell(self, event: dict[str, Any]) -> None:
        """Number an event, keep it for a while, and announce it."""
        self.event_count += 1
        self.events.append((self.event_count, event))
        self._announce(self, event)

    def queue_if_complete(self) -> None:
        """Wait for a turn once all inputs without frames are here."""
        if self.record.state == "collecting" and not self.inputs.missing:
            self.set_state("queued")

    def put_input(self, message: Message, session: bytes) -> list[Taken]:
        """Take an input of a client in."""
        content = message.content
        if self.has_ended:
            raise ProtocolError("ended", f"run {self.record.name} is {self.state}")
        taken = self.inputs.put(
            content["name"],
            content["frame"],
            message.payload,
            session=session,
            version=content["version"],
            base=content["base"],
            reused=content["reused"],
        )
        self.queue_if_complete()
        return taken

    def summary(self) -> dict[str, Any]:
        """Return what `wtloki top` shows."""
        return {
            "run": self.record.name,
            "owner": self.record.owner,
            "state": self.record.state,
            "message": self.record.message,
            "created": self.record.created,
            "ranks": self.record.ranks or self.record.options.ranks or self.policy.ranks,
            "restarts": self.record.restarts,
            "rewinds": len(self.record.rewinds),
            "begins": self.record.begins,
            "memory": self.memory,
            "clients": len(self.delivery.attachments),
            "progress": self.progress,
            "statistics": self.statistics,
            "events": self.event_count,
        }

    # -- orders ----------------------------------------------------------------------------------

    def cancel(self, state: str = "cancelled", message: str = "") -> None:
        """Stop the run: at the end of the running Task, or at once if it does not run."""
        if self.has_ended:
            return
        self._stop_as = (state, message)
        if self._has_link:
            self._order("cancel")
            return
        if self._worker is not None:  # it has not begun, so nothing is lost
            self._worker.kill()
            self._has_said_why = True
        self.set_state(state, message)

    def pause(self) -> None:
        """Hold the run at the end of its frame."""
        self._wants_pause = True
        if self.state == "running":
            self.set_state("paused")
        self._order("pause")

    def resume(self, options: dict[str, Any]) -> None:
        """Let a paused run go on, or take up an ended one from its last checkpoint.

        Raises:
            InputError: There are options and it has not ended, or they are not valid.
        """
        if options:
            if not self.has_ended:
                raise InputError(f"run {self.record.name} is {self.state}; its options stay")
            given = {**self.record.options.__dict__, **options}
            self.record.options = RunOptions.from_document(given)
        self._wants_pause = False
        self._order("resume")
        if self.state == "paused":
            self.set_state("running")
        elif self.has_ended:
            self._begin_again()

    def _begin_again(self) -> None:
        """Wait for a turn as if nothing had happened before."""
        self.record.begins += 1
        self._crashes = 0
        self._start_after = 0.0
        self._stop_as = None
        for attachment in self.delivery.attachments.values():
            attachment.ended = False
        self.record.ranks = 0
        self.set_state("collecting" if self.inputs.missing else "queued")

    def rewind(self, asked: Rewind) -> list[Taken]:
        """Compute frames anew, from the last checkpoint before them.

        What is under way is ended at once: it could only lead to void frames. Frames and
        checkpoints are removed when the next start has restored its state, not before.

        Returns:
            What clients may be told of their inputs.
        """
        void = self.record.void_from
        first = asked.frame if void is None else min(asked.frame, void)
        changed = replace(
            self.record,
            rewinds=[*self.record.rewinds, first],
            is_rewinding=True,
            options=asked.options,
            state="queued",
        )
        self.folder.write_record(changed)  # first: whatever happens then, it can be taken up
        self._abandon_worker()
        self.record.rewinds, self.record.is_rewinding = changed.rewinds, True
        self.record.options = asked.options
        self.folder.rewind(first, document=asked.document, inputs=asked.inputs)
        self.delivery.rewind(changed.rewinds, first)
        self._pending.clear()
        self._wants_pause = False
        self._furthest = None
        self.progress = {}
        taken = self.inputs.rewind(asked.inputs, asked.session, asked.version)
        self._begin_again()
        return taken

    def _abandon_worker(self) -> None:
        """End the worker at once, and hear nothing of it any more."""
        if self._worker is not None:
            self._worker.kill()
            self._has_said_why = True
        self._has_link = False
        self.identity = b""
        self._needs.clear()
        self.inputs.worker_ended()

    def checkpoint(self) -> None:
        """Write a checkpoint at the end of the frame."""
        if not self.record.options.keep_frames:
            raise InputError(f"run {self.record.name} is not kept, so it has no checkpoints")
        self._order("checkpoint")

    def changes(self) -> list[str]:
        """Return all changes so far, those that are not made yet included."""
        made = [text for one in self.folder.read_changes() for text in one["changes"]]
        return made + [text for some in self._pending for text in some]

    def change(self, changes: list[str]) -> None:
        """Change parameters from the next frame on."""
        if self.has_ended:
            raise InputError(f"run {self.record.name} is {self.state}; resume it first")
        self._pending.append(changes)
        self._order("change", {"changes": changes})

    def end_with_server(self) -> None:
        """Stop with a checkpoint and leave the state as it is, for the next server."""
        self._keep_state = True
        self._order("cancel")

    # -- processes -------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Start the worker, alone or on several ranks."""
        try:
            with FolderLock(self.folder.cache):
                pass  # a worker of a server that was killed may still be ending
        except InputError:
            self._start_after = now + 0.25
            return
        options = self.record.options
        self.record.ranks = self.record.ranks or options.ranks or self.policy.ranks
        threads = threads_of_rank(options.threads, self.record.ranks)
        self.identity = secrets.token_bytes(12)
        for side in ("in", "out"):
            (self._segments / side).mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = job_environment(threads) | {
            ENDPOINT: self._link_endpoint,
            IDENTITY: self.identity.hex(),
            ATTEMPT: str(self.record.restarts),
            SEGMENTS: str(self._segments),
            THREADS: str(threads),
        }
        words = ["-m", "loki_vfx.bridges.live.worker", str(self.folder.path)]
        self._has_said_why = self._has_link = False
        self._stop_as = None
        self._tasks, self._last_task = -1, now
        try:
            command = job_command(self.record.ranks, words)
        except LokiError as error:
            self.set_state("failed", str(error))
            return
        self._worker = WorkerProcess(command, environment, self.folder.log)
        self.set_state("starting")

    def look_after(self, now: float) -> None:
        """See whether the worker still runs, and what it uses."""
        if not self._is_written:
            self._write_record()
        if not (self.is_active or self.delivery.has_results or self.delivery.is_sending):
            self._release_memory()
        if self._worker is None:
            return
        if self._worker.has_exited():
            self._worker_ended(self._worker, now)
            return
        told = sum(one["memory"] for one in self.statistics.get("ranks", ()))
        self.memory = max(self._worker.look(), told)  # ranks may be on other machines
        stall = self.policy.stall_seconds
        if stall and now - self._last_task > stall and self.state in ("starting", "running"):
            self.tell({"event": "warning", "message": f"no Task began for {stall:g} s"})
            self._worker.kill()

    def _release_memory(self) -> None:
        if self._segments.exists():
            shutil.rmtree(self._segments, ignore_errors=True)
            self.delivery.release()
        if self.has_ended:
            self.inputs.release()

    def has_exited(self) -> bool:
        """Whether there is an end of the worker to be dealt with."""
        return self._worker is not None and self._worker.has_exited()

    def kill(self) -> None:
        """End all processes now."""
        if self._worker is not None:
            self._worker.finish()

    def _worker_ended(self, worker: WorkerProcess, now: float) -> None:
        code = worker.finish()
        self._worker = None
        self.memory = 0
        self.inputs.worker_ended()
        self._needs.clear()
        self._has_link = False
        if self.state != "finished":
            self.delivery.clear_results()
        if self._has_said_why or self._keep_state:
            return  # the state was set then, and may be another by now
        said = worker.error_in_log()
        if said is not None:
            self._fail(said)
        elif self._stop_as is not None:  # it was killed while it was stopping
            self.set_state(*self._stop_as)
        else:
            self._restart(worker, code, now)

    def _fail(self, said: dict[str, Any]) -> None:
        state = "stopped" if said["error"] in STOPPED_BY else "failed"
        self._pending.clear()  # one of them may be the cause
        self.tell({"event": "error", **said})
        self.set_state(state, said["message"])

    def _restart(self, worker: WorkerProcess, code: int, now: float) -> None:
        self._crashes += 1
        ending = f"signal {-code}" if code < 0 else f"code {code}"
        text = f"the solver ended with {ending} before its work was done"
        if not self.record.options.keep_frames:
            self.set_state("failed", f"{text}; its frames are not kept, so it cannot go on")
            return
        if self._crashes >= self.policy.give_up_after:
            self.set_state(
                "failed",
                f"{text}, {self._crashes} times without a new frame:\n{worker.log_tail()}",
            )
            return
        if self._crashes >= self.policy.fewer_ranks_after and self.record.ranks > 1:
            self.record.ranks //= 2
        self.record.restarts += 1
        self._start_after = now + self.policy.pause(self._crashes)
        ranks = self.record.ranks
        words = "1 rank" if ranks == 1 else f"{ranks} ranks"
        self.set_state("restarting", f"{text}; it goes on from its last checkpoint on {words}")

    # -- the link to rank 0 ----------------------------------------------------------------------

    def hear(self, message: Message) -> list[Taken]:
        """Take a message of rank 0; return what clients may be told of their inputs."""
        content = message.content
        if message.type == "ready":
            return self._greet()
        if message.type == "beat":
            if content["tasks"] != self._tasks:
                self._tasks, self._last_task = content["tasks"], time.monotonic()
        elif message.type == "told":
            self._hear_event(content["event"])
        elif message.type == "need":
            for name in content["names"]:
                if not self.inputs.is_given(name, content["frame"]):
                    self._needs[name] = content["frame"]
            self.tell_needs()
        elif message.type == "consumed":
            self._needs.pop(content["name"], None)
            return self.inputs.consumed(content["frame"])
        elif message.type == "released":
            return self.inputs.released(content["segment"])
        elif message.type == "result":
            self.delivery.add_result(Result(**content))
        elif message.type == "failed":
            self._has_said_why = True
            self._fail(dict(content))
        return []

    def tell_needs(self) -> None:
        """Tell what the solver waits for: when it begins to, and to whoever comes then."""
        for name, frame in self._needs.items():
            if name in self.record.animated:
                self.tell({"event": "need", "frame": frame, "names": [name]})

    def _greet(self) -> list[Taken]:
        self._has_link = True
        if self._stop_as is not None or self._keep_state:
            self._order("cancel")
        if self._wants_pause:
            self._order("pause")
        for changes in self._pending:
            self._order("change", {"changes": changes})
        self.inputs.worker_started()
        return self.inputs.pass_on()

    def _hear_event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "cancelled" and self._stop_as is None and not self._keep_state:
            return  # nobody asked: its launcher has died, and rank 0 took that for the server's end
        if kind == "started":
            if self.record.is_rewinding:  # it has a state, and the void frames are gone
                self.record.is_rewinding = False
                self._write_record()
                self.delivery.rewind(self.record.rewinds, None)
            self.progress = {"frames": event.get("frames"), "done": event.get("done")}
            if self.state != "paused":
                self.set_state("paused" if self._wants_pause else "running")
        elif kind == "frame":
            if self._furthest is None or event["frame"] > self._furthest:
                self._crashes, self._furthest = 0, event["frame"]
            if self.state == "starting":  # of a graph without a solver
                self.set_state("running")
            keys = ("frame", "last", "done", "seconds", "seconds_left", "counts", "retries")
            self.progress |= {key: event.get(key) for key in keys}
            first = (self.progress.get("frames") or [event["frame"]])[0]
            if self.record.options.keep_frames and event["frame"] >= first:
                self.delivery.add_frame(event["frame"])
        elif kind == "statistics":
            self.statistics = event
        elif kind == "checkpoint":
            self.inputs.drop_old()
        elif kind in ("changed", "unchanged"):
            self._note_change(event)
        self.tell(event)
        self._has_said_why |= kind in ("finished", "cancelled")
        if kind == "finished":
            self.set_state("finished")
        elif kind == "cancelled" and self._stop_as is not None and not self._keep_state:
            self.set_state(*self._stop_as)

    def _note_change(self, event: dict[str, Any]) -> None:
        if event["changes"] in self._pending:
            self._pending.remove(event["changes"])
        if event["event"] == "changed":
            change = {"frame": event["frame"], "changes": event["changes"]}
            self.folder.write_changes([*self.folder.read_changes(), change])

    def _give(self, **content: Any) -> None:
        self._send_link(self.identity, Message("given", content))

    def _order(self, order: str, values: dict[str, Any] | None = None) -> None:
        if self._has_link:
            content = {"order": order, "values": values}
            self._send_link(self.identity, Message("order", content))

    def free_segments(self) -> None:
        """Give shared memory back to rank 0."""
        for name in self.delivery.freed_segments():
            self._send_link(self.identity, Message("free", {"segment": name}))


def taken_up(record: RunRecord) -> RunRecord:
    """Return the record of a run that an earlier server left, as this one goes on with it."""
    if record.state in ENDED or record.state == "collecting":
        return record
    if record.state == "paused":
        text = "the server ended while the run was paused; resume it"
        return replace(record, state="stopped", message=text)
    return replace(record, state="queued", message="taken up by a new server")
