"""`wtloki export`: write a cache as USD or VDB, for programs that do not know Loki."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json

if TYPE_CHECKING:
    from loki_vfx.serialization.cache_export import ExportReport, OnFrame

_FRAMES = re.compile(r"(-?\d{1,8})(?:-(-?\d{1,8}))?")


@click.command("export")
@click.argument("cache", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    help="Write this .usd, .usdc or .usda file; with --format vdb this folder.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["usd", "vdb"]),
    help="Write usd (the default), or vdb: volumes alone, a file for each Object and frame.",
)
@click.option("--frames", metavar="N|A-B", help="Write frame N, or frames A to B; all by default.")
@click.option(
    "--object",
    "--objects",
    "objects",
    multiple=True,
    metavar="PATH",
    help="Write this Object only, or those of this Group; may be repeated.",
)
@click.option(
    "--up",
    type=click.Choice(["y", "z"]),
    default="y",
    show_default=True,
    help="Let this axis be up in the files; z turns everything by 90 degrees about x.",
)
@click.option(
    "--compression",
    type=click.Choice(["zip", "none"]),
    default="zip",
    show_default=True,
    help="Write VDB files with this compression; none is larger and quicker.",
)
@click.option("--half", is_flag=True, help="Write real numbers in VDB files as half floats.")
@click.option("--overwrite", is_flag=True, help="Replace files of an earlier export.")
@machine_options
def command(
    cache: Path,
    *,
    target: Path,
    file_format: str | None,
    frames: str | None,
    objects: tuple[str, ...],
    up: str,
    compression: str,
    half: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a frame cache as files that load without Loki.

    \b
    wtloki export dust_cache --to dust.usdc
    wtloki export smoke_cache --to smoke_vdb --format vdb --frames 10-48

    USD has everything: meshes, curves, points, and volumes as VDB files in a folder beside it,
    with velocities for motion blur, and all other channels as primvars. A volume whose faces
    have velocities gets them at voxel centres.

    Files appear when all of them are written. Ctrl-C leaves what was there before.
    """
    from loki_vfx.serialization.cache_export import export_frames

    span = _frame_span(frames)
    with _stopped_by_signals(), _progress(as_json=as_json) as on_frame:
        report = export_frames(
            cache,
            target,
            file_format=file_format,
            frames=span,
            objects=objects,
            up=up,
            compression=compression,
            half=half,
            overwrite=overwrite,
            on_frame=on_frame,
        )
    if as_json:
        print_json({"event": "finished", **asdict(report)})
    else:
        for line in _lines(report):
            click.echo(line)


def _frame_span(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _FRAMES.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(
            f'"{text}" is neither a frame nor a range such as 1-48', param_hint="--frames"
        )
    return int(match[1]), int(match[2] or match[1])


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM, by which programs stop the command, clean up as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(*, as_json: bool) -> Iterator[OnFrame]:
    """Yield what tells of each frame: a line of JSON, or a bar with the time left."""
    begin = time.monotonic()

    def tell(frame: int, done: int, total: int) -> None:
        left = (time.monotonic() - begin) / done * (total - done)
        event = {"event": "frame", "frame": frame, "done": done, "total": total}
        print_json({**event, "seconds_left": round(left, 2)})

    if as_json:
        yield tell
        return
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        length=1, label="frames", show_pos=True, hidden=hidden, file=sys.stderr
    ) as bar:

        def show(frame: int, done: int, total: int) -> None:
            bar.length = total
            bar.update(1)

        yield show


def _lines(report: ExportReport) -> Iterator[str]:
    from loki_core.wording import counted

    first, last = report.frames[0], report.frames[-1]
    size = f"{report.bytes / 1e6:,.1f} MB"
    yield f"{report.target}: frames {first} to {last}, {counted(report.files, 'file')}, {size}"
    for path, places in report.objects.items():
        yield f"  {path}: {', '.join(places)}"
    for channel in report.left_out:
        yield f"  left out: {channel}"
