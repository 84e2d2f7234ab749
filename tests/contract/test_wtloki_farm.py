"""`wtloki submit` and `wtloki top`: scripts, job folders, a server's runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.errors import InputError, LokiError
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.setup_document import write_setup
from loki_core.solver_setup import SolverSetup
from loki_vfx.bridges.live.client import Client
from loki_vfx.bridges.live.run_folder import RunFolder
from loki_vfx.bridges.standalone.batch_script import Resources, batch_script, time_limit_seconds
from loki_vfx.bridges.standalone.command_line import run_command
from loki_vfx.bridges.standalone.failures import UsageError
from loki_vfx.bridges.standalone.job_folder import absolute_request, prepare_job
from loki_vfx.bridges.standalone.run_request import RunRequest
from loki_vfx.bridges.standalone.run_table import RunUsage, byte_words, plain_table
from loki_vfx.serialization.frame_cache import FrameCacheReader
from tests.live.live_scenes import ServerProcess

SUBMIT = ("submit", "dust.loki.json", "--input", "seeds=seeds.npz", "--frames", "3")
#: Keeps what it was called with, and answers as Slurm's does.
FAKE_SBATCH = """#!/bin/bash
printf '%s\\n' "$@" > "$SBATCH_SAID"
echo "42;farm"
"""


def dust() -> SolverSetup:
    return SolverSetup("dust", ParticleObject(input="seeds"), GravityForce())


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """A folder with dust.loki.json, falling points, and seeds.npz."""
    write_setup(dust(), tmp_path / "dust.loki.json")
    np.savez(tmp_path / "seeds.npz", positions=np.random.default_rng(3).random((50, 3)))
    return tmp_path


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def wtloki(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The command, called in this process in the test's folder: starts of Python take long."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = run_command([str(one) for one in arguments])
        return Done(code, *capsys.readouterr())

    return call


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o700)
    return path


def syntax_errors(script: str) -> str:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    return done.stderr


# -- the script ----------------------------------------------------------------------------------


def test_the_script_asks_for_what_was_asked_and_starts_the_supervisor():
    asked = Resources(
        name="shot_12",
        ranks=16,
        nodes=4,
        threads=8,
        time="1-12:00:00",
        memory="64G",
        partition="cpu,gpu",
        account="film",
        requeue=True,
        options=("--constraint=skylake", "--mail-type=END"),
    )
    root = Path("/farm/it's a #1 job")
    text = batch_script(asked, root=root, command=["/opt/loki 1/wtloki"])
    assert syntax_errors(text) == ""
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line]
    assert lines == [
        "--job-name=shot_12",
        '--output="/farm/it\'s a #1 job/slurm-%j.log"',
        "--open-mode=append",
        "--nodes=4",
        "--ntasks=16",
        "--cpus-per-task=8",
        "--time=1-12:00:00",
        "--mem=64G",
        "--partition=cpu,gpu",
        "--account=film",
        "--signal=B:TERM@120",
        "--requeue",
        "--constraint=skylake",
        "--mail-type=END",
    ]
    (serve,) = (line for line in text.splitlines() if line.endswith(" &"))
    words = ["/opt/loki 1/wtloki", "serve", "--root", str(root)]
    assert shlex.split(serve)[:-1] == [*words, "--end-when-idle", "0", "--ranks", "16"]
    assert "scontrol requeue" in text
    assert "scontrol" not in batch_script(Resources(name="a"), root=root, command=["/w"])


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a\nrm -rf ~"},
        {"name": 'a"; rm'},
        {"name": "$(rm)"},
        {"name": "-a"},
        {"name": ""},
        {"time": "1:00\n#SBATCH --uid=0"},
        {"time": "soon"},
        {"time": "3"},  # it would be stopped as soon as it starts
        {"memory": "64 G"},
        {"memory": "0"},
        {"partition": "cpu main"},
        {"account": "a\nb"},
        {"nodes": 2},  # for one rank
        {"options": ("--comment=a\nrm -rf ~",)},
        {"options": ("--comment=a\rb",)},
        {"options": ("rm",)},
    ],
)
def test_what_could_break_out_of_the_script_is_refused(values):
    with pytest.raises(UsageError, match=next(iter(values)).replace("options", "sbatch")):
        Resources(**{"name": "a", **values})


@pytest.mark.parametrize("name", ["a\nb", 'a"b', "a\\b", "100%", "a\tb"])
def test_a_folder_that_slurm_cannot_read_is_refused(name):
    with pytest.raises(UsageError, match="--output"):
        batch_script(Resources(name="a"), root=Path("/farm") / name, command=["/w"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:10", 1810),
        ("2:00:30", 7230),
        ("1-6", 108_000),
        ("1-6:30", 109_800),
        ("1-6:30:01", 109_801),
    ],
)
def test_time_limits_are_those_of_slurm(text, seconds):
    assert time_limit_seconds(text) == seconds


@pytest.mark.parametrize(("code", "stopped"), [(0, False), (3, False), (1, True), (0, True)])
def test_the_script_ends_with_the_code_of_the_server_and_passes_the_stop_on(
    tmp_path: Path, code: int, stopped: bool
) -> None:
    wait = f"trap 'sleep 0.2; exit {code}' TERM; touch up; while :; do sleep 0.05; done"
    body = wait if stopped else f"exit {code}"
    server = executable(tmp_path / "wtloki", f"#!/bin/bash\n{body}\n")
    executable(tmp_path / "scontrol", '#!/bin/bash\necho "$@" > requeued\n')
    text = batch_script(Resources(name="a", requeue=True), root=tmp_path, command=[str(server)])
    (tmp_path / "job.sh").write_text(text)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "42"}
    process = subprocess.Popen(
        ["bash", "job.sh"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    while stopped and not (tmp_path / "up").exists():
        assert process.poll() is None
    if stopped:
        process.terminate()
        process.terminate()
    said, _ = process.communicate(timeout=30)
    is_queued_again = stopped and code != 0
    assert process.returncode == (0 if is_queued_again else code)
    assert ("queued again" in said) == is_queued_again
    assert (tmp_path / "requeued").exists() == is_queued_again
    if is_queued_again:
        assert (tmp_path / "requeued").read_text() == "requeue 42\n"


# -- the job folder ------------------------------------------------------------------------------


def test_paths_of_a_request_do_not_depend_on_where_a_job_starts():
    request = RunRequest(
        output="out",
        file="scenes/dust.loki.json",
        inputs=(
            "seeds=seeds.npz",
            "pool=../pool#Water/ParticleObject",
            "wind=vdb/wind.####.vdb",
            "body=/models/body.ply",
        ),
        extensions=("forces", "/opt/more"),
    )
    made = absolute_request(request, Path("/shots/12"))
    assert made.file == "/shots/12/scenes/dust.loki.json" and made.output == "/shots/12/out"
    assert made.inputs == (
        "seeds=/shots/12/seeds.npz",
        "pool=/shots/12/../pool#Water/ParticleObject",
        "wind=/shots/12/vdb/wind.####.vdb",
        "body=/models/body.ply",
    )
    assert made.extensions == ("/shots/12/forces", "/opt/more")


def prepare(root: Path, name: str = "dust", **values: object) -> RunFolder:
    request = RunRequest(output=str(root / "cache"), file="/dust.loki.json", **values)
    return prepare_job(root, request, dust(), name=name, ranks=2, threads=1)


def test_a_run_that_began_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    root = tmp_path / "job"
    first = prepare(root, frames="3")
    assert prepare(root, frames="4").read_record().options.frames == "4"  # it had not begun
    record = first.read_record()
    assert record.state == "queued" and record.request["frames"] == "4"
    (first.cache / "frames").mkdir(parents=True)
    record.state, record.restarts = "stopped", 2
    first.write_record(record)
    with pytest.raises(InputError, match=r"stopped.*--resume"):
        prepare(root, frames="5")
    again = prepare(root, frames="5", resume=True).read_record()
    assert (again.state, again.restarts, again.options.frames) == ("queued", 2, "5")
    assert first.cache.exists()
    prepare(root, overwrite=True)
    assert not first.cache.exists()
    with pytest.raises(InputError, match='holds run "dust"'):
        prepare(root, name="other")
    with pytest.raises(InputError, match="nothing to resume"):
        prepare(tmp_path / "new", resume=True)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="no job folder"):
        prepare(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


# -- the command ---------------------------------------------------------------------------------


def test_the_printed_script_runs_the_job_to_its_end(scene: Path, wtloki) -> None:
    done = wtloki(*SUBMIT, "--name", "night", "--print")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (scene / "night_job" / "job.sh").read_text()
    job = subprocess.run(
        ["bash", str(scene / "night_job" / "job.sh")],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    assert RunFolder(scene / "night_job", "night").read_record().state == "finished"
    reader = FrameCacheReader(scene / "night_job" / "night" / "cache")
    assert reader.frames() == [1, 2, 3] and reader.verify() == []
    top = wtloki("top", "--root", "night_job")
    assert top.returncode == 1 and "night (finished)" in top.stderr


def test_submitting_calls_sbatch_and_says_how_to_follow(
    scene: Path, wtloki, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(scene / "tools" / "sbatch", FAKE_SBATCH)
    monkeypatch.setenv("PATH", f"{scene / 'tools'}:{os.environ['PATH']}")
    monkeypatch.setenv("SBATCH_SAID", str(scene / "said"))
    words = (*SUBMIT, "--ranks", "2", "--sbatch", "--constraint=fast")
    done = wtloki(*words)
    assert done.returncode == 0, done.stderr
    script = scene / "dust_job" / "job.sh"
    assert (scene / "said").read_text().splitlines() == ["--parsable", str(script)]
    assert "job 42" in done.stdout and f"wtloki top --root {scene}/dust_job" in done.stdout
    assert "#SBATCH --constraint=fast" in script.read_text()
    again = wtloki(*words, "--json")
    assert again.returncode == 4 and "--resume" in json.loads(again.stdout)["message"]
    told = json.loads(wtloki(*words, "--json", "--overwrite").stdout)
    assert told["event"] == "submitted" and told["job"] == "42" and told["frames"] == [1, 3]


def test_without_slurm_the_script_stays_and_a_refusal_of_slurm_is_told(
    scene: Path, wtloki, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(scene / "nothing"))
    done = wtloki(*SUBMIT)
    assert done.returncode == 1 and f"sbatch {scene}/dust_job/job.sh" in done.stderr
    executable(scene / "sbatch", "#!/bin/bash\necho no such partition >&2\nexit 1\n")
    monkeypatch.setenv("PATH", f"{scene}:{path}")
    refused = wtloki(*SUBMIT)
    assert refused.returncode == 1 and "no such partition" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--set", "GravityForce.acceleraton=3"), 3, "did you mean"),
        (("--frames", "9-3"), 2, "ends before it begins"),
        (("--name", "a b"), 2, "--name 'a b'"),
        (("--time", "1"), 2, "--stop-before"),
        (("--input", "wind=wind.vdb"), 4, "wind.vdb is not there"),
        (("--output", "seeds.npz"), 4, "is a file"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(scene, wtloki, words, code, message):
    done = wtloki(*SUBMIT, *words)
    assert done.returncode == code and message in done.stderr, done.stderr
    assert not list(scene.glob("*_job"))


def test_a_scene_with_nothing_to_simulate_is_not_submitted(scene: Path, wtloki) -> None:
    done = wtloki("submit", "dust.loki.json", "--print")
    assert done.returncode == 4 and "seeds" in done.stderr
    assert not list(scene.glob("*_job"))


# -- top -----------------------------------------------------------------------------------------


def test_top_shows_the_runs_of_a_server(tmp_path: Path, wtloki) -> None:
    root = tmp_path / "runs"
    seeds = Points(np.random.default_rng(3).random((50, 3)))
    token = tmp_path / "token"
    with ServerProcess(root, "--listen", "tcp://127.0.0.1:*", "--token-file", str(token)) as server:
        with Client(server.endpoint) as client:
            run = client.submit(dust(), {"seeds": seeds}, run="night", frames="3")
            assert [frame.number for frame in run.frames()] == [1, 2, 3]
        shown = wtloki("top", "--root", root, "--once", "--json")
        plain = wtloki("top", "--endpoint", server.tcp, "--token-file", token, "--once")
    told = json.loads(shown.stdout)
    (one,) = told["runs"]
    assert told["server"]["root"] == str(root)
    assert (one["run"], one["state"], one["frame"], one["last"]) == ("night", "finished", 3, 3)
    assert one["ranks"] == len(one["memory_of_ranks"]) == 1
    assert one["memory_of_ranks"][0] > 1_000_000 and one["balance"] == 1.0
    assert 0.99 < sum(one["stages"].values()) < 1.01
    assert plain.returncode == 0, plain.stderr
    assert "night" in plain.stdout.splitlines()[2] and "3/3" in plain.stdout


def test_top_without_a_server_says_so_and_starts_none(tmp_path: Path, wtloki) -> None:
    done = wtloki("top", "--root", tmp_path / "runs", "--once")
    assert done.returncode == 1 and "no server serves" in done.stderr
    assert not (tmp_path / "runs").exists()
    assert wtloki("top", "--root", "a", "--endpoint", "tcp://127.0.0.1:1").returncode == 2


def test_top_goes_on_until_the_server_is_gone(tmp_path: Path, wtloki, monkeypatch) -> None:
    status = {"runs": [], "server": {"root": "/runs", "cores": 2, "memory": {}}}
    looks = iter([status, status])

    def look(*arguments: object, **options: object) -> dict:
        try:
            return next(looks)
        except StopIteration:
            raise LokiError("no server serves /runs") from None

    monkeypatch.setattr("loki_vfx.bridges.standalone.top_command._status", look)
    done = wtloki("top", "--root", "runs", "--interval", "0.2")
    assert done.returncode == 0 and done.stdout.count("/runs: 2 cores") == 2
    assert "has ended" in done.stderr


def test_the_table_has_words_for_people():
    summary = {
        "run": "night",
        "owner": "owner",
        "state": "running",
        "message": "",
        "ranks": 2,
        "restarts": 1,
        "memory": 12_000,
        "clients": 1,
        "progress": {"frame": 12, "last": 48, "seconds": 71.0, "seconds_left": 7300.0},
        "statistics": {
            "ranks": [{"memory": 1_500_000_000}, {"memory": 1_600_000_000}],
            "stages": {"ADVECT": 1.0, "SOLVE": 3.0},
            "balance": 1.0625,
        },
    }
    header, row = plain_table([RunUsage.from_summary(summary)]).splitlines()
    assert header.startswith("run    state")
    assert re.split(r"  +", row) == [
        "night",
        "running",
        "12/48",
        "1 min 11 s",
        "2 h 01 min",
        "2",
        "3.1 GB",
        "1.5 GB, 1.6 GB",
        "1.06",
        "1",
        "1",
        "SOLVE 75 %, ADVECT 25 %",
    ]
    waiting = {**summary, "state": "queued", "progress": {}, "statistics": {}, "memory": 0}
    assert RunUsage.from_summary(waiting).row()[2:8] == ("-", "-", "-", "2", "-", "-")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (12_500, "12.5 kB"), (999_900, "1 MB"), (3.2e9, "3.2 GB")],
)
def test_sizes_are_readable(count, words):
    assert byte_words(count) == words
