"""`wtloki reference`: write the reference pages of every declaration."""

from __future__ import annotations

from pathlib import Path

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json


@click.command("reference")
@click.option("--output", type=click.Path(path_type=Path), help="Write pages into this folder.")
@click.option(
    "--extensions",
    multiple=True,
    metavar="FOLDER",
    help="Add the Behaviors of a folder; may be repeated.",
)
@machine_options
def command(output: Path | None, *, extensions: tuple[str, ...], as_json: bool) -> None:
    """Print the reference of every declaration, or write it as Markdown pages into a folder."""
    from loki_vfx.bridges.standalone.reference import reference_pages
    from loki_vfx.bridges.standalone.scene import load_all_extensions

    load_all_extensions(extensions)
    pages = reference_pages()
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (output / name).write_text(text, encoding="utf-8")
    if as_json:
        print_json({"pages": list(pages), "output": None if output is None else str(output)})
    elif output is None:
        click.echo("\n".join(pages.values()))
    else:
        click.echo(f"wrote {len(pages)} pages into {output}")
