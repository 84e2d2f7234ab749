"""Sessions: the clients of a server, and the order of their messages.

A session begins with "hello" and belongs to the connection that said it. Every message carries the
session and a number that grows by one on each socket, so that a message that was seen before, or
that another connection repeats, is refused.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from loki_vfx.bridges.live.protocol import SESSION_BYTES, Message, ProtocolError

#: The name of whoever the system itself lets in: the owner of the server.
OWNER = "owner"


@dataclass
class Session:
    """One client.

    Attributes:
        socket: The server's control socket that it came in by.
        routes: Names of its connections, by socket.
        heard: When it last spoke [s].
        received: Number of its last message, by socket.
        sent: Number of our last message, by socket.
    """

    id: bytes
    socket: Any
    user: str
    client: str
    heard: float
    routes: dict[str, bytes] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=lambda: {"control": 0, "data": 0})
    sent: dict[str, int] = field(default_factory=lambda: {"control": 0, "data": 0})

    def owns(self, owner: str) -> bool:
        """Whether it may touch what belongs to a user."""
        return self.user in (OWNER, owner)


class Sessions:
    """All clients of a server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session: bytes) -> Session | None:
        """Return a session by its id."""
        return self._sessions.get(session)

    def open(
        self, socket: Any, route: bytes, *, user: str, client: str, sequence: int, now: float
    ) -> Session:
        """Begin a session on a connection.

        Raises:
            ProtocolError: There are too many.
        """
        if len(self._sessions) >= self._most:
            raise ProtocolError("busy", f"there are {self._most} clients already; try again later")
        session = Session(secrets.token_bytes(SESSION_BYTES), socket, user, client[:200], now)
        session.routes["control"] = route
        session.received["control"] = sequence
        self._sessions[session.id] = session
        return session

    def check(
        self, message: Message, *, socket: str, route: bytes, user: str, now: float
    ) -> Session:
        """Return the session that a message belongs to, if it may come now and from there.

        Raises:
            ProtocolError: The session is unknown, of another connection, or the message was
                there before.
        """
        session = self._sessions.get(message.session)
        if session is None:
            raise ProtocolError("unknown_session", "this session is not known; say hello again")
        if message.type == "join" and "data" not in session.routes:
            session.routes["data"] = route
        if session.routes.get(socket) != route or session.user != user:
            raise ProtocolError("wrong_session", "this session belongs to another connection")
        expected = session.received[socket] + 1
        if message.sequence != expected:
            raise ProtocolError(
                "out_of_order", f"message {message.sequence} where {expected} is next"
            )
        session.received[socket] = expected
        session.heard = now
        return session

    def on_route(self, route: bytes) -> list[Session]:
        """Return the sessions that a control connection has begun."""
        return [one for one in self._sessions.values() if one.routes["control"] == route]

    def close(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)

    def silent(self, *, since: float) -> list[Session]:
        """Return the sessions that were not heard for a while."""
        return [one for one in self._sessions.values() if one.heard < since]
