"""The server, `wtloki serve`: it owns sockets, keys and folders, and starts the solvers.

One thread, one loop: what clients say, what workers say, and what time it is. It computes nothing
and holds no frame: bulk goes from files and shared memory to sockets and back.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridges.live.local_server import DISCOVERY
from bridges.live.protocol import (
    CONTROL_PART_BYTES,
    LINK_KINDS,
    OLDEST_VERSION,
    PROTOCOL_VERSION,
    Message,
    ProtocolError,
    message_parts,
    read_document,
    read_message,
    version_words,
)
from bridges.live.run_folder import (
    RunFolder,
    RunOptions,
    RunRecord,
    checked_input_names,
    runs_in,
)
from bridges.live.run_inputs import Taken
from bridges.live.scene_document import change_scene, checked_changes, parse_scene
from bridges.live.security import KeyFolder, guard_for, owner_only_folder, socket_folder
from bridges.live.segments import remove_stale, shared_memory_folder
from bridges.live.sessions import OWNER, Session, Sessions
from bridges.live.sockets import (
    POLLIN,
    ConnectionWatch,
    Doorkeeper,
    Poller,
    listen,
    new_context,
    receive,
    routing_id,
    send,
    user_of,
)
from bridges.live.supervised_run import JobPolicy, SupervisedRun, taken_up
from bridges.standalone.folder_lock import FolderLock
from bridges.standalone.versions import core_count, loki_version, memory_bytes
from loki_core.errors import FormatError, InputError, LokiError
from serialization.atomic_file import write_json

logger = logging.getLogger("loki.live")

SHARED = f"loki-{os.getuid() if hasattr(os, 'getuid') else 0}"
LOGGED_REFUSALS = 20  # of one connection; after that they are only counted
HASTE, REST = 1, 50  # waits of the loop [ms]: while memory is on its way out, and otherwise


@dataclass(frozen=True)
class ServerSettings:
    """How a server works.

    Attributes:
        root: Folder of all runs.
        listen: A TCP endpoint besides the local one; empty for none.
        keys: Folder of keys, for clients from other machines.
        token: File of the token, for TCP on this machine.
        runs_at_once: How many runs compute side by side; more are queued.
        memory_limit: Of all runs together [bytes]; 0 for none.
        heartbeat: How often a client shows that it is there [s].
        patience: After how long a silent client counts as gone [s].
        message_bytes: Largest part of a message, that is: largest array.
        input_bytes: What a client may have sent that is not taken in yet.
        idle_seconds: End after so long without clients and work; None never.
    """

    root: Path
    listen: str = ""
    keys: Path | None = None
    token: Path | None = None
    runs_at_once: int = 1
    memory_limit: int = 0
    heartbeat: float = 2.0
    patience: float = 20.0
    message_bytes: int = 1 << 34
    input_bytes: int = 1 << 28
    most_clients: int = 1000
    idle_seconds: float | None = None
    policy: JobPolicy = field(default_factory=JobPolicy)


class Server:
    """Serves one root folder until it is told to stop."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.root = settings.root
        self.runs: dict[str, SupervisedRun] = {}
        self._stopping = False
        self._stop_at = 0.0
        self._sessions = Sessions(settings.most_clients)
        self._refusals: dict[bytes, int] = {}
        self._handlers: dict[str, Callable[[Session, Message], dict[str, Any] | None]] = {
            "bye": self._bye,
            "submit": self._submit,
            "attach": self._attach,
            "detach": self._detach,
            "credit": self._credit,
            "change": self._change,
            "pause": lambda s, m: self._run_of(s, m).pause(),
            "resume": lambda s, m: self._run_of(s, m).resume(m.content["options"] or {}),
            "cancel": lambda s, m: self._run_of(s, m).cancel(),
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
        owner_only_folder(self.root)
        with FolderLock(self.root):
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

    def stop(self) -> None:
        """End soon, with checkpoints; safe from a signal handler."""
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
        settings = self.settings
        self._context = new_context()
        sockets = socket_folder(self.root)
        for path in sockets.glob("*.sock"):
            path.unlink()  # of a server that was killed: we hold the lock
        remove_stale(SHARED)
        self._shared = shared_memory_folder() / f"{SHARED}-{sockets.name}-{os.getpid()}"
        owner_only_folder(self._shared)
        self._sockets: list[tuple[str, Any]] = []  # control or data, and the socket
        self._watches: list[ConnectionWatch] = []
        self._data_of: dict[Any, Any] = {}  # the data socket that belongs to a control socket
        self._data_endpoints: dict[Any, str] = {}
        self.endpoint = f"ipc://{sockets}/control.sock"
        self._listen(self.endpoint, f"ipc://{sockets}/data.sock", None)
        self._doorkeeper: Doorkeeper | None = None
        self.tcp_endpoint = ""
        if settings.listen:
            keys = None if settings.keys is None else KeyFolder(settings.keys)
            guard = guard_for(settings.listen, keys=keys, token=settings.token)
            if guard is not None:
                self._doorkeeper = Doorkeeper(self._context, guard)
            host = settings.listen.rpartition(":")[0]
            self.tcp_endpoint = self._listen(settings.listen, f"{host}:*", guard)
        self._link, self.link_endpoint = listen(
            self._context,
            f"ipc://{sockets}/link.sock",
            data=False,
            part_bytes=CONTROL_PART_BYTES,
            guard=None,
        )
        self._poller = Poller()
        for _, socket in self._sockets:
            self._poller.register(socket, POLLIN)
        self._poller.register(self._link, POLLIN)
        if self._doorkeeper is not None:
            self._poller.register(self._doorkeeper.socket, POLLIN)
        for watch in self._watches:
            self._poller.register(watch.socket, POLLIN)

    def _listen(self, control_endpoint: str, data_endpoint: str, guard: Any) -> str:
        control, endpoint = listen(
            self._context,
            control_endpoint,
            data=False,
            part_bytes=CONTROL_PART_BYTES,
            guard=guard,
        )
        data, data_at = listen(
            self._context,
            data_endpoint,
            data=True,
            part_bytes=self.settings.message_bytes,
            guard=guard,
        )
        self._sockets += [("control", control), ("data", data)]
        self._data_of[control] = data
        self._data_endpoints[control] = data_at
        if guard is not None:
            self._watches += [ConnectionWatch(control, endpoint), ConnectionWatch(data, data_at)]
        return endpoint

    def _publish(self) -> None:
        document = {"endpoint": self.endpoint, "tcp": self.tcp_endpoint, "pid": os.getpid()}
        write_json(self.root / DISCOVERY, document)
        where = f"{self.endpoint} {self.tcp_endpoint}".strip()
        logger.info("serving %s at %s, pid %d", self.root, where, os.getpid())

    def _close(self) -> None:
        for run in self.runs.values():
            run.kill()
        (self.root / DISCOVERY).unlink(missing_ok=True)
        if hasattr(self, "_context"):
            for watch in self._watches:
                watch.close()
            self._context.destroy(linger=500)
            shutil.rmtree(self._shared, ignore_errors=True)
        logger.info("ended")

    def _take_up_runs(self) -> None:
        for folder in runs_in(self.root):
            try:
                record = taken_up(folder.read_record())
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
            send_data=self._send_data,
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
            if self._doorkeeper is not None:
                self._doorkeeper.answer()
            for watch in self._watches:
                for what in watch.news():
                    words = "a handshake failed" if what == "failed" else "a connection ended"
                    logger.info("%s: %s", watch.name, words)
            self._hear_workers()
            self._hear_clients()
            now = time.monotonic()
            for run in list(self.runs.values()):
                run.free_segments()
                if run.has_exited():
                    run.look_after(now)
            if now >= next_look:
                next_look = now + 1.0
                self._look_after_all(now)
            self._start_runs(now)
            self._deliver()
            if self._sessions or any(not run.has_ended for run in self.runs.values()):
                idle_since = now
            idle = self.settings.idle_seconds
            if idle is not None and now - idle_since > idle:
                self._stopping = True
            if self._stopping and self._has_stopped(now):
                return

    def _has_stopped(self, now: float) -> bool:
        active = [run for run in self.runs.values() if run.is_active]
        if not self._stop_at:
            self._stop_at = now + 60.0
            for run in active:
                run.end_with_server()
        return not active or now > self._stop_at

    def _look_after_all(self, now: float) -> None:
        for run in self.runs.values():
            run.look_after(now)
        for session in self._sessions.silent(since=now - self.settings.patience):
            logger.warning("client %s is silent; its session ends", session.client)
            self._end_session(session)
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
            options = run.record.options
            run.delivery.pump(
                results=options.results,
                is_kept=options.keep_frames,
                end_state=run.state if run.has_ended else None,
            )

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

    # -- clients ---------------------------------------------------------------------------------

    def _hear_clients(self) -> None:
        for name, socket in self._sockets:
            for _ in range(100):  # then somebody else has a turn
                parts = receive(socket)
                if parts is None:
                    break
                self._hear_client(name, socket, parts)

    def _hear_client(self, name: str, socket: Any, parts: Sequence[Any]) -> None:
        route, rest = routing_id(parts)
        sequence = 0
        session: Session | None = None
        try:
            message = read_message(rest, sender="client", socket=name)
            sequence = message.sequence
            user = user_of(parts, OWNER)
            user = OWNER if user == "token" else user
            if message.type == "hello":
                self._hello(socket, route, message, user)
                return
            now = time.monotonic()
            session = self._sessions.check(message, socket=name, route=route, user=user, now=now)
            if message.type == "ping":
                self._reply(session, "pong", {}, sequence)
            elif message.type == "input":
                self._input(session, message)
            elif message.type == "join":
                for run in self.runs.values():
                    run.delivery.wake()
            else:
                result = self._handlers[message.type](session, message)
                self._reply(session, "done", {"result": result or {}}, sequence)
        except LokiError as error:
            self._refuse(name, socket, route, session, sequence, error)
        except OSError as error:
            text = f"the server cannot write: {error.strerror or error}"
            self._refuse(name, socket, route, session, sequence, ProtocolError("no_room", text))

    def _refuse(
        self,
        name: str,
        socket: Any,
        route: bytes,
        session: Session | None,
        sequence: int,
        error: LokiError,
    ) -> None:
        code = error.code if isinstance(error, ProtocolError) else type(error).__name__
        count = self._refusals[route] = self._refusals.get(route, 0) + 1
        if count <= LOGGED_REFUSALS:
            who = "unknown client" if session is None else session.client
            logger.warning("refused a message of %s on %s: %s: %s", who, name, code, error)
        if count == LOGGED_REFUSALS:
            logger.warning("more refused messages of this connection are not logged")
        if len(self._refusals) > 10_000:
            self._refusals.clear()
        kind = "error" if name == "control" else "refused"
        content = {"code": code, "message": str(error)[:50_000]}
        if session is not None:
            session.sent[name] += 1
        message = Message(
            kind,
            content,
            session.id if session is not None else b"",
            session.sent[name] if session is not None else 0,
            sequence,
        )
        send(socket, [route, *message_parts(message)])

    def _reply(self, session: Session, kind: str, content: dict[str, Any], to: int) -> None:
        session.sent["control"] += 1
        message = Message(kind, content, session.id, session.sent["control"], to)
        route = session.routes["control"]
        if send(session.socket, [route, *message_parts(message)]) is None:
            self._end_session(session)

    def _send_data(
        self,
        session_id: bytes,
        kind: str,
        content: dict[str, Any],
        payload: Sequence[Any] = (),
        *,
        track: bool = False,
    ) -> Any:
        session = self._sessions.find(session_id)
        route = session.routes.get("data") if session is not None else None
        if session is None or route is None:
            return None
        session.sent["data"] += 1
        message = Message(kind, content, session.id, session.sent["data"], 0, payload)
        return send(self._data_of[session.socket], [route, *message_parts(message)], track=track)

    def _announce(self, run: SupervisedRun, event: dict[str, Any]) -> None:
        content = {"run": run.record.name, "number": run.event_count, "event": event}
        for session_id in list(run.delivery.attachments):
            session = self._sessions.find(session_id)
            if session is not None:
                self._reply(session, "event", content, 0)
        if event.get("event") in ("state", "warning", "error"):
            words = event.get("state") or event.get("event")
            logger.info("run %s: %s %s", run.record.name, words, event.get("message", ""))

    def _tell_taken(self, run: SupervisedRun, taken: Taken) -> None:
        content: dict[str, Any] = {"run": run.record.name, "name": taken.name}
        content["frame"] = taken.frame
        content |= {"version": taken.version, "bytes": taken.size}
        self._send_data(taken.session, "accepted", content)

    # -- what clients ask ------------------------------------------------------------------------

    def _hello(self, socket: Any, route: bytes, message: Message, user: str) -> None:
        versions = [one for one in message.content["versions"] if type(one) is int]
        if not any(OLDEST_VERSION <= one <= PROTOCOL_VERSION for one in versions):
            raise ProtocolError("version", version_words(", ".join(map(str, versions)) or "none"))
        session = self._sessions.open(
            socket,
            route,
            user=user,
            client=message.content["client"],
            sequence=message.sequence,
            now=time.monotonic(),
        )
        settings = self.settings
        content = {
            "session": session.id,
            "version": PROTOCOL_VERSION,
            "server": f"wtloki {loki_version()}",
            "user": user,
            "data_endpoint": self._data_endpoints[socket],
            "heartbeat": settings.heartbeat,
            "patience": settings.patience,
            "limits": {
                "message_bytes": settings.message_bytes,
                "input_bytes": settings.input_bytes,
            },
        }
        self._reply(session, "welcome", content, message.sequence)

    def _bye(self, session: Session, message: Message) -> None:
        self._end_session(session)  # the answer still goes out, by the connection that is left

    def _end_session(self, session: Session) -> None:
        self._sessions.close(session)
        for route in session.routes.values():
            self._refusals.pop(route, None)
        for run in self.runs.values():
            if run.delivery.attachments.pop(session.id, None) is None:
                continue
            options = run.record.options
            if options.when_alone == "stop" and not run.delivery.attachments:
                run.cancel("stopped", "its last client is gone; resume it")

    def _run_of(self, session: Session, message: Message) -> SupervisedRun:
        name = message.content["run"]
        run = self.runs.get(name)
        if run is None or not session.owns(run.record.owner):
            raise ProtocolError("unknown_run", f'there is no run "{name[:80]}" of yours')
        return run

    def _submit(self, session: Session, message: Message) -> dict[str, Any]:
        content = message.content
        folder = RunFolder(self.root, content["run"])
        if content["run"] in self.runs or folder.path.exists():
            raise ProtocolError(
                "exists",
                f'there is a run "{folder.name}" already; attach to it, resume it, remove it, or '
                "take another name",
            )
        options = RunOptions.from_document(content["options"])
        inputs = checked_input_names(content["inputs"])
        animated = checked_input_names(content["animated"])
        if set(inputs) & set(animated):
            raise ProtocolError("malformed", "an input is either animated or it is not")
        document = read_document(message.payload)
        parse_scene(document, folder.path)
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
            session.id, after=content["after"], credit=_credit_of(content["credit"])
        )
        events = [event for _, event in run.events if event.get("event") in ("warning", "error")]
        return {**run.summary(), "earlier": events[-50:]}

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
        changes = checked_changes(message.content["changes"])
        scene = parse_scene(run.folder.read_document(), run.folder.path)
        earlier = [text for one in run.folder.read_changes() for text in one["changes"]]
        change_scene(change_scene(scene, earlier), changes)  # raises what is wrong with them
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
                "clients": len(self._sessions),
            },
        }

    def _stop_server(self, session: Session, message: Message) -> None:
        if session.user != OWNER:
            raise ProtocolError("not_allowed", "only its owner stops a server")
        self._stopping = True

    def _input(self, session: Session, message: Message) -> None:
        run = self._run_of(session, message)
        for taken in run.put_input(message, session.id):
            self._tell_taken(run, taken)


def _credit_of(value: int) -> int:
    if not 0 <= value <= 10_000:
        raise ProtocolError("malformed", f"credit for {value} frames; expected 0 to 10000")
    return value
