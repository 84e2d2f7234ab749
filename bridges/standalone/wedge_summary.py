"""Wedge Summary: the files that show all variants of a wedge together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loki_core.errors import LokiError
from loki_vfx.bridges.standalone.contact_sheet import Tile, write_contact_sheet
from loki_vfx.bridges.standalone.wedge import short_names
from loki_vfx.bridges.standalone.wedge_costs import Result, write_table
from loki_vfx.bridges.standalone.wedge_folder import SHEET, TABLE, WEDGE, leftover_variants
from loki_vfx.serialization.atomic_file import write_json
from loki_vfx.serialization.frame_cache import whole_frames


def write_summary(
    root: Path,
    results: Sequence[Result],
    told: dict[str, Any],
    *,
    sheet: dict[str, Any] | None,
) -> None:
    """Write table and contact sheet; what cannot be shown is told and fails nothing.

    Args:
        told: Becomes wedge.json; gets the place of the sheet, and what could not be shown.
        sheet: Frame, color and size of the contact sheet; None writes none.
    """
    root.mkdir(parents=True, exist_ok=True)
    problems = told["problems"]
    for name in leftover_variants(root, len(results)):
        problems.append(f"{root / name} is of an earlier wedge, and no part of this one")
    write_table(root / TABLE, results)
    write_json(root / WEDGE, told)  # first: a driver that ends the process takes no figure with it
    if sheet is None:
        return
    try:
        problems += _write_sheet(root / SHEET, results, **sheet)
        told["contact_sheet"] = str(root / SHEET)
    except LokiError as error:
        problems.append(f"no contact sheet: {error}")
    write_json(root / WEDGE, told)


def _write_sheet(
    picture: Path,
    results: Sequence[Result],
    *,
    frame: int | None,
    color: str | None,
    size: tuple[int, int],
) -> list[str]:
    names = short_names(results[0].plan.variant.values)
    tiles = []
    for result in results:
        plan = result.plan
        wanted = plan.frames[1] if frame is None else frame
        there = [one for one in whole_frames(plan.folder) if one <= wanted]
        shown = there[-1] if there and plan.state != "changed" else None
        alarm = ""
        if result.failure is not None:
            alarm = f"failed: {result.failure.message}"
        elif shown != wanted:
            alarm = f"frame {wanted} is not there"
        values = plan.variant.values.items()
        tiles.append(
            Tile(
                plan.folder,
                shown,
                f"{plan.variant.name}" + ("" if shown is None else f", frame {shown}"),
                tuple(f"{names[target]} = {value}" for target, value in values),
                alarm,
            )
        )
    return write_contact_sheet(tiles, picture, color=color, size=size)
