"""`wtloki preview`: render a picture of a cached frame, off-screen."""

from __future__ import annotations

import re
from pathlib import Path

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json


@click.command("preview")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--frame", type=int, help="Show this frame; the last by default.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write the picture here; FOLDER/preview_000048.png by default.",
)
@click.option(
    "--object",
    "objects",
    multiple=True,
    metavar="PATH",
    help="Show this Object only; may be repeated.",
)
@click.option("--color", metavar="CHANNEL", help="Colour by a channel; speed where there is one.")
@click.option(
    "--size",
    metavar="WxH",
    default="1280x960",
    show_default=True,
    help="Draw a picture of this size [pixels].",
)
@click.option("--ground/--no-ground", default=True, help="Show a ground plane below the scene.")
@machine_options
def command(
    folder: Path,
    *,
    frame: int | None,
    output: Path | None,
    objects: tuple[str, ...],
    color: str | None,
    size: str,
    ground: bool,
    as_json: bool,
) -> None:
    """Render a picture of a frame: points, curves, surfaces and volumes."""
    from loki_core.errors import InputError, did_you_mean
    from loki_vfx.bridges.standalone.preview import render
    from loki_vfx.serialization.frame_cache import FrameCacheReader

    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", size)
    if match is None or not 16 <= int(match[1]) <= 16384 or not 16 <= int(match[2]) <= 16384:
        raise click.BadParameter(f'"{size}" is not WxH, such as 1280x960', param_hint="--size")
    if output is not None and (output.is_dir() or output.suffix.lower() != ".png"):
        raise InputError(f"--output {output}: expected the name of a .png file")
    reader = FrameCacheReader(folder)
    frames = reader.frames()
    if not frames:
        raise InputError(f"{folder} has no whole frame to show")
    shown = frames[-1] if frame is None else frame
    known = reader.objects(shown)
    for path in objects:
        if path not in known:
            raise InputError(f'{folder} has no Object "{path}"{did_you_mean(path, known)}')
    streams = {path: reader.read(shown, path) for path in objects or known}
    picture = output or folder / f"preview_{shown:06d}.png"
    drawn = render(
        streams,
        picture,
        color=color,
        size=(int(match[1]), int(match[2])),
        ground=ground,
    )
    if as_json:
        print_json({"picture": str(picture), "frame": shown, "objects": drawn})
    else:
        click.echo(f"frame {shown}: {picture}")
