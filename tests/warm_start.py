"""Warm starts: processes that find numba and Loki imported, for tests that start hundreds of them.

    python tests/warm_start.py SOCKET                 the server: imports once, then forks
    python -S -E tests/warm_start.py SOCKET SCRIPT …  a client, which stands for one process

The server has not touched MPI when it forks, so each child is a rank of its own: it takes the
client's environment, its open files and its line to mpiexec. The client ends as the child does; a
client that is killed takes the child with it. All children hash strings alike, which ranks that are
started one by one do not; tests of `wtloki run` start those.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import sys

LONGEST = 1 << 20  # bytes of a request
LOOK_EVERY = 0.02  # seconds between looks for children that have ended
LINE = "PMI_FD"  # variable that names mpiexec's open file


def ask(place: str, words: list[str]) -> int:
    """Let the server run a script; returns its exit code."""
    files = [0, 1, 2] + ([int(os.environ[LINE])] if LINE in os.environ else [])
    request = {"words": words, "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(place)
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        line.sendmsg([json.dumps(request).encode()], passed)
        if LINE in os.environ:
            os.close(files[-1])
        told = line.recv(64)
    return int(told) if told else 1


def serve(place: str) -> list[str] | None:
    """Fork a child for each client, until standard input ends.

    Returns:
        The script and its arguments, in a child; None in the server at its end.
    """
    import selectors

    running: dict[int, socket.socket] = {}  # lines to clients by child
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door,
        selectors.DefaultSelector() as events,
    ):
        door.bind(place)
        door.listen(64)
        events.register(door, selectors.EVENT_READ)
        events.register(0, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in events.select(LOOK_EVERY if running else None):
                if key.fileobj == 0:
                    return None
                if key.fileobj is door:
                    line, _ = door.accept()
                    text, files, _, _ = socket.recv_fds(line, LONGEST, 4)
                    if not text:  # a client that was killed before it said anything
                        line.close()
                        continue
                    child = os.fork()
                    if child == 0:
                        return _become(json.loads(text), files)
                    for one in files:
                        os.close(one)
                    running[child] = line
                    events.register(line, selectors.EVENT_READ, child)
                elif key.data in running:  # the client was killed
                    os.kill(key.data, 9)
                    events.unregister(key.fileobj)
            for child, line in list(running.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    if line in events.get_map():
                        events.unregister(line)
                        with contextlib.suppress(OSError):  # mpiexec may have killed the client
                            line.send(str(os.waitstatus_to_exitcode(status)).encode())
                    line.close()
                    del running[child]


def _become(request: dict[str, object], files: list[int]) -> list[str]:
    """Take the place of a client; returns the script and its arguments."""
    import numba

    for number in range(3):
        os.dup2(files[number], number)
        os.close(files[number])
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    if LINE in os.environ:
        os.set_inheritable(files[3], True)
        os.environ[LINE] = str(files[3])
    os.chdir(str(request["folder"]))
    numba.config.reload_config()
    return list(request["words"])  # type: ignore[call-overload]


def import_all() -> None:
    """Import what every script imports, and let numba set up what every kernel needs."""
    import importlib
    import pkgutil

    import numpy as np
    import scipy.sparse.linalg  # noqa: F401

    import loki_core
    from loki_core.kernels.basics.space_filling_curve import bucket_keys

    for module in pkgutil.walk_packages(loki_core.__path__, "loki_core."):
        importlib.import_module(module.name)
    bucket_keys(np.zeros((1, 3), np.int32), "hilbert")


def main() -> None:
    """Be the server, or a client."""
    place, *words = sys.argv[1:]
    if words:
        code = ask(place, words)
        if code < 0:  # the child was killed, and so the client is
            os.kill(os.getpid(), -code)
        sys.exit(code)
    import runpy

    import_all()
    script = serve(place)
    if script is None:
        return
    sys.argv = script
    sys.path.insert(0, os.path.dirname(os.path.abspath(script[0])))
    code: object = None
    try:
        runpy.run_path(script[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code
        if not isinstance(code, int | None):
            raise
    leave(code or 0)


def leave(code: int) -> None:
    """End at once: to clear away all that was imported takes longer than most scripts.

    What C registers for its end is done: MPICH tells its launcher there that all is well.
    """
    import atexit
    import ctypes

    atexit._run_exitfuncs()
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized() and code == 0:
            MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code)


if __name__ == "__main__":
    main()
