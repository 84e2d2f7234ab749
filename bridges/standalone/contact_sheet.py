"""Contact Sheet: pictures of many caches side by side, seen from one place.

Each tile is a preview; camera and ground are those of all caches together, so that what differs is
the simulation. Colours have the range of their own tile.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import InputError, LokiError
from loki_vfx.bridges.standalone import preview
from loki_vfx.bridges.standalone.mesh_picture import check_color
from loki_vfx.bridges.standalone.picture_stage import Stage, load_pyvista, outline_of, stage_of
from loki_vfx.serialization.atomic_file import replacing
from loki_vfx.serialization.frame_cache import FrameCacheReader

MAX_TILES = 400
MAX_WIDTH = 8192  # of the sheet [pixels]
GAP = 8  # between tiles [pixels]
#: Letters [pixels]: the smallest, and those below which the spaces of the font are hard to see.
SMALLEST_LETTER, SMALL_LETTER = 11, 16
PAPER, EMPTY, INK, FAINT, ALARM = "#0a0d14", "#141a26", "#e8edf5", "#93a1b8", "#ff8f7a"
#: Directions in which a scene is measured: enough for a camera that leaves a margin.
DIRECTIONS = np.array([d for d in itertools.product((-1, 0, 1), repeat=3) if any(d)], float)


@dataclass(frozen=True)
class Tile:
    """What a tile shows and says.

    Attributes:
        folder: The frame cache.
        frame: The frame to show; None leaves the tile empty.
        title: Its first line.
        lines: What is below, such as values.
        alarm: What went wrong; empty if nothing did.
    """

    folder: Path
    frame: int | None
    title: str
    lines: tuple[str, ...] = ()
    alarm: str = ""

    def streams(self, color: str | None) -> dict[str, Any]:
        """Return the Objects that are seen; clear air is only where there is nothing else."""
        if self.frame is None:
            return {}
        reader = FrameCacheReader(self.folder)
        found = {path: reader.read(self.frame, path) for path in reader.objects(self.frame)}
        return preview.seen(found, color)


def write_contact_sheet(
    tiles: Sequence[Tile],
    picture: Path,
    *,
    color: str | None = None,
    size: tuple[int, int] = (480, 360),
) -> list[str]:
    """Write a picture of all tiles, and return what could not be shown.

    Args:
        size: Of a tile without its words [pixels]; smaller where the sheet would be too wide.

    Raises:
        LokiError: pyvista or Pillow is not installed.
        InputError: No tile has anything to show.
    """
    load_pyvista()
    try:
        from PIL import Image
    except ImportError as error:
        raise LokiError("Pillow is not installed: pip install pillow") from error

    problems = []
    if len(tiles) > MAX_TILES:
        problems.append(f"the contact sheet shows the first {MAX_TILES} of {len(tiles)} variants")
    tiles = tiles[:MAX_TILES]
    columns = math.ceil(math.sqrt(len(tiles)))
    shrunk = min(1.0, MAX_WIDTH / (columns * (size[0] + GAP) + GAP))
    width, height = (max(16, int(shrunk * length)) for length in size)
    stage = _common_stage(tiles, color, (width, height))
    letter = max(SMALLEST_LETTER, width // 26)
    caption = math.ceil(1.4 * letter * (1 + max(len(one.lines) + bool(one.alarm) for one in tiles)))
    step = width + GAP, height + caption + GAP
    rows = math.ceil(len(tiles) / columns)
    sheet = Image.new("RGB", (columns * step[0] + GAP, rows * step[1] + GAP), PAPER)
    with tempfile.TemporaryDirectory(prefix="loki-") as place:
        for number, tile in enumerate(tiles):
            corner = GAP + number % columns * step[0], GAP + number // columns * step[1]
            image = Image.new("RGB", (width, height), EMPTY)
            try:
                drawn = _draw_tile(tile, Path(place) / "tile.png", color, stage)
                if drawn is not None:
                    with Image.open(drawn) as opened:
                        image = opened.convert("RGB")
            except LokiError as error:
                problems.append(f"{tile.title}: {error}")
            sheet.paste(image, corner)
            _write_caption(sheet, tile, (corner[0], corner[1] + height), width, letter)
    with replacing(picture) as temporary:
        sheet.save(temporary, format="PNG")
    return problems


def _common_stage(tiles: Iterable[Tile], color: str | None, size: tuple[int, int]) -> Stage:
    """Find the camera that sees what all tiles show; those that failed count if all did."""
    good: list[NDArray[Any]] = []
    bad: list[NDArray[Any]] = []
    for tile in tiles:
        try:
            outlines = [outline_of(one, color) for one in tile.streams(color).values()]
        except LokiError:
            continue  # which is told where the tile is drawn
        points = np.concatenate(outlines) if outlines else np.empty((0, 3))
        if len(points):
            (bad if tile.alarm else good).append(_farthest(points))
    if not good and not bad:
        raise InputError("there is nothing to show: no variant has a frame with elements")
    return stage_of(np.concatenate(good or bad), size)


def _farthest(points: NDArray[Any]) -> NDArray[Any]:
    """Return the few points [n, 3] that reach farthest in all directions."""
    return np.asarray(points[np.unique(np.argmax(points @ DIRECTIONS.T, axis=0))])


def _draw_tile(tile: Tile, picture: Path, color: str | None, stage: Stage) -> Path | None:
    streams = tile.streams(color)
    if not streams:
        return None
    check_color(streams, color)
    preview.draw(streams, picture, stage, color=color, ground=True)
    return picture


def _write_caption(
    sheet: Any, tile: Tile, corner: tuple[int, int], width: int, letter: int
) -> None:
    from PIL import ImageDraw, ImageFont

    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(letter)
    lines = [(tile.title, FAINT), *((line, INK) for line in tile.lines)]
    if tile.alarm:
        lines.append((tile.alarm, ALARM))
    for number, (text, ink) in enumerate(lines):
        place = corner[0] + letter // 3, corner[1] + 1.35 * letter * number + letter // 3
        draw.text(place, _fitted(text, width - letter, font), fill=ink, font=font)


def _fitted(text: str, width: int, font: Any) -> str:
    """Return as much of a line as fits."""
    space = "  " if font.size < SMALL_LETTER else " "
    text = space.join(text.split())[:400]
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."
