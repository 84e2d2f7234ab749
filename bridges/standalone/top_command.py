"""`wtloki top`: what the runs of a server do, and what they use."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json

if TYPE_CHECKING:
    from loki_vfx.bridges.standalone.run_table import RunUsage


@click.command("top")
@click.option(
    "--root",
    type=click.Path(),
    help="Show the server of this folder; LOKI_RUNS or ~/loki_runs by default.",
)
@click.option("--endpoint", metavar="tcp://HOST:PORT", help="Show a server on another machine.")
@click.option("--keys", type=click.Path(), help="Connect with the keys in this folder.")
@click.option(
    "--token-file",
    type=click.Path(),
    help="Connect with the token in this file, at tcp on this machine.",
)
@click.option("--once", is_flag=True, help="Show one table and end.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600.0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Look again after this time.",
)
@machine_options
def command(
    *,
    root: str | None,
    endpoint: str | None,
    keys: str | None,
    token_file: str | None,
    once: bool,
    interval: float,
    as_json: bool,
) -> int:
    """Show the runs of a server: state, frames, time left, ranks, memory, Stages, balance.

    The table goes on until Ctrl-C or the end of the server. It starts no server, and keeps none
    from ending.
    """
    from loki_vfx.bridges.live.local_server import default_root

    if endpoint is not None and root is not None:
        raise click.UsageError("give --root or --endpoint, not both")
    folder = Path(root) if root else default_root()

    def look() -> dict[str, Any]:
        return _status(folder, endpoint, keys=keys, token_file=token_file)

    first = look()
    if once:
        _print(first, as_json=as_json)
        return 0
    try:
        if as_json or not sys.stdout.isatty():
            _repeat(first, look, lambda status: _print(status, as_json=as_json), interval)
        else:
            _show_live(first, look, interval)
    except KeyboardInterrupt:
        pass  # that is how one leaves it
    return 0


def _status(
    root: Path, endpoint: str | None, *, keys: str | None, token_file: str | None
) -> dict[str, Any]:
    """Ask once. A client that stayed would keep a server at work that ends when it is idle."""
    from loki_core.errors import LokiError
    from loki_vfx.bridges.live.client import Client
    from loki_vfx.bridges.live.local_server import discovered

    if endpoint is None:
        found = discovered(root)
        if found is None:
            raise LokiError(_no_server(root))
        endpoint = str(found["endpoint"])
    with Client(endpoint, keys=keys, token=token_file, name="wtloki top") as client:
        return client.status()


def _no_server(root: Path) -> str:
    """Say that there is no server, and how its runs were left."""
    from loki_core.errors import FormatError
    from loki_vfx.bridges.live.run_folder import runs_in

    left = []
    for folder in runs_in(root):
        try:
            left.append(f"{folder.name} ({folder.read_record().state})")
        except FormatError:
            left.append(f"{folder.name} (damaged)")
    text = f"no server serves {root} on this machine"
    if not left:
        return f"{text}; start one with: wtloki serve --root {root}"
    return f"{text}; runs on the disk: {', '.join(left)}"


def _runs(status: dict[str, Any]) -> list[RunUsage]:
    from loki_vfx.bridges.standalone.run_table import RunUsage

    return [RunUsage.from_summary(one) for one in status["runs"]]


def _print(status: dict[str, Any], *, as_json: bool) -> None:
    from loki_vfx.bridges.standalone.run_table import (
        messages_of,
        plain_table,
        rich_table,
        server_words,
    )

    runs = _runs(status)
    if as_json:
        print_json({"server": status["server"], "runs": [asdict(one) for one in runs]})
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(rich_table(runs, server_words(status["server"])))
        click.echo("".join(f"{line}\n" for line in messages_of(runs)), nl=False)
    else:
        lines = [server_words(status["server"]), plain_table(runs), *messages_of(runs)]
        click.echo("\n".join(lines))


def _repeat(
    status: dict[str, Any],
    look: Callable[[], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    interval: float,
) -> None:
    """Show and look again until the server is gone."""
    from loki_core.errors import LokiError

    while True:
        show(status)
        time.sleep(interval)
        try:
            status = look()
        except LokiError as error:
            click.echo(f"the server has ended: {error}", err=True)
            return


def _show_live(status: dict[str, Any], look: Callable[[], dict[str, Any]], interval: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from loki_vfx.bridges.standalone.run_table import messages_of, rich_table, server_words

    with Live(auto_refresh=False) as live:

        def show(status: dict[str, Any]) -> None:
            runs = _runs(status)
            table = rich_table(runs, server_words(status["server"]))
            live.update(Group(table, *(Text(one) for one in messages_of(runs))), refresh=True)

        _repeat(status, look, show, interval)
