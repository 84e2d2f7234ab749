"""`wtloki submit`: run a scene as a batch job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loki_vfx.bridges.standalone.options import (
    file_argument,
    machine_options,
    print_json,
    scene_options,
)

if TYPE_CHECKING:
    from loki_vfx.bridges.standalone.run_request import RunRequest
    from loki_vfx.bridges.standalone.scene import Scene

Function = TypeVar("Function", bound=Callable[..., Any])
#: The job folder is ready, and there was nobody to hand it to.
EXIT_NOT_SUBMITTED = 1


def job_options(function: Function) -> Function:
    """Add what the batch system is asked for."""
    for option in (
        click.option(
            "--scheduler",
            type=click.Choice(["slurm"]),
            default="slurm",
            show_default=True,
            help="Submit to this batch system; --print serves all others.",
        ),
        click.option(
            "--print",
            "only_print",
            is_flag=True,
            help="Make the job folder, print the script, and submit nothing.",
        ),
        click.option(
            "--sbatch",
            "options",
            multiple=True,
            metavar='"--OPTION=VALUE"',
            help="Pass an option to sbatch, such as --constraint=skylake; may be repeated.",
        ),
        click.option(
            "--requeue", is_flag=True, help="Queue the job again if it stops before its end."
        ),
        click.option(
            "--stop-before",
            type=click.IntRange(10, 65_000),
            default=120,
            show_default=True,
            metavar="SECONDS",
            help="Stop with a checkpoint this long before the time limit.",
        ),
        click.option("--account", help="Charge the job to this account."),
        click.option("--partition", help="Run in this partition."),
        click.option(
            "--memory", metavar="SIZE", help="Ask for this much memory on each node, such as 64G."
        ),
        click.option(
            "--time", metavar="LIMIT", help="Limit the time of the job: minutes, h:m:s or d-h:m:s."
        ),
        click.option(
            "--threads",
            type=click.IntRange(1, 4096),
            default=1,
            show_default=True,
            help="Use this many cores and threads for each rank.",
        ),
        click.option(
            "--nodes",
            type=click.IntRange(1, 65_536),
            default=1,
            show_default=True,
            help="Share the ranks out among this many machines.",
        ),
        click.option(
            "--ranks",
            type=click.IntRange(1, 65_536),
            default=1,
            show_default=True,
            help="Run on this many processes, as an MPI job.",
        ),
        click.option(
            "--name", help="Give the run and the job this name; by default that of the file."
        ),
    ):
        function = option(function)
    return function


@click.command("submit")
@file_argument
@scene_options
@click.option(
    "--frames",
    metavar="N|A-B",
    help="Write N frames, the start state included, or frames A to B.",
)
@click.option("--output", type=click.Path(), help="Make the job folder here; NAME_job by default.")
@click.option("--resume", is_flag=True, help="Continue the run of the job folder.")
@click.option("--overwrite", is_flag=True, help="Replace the run of the job folder.")
@click.option(
    "--checkpoint-every",
    type=click.IntRange(0, 1_000_000),
    help="Write a checkpoint every so many frames; 0 writes none. By default as the setup says.",
)
@click.option(
    "--keep-checkpoints",
    type=click.IntRange(1, 10_000),
    default=3,
    show_default=True,
    help="Keep this many of the last checkpoints.",
)
@job_options
@machine_options
def command(
    file: Path,
    *,
    name: str | None,
    output: str | None,
    ranks: int,
    threads: int,
    scheduler: str,
    only_print: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Check a scene, make a job folder for it, and submit it to Slurm.

    The job starts a supervisor, which starts the ranks, and starts them again from the last
    checkpoint after a kill. Before its time limit the job stops the run with a checkpoint;
    --requeue, or submitting the job again, continues it. The job folder holds everything: the
    script job.sh, the log, and the frames in NAME/cache.
    """
    from loki_vfx.bridges.live.local_server import wtloki_command
    from loki_vfx.bridges.standalone.batch_script import (
        Resources,
        batch_script,
        has_slurm,
        submit_to_slurm,
    )
    from loki_vfx.bridges.standalone.job_folder import (
        absolute_request,
        note_submission,
        prepare_job,
        write_script,
    )
    from loki_vfx.bridges.standalone.run_request import RunRequest

    name = name or _name_of(file)
    asked = {
        one: values.pop(one)
        for one in ("nodes", "time", "memory", "partition", "account", "stop_before", "requeue")
    }
    options = tuple(one.strip() for one in values.pop("options"))
    resources = Resources(name=name, ranks=ranks, threads=threads, options=options, **asked)
    here = Path.cwd()
    root = here / (output or f"{name}_job")
    script = batch_script(resources, root=root, command=_absolute(wtloki_command(), here))
    request = absolute_request(
        RunRequest(output=str(root / name / "cache"), file=str(file), threads=threads, **values),
        here,
    )
    scene, frames = _checked_scene(request)
    folder = prepare_job(root, request, scene.setup, name=name, ranks=ranks, threads=threads)
    path = write_script(root, script)
    told: dict[str, Any] = {
        "event": "prepared",
        "run": name,
        "frames": list(frames),
        "job_folder": str(root),
        "script": str(path),
        "cache": str(folder.cache),
    }
    if only_print:
        click.echo(f"the job folder is {root}; nothing was submitted", err=True)
        if as_json:
            print_json({**told, "text": script})
        else:
            click.echo(script, nl=False)
        return 0
    if not has_slurm():
        text = f"there is no sbatch here, so nothing was submitted; where there is: sbatch {path}"
        if as_json:
            print_json({**told, "message": text, "exit_code": EXIT_NOT_SUBMITTED})
        else:
            click.echo(f"wrote {path}\nerror: {text}", err=True)
        return EXIT_NOT_SUBMITTED
    job = submit_to_slurm(path)
    note_submission(root, scheduler=scheduler, job=job)
    if as_json:
        print_json({**told, "event": "submitted", "scheduler": scheduler, "job": job})
    else:
        click.echo(_words(told, job, ranks=ranks))
    return 0


def _checked_scene(request: RunRequest) -> tuple[Scene, tuple[int, int]]:
    """Return the scene and its frames; whatever is wrong is told now and not in the night."""
    from loki_core.errors import InputError
    from loki_vfx.bridges.standalone.checking import check_declarations
    from loki_vfx.bridges.standalone.scene import frame_range

    scene = request.scene()
    frames = frame_range(request.frames, scene.setup, suggested=scene.frame_count)
    findings = check_declarations(scene)
    for finding in findings:
        if finding.severity == "error":
            raise InputError(finding.message)
        click.echo(f"warning: {finding.message}", err=True)
    return scene, frames


def _name_of(file: Path) -> str:
    """Return a name for the job of a file: its own, with letters that every system takes."""
    stem = file.name.removesuffix(".json").removesuffix(".loki")
    return re.sub(r"[^A-Za-z0-9_-]", "_", stem).lstrip("_-")[:64] or "scene"


def _absolute(words: list[str], here: Path) -> list[str]:
    return [str(here / words[0]), *words[1:]]


def _words(told: dict[str, Any], job: str, *, ranks: int) -> str:
    root = shlex.quote(told["job_folder"])
    first, last = told["frames"]
    top = f"wtloki top --root {root}"
    return "\n".join(
        (
            f"submitted job {job}: {told['run']}, frames {first} to {last}, ranks {ranks}",
            f"  frames:    {told['cache']}",
            f"  log:       {told['job_folder']}/slurm-{job}.log",
            f"  queue:     squeue --job {job}",
            f"  progress:  {top}",
            f"             srun --jobid {job} --overlap -n 1 {top} --once   from other machines",
        )
    )
