"""Checkpoints on ranks: continued bit for bit, also on another number of ranks.

Particles without neighbours take part in no sum over ranks, so here even another number of ranks
changes no bit; the promise of the design for that case is a tolerance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import run_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "checkpoint_ranks.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs on any number of ranks, each once, and the folders of their checkpoints."""
    known = {}

    def run(ranks, way="run"):
        if (ranks, way) not in known:
            folder = tmp_path_factory.mktemp(f"{way}_{ranks}")
            checkpoints = folder / "checkpoints"
            known[ranks, way] = results(way, ranks, checkpoints, folder), checkpoints
        return known[ranks, way]

    return run


def results(way, ranks, checkpoints, folder):
    target = folder / f"{way}_{ranks}.npz"
    run_on_ranks(SCRIPT, ranks, target, way, checkpoints)
    with np.load(target) as saved:
        return dict(saved)


def assert_same(one, other):
    for name in one:
        if name != "counts":
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert one["counts"].sum() == other["counts"].sum() > 500


@pytest.mark.mpi
def test_the_whole_run_does_not_depend_on_the_ranks(runs):
    one, two = runs(1)[0], runs(2)[0]
    assert_same(one, two)
    assert np.ptp(one["id"]) > len(one["id"])  # some died, some were born


@pytest.mark.mpi
@pytest.mark.parametrize(("written", "read"), [(1, 1), (2, 2), (1, 3), (2, 3), (2, 1)])
def test_a_checkpoint_is_continued_on_any_number_of_ranks(runs, tmp_path, written, read):
    whole, checkpoints = runs(written)
    resumed = results("resume", read, checkpoints, tmp_path)
    assert_same(whole, resumed)
    assert len(resumed["counts"]) == read
    assert resumed["counts"].min() > 0  # the data were cut anew, not left on a few ranks


@pytest.mark.mpi
def test_a_run_that_was_stopped_by_one_rank_is_continued(runs, tmp_path):
    stopped, checkpoints = runs(2, "cancel")
    whole = runs(2)[0]
    assert stopped["time"] < whole["time"]
    assert_same(whole, results("resume", 2, checkpoints, tmp_path))
