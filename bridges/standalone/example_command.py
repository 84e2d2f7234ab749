"""`wtloki example`: run a scene of the gallery."""

from __future__ import annotations

import shlex
from typing import Any

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json
from loki_vfx.bridges.standalone.run_command import perform, run_options


@click.command("example")
@click.argument("name", required=False)
@click.option("--list", "only_list", is_flag=True, help="List the scenes and their options.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an option of the scene: --list shows them; may be repeated.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar='"Group/Behavior.parameter=value"',
    help="Change a parameter of the scene's Solver Setup; may be repeated.",
)
@run_options
@machine_options
def command(
    name: str | None,
    *,
    only_list: bool,
    options: tuple[str, ...],
    ranks: int,
    as_json: bool,
    output: str | None,
    **values: Any,
) -> int:
    """Run a scene of the gallery; without a NAME, list them.

    Then look at it: wtloki preview FOLDER
    """
    from loki_vfx.bridges.standalone.gallery import find_example, read_options
    from loki_vfx.bridges.standalone.run_request import RunRequest

    if name is None or only_list:
        _list(as_json=as_json)
        return 0
    given = read_options(find_example(name), options)
    folder = output or f"{name}_cache"
    request = RunRequest(output=folder, example=name, example_options=given, **values)
    code = perform(request, ranks=ranks, as_json=as_json)
    if code == 0 and not as_json:
        click.echo(f"next: wtloki preview {shlex.quote(folder)}")
    return code


def _list(*, as_json: bool) -> None:
    from loki_vfx.bridges.standalone.gallery import example_names, example_options, find_example

    found: list[dict[str, Any]] = []
    for name in example_names():
        module = find_example(name)
        doc = " ".join((module.__doc__ or "").strip().partition("\n\n")[0].split())
        found.append({"name": name, "doc": doc, "options": example_options(module)})
    if as_json:
        print_json({"examples": found})
        return
    for one in found:
        click.echo(f"{one['name']}: {one['doc']}")
        for option, default in one["options"].items():
            click.echo(f"    --option {option}={default}")
