"""The server, `wtloki serve`: it owns sockets, keys and folders, and starts the solvers.

One thread, one loop: what clients say, what workers say, and what time it is. It computes nothing
and holds no frame: bulk goes from files and shared memory to sockets and back.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError, InputError, LokiError
from loki_core.operating_system import (
    core_count,
    current_user,
    keep_freed_memory,
    memory_bytes,
    shared_memory_folder,
    started_at,
)
from loki_core.solver_setup import SolverSetup
from loki_vfx.bridges.live.delivery import End
from loki_vfx.bridges.live.front_desk import DeskSettings, FrontDesk
from loki_vfx.bridges.live.local_server import DISCOVERY, discovered
from loki_vfx.bridges.live.protocol import (
    CONTROL_PART_BYTES,
    LINK_KINDS,
    Message,
    ProtocolError,
    document_part,
    message_parts,
    read_document,
    read_message,
)
from loki_vfx.bridges.live.rewind import Rewind, goes_on_from
from loki_vfx.bridges.live.run_folder import (
    RunFolder,
    RunOptions,
    RunRecord,
    checked_input_names,
    runs_in,
)
from loki_vfx.bridges.live.run_inputs import Taken
from loki_vfx.bridges.live.scene_document import change_scene, checked_changes, parse_scene
from loki_vfx.bridges.live.security import (
    folder_of_runs,
    local_place,
    owner_only_folder,
    socket_folder,
)
from loki_vfx.bridges.live.segments import remove_stale
from loki_vfx.bridges.live.sessions import OWNER, Session
from loki_vfx.bridges.live.sockets import (
    POLLIN,
    Poller,
    listen,
    new_context,
    receive,
    routing_id,
    send,
)
from loki_vfx.bridges.live.supervised_run import JobPolicy, SupervisedRun, taken_up
from loki_vfx.bridges.standalone.folder_lock import FolderLock
from loki_vfx.bridges.standalone.scene import frame_range
from loki_vfx.bridges.standalone.versions import loki_version
from loki_vfx.serialization.atomic_file import write_json

logger = logging.getLogger("loki.live")

SHARED = f"loki-{current_user()}"
SECONDS_TO_STOP = 600.0  # for checkpoints of large runs; a second signal does not wait
LOOKS_WITHOUT_FOLDER = 5  # a second apart, before it is taken for removed
HASTE, REST = 1, 50  # waits of the loop [ms]: while memory is on its way out, and otherwise


@dataclass(frozen=True)
class ServerSettings:
    """How a server works.

    Attributes:
        root: Folder of all runs.
        runs_at_once: How many runs compute side by side; more are queued.
        most_ranks: That a run may ask for; 0 for any number.
        memory_limit: Of all runs together [bytes]; 0 for none.
        idle_seconds: End after so long without clients and work; None never.
    """

    root: Path
    desk: DeskSettings = field(default_factory=DeskSettings)
    runs_at_once: int = 1
    most_ranks: int = 0
    memory_limit: int = 0
    idle_seconds: float | None = None
    policy: JobPolicy = field(default_factory=JobPolicy)


class Server:
    """Serves one root folder until it is told to stop."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.root = settings.root
        self.runs: dict[str, SupervisedRun] = {}
        self._stopping = False
        self._stop_now = False
        self._stop_at = 0.0
        self._sign: tuple[int, int] | None = None  # of this server, in its root
        self._looks_without = 0
        self._shared = shared_memory_folder() / f"{SHARED}-{os.getpid()}"
        self._handlers: dict[str, Callable[[Session, Message], dict[str, Any] | None]] = {
            "join": self._join,
            "input": self._input,
            "bye": lambda s, m: self.desk.end(s),
            "submit": self._submit,
            "attach": self._attach,
            "detach": self._detach,
            "credit": self._credit,
            "change": self._change,
            "pause": lambda s, m: self._run_of(s, m).pause(),
            "resume": self._resume,
            "cancel": lambda s, m: self._run_of(s, m).cancel(),
            "rewind": self._rewind,
            "checkpoint": lambda s, m: self._run_of(s, m).checkpoint(),
            "remove": self._remove,
            "status": self._status,
            "stop_server": self._stop_server,
        }

    # -- life ------------------------------------------------------------------------------------

    def serve(self, on_ready: Callable[[Server], None] | None = None) -> None:
        """Work until `stop` is called.

        Raises:
            InputError: Another server has the root, or an endpoint needs keys that are not there.
        """
        folder_of_runs(self.root)
        keep_freed_memory()
        with self._root_lock():
            handler = self._log_to_file()
            try:
                self._open()
                self._take_up_runs()
                self._publish()
                if on_ready is not None:
                    on_ready(self)
                self._loop()
            finally:
                self._close()
                logger.removeHandler(handler)
                handler.close()

    @contextmanager
    def _root_lock(self) -> Iterator[None]:
        """Hold the root; wait for a server that is just ending, and has taken its sign down."""
        end = time.monotonic() + SECONDS_TO_STOP
        while True:
            try:
                lock = FolderLock(self.root).__enter__()
                break
            except InputError:
                found = discovered(self.root)
                if found is not None or time.monotonic() > end:
                    where = "" if found is None else f" at {found['endpoint']}"
                    raise InputError(f"{self.root} is served by another server{where}") from None
                time.sleep(0.05)
        try:
            yield
        finally:
            lock.__exit__()

    def stop(self) -> None:
        """End soon, with checkpoints; the second time at once. Safe from a signal handler."""
        self._stop_now = self._stopping
        self._stopping = True

    def _log_to_file(self) -> logging.Handler:
        handler = logging.handlers.RotatingFileHandler(
            self.root / "server.log", maxBytes=5_000_000, backupCount=3, encoding="utf-8"
        )
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        return handler

    def _open(self) -> None:
        sockets = socket_folder(self.root)
        self._context = new_context()
        for path in sockets.glob("*.sock"):
            path.unlink()  # of a server that was killed: we hold the lock
        remove_stale(SHARED)
        owner_only_folder(self._shared)
        self.desk = FrontDesk(
            self._context,
            sockets,
            self.settings.desk,
            on_request=self._answer,
            on_end=self._session_ended,
        )
        place, guard = local_place(sockets, "link")
        self._link, self.link_endpoint = listen(
            self._context,
            place,
            data=False,
            part_bytes=CONTROL_PART_BYTES,
            guard=guard,
        )
        self._poller = Poller()
        self._poller.register(self._link, POLLIN)
        self.desk.register(self._poller)

    def _publish(self) -> None:
        desk = self.desk
        document: dict[str, Any] = {"endpoint": desk.endpoint, "tcp": desk.tcp_endpoint}
        document["pid"] = os.getpid()
        document |= {"host": platform.node(), "started": started_at(os.getpid())}
        write_json(self.root / DISCOVERY, document)
        self._sign = self._sign_that_hangs()
        where = f"{desk.endpoint} {desk.tcp_endpoint}".strip()
        logger.info("serving %s at %s, pid %d", self.root, where, os.getpid())

    def _take_down_sign(self) -> None:
        """Let nobody find this server any more; the next one waits for its lock."""
        if self._sign_that_hangs() == self._sign:
            (self.root / DISCOVERY).unlink(missing_ok=True)

    def _sign_that_hangs(self) -> tuple[int, int] | None:
        """What tells one sign of a server from another; None without any."""
        try:
            found = (self.root / DISCOVERY).stat()
        except FileNotFoundError:
            return None
        except OSError:
            return self._sign  # of a disk that does not answer nothing is known
        return found.st_ino, found.st_mtime_ns

    def _end_without_folder(self) -> None:
        """End when somebody has removed the folder: nobody could find this server again."""
        is_ours = self._sign_that_hangs() == self._sign
        self._looks_without = 0 if is_ours else self._looks_without + 1
        if self._looks_without > LOOKS_WITHOUT_FOLDER and not self._stopping:
            logger.error("%s was removed, or is served by another server: ending", self.root)
            self._stopping = self._stop_now = True

    def _close(self) -> None:
        for run in self.runs.values():
            run.kill()
        self._take_down_sign()
        if hasattr(self, "desk"):
            self.desk.close()
        if hasattr(self, "_context"):
            self._context.destroy(linger=500)
        shutil.rmtree(self._shared, ignore_errors=True)
        logger.info("ended")

    def _take_up_runs(self) -> None:
        for folder in runs_in(self.root):
            try:
                record = taken_up(folder.read_record())
                if record.name != folder.name:
                    raise FormatError(f"its record is that of {record.name}: a copy?")
            except FormatError as error:
                logger.warning("passed over %s: %s", folder.path, error)
                continue
            self._add_run(folder, record)
            if record.state == "queued":
                logger.info("run %s goes on from the disk", folder.name)

    def _add_run(self, folder: RunFolder, record: RunRecord) -> SupervisedRun:
        run = self.runs[record.name] = SupervisedRun(
            folder,
            record,
            announce=self._announce,
            send_link=self._send_link,
            send_data=self.desk.send_data,
            link_endpoint=self.link_endpoint,
            segments=self._shared / record.name,
            policy=self.settings.policy,
        )
        return run

    # -- the loop --------------------------------------------------------------------------------

    def _loop(self) -> None:
        next_look = idle_since = time.monotonic()
        while True:
            hurry = any(run.delivery.is_sending for run in self.runs.values())
            self._poller.poll(HASTE if hurry else REST)
            self._hear_workers()
            self.desk.hear()
            now = time.monotonic()
            for run in list(self.runs.values()):
                run.free_segments()
                if run.has_exited():
                    run.look_after(now)
            if now >= next_look:
                next_look = now + 1.0
                self._look_after_all(now)
                self._end_without_folder()
            self._start_runs(now)
            self._deliver()
            if self.desk.sessions or any(not run.has_ended for run in self.runs.values()):
                idle_since = now
            idle = self.settings.idle_seconds
            if idle is not None and now - idle_since > idle:
                self._stopping = True
            if self._stopping and self._has_stopped(now):
                return

    def _has_stopped(self, now: float) -> bool:
        active = [run for run in self.runs.values() if run.is_active]
        if not self._stop_at:
            self._stop_at = now + SECONDS_TO_STOP
            self._take_down_sign()
            for run in active:
                run.end_with_server()
        return not active or now > self._stop_at or self._stop_now

    def _look_after_all(self, now: float) -> None:
        for run in self.runs.values():
            run.look_after(now)
        self.desk.end_silent(now)
        limit = self.settings.memory_limit
        active = [run for run in self.runs.values() if run.is_active]
        if limit and sum(run.memory for run in active) > limit:
            largest = max(active, key=lambda run: run.memory)
            largest.cancel(
                "stopped",
                f"all runs use more than the server's limit of {limit / 1e9:.3g} GB, and this one "
                f"{largest.memory / 1e9:.3g} GB; raise the limit, or use more machines, and resume",
            )

    def _start_runs(self, now: float) -> None:
        if self._stopping:
            return
        active = [run for run in self.runs.values() if run.is_active]
        limit = self.settings.memory_limit
        used = sum(max(run.memory, run.record.options.memory_gb * 1e9) for run in active)
        for run in list(self.runs.values()):
            if len(active) >= self.settings.runs_at_once or not run.may_start(now):
                continue
            needed = run.record.options.memory_gb * 1e9
            if limit and active and used + needed > limit:
                continue  # it waits for memory; alone it may try
            try:
                run.start(now)
            except OSError as error:
                run.set_state("stopped", f"the solver cannot be started: {error}")
            if run.is_active:
                active.append(run)
                used += needed

    def _deliver(self) -> None:
        for run in self.runs.values():
            record, options = run.record, run.record.options
            try:
                run.delivery.pump(
                    results=options.results,
                    is_kept=options.keep_frames,
                    end=End(record.state, record.message, record.begins) if run.has_ended else None,
                )
            except (LokiError, OSError, ValueError) as error:  # of this run; others go on
                logger.exception("run %s: its frames cannot be sent", run.record.name)
                run.cancel("stopped", f"its frames cannot be sent: {error}")

    # -- workers ---------------------------------------------------------------------------------

    def _hear_workers(self) -> None:
        while (parts := receive(self._link)) is not None:
            route, rest = routing_id(parts)
            run = next((one for one in self.runs.values() if one.identity == route), None)
            if run is None:
                continue  # of a start that is over
            try:
                message = read_message(rest, sender="worker", socket="link", kinds=LINK_KINDS)
                for taken in run.hear(message):
                    self._tell_taken(run, taken)
            except OSError as error:
                run.cancel("stopped", f"the server cannot write: {error}")
            except LokiError as error:
                logger.warning("run %s, worker: %s", run.record.name, error)

    def _send_link(self, identity: bytes, message: Message) -> None:
        send(self._link, [identity, *message_parts(message, LINK_KINDS)])

    def _announce(self, run: SupervisedRun, event: dict[str, Any]) -> None:
        content = {"run": run.record.name, "number": run.event_count}
        payload = document_part(event)
        for session_id in list(run.delivery.attachments):
            session = self.desk.sessions.find(session_id)
            if session is not None:
                self.desk.reply(session, "event", content, payload=payload)
        if event.get("event") in ("state", "warning", "error"):
            words = event.get("state") or event.get("event")
            logger.info("run %s: %s %s", run.record.name, words, event.get("message", ""))

    def _tell_taken(self, run: SupervisedRun, taken: Taken) -> None:
        content: dict[str, Any] = {"run": run.record.name, "name": taken.name}
        content["frame"] = taken.frame
        content |= {"version": taken.version, "bytes": taken.size}
        self.desk.send_data(taken.session, "accepted", content)

    # -- what clients ask ------------------------------------------------------------------------

    def _answer(self, session: Session, message: Message) -> dict[str, Any] | None:
        return self._handlers[message.type](session, message)

    def _session_ended(self, session: Session) -> None:
        for run in self.runs.values():
            if run.delivery.attachments.pop(session.id, None) is None:
                continue
            if run.delivery.attachments:
                continue
            if run.record.options.when_alone == "stop":
                run.cancel("stopped", "its last client is gone; resume it")
            elif run.state == "collecting":
                run.cancel("stopped", "its host is gone before all inputs had come")

    def _join(self, session: Session, message: Message) -> None:
        for run in self.runs.values():
            run.delivery.wake()  # somebody may be waiting for data since before

    def _run_of(self, session: Session, message: Message) -> SupervisedRun:
        name = message.content["run"]
        run = self.runs.get(name)
        if run is None or not session.owns(run.record.owner):
            raise ProtocolError("unknown_run", f'there is no run "{name[:80]}" of yours')
        return run

    def _submit(self, session: Session, message: Message) -> dict[str, Any]:
        content = message.content
        if self._stopping:
            raise ProtocolError("busy", "the server is ending; try again")
        folder = RunFolder(self.root, content["run"])
        if content["run"] in self.runs or folder.path.exists():
            there = self.runs.get(folder.name)
            if there is None or not session.owns(there.record.owner):
                raise ProtocolError("exists", f'the name "{folder.name}" is taken; choose another')
            raise ProtocolError(
                "exists",
                f'there is a run "{folder.name}" already; attach to it, resume it, remove it, or '
                "take another name",
            )
        asked = _submission(read_document(message.payload))
        options = RunOptions.from_document(asked["options"])
        self._check_ranks(options)
        inputs = checked_input_names(asked["inputs"])
        animated = checked_input_names(asked["animated"])
        if set(inputs) & set(animated):
            raise ProtocolError("malformed", "an input is either animated or it is not")
        document = asked["document"]
        scene = parse_scene(document, folder.path)
        if isinstance(scene, SolverSetup):
            frame_range(options.frames, scene, suggested=1)  # raises what is wrong with it
        owner = session.user
        record = RunRecord(folder.name, owner, options, inputs=inputs, animated=animated)
        folder.path.mkdir(mode=0o700)
        try:
            folder.write_document(document)
            folder.write_record(record)
        except BaseException:
            folder.remove()
            raise
        run = self._add_run(folder, record)
        run.delivery.attach(session.id, after=None, credit=_credit_of(content["credit"]))
        run.queue_if_complete()
        logger.info("run %s of %s: submitted", folder.name, owner)
        return {"run": folder.name, "state": run.state}

    def _attach(self, session: Session, message: Message) -> dict[str, Any]:
        run = self._run_of(session, message)
        content = message.content
        run.delivery.attach(
            session.id,
            after=content["after"],
            credit=_credit_of(content["credit"]),
            rewinds=content["rewinds"],
        )
        run.tell_needs()
        events = [event for _, event in run.events if event.get("event") in ("warning", "error")]
        return {**run.summary(), "earlier": events[-50:]}

    def _resume(self, session: Session, message: Message) -> dict[str, Any]:
        run, options = self._run_of(session, message), message.content["options"] or {}
        self._check_ranks(RunOptions.from_document(run.record.options.__dict__ | options))
        run.resume(options)
        return {"begins": run.record.begins, "state": run.state}

    def _rewind(self, session: Session, message: Message) -> dict[str, Any]:
        if self._stopping:
            raise ProtocolError("busy", "the server is ending; try again")
        run = self._run_of(session, message)
        asked = Rewind.of_message(message, run.record)
        asked.check(run.record, run.folder.path, run.folder.cache)
        self._check_ranks(asked.options)
        for taken in run.rewind(asked):
            self._tell_taken(run, taken)
        first = run.record.rewinds[-1]
        return {
            "frame": first,
            "from": goes_on_from(run.folder.cache, first),
            "rewinds": len(run.record.rewinds),
            "begins": run.record.begins,
            "state": run.state,
        }

    def _check_ranks(self, options: RunOptions) -> None:
        most = self.settings.most_ranks
        if most and (options.ranks or 1) > most:
            raise InputError(f"run option ranks = {options.ranks}; this server allows {most}")

    def _detach(self, session: Session, message: Message) -> None:
        self._run_of(session, message).delivery.attachments.pop(session.id, None)

    def _credit(self, session: Session, message: Message) -> None:
        attachment = self._run_of(session, message).delivery.attachments.get(session.id)
        if attachment is None:
            raise ProtocolError("not_attached", "attach to the run first")
        attachment.grant(_credit_of(message.content["frames"]))
        self.runs[message.content["run"]].delivery.wake()

    def _change(self, session: Session, message: Message) -> None:
        run = self._run_of(session, message)
        changes = checked_changes(read_document(message.payload))
        scene = parse_scene(run.folder.read_document(), run.folder.path)
        change_scene(change_scene(scene, run.changes()), changes)  # raises what is wrong
        run.change(changes)

    def _remove(self, session: Session, message: Message) -> None:
        run = self._run_of(session, message)
        if not run.has_ended and run.state != "collecting":
            raise InputError(f"run {run.record.name} is {run.state}; cancel it first")
        if run.is_active:
            raise ProtocolError("busy", f"run {run.record.name} is just ending; try again")
        del self.runs[run.record.name]
        run.folder.remove()
        shutil.rmtree(self._shared / run.record.name, ignore_errors=True)

    def _status(self, session: Session, message: Message) -> dict[str, Any]:
        wanted = message.content["run"]
        runs = [
            run.summary()
            for name, run in self.runs.items()
            if session.owns(run.record.owner) and wanted in (None, name)
        ]
        return {
            "runs": runs,
            "server": {
                "version": loki_version(),
                "root": str(self.root),
                "pid": os.getpid(),
                "cores": core_count(),
                "memory": memory_bytes(),
                "memory_limit": self.settings.memory_limit,
                "clients": len(self.desk.sessions),
            },
        }

    def _stop_server(self, session: Session, message: Message) -> None:
        if session.user != OWNER:
            raise ProtocolError("not_allowed", "only its owner stops a server")
        self._stopping = True
        self._take_down_sign()  # before the answer: who hears it may look for a server at once

    def _input(self, session: Session, message: Message) -> None:
        run = self._run_of(session, message)
        for taken in run.put_input(message, session.id):
            self._tell_taken(run, taken)


def _submission(asked: Any) -> dict[str, Any]:
    """Return what a submission asks for, after checking its shape."""
    shapes = {"document": dict, "inputs": list, "animated": list, "options": dict}
    if not isinstance(asked, dict) or set(asked) != set(shapes):
        raise ProtocolError("malformed", f"a submission has {', '.join(shapes)}")
    for name, shape in shapes.items():
        if not isinstance(asked[name], shape):
            raise ProtocolError("malformed", f"submit: {name} is no {shape.__name__}")
    return asked


def _credit_of(value: int) -> int:
    if not 0 <= value <= 10_000:
        raise ProtocolError("malformed", f"credit for {value} frames; expected 0 to 10000")
    return value
