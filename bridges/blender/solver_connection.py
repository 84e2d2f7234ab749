"""Solver connection: a client of the server that the preferences name, or of one that is here."""

from __future__ import annotations

from pathlib import Path

from loki_vfx.bridges.live.client import Client, connect

from .preferences import Wishes, solver_command, wishes


def wishes_and_command() -> tuple[Wishes, list[str]]:
    """Return the preferences, and how a server is started; a server elsewhere is not.

    Raises:
        InputError: There is no solver.
    """
    wanted = wishes()
    return wanted, [] if wanted.endpoint else solver_command()


def connect_to(folder: Path, wanted: Wishes, command: list[str]) -> Client:
    """Return a client: of the server that the preferences name, or of that of a folder here."""
    if wanted.endpoint:
        keys = Path(wanted.keys).expanduser() if wanted.keys else None
        return connect(wanted.endpoint, keys=keys, name="Blender")
    options = server_options(wanted)
    return connect(root=folder, command=command, server_options=options, name="Blender")


def server_options(wanted: Wishes) -> tuple[str, ...]:
    """Return the options of a server that is started here."""
    return ("--memory-limit", str(wanted.memory_limit)) if wanted.memory_limit else ()
