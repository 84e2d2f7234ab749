"""The wire of a client: a thread that owns its sockets, keeps the session, and finds it again.

The thread says hello, sends beats, numbers messages, and hands what comes to a listener. When the
server is gone it says so at once and tries again until it is back; what was asked and not yet
answered fails, and the client takes its runs up again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loki_core.errors import LokiError
from loki_vfx.bridges.live.protocol import (
    CONTROL_PART_BYTES,
    OLDEST_VERSION,
    PROTOCOL_VERSION,
    Message,
    ProtocolError,
    message_parts,
    read_document,
    read_message,
)
from loki_vfx.bridges.live.sockets import (
    POLLIN,
    ConnectionWatch,
    Credentials,
    Mailbox,
    Poller,
    connect,
    new_context,
    receive,
    send,
)

HELLO_SECONDS = 3.0  # until a hello that nobody answers is said again
KEPT_KEYS = 1000  # of messages that may still be refused; the server refuses at once
LARGEST_PART = 1 << 40  # of what a server sends; the client chose the server
#: What the server says when a new session is the remedy.
LOST = ("unknown_session", "wrong_session", "out_of_order")


class ConnectionLost(LokiError):
    """The server is gone, or cannot be reached."""


class Refused(LokiError):
    """The server said no; `code` tells why, see the protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Reply:
    """An answer that is on its way."""

    _done: threading.Event = field(default_factory=threading.Event)
    result: dict[str, Any] = field(default_factory=dict)
    error: LokiError | None = None

    def finish(self, result: dict[str, Any] | None = None, error: LokiError | None = None) -> None:
        """Give the answer to whoever waits."""
        self.result, self.error = result or {}, error
        self._done.set()

    def wait(self, seconds: float) -> dict[str, Any]:
        """Return the answer.

        Raises:
            LokiError: The server refused, or is gone.
            ConnectionLost: There is no answer in time.
        """
        if not self._done.wait(seconds):
            raise ConnectionLost(f"the server did not answer within {seconds:g} s")
        if self.error is not None:
            raise self.error
        return self.result


class _Notice(Reply):
    """An answer that nobody waits for; a refusal is told."""

    def __init__(self, on_refused: Callable[[Refused], None]) -> None:
        super().__init__()
        self._on_refused = on_refused

    def finish(self, result: dict[str, Any] | None = None, error: LokiError | None = None) -> None:
        if isinstance(error, Refused):
            self._on_refused(error)


@dataclass(frozen=True)
class _Outgoing:
    socket: str
    kind: str
    content: dict[str, Any]
    payload: Sequence[Any] = ()
    reply: Reply | None = None
    key: Any = None


class Wire:
    """A connection that is kept up.

    Args:
        on_message: Is called in the wire's thread with every event and data message, and the key
            of the data message that it answers.
        on_connected: Is called in the wire's thread with the welcome, each time.
        on_lost: Is called in the wire's thread with the reason, each time.
    """

    def __init__(
        self,
        endpoint: str,
        credentials: Credentials | None,
        *,
        client: str,
        on_message: Callable[[Message, Any], None],
        on_connected: Callable[[dict[str, Any]], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self.endpoint = endpoint
        self._credentials = credentials
        self._client = client
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._outbox = Mailbox()
        self._context = new_context()
        self._closing = False
        self._control: Any = None
        self._data: Any = None
        self._watch: ConnectionWatch | None = None
        self._session = b""
        self._sent = {"control": 0, "data": 0}
        self._asked: dict[int, Reply] = {}
        self._keys: dict[int, Any] = {}
        self._heard = self._tried = 0.0
        self._heartbeat, self._patience = 2.0, 20.0
        self._next_beat = 0.0
        self.reason = "no answer yet"
        self.is_connected = threading.Event()
        self.is_refused = threading.Event()  # the server answered, and said no
        self._thread = threading.Thread(target=self._run, name="loki live client", daemon=True)
        self._thread.start()

    def ask(self, kind: str, content: dict[str, Any], payload: Sequence[Any] = ()) -> Reply:
        """Send a request on control; the answer comes later.

        Raises:
            FormatError: The content is not that of such a request.
        """
        message_parts(Message(kind, content))
        reply = Reply()
        self._outbox.put(_Outgoing("control", kind, content, payload, reply))
        return reply

    def tell(
        self,
        kind: str,
        content: dict[str, Any],
        on_refused: Callable[[Refused], None] | None = None,
    ) -> None:
        """Send a request on control whose answer nobody waits for."""
        message_parts(Message(kind, content))
        reply = None if on_refused is None else _Notice(on_refused)
        self._outbox.put(_Outgoing("control", kind, content, reply=reply))

    def post(self, kind: str, content: dict[str, Any], payload: Sequence[Any], key: Any) -> None:
        """Send bulk data; what answers it comes with the key."""
        message_parts(Message(kind, content))
        self._outbox.put(_Outgoing("data", kind, content, payload, key=key))

    def close(self) -> None:
        """Say goodbye and end the thread."""
        if self.is_connected.is_set():
            self.tell("bye", {})
        self._closing = True
        self._outbox.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                if self._control is None:
                    self._connect()
                self._wait()
                self._send_all()
                self._receive_all()
                self._look_at_the_clock()
            self._send_all()
        except Exception as error:  # the last place where it can be told
            self.reason = f"a mistake in the client: {type(error).__name__}: {error}"
            self._on_lost(self.reason)
            raise
        finally:
            self._fail_all("the client was closed")
            self._hang_up(linger=1000)
            self._outbox.close()
            self._context.term()

    def _connect(self) -> None:
        self._control = connect(
            self._context,
            self.endpoint,
            data=False,
            part_bytes=CONTROL_PART_BYTES,
            credentials=self._credentials,
        )
        self._watch = ConnectionWatch(self._control, self.endpoint)
        self._tried = time.monotonic()
        self._sent = {"control": 0, "data": 0}
        self._session = b""
        versions = list(range(OLDEST_VERSION, PROTOCOL_VERSION + 1))
        self._send("control", "hello", {"client": self._client, "versions": versions})

    def _wait(self) -> None:
        poller = Poller()
        poller.register(self._outbox.fileno(), POLLIN)
        for socket in (self._control, self._data):
            if socket is not None:
                poller.register(socket, POLLIN)
        if self._watch is not None:
            poller.register(self._watch.socket, POLLIN)
        poller.poll(200)

    def _send_all(self) -> None:
        for one in self._outbox.take():
            if one is None:
                continue
            if not self.is_connected.is_set():
                if one.reply is not None:
                    one.reply.finish(error=ConnectionLost(f"not connected: {self.reason}"))
                continue  # the client says again what matters, on the next session
            number = self._send(one.socket, one.kind, one.content, one.payload)
            if one.reply is not None:
                self._asked[number] = one.reply
            if one.key is not None:
                self._keys[number] = one.key
                self._keys.pop(number - KEPT_KEYS, None)

    def _send(
        self, socket: str, kind: str, content: dict[str, Any], payload: Sequence[Any] = ()
    ) -> int:
        number = self._sent[socket] = self._sent[socket] + 1
        message = Message(kind, content, self._session, number, 0, payload)
        target = self._control if socket == "control" else self._data
        send(target, message_parts(message))
        return number

    def _receive_all(self) -> None:
        for name in ("control", "data"):
            socket = self._control if name == "control" else self._data
            while socket is not None and (parts := receive(socket)) is not None:
                self._heard = time.monotonic()
                try:
                    message = read_message(parts, sender="server", socket=name)
                except ProtocolError as error:
                    self._lose(f"the server says what cannot be understood: {error}")
                    return
                self._hear(message)
                if self._control is None:
                    return  # the connection was given up
        if self._watch is not None:
            news = self._watch.news()
            if news and "failed" in news:
                self.reason = "the server refused the key or token"
            elif news and self.is_connected.is_set():
                self._lose("the server is gone")

    def _hear(self, message: Message) -> None:
        content = message.content
        if message.type == "welcome":
            self._welcome(content)
        elif message.type == "error" and not self.is_connected.is_set():
            self.reason = content["message"]
            self.is_refused.set()
            self._on_lost(self.reason)
        elif message.type in ("error", "refused") and content["code"] in LOST:
            self._lose(content["message"])
        elif message.type in ("done", "error"):
            reply = self._asked.pop(message.reply_to, None)
            if reply is not None and message.type == "done":
                reply.finish(read_document(message.payload))
            elif reply is not None:
                reply.finish(error=Refused(content["code"], content["message"]))
        elif message.type != "pong":
            self._on_message(message, self._keys.pop(message.reply_to, None))

    def _welcome(self, content: dict[str, Any]) -> None:
        self._session = content["session"]
        self._heartbeat, self._patience = content["heartbeat"], content["patience"]
        self._data = connect(
            self._context,
            data_endpoint(self.endpoint, content["data_endpoint"]),
            data=True,
            part_bytes=LARGEST_PART,
            credentials=self._credentials,
        )
        self._send("data", "join", {})
        self._next_beat = time.monotonic() + self._heartbeat
        self.is_connected.set()
        self._on_connected(content)

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if not self.is_connected.is_set():
            if now - self._tried > HELLO_SECONDS:
                self._hang_up(linger=0)
            return
        if now >= self._next_beat:
            self._next_beat = now + self._heartbeat
            self._send("control", "ping", {})
        if now - self._heard > self._patience:
            self._lose(f"the server is silent for {self._patience:g} s")

    def _lose(self, reason: str) -> None:
        was_connected = self.is_connected.is_set()
        self.reason = reason
        self.is_connected.clear()
        self._fail_all(reason)
        self._hang_up(linger=0)
        if was_connected:
            self._on_lost(reason)

    def _fail_all(self, reason: str) -> None:
        for reply in self._asked.values():
            reply.finish(error=ConnectionLost(f"no answer: {reason}"))
        self._asked.clear()
        self._keys.clear()

    def _hang_up(self, *, linger: int) -> None:
        if self._watch is not None:
            self._watch.close()
        for socket in (self._control, self._data):
            if socket is not None:
                socket.close(linger=linger)
        self._control = self._data = self._watch = None
        self.is_connected.clear()


def data_endpoint(control: str, told: str) -> str:
    """Return where the data socket is: the server may know itself only as "any address"."""
    if not told.startswith("tcp://"):
        return told
    host = control.rpartition(":")[0]
    return f"{host}:{told.rpartition(':')[2]}"
