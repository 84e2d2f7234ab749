"""`wtloki run`: run a Solver Setup into a frame cache, on one process or as an MPI job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loki_vfx.bridges.standalone.options import file_argument, machine_options, scene_options

if TYPE_CHECKING:
    from loki_vfx.bridges.standalone.run_request import RunRequest

Function = TypeVar("Function", bound=Callable[..., Any])
_STOPPING = b"stopping at the end of the running Task; frames and a checkpoint stay\n"


def run_options(function: Function) -> Function:
    """Add how to run and where to: also `wtloki example` takes these."""
    for option in (
        click.option(
            "--keep-checkpoints",
            type=click.IntRange(1, 10_000),
            default=3,
            show_default=True,
            help="Keep this many of the last checkpoints.",
        ),
        click.option(
            "--checkpoint-every",
            type=click.IntRange(0, 1_000_000),
            help="Write a checkpoint every so many frames; 0 writes none. By default as the setup "
            "says, or as often as they take little time.",
        ),
        click.option("--overwrite", is_flag=True, help="Replace the simulation in the folder."),
        click.option(
            "--resume",
            is_flag=True,
            help="Continue from the newest whole checkpoint in the folder.",
        ),
        click.option(
            "--threads",
            type=click.IntRange(1, 4096),
            help="Use this many threads on each rank; all by default.",
        ),
        click.option(
            "--ranks",
            type=click.IntRange(1, 65_536),
            default=1,
            show_default=True,
            help="Run on this many processes, as an MPI job.",
        ),
        click.option(
            "--output",
            type=click.Path(),
            help="Write frames into this folder; by default one named after the scene.",
        ),
        click.option(
            "--frames",
            metavar="N|A-B",
            help="Write N frames, the start state included, or frames A to B.",
        ),
    ):
        function = option(function)
    return function


@click.command("run")
@file_argument
@scene_options
@run_options
@machine_options
def command(file: Path, *, ranks: int, as_json: bool, output: str | None, **values: Any) -> int:
    """Run a Solver Setup or a Loki Graph and write its frames.

    Ctrl-C stops the run after the present Task, and leaves whole frames and a checkpoint.
    --resume continues it, bit for bit on the same number of ranks.
    """
    from loki_vfx.bridges.standalone.run_request import RunRequest

    name = file.name.removesuffix(".json").removesuffix(".loki")
    folder = output or (f"{name}_cache" if name == file.name else name)
    request = RunRequest(output=folder, file=str(file), **values)
    return perform(request, ranks=ranks, as_json=as_json)


def perform(request: RunRequest, *, ranks: int, as_json: bool) -> int:
    """Run a request and return the exit code."""
    from loki_core.errors import Cancelled
    from loki_vfx.bridges.standalone.events import make_reporter

    reporter = make_reporter(as_json=as_json)
    try:
        if ranks > 1:
            from loki_vfx.bridges.standalone.launch import launch_ranks

            launch_ranks(request, ranks, reporter)
        else:
            from loki_core.parallel.comm import SERIAL

            runner = request.runner(listener=reporter, comm=SERIAL)
            with stop_on_signals(runner.cancel):
                runner.run()
    except Cancelled as error:
        return error.exit_code
    finally:
        reporter.close()
    return 0


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let signals ask for a stop instead of breaking in; again and again if need be."""
    from loki_core.operating_system import STOP_SIGNALS

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        os.write(2, _STOPPING)  # not print(): the handler may interrupt one

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
