"""`wtloki validate`: compare physics with measured and analytical results.

A case is a module of `loki_vfx.validation` with `run(...)` that returns result maps: case, metric,
value, reference, error, threshold_production, threshold_best and pass (true, false, or null for
what is only reported). A case that takes `plot` may leave a picture.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import click

from bridges.standalone.options import machine_options, print_json

PACKAGE = "loki_vfx.validation"
EXIT_FAILED, EXIT_ERROR = 1, 2


@click.command("validate")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--plot", is_flag=True, help="Let cases that can leave a picture of their result.")
@click.option("--list", "only_list", is_flag=True, help="List the cases.")
@machine_options
def command(names: tuple[str, ...], *, plot: bool, only_list: bool, as_json: bool) -> int:
    """Run validation cases, all of them by default.

    The exit code is 0 when all pass, 1 when one fails, 2 when one cannot run.
    """
    from bridges.standalone.discovery import chosen_modules, named_modules
    from bridges.standalone.failures import describe_failure

    if only_list:
        known = list(named_modules(PACKAGE))
        if as_json:
            print_json({"cases": known})
        else:
            click.echo("\n".join(known))
        return 0
    worst = 0
    results: list[dict[str, Any]] = []
    cases = chosen_modules(PACKAGE, names, "validation case")
    for name, module in cases.items():
        try:
            found = _run_case(module, plot=plot)
        except Exception as error:  # the other cases are still worth running
            message = describe_failure(error).message
            found = [{"case": name, "metric": "error", "value": message, "pass": False}]
            worst = EXIT_ERROR
        if any(one["pass"] is False for one in found):
            worst = max(worst, EXIT_FAILED)
        results += found
        if not as_json:
            for one in found:
                click.echo(_line(one))
    if as_json:
        print_json(results[0] if len(results) == 1 else results)
    return worst


def _run_case(module: ModuleType, *, plot: bool) -> list[dict[str, Any]]:
    takes_plot = "plot" in inspect.signature(module.run).parameters
    found = module.run(plot=plot) if takes_plot else module.run()
    return [found] if isinstance(found, dict) else list(found)


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
