"""One failing rank ends all ranks, soon, with its traceback and an exit code that says failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.ranks import run_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "failing_rank.py"
SOLVE = Path(__file__).parent / "scripts" / "failing_solve.py"


def run(way, ranks=2, script=SCRIPT):
    try:
        return run_on_ranks(script, ranks, way, timeout=90.0, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the ranks hang after a failure by {way}")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("early", "RuntimeError: rank 1 did not even start"),
        ("bug", "ZeroDivisionError: a bug on rank 1"),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_an_exception_of_one_rank_ends_all(way, words, ranks):
    done = run(way, ranks)
    assert done.returncode != 0
    assert f"rank 1 of {ranks} failed" in done.stderr
    assert "Traceback" in done.stderr and words in done.stderr
    assert "finished" not in done.stdout


@pytest.mark.mpi
def test_an_exit_of_one_rank_ends_all():
    done = run("exit")
    assert done.returncode != 0
    assert "finished" not in done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("input", "rank 1 cannot read its input"),
        ("divergence", "rank 1 has lost its balance"),
        ("nan", "not finite"),
    ],
)
def test_a_bad_state_of_one_rank_ends_all_after_the_retries(way, words):
    # Rolling back is a decision of all ranks: the others must not wait in another place.
    done = run(way)
    assert done.returncode != 0
    assert words in done.stderr
    assert "finished" not in done.stdout


@pytest.mark.mpi
def test_a_step_that_one_rank_alone_finds_bad_is_retried_by_all():
    done = run("once")
    assert done.returncode == 0, done.stderr
    assert "finished with 200 particles" in done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize(("way", "task"), [("solve", "Solids.solve"), ("gather", "Constraint")])
def test_a_failure_inside_what_ranks_do_together_ends_all(way, task):
    # The others wait in an exchange of the Task, where no agreement reaches them.
    done = run(way, script=SOLVE)
    assert done.returncode != 0
    assert "rank 1 of 2 failed" in done.stderr and "rank 1 cannot go on" in done.stderr
    assert "RankFailure" in done.stderr and task in done.stderr
    assert "finished" not in done.stdout
