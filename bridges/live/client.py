"""The client of the live bridge: what a host holds of Loki. Needs numpy, msgpack and pyzmq alone.

    with connect() as client:                        # starts a local server where there is none
        run = client.submit(setup, {"hair": curves}, frames="48", ranks=2)
        for frame in run.frames():                   # as they come
            show(frame.number, frame["Hair/CurvesObject"])

A host with an event loop calls `run.poll()` now and then instead, which never waits; nothing is
called back in another thread. A client that is lost, or comes another day, uses `attach`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loki_vfx.bridges.live.live_run import ANSWER_SECONDS, Frame, Run, RunEvent, RunFailed
from loki_vfx.bridges.live.local_server import default_root, discovered, ensure_server
from loki_vfx.bridges.live.protocol import Message, document_part
from loki_vfx.bridges.live.scene_document import document_to_send
from loki_vfx.bridges.live.security import KeyFolder, credentials_for
from loki_vfx.bridges.live.wire import ConnectionLost, Refused, Wire

__all__ = [
    "Client",
    "ConnectionLost",
    "Frame",
    "Refused",
    "Run",
    "RunEvent",
    "RunFailed",
    "connect",
]

DEFAULT_CREDIT = 2


class Client:
    """A connection to a server, with its runs.

    Args:
        endpoint: Where the server is.
        keys: Folder of keys, for servers on other machines; None is that of the user if it knows
            the server.
        token: File of the token, for TCP on this machine.
        timeout: Longest wait for the first answer [s].
        reconnect_seconds: How long a lost server is waited for.

    Raises:
        ConnectionLost: There is no answer, or the server refuses.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        keys: Path | str | None = None,
        token: Path | str | None = None,
        name: str = "loki python client",
        timeout: float = 10.0,
        reconnect_seconds: float = 60.0,
    ) -> None:
        self.endpoint = endpoint
        self.reconnect_seconds = reconnect_seconds
        self.lost_because = ""
        self.input_window = 1 << 28
        self.server: dict[str, Any] = {}
        self._runs: dict[str, Run] = {}
        self._has_been_connected = False
        credentials = credentials_for(
            endpoint,
            keys=None if keys is None else KeyFolder(Path(keys).expanduser()),
            token=None if token is None else Path(token).expanduser(),
        )
        self._wire = Wire(
            endpoint,
            credentials,
            client=name,
            on_message=self._hear,
            on_connected=self._connected,
            on_lost=self._lost,
        )
        end = time.monotonic() + timeout
        while not self._wire.is_connected.wait(0.02):
            reason, is_refused = self._wire.reason, self._wire.is_refused.is_set()
            if is_refused or time.monotonic() > end:
                self.close()
                words = "refuses" if is_refused else "does not answer: no server, or a wrong key"
                raise ConnectionLost(f"{endpoint} {words} ({reason})")

    def submit(
        self,
        scene: Any,
        inputs: Mapping[str, Any] | None = None,
        *,
        run: str,
        animated: Sequence[str] = (),
        credit: int = DEFAULT_CREDIT,
        **options: Any,
    ) -> Run:
        """Start a run and follow it.

        Args:
            scene: A Loki Graph or a Solver Setup.
            inputs: Streams by name, or functions of the frame, which are asked as the run goes.
            run: A name that is new on the server.
            animated: Further inputs whose frames `send_input` will bring.
            credit: How many frames may be here, or on their way, at once.
            options: As RunOptions has them: frames, ranks, threads, keep_frames, results, ...

        Raises:
            Refused: The scene, the name or an option is not valid; the message says what.
        """
        inputs = dict(inputs or {})
        functions = {name: one for name, one in inputs.items() if callable(one)}
        streams = {name: one for name, one in inputs.items() if name not in functions}
        made = Run(self, run, credit=credit)
        made._functions = functions
        asked = {
            "document": document_to_send(scene),
            "inputs": sorted(streams),
            "animated": sorted({*functions, *animated}),
            "options": options,
        }
        content = {"run": run, "credit": credit}
        answer = self._follow(made, "submit", content, document_part(asked))
        made.state = answer["state"]
        for name, stream in streams.items():
            made.send_input(name, stream)
        return made

    def attach(
        self,
        run: str,
        *,
        after: int | None = None,
        credit: int = DEFAULT_CREDIT,
        inputs: Mapping[str, Callable[[int], Any]] | None = None,
    ) -> Run:
        """Follow a run that is there: its frames from the one after `after` on, and its events."""
        made = Run(self, run, credit=credit)
        made.last_frame = after
        made._functions = dict(inputs or {})
        content = {"run": run, "after": after, "credit": credit}
        found = self._follow(made, "attach", content)
        made.state, made.message = found["state"], found["message"]
        made.rewinds = max(made.rewinds, found["rewinds"])
        made.begins = found["begins"]
        return made

    def _follow(
        self, run: Run, kind: str, content: dict[str, Any], payload: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Ask for a run and let it hear from the server; if that is refused all is as before."""
        former = self._runs.get(run.name)
        self._runs[run.name] = run
        try:
            return self._wire.ask(kind, content, payload).wait(ANSWER_SECONDS)
        except BaseException:
            self._runs.pop(run.name, None)
            if former is not None:
                self._runs[run.name] = former
            raise

    def status(self, run: str | None = None) -> dict[str, Any]:
        """Return what the server does: its runs, and itself."""
        return self._wire.ask("status", {"run": run}).wait(ANSWER_SECONDS)

    def remove(self, run: str) -> None:
        """Remove an ended run and all its files."""
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                self._wire.ask("remove", {"run": run}).wait(ANSWER_SECONDS)
                return
            except Refused as error:
                if error.code != "busy" or time.monotonic() > end:
                    raise
                time.sleep(0.05)  # its processes are just ending

    def stop_server(self) -> None:
        """End the server; its runs are stopped with checkpoints, and go on with the next one."""
        self._wire.ask("stop_server", {}).wait(ANSWER_SECONDS)

    def close(self) -> None:
        """End the connection; runs go on, or stop, as they were told."""
        self._wire.close()
        for run in list(self._runs.values()):
            run._lost("the client was closed")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _forget(self, run: Run) -> None:
        self._runs.pop(run.name, None)

    # -- called in the wire's thread ---------------------------------------------------------------

    def _connected(self, welcome: dict[str, Any]) -> None:
        self.server = {name: welcome[name] for name in ("server", "version", "user", "limits")}
        self.input_window = int(welcome["limits"].get("input_bytes", self.input_window))
        if self._has_been_connected:
            for run in list(self._runs.values()):
                run._take_up()
        self._has_been_connected = True

    def _lost(self, reason: str) -> None:
        self.lost_because = reason
        for run in list(self._runs.values()):
            run._lost(reason)

    def _hear(self, message: Message, key: Any) -> None:
        content = message.content
        run = self._runs.get(content.get("run", key[0] if key else ""))
        if run is None:
            return
        if message.type == "accepted":
            run._input_taken(content["version"])
        elif message.type == "refused":
            run._input_refused(key[1], content["code"], content["message"])
        else:
            run._hear(message)


def connect(
    endpoint: str | None = None,
    *,
    root: Path | str | None = None,
    command: Sequence[str] | None = None,
    server_options: Sequence[str] = (),
    **options: Any,
) -> Client:
    """Return a client of a server: at an endpoint, or of a local folder, started if need be.

    Args:
        endpoint: Where the server is; None for the local one of `root`.
        root: Folder of runs; LOKI_RUNS or `~/loki_runs` if None.
        command: How `wtloki` is called, where it is not beside this Python or on the path.
        server_options: Of `wtloki serve`, if a server is started.
        options: As Client has them.
    """
    if endpoint is not None:
        return Client(endpoint, **options)
    folder = Path(root) if root is not None else default_root()
    found = ensure_server(folder, command, server_options)
    try:
        return Client(found, **options)
    except ConnectionLost:
        still = discovered(folder)
        if still is not None and still["endpoint"] == found:
            raise
        # that one was just ending
        return Client(ensure_server(folder, command, server_options), **options)
