"""Batch scripts: a job folder's run as a job of a batch system, and handing it to Slurm.

The script starts the supervisor, `wtloki serve`, which starts `mpiexec` on the machines of the
job and starts it again from checkpoints. Lines for Slurm are comments to everybody else, so any
batch system that runs bash scripts can take it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loki_core.errors import LokiError
from loki_vfx.bridges.standalone.failures import UsageError

SCRIPT_NAME = "job.sh"
#: A job that is stopped again and again is queued again so often, and then left to a person.
MOST_REQUEUES = 100
#: Slurm looks at time limits once a minute, so its warning may come that much early [s].
SLURM_MINUTE = 60
_JOB_ID = re.compile(r"\d+(?=;|\s*$)")
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_PATTERNS = {
    "name": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"), "letters, digits, _ or -"),
    "partition": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,-]{0,199}"), "names of partitions"),
    "account": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,199}"), "the name of an account"),
    "memory": (re.compile(r"[1-9]\d{0,8}[KMGT]?"), "a number and K, M, G or T, such as 64G"),
}


@dataclass(frozen=True)
class Resources:
    """What a job asks of the batch system.

    Attributes:
        name: Of the job.
        ranks: Processes of the MPI job, over all nodes.
        threads: Cores of each rank.
        time: Limit, as Slurm writes it: minutes, h:m:s, d-h:m:s.
        memory: Of each node, such as 64G.
        stop_before: How long before the limit the run is stopped with a checkpoint [s].
        requeue: Whether a job that was stopped is queued again.
        options: Further options of sbatch.

    Raises:
        UsageError: A value could not stand in a script.
    """

    name: str
    ranks: int = 1
    nodes: int = 1
    threads: int = 1
    time: str | None = None
    memory: str | None = None
    partition: str | None = None
    account: str | None = None
    stop_before: int = 120
    requeue: bool = False
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, (pattern, expected) in _PATTERNS.items():
            value = getattr(self, name)
            if value is not None and not pattern.fullmatch(value):
                raise UsageError(f"--{name} {value[:80]!r}: expected {expected}")
        if self.nodes > self.ranks:
            raise UsageError(
                f"--nodes {self.nodes} is more than --ranks {self.ranks}: a node without a rank "
                "has nothing to do"
            )
        if self.time is not None:
            self._check_time(self.time)
        for option in self.options:
            if not re.fullmatch(r"--?[A-Za-z].*", option) or not option.isprintable():
                raise UsageError(
                    f"--sbatch {option[:80]!r}: expected one option of sbatch on one line, such "
                    "as --constraint=skylake"
                )

    def _check_time(self, text: str) -> None:
        seconds = time_limit_seconds(text)
        least = self.stop_before + SLURM_MINUTE
        if seconds <= least:
            raise UsageError(
                f"--time {text} is {seconds} s, and the run is stopped up to {least} s before its "
                "end; ask for more, or let --stop-before be less"
            )

    def directives(self, log: Path) -> list[str]:
        """Return the lines that Slurm reads."""
        values = {
            "job-name": self.name,
            "output": str(log),
            "open-mode": "append",  # a job that is queued again goes on with its log
            "nodes": self.nodes,
            "ntasks": self.ranks,
            "cpus-per-task": self.threads,
            "time": self.time,
            "mem": self.memory,
            "partition": self.partition,
            "account": self.account,
            "signal": f"B:TERM@{self.stop_before}",
        }
        given = [f"--{name}={_quoted(str(v))}" for name, v in values.items() if v is not None]
        return [*given, *(["--requeue"] if self.requeue else []), *self.options]


def batch_script(resources: Resources, *, root: Path, command: Sequence[str]) -> str:
    """Return the script of a job.

    Args:
        resources: What it asks for.
        root: The job folder, an absolute path.
        command: How `wtloki` is called, by an absolute path.

    Raises:
        UsageError: Slurm could not read the path of the folder.
    """
    if not str(root).isprintable() or set(str(root)) & set('"\\%'):
        raise UsageError(
            f"job folder {str(root)!r}: Slurm reads no path with quotes, backslashes, percent or "
            "control characters; choose another with --output"
        )
    lines = "\n".join(f"#SBATCH {one}" for one in resources.directives(root / "slurm-%j.log"))
    serve = [*command, "serve", "--root", str(root), "--end-when-idle", "0"]
    serve += ["--ranks", str(resources.ranks)]
    again = _REQUEUE.format(most=MOST_REQUEUES) if resources.requeue else ""
    script = shlex.quote(str(root / SCRIPT_NAME))
    return _SCRIPT.format(lines=lines, serve=shlex.join(serve), again=again, script=script)


_SCRIPT = """\
#!/bin/bash
{lines}

# mpiexec starts one process on each node through srun: with all cores of the job there, without
# Slurm's own MPI, and without waiting for what ran before it.
export SLURM_CPU_BIND=none SLURM_MPI_TYPE=none SLURM_OVERLAP=1

stopped=0
server=
stop() {{
    stopped=1
    [ -z "$server" ] || kill -TERM "$server" 2>/dev/null
}}

# A stop may come at any moment: before the server is there, it is passed on as soon as it is.
trap stop TERM
{serve} &
server=$!
[ "$stopped" = 0 ] || stop
while kill -0 "$server" 2>/dev/null; do
    wait "$server" # a signal ends the waiting, not the server
done
wait "$server"
code=$?

if [ "$stopped" = 1 ] && [ "$code" != 0 ]; then
{again}    echo "the run was stopped before its end; to go on from its checkpoint, submit again:" \\
        {script}
fi
exit "$code"
"""

_REQUEUE = """\
    if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ] && scontrol requeue "${{SLURM_JOB_ID:-}}"; then
        echo "the run was stopped before its end; the job is queued again"
        exit 0
    fi
"""


def submit_to_slurm(script: Path) -> str:
    """Hand a script to sbatch and return the number of the job.

    Raises:
        LokiError: sbatch refuses it.
    """
    command = ["sbatch", "--parsable", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _JOB_ID.search(done.stdout.strip().partition("\n")[0])
    if done.returncode != 0 or found is None:
        said = (done.stderr or done.stdout).strip()
        raise LokiError(
            f"sbatch did not take {script} (code {done.returncode}): {said}\n"
            f"the script stays there; when the reason is gone: sbatch {shlex.quote(str(script))}"
        )
    sys.stderr.write(done.stderr)  # remarks, such as one about the limits of a partition
    return found.group()


def has_slurm() -> bool:
    """Whether jobs can be submitted to Slurm from here."""
    return shutil.which("sbatch") is not None


def time_limit_seconds(text: str) -> int:
    """Return a time limit as Slurm reads it: m, m:s, h:m:s, d-h, d-h:m, d-h:m:s [s].

    Raises:
        UsageError: It is none.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--time {text[:80]!r}: expected minutes, hours:minutes:seconds or "
            "days-hours:minutes:seconds"
        )
    days, *parts = match.groups()
    values = [int(one) for one in parts if one is not None]
    if days is not None:
        units: tuple[int, ...] = (3600, 60, 1)
        return int(days) * 86_400 + sum(v * u for v, u in zip(values, units))
    units = (3600, 60, 1) if len(values) == 3 else (60, 1)
    return sum(v * u for v, u in zip(values, units))


def _quoted(value: str) -> str:
    """Return a value as sbatch reads it in a script: in quotes where it has letters of its own."""
    return value if re.fullmatch(r"[\w./:@%+,=-]*", value, re.ASCII) else f'"{value}"'
