"""The front desk of a server: its sockets for clients, their sessions, and who is refused.

What is right is handed to whoever answers requests; what is not is refused, logged and forgotten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loki_core.errors import LokiError
from loki_vfx.bridges.live.protocol import (
    CONTROL_PART_BYTES,
    OLDEST_VERSION,
    PROTOCOL_VERSION,
    Message,
    ProtocolError,
    document_part,
    message_parts,
    read_message,
    version_words,
)
from loki_vfx.bridges.live.security import KeyFolder, guard_for, local_place
from loki_vfx.bridges.live.sessions import OWNER, Session, Sessions
from loki_vfx.bridges.live.sockets import (
    POLLIN,
    TOKEN_USER,
    ConnectionWatch,
    Context,
    Doorkeeper,
    Poller,
    listen,
    receive,
    routing_id,
    send,
    user_of,
)
from loki_vfx.bridges.standalone.versions import loki_version

logger = logging.getLogger("loki.live")

LOGGED_REFUSALS = 20  # of one connection; after that they are only counted


@dataclass(frozen=True)
class DeskSettings:
    """Where a server listens, and what it accepts.

    Attributes:
        listen: A TCP endpoint besides the local one; empty for none.
        keys: Folder of keys, for clients from other machines.
        token: File of the token, for TCP on this machine.
        heartbeat: How often a client shows that it is there [s].
        patience: After how long a silent client counts as gone [s].
        message_bytes: Largest part of a message, that is: largest array.
        input_bytes: What a client may have sent that is not taken in yet.
    """

    listen: str = ""
    keys: Path | None = None
    token: Path | None = None
    heartbeat: float = 2.0
    patience: float = 20.0
    message_bytes: int = 1 << 34
    input_bytes: int = 1 << 28
    most_clients: int = 1000


class FrontDesk:
    """Talks to all clients.

    Args:
        folder: Of the local sockets.
        on_request: Answers a request with a map, or None.
        on_end: Is told of a session that has ended.
    """

    def __init__(
        self,
        context: Context,
        folder: Path,
        settings: DeskSettings,
        *,
        on_request: Callable[[Session, Message], dict[str, Any] | None],
        on_end: Callable[[Session], None],
    ) -> None:
        self.settings = settings
        self.sessions = Sessions(settings.most_clients)
        self._context = context
        self._on_request = on_request
        self._on_end = on_end
        self._refusals: dict[bytes, int] = {}
        self._sockets: list[tuple[str, Any]] = []  # control or data, and the socket
        self._watches: list[ConnectionWatch] = []
        self._data_of: dict[Any, Any] = {}  # the data socket that belongs to a control socket
        self._data_endpoints: dict[Any, str] = {}
        here, guard_here = local_place(folder, "control")
        there, guard_there = settings.listen, None
        if there:
            keys = None if settings.keys is None else KeyFolder(settings.keys)
            guard_there = guard_for(there, keys=keys, token=settings.token)
        guards = [guard for guard in (guard_here, guard_there) if guard is not None]
        self._doorkeeper = Doorkeeper(self._context, guards) if guards else None
        self.endpoint = self._listen(here, local_place(folder, "data")[0], guard_here)
        self.tcp_endpoint = ""
        if there:
            self.tcp_endpoint = self._listen(there, f"{there.rpartition(':')[0]}:*", guard_there)

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

    def register(self, poller: Poller) -> None:
        """Let a poller wait for clients."""
        for _, socket in self._sockets:
            poller.register(socket, POLLIN)
        if self._doorkeeper is not None:
            poller.register(self._doorkeeper.socket, POLLIN)
        for watch in self._watches:
            poller.register(watch.socket, POLLIN)

    def close(self) -> None:
        """Stop watching connections; the context closes the sockets."""
        for watch in self._watches:
            watch.close()

    def hear(self) -> None:
        """Deal with what clients have said since the last call."""
        if self._doorkeeper is not None:
            self._doorkeeper.answer()
        for watch in self._watches:
            for what in watch.news():
                words = "a handshake failed" if what == "failed" else "a connection ended"
                logger.info("%s: %s", watch.name, words)
        for name, socket in self._sockets:
            # inputs may be large, and control must not wait for many of them
            for _ in range(100 if name == "control" else 4):
                parts = receive(socket)
                if parts is None:
                    break
                self._hear_client(name, socket, parts)

    def end_silent(self, now: float) -> None:
        """End the sessions of clients that are not heard any more."""
        for session in self.sessions.silent(since=now - self.settings.patience):
            logger.warning("client %s is silent; its session ends", session.client)
            self.end(session)

    def end(self, session: Session) -> None:
        """End a session."""
        self.sessions.close(session)
        for route in session.routes.values():
            self._refusals.pop(route, None)
        self._on_end(session)

    def _hear_client(self, name: str, socket: Any, parts: Sequence[Any]) -> None:
        route, rest = routing_id(parts)
        sequence = 0
        session: Session | None = None
        try:
            message = read_message(rest, sender="client", socket=name)
            sequence = message.sequence
            user = user_of(parts, OWNER)
            user = OWNER if user == TOKEN_USER else user
            if message.type == "hello":
                self._hello(socket, route, message, user)
                return
            if message.type == "join" and self.sessions.find(message.session) is None:
                return  # said goodbye on the other socket before it came in on this one
            now = time.monotonic()
            session = self.sessions.check(message, socket=name, route=route, user=user, now=now)
            if message.type == "ping":
                self.reply(session, "pong", {}, sequence)
            else:
                result = self._on_request(session, message)
                if name == "control":
                    self.reply(session, "done", {}, sequence, document_part(result or {}))
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

    def reply(
        self,
        session: Session,
        kind: str,
        content: dict[str, Any],
        to: int = 0,
        payload: Sequence[Any] = (),
    ) -> None:
        """Send a control message to a session, which ends if it cannot be reached."""
        session.sent["control"] += 1
        message = Message(kind, content, session.id, session.sent["control"], to, payload)
        route = session.routes["control"]
        if send(session.socket, [route, *message_parts(message)]) is None:
            self.end(session)

    def send_data(
        self,
        session_id: bytes,
        kind: str,
        content: dict[str, Any],
        payload: Sequence[Any] = (),
        *,
        track: bool = False,
    ) -> Any:
        """Send a data message to a session; return a tracker, or None if it cannot be reached."""
        session = self.sessions.find(session_id)
        route = session.routes.get("data") if session is not None else None
        if session is None or route is None:
            return None
        session.sent["data"] += 1
        message = Message(kind, content, session.id, session.sent["data"], 0, payload)
        return send(self._data_of[session.socket], [route, *message_parts(message)], track=track)

    def _hello(self, socket: Any, route: bytes, message: Message, user: str) -> None:
        versions = [one for one in message.content["versions"] if type(one) is int]
        if not any(OLDEST_VERSION <= one <= PROTOCOL_VERSION for one in versions):
            raise ProtocolError("version", version_words(", ".join(map(str, versions)) or "none"))
        for former in self.sessions.on_route(route):  # one connection, one session
            self.end(former)
        session = self.sessions.open(
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
        self.reply(session, "welcome", content, message.sequence)
