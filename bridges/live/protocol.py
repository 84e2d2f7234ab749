"""The messages of the live bridge; `docs/protocol.md` is the authority and says what they mean.

A message is a list of parts: a header, and for some types a payload.

    part 0    the header: codec frame of [protocol, type, session, sequence, reply_to, content]
    part 1..  the payload: codec frames of one document or of several streams, arrays as they are

The header is small and is checked here field by field, whoever sent it; a payload is passed on as
it is, and decoded with limits where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from loki_core.errors import FormatError
from loki_vfx.serialization.codec import Limits, decode, encode

PROTOCOL_VERSION = 2
OLDEST_VERSION = 2

HEADER_LIMITS = Limits(
    frames=1,
    header_bytes=1 << 18,
    total_bytes=1 << 18,
    items=20_000,
    list_length=10_000,
    map_length=10_000,
    text_bytes=1 << 17,
    depth=24,
)
#: Of a document in a payload, and of what server and solver say to each other.
DOCUMENT_LIMITS = Limits(frames=1, header_bytes=1 << 25, total_bytes=1 << 25, text_bytes=1 << 24)

CONTROL_PART_BYTES = 1 << 25
CONTROL_PARTS = 2
DATA_PARTS = 65_536

SESSION_BYTES = 16


class ProtocolError(FormatError):
    """A message that is refused; `code` is what the other side is told."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Field(NamedTuple):
    """One entry of a message's content: its Python type, and whether it may be left out."""

    type: type | tuple[type, ...]
    optional: bool = False


class Kind(NamedTuple):
    """A type of message: who sends it, on which socket, and its fields."""

    sender: str
    socket: str
    fields: Mapping[str, Field]
    has_payload: bool = False


def _kind(sender: str, socket: str, *, payload: bool = False, **fields: Any) -> Kind:
    checked = {name: one if isinstance(one, Field) else Field(one) for name, one in fields.items()}
    return Kind(sender, socket, MappingProxyType(checked), payload)


def _maybe(*types: type) -> Field:
    return Field(types, optional=True)


NUMBER = (int, float)

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        # -- a session -----------------------------------------------------------------------
        "hello": _kind("client", "control", client=str, versions=list),
        "welcome": _kind(
            "server", "control", session=bytes, version=int, server=str, user=str,
            data_endpoint=str, heartbeat=NUMBER, patience=NUMBER, limits=dict,
        ),
        "join": _kind("client", "data"),
        "ping": _kind("client", "control"),
        "pong": _kind("server", "control"),
        "bye": _kind("client", "control"),
        # -- runs ----------------------------------------------------------------------------
        "submit": _kind("client", "control", payload=True, run=str, credit=int),
        "attach": _kind(
            "client", "control", run=str, after=_maybe(int), rewinds=_maybe(int), credit=int
        ),
        "detach": _kind("client", "control", run=str),
        "credit": _kind("client", "control", run=str, frames=int),
        "change": _kind("client", "control", payload=True, run=str),
        "pause": _kind("client", "control", run=str),
        "resume": _kind("client", "control", run=str, options=_maybe(dict)),
        "cancel": _kind("client", "control", run=str),
        "rewind": _kind("client", "control", payload=True, run=str, frame=int, version=int),
        "checkpoint": _kind("client", "control", run=str),
        "remove": _kind("client", "control", run=str),
        "status": _kind("client", "control", run=_maybe(str)),
        "stop_server": _kind("client", "control"),
        # -- answers and news ----------------------------------------------------------------
        "done": _kind("server", "control", payload=True),
        "error": _kind("server", "control", code=str, message=str),
        "event": _kind("server", "control", payload=True, run=str, number=int),
        # -- bulk ----------------------------------------------------------------------------
        "input": _kind(
            "client", "data", payload=True, run=str, name=str, frame=_maybe(int),
            version=int, base=_maybe(int), reused=_maybe(dict),
        ),
        "accepted": _kind(
            "server", "data", run=str, name=str, frame=_maybe(int), version=int, bytes=int
        ),
        "refused": _kind("server", "data", code=str, message=str),
        "frame": _kind("server", "data", payload=True, run=str, frame=int),
        "manifest": _kind("server", "data", payload=True, run=str, frame=int, folder=str),
        "rewound": _kind("server", "data", run=str, frame=int, rewinds=int),
        "end": _kind(
            "server", "data", run=str, state=str, message=str, frame=_maybe(int), begins=int
        ),
    }
)  # fmt: skip

#: What the server and rank 0 of a run say to each other, over a private socket.
LINK_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "ready": _kind("worker", "link", run=str, attempt=int, pid=int, host=str),
        "beat": _kind("worker", "link", tasks=int, label=str),
        "told": _kind("worker", "link", event=dict),
        "need": _kind("worker", "link", frame=_maybe(int), names=list),
        "consumed": _kind("worker", "link", name=str, frame=_maybe(int)),
        "released": _kind("worker", "link", segment=str),
        "result": _kind(
            "worker", "link", frame=int, objects=list, statistics=dict, segment=str, sizes=list
        ),
        "failed": _kind("worker", "link", error=str, message=str, exit_code=int),
        "order": _kind("server", "link", order=str, values=_maybe(dict)),
        "given": _kind(
            "server", "link", name=str, frame=_maybe(int), segment=_maybe(str),
            file=_maybe(str), sizes=list,
        ),
        "free": _kind("server", "link", segment=str),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `payload` holds the parts after the header, undecoded."""

    type: str
    content: dict[str, Any]
    session: bytes = b""
    sequence: int = 0
    reply_to: int = 0
    payload: Sequence[Any] = field(default=())


def message_parts(message: Message, kinds: Mapping[str, Kind] = KINDS) -> list[Any]:
    """Return the parts of a message to be sent.

    Raises:
        FormatError: The content is not that of its type; a mistake on this side.
    """
    content = _checked_content(message.type, message.content, kinds)
    header = [
        PROTOCOL_VERSION,
        message.type,
        message.session,
        message.sequence,
        message.reply_to,
        content,
    ]
    parts = encode(header)
    limits = DOCUMENT_LIMITS if kinds is LINK_KINDS else HEADER_LIMITS
    if len(parts) != 1 or len(parts[0]) > limits.header_bytes:
        raise FormatError(f'the header of "{message.type}" is too large; arrays go in a payload')
    return [*parts, *message.payload]


def read_message(
    parts: Sequence[Any], *, sender: str, socket: str, kinds: Mapping[str, Kind] = KINDS
) -> Message:
    """Return the message of some parts after checking that it may come from there.

    Raises:
        ProtocolError: It is no message, of another version, of an unknown type, or has wrong
            fields.
    """
    most = CONTROL_PARTS if socket == "control" else DATA_PARTS
    if not 1 <= len(parts) <= most:
        raise ProtocolError("malformed", f"a message on {socket} has {len(parts)} parts")
    try:
        limits = DOCUMENT_LIMITS if kinds is LINK_KINDS else HEADER_LIMITS
        header = decode(parts[:1], limits=limits)
    except FormatError as error:
        raise ProtocolError("malformed", f"the header cannot be read: {error}") from None
    if not isinstance(header, list) or not header or type(header[0]) is not int:
        raise ProtocolError("malformed", "a header is a list that begins with a version")
    if not OLDEST_VERSION <= header[0] <= PROTOCOL_VERSION:
        raise ProtocolError("version", version_words(str(header[0])))
    if len(header) != 6 or [type(one) for one in header] != [int, str, bytes, int, int, dict]:
        raise ProtocolError("malformed", "a header has version, type, session, sequence, reply_to")
    _, kind_name, session, sequence, reply_to, content = header
    kind = kinds.get(kind_name)
    if kind is None or kind.sender != sender or kind.socket != socket:
        raise ProtocolError(
            "unknown_type", f"a {sender} does not send {kind_name[:40]!r} on {socket}"
        )
    if len(session) not in (0, SESSION_BYTES) or sequence < 0 or reply_to < 0:
        raise ProtocolError("malformed", f"{kind_name}: session or sequence is not one")
    if not kind.has_payload and len(parts) > 1:
        raise ProtocolError("malformed", f"{kind_name} has no payload, and {len(parts)} parts came")
    try:
        content = _checked_content(kind_name, content, kinds)
    except FormatError as error:
        raise ProtocolError("malformed", str(error)) from None
    return Message(kind_name, content, session, sequence, reply_to, parts[1:])


def version_words(theirs: str) -> str:
    """Say both versions, for the person who has to update one side."""
    ours = (
        f"{PROTOCOL_VERSION}"
        if OLDEST_VERSION == PROTOCOL_VERSION
        else f"{OLDEST_VERSION} to {PROTOCOL_VERSION}"
    )
    return f"protocol version {theirs[:20]} is not spoken here, but version {ours}; update one side"


def document_part(document: Any) -> list[Any]:
    """Return the payload of a document that holds no arrays.

    Raises:
        FormatError: It holds arrays, or is too large to be read.
    """
    parts = encode(document)
    if len(parts) != 1 or len(parts[0]) > DOCUMENT_LIMITS.header_bytes:
        size = DOCUMENT_LIMITS.header_bytes
        raise FormatError(f"a document of a message has up to {size} bytes, and no arrays")
    return parts


def read_document(payload: Sequence[Any]) -> Any:
    """Return the document of a payload that holds no arrays.

    Raises:
        ProtocolError: It is not one, or too large.
    """
    try:
        return decode(payload, limits=DOCUMENT_LIMITS)
    except FormatError as error:
        raise ProtocolError("malformed", f"the document cannot be read: {error}") from None


def _checked_content(
    kind_name: str, content: Mapping[str, Any], kinds: Mapping[str, Kind]
) -> dict[str, Any]:
    """Return the content after checking names and types; what was left out is None."""
    fields = kinds[kind_name].fields
    for name in content:
        if name not in fields:
            raise FormatError(f"{kind_name} has the unknown field {name[:40]!r}")
    checked: dict[str, Any] = {}
    for name, one in fields.items():
        value = content.get(name)
        if value is None and one.optional:
            checked[name] = None
            continue
        allowed = one.type if isinstance(one.type, tuple) else (one.type,)
        if type(value) not in allowed:
            found = type(value).__name__
            words = " or ".join(one.__name__ for one in allowed)
            raise FormatError(f"{kind_name}.{name} is a {found}; expected {words}")
        checked[name] = value
    return checked
