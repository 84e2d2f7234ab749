"""`wtloki validate`: compare physics with measured and analytical results.

A case is a module of `loki_vfx.validation` with `run(...)` that returns result maps: case, metric,
value, reference, error, threshold_production, threshold_best and pass (true, false, or null for
what is only reported). What a case leaves in `curves` is for its picture and is not printed.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json

PACKAGE = "loki_vfx.validation"
EXIT_FAILED, EXIT_ERROR = 1, 2


@click.command("validate")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write a plot of each case, FOLDER/NAME.png.",
)
@click.option("--list", "only_list", is_flag=True, help="List the cases.")
@machine_options
def command(names: tuple[str, ...], *, plot: Path | None, only_list: bool, as_json: bool) -> int:
    """Run validation cases, all of them by default.

    The exit code is 0 when all pass, 1 when one fails, 2 when one cannot run.
    """
    from loki_vfx.bridges.standalone.discovery import chosen_modules, named_modules
    from loki_vfx.bridges.standalone.failures import describe_failure

    if only_list:
        known = list(named_modules(PACKAGE))
        if as_json:
            print_json({"cases": known})
        else:
            click.echo("\n".join(known))
        return 0
    if plot is not None:
        _plots().prepare(plot)
    worst = 0
    results: list[dict[str, Any]] = []
    cases = chosen_modules(PACKAGE, names, "validation case")
    for name, module in cases.items():
        try:
            found = _run_case(module)
        except Exception as error:  # the other cases are still worth running
            found = [_failed(name, "error", describe_failure(error).message)]
            worst = EXIT_ERROR
        picture = None
        if plot is not None:
            try:
                picture = _plots().draw(found, plot)
            except Exception as error:  # a result may have taken hours; it is told all the same
                found.append(_failed(name, "picture", describe_failure(error).message))
                worst = EXIT_ERROR
        for one in found:
            one.pop("curves", None)
        if any(one["pass"] is False for one in found):
            worst = max(worst, EXIT_FAILED)
        results += found
        if not as_json:
            for one in found:
                click.echo(_line(one))
            if picture is not None:
                click.echo(f"      {name}: {picture}")
    if as_json:
        print_json(results[0] if len(results) == 1 else results)
    return worst


def _run_case(module: ModuleType) -> list[dict[str, Any]]:
    found = module.run()
    return [found] if isinstance(found, dict) else list(found)


def _failed(name: str, metric: str, message: str) -> dict[str, Any]:
    return {"case": name, "metric": metric, "value": message, "pass": False}


def _plots() -> ModuleType:
    return importlib.import_module(f"{PACKAGE}._plots")


def _line(one: dict[str, Any]) -> str:
    word = {True: "pass", False: "FAIL", None: "----"}[one["pass"]]
    details = [
        f"{key.replace('threshold_', '')} {_number(one[key])}"
        for key in ("value", "reference", "error", "threshold_production", "threshold_best")
        if one.get(key) is not None
    ]
    return f"{word}  {one['case']}: {one['metric']}  {', '.join(details)}"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)
