"""ZeroMQ sockets as the live bridge uses them; the only file that imports zmq.

Control and data have sockets of their own, on threads of their own, so that a "cancel" never waits
behind a frame. Who may connect is settled in the handshake, before any message is read:

    ipc     the socket lies in a folder that only its owner can enter: no key
    tcp     on loopback: a token (PLAIN); anywhere: the server's and the user's keys (CURVE)
"""

from __future__ import annotations

import hmac
import logging
import os
import socket as socket_module
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq
import zmq.utils.monitor
import zmq.utils.z85

from loki_core.errors import InputError

logger = logging.getLogger("loki.live")

CONTROL_THREAD, DATA_THREAD = 1, 2  # masks: each kind of socket has an input-output thread
QUEUED_MESSAGES = 1000
TOKEN_USER = "token"  # as the handshake calls whoever shows the token
POLLIN = zmq.POLLIN

Context = zmq.Context[Any]
Socket = zmq.Socket[Any]
Poller = zmq.Poller
ZmqError = zmq.ZMQError


@dataclass(frozen=True)
class Credentials:
    """What a client shows: a token, or its own pair of keys and the server's public key."""

    token: str = ""
    public_key: str = ""
    secret_key: str = ""
    server_key: str = ""


@dataclass(frozen=True)
class Guard:
    """What a server asks for: a token, or that a key is one of `users` (by public key)."""

    token: str = ""
    secret_key: str = ""
    public_key: str = ""
    users: Callable[[], Mapping[str, str]] | None = None


def has_socket_files() -> bool:
    """Whether sockets can be files, which a folder's rights guard; Windows may not have them.

    LOKI_SOCKET_FILES=0 does without them anywhere.
    """
    return bool(zmq.has("ipc")) and os.environ.get("LOKI_SOCKET_FILES", "1") != "0"


def new_context() -> Context:
    """Return a context with a thread for control and one for data."""
    context: Context = zmq.Context(io_threads=2)
    return context


def new_key_pair() -> tuple[str, str]:
    """Return a new public and secret key as hexadecimal text, which shells leave alone."""
    public, secret = (zmq.utils.z85.decode(key).hex() for key in zmq.curve_keypair())
    return public, secret


def public_key_of(secret_key: str) -> str:
    """Return the public key that belongs to a secret one."""
    public = zmq.curve_public(zmq.utils.z85.encode(bytes.fromhex(secret_key)))
    return zmq.utils.z85.decode(public).hex()


def listen(
    context: Context, endpoint: str, *, data: bool, part_bytes: int, guard: Guard | None
) -> tuple[Socket, str]:
    """Bind a server's socket; return it and the endpoint with its real port.

    Raises:
        InputError: The endpoint cannot be had.
    """
    socket = _socket(context, zmq.ROUTER, data=data, part_bytes=part_bytes)
    socket.router_mandatory = True
    if guard is not None and guard.users is not None:
        socket.curve_server = True
        socket.curve_secretkey = bytes.fromhex(guard.secret_key)
        socket.zap_domain = b"loki"
    elif guard is not None:
        socket.plain_server = True
        socket.zap_domain = b"loki"
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise InputError(f"{endpoint} cannot be listened on: {error}") from error
    bound = bytes(socket.getsockopt(zmq.LAST_ENDPOINT))
    return socket, bound.decode("utf-8").rstrip("\0")


def connect(
    context: Context,
    endpoint: str,
    *,
    data: bool,
    part_bytes: int,
    credentials: Credentials | None,
    identity: bytes = b"",
) -> Socket:
    """Connect a client's socket; it stays quiet until the other side answers."""
    socket = _socket(context, zmq.DEALER, data=data, part_bytes=part_bytes)
    if identity:
        socket.routing_id = identity
    if credentials is not None and credentials.server_key:
        socket.curve_serverkey = bytes.fromhex(credentials.server_key)
        socket.curve_publickey = bytes.fromhex(credentials.public_key)
        socket.curve_secretkey = bytes.fromhex(credentials.secret_key)
    elif credentials is not None:
        socket.plain_username = b"loki"
        socket.plain_password = credentials.token.encode("ascii")
    socket.connect(endpoint)
    return socket


def _socket(context: Context, kind: int, *, data: bool, part_bytes: int) -> Socket:
    socket: Socket = context.socket(kind)
    socket.affinity = DATA_THREAD if data else CONTROL_THREAD
    socket.linger = 0
    socket.maxmsgsize = part_bytes
    socket.sndhwm = socket.rcvhwm = QUEUED_MESSAGES
    # notice a cable that was pulled: zmq's own beats, under those of the protocol
    socket.heartbeat_ivl = 5_000
    socket.heartbeat_timeout = 30_000
    socket.reconnect_ivl = 100
    socket.reconnect_ivl_max = 2_000
    return socket


def receive(socket: Socket) -> list[Any] | None:
    """Return the parts of the next message without copying them; None when there is none."""
    try:
        return socket.recv_multipart(zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return None


def send(socket: Socket, parts: Sequence[Any], *, track: bool = False) -> Any:
    """Send parts without copying large ones; return a tracker if asked for.

    Returns None when the peer is gone or takes nothing in. The tracker is of all parts: zmq's own
    is of the last one, which may be small, copied and done while the others still leave.
    """
    tracker: Any = True
    try:
        if track:
            frames = [zmq.Frame(one, track=True, copy=False, copy_threshold=0) for one in parts]
            tracker = zmq.MessageTracker(*(frame.tracker for frame in frames))
            parts = frames
        socket.send_multipart(parts, zmq.NOBLOCK, copy=False)
    except (zmq.Again, zmq.ZMQError) as error:
        if isinstance(error, zmq.Again) or error.errno == zmq.EHOSTUNREACH:
            return None
        raise
    return tracker


def routing_id(parts: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """Split what a server's socket received: who sent it, and the message."""
    return parts[0].bytes, list(parts[1:])


def user_of(parts: Sequence[Any], default: str) -> str:
    """Return the name that the handshake gave to the sender."""
    try:
        name = parts[-1].get("User-Id")
    except zmq.ZMQError:
        return default
    return str(name) if name else default


class Mailbox:
    """A queue that other threads put things into, and that wakes the poller of its owner."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._near, self._far = socket_module.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)

    def fileno(self) -> int:
        """The descriptor that a poller waits for."""
        return self._near.fileno()

    def put(self, item: Any) -> None:
        """Add something, from any thread."""
        self._items.append(item)
        # a full pipe, or a closed one, needs no further byte to be noticed
        with suppress(BlockingIOError, OSError):
            self._far.send(b"x")

    def take(self) -> list[Any]:
        """Return everything that was put in, in order; the owner calls this."""
        with suppress(BlockingIOError, OSError):
            while self._near.recv(4096):
                continue
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def close(self) -> None:
        """Close both ends."""
        self._near.close()
        self._far.close()


class Doorkeeper:
    """Answers ZAP questions: may this token or key connect? Lives in the server's own loop."""

    def __init__(self, context: Context, guards: Sequence[Guard]) -> None:
        self._guards = guards
        self.socket: Socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> None:
        """Answer what was asked since the last call."""
        while (parts := receive(self.socket)) is not None:
            words = [part.bytes for part in parts]
            version, request = words[0], words[1]
            address = words[3].decode("ascii", "replace")
            user = self._user(words[5], words[6:])
            if user is None:
                logger.warning("refused a connection from %s: unknown key or token", address)
                reply = [version, request, b"400", b"refused", b"", b""]
            else:
                reply = [version, request, b"200", b"welcome", user.encode("utf-8"), b""]
            self.socket.send_multipart(reply)

    def _user(self, mechanism: bytes, shown: list[bytes]) -> str | None:
        found = (_user_by(guard, mechanism, shown) for guard in self._guards)
        return next((user for user in found if user is not None), None)


def _user_by(guard: Guard, mechanism: bytes, shown: list[bytes]) -> str | None:
    """Return whom a guard lets in for what was shown; None for nobody."""
    if mechanism == b"CURVE" and guard.users is not None and len(shown) == 1:
        try:
            return guard.users().get(shown[0].hex())
        except OSError as error:  # a key file that cannot be read lets nobody in
            logger.warning("the keys of users cannot be read: %s", error)
    if mechanism == b"PLAIN" and guard.token and len(shown) == 2:
        same = hmac.compare_digest(shown[1], guard.token.encode("ascii"))
        return TOKEN_USER if same else None
    return None


class ConnectionWatch:
    """Tells what happens to connections below the protocol: it ended, or a handshake failed."""

    EVENTS = (
        zmq.EVENT_HANDSHAKE_FAILED_AUTH
        | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        | zmq.EVENT_DISCONNECTED
    )

    def __init__(self, socket: Socket, name: str) -> None:
        self.name = name
        self._watched = socket
        self.socket: Socket = socket.get_monitor_socket(self.EVENTS)

    def news(self) -> list[str]:
        """Return "ended" or "failed" for each thing that happened since the last call."""
        found = []
        while self.socket.poll(0):
            event = zmq.utils.monitor.recv_monitor_message(self.socket)["event"]
            found.append("ended" if event == zmq.EVENT_DISCONNECTED else "failed")
        return found

    def close(self) -> None:
        """Stop watching."""
        self._watched.disable_monitor()
        self.socket.close(linger=0)
