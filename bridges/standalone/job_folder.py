"""Job folders: a run with its script, ready for any machine that sees the folder.

JOB/job.sh           the batch script
JOB/NAME/            the run: see `bridges/live/run_folder.py`; its frames are in JOB/NAME/cache
JOB/slurm-42.log     what the job printed
JOB/submitted.json   to whom it was handed

A job folder is a server's root with one queued run in it. Everything in it is named by absolute
paths, so that it does not matter where the job starts.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from loki_core.errors import InputError
from loki_core.solver_setup import SolverSetup
from loki_vfx.bridges.live.run_folder import RunFolder, RunOptions, RunRecord, runs_in
from loki_vfx.bridges.live.security import owner_only_folder
from loki_vfx.bridges.live.sessions import OWNER
from loki_vfx.bridges.standalone.batch_script import SCRIPT_NAME
from loki_vfx.bridges.standalone.folder_lock import FolderLock
from loki_vfx.bridges.standalone.run_request import RunRequest
from loki_vfx.serialization.atomic_file import write_json

SUBMITTED = "submitted.json"


def absolute_request(request: RunRequest, folder: Path) -> RunRequest:
    """Return a request whose paths are absolute; relative ones were relative to a folder."""
    file = None if request.file is None else str(folder / request.file)
    return replace(
        request,
        file=file,
        output=str(folder / request.output),
        inputs=tuple(_absolute_input(one, folder) for one in request.inputs),
        extensions=tuple(str(folder / Path(one).expanduser()) for one in request.extensions),
    )


def _absolute_input(text: str, folder: Path) -> str:
    name, equals, path = text.partition("=")
    # Joined as texts: `cache#Object` and `wind.####.vdb` stay as they are behind the folder.
    return f"{name}={folder / path.strip()}" if equals and path.strip() else text


def prepare_job(
    root: Path,
    request: RunRequest,
    setup: SolverSetup,
    *,
    name: str,
    ranks: int,
    threads: int,
) -> RunFolder:
    """Make a job folder with one queued run in it; return the run's folder.

    Args:
        root: The job folder, new or one of before.
        request: What to run, with absolute paths; its `resume` and `overwrite` say what becomes
            of a run that is there.
        setup: The Solver Setup of the request, for those who look at the run.
        name: Of the run.

    Raises:
        InputError: The folder holds something else, or a run that would be lost.
    """
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is a file; choose a folder for the job with --output")
    is_job = (root / SCRIPT_NAME).exists() or bool(runs_in(root))
    if root.is_dir() and any(root.iterdir()) and not is_job:
        raise InputError(f"{root} is no job folder, and not empty; choose another with --output")
    owner_only_folder(root)
    with FolderLock(root):
        _check_alone(root, name)
        folder = RunFolder(root, name)
        record = _record(folder, request)
        record.options = RunOptions(
            frames=request.frames,
            ranks=ranks,
            threads=threads,
            checkpoint_every=request.checkpoint_every,
            keep_checkpoints=request.keep_checkpoints,
        )
        record.request = json.loads(request.to_json())
        record.state, record.message, record.ranks = "queued", "", 0
        folder.path.mkdir(mode=0o700, exist_ok=True)
        folder.write_document(setup.to_document())
        folder.write_record(record)
        (root / SUBMITTED).unlink(missing_ok=True)
    return folder


def _check_alone(root: Path, name: str) -> None:
    others = [one.name for one in runs_in(root) if one.name != name]
    if others:
        raise InputError(
            f'{root} holds run "{others[0]}"; choose another folder with --output, or --name '
            f"{others[0]} and --resume to go on with it"
        )


def _record(folder: RunFolder, request: RunRequest) -> RunRecord:
    """Return the record to begin with: that of a run to go on with, or a new one."""
    fresh = RunRecord(folder.name, OWNER, RunOptions())
    if not folder.exists():
        if request.resume:
            raise InputError(f"{folder.path} is not there, so there is nothing to resume")
        return fresh
    if request.resume:
        return folder.read_record()
    is_handed_over = (folder.path.parent / SUBMITTED).exists()
    if not request.overwrite and (is_handed_over or folder.cache.exists()):
        record = folder.read_record()
        raise InputError(
            f'{folder.path.parent} holds run "{folder.name}", which is {record.state}; add '
            "--resume to go on with it, --overwrite to start again, or choose another folder "
            "with --output"
        )
    folder.remove()
    return fresh


def write_script(root: Path, text: str) -> Path:
    """Write the batch script into a job folder and return where it is."""
    path = root / SCRIPT_NAME
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)
    return path


def note_submission(root: Path, *, scheduler: str, job: str) -> None:
    """Note that the job was handed over, so that nobody replaces it by mistake."""
    write_json(root / SUBMITTED, {"scheduler": scheduler, "job": job})
