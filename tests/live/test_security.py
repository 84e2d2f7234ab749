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

from bridges.live import security
from bridges.live.client import Client, ConnectionLost, Refused, RunFailed
from bridges.live.protocol import (
    CONTROL_PART_BYTES,
    KINDS,
    PROTOCOL_VERSION,
    Message,
    message_parts,
    read_message,
)
from bridges.live.security import KeyFolder
from loki_core.errors import InputError
from loki_core.objects.particles import ParticleObject
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.solver_setup import SolverSetup
from serialization.codec import encode
from tests.live.live_scenes import ServerProcess, seeds, sparks


class RawPeer:
    """Somebody who speaks to a server's sockets without a client's good manners."""

    def __init__(self, server: ServerProcess) -> None:
        self.context = zmq.Context()
        self.control = self._socket(server.endpoint)
        self.number = 0
        self.session = b""
        welcome = self.ask("hello", {"client": "raw", "versions": [PROTOCOL_VERSION]})
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
    assert f"version {PROTOCOL_VERSION + 7} is not spoken here, but version 1" in str(answer)
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
    content = {"run": "evil", "inputs": ["seeds"], "animated": [], "options": {}, "credit": 1}
    client._wire.ask("submit", content, encode(document)).wait(30.0)
    run = client.attach("evil")
    run.send_input("seeds", seeds())
    with pytest.raises(RunFailed, match="ParticleExpression"):
        run.wait(120.0)
    assert not (tmp_path / "evil").exists()


def mutated(random_: random.Random, parts: list[bytes]) -> list[bytes]:
    """Return a message with a few bytes changed, cut out, put in, or parts exchanged."""
    parts = [bytearray(part) for part in parts]  # type: ignore[misc]
    for _ in range(random_.randint(1, 4)):
        part = random_.choice(parts)
        action = random_.randrange(6)
        at = random_.randrange(len(part) + 1)
        if action == 0 and part:
            part[at % len(part)] = random_.randrange(256)  # type: ignore[index]
        elif action == 1:
            del part[at : at + random_.randint(1, 8)]  # type: ignore[attr-defined]
        elif action == 2:
            part[at:at] = random_.randbytes(random_.randint(1, 8))  # type: ignore[index]
        elif action == 3 and part:
            part[at % len(part)] ^= 1 << random_.randrange(8)  # type: ignore[index,operator]
        elif action == 4:
            parts.append(bytearray(random_.randbytes(random_.randint(0, 40))))
        elif action == 5 and len(parts) > 1:
            del parts[random_.randrange(len(parts))]
    return [bytes(part) for part in parts]


def valid_messages(session: bytes, number: int) -> list[list[bytes]]:
    """One message of every type that a client sends, as it would be right."""
    contents: dict[str, dict[str, Any]] = {
        "hello": {"client": "x", "versions": [1]},
        "submit": {"run": "fuzz", "inputs": ["seeds"], "animated": [], "options": {}, "credit": 1},
        "attach": {"run": "fuzz", "after": 3, "credit": 2},
        "credit": {"run": "fuzz", "frames": 3},
        "change": {"run": "fuzz", "changes": ["GravityForce.acceleration=0 0 0"]},
        "resume": {"run": "fuzz", "options": {"ranks": 2}},
        "status": {"run": None},
        "input": {
            "run": "fuzz", "name": "seeds", "frame": None, "version": 1, "base": None,
            "reused": None,
        },
    }  # fmt: skip
    made = []
    for name, kind in KINDS.items():
        if kind.sender != "client" or name in ("stop_server", "remove", "bye"):
            continue
        content = contents.get(name, dict.fromkeys(kind.fields, "fuzz"))
        payload = {"submit": encode(sparks().to_document()), "input": encode(seeds(10))}
        message = Message(name, content, session, number, 0, payload.get(name, ()))
        made.append([bytes(memoryview(part)) for part in message_parts(message)])
    return made


@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_mutated_messages_leave_the_server_alive(server: ServerProcess, count: int) -> None:
    chance = random.Random(count)
    peer = RawPeer(server)
    for number in range(count):
        if number % 500 == 0:  # a mutation may have ended the session, or used its number
            peer.close()
            peer = RawPeer(server)
        parts = mutated(chance, chance.choice(valid_messages(peer.session, number % 500 + 2)))
        socket = peer.data if chance.random() < 0.3 else peer.control
        socket.send_multipart(parts)
        if number % 50 == 0:
            while peer.control.poll(0):
                peer.control.recv_multipart()
    peer.close()
    time.sleep(0.2)
    assert_alive(server)
    assert "malformed" in server.log()
    assert (server.root / "server.log").stat().st_size < 20_000_000
    assert not (server.root.parent / "out").exists()
