"""What the pictures of several validation cases share: colours, legends, finding results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = list[dict[str, Any]]

BLUE, ORANGE, GREEN, GREY = "#1f5fa8", "#d1651c", "#3a8a4d", "#808080"
COLORS = (BLUE, ORANGE, GREEN)


def curves_of(results: Results) -> list[dict[str, Any]]:
    return [one["curves"] for one in results if "curves" in one]


def size_of(curves: dict[str, Any]) -> int:
    return int(curves["n"])


def matching(results: Results, pattern: str) -> Iterator[tuple[re.Match[str], dict[str, Any]]]:
    for one in results:
        match = re.fullmatch(pattern, str(one.get("metric", "")))
        if match:
            yield match, one


def by_size(results: Results, words: str) -> dict[int, dict[str, Any]]:
    return {int(match[1]): one for match, one in matching(results, rf"{words}, (\d+)\^3")}


def sizes_on_axis(panel: Axes, sizes: set[int]) -> None:
    from matplotlib.ticker import NullLocator

    panel.set_xticks(sorted(sizes), [str(n) for n in sorted(sizes)])
    panel.xaxis.set_minor_locator(NullLocator())


def mark_across(
    panel: Axes, places: Iterable[float], values: list[float], width: float, label: str
) -> None:
    """Draw a black line across each place: what another code reached, or what is allowed."""
    at = np.array(list(places))
    panel.hlines(values, at - 0.5 * width, at + 0.5 * width, color="black", lw=1.2, label=label)


def labelled_of(panels: Iterable[Axes]) -> dict[str, Any]:
    """Return what the legend shows, each label once."""
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            found.setdefault(label, handle)
    return found


def legend(panel: Axes, **options: Any) -> None:
    labelled = labelled_of([panel])
    panel.legend(list(labelled.values()), list(labelled), **options)


def legend_below(figure: Figure, panels: Iterable[Axes], *, columns: int) -> None:
    labelled = labelled_of(panels)
    order = sorted(labelled, key=lambda label: ("n =" not in label, label))  # curves, then tables
    figure.legend(
        [labelled[label] for label in order], order, loc="outside lower center", ncols=columns
    )
