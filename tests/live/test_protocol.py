"""The protocol and its document say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loki_core.errors import FormatError
from loki_vfx.bridges.live.protocol import (
    KINDS,
    LINK_KINDS,
    PROTOCOL_VERSION,
    Message,
    ProtocolError,
    message_parts,
    read_message,
)

DOCUMENT = (Path(__file__).parent.parent.parent / "docs" / "protocol.md").read_text()


def documented() -> dict[str, tuple[str, str]]:
    """Sender and fields of every message in the tables."""
    rows = {}
    for line in DOCUMENT.splitlines():
        match = re.match(r"\| `(\w+)` \| (\w+)(?:, (\w+))? \| ([^|]*)\|", line)
        if match:
            name, sender, socket, fields = match.groups()
            rows[name, socket or "link"] = (sender, fields)
    return rows


@pytest.mark.parametrize(
    ("name", "kind"), [*KINDS.items(), *LINK_KINDS.items()], ids=lambda one: str(one)[:20]
)
def test_every_message_is_documented_with_all_its_fields(name, kind):
    sender, fields = documented()[name, kind.socket]
    assert sender == kind.sender
    expected = {f"{key}{'?' if one.optional else ''}" for key, one in kind.fields.items()}
    assert set(re.findall(r"`([\w?]+)`", fields)) == expected
    assert ("payload" in fields) == kind.has_payload


def test_every_documented_message_exists_and_the_version_is_the_same():
    names = {(name, kind.socket) for name, kind in [*KINDS.items(), *LINK_KINDS.items()]}
    assert set(documented()) == names
    assert f"version {PROTOCOL_VERSION}" in DOCUMENT.splitlines()[0]


def test_a_message_survives_the_way():
    sent = Message("credit", {"run": "x", "frames": 2}, b"s" * 16, 7, 3)
    got = read_message(message_parts(sent), sender="client", socket="control")
    assert (got.type, got.content, got.session, got.sequence, got.reply_to) == (
        "credit", {"run": "x", "frames": 2}, b"s" * 16, 7, 3,
    )  # fmt: skip


def test_optional_fields_come_as_none_and_a_bool_is_no_number():
    parts = message_parts(Message("status", {}))
    assert read_message(parts, sender="client", socket="control").content == {"run": None}
    with pytest.raises(FormatError, match=r"credit\.frames is a bool"):
        message_parts(Message("credit", {"run": "x", "frames": True}))
    with pytest.raises(ProtocolError, match="does not send 'credit' on data"):
        read_message(
            message_parts(Message("credit", {"run": "x", "frames": 1})),
            sender="client",
            socket="data",
        )
