"""`wtloki check`: say what would go wrong, without running."""

from __future__ import annotations

from pathlib import Path

import click

from loki_vfx.bridges.standalone.options import (
    file_argument,
    machine_options,
    print_json,
    scene_options,
)

EXIT_ERRORS = 4


@click.command("check")
@file_argument
@scene_options
@click.option(
    "--frames",
    type=click.IntRange(1, 10_000_000),
    default=240,
    show_default=True,
    help="Estimate the memory of a run of this many frames.",
)
@machine_options
def command(
    file: Path,
    *,
    inputs: tuple[str, ...],
    changes: tuple[str, ...],
    extensions: tuple[str, ...],
    frames: int,
    as_json: bool,
) -> int:
    """Report everything that would go wrong with a Solver Setup or Loki Graph and its inputs.

    Empty streams stand in for missing inputs of a graph, with a warning. The exit code is 4 for
    errors, and 0 for warnings alone.
    """
    from loki_core.errors import LokiError
    from loki_core.wording import counted
    from loki_vfx.bridges.standalone.checking import Finding, check_inputs, check_scene
    from loki_vfx.bridges.standalone.failures import UsageError
    from loki_vfx.bridges.standalone.input_files import read_input
    from loki_vfx.bridges.standalone.scene import load_all_extensions, read_document, scene_of_file

    findings: list[Finding] = []
    document = None
    try:
        load_all_extensions(extensions)
        document = read_document(file, changes)
    except UsageError:
        raise
    except LokiError as error:
        findings.append(Finding("error", str(file), str(error)))
    read = {}
    for text in inputs:  # each for itself: one bad file must not hide the next
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise UsageError(f'--input "{text}" is not of the form NAME=PATH')
        try:
            read[name] = read_input(path)
        except LokiError as error:
            findings.append(Finding("error", f'input "{name}"', str(error)))
    if document is not None:
        failed = {one.place for one in findings}
        try:
            scene = scene_of_file(file, document, read, stand_in=True)
            findings += [one for one in check_inputs(document, read) if one.place not in failed]
            said = {one.place for one in findings}
            findings += [one for one in check_scene(scene, frames=frames) if one.place not in said]
        except LokiError as error:
            findings.append(Finding("error", str(file), str(error)))
    errors = sum(one.severity == "error" for one in findings)
    warnings = len(findings) - errors
    if as_json:
        print_json(
            {
                "file": str(file),
                "errors": errors,
                "warnings": warnings,
                "findings": [one._asdict() for one in findings],
            }
        )
    else:
        for one in findings:
            click.echo(f"{one.severity}: {one.message}")
        click.echo(f"{file}: {counted(errors, 'error')}, {counted(warnings, 'warning')}")
    return EXIT_ERRORS if errors else 0
