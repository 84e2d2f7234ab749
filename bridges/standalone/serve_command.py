"""`wtloki serve`: run what clients submit, and keep it running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json


@click.command("serve")
@click.option(
    "--root",
    type=click.Path(),
    help="Keep runs in this folder; LOKI_RUNS or ~/loki_runs by default.",
)
@click.option(
    "--listen",
    default="",
    metavar="tcp://HOST:PORT",
    help="Listen at this address too; port * is any free one. Other machines need --keys.",
)
@click.option(
    "--keys",
    type=click.Path(),
    help="Let in the users whose keys are in this folder: see `wtloki keys`.",
)
@click.option(
    "--token-file",
    type=click.Path(),
    help="Ask for the token in this file at tcp on this machine; make the file if there is none.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1, 65_536),
    default=1,
    show_default=True,
    help="Run on this many processes, unless a run asks for another number.",
)
@click.option(
    "--runs-at-once",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Run this many at a time, and queue the rest.",
)
@click.option(
    "--most-ranks",
    type=click.IntRange(0, 65_536),
    default=0,
    help="Give a run at most this many processes; 0 sets no limit.",
)
@click.option(
    "--memory-limit", type=float, metavar="GB", help="Limit the memory of all runs together."
)
@click.option(
    "--end-when-idle",
    type=click.FloatRange(0.0, 1e9),
    metavar="SECONDS",
    help="End after so long without clients and work, with exit code 1 if a run is unfinished.",
)
@click.option(
    "--stall-timeout",
    type=click.FloatRange(0.0, 1e9),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Restart a solver after so long without a new Task; 0 never does.",
)
@click.option(
    "--restarts",
    type=click.IntRange(1, 100_000),
    default=6,
    show_default=True,
    help="Give a run up after this many ends of its solver without a new frame.",
)
@click.option(
    "--fewer-ranks-after",
    type=click.IntRange(1, 100_000),
    default=3,
    show_default=True,
    help="Halve the ranks after this many such ends.",
)
@machine_options
def command(
    *,
    root: str | None,
    listen: str,
    keys: str | None,
    token_file: str | None,
    ranks: int,
    runs_at_once: int,
    most_ranks: int,
    memory_limit: float | None,
    end_when_idle: float | None,
    stall_timeout: float,
    restarts: int,
    fewer_ranks_after: int,
    as_json: bool,
) -> int:
    """Serve hosts: run their scenes, each in a folder of the root, and send frames back.

    The server computes nothing itself: it starts the solver, alone or on several ranks, and
    starts it again from the last checkpoint after a kill. Runs of an earlier server go on.
    Ctrl-C ends the server and stops its runs with checkpoints.
    """
    from loki_vfx.bridges.live.front_desk import DeskSettings
    from loki_vfx.bridges.live.local_server import default_root
    from loki_vfx.bridges.live.server import Server, ServerSettings
    from loki_vfx.bridges.live.supervised_run import JobPolicy
    from loki_vfx.bridges.standalone.run_command import stop_on_signals

    server = Server(
        ServerSettings(
            root=Path(root) if root else default_root(),
            desk=DeskSettings(
                listen=listen,
                keys=Path(keys).expanduser() if keys else None,
                token=Path(token_file) if token_file else None,
            ),
            runs_at_once=runs_at_once,
            most_ranks=most_ranks,
            memory_limit=int((memory_limit or 0.0) * 1e9),
            idle_seconds=end_when_idle,
            policy=JobPolicy(
                ranks=ranks,
                fewer_ranks_after=fewer_ranks_after,
                give_up_after=restarts,
                stall_seconds=stall_timeout,
            ),
        )
    )

    def tell(server: Server) -> None:
        told: dict[str, Any] = {"event": "serving", "root": str(server.root)}
        told |= {"endpoint": server.desk.endpoint, "tcp": server.desk.tcp_endpoint}
        if as_json:
            print_json(told)
        else:
            where = " and ".join(
                one for one in (server.desk.endpoint, server.desk.tcp_endpoint) if one
            )
            click.echo(f"serving {server.root} at {where}")

    with stop_on_signals(server.stop):
        server.serve(tell)
    unfinished = [run.record for run in server.runs.values() if run.state != "finished"]
    for record in unfinished if end_when_idle is not None else ():
        click.echo(f"run {record.name} {record.state}: {record.message}", err=True)
    return 1 if unfinished and end_when_idle is not None else 0
