"""`wtloki bench`: measure speed and memory, each figure against the machine or a peer.

A benchmark is a module of `loki_vfx.benchmarks` with `run(quick) -> figures`; a figure is a map of
value, unit, goal, better ("higher" or "lower") and how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json

PACKAGE = "loki_vfx.benchmarks"


@click.command("bench")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Use smaller sizes; the figures say so.")
@click.option("--list", "only_list", is_flag=True, help="List the benchmarks.")
@machine_options
def command(names: tuple[str, ...], *, quick: bool, only_list: bool, as_json: bool) -> int:
    """Run benchmarks, all of them by default, and compare their figures with the goals.

    The exit code is 1 when a goal is missed.
    """
    from loki_vfx.bridges.standalone.discovery import chosen_modules, named_modules
    from loki_vfx.bridges.standalone.versions import machine_description

    if only_list:
        known = list(named_modules(PACKAGE))
        if as_json:
            print_json({"benchmarks": known})
        else:
            click.echo("\n".join(known))
        return 0
    missed = 0
    for name, module in chosen_modules(PACKAGE, names, "benchmark").items():
        figures = {key: judged(figure) for key, figure in module.run(quick).items()}
        missed += sum(figure["met"] is False for figure in figures.values())
        machine = machine_description()
        if as_json:
            print_json({"bench": name, "machine": machine, "figures": figures})
        else:
            _print_table(name, machine, figures)
    return 1 if missed else 0


def judged(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a figure with `met`: whether the goal is reached, None where nothing was measured."""
    value, goal, better = (figure.get(key) for key in ("value", "goal", "better"))
    met = None
    if value is not None and goal is not None and better is not None:
        met = bool(value >= goal if better == "higher" else value <= goal)
    return {
        "value": value,
        "unit": figure.get("unit", ""),
        "goal": goal,
        "better": better,
        "met": met,
        "how": figure.get("how", ""),
    }


def _print_table(name: str, machine: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    click.echo(f"{name}: {machine['processor']}, {machine['cores']} cores")
    words = {True: "met", False: "MISSED", None: ""}
    for key, figure in figures.items():
        value = "not measured" if figure["value"] is None else f"{figure['value']:.4g}"
        goal = ""
        if figure["goal"] is not None:
            sign = ">=" if figure["better"] == "higher" else "<="
            goal = f"{sign} {figure['goal']:g}"
        line = f"  {key:<36}{value:>12} {figure['unit']:<8}{goal:<12}{words[figure['met']]:<8}"
        click.echo(f"{line}{figure['how']}".rstrip())
