"""Pictures of validation cases: one look, one picture a case, drawn from what the case returned.

Most are drawn from the results as they are printed, so saved JSON will do as well. Where that is
not enough a case leaves `curves` in a result, which `wtloki validate` does not print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import LokiError

from ._liquid_plots import (
    draw_dam_break,
    draw_drop_oscillation_flip,
    draw_elliptical_drop,
    draw_sloshing,
)
from ._particle_plots import (
    draw_sph_dam_break,
    draw_sph_density,
    draw_sph_hydrostatic,
)
from ._plot_parts import (
    BLUE,
    COLORS,
    GREEN,
    GREY,
    ORANGE,
    Results,
    by_size,
    curves_of,
    legend,
    legend_below,
    mark_across,
    matching,
    size_of,
    sizes_on_axis,
)
from ._report import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE, DOTS_PER_INCH = (6.4, 4.0), 120
LOOK = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "figure.titlesize": 9.5,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "lines.linewidth": 0.9,
    "lines.markersize": 3.5,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.35,
}


def prepare(folder: Path) -> None:
    """Make the folder and look for matplotlib, before a long case is run for its picture.

    Raises:
        LokiError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise LokiError(
            "plots need matplotlib, which is not installed: pip install matplotlib"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)


def draw(results: Results, folder: Path) -> Path | None:
    """Write FOLDER/CASE.png of one case's results; None where there is nothing to draw.

    Raises:
        LokiError: matplotlib is not installed.
    """
    prepare(folder)
    import matplotlib.style
    from matplotlib.figure import Figure

    case = str(results[0]["case"]) if results else ""
    if case not in PLOTS:
        return None
    with matplotlib.style.context(["default", LOOK]):
        figure = Figure(figsize=SIZE, dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
        if not PLOTS[case](figure, results):
            return None
        picture = folder / f"{case}.png"
        figure.savefig(picture, dpi=DOTS_PER_INCH, metadata={"Software": None})
    return picture


def draw_cavity(
    velocities: Mapping[tuple[int, int], NDArray[np.float64]], folder: Path
) -> Path | None:
    """Write cavity.png of velocities [3, n, n] that are there already, by (Reynolds number, n)."""
    from .cavity import centre_lines

    results = [
        {"case": "cavity", "curves": {"reynolds": number, "n": n, **centre_lines(velocity)}}
        for (number, n), velocity in sorted(velocities.items())
    ]
    return draw(results, folder)


# -- one function a case; each says whether it found something to draw -------------------------


def _cavity(figure: Figure, results: Results) -> bool:
    lines = curves_of(results)
    numbers = sorted({line["reynolds"] for line in lines})
    if not numbers:
        return False
    sizes = sorted({line["n"] for line in lines}, reverse=True)
    styles = dict(zip(sizes, cycle(("-", "--", ":"))))
    panels = figure.subplots(1, len(numbers), sharey=True, squeeze=False)[0]
    for panel, number in zip(panels, numbers):
        for name, color, words in (("u", BLUE, "u(½, y)"), ("v", ORANGE, "v(x, ½)")):
            _tables(panel, number, name, color)
            for line in sorted((one for one in lines if one["reynolds"] == number), key=size_of):
                panel.plot(
                    line["places"], line[name], styles[line["n"]],
                    color=color, label=f"{words}, n = {line['n']}",
                )  # fmt: skip
        panel.set(title=f"Re {number}", xlabel="y, x [m]")
    panels[0].set_ylabel("velocity [m/s]")
    figure.suptitle("Lid-driven cavity: velocity on the two centre lines")
    legend_below(figure, panels, columns=4)
    return True


def _tables(panel: Axes, number: int, name: str, color: str) -> None:
    rows = [
        row
        for row in rows_of("ghia1982.csv")
        if float(row["Re"]) == number and row["profile"] == name
    ]
    for use, face, words in (("1", "white", "Ghia et al."), ("0", "none", "Ghia et al., not used")):
        kept = [row for row in rows if row["use"] == use]
        if kept:
            panel.plot(
                [float(row["coord"]) for row in kept],
                [float(row["ghia1982"]) for row in kept],
                "o" if use == "1" else "x",
                color=color if use == "1" else GREY,
                markerfacecolor=face,
                markeredgewidth=0.6,
                label=words,
            )
    panel.plot(
        [float(row["coord"]) for row in rows],
        [float(row["ref_richardson"]) for row in rows],
        "k+",
        markersize=4.5,
        markeredgewidth=0.6,
        label="reference",
    )


def _taylor_green(figure: Figure, results: Results) -> bool:
    errors: dict[str, dict[int, float]] = {}
    for match, one in matching(results, r"L2 error of velocity, n = (\d+), (.+)"):
        errors.setdefault(match[2], {})[int(match[1])] = one["value"]
    if not errors:
        return False
    panel = figure.subplots()
    for (words, found), color in zip(errors.items(), cycle(COLORS)):
        sizes = np.array(sorted(found))
        panel.loglog(sizes, [found[n] for n in sizes], "o-", color=color, label=words)
        for order, style in ((1, ":"), (2, "--")):
            guide = found[sizes[0]] * (sizes[0] / sizes) ** order
            panel.loglog(sizes, guide, style, color=GREY, label=f"slope {order}")
    sizes_on_axis(panel, {n for found in errors.values() for n in found})
    panel.set(
        title="Taylor–Green vortices with viscosity: error after 5 s",
        xlabel="voxels along the box, n",
        ylabel="L2 error of velocity [m/s]",
    )
    legend(panel)
    return True


def _energy_retention(figure: Figure, results: Results) -> bool:
    kept: dict[tuple[int, float], dict[str, dict[str, Any]]] = {}
    for match, one in matching(results, r"kinetic energy kept, n = (\d+), CFL (\S+), (.+)"):
        kept.setdefault((int(match[1]), float(match[2])), {})[match[3]] = one
    if not kept:
        return False
    panel = figure.subplots()
    groups = sorted(kept)
    for offset, words, color in ((-0.2, "default", BLUE), (0.2, "with reflection", ORANGE)):
        there = [(at + offset, kept[g][words]) for at, g in enumerate(groups) if words in kept[g]]
        places = [place for place, _ in there]
        bars = panel.bar(places, [one["value"] for _, one in there], 0.36, color=color, label=words)
        panel.bar_label(bars, fmt="%.3f", padding=4, fontsize=7)
        mark_across(
            panel, places, [one["reference"] for _, one in there], 0.3, "calibration, MacCormack"
        )
    panel.set_xticks(range(len(groups)), [f"n = {n}\nCFL {courant:g}" for n, courant in groups])
    panel.set(
        title="Steady vortices without viscosity: energy kept after 5 s",
        ylabel="kinetic energy over that at the start [1]",
        ylim=(0.0, 1.3),
    )
    panel.grid(axis="x", visible=False)
    legend(panel, loc="upper center", ncols=3)
    return True


def _zalesak(figure: Figure, results: Results) -> bool:
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for match, one in matching(results, r"L1, (\w+), limiter (\w+), n = (\d+)"):
        name = match[1].replace("_", "-\n") + "\n" + match[2]
        found.setdefault(int(match[3]), {})[name] = one
    if not found:
        return False
    fields = curves_of(results)
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.15, 1.0)) if fields else (None, figure)
    if upper is not None:
        _disc(upper, max(fields, key=size_of))
    panel = lower.subplots()
    names = list(dict.fromkeys(name for schemes in found.values() for name in schemes))
    width = 0.8 / len(found)
    for k, (n, color) in enumerate(zip(sorted(found), cycle(COLORS))):
        places = np.arange(len(names)) + (k - 0.5 * (len(found) - 1)) * width
        there = [(place, found[n][name]) for place, name in zip(places, names) if name in found[n]]
        at, shown = [place for place, _ in there], [one for _, one in there]
        panel.bar(at, [one["value"] for one in shown], 0.9 * width, color=color, label=f"n = {n}")
        mark_across(panel, at, [one["reference"] for one in shown], 0.8 * width, "calibration")
    panel.set_xticks(range(len(names)), names, fontsize=7)
    panel.set(ylabel="L1 over content [1]", ylim=(0.0, 1.3 * panel.get_ylim()[1]))
    panel.grid(axis="x", visible=False)
    legend(panel, loc="upper right", ncols=3)
    figure.suptitle("Zalesak's disc after one turn in 628 steps; scheme and limiter below")
    return True


def _disc(figure: Any, fields: dict[str, Any]) -> None:
    panels = figure.subplots(1, 2)
    for panel, name in zip(panels, ("start", "final")):
        image = panel.imshow(
            fields[name].T, origin="lower", extent=(0.0, 1.0, 0.0, 1.0), cmap="Blues",
            vmin=0.0, vmax=1.0, interpolation="nearest",
        )  # fmt: skip
        panel.set(xlim=(0.32, 0.68), ylim=(0.57, 0.93), xlabel="x [m]", ylabel="y [m]")
        panel.grid(visible=False)
        panel.set_title("start" if name == "start" else f"default scheme, n = {fields['n']}")
    figure.colorbar(image, ax=panels, label="density [1]")


def _rayleigh_taylor(figure: Figure, results: Results) -> bool:
    waves = sorted(curves_of(results), key=size_of)
    if not waves:
        return False
    panel = figure.subplots()
    for wave, color in zip(waves, cycle(COLORS)):
        panel.semilogy(
            wave["times"], wave["amplitudes"], "o-",
            color=color, markersize=2.5, label=f"n = {wave['n']}",
        )  # fmt: skip
    finest = waves[-1]
    time, first, rate = finest["times"], finest["amplitudes"][0], finest["rate"]
    panel.semilogy(time, first * np.cosh(rate * time), "k-", label="theory, a₀ cosh σt")
    panel.semilogy(time, 0.5 * first * np.exp(rate * time), "k--", label="slope of theory, σ")
    panel.set(
        title=f"Rayleigh–Taylor wave: growth against σ = √(At g k) = {rate:.3f} 1/s",
        xlabel="time [s]",
        ylabel="amplitude [m]",
    )
    panel.legend()
    return True


def _amg_poisson(figure: Figure, results: Results) -> bool:
    iterations = by_size(results, "iterations")
    residuals = by_size(results, "true residual")
    sizes = [n for n in sorted(iterations) if n in residuals]
    if not sizes:
        return False
    counts = np.array([iterations[n]["value"] for n in sizes])
    decades = -np.log10([residuals[n]["value"] for n in sizes])
    rate, count = figure.subplots(1, 2)
    rate.plot(sizes, decades / counts, "o-", color=BLUE, label="mean of the solve")
    rate.set(title="Reduction of the residual", ylabel="decades an iteration [1]")
    count.plot(sizes, counts, "o-", color=BLUE, label="computed")
    for key, words, color in (
        ("threshold_production", "allowed", "black"),
        ("threshold_best", "aim", GREEN),
    ):
        limits = [iterations[n][key] for n in sizes]
        count.plot(sizes, limits, "--", color=color, label=words)
    count.set(title="Iterations to a residual of 1e-8", ylabel="iterations [1]")
    for panel in (rate, count):
        panel.set_xscale("log")
        sizes_on_axis(panel, set(sizes))
        panel.set(xlabel="cells along the box, n", ylim=(0.0, 1.2 * panel.get_ylim()[1]))
        panel.legend(loc="lower left")
    figure.suptitle("Smoothed-aggregation multigrid on the Poisson problem, n³ cells")
    return True


def _lcp_dam_break(figure: Figure, results: Results) -> bool:
    residuals, times = by_size(results, "complementarity"), by_size(results, "time over that .+")
    if not residuals or not times:
        return False
    panels = figure.subplots(1, 2)
    for panel, found, title, label in (
        (panels[0], times, "Time", "time over that of projected Gauss–Seidel [1]"),
        (panels[1], residuals, "Complementarity", "largest |min(p, A p + b)| / largest |b| [1]"),
    ):
        sizes = sorted(found)
        places, values = range(len(sizes)), [found[n]["value"] for n in sizes]
        panel.semilogy(places, values, "o", color=BLUE, markersize=5.0, label="computed")
        for place, value in zip(places, values):
            panel.annotate(
                f"{value:.2g}", (place, value), (7, 0), textcoords="offset points", va="center"
            )
        mark_across(
            panel, places, [found[n]["threshold_production"] for n in sizes], 0.4, "allowed"
        )
        panel.set_xticks(places, [f"{n}³" for n in sizes])
        panel.set(title=title, xlabel="cells", ylabel=label)
        panel.margins(x=0.4, y=0.2)
    legend_below(figure, panels, columns=2)
    figure.suptitle("Predictor-corrector LCP: pressure of a dam break")
    return True


def _rod_cantilever(figure: Figure, results: Results) -> bool:
    hung = sorted(curves_of(results), key=size_of)
    if not hung:
        return False
    panel = figure.subplots()
    rows = rows_of("cantilever_self_weight.csv")
    panel.loglog(
        [float(row["Gamma"]) for row in rows],
        [float(row["H_over_W"]) for row in rows],
        "k-",
        label="elastica",
    )
    for one, color in zip(hung, cycle(COLORS)):
        panel.loglog(
            one["gamma"], one["ratio"], "o" if color == BLUE else "x",
            color=color, label=f"N = {one['n']}",
        )  # fmt: skip
    panel.set(
        title="Hair clamped horizontally, under its own weight",
        xlabel="Γ = w L³ / (E I) [1]",
        ylabel="height over width, H / W [1]",
    )
    panel.legend()
    return True


def _rod_elastica(figure: Figure, results: Results) -> bool:
    loaded = sorted(curves_of(results), key=size_of)
    if not loaded:
        return False
    panel = figure.subplots()
    rows = rows_of("elastica_tip_load.csv")
    alpha = [float(row["alpha"]) for row in rows]
    for name, words, color in (("w", "deflection w / L", BLUE), ("x", "tip at x / L", ORANGE)):
        exact = [float(row[f"{name}_over_L"]) for row in rows]
        panel.semilogx(alpha, exact, "-", color=color, label=f"{words}, Bisshopp & Drucker")
        for one, mark in zip(loaded, cycle("ox")):
            panel.semilogx(
                one["alpha"], one[name], mark, color=color, label=f"{words}, N = {one['n']}"
            )
    panel.set(
        title="Cantilever with a dead load at its tip",
        xlabel="α = P L² / (E I) [1]",
        ylabel="of the length [1]",
    )
    panel.legend()
    return True


def _rod_helical_buckling(figure: Figure, results: Results) -> bool:
    coils = sorted(curves_of(results), key=size_of)
    if not coils:
        return False
    panel = figure.subplots()
    rows = rows_of("helical_buckling.csv")
    panel.plot(
        [float(row["s_over_L"]) for row in rows],
        [float(row["envelope"]) for row in rows],
        "k-",
        label="theory",
    )
    for coil, color in zip(coils, cycle(COLORS)):
        panel.plot(coil["s"], coil["envelope"], ".-", color=color, lw=0.5, label=f"N = {coil['n']}")
    panel.set(
        title="Twisted rod that coils up: envelope of the angle to the axis",
        xlabel="place along the rod, s / L [1]",
        ylabel="(cos φ − cos φ₀) / (1 − cos φ₀) [1]",
        xlim=(-0.25, 0.25),
    )
    panel.legend()
    return True


def _dahl(figure: Figure, results: Results) -> bool:
    loops = curves_of(results)
    if not loops:
        return False
    panel = figure.subplots()
    steps = min(size_of(loop) for loop in loops)
    amplitudes = sorted({loop["amplitude"] for loop in loops})
    colors = dict(zip(amplitudes, cycle(COLORS)))
    for loop in (one for one in loops if size_of(one) == steps):
        stretch, color = 1e3 * loop["stretch"], colors[loop["amplitude"]]
        panel.plot(
            stretch, loop["force"], ".", color=color, markersize=2.5,
            label=f"X = {1e3 * loop['amplitude']:g} mm, {steps} steps a quarter",
        )  # fmt: skip
    limit, slope = loops[0]["limit"], loops[0]["slope"]
    x = np.linspace(0.0, amplitudes[-1], 100)
    panel.plot(
        1e3 * x, limit * (1.0 - np.exp(-slope * x / limit)), "k-", label="first loading, theory"
    )
    for amplitude in amplitudes:  # the way back, from the peak of the steady loop
        x = np.linspace(-amplitude, amplitude, 200)
        drop = (1.0 + np.tanh(slope * amplitude / limit)) * np.exp(slope * (x - amplitude) / limit)
        for sign in (1.0, -1.0):
            panel.plot(
                1e3 * sign * x, sign * limit * (drop - 1.0), "k--", label="steady loop, theory"
            )
    panel.set(title="Dahl friction, driven to and fro", xlabel="stretch [mm]", ylabel="force [N]")
    legend(panel)
    return True


PLOTS: dict[str, Callable[[Figure, Results], bool]] = {
    "amg_poisson": _amg_poisson,
    "cavity": _cavity,
    "dahl": _dahl,
    "dam_break": draw_dam_break,
    "drop_oscillation_flip": draw_drop_oscillation_flip,
    "elliptical_drop": draw_elliptical_drop,
    "energy_retention": _energy_retention,
    "lcp_dam_break": _lcp_dam_break,
    "rayleigh_taylor": _rayleigh_taylor,
    "rod_cantilever": _rod_cantilever,
    "rod_elastica": _rod_elastica,
    "rod_helical_buckling": _rod_helical_buckling,
    "sloshing": draw_sloshing,
    "sph_dam_break": draw_sph_dam_break,
    "sph_density": draw_sph_density,
    "sph_hydrostatic": draw_sph_hydrostatic,
    "taylor_green": _taylor_green,
    "zalesak": _zalesak,
}
