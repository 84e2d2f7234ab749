"""Who gets in, and what becomes of messages that are not right: real sockets, a real server."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from loki_core.errors import InputError
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.solver_setup import SolverSetup
from loki_vfx.bridges.live import security
from loki_vfx.bridges.live.client import Client, ConnectionLost, Refused, RunFailed
from loki_vfx.bridges.live.protocol import (
    CONTROL_PART_BYTES,
    PROTOCOL_VERSION,
    Message,
    message_parts,
    read_message,
)
from loki_vfx.bridges.live.security import KeyFolder
from loki_vfx.serialization.codec import encode
from tests.live.live_scenes import ServerProcess, seeds, sparks


class RawPeer:
    """Somebody who speaks to a server's sockets without a client's good manners."""

    def __init__(self, server: ServerProcess) -> None:
        self.context = zmq.Context()
        self.control = self._socket(server.endpoint)
        self.number = 0
        self.session = b""
        welcome = self.ask("hello", {"client": "raw", "versions": [PROTOCOL_VERSION]})
        assert welcome.type == "welcome", welcome.content
        self.session = welcome.content["session"]
        self.data = self._socket(welcome.content["data_endpoint"])
        self.data.send_multipart(message_parts(Message("join", {}, self.session, 1)))

    def _socket(self, endpoint: str) -> Any:
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(endpoint)
        return socket

    def ask(self, kind: str, content: dict[str, Any]) -> Message:
        self.number += 1
        message = Message(kind, content, self.session, self.number)
        return self.send(message_parts(message))

    def send(self, parts: list[Any]) -> Message:
        self.control.send_multipart(parts)
        assert self.control.poll(10_000), "no answer"
        return read_message(
            self.control.recv_multipart(copy=False), sender="server", socket="control"
        )

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[RawPeer]:
    made = RawPeer(server)
    yield made
    made.close()


def assert_alive(server: ServerProcess) -> None:
    with Client(server.endpoint) as client:
        assert client.status()["server"]["pid"] == server.process.pid


# -- who gets in ---------------------------------------------------------------------------------


def test_the_local_sockets_lie_where_only_their_owner_can_go(server: ServerProcess) -> None:
    folder = Path(server.endpoint.removeprefix("ipc://")).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert server.root.stat().st_mode & 0o777 == 0o700


def test_tcp_on_this_machine_needs_the_token(tmp_path: Path, settings_folder: Path) -> None:
    with ServerProcess(tmp_path / "root", "--listen", "tcp://127.0.0.1:*") as server:
        token = settings_folder / "token"
        assert token.stat().st_mode & 0o777 == 0o600
        with Client(server.tcp) as client:
            assert client.status()["runs"] == []
        wrong = tmp_path / "wrong"
        security.write_secret(wrong, "ab" * 32)
        with pytest.raises(ConnectionLost, match="does not answer"):
            Client(server.tcp, token=wrong, timeout=1.0)
        token.chmod(0o644)
        with pytest.raises(InputError, match="can be read by others"):
            Client(server.tcp)
        assert_alive(server)
        assert "unknown key or token" in server.log()


def test_without_socket_files_a_token_guards_the_server_and_its_workers(
    tmp_path: Path, settings_folder: Path
) -> None:
    with ServerProcess(tmp_path / "runs", LOKI_SOCKET_FILES="0") as server:
        assert server.endpoint.startswith("tcp://127.0.0.1:")
        assert (settings_folder / "token").exists()
        with Client(server.endpoint) as client:
            run = client.submit(sparks(), {"seeds": seeds()}, run="one", frames="2", ranks=1)
            assert [frame.number for frame in run.frames(120.0)] == [1, 2]
        wrong = tmp_path / "wrong"
        security.write_secret(wrong, "ab" * 32)
        with pytest.raises(ConnectionLost, match="does not answer"):
            Client(server.endpoint, token=wrong, timeout=1.0)


def test_other_machines_need_keys_and_each_user_has_its_own_runs(
    tmp_path: Path, settings_folder: Path
) -> None:
    with pytest.raises(InputError, match="needs keys"):
        security.guard_for("tcp://*:5800", keys=None, token=None)
    ours = KeyFolder(tmp_path / "server")
    anna, berta, stranger = (KeyFolder(tmp_path / name) for name in ("anna", "berta", "stranger"))
    for name, keys in (("anna", anna), ("berta", berta)):
        keys.own_key("client", make=True)
        ours.add_user(name, keys.public_key("client"))
    listen = ("--listen", "tcp://0.0.0.0:*", "--keys", str(ours.folder))
    with ServerProcess(tmp_path / "root", *listen) as server:
        endpoint = server.tcp.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(InputError, match="the key of the server"):
            Client(endpoint, keys=anna.folder)
        for keys in (anna, berta, stranger):
            keys.trust_server(endpoint, ours.public_key("server"))
        with (
            Client(endpoint, keys=anna.folder) as first,
            Client(endpoint, keys=berta.folder) as second,
        ):
            assert first.server["user"] == "anna"
            run = first.submit(sparks(), {"seeds": seeds()}, run="hers", frames="2")
            assert [frame.number for frame in run.frames(120.0)] == [1, 2]
            assert second.status()["runs"] == []
            with pytest.raises(Refused, match="no run"):
                second.attach("hers")
            with pytest.raises(Refused, match="only its owner"):
                second.stop_server()
        with pytest.raises(ConnectionLost, match="does not answer"):
            Client(endpoint, keys=stranger.folder, timeout=1.0)
        ours.remove_user("berta")
        with pytest.raises(ConnectionLost):
            Client(endpoint, keys=berta.folder, timeout=1.0)
        other = KeyFolder(tmp_path / "other")  # whoever takes the server's place has another key
        other.own_key("server", make=True)
        anna.trust_server(endpoint, other.public_key("server"))
        with pytest.raises(ConnectionLost):
            Client(endpoint, keys=anna.folder, timeout=1.0)
        assert_alive(server)
        assert "refused a connection" in server.log()


def test_folders_and_files_that_others_can_reach_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    with pytest.raises(InputError, match="can be read by others"):
        security.owner_only_folder(folder)
    assert security.folder_of_runs(folder) == folder  # frames may be looked at
    folder.chmod(0o775)
    with pytest.raises(InputError, match="others can write"):
        security.folder_of_runs(folder)
    with pytest.raises(InputError, match="no endpoint"):
        security.check_endpoint("inproc://x")
    with pytest.raises(InputError, match="user"):
        KeyFolder(tmp_path).add_user("../../etc/x", "ab" * 32)
    if os.getuid() == 0:
        folder.chmod(0o700)
        os.chown(folder, 12345, 12345)
        with pytest.raises(InputError, match="another user"):
            security.owner_only_folder(folder)


# -- messages that are not right -----------------------------------------------------------------


def test_a_message_is_taken_once(peer: RawPeer, server: ServerProcess) -> None:
    parts = message_parts(Message("status", {"run": None}, peer.session, 2))
    assert peer.send(parts).type == "done"
    again = peer.send(parts)
    assert (again.type, again.content["code"]) == ("error", "out_of_order")
    other = RawPeer(server)  # the same message, repeated by another connection
    stolen = other.send(message_parts(Message("status", {"run": None}, peer.session, 3)))
    assert stolen.content["code"] == "wrong_session"
    other.close()
    assert_alive(server)
    assert "out_of_order" in server.log() and "wrong_session" in server.log()


def test_another_version_is_refused_with_both_numbers(peer: RawPeer) -> None:
    old = encode([PROTOCOL_VERSION + 7, "status", peer.session, 2, 0, {}])
    answer = peer.send(old)
    assert answer.content["code"] == "version"
    assert (
        f"version {PROTOCOL_VERSION + 7} is not spoken here, but version {PROTOCOL_VERSION}"
        in str(answer)
    )
    newer = peer.ask("hello", {"client": "newer", "versions": [99]})
    assert newer.content["code"] == "version"


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([b""], "malformed"),
        ([b"\x93\xa4loki\x01\xc1"], "malformed"),
        ([os.urandom(300)], "malformed"),
        (encode([PROTOCOL_VERSION, "status"]), "malformed"),
        (encode([PROTOCOL_VERSION, "frame", b"", 1, 0, {}]), "unknown_type"),
        (encode([PROTOCOL_VERSION, "nonsense", b"", 1, 0, {}]), "unknown_type"),
        (encode([PROTOCOL_VERSION, "ping", b"", 1, 0, {"more": 1}]), "malformed"),
        (encode([PROTOCOL_VERSION, "credit", b"", 1, 0, {"run": 3, "frames": 1}]), "malformed"),
        (encode([PROTOCOL_VERSION, "ping", b"short", 1, 0, {}]), "malformed"),
        (encode([PROTOCOL_VERSION, "ping", b"", -1, 0, {}]), "malformed"),
        ([*encode([PROTOCOL_VERSION, "ping", b"", 1, 0, {}]), b"payload"], "malformed"),
        ([encode([PROTOCOL_VERSION, "ping", b"", 1, 0, {}])[0], b"", b""], "malformed"),
        (encode([PROTOCOL_VERSION, "ping", b"", 1, 0, {}]), "unknown_session"),
        ([b"x" * (1 << 19)], "malformed"),
    ],
)
def test_what_is_no_message_is_refused(
    peer: RawPeer, server: ServerProcess, parts: list[bytes], code: str
) -> None:
    assert peer.send(parts).content["code"] == code
    assert peer.ask("status", {"run": None}).type == "done"


def test_a_part_that_is_too_large_ends_the_connection_and_nothing_else(
    peer: RawPeer, server: ServerProcess
) -> None:
    peer.control.send_multipart([bytes(CONTROL_PART_BYTES + 1)])
    assert not peer.control.poll(500)
    assert_alive(server)


@pytest.mark.parametrize(
    "name", ["../out", "/etc/passwd", "a/b", "..", ".", "", "x" * 65, "a\0b", "a\nb", "-x"]
)
def test_the_name_of_a_run_cannot_leave_the_root(client: Client, name: str) -> None:
    with pytest.raises(Refused, match="run name"):
        client.submit(sparks(), run=name)


@pytest.mark.parametrize("path", ["/etc/passwd.obj", "../../secret.obj"])
def test_a_graph_cannot_read_outside_the_folder_of_its_run(client: Client, path: str) -> None:
    from loki_graph import Graph
    from loki_graph.nodes.file_input import FileInput
    from loki_graph.nodes.output import Output

    graph = Graph(
        "thief",
        nodes={"in": FileInput(path=path), "out": Output(stream="mesh")},
        connections=[("in.out", "out.in")],
    )
    name = "thief" + str(abs(hash(path)) % 1000)
    run = client.submit(graph, run=name, frames="1")
    with pytest.raises(Exception, match="leads out of the folder"):
        run.wait(120.0)


def test_an_expression_that_is_not_in_the_language_runs_nowhere(
    client: Client, tmp_path: Path
) -> None:
    evil = f"__import__('os').system('touch {tmp_path}/evil')"
    document = SolverSetup(
        "evil", ParticleObject(input="seeds"), ParticleExpression(expression="velocity *= 0.5")
    ).to_document()
    document["children"][1]["parameters"]["expression"] = evil
    asked = {"document": document, "inputs": ["seeds"], "animated": [], "options": {}}
    client._wire.ask("submit", {"run": "evil", "credit": 1}, encode(asked)).wait(30.0)
    run = client.attach("evil")
    run.send_input("seeds", seeds())
    with pytest.raises(RunFailed, match="ParticleExpression"):
        run.wait(120.0)
    assert not (tmp_path / "evil").exists()


def mutated_bytes(chance: random.Random, parts: list[bytes]) -> list[bytes]:
    """Return parts with a few bytes changed, cut out or put in, or with a part more or less."""
    changed = [bytearray(part) for part in parts]
    for _ in range(chance.randint(1, 4)):
        part = chance.choice(changed)
        at = chance.randrange(len(part) + 1)
        action = chance.randrange(5)
        if action == 0 and part:
            part[at % len(part)] = chance.randrange(256)
        elif action == 1:
            del part[at : at + chance.randint(1, 8)]
        elif action == 2:
            part[at:at] = chance.randbytes(chance.randint(1, 8))
        elif action == 3:
            changed.append(bytearray(chance.randbytes(chance.randint(0, 40))))
        elif len(changed) > 1:
            del changed[chance.randrange(len(changed))]
    return [bytes(part) for part in changed]


ODD_VALUES = (
    None, True, -1, 0, 1 << 40, -(1 << 62), 1.5, float("nan"), float("inf"), "", "fuzz", "../x",
    "x" * 3000, "\0", "\ud7ff", b"", b"x", [], {}, [[]], {"a": {}}, ["fuzz"], {"ranks": 10**9},
)  # fmt: skip


def mutated_value(chance: random.Random, value: Any, depth: int = 0) -> Any:
    """Return a document with something in it replaced by what nobody expects."""
    if isinstance(value, dict) and value and (depth == 0 or chance.random() < 0.8):
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated_value(chance, value[key], depth + 1)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], mutated_value(chance, value[at], depth + 1), *value[at + 1 :]]
    return chance.choice(ODD_VALUES)


CONTENTS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "submit": (
        "control",
        {"run": "fuzz", "credit": 1},
        {"document": sparks().to_document(), "inputs": ["seeds"], "animated": ["wind"],
         "options": {"ranks": 1, "frames": "3", "keep_frames": True}},
    ),
    "attach": ("control", {"run": "fuzz", "after": 3, "credit": 2}, None),
    "detach": ("control", {"run": "fuzz"}, None),
    "credit": ("control", {"run": "fuzz", "frames": 3}, None),
    "change": ("control", {"run": "fuzz"}, ["GravityForce.acceleration=0 0 0"]),
    "pause": ("control", {"run": "fuzz"}, None),
    "resume": ("control", {"run": "fuzz", "options": {"frames": "4"}}, None),
    "cancel": ("control", {"run": "fuzz"}, None),
    "checkpoint": ("control", {"run": "fuzz"}, None),
    "rewind": (
        "control",
        {"run": "fuzz", "frame": 2, "version": 1},
        {"document": sparks().to_document(), "inputs": ["seeds"], "options": {"frames": "3"}},
    ),
    "remove": ("control", {"run": "fuzz"}, None),
    "status": ("control", {"run": None}, None),
    "input": (
        "data",
        {"run": "fuzz", "name": "seeds", "frame": None, "version": 1, "base": None,
         "reused": {"1": 1}},
        seeds(10),
    ),
}  # fmt: skip


class Fuzzer:
    """Sends what is nearly right, and keeps count of how far it came."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.peer = RawPeer(server)
        self.numbers = {"control": 1, "data": 1}
        self.codes: dict[str, set[str]] = {name: set() for name in CONTENTS}

    def send_one(self) -> None:
        name = self.chance.choice(list(CONTENTS))
        socket, content, document = CONTENTS[name]
        payload: list[Any] = [] if document is None else encode(document)
        is_structural = self.chance.random() < 0.5
        if is_structural and document is not None and self.chance.random() < 0.7:
            if isinstance(document, dict | list):
                payload = encode_odd(mutated_value(self.chance, document))
            else:
                payload = mutated_bytes(self.chance, [bytes(memoryview(p)) for p in payload])
        elif is_structural:
            content = mutated_value(self.chance, content)
        number = self.numbers[socket] + 1
        header = encode_odd([PROTOCOL_VERSION, name, self.peer.session, number, 0, content])
        parts = [bytes(memoryview(part)) for part in [*header, *payload]]
        if not is_structural:
            parts = mutated_bytes(self.chance, parts)
        if socket == "data":
            self.peer.data.send_multipart(parts)
            self.read_data()
            return
        answer = self.peer.send(parts)
        code = answer.content.get("code", "done")
        if code in ("unknown_session", "wrong_session"):
            self.renew()
            return
        # whatever passed the front desk has used its number
        if answer.type != "error" or code not in ("malformed", "unknown_type", "version"):
            self.numbers["control"] = number if code != "out_of_order" else number - 1
            self.codes[name].add(code)
        elif answer.reply_to == number:
            self.renew()  # refused after it was numbered: begin again

    def read_data(self) -> None:
        if self.peer.data.poll(20):
            answer = read_message(
                self.peer.data.recv_multipart(copy=False), sender="server", socket="data"
            )
            self.codes["input"].add(answer.content.get("code", answer.type))
        self.renew()  # data is answered late or never: a new session knows its number

    def renew(self) -> None:
        # a goodbye, since a server keeps those who vanish for a while, and takes 1000 at once
        goodbye = Message("bye", {}, self.peer.session, self.numbers["control"] + 1)
        self.peer.send(message_parts(goodbye))
        self.peer.close()
        self.peer = RawPeer(self.server)
        self.numbers = {"control": 1, "data": 1}


def encode_odd(document: Any) -> list[Any]:
    """Encode what is nearly a document; what cannot be written is left out."""
    from loki_core.errors import FormatError

    try:
        return encode(document)
    except (FormatError, UnicodeEncodeError):
        return encode(None)


@pytest.mark.parametrize("count", [600, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(3000)
def test_mutated_messages_leave_the_server_alive(server: ServerProcess, count: int) -> None:
    fuzzer = Fuzzer(server, seed=count)
    for _ in range(count):
        fuzzer.send_one()
    fuzzer.peer.close()
    time.sleep(0.2)
    assert_alive(server)
    reached = {name for name, codes in fuzzer.codes.items() if codes - {"out_of_order"}}
    assert reached == set(CONTENTS), fuzzer.codes  # each came to whoever answers it
    assert (server.root / "server.log").stat().st_size < 20_000_000
    assert {path.name for path in server.root.parent.iterdir()} == {"root"}
