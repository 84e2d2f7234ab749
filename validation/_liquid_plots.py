"""Pictures of the validation cases of liquids."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from ._plot_parts import COLORS, Results, curves_of, size_of
from ._report import rows_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_dam_break(figure: Figure, results: Results) -> bool:
    """Draw front and height over time, with what was measured."""
    columns = sorted(curves_of(results), key=size_of)
    if not columns:
        return False
    panels = figure.subplots(1, 2)
    for panel, series, x, y, labels in (
        (panels[0], "front_n2_2", "T", "Z", ("T = t √(2 g / a) [1]", "front, Z = x / a [1]")),
        (panels[1], "height_n2_2", "tau", "H", ("τ = t √(g / a) [1]", "height, H = h / 2a [1]")),
    ):
        rows = [row for row in rows_of("martin_moyce.csv") if row["series"] == series]
        times, values = ([float(row[key]) for row in rows] for key in ("T", "value"))
        for column, color in zip(columns, cycle(COLORS)):
            panel.plot(column[x], column[y], "-", color=color, label=f"a = {column['n']} voxels")
        panel.plot(times, values, "ko", label="Martin & Moyce")
        panel.set(xlabel=labels[0], ylabel=labels[1], xlim=(0.0, 1.05 * times[-1]))
        panel.set_ylim(0.0, 1.1 * max(values))
        panel.legend()
    figure.suptitle("Column of water that collapses")
    return True


def draw_sloshing(figure: Figure, results: Results) -> bool:
    """Draw the amplitude of the finest wave over time, for each transfer."""
    waves = curves_of(results)
    if not waves:
        return False
    finest = max(size_of(wave) for wave in waves)
    panel = figure.subplots()
    shown = [wave for wave in waves if size_of(wave) == finest]
    for wave, color in zip(shown, cycle(COLORS)):
        label = f"{wave['transfer']}, n = {finest}"
        panel.plot(wave["times"], 1e3 * wave["amplitudes"], ".-", color=color, label=label)
    times, first = shown[0]["times"], 1e3 * shown[0]["amplitudes"][0]
    panel.plot(times, first * np.cos(shown[0]["omega"] * times), "k:", label="theory")
    panel.set(title="First standing wave in a tank", xlabel="time [s]", ylabel="amplitude [mm]")
    panel.legend(loc="upper right", ncols=2)
    return True


def draw_elliptical_drop(figure: Figure, results: Results) -> bool:
    """Draw the particles of the coarsest drop in the ellipse that they should fill."""
    drops = curves_of(results)
    if not drops:
        return False
    drop = min(drops, key=size_of)
    panel = figure.subplots()
    x, y = drop["places"][:, 0], drop["places"][:, 1]
    panel.plot(y, x, ".", color=COLORS[0], markersize=2.0, label=f"R = {drop['n']} voxels")
    angle, b = np.linspace(0.0, 2.0 * np.pi, 200), drop["b"]
    panel.plot(b * np.cos(angle), np.sin(angle) / b, "k-", label="exact")
    panel.set(title="Drop that was round, at A₀ t = 1", xlabel="y [m]", ylabel="x [m]")
    panel.set_aspect("equal")
    panel.legend(loc="upper right")
    return True


def draw_drop_oscillation_flip(figure: Figure, results: Results) -> bool:
    """Draw the stretch of drops over time, with the undamped oscillation of theory."""
    drops = curves_of(results)
    if not drops:
        return False
    dimensions = sorted({drop["dimension"] for drop in drops}, reverse=True)
    panels = figure.subplots(1, len(dimensions), squeeze=False)[0]
    for panel, dimension in zip(panels, dimensions):
        shown = sorted((d for d in drops if d["dimension"] == dimension), key=size_of)
        for drop, color in zip(shown, cycle(COLORS)):
            label = f"R = {drop['n']} voxels"
            panel.plot(drop["times"], 100.0 * drop["shapes"], ".-", color=color, label=label)
        times, first = shown[0]["times"], 100.0 * shown[0]["shapes"][0]
        panel.plot(times, first * np.cos(2.0 * np.pi * times), "k:", label="theory")
        title = {3: "ball", 2: "cylinder"}[dimension]
        panel.set(title=title, xlabel="time [periods]", ylabel="stretch [%]")
        panel.legend(loc="upper right")
    figure.suptitle("Drops of water that oscillate")
    return True
