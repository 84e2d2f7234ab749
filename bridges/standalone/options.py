"""Options that several sub-commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


def machine_options(function: Function) -> Function:
    """Add --json and --debug; --debug is read by `command_line.run_command` from the arguments."""
    add_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
    add_debug = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    )
    return add_json(add_debug(function))


def scene_options(function: Function) -> Function:
    """Add what says which scene is meant: inputs, changed parameters, extensions."""
    for option in (
        click.option(
            "--extensions",
            multiple=True,
            metavar="FOLDER",
            help="Import the Behaviors of a folder of Python files; may be repeated.",
        ),
        click.option(
            "--set",
            "changes",
            multiple=True,
            metavar='"Group/Behavior.parameter=value"',
            help='Change a parameter, a setting ("substeps=4") or an exposed name of a graph '
            '("wind=3 0 0"); may be repeated.',
        ),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="NAME=PATH",
            help="Give an input stream: a file (.ply .obj .stl .vdb .npy .npz .loki .geo .bgeo "
            ".bgeo.sc), a frame cache (FOLDER or FOLDER#Object) or a sequence (wind.####.vdb); may "
            "be repeated.",
        ),
    ):
        function = option(function)
    return function


def file_argument(function: Function) -> Function:
    """Add the Solver Setup or Loki Graph file."""
    return click.argument("file", type=click.Path(path_type=Path))(function)


def print_json(document: Any) -> None:
    """Print a document for machines, on one line per object."""
    click.echo(json.dumps(document, allow_nan=False))
