"""`wtloki warm`: compile kernels before they are needed."""

from __future__ import annotations

from pathlib import Path

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json


@click.command("warm")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Use this number of processes; all cores by default.",
)
@click.option("--record", "is_recording", is_flag=True, help="Write the Kernel Book anew.")
@machine_options
def command(file: Path | None, *, processes: int | None, is_recording: bool, as_json: bool) -> None:
    """Compile the kernels of a scene FILE, or those that Behaviors need in the examples.

    A machine does it once; the next run begins at once. `--record` is for developers: it runs the
    examples, and small scenes of what no example has, and notes the kernels that they call.
    """
    from loki_core.behavior import registry
    from loki_core.kernels.compile_ahead import compile_ahead
    from loki_core.kernels.kernel_book import entries_for, missing, read_book, write_book
    from loki_core.operating_system import core_count
    from loki_core.solver_setup import SolverSetup
    from loki_core.wording import counted, noun
    from loki_vfx.bridges.standalone.gallery import example_names
    from loki_vfx.bridges.standalone.graph_scene import solver_node
    from loki_vfx.bridges.standalone.kernel_recording import record
    from loki_vfx.bridges.standalone.scene import read_document

    if is_recording:
        write_book(record(example_names(), lambda name: click.echo(name, err=True)))
        read_book.cache_clear()
    if file is None:
        modules = {one.__module__ for one in registry().values()}
    else:
        document = read_document(file)
        setup = document if isinstance(document, SolverSetup) else solver_node(document)[1]
        modules = {type(one).__module__ for _, one in setup.behaviors()}
    wanted = entries_for(modules)
    lacking = missing(wanted)
    with click.progressbar(length=len(lacking), label="compiling kernels", hidden=as_json) as bar:
        compile_ahead(lacking, processes or core_count(), lambda done, of: bar.update(1))
    if as_json:
        print_json({"kernels": len(wanted), "compiled": len(lacking)})
    else:
        ready = f"{counted(len(wanted), 'kernel')} {noun(len(wanted), 'is')} ready"
        click.echo(f"{ready}, {len(lacking):,} of them new")
