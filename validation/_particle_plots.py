"""Pictures of the validation cases of particle fluids."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from ._plot_parts import BLUE, COLORS, ORANGE, Results, curves_of, size_of
from ._report import rows_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    "pbf": "position-based",
    "sph": "smoothed particles",
    "pbf adaptive": "position-based, adaptive",
}


def draw_sph_density(figure: Figure, results: Results) -> bool:
    """Draw mean and largest compression over time, of the finest dam and column."""
    runs = curves_of(results)
    scenes = [scene for scene in ("dam", "column") if any(run["scene"] == scene for run in runs)]
    if not scenes:
        return False
    panels = figure.subplots(1, len(scenes), squeeze=False, sharey=True)[0]
    for panel, scene in zip(panels, scenes):
        finest = max(size_of(run) for run in runs if run["scene"] == scene)
        shown = [run for run in runs if run["scene"] == scene and size_of(run) == finest]
        for run, color in zip(shown, cycle(COLORS)):
            mean, largest = np.maximum(100.0 * run["told"].T, 1e-3)
            name = NAMES[run["fluid"]]
            panel.semilogy(run["times"], largest, "-", color=color, label=f"{name}, largest")
            panel.semilogy(run["times"], mean, "--", color=color, label=f"{name}, mean")
        for limit, style in ((5.0, "-"), (1.0, "--")):
            panel.axhline(limit, color="black", lw=0.6, ls=style)
        count = f"{shown[0]['count']:,} particles"
        title = f"dam break, {count}" if scene == "dam" else f"column, {finest} layers"
        panel.set(title=title, xlabel="time [s]", ylim=(0.01, 20.0))
    panels[0].set_ylabel("compression [%], and what is allowed")
    panels[-1].legend(loc="upper right")
    figure.suptitle("Density of fluid particles")
    return True


def draw_sph_hydrostatic(figure: Figure, results: Results) -> bool:
    """Draw the pressure of the finest columns over height, and the largest speed over time."""
    columns = curves_of(results)
    if not columns:
        return False
    finest = max(size_of(column) for column in columns)
    shown = [column for column in columns if size_of(column) == finest]
    left, right = figure.subplots(1, 2)
    for column, color in zip(shown, (BLUE, ORANGE)):
        name = f"{NAMES[column['fluid']]}, {finest} layers"
        left.plot(1e-3 * column["pressure"], column["height"], ",", color=color)
        left.plot([], [], "o", color=color, label=name)
        right.semilogy(column["times"], column["speeds"], "-", color=color, label=name)
    depth = float(shown[0]["depth"])
    left.plot([9.81 * depth, 0.0], [0.0, depth], "k-", label="ρ g (H − y)")
    left.set(title="settled", xlabel="pressure [kPa]", ylabel="height [m]")
    left.legend(loc="upper right")
    right.axhline(1e-2, color="black", lw=0.6)
    right.set(title="largest speed / √(g H), and what is allowed", xlabel="time [s]")
    figure.suptitle("Column of fluid particles at rest")
    return True


def draw_sph_dam_break(figure: Figure, results: Results) -> bool:
    """Draw front and height of the finest columns over time, with what was measured."""
    columns = curves_of(results)
    if not columns:
        return False
    finest = max(size_of(column) for column in columns)
    shown = [column for column in columns if size_of(column) == finest]
    panels = figure.subplots(1, 2)
    for panel, series, x, y, labels in (
        (panels[0], "front_n2_2", "T", "Z", ("T = t √(2 g / a) [1]", "front, Z = x / a [1]")),
        (panels[1], "height_n2_2", "tau", "H", ("τ = t √(g / a) [1]", "height, H = h / 2a [1]")),
    ):
        rows = [row for row in rows_of("martin_moyce.csv") if row["series"] == series]
        times, values = ([float(row[key]) for row in rows] for key in ("T", "value"))
        for column, color in zip(shown, cycle(COLORS)):
            panel.plot(column[x], column[y], "-", color=color, label=NAMES[column["fluid"]])
        panel.plot(times, values, "ko", label="Martin & Moyce")
        panel.set(xlabel=labels[0], ylabel=labels[1], xlim=(0.0, 1.05 * times[-1]))
        panel.set_ylim(0.0, 1.1 * max(values))
    panels[1].legend()
    figure.suptitle(f"Column of fluid particles that collapses, {finest} spacings high")
    return True
